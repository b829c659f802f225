"""AgentVault's messages, artifacts and tasks, to and from the model.

The shapes are those of AgentVault's published models, which refuse a part without content and a file without an HTTP
url. The package itself handles operations and errors. Facts without a field are in the objects' metadata (`Extras`).

- Parts have no metadata, text no media type: both go to the message's or artifact's extras.
- A server replaces bytes by URLs before encoding (`Dialect.links_files`). Other bytes, such as a client's, are a data
  part with `{"bytes": base64, "filename"}`, a url that is not HTTP one with `{"url", "filename"}`, data that is not
  an object one with `{"value"}`; the extras record it, so reading restores them.
- An artifact of one part is that part's text, data or url, with `type` text, data or file. The chunks of a streamed
  text are one text; their lengths are extras. Any other artifact is a list of parts with `type` parts. Any other type
  is stored as `metadata.type`.
- A task has no status message: it is the last of the messages, and marked. Where authentication is required, its
  first part states that (B-05), since AgentVault's clients see only that input is required.
"""

import base64
import re
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from accord import model
from accord.errors import InvalidParams
from accord.model import Role, TaskState, metadata_keys
from accord.model.base import Metadata, NonEmpty
from accord.protocol import codec
from accord.protocol.codec import invalid_field, read_time
from accord.protocol.dialects.fields import without_none
from accord.protocol.parts import (
    JSON_TYPE,
    UNKNOWN_TIME,
    AnyPart,
    Extras,
    PartExtras,
    finer_role,
    from_base64,
    give_created,
    join_texts,
    known_time,
    pack_metadata,
    restore_parts,
    split_text,
    take_created,
    unpack_metadata,
    without_key,
    write_parts,
)
from accord.protocol.states import LOWER, VAULT, from_vault

AUTH_REQUIRED = "authentication required"
"""The text for the state that AgentVault lacks (B-05)."""

_AUTH_WORDS = model.Part(text=AUTH_REQUIRED)

TYPE = "type"
"""Artifact metadata: the type that an AgentVault agent gave an artifact, where it is not one of ours."""

_MAX_URL = 2083
_NAME = re.compile(r"[\w-]+(\.[\w-]+)*")
_COARSE = {LOWER[state]: state for state in (TaskState.AUTH_REQUIRED, TaskState.REJECTED, TaskState.UNKNOWN)}
_ROLES = {"user": Role.USER, "assistant": Role.AGENT, "agent": Role.AGENT, "system": Role.USER, "tool": Role.USER}
_FORMS = frozenset({"text", "data", "file", "parts"})


class VaultMessageIn(Struct, rename="camel"):
    """A message; ids are not in the profile, but read where a client sends them."""

    role: str
    parts: list[AnyPart]
    metadata: Metadata | None = None
    message_id: str | None = None
    context_id: str | None = None


class VaultArtifactIn(Struct):
    """An artifact."""

    id: NonEmpty
    type: str = ""
    content: Any | UnsetType = UNSET
    url: str | None = None
    media_type: str | None = field(default=None, name="mediaType")
    metadata: Metadata | None = None


class VaultTaskIn(Struct, rename="camel"):
    """A task."""

    id: NonEmpty
    state: str
    created_at: str | None = None
    updated_at: str | None = None
    messages: list[VaultMessageIn] = []
    artifacts: list[VaultArtifactIn] = []
    metadata: Metadata | None = None


def is_http(url: str | None) -> bool:
    """Whether AgentVault's models accept a url."""
    if url is None or len(url) > _MAX_URL or not url.isascii() or not url.isprintable():
        return False
    try:
        split = urlsplit(url)
        # Reading the port raises for an invalid one.
        return split.scheme in ("http", "https") and split.port != 0 and _is_host(split.hostname or "")
    except ValueError:
        return False


def _is_host(host: str) -> bool:
    """Whether a host is an address or a name; raises ValueError for an invalid address."""
    last = host.rpartition(".")[2]
    if ":" in host or last[:1].isdigit():
        return bool(ip_address(host))
    return _NAME.fullmatch(host.encode().decode("idna")) is not None


# --- parts --------------------------------------------------------------------------------------------------------


def _write_part(part: model.Part) -> tuple[dict[str, Any], PartExtras]:
    metadata, media_type, filename = part.metadata, part.media_type, part.filename
    if part.text is not None:
        extras = PartExtras(filename=filename, media_type=media_type, metadata=metadata)
        return {"type": "text", "content": part.text}, extras
    if part.data is not UNSET:
        plain = media_type not in ("", JSON_TYPE)
        written = without_none(type="data", content=part.data, mediaType=media_type if plain else None)
        extras = PartExtras(filename=filename, media_type=None if plain else media_type, metadata=metadata)
        if isinstance(part.data, dict):
            return written, extras
        return written | {"content": {"value": part.data}}, replace(extras, form="value")
    if part.raw is not None:
        content = without_none(bytes=base64.b64encode(part.raw).decode(), filename=filename)
        return without_none(type="data", content=content, mediaType=media_type), PartExtras(
            form="raw", metadata=metadata
        )
    if is_http(part.url):
        written = without_none(type="file", url=part.url, mediaType=media_type or None, filename=filename or None)
        empty = PartExtras(
            filename=filename if filename == "" else None, media_type=media_type if media_type == "" else None
        )
        return written, replace(empty, metadata=metadata)
    content = without_none(url=part.url, filename=filename)
    return without_none(type="data", content=content, mediaType=media_type), PartExtras(form="url", metadata=metadata)


def _restore_part(part: model.Part, wire: AnyPart, extras: PartExtras) -> model.Part:
    metadata = part.metadata if extras.metadata is None else extras.metadata
    content = part.data if isinstance(part.data, dict) else {}
    filename = content.get("filename") if isinstance(content.get("filename"), str) else None
    if extras.form == "raw" and isinstance(content.get("bytes"), str):
        try:
            raw = from_base64(content["bytes"])
        except ValueError:
            return part
        return model.Part(raw=raw, filename=filename, media_type=wire.media_type, metadata=metadata)
    if extras.form == "url" and isinstance(content.get("url"), str):
        return model.Part(url=content["url"], filename=filename, media_type=wire.media_type, metadata=metadata)
    return replace(
        part,
        data=content["value"] if extras.form == "value" and "value" in content else part.data,
        filename=part.filename if extras.filename is None else extras.filename,
        media_type=part.media_type if extras.media_type is None else extras.media_type,
        metadata=metadata,
    )


# --- messages -----------------------------------------------------------------------------------------------------


def write_message(message: model.Message, *, in_task: bool = False, is_status: bool = False) -> dict[str, Any]:
    """Write a message; a message in a task does not repeat the context."""
    finer = finer_role(message)
    parts, lacking = write_parts(message.parts, _write_part)
    extras = Extras(
        message_id=message.message_id or None,
        context_id=None if in_task else message.context_id,
        role="agent" if finer and message.role is Role.AGENT else None,
        status=is_status,
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
        parts=lacking,
    )
    own = without_key(message.metadata, metadata_keys.ROLE) if finer else message.metadata
    role = finer or ("assistant" if message.role is Role.AGENT else "user")
    return without_none(role=role, parts=parts, metadata=pack_metadata(own, extras))


def read_message(wire: VaultMessageIn, where: str, task: model.Task | None = None) -> tuple[model.Message, Extras]:
    """Read a message, which belongs to `task` if given."""
    role = _ROLES.get(wire.role)
    if role is None:
        raise invalid_field(f"{where}.role", f"Unknown role {wire.role[:40]!r}")
    metadata, extras = unpack_metadata(wire.metadata)
    if wire.role in ("system", "tool"):
        role = Role.AGENT if extras.role == "agent" else role
        metadata = (metadata or {}) | {metadata_keys.ROLE: wire.role}
    message = model.Message(
        message_id=wire.message_id or extras.message_id or "",
        role=role,
        parts=restore_parts(wire.parts, f"{where}.parts", extras, _restore_part),
        context_id=task.context_id if task else wire.context_id or extras.context_id,
        task_id=task.id if task else None,
        metadata=metadata,
        extensions=extras.extensions,
        reference_task_ids=extras.reference_task_ids,
    )
    return message, extras


def message_sentence(message: model.Message) -> str:
    """Return a message as one text, for fields that hold only a text."""
    return "\n".join(_words(part) for part in message.parts)


def _words(part: model.Part) -> str:
    if part.text is not None:
        return part.text
    return codec.encode(part.data).decode() if part.data is not UNSET else part.url or part.filename or ""


# --- artifacts ----------------------------------------------------------------------------------------------------


def write_artifact(artifact: model.Artifact, extras: Extras | None = None) -> dict[str, Any]:
    """Write an artifact; `extras` are those of the event around it."""
    joined, texts = join_texts(artifact.parts)
    parts, lacking = write_parts(joined, _write_part)
    form, content, lacking = _artifact_form(joined, parts, lacking)
    kind = (artifact.metadata or {}).get(TYPE)
    own_kind = isinstance(kind, str) and kind != "" and kind not in _FORMS
    extras = replace(
        extras or Extras(),
        name=artifact.name,
        description=artifact.description,
        extensions=artifact.extensions,
        form=form if own_kind else None,
        parts=lacking,
        texts=texts,
    )
    metadata = pack_metadata(without_key(artifact.metadata, TYPE) if own_kind else artifact.metadata, extras)
    written = {"id": artifact.artifact_id, "type": kind if own_kind else form, **content}
    return written if metadata is None else written | {"metadata": metadata}


def _artifact_form(
    parts: tuple[model.Part, ...], written: list[dict[str, Any]], lacking: dict[str, PartExtras]
) -> tuple[str, dict[str, Any], dict[str, PartExtras]]:
    """Return the form of an artifact, the members with its content, and the extras of its parts."""
    only = parts[0] if len(parts) == 1 else None
    if only is None or only.raw is not None or (only.url is not None and not is_http(only.url)):
        return "parts", {"content": written}, lacking
    extra = PartExtras(filename=only.filename, metadata=only.metadata)
    left = {} if extra == PartExtras() else {"0": extra}
    media_type = without_none(mediaType=only.media_type)
    if only.text is not None:
        return "text", {"content": only.text} | media_type, left
    if only.url is not None:
        return "file", {"url": only.url} | media_type, left
    return "data", {"content": only.data} | media_type, left


def read_artifact(wire: VaultArtifactIn, where: str) -> tuple[model.Artifact, Extras]:
    """Read an artifact."""
    metadata, extras = unpack_metadata(wire.metadata)
    form = extras.form or wire.type
    if wire.type and wire.type not in _FORMS:
        metadata = (metadata or {}) | {TYPE: wire.type}
    artifact = model.Artifact(
        artifact_id=wire.id,
        parts=split_text(_artifact_parts(wire, form, extras, where), extras.texts),
        name=extras.name,
        description=extras.description,
        metadata=metadata,
        extensions=extras.extensions,
    )
    return artifact, extras


def _artifact_parts(wire: VaultArtifactIn, form: str, extras: Extras, where: str) -> tuple[model.Part, ...]:
    content = wire.content
    if form == "parts" and isinstance(content, list):
        try:
            parts = codec.convert(content, list[AnyPart])
            return restore_parts(parts, f"{where}.content", extras, _restore_part)
        except InvalidParams:
            pass  # another agent's own form of parts: plain data
    extra = extras.parts.get("0", PartExtras())
    fields: dict[str, Any] = {
        "filename": extra.filename,
        "media_type": wire.media_type,
        "metadata": extra.metadata,
    }
    if wire.url is not None:
        link = model.Part(url=wire.url, **fields)
        return (link,) if content is UNSET or content is None else (model.Part(data=content), link)
    if isinstance(content, str) and form != "data":
        return (model.Part(text=content, **fields),)
    return (model.Part(data=None if content is UNSET else content, **fields),)


# --- tasks --------------------------------------------------------------------------------------------------------


def write_task(task: model.Task) -> dict[str, Any]:
    """Write a task."""
    status = task.status
    updated = known_time(status.timestamp) or known_time(task.created_at)
    created, metadata = take_created(task, updated)
    messages = [write_message(message, in_task=True) for message in task.history]
    status_message = _with_state(status)
    if status_message is not None:
        messages.append(write_message(status_message, in_task=True, is_status=True))
    exact = LOWER[status.state]
    native = {metadata_keys.ORIGINAL_STATE: exact} if exact in _COARSE else {}
    return without_none(
        id=task.id,
        state=VAULT[status.state],
        createdAt=created or UNKNOWN_TIME,
        updatedAt=updated or UNKNOWN_TIME,
        messages=messages,
        artifacts=[write_artifact(artifact) for artifact in task.artifacts],
        metadata=pack_metadata(metadata, Extras(context_id=task.context_id), native),
    )


def read_task(wire: VaultTaskIn, where: str = "") -> model.Task:
    """Read a task; `where` is its path, with a dot at the end."""
    state = from_vault(wire.state, f"{where}state")
    original = (wire.metadata or {}).get(metadata_keys.ORIGINAL_STATE)
    exact = _COARSE.get(original) if isinstance(original, str) else None
    is_exact = exact is not None and VAULT[exact] == wire.state
    metadata, extras = unpack_metadata(wire.metadata, (metadata_keys.ORIGINAL_STATE,) if is_exact else ())
    updated = known_time(read_time(wire.updated_at, f"{where}updatedAt"))
    status = model.TaskStatus(state=exact if is_exact and exact else state, timestamp=updated)
    task = model.Task(id=wire.id, status=status, context_id=extras.context_id, metadata=metadata)
    history = [read_message(message, f"{where}messages[{at}]", task) for at, message in enumerate(wire.messages)]
    status_message = history.pop()[0] if history and history[-1][1].status else None
    task = replace(
        task,
        status=replace(status, message=_without_state(status_message, status)),
        history=tuple(message for message, _ in history),
        artifacts=tuple(
            read_artifact(artifact, f"{where}artifacts[{at}]")[0] for at, artifact in enumerate(wire.artifacts)
        ),
    )
    return give_created(task, known_time(read_time(wire.created_at, f"{where}createdAt")))


def _with_state(status: model.TaskStatus) -> model.Message | None:
    """Return the status message, with a text in front for the state that AgentVault lacks."""
    if status.state is not TaskState.AUTH_REQUIRED:
        return status.message
    message = status.message or model.Message(message_id="", role=Role.AGENT, parts=())
    return replace(message, parts=(_AUTH_WORDS, *message.parts))


def _without_state(message: model.Message | None, status: model.TaskStatus) -> model.Message | None:
    """Return the status message without the text for the state."""
    if message is None or status.state is not TaskState.AUTH_REQUIRED or message.parts[0] != _AUTH_WORDS:
        return message
    return replace(message, parts=message.parts[1:]) if len(message.parts) > 1 else None
