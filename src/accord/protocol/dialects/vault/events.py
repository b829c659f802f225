"""AgentVault's server-sent events: three kinds of update and an error, each a bare object under its name.

The profile has no event for a task, so a task is written as its status. A status has room for one text: that of its
message, after "authentication required" for that state (B-05). A message without a task has an empty `taskId`. An
error's code is the name of its reason. The profile's `AGENT_PROCESSING_ERROR` is an internal error, or a failed agent:
it then follows the status of the task.
"""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from accord import model
from accord.errors import AccordError, InternalError, RemoteError, for_reason
from accord.model import Role, TaskState
from accord.model.base import NonEmpty
from accord.protocol import codec
from accord.protocol.codec import read_time
from accord.protocol.dialects.base import error_from_facts
from accord.protocol.dialects.fields import without_none
from accord.protocol.dialects.vault.objects import (
    AUTH_REQUIRED,
    VaultArtifactIn,
    VaultMessageIn,
    message_sentence,
    read_artifact,
    read_message,
    write_artifact,
    write_message,
)
from accord.protocol.parts import UNKNOWN_TIME, Extras, known_time
from accord.protocol.states import VAULT, from_vault

PROCESSING_ERROR = "AGENT_PROCESSING_ERROR"


class VaultStatusIn(Struct, rename="camel"):
    """The data of a `task_status` event."""

    task_id: NonEmpty
    state: str
    timestamp: str | None = None
    message: str | None = None


class VaultMessageEventIn(Struct, rename="camel"):
    """The data of a `task_message` event."""

    task_id: str
    message: VaultMessageIn


class VaultArtifactEventIn(Struct, rename="camel"):
    """The data of a `task_artifact` event."""

    task_id: NonEmpty
    artifact: VaultArtifactIn


_OBJECT = Decoder(dict[str, Any])


def write_event(event: model.Event) -> tuple[str, dict[str, Any]]:
    """Return the name and the data of an event."""
    at = event.at or UNKNOWN_TIME
    match event.body:
        case model.Task() as task:
            return "task_status", _write_status(task.id, task.status, event.at or task.created_at)
        case model.StatusUpdate() as update:
            return "task_status", _write_status(update.task_id, update.status, event.at)
        case model.ArtifactUpdate() as update:
            extras = Extras(
                context_id=update.context_id or None,
                append=update.append,
                last_chunk=update.last_chunk,
                event=update.metadata,
            )
            artifact = write_artifact(update.artifact, extras)
            return "task_artifact", {"taskId": update.task_id, "artifact": artifact, "timestamp": at}
        case model.MessageUpdate() as update:
            message = write_message(replace(update.message, context_id=update.context_id or None))
            return "task_message", {"taskId": update.task_id, "message": message, "timestamp": at}
        case model.Message() as message_body:
            return "task_message", {
                "taskId": message_body.task_id or "",
                "message": write_message(message_body),
                "timestamp": at,
            }


def _write_status(task_id: str, status: model.TaskStatus, at: str | None) -> dict[str, Any]:
    text = None if status.message is None else message_sentence(status.message)
    if status.state is TaskState.AUTH_REQUIRED:
        text = AUTH_REQUIRED if text is None else f"{AUTH_REQUIRED}: {text}"
    time = known_time(status.timestamp) or at or UNKNOWN_TIME
    return without_none(taskId=task_id, state=VAULT[status.state], timestamp=time, message=text)


def read_event(name: str | None, data: bytes) -> model.EventBody:
    """Read the data of an event by its name, or by its members if the name is unknown."""
    if name not in _EVENTS:
        members = codec.decode(data, _OBJECT)
        name = next((event for event, member in _DISTINCTIVE_MEMBERS.items() if member in members), "task_message")
    decoder, read = _EVENTS[name]
    body: model.EventBody = read(codec.decode(data, decoder))
    return body


def _read_status(wire: VaultStatusIn) -> model.StatusUpdate:
    state, text = from_vault(wire.state, "state"), wire.message
    if state is TaskState.INPUT_REQUIRED and text is not None:
        if text == AUTH_REQUIRED:
            state, text = TaskState.AUTH_REQUIRED, None
        elif text.startswith(f"{AUTH_REQUIRED}: "):
            state, text = TaskState.AUTH_REQUIRED, text.removeprefix(f"{AUTH_REQUIRED}: ")
    message = None if text is None else agent_message(text, wire.task_id)
    status = model.TaskStatus(
        state=state, message=message, timestamp=known_time(read_time(wire.timestamp, "timestamp"))
    )
    return model.StatusUpdate(task_id=wire.task_id, context_id="", status=status)


def _read_message(wire: VaultMessageEventIn) -> model.EventBody:
    message, _ = read_message(wire.message, "message")
    if not wire.task_id:
        return message
    message = replace(message, task_id=wire.task_id)
    return model.MessageUpdate(task_id=wire.task_id, context_id=message.context_id or "", message=message)


def _read_artifact(wire: VaultArtifactEventIn) -> model.ArtifactUpdate:
    artifact, extras = read_artifact(wire.artifact, "artifact")
    return model.ArtifactUpdate(
        task_id=wire.task_id,
        context_id=extras.context_id or "",
        artifact=artifact,
        append=extras.append,
        last_chunk=extras.last_chunk,
        metadata=extras.event,
    )


_DISTINCTIVE_MEMBERS = {"task_artifact": "artifact", "task_status": "state"}
_EVENTS: dict[str | None, tuple[Decoder[Any], Any]] = {
    "task_status": (Decoder(VaultStatusIn), _read_status),
    "task_artifact": (Decoder(VaultArtifactEventIn), _read_artifact),
    "task_message": (Decoder(VaultMessageEventIn), _read_message),
}


def read_stream_error(data: bytes) -> AccordError:
    """Read the data of an `error` event."""
    try:
        members = codec.decode(data, _OBJECT)
    except AccordError:
        return RemoteError()
    code, details = members.get("code"), members.get("details")
    kind = InternalError if code == PROCESSING_ERROR else for_reason(str(code)) or RemoteError
    facts = dict(details) if isinstance(details, dict) else {}
    if kind is RemoteError and code is not None and code != "REMOTE_ERROR":
        facts["code"] = str(code)
    message = members.get("message")
    return error_from_facts(kind, message if isinstance(message, str) else "", facts)


def write_stream_error(error: AccordError, details: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an `error` event; `details` are the data of an error response."""
    code = PROCESSING_ERROR if isinstance(error, InternalError) else error.row.reason
    facts = {name: value for name, value in details.items() if name != "reason"}
    return without_none(code=code, message=error.message, details=facts or None)


def write_failure(event: model.Event) -> dict[str, Any] | None:
    """Return the data of the `error` event that follows the status of a failed task, or None for any other event."""
    body = event.body
    if not isinstance(body, model.Task | model.StatusUpdate) or body.status.state is not TaskState.FAILED:
        return None
    message = body.status.message
    reason = "The agent failed" if message is None else message_sentence(message)
    task_id = body.id if isinstance(body, model.Task) else body.task_id
    return {"code": PROCESSING_ERROR, "message": reason, "details": {"taskId": task_id}}


def read_failure(error: AccordError) -> model.StatusUpdate | None:
    """Return the status of the failed task that an `error` event names, or None if the event names no task."""
    task_id = error.metadata.get("taskId")
    if not isinstance(error, InternalError) or not isinstance(task_id, str):
        return None
    message = agent_message(error.message, task_id)
    return model.StatusUpdate(
        task_id=task_id, context_id="", status=model.TaskStatus(state=TaskState.FAILED, message=message)
    )


def agent_message(text: str, task_id: str) -> model.Message:
    """Return an agent message with one text."""
    return model.Message(message_id="", role=Role.AGENT, parts=(model.Part(text=text),), task_id=task_id)
