"""A task: one unit of work with a state, a history and artifacts, and the events of its event log.

`protocol.lifecycle` defines the transitions between states and applies events to tasks. `storage` stores tasks.

An event's `seq` starts at 1 and is gapless per task. A task that opens a stream has the `seq` of the last event it
includes, or 0. It is the `id:` of server-sent events and never part of a dialect's own objects.

`parts_of` and `with_parts` locate the parts inside a value: stores keep large ones separately, and bindings replace
some by URLs.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar, cast

from msgspec.structs import force_setattr, replace

from accord.model import metadata_keys
from accord.model.base import A2AModel, Choice, Metadata, NonEmpty, Timestamp, named_timestamp, timestamp, timestamp_ms
from accord.model.message import Artifact, Message, Part


class TaskState(Choice):
    """The nine states of a task. A2A 1.0 has no name for `UNKNOWN`, so its zero value stands for it."""

    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    REJECTED = "TASK_STATE_REJECTED"
    UNKNOWN = "TASK_STATE_UNSPECIFIED"


class TaskStatus(A2AModel):
    """A state, its time, and the agent's message about it."""

    state: TaskState
    message: Message | None = None
    timestamp: Timestamp | None = None

    def __post_init__(self) -> None:
        """Normalize the timestamp, or refuse it."""
        if self.timestamp is not None and (exact := named_timestamp("timestamp", self.timestamp)) != self.timestamp:
            force_setattr(self, "timestamp", exact)


class Task(A2AModel):
    """One unit of work."""

    id: NonEmpty
    status: TaskStatus
    context_id: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: Metadata | None = None

    @property
    def created_at(self) -> str | None:
        """When the task was created: as another system stated it, else from its time-ordered id, else the status time.

        Ids of this server are UUIDv7, whose first 48 bits are the creation time in milliseconds, so no dialect needs a
        field that A2A 1.0 does not have.
        """
        created = (self.metadata or {}).get(metadata_keys.CREATED_AT)
        if isinstance(created, str):
            try:
                return timestamp(created)
            except ValueError:
                pass
        return _uuid7_time(self.id) or self.status.timestamp


def _uuid7_time(identifier: str) -> str | None:
    digits = identifier.replace("-", "")
    if len(digits) != 32 or digits[12] != "7" or digits[16] not in "89abAB":
        return None
    try:
        return timestamp_ms(int(digits[:12], 16))
    except (ValueError, OverflowError, OSError):
        return None


class StatusUpdate(A2AModel):
    """The task's status changed."""

    task_id: NonEmpty
    context_id: str
    status: TaskStatus
    metadata: Metadata | None = None


class ArtifactUpdate(A2AModel):
    """An artifact was created, replaced or (with `append`) extended."""

    task_id: NonEmpty
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


class MessageUpdate(A2AModel):
    """A message was added to the task's history. A2A has no such stream event; AgentVault's profile does."""

    task_id: NonEmpty
    context_id: str
    message: Message


EventBody = Task | Message | StatusUpdate | ArtifactUpdate | MessageUpdate
"""Body of a stream event. A stream starts with the task, or with one message that replies without a task. Updates
follow.
"""


class Event(A2AModel):
    """One entry of a task's log, or of a stream made from it."""

    seq: int
    body: EventBody
    at: str | None = None


# --- parts inside a value -------------------------------------------------------------------------------------------

Holder = TypeVar("Holder", bound=Part | Message | Artifact | Task | StatusUpdate | ArtifactUpdate | MessageUpdate)

_FIELDS: dict[type, tuple[str, ...]] = {
    Task: ("status", "artifacts", "history"),
    TaskStatus: ("message",),
    Message: ("parts",),
    Artifact: ("parts",),
    StatusUpdate: ("status",),
    ArtifactUpdate: ("artifact",),
    MessageUpdate: ("message",),
}
"""Type -> its fields that contain parts."""


def parts_of(value: Any) -> Sequence[Part]:
    """Return every part inside a value. Called for each stored event."""
    return _PARTS[type(value)](value)


def _parts_of_task(task: Task) -> list[Part]:
    parts = list(_parts_of_status(task))
    for message in task.history:
        parts += message.parts
    for artifact in task.artifacts:
        parts += artifact.parts
    return parts


def _parts_of_status(value: Task | StatusUpdate) -> Sequence[Part]:
    return () if value.status.message is None else value.status.message.parts


_PARTS: dict[type, Callable[[Any], Sequence[Part]]] = {
    Task: _parts_of_task,
    Part: lambda part: (part,),
    Message: attrgetter("parts"),
    Artifact: attrgetter("parts"),
    StatusUpdate: _parts_of_status,
    ArtifactUpdate: attrgetter("artifact.parts"),
    MessageUpdate: attrgetter("message.parts"),
}
"""Type -> function that returns its parts."""


def with_parts(value: Holder, change: Callable[[Part], Part]) -> Holder:
    """Return a value with every part changed; an unchanged value is returned itself."""
    return cast(Holder, _changed(value, change))


def _changed(value: Any, change: Callable[[Part], Part]) -> Any:
    if value is None:
        return None
    if isinstance(value, Part):
        return change(value)
    if isinstance(value, tuple):
        items = tuple(_changed(item, change) for item in value)
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    changed = {}
    for field in _FIELDS[type(value)]:
        old = getattr(value, field)
        if (new := _changed(old, change)) is not old:
            changed[field] = new
    return replace(value, **changed) if changed else value
