"""Outgoing HTTP requests to servers that callers name, checked and bounded.

A request is sent only to addresses that the policy allows (`policy`), and the connection is made to the address that
was checked (`connector`). It follows no redirect, keeps no cookies and uses no proxy of the environment. It is
independent of A2A: the layers above use it to call webhooks and to fetch key sets and cards of other servers.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import version
from io import BytesIO
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from accord.outbound.policy import Policy, Target, TargetRefused

if TYPE_CHECKING:
    import aiohttp


Resolve = Callable[[str], Awaitable[list[str]]]
"""Returns the addresses of a name, or raises OSError."""

AddressInfo = tuple[Any, ...]
"""Family, type, protocol, name and socket address, as returned by `socket.getaddrinfo`."""

THREADS = 256
"""Maximum concurrent name lookups: one per concurrent webhook delivery (`engine.webhook_delivery.CLAIM`), so that
one caller's slow names do not block another's. The threads start as needed and are separate from those of agents and
files.
"""


class SystemResolver:
    """Resolves names with the operating system's resolver."""

    def __init__(self) -> None:
        """Create the thread pool. Its threads start as needed."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="accord-names")

    async def __call__(self, name: str) -> list[str]:
        """Return the addresses of a name."""
        look_up = partial(socket.getaddrinfo, name, None, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    def close(self) -> None:
        """Stop without waiting for pending lookups."""
        self._threads.shutdown(wait=False, cancel_futures=True)


USER_AGENT = f"accord/{version('accord')}"


TOTAL_SECONDS = 30.0
CONNECT_SECONDS = 10.0
"""Connection timeout. A2A requires 10 to 30 seconds for a webhook (4.3.3)."""

NO_LIMIT = 0
"""The value by which aiohttp's connector means unlimited connections."""

MAX_BYTES = 64 * 1024
"""Default maximum size of a reply's body, in bytes."""


NO_ADDRESS = "The host's name has no public address"

log = logging.getLogger("accord.outbound")


class HostUnreachable(Exception):
    """A server did not answer. A later attempt may succeed. The message contains the reason."""


class OutboundReply(Struct, frozen=True, kw_only=True):
    """A server's reply. `is_whole` is true if no part of its body is missing. Header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool


class OutboundStream(Struct, frozen=True, kw_only=True):
    """A reply whose body is read as it arrives."""

    status: int
    headers: Mapping[str, str]
    content: "aiohttp.StreamReader"

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body."""
        while piece := await self.content.readany():
            yield piece


class Outbound:
    """Sends requests to servers that callers name."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        total_seconds: float = TOTAL_SECONDS,
        opens: Callable[[AddressInfo], socket.socket] | None = None,
    ) -> None:
        """Send requests that `policy` allows. No connection is opened before the first request."""
        self._policy = policy or Policy()
        self._names = SystemResolver()
        self._resolve = resolve or self._names
        self._tls = tls
        self._total_seconds = total_seconds
        self._opens = opens
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        self._names.close()
        for session in self._sessions.values():
            await session.close()

    def check(self, url: str) -> None:
        """Raise TargetRefused for a URL that may not be requested, without resolving its name."""
        self._policy.target(url)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        body: bytes | None = None,
        max_bytes: int = MAX_BYTES,
        body_seconds: float | None = None,
    ) -> OutboundReply:
        """Send a request and return the reply with at most `max_bytes` of its body. 0 does not wait for a body.

        With `body_seconds` the reply is accepted after its head, with the bytes of the body that arrive in that
        time. Raises TargetRefused for a URL that may not be requested. Raises HostUnreachable if its name has no
        public address or the reply does not arrive in time.
        """
        async with self.open(method, url, headers=headers, body=body, seconds=self._total_seconds) as answer:
            if body_seconds is None:
                content, is_whole = await _read_bounded(answer.content, max_bytes)
            else:
                content, is_whole = await _glimpse(answer.content, max_bytes, body_seconds)
            return OutboundReply(status=answer.status, headers=answer.headers, body=content, is_whole=is_whole)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        body: bytes | None = None,
        seconds: float | None = None,
    ) -> AsyncIterator[OutboundStream]:
        """Send a request and yield its reply for streaming, for at most `seconds`.

        Raises the same errors as `request`, also in the middle of a reply.
        """
        if not self._sessions:  # aiohttp imports slowly, so only the first request does
            await asyncio.to_thread(import_module, "accord.outbound.connector")
        import aiohttp

        target = self._policy.target(url)
        data = None if body is None else BytesIO(body)  # a stream, so that megabytes do not block the loop
        try:
            async with (
                asyncio.timeout(seconds),
                self._session(target).request(
                    method, target.url, headers=headers, data=data, allow_redirects=False
                ) as response,
            ):
                yield OutboundStream(status=response.status, headers=response.headers, content=response.content)
        except (aiohttp.ClientConnectorDNSError, TargetRefused) as error:
            # One message for both: callers must not learn which names of a private network exist.
            log.warning("outbound.no_public_address", extra={"host": target.url.raw_host, "reason": str(error)})
            raise HostUnreachable(NO_ADDRESS) from error
        except (aiohttp.ClientError, OSError) as error:
            raise HostUnreachable(_reason(error)) from error

    def _session(self, target: Target) -> "aiohttp.ClientSession":
        """Return the session for trusted hosts or for all others. They share no connections."""
        found = self._sessions.get(target.is_trusted)
        if found is None:  # created here because it belongs to the running loop
            found = self._sessions[target.is_trusted] = self._open(is_trusted=target.is_trusted)
        return found

    def _open(self, *, is_trusted: bool) -> "aiohttp.ClientSession":
        import aiohttp

        from accord.outbound.connector import checked_connector

        return aiohttp.ClientSession(
            # The caller limits its requests: a limit here would let one caller wait for another's host.
            connector=checked_connector(
                self._resolve, is_trusted=is_trusted, tls=self._tls, opens=self._opens, limit=NO_LIMIT
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Without compression: a few bytes could expand beyond the memory.
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
            auto_decompress=False,
            trust_env=False,
            max_line_size=8190,
            max_field_size=8190,
        )


async def _read_bounded(content: "aiohttp.StreamReader", max_bytes: int) -> tuple[bytes, bool]:
    """Return the first bytes of a body, and whether it is complete."""
    found = bytearray()
    while max_bytes and len(found) <= max_bytes and (piece := await content.read(max_bytes + 1 - len(found))):
        found += piece
    return bytes(found[:max_bytes]), len(found) <= max_bytes and content.at_eof()


async def _glimpse(content: "aiohttp.StreamReader", max_bytes: int, seconds: float) -> tuple[bytes, bool]:
    """Return the bytes that arrive in time. A body that times out or breaks off counts as empty."""
    import aiohttp

    try:
        async with asyncio.timeout(seconds):
            return await _read_bounded(content, max_bytes)
    except (TimeoutError, aiohttp.ClientError, OSError):
        return b"", False


def _reason(error: Exception) -> str:
    """Return the reason for a missing reply, without addresses, because the caller may see it."""
    import aiohttp

    match error:
        case aiohttp.ConnectionTimeoutError():
            return f"No connection within {CONNECT_SECONDS:g} seconds"
        case TimeoutError():
            return "No answer in time"
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLCertVerificationError() as cause):
            return f"The host's certificate is not accepted: {cause.verify_message}"
        case aiohttp.ClientSSLError():
            return "The host does not speak TLS as it should"
        case aiohttp.ClientConnectorError():
            return f"No connection: {os.strerror(error.errno) if error.errno else 'none of its addresses takes one'}"
        case aiohttp.ClientResponseError():
            return "The answer is not HTTP, or its headers are too large"
        case _:
            return "The connection broke off"


__all__ = ["HostUnreachable", "Outbound", "OutboundReply", "Policy", "TargetRefused"]
