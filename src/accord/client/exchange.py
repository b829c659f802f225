"""One request and its answer, with credentials: the way from a link to a transport and back.

It adds credentials, asks once more where the way to authenticate knows how, and follows a redirect that stays on the
same host. It repeats nothing else and knows nothing of A2A; links and discovery stand above, transports below.
"""

from collections.abc import AsyncIterator, Mapping
from urllib.parse import urljoin, urlsplit

from msgspec.structs import replace

from accord.client.auth.driver import Driver
from accord.client.auth.flow import Auth
from accord.client.wire import Opened, Outgoing, Reply, Transport
from accord.engine import tracing

MAX_REDIRECTS = 3
"""Frameworks redirect once, to an address with or without a slash at its end."""

_KEEPS_METHOD = frozenset({307, 308})
_MOVED = _KEEPS_METHOD | {301, 302, 303}
_PORTS = {"http": 80, "https": 443}


class Exchange:
    """Sends requests over a transport, with the credentials of one way to authenticate."""

    def __init__(self, transport: Transport, auth: Auth | Driver | None = None) -> None:
        """Send over `transport`; who shares a `Driver` shares its tokens as well."""
        self.transport = transport
        self.driver = Driver(auth, transport) if auth is not None and not isinstance(auth, Driver) else auth

    async def open(self, request: Outgoing) -> Opened:
        """Send a request and return the answer's head, or raise `Unreachable`."""
        if tracing.tracer is not None:
            request = replace(request, headers=(*request.headers, *tracing.headers().items()))
        opened = await self._authenticated(request)
        for _ in range(MAX_REDIRECTS):
            target = _redirected(request, opened) if opened.status in _MOVED else None
            if target is None:
                break
            await opened.close()
            request = replace(request, url=target)
            opened = await self._authenticated(request)
        return opened

    async def fetch(self, request: Outgoing) -> Reply:
        """Send a request and return its whole answer."""
        opened = await self.open(request)
        return Reply(status=opened.status, headers=opened.headers, body=await opened.read())

    async def _authenticated(self, request: Outgoing) -> Opened:
        driver = self.driver
        if driver is None:
            return await self.transport.open(request)
        sent = await driver.prepare(request)
        opened = await self.transport.open(sent)
        if opened.status != 401:
            return opened
        refused = Reply(status=opened.status, headers=opened.headers, body=await opened.read())
        again = await driver.retry(sent, refused)
        return _Read(refused) if again is None else await self.transport.open(again)


class _Read:
    """An answer that has been read."""

    def __init__(self, reply: Reply) -> None:
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers
        self._body = reply.body

    async def read(self) -> bytes:
        return self._body

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self._body

    async def close(self) -> None:
        pass


def _redirected(request: Outgoing, opened: Opened) -> str | None:
    """Return where a request is to go, unless that is another server: it would be given the credentials.

    Only 307 and 308 leave a POST what it is.
    """
    stated = opened.headers.get("location")
    if not stated or (opened.status not in _KEEPS_METHOD and request.method not in ("GET", "HEAD")):
        return None
    try:
        target = urljoin(request.url, stated).partition("#")[0]
        return target if _origin(target) in _same_or_safer(_origin(request.url)) else None
    except ValueError:  # a host or a port that is none
        return None


Origin = tuple[str, str, int | None]


def _same_or_safer(origin: Origin) -> tuple[Origin, ...]:
    scheme, host, port = origin
    return (origin, ("https", host, 443)) if (scheme, port) == ("http", 80) else (origin,)


def _origin(url: str) -> Origin:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
