"""The HTTP session: bounded requests to any address, or with a policy to the allowed ones.

It follows no redirect, keeps no cookies and uses no proxy of the environment. With a policy, the connection is made to
the address that was checked (`connector`).
"""

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from io import BytesIO
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from accord.outbound.messages import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    MAX_BYTES,
    SILENT_SECONDS,
    UNCOMPRESSED,
    USER_AGENT,
    HttpReply,
    HttpRequest,
    HttpTransport,
    Unreachable,
)
from accord.outbound.policy import AddressInfo, Policy, Resolve

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

    from accord.outbound.connector import SessionReply


THREADS = 256
"""Maximum concurrent name lookups: one per concurrent webhook delivery (`engine.webhook_delivery.CLAIM`), so that
one caller's slow names do not block another's. The threads start as needed and are separate from those of agents and
files.
"""

TOTAL_SECONDS = 30.0
"""Default timeout of `request`, with its body, in seconds."""

PART_BYTES = 64 * 1024
"""Default maximum of a body that `request` reads, in bytes."""

MAX_HEAD, MAX_STRICT_HEAD = 64 * 1024, 8190
"""Maximum bytes of one header: some tokens and card signatures exceed aiohttp's default, which strict sessions keep."""

LARGE_BYTES = 1024 * 1024

CONNECTOR = "accord.outbound.connector"

NO_ADDRESS = "The host's name has no public address"

log = logging.getLogger("accord.outbound")


class SystemResolver:
    """Resolves names with the operating system's resolver, in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="accord-names")

    async def __call__(self, name: str) -> list[str]:
        """Return the addresses of a name."""
        look_up = partial(socket.getaddrinfo, name, None, type=socket.SOCK_STREAM)
        addresses = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return list(dict.fromkeys(str(address[0]) for *_, address in addresses))

    def close(self) -> None:
        """Stop without waiting for pending lookups."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class HttpSession:
    """Sends HTTP requests with aiohttp, which is imported with the first of them."""

    def __init__(  # noqa: PLR0913  # one for each bound
        self,
        policy: Policy | None = None,
        *,
        is_strict: bool = False,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
        opens: Callable[[AddressInfo], socket.socket] | None = None,
        max_bytes: int = MAX_BYTES,
        total_seconds: float = TOTAL_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
        silent_seconds: float | None = SILENT_SECONDS,
    ) -> None:
        """Send to any address, or with a `policy` to the allowed addresses.

        A strict session is for addresses that callers name. It always has a policy, accepts no compression, because
        a few bytes could expand beyond the memory, and its errors name no addresses, because callers see them.
        `tls` replaces the system's certificates, and may include a client certificate. `resolve` replaces the
        system's resolver if there is a policy. An answer may have `max_bytes` after decompression.
        """
        self._policy = policy or (Policy() if is_strict else None)
        self._is_strict = is_strict
        self._tls = tls
        self._resolve = resolve
        self._opens = opens
        self._names: SystemResolver | None = None
        self._max_bytes = max_bytes
        self._total_seconds = total_seconds
        self._connect_seconds = connect_seconds
        self._silent_seconds = silent_seconds
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._last_timeout: aiohttp.ClientTimeout | None = None

    @classmethod
    def strict(cls, policy: Policy | None = None, **options: Any) -> Self:
        """Return a strict session, by default for public addresses only."""
        return cls(policy, is_strict=True, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. The next request opens new ones."""
        names, self._names = self._names, None
        if names is not None:
            names.close()
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    def check(self, url: str) -> None:
        """Raise TargetRefused for a URL that may not be requested, without resolving its name."""
        if self._policy is not None:
            self._policy.target(url)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        body: bytes | None = None,
        max_bytes: int = PART_BYTES,
        body_seconds: float | None = None,
    ) -> HttpReply:
        """Send a request and return the reply with at most `max_bytes` of its body. 0 does not wait for a body.

        With `body_seconds` the reply is accepted after its head, with the bytes of the body that arrive in that
        time. Raises `Unreachable`, and of that TargetRefused for a URL that may not be requested.
        """
        pairs = tuple(headers.items())
        async with await self.open(
            HttpRequest(method=method, url=url, headers=pairs, body=body, seconds=self._total_seconds)
        ) as opened:
            content, is_whole = await opened.read_part(max_bytes, body_seconds)
        return HttpReply(status=opened.status, headers=opened.headers, body=content, is_whole=is_whole)

    async def open(self, request: HttpRequest) -> "SessionReply":
        """Send a request and return the answer's head, or raise `Unreachable`."""
        if CONNECTOR not in sys.modules:  # aiohttp imports slowly, so only the first request does
            await asyncio.to_thread(import_module, CONNECTOR)
        from accord.outbound import connector

        session, url = self._session(request.url)
        try:
            if not request.streams:
                return await self._send(session, url, request, self._timeout(request.seconds))
            async with asyncio.timeout(request.seconds):
                return await self._send(session, url, request, self._stream_timeout())
        except connector.FAILURES as error:
            if self._is_strict and isinstance(error, connector.NAME_FAILURES):
                # One message for both: callers must not learn which names of a private network exist.
                log.warning("outbound.no_public_address", extra={"host": url.raw_host, "reason": str(error)})
                raise Unreachable(NO_ADDRESS, was_sent=False) from error
            raise connector.failure_of(error, is_strict=self._is_strict) from error

    async def _send(
        self, session: "aiohttp.ClientSession", url: "URL", request: HttpRequest, bounds: "aiohttp.ClientTimeout"
    ) -> "SessionReply":
        from accord.outbound.connector import SessionReply

        headers = (*request.headers, UNCOMPRESSED) if request.streams or self._is_strict else request.headers
        body = request.body
        # A large body is sent as a stream, so that megabytes do not block the loop.
        data = BytesIO(body) if body is not None and len(body) > LARGE_BYTES else body
        response = await session.request(
            request.method, url, headers=headers, data=data, allow_redirects=False, timeout=bounds
        )
        return SessionReply(response, self._max_bytes, request.seconds if request.streams else None)

    def _timeout(self, seconds: float | None) -> "aiohttp.ClientTimeout":
        """Return the timeouts of one request. Connecting may use at most half of the total."""
        import aiohttp

        last = self._last_timeout
        if last is None or last.total != seconds:
            connect = self._connect_seconds if seconds is None else min(self._connect_seconds, seconds / 2)
            last = self._last_timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=connect)
        return last

    def _stream_timeout(self) -> "aiohttp.ClientTimeout":
        import aiohttp

        return aiohttp.ClientTimeout(total=None, sock_connect=self._connect_seconds, sock_read=self._silent_seconds)

    def _session(self, text: str) -> "tuple[aiohttp.ClientSession, URL]":
        """Return the session for a URL. With a policy, trusted hosts and others share no connections."""
        from yarl import URL

        is_trusted = True
        try:
            url = URL(text, encoded=True)  # encoded: a request signature covers the address as it is written
        except ValueError as error:
            raise Unreachable(f"The request cannot be sent: {error}", was_sent=False) from error
        if self._policy is not None:
            target = self._policy.target(text)
            url = target.url if self._is_strict else url.with_host(target.url.raw_host or "")
            is_trusted = target.is_trusted
        session = self._sessions.get(is_trusted)
        if session is None:  # created here because it belongs to the running loop
            session = self._sessions[is_trusted] = self._open(is_trusted=is_trusted)
        return session, url

    def _open(self, *, is_trusted: bool) -> "aiohttp.ClientSession":
        import aiohttp

        from accord.outbound.connector import checked_connector

        # No connection limit: a stream holds a connection as long as its task lasts, and a limit would let one caller
        # wait for another's host.
        if self._policy is None:
            connector = aiohttp.TCPConnector(ssl=self._tls or True, keepalive_timeout=IDLE_SECONDS, limit=0)
        else:
            resolve = self._resolve
            if resolve is None:
                resolve = self._names = self._names or SystemResolver()
            connector = checked_connector(resolve, is_trusted=is_trusted, tls=self._tls, opens=self._opens)
        max_head = MAX_STRICT_HEAD if self._is_strict else MAX_HEAD
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT},
            auto_decompress=not self._is_strict,
            trust_env=False,
            max_line_size=max_head,
            max_field_size=max_head,
        )


TRANSPORTS = {
    "aiohttp": ("accord.outbound.session", "HttpSession"),
    "httpx2": ("accord.outbound.httpx2", "Httpx2Transport"),
}


def open_transport(transport: str | HttpTransport, **options: Any) -> HttpTransport:
    """Return a new transport by its name and options. A transport object is returned unchanged."""
    if not isinstance(transport, str):
        return transport
    if transport not in TRANSPORTS:
        raise ValueError(f"There is no transport {transport!r}; there are {', '.join(TRANSPORTS)}")
    module, name = TRANSPORTS[transport]
    opened: HttpTransport = getattr(import_module(module), name)(**options)
    return opened
