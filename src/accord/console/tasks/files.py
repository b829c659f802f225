"""Files of tasks: addresses in their place where a task is shown, and their bytes where one is asked for.

What agents make is not trusted: it is saved rather than shown, and what a browser may show runs in a sandbox without
scripts. Where files are kept is `storage.blobs`.
"""

import re
from typing import Any
from urllib.parse import quote

import msgspec

from accord.bindings.http import Headers
from accord.errors import TaskNotFound
from accord.model import Artifact, Message, Part, Task

INLINE = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "text/plain", "application/json"}
)
"""What a browser shows without running anything."""

PREVIEWED = frozenset({"text/html", "image/svg+xml"})
"""What a frame may show, in a sandbox in which nothing runs and nothing is fetched."""

UNKNOWN = "application/octet-stream"

SANDBOX = "sandbox; default-src 'none'"
PREVIEW = f"{SANDBOX}; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"

_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}")


def shown(task: Task, base: str) -> dict[str, Any]:
    """Return a task's A2A 1.0 form in which files have addresses below `base`."""
    found: dict[str, Any] = msgspec.to_builtins(task)
    for artifact, made in zip(found.get("artifacts", ()), task.artifacts, strict=True):
        artifact["parts"] = _placed(made, f"{base}/{quote(made.artifact_id, safe='')}")
    for turn, said in zip(found.get("history", ()), task.history, strict=True):
        turn["parts"] = _placed(said, f"{base}/message/{quote(said.message_id, safe='')}")
    if task.status.message is not None:
        said = task.status.message
        found["status"]["message"]["parts"] = _placed(said, f"{base}/message/{quote(said.message_id, safe='')}")
    return found


def _placed(of: Artifact | Message, base: str) -> list[Any]:
    return [part_shown(part, f"{base}/{at}") for at, part in enumerate(of.parts)]


def part_shown(part: Part, url: str | None) -> dict[str, Any]:
    """Return a part in which bytes have become an address, or only their number."""
    found: dict[str, Any] = msgspec.to_builtins(part)
    if part.raw is not None:
        del found["raw"]
        found |= {"size": len(part.raw)} if url is None else {"url": url, "size": len(part.raw)}
    return found


def part_of(task: Task, artifact: str | None, message: str | None, at: int) -> Part:
    """Return a part of an artifact or a message, by its place."""
    messages = [*task.history, *([task.status.message] if task.status.message is not None else [])]
    holders: list[Artifact | Message] = [
        *(one for one in task.artifacts if one.artifact_id == artifact),
        *(one for one in messages if one.message_id == message),
    ]
    for holder in holders:
        if at < len(holder.parts):
            return holder.parts[at]
    raise TaskNotFound("The task has no such file")


def download(part: Part, name: str, *, inline: bool) -> tuple[bytes, Headers]:
    """Return a part's bytes, and how they are to be treated."""
    stated = (part.media_type or "").partition(";")[0].strip().lower()
    if part.raw is not None:
        data, kind = part.raw, stated or UNKNOWN
    elif part.text is not None:
        data, kind = part.text.encode(), stated or "text/plain"
    elif part.data is not msgspec.UNSET:
        data, kind = msgspec.json.encode(part.data), "application/json"
    else:
        raise TaskNotFound("This part is an address, not a file")
    if not _TYPE.fullmatch(kind):
        kind = UNKNOWN
    is_previewed = inline and kind in PREVIEWED
    way = "inline" if is_previewed or (inline and kind in INLINE) else "attachment"
    # Text without a charset would be read in whatever a browser takes for its reader's own.
    kind += "; charset=utf-8" if kind.startswith("text/") else ""
    said = {
        "content-type": kind,
        "content-disposition": f"{way}; filename*=UTF-8''{quote(part.filename or name, safe='')}",
        "content-security-policy": PREVIEW if is_previewed else SANDBOX,
        "cross-origin-resource-policy": "same-origin",
    }
    return data, [(name.encode(), value.encode()) for name, value in said.items()]
