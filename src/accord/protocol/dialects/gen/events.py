"""Stream events of the generic dialect, framed like A2A 0.3's: one JSON-RPC answer for each.

Its founding document names what a stream carries but gives no shapes; these are ours:

- `{type: "status", task_id, context_id, status, message, timestamp, final, metadata}`
- `{type: "artifact", task_id, context_id, artifact, append, last_chunk, timestamp, metadata}`
- `{type: "message", task_id, context_id, message}`; `task_id` is null for a message that answers without a task
- `{type: "task", ...the members of the task}`
"""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from accord.model import (
    ArtifactUpdate,
    Event,
    EventBody,
    Message,
    MessageUpdate,
    Role,
    StatusUpdate,
    Task,
    TaskStatus,
)
from accord.model.base import Metadata, NonEmpty
from accord.protocol import codec
from accord.protocol.codec import invalid_field, read_time
from accord.protocol.dialects.base import stated
from accord.protocol.dialects.gen.objects import (
    ArtifactIn,
    MessageIn,
    TaskIn,
    finer_state,
    read_artifact,
    read_message,
    read_state,
    read_task,
    write_artifact,
    write_message,
    write_task,
)
from accord.protocol.extras import Extras, pack, unpack
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.states import GEN


class TypeIn(Struct):
    """What tells events apart."""

    type: str | None = None


class StatusIn(Struct):
    """A status event."""

    task_id: NonEmpty
    status: str
    context_id: str = ""
    message: MessageIn | None = None
    timestamp: str | None = None
    metadata: Metadata | None = None


class ArtifactEventIn(Struct):
    """An artifact event."""

    task_id: NonEmpty
    artifact: ArtifactIn
    context_id: str = ""
    append: bool = False
    last_chunk: bool = False
    timestamp: str | None = None
    metadata: Metadata | None = None


class MessageEventIn(Struct):
    """A message event."""

    message: MessageIn
    task_id: str | None = None
    context_id: str = ""


_TYPE = Decoder(TypeIn)
_FINAL = ENDED | INTERRUPTED


def write_event(event: Event) -> dict[str, Any]:
    """Write an event."""
    match event.body:
        case Task() as task:
            return {"type": "task"} | write_task(task)
        case StatusUpdate() as update:
            status = update.status
            owner = Task(id=update.task_id, status=status, context_id=update.context_id)
            return stated(
                type="status",
                task_id=update.task_id,
                context_id=update.context_id,
                status=GEN[status.state],
                message=None if status.message is None else write_message(status.message, owner),
                timestamp=status.timestamp,
                final=status.state in _FINAL,
                metadata=pack(update.metadata, Extras(), finer_state(status.state)),
            )
        case ArtifactUpdate() as update:
            return stated(
                type="artifact",
                task_id=update.task_id,
                context_id=update.context_id,
                artifact=write_artifact(update.artifact, update.task_id, event.at),
                append=update.append,
                last_chunk=update.last_chunk,
                timestamp=event.at,
                metadata=update.metadata,
            )
        case MessageUpdate() as update:
            message = replace(update.message, task_id=update.task_id, context_id=None)
            ids = {"task_id": update.task_id, "context_id": update.context_id}
            return {"type": "message", **ids, "message": write_message(message)}
        case Message() as message:
            return {"type": "message", "task_id": None, "message": write_message(message)}


def read_event(data: bytes) -> EventBody:
    """Read an event."""
    kind = codec.decode(data, _TYPE).type
    if kind not in _EVENTS:
        raise invalid_field("type", f"Unknown event {str(kind)[:40]!r}")
    decoder, read = _EVENTS[kind]
    found: EventBody = read(codec.decode(data, decoder))
    return found


def _read_status(wire: StatusIn) -> StatusUpdate:
    state, understood = read_state(wire.status, wire.metadata, "status")
    status = TaskStatus(state=state, timestamp=read_time(wire.timestamp, "timestamp"))
    owner = Task(id=wire.task_id, status=status, context_id=wire.context_id)
    if wire.message is not None:
        message, _ = read_message(wire.message, "message", owner, Role.AGENT)
        status = replace(status, message=message)
    metadata, _ = unpack(wire.metadata, understood)
    return StatusUpdate(task_id=wire.task_id, context_id=wire.context_id, status=status, metadata=metadata)


def _read_artifact(wire: ArtifactEventIn) -> ArtifactUpdate:
    return ArtifactUpdate(
        task_id=wire.task_id,
        context_id=wire.context_id,
        artifact=read_artifact(wire.artifact, "artifact", read_time(wire.timestamp, "timestamp")),
        append=wire.append,
        last_chunk=wire.last_chunk,
        metadata=wire.metadata,
    )


def _read_message(wire: MessageEventIn) -> EventBody:
    message, _ = read_message(wire.message, "message", default=Role.AGENT)
    if not wire.task_id:
        return message
    message = replace(message, task_id=wire.task_id, context_id=wire.context_id or message.context_id)
    return MessageUpdate(task_id=wire.task_id, context_id=wire.context_id, message=message)


_EVENTS: dict[str | None, tuple[Decoder[Any], Any]] = {
    "task": (Decoder(TaskIn), read_task),
    "status": (Decoder(StatusIn), _read_status),
    "artifact": (Decoder(ArtifactEventIn), _read_artifact),
    "message": (Decoder(MessageEventIn), _read_message),
}
