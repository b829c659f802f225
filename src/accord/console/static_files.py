"""Static files of the web application, and the redirect from `/` to it.

They are the same for all callers and need no credentials. `hatch_build.py` builds them. Without a build a small page is
served instead.
"""

import asyncio
import gzip
import mimetypes
import re
from collections.abc import Awaitable, Mapping
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import NamedTuple

from accord.console import PAGES
from accord.http.asgi import App, Headers, Receive, Scope, Send, header, respond
from accord.http.compression import MIN_COMPRESSED_BYTES, choose_encoding

INDEX = "index.html"
ASSETS = "assets/"
"""Path prefix of files with a hash of their content in their names."""

FOREVER = b"public, max-age=31536000, immutable"
REVALIDATE = b"no-cache"
"""Cached, but revalidated on each use."""

MAX_FILES = 500
"""Files that are kept in memory: a build has some dozens."""

POLICY: Mapping[str, str] = {
    "default-src": "'self'",
    "img-src": "'self' data: blob:",
    "media-src": "'self' blob:",
    "frame-src": "'self'",
    "worker-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
"""Content security policy: nothing from other origins, no inline scripts or styles, and no framing."""

SECURITY_HEADERS: Headers = [
    (b"content-security-policy", "; ".join(f"{name} {value}" for name, value in POLICY.items()).encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
"""Headers of every response."""

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""Content types that the machine's own table may lack or have wrong."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
"""A segment of a path: no hidden file, no parent directory, no special characters."""


class StaticFile(NamedTuple):
    """A served file: its bytes, a compressed copy if it is smaller, its tag and content type."""

    body: bytes
    packed: bytes | None
    etag: str
    kind: str

    @classmethod
    def of(cls, body: bytes, kind: str) -> "StaticFile":
        """Return a file of these bytes."""
        packed = gzip.compress(body, mtime=0) if len(body) >= MIN_COMPRESSED_BYTES else body
        etag = f'"{sha256(body).hexdigest()[:32]}"'
        return cls(body, packed if len(packed) < len(body) else None, etag, kind)


class StaticFiles:
    """An ASGI application for the files below `/console/`."""

    def __init__(self, built: Path, fallback: Path) -> None:
        """Serve the files in `built`, or in `fallback` without a build."""
        self._built = built
        self._fallback = fallback
        self._files: dict[tuple[Path, int, int], StaticFile] = {}

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] not in ("GET", "HEAD"):
            await _send_text(scope, send, 405, b"Allowed are GET, HEAD\n", [(b"allow", b"GET, HEAD")])
            return
        mount: str = scope.get("accord.mount", "")
        path = scope["path"].removeprefix(mount)
        if path == PAGES.rstrip("/"):
            query = scope.get("query_string", b"")
            await _send_text(scope, send, 308, b"", [(b"location", _url(mount) + (b"?" + query if query else b""))])
            return
        name = path.removeprefix(PAGES)
        file = await asyncio.to_thread(self._find, name, mount)
        if file is None:
            await _send_text(scope, send, 404, b"There is no such file\n", [(b"cache-control", b"no-store")])
            return
        caching = FOREVER if name.startswith(ASSETS) else REVALIDATE
        headers = [(b"cache-control", caching), (b"etag", file.etag.encode()), (b"vary", b"Accept-Encoding")]
        if file.etag in (header(scope, b"if-none-match") or ""):
            await _send(scope, send, 304, b"", headers)
            return
        headers.append((b"content-type", file.kind.encode()))
        if file.packed is not None and choose_encoding(header(scope, b"accept-encoding") or "", ("gzip",)):
            await _send(scope, send, 200, file.packed, [*headers, (b"content-encoding", b"gzip")])
        else:
            await _send(scope, send, 200, file.body, headers)

    def _find(self, name: str, mount: str) -> StaticFile | None:
        """Return a file, or the page for other names without an extension, which the front end routes."""
        root = self._built if (self._built / INDEX).is_file() else self._fallback
        if name and all(map(_NAME.fullmatch, name.split("/"))):
            path = root.joinpath(*name.split("/"))
            if name != INDEX and path.is_file() and path.resolve().is_relative_to(root.resolve()):
                return self._read(path)
        if name != INDEX and (name.startswith(ASSETS) or "." in name.rpartition("/")[2]):
            return None
        page = self._read(root / INDEX)
        return StaticFile.of(_with_base_path(page.body, mount), page.kind)

    def _read(self, path: Path) -> StaticFile:
        status = path.stat()
        key = path, status.st_mtime_ns, status.st_size
        file = self._files.get(key)
        if file is None:
            kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            if len(self._files) >= MAX_FILES:
                self._files.clear()
            self._files[key] = file = StaticFile.of(path.read_bytes(), kind)
        return file


class RootRedirect:
    """The root path: browsers are redirected to the console, other clients reach the first agent."""

    def __init__(self, agent: App) -> None:
        """Pass all requests to `agent` except visits by browsers."""
        self._agent = agent

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        if not _is_visit(scope):
            return self._agent(scope, receive, send)
        headers = [(b"location", _url(scope.get("accord.mount", ""))), (b"vary", b"Accept")]
        return _send_text(scope, send, 307, b"", [*headers, (b"cache-control", b"no-store")])


def _is_visit(scope: Scope) -> bool:
    """Whether a person has opened an address in a browser."""
    if scope["method"] not in ("GET", "HEAD") or "text/html" not in (header(scope, b"accept") or ""):
        return False
    return (header(scope, b"sec-fetch-mode") or "navigate") == "navigate"


def _with_base_path(page: bytes, mount: str) -> bytes:
    """Return a page whose file links work at any path, with the server's mount in a `meta` element."""
    base = escape(mount).encode() + PAGES.encode()
    meta = b'<meta name="accord-mount" content="' + escape(mount).encode() + b'" />'
    return page.replace(b'="./', b'="' + base).replace(b"<head>", b"<head>\n    " + meta, 1)


def _send(scope: Scope, send: Send, status: int, body: bytes, headers: Headers) -> Awaitable[None]:
    return respond(send, status, body, [*SECURITY_HEADERS, *headers], head=scope["method"] == "HEAD")


def _send_text(scope: Scope, send: Send, status: int, text: bytes, headers: Headers) -> Awaitable[None]:
    return _send(scope, send, status, text, [(b"content-type", b"text/plain; charset=utf-8"), *headers])


def _url(mount: str) -> bytes:
    return (mount + PAGES).encode("latin-1", "replace")
