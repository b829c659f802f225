"""`assert_task`: everything that a test expects of a task, in one call whose failure says all that is otherwise.

It compares and does nothing else; what it is given comes from `inprocess`, from a client, or from a webhook.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accord.client.text import Said
from accord.engine.messages import text_of
from accord.model import ArtifactUpdate, Event, EventBody, Message, MessageUpdate, StatusUpdate, Task, TaskState
from accord.protocol import lifecycle
from accord.testing.inprocess import text_in

Expected = str | re.Pattern[str]
"""A text that is expected: it itself, or a pattern that is found in it."""

SHOWN = 200
"""Characters of a text that a failure shows."""


def assert_task(
    task: Task | Said | Iterable[Event | EventBody],
    *,
    state: TaskState | str | None = None,
    text: Expected | None = None,
    artifacts: Mapping[str, Expected] | Sequence[Expected] | None = None,
    history: Sequence[Expected] | None = None,
    events: Sequence[str] | None = None,
) -> Task:
    """Raise AssertionError unless a task is as expected, and return it; what is not stated may be anything.

    `state` is one, or its name (`"completed"`). `text` is that of all artifacts, or of the status without any.
    `artifacts` are texts, by id or in order: as many as there are. `history` is what was said, `user: ...` and
    `agent: ...`. With the events of a stream in place of a task, `events` is their outline: the names of states, with
    `artifact` and `message` between them; the task is what they add up to.
    """
    found, seen = _read(task)
    wrong: list[str] = []
    if state is not None and found.status.state is not (wanted := _state(state)):
        wrong.append(f"state: {_name(found.status.state)}, not {_name(wanted)}")
    if text is not None and not _fits(text, said := text_in(found)):
        wrong.append(f"text: {_shown(said)}, not {_wanted(text)}")
    if artifacts is not None:
        wrong += _artifacts(artifacts, found)
    if history is not None:
        wrong += _listed("history", [f"{_role(one)}: {text_of(one.parts)}" for one in found.history], history)
    if events is not None:
        if seen is None:
            raise TypeError("A task does not know its events: give the events of its stream in its place")
        wrong += _listed("events", seen, events)
    if wrong:
        raise AssertionError(
            "\n".join([f"The task {found.id} is otherwise:", *(f"  {one}" for one in wrong), *_all(found)])
        )
    return found


def _read(given: Task | Said | Iterable[Event | EventBody]) -> tuple[Task, list[str] | None]:
    """Return a task, and the outline of the events that it was made of."""
    if isinstance(given, Task):
        return given, None
    if isinstance(given, Said):
        if isinstance(given.raw, Message):
            raise AssertionError(f"There is no task, but a message alone: {_shown(given.text)}")
        return given.raw, None
    if isinstance(given, Message):
        raise AssertionError(f"There is no task, but a message alone: {_shown(text_of(given.parts))}")
    bodies = [one.body if isinstance(one, Event) else one for one in given]
    first = bodies[0] if bodies else None
    if not isinstance(first, Task):
        raise AssertionError(f"The first event of a stream is its task, and this is {type(first).__name__}")
    task = first
    for body in bodies[1:]:
        task = body if isinstance(body, Task) else lifecycle.apply(task, body)
    return task, [_outlined(body) for body in bodies]


def _outlined(body: EventBody) -> str:
    match body:
        case Task() | StatusUpdate():
            return _name(body.status.state)
        case ArtifactUpdate():
            return "artifact"
        case MessageUpdate() | Message():
            return "message"
    raise TypeError(f"{type(body).__name__} is no event")


def _artifacts(wanted: Mapping[str, Expected] | Sequence[Expected], task: Task) -> list[str]:
    found = {one.artifact_id: text_of(one.parts) for one in task.artifacts}
    if not isinstance(wanted, Mapping):
        return _listed("artifacts", list(found.values()), wanted)
    wrong = [f"artifacts: there is no {id!r}, but {', '.join(found) or 'none'}" for id in wanted if id not in found]
    wrong += [f"artifacts: {id!r} was not expected" for id in found if id not in wanted]
    both = [id for id in wanted if id in found and not _fits(wanted[id], found[id])]
    return wrong + [f"artifacts: {id!r} is {_shown(found[id])}, not {_wanted(wanted[id])}" for id in both]


def _listed(what: str, found: Sequence[str], wanted: Sequence[Expected]) -> list[str]:
    wrong = []
    for place in range(max(len(found), len(wanted))):
        if place >= len(wanted):
            wrong.append(f"{what}[{place}]: {_shown(found[place])} was not expected")
        elif place >= len(found):
            wrong.append(f"{what}[{place}]: nothing, not {_wanted(wanted[place])}")
        elif not _fits(wanted[place], found[place]):
            wrong.append(f"{what}[{place}]: {_shown(found[place])}, not {_wanted(wanted[place])}")
    return wrong


def _fits(wanted: Expected, found: str) -> bool:
    return wanted == found if isinstance(wanted, str) else wanted.search(found) is not None


def _wanted(wanted: Expected) -> str:
    return _shown(wanted) if isinstance(wanted, str) else f"something with /{wanted.pattern}/"


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _state(state: TaskState | str) -> TaskState:
    return state if isinstance(state, TaskState) else TaskState[state.upper().replace("-", "_")]


def _name(state: TaskState) -> str:
    return state.name.lower().replace("_", "-")


def _role(message: Message) -> str:
    return message.role.name.lower()


def _all(task: Task) -> list[str]:
    """Return the task as it is, for whoever reads a failure."""
    status = f": {_shown(text_of(task.status.message.parts))}" if task.status.message else ""
    lines: list[Any] = ["It is:", f"  state {_name(task.status.state)}{status}"]
    lines += [f"  artifact {one.artifact_id!r}: {_shown(text_of(one.parts))}" for one in task.artifacts]
    return lines + [f"  {_role(one)}: {_shown(text_of(one.parts))}" for one in task.history]
