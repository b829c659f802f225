"""Reading message parts as any dialect before A2A 1.0 writes them.

Old clients mix spellings, so one tolerant reader serves them all (B-01, B-02): the discriminator is `kind`, `type` or
the member that is there. Writing is strict and belongs to each dialect.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from accord.model import Part, keys
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
    """Return the model's parts; `where` is the path of the list, for refusals."""
    if not parts:
        raise invalid_field(where, "Expected at least one part")
    found: list[Part] = []
    try:
        for part in parts:
            found.append(read_part(part))
    except ValueError as error:
        raise invalid_field(f"{where}[{len(found)}]", str(error)) from None
    return tuple(found)


def read_part(part: AnyPart) -> Part:
    """Return the model's part, or raise a `ValueError` that says what is wrong with it."""
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
    """Return parts with adjacent plain texts, which are the chunks of a streamed answer, as one text."""
    found: list[Part] = []
    chunks: list[str] = []
    for part in (*parts, None):
        if part is not None and part.text is not None and part == Part(text=part.text):
            chunks.append(part.text)
            continue
        if chunks:
            found.append(Part(text="".join(chunks)))
            chunks = []
        if part is not None:
            found.append(part)
    return tuple(found)


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
    metadata = part.metadata if part.schema is None else (part.metadata or {}) | {keys.SCHEMA: part.schema}
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
    metadata = (part.metadata or {}) | {keys.REFERENCE: True}
    return Part(
        url=part.url,
        filename=part.name or part.filename,
        media_type=part.mime_type or part.media_type,
        metadata=metadata,
    )


_READERS = {"text": _text, "data": _data, "file": _file, "reference": _reference}
