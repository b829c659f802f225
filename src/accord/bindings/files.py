"""Files of tasks over HTTP: how bytes are handed out, and the page at which signed addresses are answered.

What agents make is not trusted: it is saved rather than shown, and what a browser may show runs in a sandbox without
scripts. Who may read a file of the console is `console.tasks`; here whoever has its address may (`bindings.links`).
"""

import logging
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from accord.auth.rate_limits import Quotas
from accord.bindings.http import QUOTAS, Headers, Receive, Scope, Send, error_headers, respond
from accord.bindings.links import Expired, Links, NotSigned
from accord.bindings.outgoing import OUTGOING, ClientGone
from accord.engine.task_store import TaskStore
from accord.errors import AccordError, TaskNotFound
from accord.model import Part
from accord.storage.store import StoreUnavailable

log = logging.getLogger("accord.files")

INLINE = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "text/plain", "application/json"}
)
"""What a browser shows without running anything."""

PREVIEWED = frozenset({"text/html", "image/svg+xml"})
"""What a frame may show, in a sandbox in which nothing runs and nothing is fetched."""

SAFE = INLINE | {
    *("text/csv", "text/markdown", "text/calendar", "image/svg+xml", "application/pdf"),
    *("application/zip", "application/gzip", "application/x-tar", "application/octet-stream"),
}
"""Types that a download keeps, with those of `SAFE_KINDS`: no page can load one as a script, a style sheet or a page.

The console's own pages may load scripts from their origin, which is also that of these files.
"""

SAFE_KINDS = ("image", "audio", "video")
"""Kinds whose types are safe but for those of XML (`image/svg+xml` is an image where a page asks for one)."""

UNKNOWN = "application/octet-stream"

SHARED = 1024 * 1024
"""Bytes of a piece that downloads of the same file hold together; comparing shorter ones is not worth it."""

SANDBOX = "sandbox; default-src 'none'"
PREVIEW = f"{SANDBOX}; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"

PRIVATE: Headers = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]

_TEXT: Headers = [(b"content-type", b"text/plain; charset=utf-8")]
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}")
_CHARSET = re.compile(r";\s*charset=\"?(?P<name>[A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)


def download(part: Part, name: str, *, inline: bool = False) -> tuple[bytes, Headers]:
    """Return a part's bytes, and how they are to be treated; `name` is for a file that has none."""
    stated = (part.media_type or "").partition(";")[0].strip().lower()
    charset = "utf-8"
    if part.raw is not None:
        data, kind = part.raw, stated or UNKNOWN
        charset = found["name"] if (found := _CHARSET.search(part.media_type or "")) else charset
    elif part.text is not None:
        data, kind = part.text.encode(), stated or "text/plain"
    elif part.data is not msgspec.UNSET:
        data, kind = msgspec.json.encode(part.data), "application/json"
    else:
        raise TaskNotFound("This part is an address, not a file")
    is_previewed = inline and kind in PREVIEWED
    kind = kind if is_previewed else _safe(kind)
    way = "inline" if is_previewed or (inline and kind in INLINE) else "attachment"
    # Text without a charset would be read in whatever a browser takes for its reader's own.
    kind += f"; charset={charset}" if kind.startswith("text/") else ""
    said = {
        "content-type": kind,
        "content-disposition": f"{way}; filename*=UTF-8''{quote(part.filename or name, safe='')}",
        "content-security-policy": PREVIEW if is_previewed else SANDBOX,
        "cross-origin-resource-policy": "same-origin",
    }
    return data, [(name.encode(), value.encode()) for name, value in said.items()]


def _safe(kind: str) -> str:
    """Return a type that a browser cannot run: the stated one, or else text or bytes."""
    family = kind.partition("/")[0]
    is_media = family in SAFE_KINDS and not kind.endswith("xml") and _TYPE.fullmatch(kind) is not None
    if kind in SAFE or is_media:
        return kind
    return "text/plain" if family == "text" else UNKNOWN


class Files:
    """An ASGI application that answers signed addresses: 403 for what is not signed, 410 for what has expired."""

    def __init__(self, archive: TaskStore, links: Links, quotas: Quotas = QUOTAS) -> None:
        """Hand out files of the archive's tasks."""
        self._quotas = quotas
        self._archive = archive
        self._links = links

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        status, body, headers, pieces = await self._answer(scope["path"].removeprefix(scope.get("root_path", "")))
        is_head = scope["method"] == "HEAD"
        if pieces is None:
            await respond(send, status, body, [*headers, *PRIVATE], head=is_head)
            return
        start = {"type": "http.response.start", "status": status, "headers": [*headers, *PRIVATE]}
        try:
            await (send(start) if is_head else self._write(send, start, pieces))
        except AccordError as error:  # too much is unread already: nothing has been sent
            said = [*_TEXT, *error_headers(error)]
            await respond(send, error.row.http, error.message.encode() + b"\n", said)
            return
        await send({"type": "http.response.body", "body": b""})

    async def _write(self, send: Send, start: dict[str, Any], pieces: AsyncIterator[bytes]) -> None:
        """Write a file; each piece is read once the client has read those before it."""
        is_begun = False
        async with aclosing(pieces) as left:  # type: ignore[type-var]  # they are generators
            async for piece in left:
                try:
                    with OUTGOING.hold(piece, None, self._quotas, shares=len(piece) > SHARED) as pending:
                        del piece
                        if not is_begun:
                            await send(start)
                            is_begun = True
                        await OUTGOING.write(send, pending, more=True)
                except AccordError:
                    if is_begun:
                        raise ClientGone from None  # the rest has no room: the connection is closed
                    raise
        if not is_begun:
            await send(start)

    async def _answer(self, path: str) -> "_Answer":
        try:
            claim = self._links.read(path)
            found = await self._archive.file(claim.tenant, claim.task_id, claim.fingerprint)
            first = [] if found is None else [await anext(found[2])]
        except NotSigned:
            return _Answer(403, b"This is no address that the server has made\n")
        except Expired:
            return _Answer(410, b"The time of this address is over: ask for the task again\n")
        except StoreUnavailable:
            return _Answer(503, b"Try again in a moment\n", [*_TEXT, (b"retry-after", b"1")])
        except Exception:  # whatever it is, the caller learns nothing of it and the log everything
            log.exception("request failed", extra={"operation": "file"})
            return _Answer(500, b"Something went wrong here\n")
        if found is None:
            return _Answer(404, b"The task has no such file any more\n")
        part, size, pieces = found
        _, headers = download(replace(part, raw=b""), "file")
        return _Answer(200, b"", [*headers, (b"content-length", b"%d" % size)], _after(first, pieces))


async def _after(first: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the first piece, which is not held while it is written, and the rest."""
    async with aclosing(rest) as pieces:  # type: ignore[type-var]  # they are generators
        yield first.pop()
        async for piece in pieces:
            yield piece


class _Answer(NamedTuple):
    status: int
    body: bytes
    headers: Headers = _TEXT
    pieces: AsyncIterator[bytes] | None = None
