"""An HTTP exchange with authentication and redirects.

Authentication is a generator (`ClientAuth.prepare`): it yields the requests that it needs, such as a token request,
receives their replies and returns the request with credentials. `AuthDriver` runs it once for all requests that wait
for the same token. `HttpExchange` retries once after a 401 and follows a redirect on the same host. The
authentication methods are in `auth`. Links and discovery use this module.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Protocol, cast, overload
from urllib.parse import urljoin, urlsplit, urlunsplit

from msgspec.structs import replace

from accord.engine import tracing
from accord.outbound import HttpReply, HttpRequest, HttpTransport, OpenReply, ReadReply, TimedOut, Unreachable

AuthFlow = Generator[HttpRequest, HttpReply, HttpRequest]


class ClientAuth(Protocol):
    """An authentication method."""

    def prepare(self, request: HttpRequest) -> AuthFlow:
        """Return the request with credentials. Each yielded request must be answered first."""

    def retry(self, request: HttpRequest, refused: HttpReply) -> AuthFlow | None:
        """Return the flow of a retry after a 401, or None if it would send the same credentials.

        `request` is the refused request, with its credentials.
        """


def with_header(request: HttpRequest, name: str, value: str) -> HttpRequest:
    """Return the request with a header, replacing all headers of that name."""
    others = [pair for pair in request.headers if pair[0].lower() != name.lower()]
    return replace(request, headers=(*others, (name, value)))


def header_of(request: HttpRequest, name: str) -> str | None:
    """Return the first value of a header."""
    return next((value for stated, value in request.headers if stated.lower() == name.lower()), None)


def with_query(request: HttpRequest, name: str, value: str) -> HttpRequest:
    """Return the request with an encoded query parameter, replacing all parameters of that name."""
    parts = urlsplit(request.url)
    others = [pair for pair in parts.query.split("&") if pair and pair.partition("=")[0] != name]
    return replace(request, url=urlunsplit(parts._replace(query="&".join([*others, f"{name}={value}"]))))


def with_cookie(request: HttpRequest, name: str, value: str) -> HttpRequest:
    """Return the request with a cookie, replacing a cookie of that name."""
    cookies = (header_of(request, "Cookie") or "").split(";")
    others = [pair for part in cookies if (pair := part.strip()) and pair.partition("=")[0] != name]
    return with_header(request, "Cookie", "; ".join([*others, f"{name}={value}"]))


class AuthDriver:
    """Adds the credentials of one authentication method to requests."""

    def __init__(self, auth: ClientAuth, transport: HttpTransport) -> None:
        """Run the flows of `auth`, sending their requests over `transport`."""
        self.auth = auth
        self._transport = transport
        self._asking: asyncio.Future[Exception | None] | None = None

    async def prepare(self, request: HttpRequest) -> HttpRequest:
        """Return the request with credentials.

        Raises `AuthenticationFailed` if the credentials are refused. Raises `Unreachable`, with nothing sent, if the
        token endpoint does not answer.
        """
        return await self._run(lambda: self.auth.prepare(request))

    async def retry(self, request: HttpRequest, refused: HttpReply) -> HttpRequest | None:
        """Return a request to send after a 401, or None if the refusal is final.

        There is one retry: a second 401 is final.
        """
        return await self._run(lambda: self.auth.retry(request, refused))

    @overload
    async def _run(self, begin: Callable[[], AuthFlow]) -> HttpRequest: ...
    @overload
    async def _run(self, begin: Callable[[], AuthFlow | None]) -> HttpRequest | None: ...
    async def _run(self, begin: Callable[[], AuthFlow | None]) -> HttpRequest | None:
        while True:
            flow = begin()
            if flow is None:
                return None
            try:
                request = next(flow)
            except StopIteration as done:
                return cast("HttpRequest", done.value)
            if self._asking is None:
                return await self._fetch_credentials(flow, request)
            flow.close()  # another request is fetching credentials, which may satisfy this one too
            failure = await asyncio.shield(self._asking)  # a canceled waiter must not cancel it for the others
            if failure is not None:
                raise failure

    async def _fetch_credentials(self, flow: AuthFlow, asked: HttpRequest) -> HttpRequest:
        """Run a flow that sends requests. Concurrent flows wait for its outcome."""
        self._asking = asking = asyncio.get_running_loop().create_future()
        failure: Exception | None = None
        try:
            while True:
                asked = flow.send(await self._exchange(asked))
        except StopIteration as done:
            return cast("HttpRequest", done.value)
        except Exception as error:
            failure = error
            raise
        finally:
            flow.close()
            self._asking = None
            asking.set_result(failure)

    async def _exchange(self, request: HttpRequest) -> HttpReply:
        """Send a flow's request. If it fails, the original request was not sent."""
        try:
            opened = await self._transport.open(request)
            try:
                return await whole_reply(opened)
            finally:
                await opened.close()
        except Unreachable as error:
            kind = TimedOut if isinstance(error, TimedOut) else Unreachable
            raise kind(f"No credentials are available: {error.reason}", was_sent=False) from error


async def whole_reply(opened: OpenReply) -> HttpReply:
    """Read the body of an answer."""
    return HttpReply(status=opened.status, headers=opened.headers, body=await opened.read())


MAX_REDIRECTS = 3
"""Frameworks redirect once, to an address with or without a trailing slash."""

_KEEPS_METHOD = frozenset({307, 308})
_MOVED = _KEEPS_METHOD | {301, 302, 303}
_PORTS = {"http": 80, "https": 443}


class HttpExchange:
    """Sends requests over a transport, with the credentials of one authentication method."""

    def __init__(self, transport: HttpTransport, auth: ClientAuth | AuthDriver | None = None) -> None:
        """Send over `transport`. Exchanges that share an `AuthDriver` share its tokens."""
        self.transport = transport
        self.driver = AuthDriver(auth, transport) if auth is not None and not isinstance(auth, AuthDriver) else auth

    async def open(self, request: HttpRequest) -> OpenReply:
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

    async def fetch(self, request: HttpRequest) -> HttpReply:
        """Send a request and return its whole answer."""
        return await whole_reply(await self.open(request))

    async def _authenticated(self, request: HttpRequest) -> OpenReply:
        driver = self.driver
        if driver is None:
            return await self.transport.open(request)
        sent = await driver.prepare(request)
        opened = await self.transport.open(sent)
        if opened.status != 401:
            return opened
        refused = await whole_reply(opened)
        again = await driver.retry(sent, refused)
        return ReadReply(refused) if again is None else await self.transport.open(again)


def _redirected(request: HttpRequest, opened: OpenReply) -> str | None:
    """Return the target of a redirect, or None if it is another server, which must not get the credentials.

    Only 307 and 308 keep the method of a POST.
    """
    location = opened.headers.get("location")
    if not location or (opened.status not in _KEEPS_METHOD and request.method not in ("GET", "HEAD")):
        return None
    try:
        target = urljoin(request.url, location).partition("#")[0]
        return target if _origin(target) in _same_or_safer(_origin(request.url)) else None
    except ValueError:  # an invalid host or port
        return None


Origin = tuple[str, str, int | None]


def _same_or_safer(origin: Origin) -> tuple[Origin, ...]:
    scheme, host, port = origin
    return (origin, ("https", host, 443)) if (scheme, port) == ("http", 80) else (origin,)


def _origin(url: str) -> Origin:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
