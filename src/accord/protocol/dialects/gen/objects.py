"""Messages, artifacts, tasks and stream events of the generic dialect.

Its founding document shows messages, artifacts and two kinds of part. The other shapes are ours:

- Part: `{type: "text", content}`, `{type: "file", name, mime_type, content: base64}`, `{type: "data", content,
  schema}`, `{type: "reference", url, name, mime_type}`. A file by url is also a reference; extras mark it as a file.
- Message: `{id, task_id, parts, metadata}`; `metadata.role` is user, agent, system or tool, and user if missing.
- Artifact: `{id, task_id, type: "result", content, metadata: {created_at, format}}`. The content is the text or the
  data of its only part with its media type as format, else a list of parts with the format `PARTS`. The chunks of a
  streamed text are one text; their lengths are extras. An artifact without a time has that of its task or event.
- Task: `{task_id, context_id, status, messages, artifacts, created_at, updated_at, metadata}`. The message of the
  status is the last of the messages, and marked. `metadata.waiting_for` is input or auth in a running task that waits,
  `metadata.original_state` rejected or unknown in a failed one.
- Events, each one JSON-RPC response:
  `{type: "status", task_id, context_id, status, message, timestamp, final, metadata}`,
  `{type: "artifact", task_id, context_id, artifact, append, last_chunk, timestamp, metadata}`, `{type: "message",
  task_id, context_id, message}` with null as `task_id` for a result without a task, and `{type: "task", ...}` with the
  members of the task.
"""

import base64
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Decoder
from msgspec.structs import replace

from accord import model
from accord.model import Role, TaskState, metadata_keys
from accord.model.base import Metadata, NonEmpty, timestamp
from accord.protocol import codec
from accord.protocol.codec import invalid_field, read_time
from accord.protocol.dialects.fields import without_none
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.parts import (
    FINER_ROLES,
    JSON_TYPE,
    AnyPart,
    Extras,
    PartExtras,
    finer_role,
    give_created,
    join_texts,
    pack_metadata,
    restore_parts,
    split_text,
    take_created,
    unpack_metadata,
    without_key,
    write_parts,
)
from accord.protocol.states import GEN, from_gen

TEXT_TYPE = "text/plain"

PARTS = "application/vnd.a2a.parts+json"
"""The format of an artifact whose content is a list of parts."""

WAITING_FOR = "waiting_for"
ORIGINAL_STATE = "original_state"

_ROLES = {"user": Role.USER, "agent": Role.AGENT, "assistant": Role.AGENT, "system": Role.USER, "tool": Role.USER}
_FINER: dict[TaskState, tuple[str, str]] = {
    TaskState.INPUT_REQUIRED: (WAITING_FOR, "input"),
    TaskState.AUTH_REQUIRED: (WAITING_FOR, "auth"),
    TaskState.REJECTED: (ORIGINAL_STATE, "rejected"),
    TaskState.UNKNOWN: (ORIGINAL_STATE, "unknown"),
}


class GenMessageIn(Struct):
    """A message; names of other dialects are read as well."""

    parts: list[AnyPart]
    id: str | None = None
    message_id: str | None = None
    task_id: str | None = None
    context_id: str | None = None
    role: str | None = None
    metadata: Metadata | None = None


class GenArtifactIn(Struct):
    """An artifact."""

    id: NonEmpty
    content: Any | UnsetType = UNSET
    metadata: Metadata | None = None


class GenTaskIn(Struct):
    """A task."""

    task_id: NonEmpty
    status: str
    context_id: str | None = None
    messages: list[GenMessageIn] = []
    artifacts: list[GenArtifactIn] = []
    created_at: str | None = None
    updated_at: str | None = None
    metadata: Metadata | None = None


# --- states -------------------------------------------------------------------------------------------------------


def finer_state(state: TaskState) -> dict[str, str]:
    """Return the metadata that distinguishes a state from another with the same name."""
    return dict((_FINER[state],)) if state in _FINER else {}


def read_state(name: str, metadata: Metadata | None, where: str) -> tuple[TaskState, tuple[str, ...]]:
    """Return the state for a name and its metadata, and the metadata keys that were used."""
    for state, (key, value) in _FINER.items():
        if GEN[state] == name and (metadata or {}).get(key) == value:
            return state, (key,)
    return from_gen(name, where), ()


# --- parts --------------------------------------------------------------------------------------------------------


def _write_part(part: model.Part) -> tuple[dict[str, Any], PartExtras]:
    metadata, name, mime_type = part.metadata, part.filename, part.media_type
    if part.text is not None:
        extras = PartExtras(filename=name, media_type=mime_type, metadata=metadata)
        return {"type": "text", "content": part.text}, extras
    if part.data is not UNSET:
        schema = part.schema
        own = metadata if schema is None else without_key(metadata, metadata_keys.SCHEMA)
        written = {"type": "data", "content": part.data} | without_none(schema=schema)
        return written, PartExtras(filename=name, media_type=mime_type, metadata=own)
    empty = PartExtras(filename=name if name == "" else None, media_type=mime_type if mime_type == "" else None)
    names = without_none(name=name or None, mime_type=mime_type or None)
    if part.raw is not None:
        content = base64.b64encode(part.raw).decode()
        return {"type": "file", **names, "content": content}, replace(empty, metadata=metadata)
    written = {"type": "reference", "url": part.url, **names}
    if part.is_reference:
        return written, replace(empty, metadata=without_key(metadata, metadata_keys.REFERENCE))
    return written, replace(empty, form="file", metadata=metadata)


def _restore_part(part: model.Part, wire: AnyPart, extras: PartExtras) -> model.Part:
    own = extras.metadata
    if extras.form == "file" and part.is_reference:
        metadata = own
    else:
        metadata = part.metadata if own is None else (part.metadata or {}) | own
    return replace(
        part,
        filename=part.filename if extras.filename is None else extras.filename,
        media_type=part.media_type if extras.media_type is None else extras.media_type,
        metadata=metadata,
    )


# --- messages -----------------------------------------------------------------------------------------------------


def write_message(message: model.Message, task: model.Task | None = None, *, is_status: bool = False) -> dict[str, Any]:
    """Write a message; in a task, it has the task's ids."""
    finer = finer_role(message)
    parts, lacking = write_parts(message.parts, _write_part)
    extras = Extras(
        context_id=None if task else message.context_id,
        role="agent" if finer and message.role is Role.AGENT else None,
        status=is_status,
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
        parts=lacking,
    )
    role = finer or ("agent" if message.role is Role.AGENT else "user")
    own = without_key(message.metadata, metadata_keys.ROLE) if finer else message.metadata
    return without_none(
        id=message.message_id or None,
        task_id=task.id if task else message.task_id,
        parts=parts,
        metadata=pack_metadata(own, extras, {metadata_keys.ROLE: role}),
    )


def read_message(
    wire: GenMessageIn, where: str, task: model.Task | None = None, default: Role = Role.USER
) -> tuple[model.Message, Extras]:
    """Read a message, which belongs to `task` if given; `default` is the role where none is stated."""
    stated_role = (wire.metadata or {}).get(metadata_keys.ROLE)
    is_known_role = isinstance(stated_role, str) and stated_role in _ROLES
    name = stated_role if is_known_role else wire.role
    metadata, extras = unpack_metadata(wire.metadata, (metadata_keys.ROLE,) if is_known_role else ())
    role = _ROLES.get(name or "", default)
    if name in FINER_ROLES:
        role = Role.AGENT if extras.role == "agent" else role
        metadata = (metadata or {}) | {metadata_keys.ROLE: name}
    message = model.Message(
        message_id=wire.id or wire.message_id or "",
        role=role,
        parts=restore_parts(wire.parts, f"{where}.parts", extras, _restore_part),
        context_id=task.context_id if task else wire.context_id or extras.context_id,
        task_id=task.id if task else wire.task_id or None,
        metadata=metadata,
        extensions=extras.extensions,
        reference_task_ids=extras.reference_task_ids,
    )
    return message, extras


# --- artifacts ----------------------------------------------------------------------------------------------------


def write_artifact(artifact: model.Artifact, task_id: str, default_time: str | None) -> dict[str, Any]:
    """Write an artifact of a task; `default_time` is its creation time unless its metadata states another."""
    metadata, created = artifact.metadata, (artifact.metadata or {}).get(metadata_keys.CREATED_AT)
    if created != default_time and _time(created) == created is not None:
        metadata, default_time = without_key(metadata, metadata_keys.CREATED_AT), created
    joined, texts = join_texts(artifact.parts)
    content, media_type, form, lacking = _artifact_form(joined)
    extras = Extras(
        name=artifact.name,
        description=artifact.description,
        extensions=artifact.extensions,
        form=form,
        parts=lacking,
        texts=texts,
    )
    native = without_none(created_at=default_time) | {"format": media_type}
    return {
        "id": artifact.artifact_id,
        "task_id": task_id,
        "type": "result",
        "content": content,
        "metadata": pack_metadata(metadata, extras, native),
    }


def _time(value: Any) -> str | None:
    """Return a time in the model's form, or None if invalid."""
    try:
        return timestamp(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _artifact_form(parts: tuple[model.Part, ...]) -> tuple[Any, str, str | None, dict[str, PartExtras]]:
    """Return an artifact's content and format, its form if these are ambiguous, and the extras of its parts."""
    single = parts[0] if len(parts) == 1 else None
    if single is None or (single.text is None and single.data is UNSET):
        written, lacking = write_parts(parts, _write_part)
        return written, PARTS, None, lacking
    default = TEXT_TYPE if single.text is not None else JSON_TYPE
    media_type = single.media_type or default
    odd = single.media_type in ("", default)
    extras = PartExtras(
        filename=single.filename, media_type=single.media_type if odd else None, metadata=single.metadata
    )
    lacking = {} if extras == PartExtras() else {"0": extras}
    if single.text is not None:
        return single.text, media_type, "text" if media_type == PARTS else None, lacking
    form = "data" if isinstance(single.data, str) or media_type == PARTS else None
    return single.data, media_type, form, lacking


def read_artifact(wire: GenArtifactIn, where: str, default_time: str | None) -> model.Artifact:
    """Read an artifact; `default_time` is the time that need not be repeated."""
    members = wire.metadata or {}
    media_type = members.get("format") if isinstance(members.get("format"), str) else None
    created = _time(members.get("created_at"))
    understood = without_none(format=media_type, created_at=created)
    metadata, extras = unpack_metadata(wire.metadata, tuple(understood))
    if created not in (None, default_time):
        metadata = (metadata or {}) | {metadata_keys.CREATED_AT: created}
    return model.Artifact(
        artifact_id=wire.id,
        parts=split_text(_artifact_parts(wire.content, media_type, extras, where), extras.texts),
        name=extras.name,
        description=extras.description,
        metadata=metadata,
        extensions=extras.extensions,
    )


def _artifact_parts(content: Any, media_type: str | None, extras: Extras, where: str) -> tuple[model.Part, ...]:
    if media_type == PARTS and extras.form is None:
        parts = codec.convert(content, list[AnyPart])
        return restore_parts(parts, f"{where}.content", extras, _restore_part)
    extra = extras.parts.get("0", PartExtras())
    is_text = isinstance(content, str) and extras.form != "data"
    plain = media_type == (TEXT_TYPE if is_text else JSON_TYPE)
    kind = extra.media_type if extra.media_type is not None or plain else media_type
    if is_text:
        return (model.Part(text=content, filename=extra.filename, media_type=kind, metadata=extra.metadata),)
    data = None if content is UNSET else content
    return (model.Part(data=data, filename=extra.filename, media_type=kind, metadata=extra.metadata),)


# --- tasks --------------------------------------------------------------------------------------------------------


def write_task(task: model.Task) -> dict[str, Any]:
    """Write a task."""
    status = task.status
    created, metadata = take_created(task, status.timestamp)
    messages = [write_message(message, task) for message in task.history]
    if status.message is not None:
        messages.append(write_message(status.message, task, is_status=True))
    return without_none(
        task_id=task.id,
        context_id=task.context_id,
        status=GEN[status.state],
        messages=messages,
        artifacts=[write_artifact(artifact, task.id, status.timestamp) for artifact in task.artifacts],
        created_at=created,
        updated_at=status.timestamp,
        metadata=pack_metadata(metadata, Extras(), finer_state(status.state)),
    )


def read_task(wire: GenTaskIn, where: str = "") -> model.Task:
    """Read a task; `where` is its path, with a dot at the end."""
    state, understood = read_state(wire.status, wire.metadata, f"{where}status")
    metadata, _ = unpack_metadata(wire.metadata, understood)
    updated = read_time(wire.updated_at, f"{where}updated_at")
    status = model.TaskStatus(state=state, timestamp=updated)
    task = model.Task(id=wire.task_id, status=status, context_id=wire.context_id, metadata=metadata)
    history = [read_message(message, f"{where}messages[{at}]", task) for at, message in enumerate(wire.messages)]
    if history and history[-1][1].status:
        status = replace(status, message=history.pop()[0])
    task = replace(
        task,
        status=status,
        history=tuple(message for message, _ in history),
        artifacts=tuple(
            read_artifact(artifact, f"{where}artifacts[{at}]", updated) for at, artifact in enumerate(wire.artifacts)
        ),
    )
    return give_created(task, read_time(wire.created_at, f"{where}created_at"))


class GenEventTypeIn(Struct):
    """The member that distinguishes events."""

    type: str | None = None


class GenStatusIn(Struct):
    """A status event."""

    task_id: NonEmpty
    status: str
    context_id: str = ""
    message: GenMessageIn | None = None
    timestamp: str | None = None
    metadata: Metadata | None = None


class GenArtifactEventIn(Struct):
    """An artifact event."""

    task_id: NonEmpty
    artifact: GenArtifactIn
    context_id: str = ""
    append: bool = False
    last_chunk: bool = False
    timestamp: str | None = None
    metadata: Metadata | None = None


class GenMessageEventIn(Struct):
    """A message event."""

    message: GenMessageIn
    task_id: str | None = None
    context_id: str = ""


_TYPE = Decoder(GenEventTypeIn)
_FINAL = ENDED | INTERRUPTED


def write_event(event: model.Event) -> dict[str, Any]:
    """Write an event."""
    match event.body:
        case model.Task() as task:
            return {"type": "task"} | write_task(task)
        case model.StatusUpdate() as update:
            status = update.status
            owner = model.Task(id=update.task_id, status=status, context_id=update.context_id)
            return without_none(
                type="status",
                task_id=update.task_id,
                context_id=update.context_id,
                status=GEN[status.state],
                message=None if status.message is None else write_message(status.message, owner),
                timestamp=status.timestamp,
                final=status.state in _FINAL,
                metadata=pack_metadata(update.metadata, Extras(), finer_state(status.state)),
            )
        case model.ArtifactUpdate() as update:
            return without_none(
                type="artifact",
                task_id=update.task_id,
                context_id=update.context_id,
                artifact=write_artifact(update.artifact, update.task_id, event.at),
                append=update.append,
                last_chunk=update.last_chunk,
                timestamp=event.at,
                metadata=update.metadata,
            )
        case model.MessageUpdate() as update:
            message = replace(update.message, task_id=update.task_id, context_id=None)
            ids = {"task_id": update.task_id, "context_id": update.context_id}
            return {"type": "message", **ids, "message": write_message(message)}
        case model.Message() as message:
            return {"type": "message", "task_id": None, "message": write_message(message)}


def read_event(data: bytes) -> model.EventBody:
    """Read an event."""
    kind = codec.decode(data, _TYPE).type
    if kind not in _EVENTS:
        raise invalid_field("type", f"Unknown event {str(kind)[:40]!r}")
    decoder, read = _EVENTS[kind]
    body: model.EventBody = read(codec.decode(data, decoder))
    return body


def _read_status(wire: GenStatusIn) -> model.StatusUpdate:
    state, understood = read_state(wire.status, wire.metadata, "status")
    status = model.TaskStatus(state=state, timestamp=read_time(wire.timestamp, "timestamp"))
    owner = model.Task(id=wire.task_id, status=status, context_id=wire.context_id)
    if wire.message is not None:
        message, _ = read_message(wire.message, "message", owner, Role.AGENT)
        status = replace(status, message=message)
    metadata, _ = unpack_metadata(wire.metadata, understood)
    return model.StatusUpdate(task_id=wire.task_id, context_id=wire.context_id, status=status, metadata=metadata)


def _read_artifact(wire: GenArtifactEventIn) -> model.ArtifactUpdate:
    return model.ArtifactUpdate(
        task_id=wire.task_id,
        context_id=wire.context_id,
        artifact=read_artifact(wire.artifact, "artifact", read_time(wire.timestamp, "timestamp")),
        append=wire.append,
        last_chunk=wire.last_chunk,
        metadata=wire.metadata,
    )


def _read_message(wire: GenMessageEventIn) -> model.EventBody:
    message, _ = read_message(wire.message, "message", default=Role.AGENT)
    if not wire.task_id:
        return message
    message = replace(message, task_id=wire.task_id, context_id=wire.context_id or message.context_id)
    return model.MessageUpdate(task_id=wire.task_id, context_id=wire.context_id, message=message)


_EVENTS: dict[str | None, tuple[Decoder[Any], Any]] = {
    "task": (Decoder(GenTaskIn), read_task),
    "status": (Decoder(GenStatusIn), _read_status),
    "artifact": (Decoder(GenArtifactEventIn), _read_artifact),
    "message": (Decoder(GenMessageEventIn), _read_message),
}
