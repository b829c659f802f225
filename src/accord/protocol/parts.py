"""Message parts of dialects before A2A 1.0, and the extras that they have no field for.

Old clients mix spellings, so one tolerant reader serves them all (B-01, B-02): the discriminator is `kind`, `type` or a
member that is present. Writing is strict and belongs to each dialect.

AgentVault's profile and the generic dialect have fewer fields than the model. Other data is stored under one key in the
metadata of its object: peers return metadata unchanged, and a strict client sees no unknown member.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from accord.model import Message, Part, Task, TaskStatus, metadata_keys
from accord.model.base import Metadata
from accord.protocol.codec import invalid_field

JSON_TYPE = "application/json"


class AnyFile(Struct, rename="camel", gc=False):
    """The `file` member of a part, in the JSON of A2A 0.2 and 0.3 and in the protobuf JSON of 0.3."""

    bytes: str | None = None
    uri: str | None = None
    file_with_bytes: str | None = None
    file_with_uri: str | None = None
    name: str | None = None
    mime_type: str | None = None


class AnyPart(Struct, gc=False):
    """Every member that a part may have in any dialect."""

    kind: str | None = None
    type: str | None = None
    text: str | None = None
    content: Any | UnsetType = UNSET
    data: Any | UnsetType = UNSET
    file: AnyFile | None = None
    url: str | None = None
    raw: str | None = None
    name: str | None = None
    filename: str | None = None
    media_type: str | None = field(default=None, name="mediaType")
    mime_type: str | None = None
    schema: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


def read_parts(parts: Sequence[AnyPart], where: str) -> tuple[Part, ...]:
    """Return the model's parts; `where` is the path of the list, for errors."""
    if not parts:
        raise invalid_field(where, "Expected at least one part")
    converted: list[Part] = []
    try:
        for part in parts:
            converted.append(read_part(part))
    except ValueError as error:
        raise invalid_field(f"{where}[{len(converted)}]", str(error)) from None
    return tuple(converted)


def read_part(part: AnyPart) -> Part:
    """Return the model's part, or raise a `ValueError` that explains the error."""
    kind = part.kind or part.type
    if part.text is not None and kind in (None, "text"):
        return Part(text=part.text, media_type=part.media_type, metadata=part.metadata)
    reader = _READERS.get(kind or _guess(part))
    if reader is None:
        raise ValueError(f"Unknown part {(kind or '')[:40]!r}; expected text, file, data or reference")
    return reader(part)


def from_base64(text: str) -> bytes:
    """Decode base64, standard or URL-safe, padded or not; wrong padding is refused."""
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    padded = bare + "=" * (-len(bare) % 4)
    try:
        if len(text) not in (len(bare), len(padded)):
            raise ValueError
        return base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("Invalid base64 encoded string") from None


def joined_text(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return parts with adjacent plain texts, which are the chunks of a stream, joined to one text."""
    joined: list[Part] = []
    chunks: list[str] = []
    for part in (*parts, None):
        if part is not None and part.text is not None and part == Part(text=part.text):
            chunks.append(part.text)
            continue
        if chunks:
            joined.append(Part(text="".join(chunks)))
            chunks = []
        if part is not None:
            joined.append(part)
    return tuple(joined)


def _guess(part: AnyPart) -> str:
    if part.data is not UNSET:
        return "data"
    if part.file is not None or part.url is not None or part.raw is not None:
        return "file"
    return "text" if isinstance(part.content, str) else "data" if part.content is not UNSET else ""


def _text(part: AnyPart) -> Part:
    text = part.content if part.text is None else part.text
    if not isinstance(text, str):
        raise ValueError("A text part needs `text` or `content` with a string")
    return Part(text=text, media_type=part.media_type, metadata=part.metadata)


def _data(part: AnyPart) -> Part:
    value = part.content if part.data is UNSET else part.data
    if value is UNSET:
        raise ValueError("A data part needs `data` or `content`")
    media_type = part.media_type or part.mime_type
    metadata = part.metadata if part.schema is None else (part.metadata or {}) | {metadata_keys.SCHEMA: part.schema}
    return Part(data=value, media_type=None if media_type == JSON_TYPE else media_type, metadata=metadata)


def _file(part: AnyPart) -> Part:
    file = part.file or AnyFile()
    name = file.name or part.filename or part.name
    media_type = file.mime_type or part.media_type or part.mime_type
    url = file.uri or file.file_with_uri or part.url
    if url is not None:
        return Part(url=url, filename=name, media_type=media_type, metadata=part.metadata)
    encoded = next((b for b in (file.bytes, file.file_with_bytes, part.raw, part.content) if isinstance(b, str)), None)
    if encoded is None:
        raise ValueError("A file part needs bytes or an address")
    return Part(raw=from_base64(encoded), filename=name, media_type=media_type, metadata=part.metadata)


def _reference(part: AnyPart) -> Part:
    if part.url is None:
        raise ValueError("A reference part needs `url`")
    metadata = (part.metadata or {}) | {metadata_keys.REFERENCE: True}
    return Part(
        url=part.url,
        filename=part.name or part.filename,
        media_type=part.mime_type or part.media_type,
        metadata=metadata,
    )


_READERS = {"text": _text, "data": _data, "file": _file, "reference": _reference}


EXTRAS_KEY = "a2a"
"""The metadata key of extras. A user's value under it, or under another key that a dialect writes, is saved inside it.
"""

UNKNOWN_TIME = "1970-01-01T00:00:00.000Z"
"""Written where a dialect requires a time and it is unknown; read as None."""

FINER_ROLES = frozenset({"system", "tool"})
"""Roles that A2A does not have; they are sent as `metadata.role`."""


class PartExtras(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """Fields that the dialect's part lacks; `form` is its actual form where that differs from the written one."""

    form: str | None = None
    filename: str | None = None
    media_type: str | None = None
    metadata: Metadata | None = None


class Extras(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """Fields that the dialect's message, artifact, task or event lacks.

    - `role`: the A2A role behind a finer one.
    - `status`: marks the message that belongs to the task's status.
    - `event`: the metadata of the event around an artifact.
    - `parts`: extras by a part's position.
    - `saved`: a user's values under keys that the dialect needs.
    - `texts`: the length of each text that was joined to an artifact's one text.
    """

    message_id: str | None = None
    context_id: str | None = None
    role: str | None = None
    status: bool = False
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()
    name: str | None = None
    description: str | None = None
    form: str | None = None
    append: bool = False
    last_chunk: bool = False
    event: Metadata | None = None
    parts: dict[str, PartExtras] = {}
    texts: tuple[int, ...] = ()
    saved: Metadata | None = None


_NO_EXTRAS = Extras()
_NO_PART = PartExtras()
_NO_KEYS: Mapping[str, Any] = MappingProxyType({})


def pack_metadata(metadata: Metadata | None, extras: Extras, native: Mapping[str, Any] = _NO_KEYS) -> Metadata | None:
    """Return the metadata to write: the user's, the keys that the dialect itself defines, and the extras."""
    own = dict(metadata or {})
    saved = {key: own.pop(key) for key in (EXTRAS_KEY, *native) if key in own}
    if saved or (metadata == {} and (native or extras != _NO_EXTRAS)):
        extras = replace(extras, saved=saved)
    own.update(native)
    if extras != _NO_EXTRAS:
        own[EXTRAS_KEY] = msgspec.to_builtins(extras)
    return own if own or metadata is not None else None


def unpack_metadata(metadata: Metadata | None, native: Sequence[str] = ()) -> tuple[Metadata | None, Extras]:
    """Return the user's part of decoded metadata, and the extras; `native` are keys already read."""
    if metadata is None:
        return None, _NO_EXTRAS
    extras = _extras(metadata.get(EXTRAS_KEY))
    gone = (*native, EXTRAS_KEY) if extras is not None else native
    own = {key: value for key, value in metadata.items() if key not in gone}
    if extras is not None and extras.saved is not None:
        return own | extras.saved, extras
    return own if own or not metadata else None, extras or _NO_EXTRAS


def _extras(value: Any) -> Extras | None:
    """Read extras; a value of another form is the user's own."""
    if not isinstance(value, dict) or not value:
        return None
    try:
        return msgspec.convert(value, Extras)
    except (msgspec.ValidationError, RecursionError):
        return None


def without_key(metadata: Metadata | None, key: str) -> Metadata | None:
    """Return metadata without a key that the dialect writes in another place."""
    return {name: value for name, value in (metadata or {}).items() if name != key} or None


# --- parts --------------------------------------------------------------------------------------------------------


def write_parts(
    parts: Sequence[Part], write: Callable[[Part], tuple[dict[str, Any], PartExtras]]
) -> tuple[list[dict[str, Any]], dict[str, PartExtras]]:
    """Write parts with a dialect's writer, and return them with their extras."""
    written = [write(part) for part in parts]
    lacking = {str(at): extra for at, (_, extra) in enumerate(written) if extra != _NO_PART}
    return [part for part, _ in written], lacking


def restore_parts(
    wire: Sequence[AnyPart], where: str, extras: Extras, restore: Callable[[Part, AnyPart, PartExtras], Part]
) -> tuple[Part, ...]:
    """Read parts and let a dialect restore those that have extras."""
    parts = read_parts(wire, where)
    if not extras.parts:
        return parts
    return tuple(
        restore(part, wire_part, extras.parts[str(at)]) if str(at) in extras.parts else part
        for at, (part, wire_part) in enumerate(zip(parts, wire, strict=True))
    )


def join_texts(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], tuple[int, ...]]:
    """Return the chunks of a streamed text as one part, and the length of each; other parts are unchanged."""
    if len(parts) < 2 or any(part.text is None or part != Part(text=part.text) for part in parts):
        return parts, ()
    texts = [part.text or "" for part in parts]
    return (Part(text="".join(texts)),), tuple(map(len, texts))


def split_text(parts: tuple[Part, ...], lengths: tuple[int, ...]) -> tuple[Part, ...]:
    """Return the chunks that `join_texts` joined; lengths that do not fit the text are ignored."""
    text = parts[0].text if len(parts) == 1 else None
    if text is None or min(lengths, default=-1) < 0 or sum(lengths) != len(text):
        return parts
    ends = list(accumulate(lengths))
    return tuple(Part(text=text[end - length : end]) for end, length in zip(ends, lengths, strict=True))


# --- roles and times ----------------------------------------------------------------------------------------------


def finer_role(message: Message) -> str | None:
    """Return `system` or `tool` if that is the message's role."""
    role = (message.metadata or {}).get(metadata_keys.ROLE)
    return role if isinstance(role, str) and role in FINER_ROLES else None


def known_time(time: str | None) -> str | None:
    """Return a time, or None for `UNKNOWN_TIME`."""
    return None if time == UNKNOWN_TIME else time


def take_created(task: Task, updated: str | None) -> tuple[str | None, Metadata | None]:
    """Return a task's creation time, and its metadata without that time where `give_created` will restore it.

    `updated` is the time of the status as a reader will see it.
    """
    created, metadata = task.created_at, task.metadata
    stated_time = (metadata or {}).get(metadata_keys.CREATED_AT)
    if stated_time != created or created == UNKNOWN_TIME or created == _derived(task, updated):
        return created, metadata
    return created, without_key(metadata, metadata_keys.CREATED_AT)


def give_created(task: Task, created: str | None) -> Task:
    """Return a task with its creation time, stored in the metadata only if it cannot be derived."""
    if created is None or created == task.created_at:
        return task
    return replace(task, metadata=(task.metadata or {}) | {metadata_keys.CREATED_AT: created})


def _derived(task: Task, updated: str | None) -> str | None:
    return replace(task, metadata=None, status=TaskStatus(state=task.status.state, timestamp=updated)).created_at
