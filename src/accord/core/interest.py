"""Which events a webhook is told: every change of state, and artifacts if it gets events; or those that it names.

A name is a kind of event (`status`, `artifact`, `message`) or a state (`completed`), as any dialect spells it; `*` is
everything. Who asks for events is told every chunk; who gets them because that is its dialect's form, each artifact
once, when it is whole. It decides nothing but that: deliveries are `core.push`, and what a body holds is a dialect's.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from accord.model import ArtifactUpdate, Event, EventBody, MessageUpdate, PushConfig, PushFormat, StatusUpdate, Task
from accord.model import TaskState as S
from accord.protocol.codec import invalid_field
from accord.protocol.states import GEN, LOWER, PROTO_03, VAULT

ALL = "*"

STATUS = frozenset({"status", "statusupdate", "taskstatus", "task"})
ARTIFACT = frozenset({"artifact", "artifactupdate", "taskartifact"})
MESSAGE = frozenset({"message", "messageupdate", "taskmessage"})
"""The names of each kind of event, as `_plain` writes them."""


def _plain(name: str) -> str:
    """Return a name without what only spelling adds: `status-update`, `statusUpdate` and `STATUS_UPDATE` are one."""
    return "".join(filter(str.isalnum, name.lower())) or name


STATES: Mapping[S, frozenset[str]] = {
    state: frozenset(_plain(name) for name in (LOWER[state], VAULT[state], GEN[state], PROTO_03[state], state.value))
    for state in S
}
"""The names of each state. Coarser dialects have one for several: their `failed` is also `rejected` and `unknown`."""

_KNOWN = STATUS | ARTIFACT | MESSAGE | {ALL} | frozenset[str]().union(*STATES.values())


def check_events(names: Iterable[str]) -> None:
    """Refuse a name that no event has: a webhook that only waits for that would never be called."""
    for name in names:
        if _plain(name) not in _KNOWN:
            raise invalid_field("events", f"There is no event {name[:40]!r}")


def is_wanted(event: Event, config: PushConfig) -> bool:
    """Whether a webhook is told an event."""
    if config.events:
        return not _names(event.body).isdisjoint(map(_plain, config.events))
    if isinstance(event.body, StatusUpdate | Task):
        return True
    return isinstance(event.body, ArtifactUpdate) and config.payload_format is PushFormat.EVENT


def wants_wholes(config: PushConfig, form: PushFormat) -> bool:
    """Whether a webhook, whose dialect has bodies of that form, is told artifacts when they are whole."""
    return not config.events and config.payload_format is None and form is PushFormat.EVENT


def is_whole(event: Event) -> bool:
    """Whether an event says that an artifact is whole."""
    return isinstance(event.body, ArtifactUpdate) and event.body.last_chunk


def whole(event: Event, task: Task) -> Event:
    """Return the event that says that an artifact is whole with all of it, as the task has it then."""
    update = event.body
    assert isinstance(update, ArtifactUpdate)
    found = (one for one in task.artifacts if one.artifact_id == update.artifact.artifact_id)
    return replace(event, body=replace(update, artifact=next(found, update.artifact), append=False))


def _names(body: EventBody) -> frozenset[str]:
    match body:
        case StatusUpdate():
            return STATUS | STATES[body.status.state] | {ALL}
        case Task():  # what is left of a log that is gone: its last state, and all it made
            return STATUS | STATES[body.status.state] | (ARTIFACT if body.artifacts else frozenset()) | {ALL}
        case ArtifactUpdate():
            return ARTIFACT | {ALL}
        case MessageUpdate():
            return MESSAGE | {ALL}
    return frozenset()
