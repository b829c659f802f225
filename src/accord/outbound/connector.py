"""aiohttp behind `HttpSession`: connections to checked addresses only, replies, and errors.

A name is resolved once, its addresses are checked, and the connection is made to them. A second lookup could
return another answer (DNS rebinding), so none is made. The first request imports it together with aiohttp.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.http_exceptions import ContentEncodingError

from accord.errors import InvalidAgentResponse
from accord.outbound.messages import (
    IDLE_SECONDS,
    StreamBroken,
    TargetRefused,
    TimedOut,
    Unreachable,
    not_compressed,
    too_large,
)
from accord.outbound.policy import AddressInfo, Resolve, check_address

FAILURES = (aiohttp.ClientError, OSError, ValueError, TargetRefused)
"""Exceptions of a request."""

NAME_FAILURES = (aiohttp.ClientConnectorDNSError, TargetRefused)
"""Exceptions of a request whose host has no address, or one that is not allowed."""


class CheckedResolver(AbstractResolver):
    """A resolver that answers only with addresses that may be connected to."""

    def __init__(self, resolve: Resolve, *, is_trusted: bool) -> None:
        """Check the results of `resolve`. Trusted hosts may be on a private network."""
        self._resolve = resolve
        self._is_trusted = is_trusted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a name. Raises TargetRefused if any of them is not allowed."""
        addresses = await self._resolve(host)
        for address in addresses:
            if what := check_address(address, is_trusted=self._is_trusted):
                raise TargetRefused(f"{host} has an address that is not public: {what}")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Do nothing: the caller owns the resolver function."""


def open_socket(info: AddressInfo) -> socket.socket:
    """Create a socket for an address."""
    family, kind, protocol, _, _ = info
    return socket.socket(family, kind, protocol)


def checked_connector(
    resolve: Resolve,
    *,
    is_trusted: bool,
    tls: ssl.SSLContext | None = None,
    opens: Callable[[AddressInfo], socket.socket] | None = None,
) -> aiohttp.TCPConnector:
    """Return a connector to checked addresses only. Trusted hosts and others each have their own."""

    def checked(info: AddressInfo) -> socket.socket:
        """Open a socket. Checks the address again, in case it bypassed the resolver."""
        if what := check_address(info[4][0], is_trusted=is_trusted):
            raise PermissionError(f"not a public address: {what}")
        return (open_socket if opens is None else opens)(info)

    return aiohttp.TCPConnector(
        resolver=CheckedResolver(resolve, is_trusted=is_trusted),
        use_dns_cache=False,
        ssl=tls or True,
        keepalive_timeout=IDLE_SECONDS,
        socket_factory=checked,
        limit=0,
    )


class SessionReply:
    """An answer whose body has not been read. Leaving its `async with` block closes it."""

    def __init__(self, response: aiohttp.ClientResponse, max_bytes: int, seconds: float | None) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def read(self) -> bytes:
        """Read the whole body and release the connection."""
        try:
            if self._seconds is None:  # the timeout of the whole request still applies
                return await self._read()
            async with asyncio.timeout(self._seconds):
                return await self._read()
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(error) from error
        finally:
            await self.close()

    async def _read(self) -> bytes:
        body = await self._response.content.readany()
        if len(body) <= self._max_bytes and self._response.content.at_eof():
            return body  # most answers arrive in one chunk
        data = bytearray(body)
        while len(data) <= self._max_bytes and (piece := await self._response.content.readany()):
            data += piece
        if len(data) > self._max_bytes:
            raise too_large(self._max_bytes)
        return bytes(data)

    async def read_part(self, max_bytes: int, seconds: float | None = None) -> tuple[bytes, bool]:
        """Return the first bytes of the body, and whether it is complete.

        With `seconds`, a body that does not arrive in time or breaks off counts as empty.
        """
        content, data = self._response.content, bytearray()
        try:
            async with asyncio.timeout(seconds):
                while max_bytes and len(data) <= max_bytes and (piece := await content.read(max_bytes + 1 - len(data))):
                    data += piece
            return bytes(data[:max_bytes]), len(data) <= max_bytes and content.at_eof()
        except (aiohttp.ClientError, OSError) as error:
            if seconds is None:
                raise failure_of(error, is_strict=True) from error
            return b"", False

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Read the body as it arrives."""
        content = self._response.content
        try:
            while piece := await content.readany():
                yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(error) from error
        finally:
            self._response.close()

    async def close(self) -> None:
        """Release the connection. It is closed if the body is not fully read."""
        if not self._response.content.at_eof():
            self._response.close()


def failure_of(error: Exception, *, is_strict: bool) -> Unreachable:
    """Return the error for a missing answer, which states whether the request may have arrived.

    Reasons of a strict session name no address, because the caller may see them.
    """
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return TimedOut("No connection in time", was_sent=False)
    if isinstance(error, TimeoutError):
        return TimedOut("No answer in time", was_sent=True)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.NonHttpUrlClientError | TargetRefused | ValueError):
        return Unreachable(_not_sent(error, is_strict=is_strict), was_sent=False)
    if isinstance(error, aiohttp.ClientResponseError):
        return Unreachable("The answer is not HTTP, or its headers are too large", was_sent=True)
    return Unreachable("The connection broke off before there was an answer", was_sent=True)


def _not_sent(error: Exception, *, is_strict: bool) -> str:
    if isinstance(error, TargetRefused):
        return str(error)
    if not isinstance(error, aiohttp.ClientConnectorError):
        return f"The request cannot be sent: {error}"
    place = "the host" if is_strict else f"{error.host}:{error.port}"
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"The name {error.host} has no address"
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLCertVerificationError() as cause):
            return f"The certificate of {place} is not accepted: {cause.verify_message}"
        case aiohttp.ClientSSLError():
            return f"The TLS handshake with {place} failed{'' if is_strict else f': {error}'}"
    if is_strict:
        return f"No connection: {os.strerror(error.errno) if error.errno else 'none of its addresses accepts one'}"
    return f"There is no connection to {place}: {error.os_error}"


def _broken(error: Exception) -> Unreachable | InvalidAgentResponse:
    if isinstance(error, TimeoutError):
        return TimedOut("The answer stopped coming", was_sent=True)
    if isinstance(error.__cause__, ContentEncodingError):
        return not_compressed()
    return StreamBroken("The connection broke off in the middle of the answer")
