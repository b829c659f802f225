"""Outgoing HTTP requests to servers that callers name, checked and bounded.

A request goes only to addresses that the policy allows (`policy`), and the connection is made to the address that was
checked (`connector`). It follows no redirect, keeps no cookies and uses no proxy of the environment. It knows nothing
of A2A: webhooks, key sets and cards of other servers are fetched through it by the layers above.
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
"""Family, type, protocol, name and socket address, as `socket.getaddrinfo` gives them."""

THREADS = 256
"""Names looked up at once: as many as there are deliveries of webhooks (`engine.webhook_delivery.CLAIM`), so that slow
names of one caller take no thread from another. They start as needed, apart from the threads that agents and files
share."""


class SystemResolver:
    """Looks names up as the system does."""

    def __init__(self) -> None:
        """Start nothing yet: threads are made as they are needed."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="accord-names")

    async def __call__(self, name: str) -> list[str]:
        """Return the addresses of a name."""
        look_up = partial(socket.getaddrinfo, name, None, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    def close(self) -> None:
        """Stop, without waiting for answers that nobody wants any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


USER_AGENT = f"accord/{version('accord')}"


TOTAL_SECONDS = 30.0
CONNECT_SECONDS = 10.0
"""A2A asks for 10 to 30 seconds for a webhook (4.3.3)."""

NO_LIMIT = 0
"""Connections that aiohttp's connector takes as any number."""

MAX_BYTES = 64 * 1024
"""How much of an answer is read unless somebody asks for more."""


NO_ADDRESS = "The host's name has no public address"

log = logging.getLogger("accord.outbound")


class HostUnreachable(Exception):
    """There was no answer, and why; there may be one later."""


class OutboundReply(Struct, frozen=True, kw_only=True):
    """What a server said; `is_whole` if nothing of its body is missing. The case of header names does not matter."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool


class OutboundStream(Struct, frozen=True, kw_only=True):
    """An answer whose body is still to come, and is read as it comes."""

    status: int
    headers: Mapping[str, str]
    content: "aiohttp.StreamReader"

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body."""
        while piece := await self.content.readany():
            yield piece


class Outbound:
    """Asks servers that strangers name."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        total_seconds: float = TOTAL_SECONDS,
        opens: Callable[[AddressInfo], socket.socket] | None = None,
    ) -> None:
        """Ask what `policy` allows; nothing is opened before the first request."""
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
        """Raise Refused for a URL that may not be asked, whatever its name turns out to mean."""
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
        """Send a request and return the answer with so much of its body at most; 0 does not wait for a body.

        With `body_seconds` the answer counts as soon as its head is there: the body is what comes in that time. Raises
        Refused for a URL that may not be asked, and Unreachable if its name has no public address or no answer comes in
        time.
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
        """Send a request and give its answer, to be read as it comes, for so many seconds at most.

        Raises what `request` does, also in the middle of an answer.
        """
        if not self._sessions:  # it takes longer to load than all of a server, so who asks nobody does without
            await asyncio.to_thread(import_module, "accord.outbound.connector")
        import aiohttp

        target = self._policy.target(url)
        data = None if body is None else BytesIO(body)  # a stream, so that megabytes do not hold up the loop
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
            log.warning("a name has no public address", extra={"host": target.url.raw_host, "reason": str(error)})
            raise HostUnreachable(NO_ADDRESS) from error
        except (aiohttp.ClientError, OSError) as error:
            raise HostUnreachable(_reason(error)) from error

    def _session(self, target: Target) -> "aiohttp.ClientSession":
        """Return the connections to trusted hosts or those to all others: neither can lend the other an address."""
        found = self._sessions.get(target.is_trusted)
        if found is None:  # it belongs to the loop that runs, which there is only now
            found = self._sessions[target.is_trusted] = self._open(is_trusted=target.is_trusted)
        return found

    def _open(self, *, is_trusted: bool) -> "aiohttp.ClientSession":
        import aiohttp

        from accord.outbound.connector import checked_connector

        return aiohttp.ClientSession(
            # The caller bounds its requests: a limit here would let one caller wait for another's host.
            connector=checked_connector(
                self._resolve, is_trusted=is_trusted, tls=self._tls, opens=self._opens, limit=NO_LIMIT
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Without compression: a few bytes could become more than memory holds.
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
            auto_decompress=False,
            trust_env=False,
            max_line_size=8190,
            max_field_size=8190,
        )


async def _read_bounded(content: "aiohttp.StreamReader", max_bytes: int) -> tuple[bytes, bool]:
    """Return the first bytes of a body, and whether they are all."""
    found = bytearray()
    while max_bytes and len(found) <= max_bytes and (piece := await content.read(max_bytes + 1 - len(found))):
        found += piece
    return bytes(found[:max_bytes]), len(found) <= max_bytes and content.at_eof()


async def _glimpse(content: "aiohttp.StreamReader", max_bytes: int, seconds: float) -> tuple[bytes, bool]:
    """Do the same with what comes in time; a body that does not come, or breaks off, is no body."""
    import aiohttp

    try:
        async with asyncio.timeout(seconds):
            return await _read_bounded(content, max_bytes)
    except (TimeoutError, aiohttp.ClientError, OSError):
        return b"", False


def _reason(error: Exception) -> str:
    """Say why there is no answer, without addresses: who asked for the request may be told."""
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
