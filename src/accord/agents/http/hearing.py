"""What a flow says, as JSON: the text in it, files, other data, a question, or why it failed.

Pure functions of one JSON value, whether it is a whole answer, one event of a stream or a list of n8n's items. Bytes
become values in `reading`; what is done with it is `answering`'s.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from accord.agents.content import OCTETS
from accord.model import Part

TEXTS = ("output", "result", "message", "text", "response", "content")
"""Where flows have their text, in this order."""

REASONS = ("error", "message", "detail", "reason", "text", "output")
"""Where they say what went wrong."""

SILENT = frozenset({"begin", "start", "end", "done", "ping"})
"""Types of events that say nothing but that a stream begins, lives or ends; n8n's are begin, item, end and error."""

MAX_DEPTH = 4
"""How deep a text may be wrapped: n8n's items in a list, in `json`, in `output`, is three."""

MAX_REASON = 300
"""Characters of a reason that callers are shown."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class Heard(Struct, frozen=True, kw_only=True):
    """What a value says. At most one of `question`, `failure` and `progress` is there."""

    parts: tuple[Part, ...] = ()
    question: str | None = None
    failure: str | None = None
    progress: str | None = None
    usage: Mapping[str, Any] | None = None


def heard(value: Any) -> Heard:
    """Return what a whole answer says; what is beside the text is not lost."""
    value = unwrapped(value)
    if not isinstance(value, dict):
        return Heard(parts=_plain(value))
    usage = value.get("usage")
    found = Heard(usage=usage if isinstance(usage, dict) else None)
    rest = {name: part for name, part in value.items() if name != "usage" or found.usage is None}
    text, key = _text(rest)
    match value.get("status"):
        case "failed":
            return Heard(failure=reason(value) or "The flow failed", usage=found.usage)
        case "input-required":
            return Heard(question=text or "The flow needs an answer", usage=found.usage)
        case "completed":
            rest.pop("status")
    files = file_list(rest.get("files"))
    for name in (key, "files" if files else None):
        rest.pop(name or "", None)
    parts = (*_plain(text), *files)
    if rest:
        told = rest["data"] if set(rest) == {"data"} else rest
        parts = (*parts, Part(data=told, media_type="application/json"))
    return Heard(parts=parts, usage=found.usage)


def overheard(value: Any) -> Heard:
    """Return what one event of a stream says: a piece of the text, mostly."""
    value = unwrapped(value)
    if not isinstance(value, dict):
        return Heard(parts=_plain(value))
    usage = value.get("usage")
    used = usage if isinstance(usage, dict) else None
    kind, state = value.get("type"), value.get("status")
    if kind == "error" or state == "failed":
        return Heard(failure=reason(value) or _first(value, TEXTS) or "The flow failed", usage=used)
    text, _ = _text(value)
    if state == "input-required":
        return Heard(question=text or "The flow needs an answer", usage=used)
    if state == "working":
        return Heard(progress=text, usage=used)
    if isinstance(value.get("delta"), str):
        text = value["delta"]
    if text is not None:
        return Heard(parts=(*_plain(text), *file_list(value.get("files"))), usage=used)
    if kind in SILENT or set(value) == {"usage"}:
        return Heard(usage=used)
    return Heard(parts=file_list(value.get("files")) or _plain(value), usage=used)


def reason(value: Any) -> str | None:
    """Return what a value says went wrong, in one line that a caller may see."""
    value = unwrapped(value)
    if isinstance(value, str):
        return one_line(value) or None
    if not isinstance(value, dict):
        return None
    for name in REASONS:
        found = value.get(name)
        if found and (told := reason(found) if isinstance(found, str | dict) else None):
            return told
    return None


def one_line(text: str) -> str:
    """Return the first line of a text, of which a caller is shown a bounded part: traces begin below it."""
    lines = text.strip().splitlines()
    return _CONTROL.sub(" ", lines[0]).strip()[:MAX_REASON] if lines else ""


def unwrapped(value: Any) -> Any:
    """Return what is inside of a list of one, and of n8n's items, whose value is their `json`."""
    for _ in range(MAX_DEPTH):
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        elif isinstance(value, dict) and "json" in value and set(value) <= {"json", "binary", "pairedItem", "index"}:
            value = value["json"]
        else:
            break
    if isinstance(value, list):
        return [unwrapped(item) if isinstance(item, dict) else item for item in value]
    return value


def file_list(value: Any) -> tuple[Part, ...]:
    """Return files that a flow gives as JSON; what is no list of them is none."""
    found = tuple(_file(entry) for entry in value) if isinstance(value, list) else ()
    return tuple(part for part in found if part is not None) if all(found) else ()


def _file(entry: Any) -> Part | None:
    """Return a file: with its bytes in base64 as `data` or `bytes`, or with a `uri` or `url`."""
    if not isinstance(entry, dict):
        return None
    name = _first(entry, ("name", "filename", "fileName"))
    kind = _first(entry, ("mime_type", "mimeType", "mediaType"))
    inside, at = _first(entry, ("data", "bytes")), _first(entry, ("uri", "url"))
    try:
        if inside is not None:
            return Part(raw=base64.b64decode(inside, validate=True), filename=name, media_type=kind or OCTETS)
    except ValueError:  # not base64, or not even ASCII
        return None
    return None if at is None else Part(url=at, filename=name, media_type=kind)


def _text(value: Mapping[str, Any], depth: int = 0) -> tuple[str | None, str | None]:
    """Return the text of an object and the key that it is under."""
    for name in TEXTS:
        found = unwrapped(value.get(name))
        if isinstance(found, str):
            return found, name
        if isinstance(found, dict) and depth < MAX_DEPTH and len(found) == 1:
            text, _ = _text(found, depth + 1)
            if text is not None:
                return text, name
    return None, None


def _first(value: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((found for name in names if isinstance(found := value.get(name), str)), None)


def _plain(value: Any) -> tuple[Part, ...]:
    if value is None or value == "":
        return ()
    return (Part(text=value),) if isinstance(value, str) else (Part(data=value, media_type="application/json"),)
