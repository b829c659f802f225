"""Files of tasks over HTTP: signed URLs, and the page that serves them (B-02).

    <server>/files/<claim>.<signature>/[filename]

A claim names the file, its task and tenant, and its expiry. The signature covers the claim and the filename. A caller
with the URL may read the file and cannot forge another URL. Bindings and webhooks replace bytes by URLs before they are
encoded. Files of agents are untrusted: they are downloads, or shown in a sandbox without scripts.
"""

import hmac
import logging
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import Caller
from accord.auth.rate_limits import Quotas
from accord.engine.task_store import TaskStore, fingerprint
from accord.errors import AccordError, TaskNotFound
from accord.http import cards
from accord.http.asgi import QUOTAS, Headers, Receive, Scope, Send, error_headers, respond
from accord.http.response_bodies import RESPONSE_BODIES, ClientGone
from accord.model import ArtifactUpdate, Event, MessageUpdate, Part, Request, StatusUpdate, Task, TaskPage
from accord.model.task import with_parts
from accord.storage.store import StoreUnavailable

FILES_PATH = "/files/"
"""The path below which a host's files are served."""

LINK_KEY_PURPOSE = "signed addresses of files"
"""Purpose of the key derived from the store's key, so that no other use of it makes valid signatures."""

RENEWALS = 24
"""Renewals of a URL per lifetime. Within a 24th of it, repeated requests get the same URL."""

_PATH = re.compile(r"/files/(?P<claim>[A-Za-z0-9_-]+)\.(?P<signature>[A-Za-z0-9_-]+)/(?P<name>[A-Za-z0-9._-]*)")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
"""Names that are safe in every URL. Other names are sent in the response's headers, not in the URL."""

T = TypeVar("T")


class FileClaim(Struct, frozen=True, array_like=True):
    """The file of a signed URL; `expires` is a Unix time in seconds."""

    tenant: str
    task_id: str
    fingerprint: str
    expires: int


class InlineBudget:
    """Remaining bytes for inline files in one response."""

    def __init__(self, left: int) -> None:
        """Start with `left` bytes."""
        self._left = left

    def has(self, size: int) -> bool:
        """Reserve bytes for a file, and return whether there were enough."""
        if size > self._left:
            return False
        self._left -= size
        return True


class UnsignedUrl(Exception):
    """The URL has no valid signature of this server."""


class ExpiredUrl(Exception):
    """The URL was valid and has expired."""


_CLAIM = msgspec.json.Decoder(FileClaim)


class FileLinks:
    """Creates and reads signed URLs of files."""

    def __init__(self, key: bytes, url: str, seconds: float, clock: Callable[[], float]) -> None:
        """Sign with the key of all nodes, below `url`; signed URLs are valid for `seconds`."""
        self._key = key
        self._url = url
        self._seconds = seconds
        self._clock = clock

    def linked(self, value: T, tenant: str, origin: str | None = None, most: int | None = None) -> T:
        """Return a response, event or task whose files are URLs; with `most`, only files beyond that many bytes.

        `origin` is the origin that the caller used.
        """
        return cast(T, self._linked(value, tenant, origin, None if most is None else InlineBudget(most)))

    def _linked(self, value: Any, tenant: str, origin: str | None, room: "InlineBudget | None") -> Any:
        match value:
            case Task():
                return with_parts(value, partial(self._part, origin, tenant, value.id, room))
            case StatusUpdate() | ArtifactUpdate() | MessageUpdate():
                return with_parts(value, partial(self._part, origin, tenant, value.task_id, room))
            case Event():
                return replace(value, body=self._linked(value.body, tenant, origin, room))
            case TaskPage():
                return replace(value, tasks=tuple(self._linked(task, tenant, origin, room) for task in value.tasks))
        return value

    def _part(self, origin: str | None, tenant: str, task_id: str, room: "InlineBudget | None", part: Part) -> Part:
        if part.raw is None or (room is not None and room.has(len(part.raw))):
            return part
        return self.link(tenant, task_id, origin or "", part)

    def link(self, tenant: str, task_id: str, origin: str, part: Part, hash: str | None = None) -> Part:
        """Return a file part with a URL; `hash` is that of its bytes, where the part does not contain them."""
        claim = FileClaim(tenant, task_id, fingerprint(part, hash), self._expires())
        url = cards.url_at_origin(self._url, origin or None) + self._path(claim, part.filename or "")
        return replace(part, raw=None, url=url)

    def _expires(self) -> int:
        step = self._seconds / RENEWALS
        return int((self._clock() // step + 1) * step + self._seconds)

    def _path(self, claim: FileClaim, filename: str) -> str:
        text = _encode_base64(msgspec.json.encode(claim))
        name = filename if _NAME.fullmatch(filename) else ""
        return f"{FILES_PATH}{text}.{self._signature(text, name)}/{name}"

    def _signature(self, claim: str, name: str) -> str:
        return _encode_base64(hmac.digest(self._key, f"{claim}/{name}".encode(), "sha256"))

    def read(self, path: str) -> FileClaim:
        """Return the claim in a path below the mount, or raise UnsignedUrl or ExpiredUrl."""
        found = _PATH.fullmatch(path)
        # The texts are compared, not their decoded bytes: several texts may decode to the same bytes.
        if found is None or not hmac.compare_digest(self._signature(found["claim"], found["name"]), found["signature"]):
            raise UnsignedUrl
        claim = _CLAIM.decode(urlsafe_b64decode(found["claim"] + "=" * (-len(found["claim"]) % 4)))
        if claim.expires <= self._clock():
            raise ExpiredUrl
        return claim


def large_file_linker(links: FileLinks | None, request: Request, caller: Caller, most: int) -> Callable[[T], T]:
    """Return a function that replaces files by URLs where they do not fit into one response or event."""
    if links is None:
        return _unchanged
    return partial(links.linked, tenant=request.tenant or caller.tenant, origin=caller.files_at, most=most)


def _unchanged(value: T) -> T:
    return value


def _encode_base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


log = logging.getLogger("accord.files")

INLINE_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "text/plain", "application/json"}
)
"""Types that a browser shows without running anything."""

PREVIEW_TYPES = frozenset({"text/html", "image/svg+xml"})
"""Types that a frame may show, in a sandbox that runs and fetches nothing."""

SAFE_TYPES = INLINE_TYPES | {
    *("text/csv", "text/markdown", "text/calendar", "image/svg+xml", "application/pdf"),
    *("application/zip", "application/gzip", "application/x-tar", "application/octet-stream"),
}
"""Types that a download keeps, besides those of `SAFE_KINDS`: no page can load one as a script, a style sheet or a
page.

The console's own pages may load scripts from their origin, which these files share.
"""

SAFE_KINDS = ("image", "audio", "video")
"""Kinds whose types are safe except XML ones (`image/svg+xml` is an image where a page loads it as one)."""

UNKNOWN = "application/octet-stream"

MIN_SHARED_PIECE = 1024 * 1024
"""Minimum bytes of a piece that downloads of the same file share; comparing shorter ones is not worth it."""

SANDBOX = "sandbox; default-src 'none'"
PREVIEW = f"{SANDBOX}; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"

PRIVATE_HEADERS: Headers = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]

_PLAIN_TEXT: Headers = [(b"content-type", b"text/plain; charset=utf-8")]
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}")
_CHARSET = re.compile(r";\s*charset=\"?(?P<name>[A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)


def download(part: Part, name: str, *, inline: bool = False) -> tuple[bytes, Headers]:
    """Return a part's bytes and the headers that protect its reader; `name` is the default filename."""
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
    is_previewed = inline and kind in PREVIEW_TYPES
    kind = kind if is_previewed else _safe_type(kind)
    way = "inline" if is_previewed or (inline and kind in INLINE_TYPES) else "attachment"
    # Browsers would read text without a charset in a local default encoding.
    kind += f"; charset={charset}" if kind.startswith("text/") else ""
    said = {
        "content-type": kind,
        "content-disposition": f"{way}; filename*=UTF-8''{quote(part.filename or name, safe='')}",
        "content-security-policy": PREVIEW if is_previewed else SANDBOX,
        "cross-origin-resource-policy": "same-origin",
    }
    return data, [(name.encode(), value.encode()) for name, value in said.items()]


def _safe_type(kind: str) -> str:
    """Return a type that a browser cannot run: the stated one, otherwise plain text or bytes."""
    family = kind.partition("/")[0]
    is_media = family in SAFE_KINDS and not kind.endswith("xml") and _TYPE.fullmatch(kind) is not None
    if kind in SAFE_TYPES or is_media:
        return kind
    return "text/plain" if family == "text" else UNKNOWN


class FilePage:
    """An ASGI application that serves signed URLs: 403 without a valid signature, 410 after expiry."""

    def __init__(self, task_store: TaskStore, links: FileLinks, quotas: Quotas = QUOTAS) -> None:
        """Serve files of the stored tasks."""
        self._quotas = quotas
        self._task_store = task_store
        self._links = links

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        status, body, headers, pieces = await self._answer(scope["path"].removeprefix(scope.get("root_path", "")))
        is_head = scope["method"] == "HEAD"
        if pieces is None:
            await respond(send, status, body, [*headers, *PRIVATE_HEADERS], head=is_head)
            return
        start = {"type": "http.response.start", "status": status, "headers": [*headers, *PRIVATE_HEADERS]}
        try:
            await (send(start) if is_head else self._write(send, start, pieces))
        except AccordError as error:  # too many unread bytes already: nothing has been sent
            said = [*_PLAIN_TEXT, *error_headers(error)]
            await respond(send, error.row.http, error.message.encode() + b"\n", said)
            return
        await send({"type": "http.response.body", "body": b""})

    async def _write(self, send: Send, start: dict[str, Any], pieces: AsyncIterator[bytes]) -> None:
        """Write a file; each piece is read after the client has read the previous ones."""
        is_begun = False
        async with aclosing(pieces) as left:  # type: ignore[type-var]  # they are generators
            async for piece in left:
                try:
                    with RESPONSE_BODIES.hold(
                        piece, None, self._quotas, shares=len(piece) > MIN_SHARED_PIECE
                    ) as pending:
                        del piece
                        if not is_begun:
                            await send(start)
                            is_begun = True
                        await RESPONSE_BODIES.write(send, pending, more=True)
                except AccordError:
                    if is_begun:
                        raise ClientGone from None  # there is no room for the remainder: the connection is closed
                    raise
        if not is_begun:
            await send(start)

    async def _answer(self, path: str) -> "_FileReply":
        try:
            claim = self._links.read(path)
            found = await self._task_store.file(claim.tenant, claim.task_id, claim.fingerprint)
            first = [] if found is None else [await anext(found[2])]
        except UnsignedUrl:
            return _FileReply(403, b"This is no address that the server has made\n")
        except ExpiredUrl:
            return _FileReply(410, b"The time of this address is over: ask for the task again\n")
        except StoreUnavailable:
            return _FileReply(503, b"Try again in a moment\n", [*_PLAIN_TEXT, (b"retry-after", b"1")])
        except Exception:  # the caller gets no detail of it, the log everything
            log.exception("request.failed", extra={"operation": "file"})
            return _FileReply(500, b"Something went wrong here\n")
        if found is None:
            return _FileReply(404, b"The task has no such file any more\n")
        part, size, pieces = found
        _, headers = download(replace(part, raw=b""), "file")
        return _FileReply(200, b"", [*headers, (b"content-length", b"%d" % size)], _after(first, pieces))


async def _after(first: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the first piece, which is not held while it is written, and the remaining ones."""
    async with aclosing(rest) as pieces:  # type: ignore[type-var]  # they are generators
        yield first.pop()
        async for piece in pieces:
            yield piece


class _FileReply(NamedTuple):
    status: int
    body: bytes
    headers: Headers = _PLAIN_TEXT
    pieces: AsyncIterator[bytes] | None = None
