"""Messages, artifacts and tasks of the generic dialect, to and from the model.

Its founding document shows messages, artifacts and two kinds of part; the rest of the shapes is ours:

- Part: `{type: "text", content}`, `{type: "file", name, mime_type, content: base64}`, `{type: "data", content,
  schema}`, `{type: "reference", url, name, mime_type}`. A file by url is a reference too; the extras tell it from a
  link.
- Message: `{id, task_id, parts, metadata}`; `metadata.role` is user, agent, system or tool, and user if missing.
- Artifact: `{id, task_id, type: "result", content, metadata: {created_at, format}}`. The content is the text or the
  data of its only part with its media type as format, else a list of parts with the format `PARTS`. The chunks of a
  streamed text are one text; their lengths are extras. An artifact that
  does not say when it was made was made by the time its task or event states.
- Task: `{task_id, context_id, status, messages, artifacts, created_at, updated_at, metadata}`. What the task's status
  says is the last of the messages, and marked. `metadata.waiting_for` is input or auth in a running task that waits,
  `metadata.original_state` rejected or unknown in a failed one.

What has no field sits in metadata (`extras`). Operations and errors are `codec`.
"""

import base64
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from accord.model import Artifact, Message, Part, Role, Task, TaskState, TaskStatus, keys
from accord.model.base import Metadata, NonEmpty, timestamp
from accord.protocol import codec
from accord.protocol.codec import read_time
from accord.protocol.dialects.base import stated
from accord.protocol.extras import (
    FINER_ROLES,
    Extras,
    PartExtras,
    finer_role,
    give_created,
    join_texts,
    pack,
    read_all,
    split_text,
    take_created,
    unpack,
    without,
    write_all,
)
from accord.protocol.parts import JSON_TYPE, AnyPart
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


class MessageIn(Struct):
    """A message; names of other dialects are read as well."""

    parts: list[AnyPart]
    id: str | None = None
    message_id: str | None = None
    task_id: str | None = None
    context_id: str | None = None
    role: str | None = None
    metadata: Metadata | None = None


class ArtifactIn(Struct):
    """An artifact."""

    id: NonEmpty
    content: Any | UnsetType = UNSET
    metadata: Metadata | None = None


class TaskIn(Struct):
    """A task."""

    task_id: NonEmpty
    status: str
    context_id: str | None = None
    messages: list[MessageIn] = []
    artifacts: list[ArtifactIn] = []
    created_at: str | None = None
    updated_at: str | None = None
    metadata: Metadata | None = None


# --- states -------------------------------------------------------------------------------------------------------


def finer_state(state: TaskState) -> dict[str, str]:
    """Return the metadata that tells a state from the one that shares its name."""
    return dict((_FINER[state],)) if state in _FINER else {}


def read_state(name: str, metadata: Metadata | None, where: str) -> tuple[TaskState, tuple[str, ...]]:
    """Return the state that a name and the metadata beside it mean, and the metadata keys that were understood."""
    for state, (key, value) in _FINER.items():
        if GEN[state] == name and (metadata or {}).get(key) == value:
            return state, (key,)
    return from_gen(name, where), ()


# --- parts --------------------------------------------------------------------------------------------------------


def _write_part(part: Part) -> tuple[dict[str, Any], PartExtras]:
    metadata, name, mime_type = part.metadata, part.filename, part.media_type
    if part.text is not None:
        extras = PartExtras(filename=name, media_type=mime_type, metadata=metadata)
        return {"type": "text", "content": part.text}, extras
    if part.data is not UNSET:
        schema = part.schema
        own = metadata if schema is None else without(metadata, keys.SCHEMA)
        written = {"type": "data", "content": part.data} | stated(schema=schema)
        return written, PartExtras(filename=name, media_type=mime_type, metadata=own)
    empty = PartExtras(filename=name if name == "" else None, media_type=mime_type if mime_type == "" else None)
    named = stated(name=name or None, mime_type=mime_type or None)
    if part.raw is not None:
        content = base64.b64encode(part.raw).decode()
        return {"type": "file", **named, "content": content}, replace(empty, metadata=metadata)
    written = {"type": "reference", "url": part.url, **named}
    if part.is_reference:
        return written, replace(empty, metadata=without(metadata, keys.REFERENCE))
    return written, replace(empty, form="file", metadata=metadata)


def _restore_part(part: Part, wire: AnyPart, extras: PartExtras) -> Part:
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


def write_message(message: Message, task: Task | None = None, *, is_status: bool = False) -> dict[str, Any]:
    """Write a message; one in a task belongs to that task and its context."""
    finer = finer_role(message)
    parts, lacking = write_all(message.parts, _write_part)
    extras = Extras(
        context_id=None if task else message.context_id,
        role="agent" if finer and message.role is Role.AGENT else None,
        status=is_status,
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
        parts=lacking,
    )
    role = finer or ("agent" if message.role is Role.AGENT else "user")
    own = without(message.metadata, keys.ROLE) if finer else message.metadata
    return stated(
        id=message.message_id or None,
        task_id=task.id if task else message.task_id,
        parts=parts,
        metadata=pack(own, extras, {keys.ROLE: role}),
    )


def read_message(
    wire: MessageIn, where: str, task: Task | None = None, default: Role = Role.USER
) -> tuple[Message, Extras]:
    """Read a message, which belongs to `task` if there is one; `default` speaks where no role is stated."""
    said = (wire.metadata or {}).get(keys.ROLE)
    named = isinstance(said, str) and said in _ROLES
    name = said if named else wire.role
    metadata, extras = unpack(wire.metadata, (keys.ROLE,) if named else ())
    role = _ROLES.get(name or "", default)
    if name in FINER_ROLES:
        role = Role.AGENT if extras.role == "agent" else role
        metadata = (metadata or {}) | {keys.ROLE: name}
    message = Message(
        message_id=wire.id or wire.message_id or "",
        role=role,
        parts=read_all(wire.parts, f"{where}.parts", extras, _restore_part),
        context_id=task.context_id if task else wire.context_id or extras.context_id,
        task_id=task.id if task else wire.task_id or None,
        metadata=metadata,
        extensions=extras.extensions,
        reference_task_ids=extras.reference_task_ids,
    )
    return message, extras


# --- artifacts ----------------------------------------------------------------------------------------------------


def write_artifact(artifact: Artifact, task_id: str, made: str | None) -> dict[str, Any]:
    """Write an artifact of a task; `made` is when it was made unless it says so itself."""
    own, created = artifact.metadata, (artifact.metadata or {}).get(keys.CREATED_AT)
    if created != made and _time(created) == created is not None:
        own, made = without(own, keys.CREATED_AT), created
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
    native = stated(created_at=made) | {"format": media_type}
    return {
        "id": artifact.artifact_id,
        "task_id": task_id,
        "type": "result",
        "content": content,
        "metadata": pack(own, extras, native),
    }


def _time(found: Any) -> str | None:
    """Return a time in the model's form, if it is one."""
    try:
        return timestamp(found) if isinstance(found, str) else None
    except ValueError:
        return None


def _artifact_form(parts: tuple[Part, ...]) -> tuple[Any, str, str | None, dict[str, PartExtras]]:
    """Return an artifact's content and format, the form if they do not tell it, and what they cannot say."""
    only = parts[0] if len(parts) == 1 else None
    if only is None or (only.text is None and only.data is UNSET):
        written, lacking = write_all(parts, _write_part)
        return written, PARTS, None, lacking
    default = TEXT_TYPE if only.text is not None else JSON_TYPE
    media_type = only.media_type or default
    odd = only.media_type in ("", default)
    rest = PartExtras(filename=only.filename, media_type=only.media_type if odd else None, metadata=only.metadata)
    lacking = {} if rest == PartExtras() else {"0": rest}
    if only.text is not None:
        return only.text, media_type, "text" if media_type == PARTS else None, lacking
    form = "data" if isinstance(only.data, str) or media_type == PARTS else None
    return only.data, media_type, form, lacking


def read_artifact(wire: ArtifactIn, where: str, made: str | None) -> Artifact:
    """Read an artifact; `made` is the time that need not be repeated."""
    found = wire.metadata or {}
    media_type = found.get("format") if isinstance(found.get("format"), str) else None
    created = _time(found.get("created_at"))
    understood = stated(format=media_type, created_at=created)
    metadata, extras = unpack(wire.metadata, tuple(understood))
    if created not in (None, made):
        metadata = (metadata or {}) | {keys.CREATED_AT: created}
    return Artifact(
        artifact_id=wire.id,
        parts=split_text(_artifact_parts(wire.content, media_type, extras, where), extras.texts),
        name=extras.name,
        description=extras.description,
        metadata=metadata,
        extensions=extras.extensions,
    )


def _artifact_parts(content: Any, media_type: str | None, extras: Extras, where: str) -> tuple[Part, ...]:
    if media_type == PARTS and extras.form is None:
        parts = codec.convert(content, list[AnyPart])
        return read_all(parts, f"{where}.content", extras, _restore_part)
    rest = extras.parts.get("0", PartExtras())
    is_text = isinstance(content, str) and extras.form != "data"
    plain = media_type == (TEXT_TYPE if is_text else JSON_TYPE)
    kind = rest.media_type if rest.media_type is not None or plain else media_type
    if is_text:
        return (Part(text=content, filename=rest.filename, media_type=kind, metadata=rest.metadata),)
    data = None if content is UNSET else content
    return (Part(data=data, filename=rest.filename, media_type=kind, metadata=rest.metadata),)


# --- tasks --------------------------------------------------------------------------------------------------------


def write_task(task: Task) -> dict[str, Any]:
    """Write a task."""
    status = task.status
    created, metadata = take_created(task, status.timestamp)
    messages = [write_message(message, task) for message in task.history]
    if status.message is not None:
        messages.append(write_message(status.message, task, is_status=True))
    return stated(
        task_id=task.id,
        context_id=task.context_id,
        status=GEN[status.state],
        messages=messages,
        artifacts=[write_artifact(artifact, task.id, status.timestamp) for artifact in task.artifacts],
        created_at=created,
        updated_at=status.timestamp,
        metadata=pack(metadata, Extras(), finer_state(status.state)),
    )


def read_task(wire: TaskIn, where: str = "") -> Task:
    """Read a task; `where` is its path, with a dot at the end."""
    state, understood = read_state(wire.status, wire.metadata, f"{where}status")
    metadata, _ = unpack(wire.metadata, understood)
    updated = read_time(wire.updated_at, f"{where}updated_at")
    status = TaskStatus(state=state, timestamp=updated)
    task = Task(id=wire.task_id, status=status, context_id=wire.context_id, metadata=metadata)
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
