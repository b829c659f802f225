"""The default transport: aiohttp, with kept connections and bounded replies."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from io import BytesIO

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError
from yarl import URL

from accord.client.transports import (
    MAX_BYTES,
    HttpRequest,
    StreamBroken,
    TimedOut,
    Unreachable,
    not_compressed,
    too_large,
)
from accord.errors import InvalidAgentResponse
from accord.outbound import USER_AGENT, Policy, Resolve, SystemResolver, TargetRefused
from accord.outbound.connector import IDLE_SECONDS, checked_connector

CONNECT_SECONDS = 10.0
"""Connection timeout, in seconds: a reachable server accepts within one or two."""

SILENT_SECONDS = 300.0
"""Maximum silence of a stream, in seconds: many servers send a keep-alive every 15 seconds, others only events."""

MAX_HEAD = 64 * 1024
"""Maximum bytes of one header: some tokens and card signatures exceed aiohttp's default."""

LARGE_BYTES = 1024 * 1024

UNCOMPRESSED = ("Accept-Encoding", "identity")
"""For streams, because compression delays chunks."""


class AiohttpTransport:
    """Sends requests with aiohttp."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        policy: Policy | None = None,
        resolve: Resolve | None = None,
        max_bytes: int = MAX_BYTES,
        connect_seconds: float = CONNECT_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        """Send to any address, or with a `policy` to the allowed addresses.

        No connection is opened before the first request. `tls` replaces the system's certificates, and may include a
        client certificate. `resolve` replaces the system's resolver if there is a policy. An answer may have
        `max_bytes` after decompression.
        """
        self._tls = tls
        self._policy = policy
        self._resolve = resolve
        self._names: SystemResolver | None = None
        self._max_bytes = max_bytes
        self._connect_seconds = connect_seconds
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._last_timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds)
        self._stream_timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds, sock_read=silent_seconds)

    async def open(self, request: HttpRequest) -> "AiohttpReply":
        """Send a request and return the answer's head, or raise `Unreachable`."""
        try:
            session, url = self._session(request.url)
            if not request.streams:
                return await self._send(session, url, request, self._timeout(request.seconds))
            async with asyncio.timeout(request.seconds):
                return await self._send(session, url, request, self._stream_timeout)
        except (aiohttp.ClientError, OSError, TargetRefused, ValueError) as error:
            raise _translated(error) from error

    async def _send(
        self, session: aiohttp.ClientSession, url: URL, request: HttpRequest, bounds: aiohttp.ClientTimeout
    ) -> "AiohttpReply":
        headers = (*request.headers, UNCOMPRESSED) if request.streams else request.headers
        body = request.body
        # A large body is sent as a stream, so that megabytes do not block the loop.
        data = BytesIO(body) if body is not None and len(body) > LARGE_BYTES else body
        response = await session.request(
            request.method, url, headers=headers, data=data, allow_redirects=False, timeout=bounds
        )
        return AiohttpReply(response, self._max_bytes, request.seconds if request.streams else None)

    def _timeout(self, seconds: float | None) -> aiohttp.ClientTimeout:
        """Return the timeouts of one request. Connecting may use at most half of the total."""
        if self._last_timeout.total != seconds:
            connect = self._connect_seconds if seconds is None else min(self._connect_seconds, seconds / 2)
            self._last_timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=connect)
        return self._last_timeout

    def _session(self, text: str) -> tuple[aiohttp.ClientSession, URL]:
        """Return the session for a URL. With a policy, trusted hosts and others share no connections."""
        # Encoded: a request signature covers the address as it is written.
        url, is_trusted = URL(text, encoded=True), True
        if self._policy is not None:
            target = self._policy.target(text)
            url, is_trusted = url.with_host(target.url.raw_host or ""), target.is_trusted
        found = self._sessions.get(is_trusted)
        if found is None:  # created here because it belongs to the running loop
            found = self._sessions[is_trusted] = self._open(is_trusted=is_trusted)
        return found, url

    def _open(self, *, is_trusted: bool) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=self._connector(is_trusted=is_trusted),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT},
            trust_env=False,
            max_line_size=MAX_HEAD,
            max_field_size=MAX_HEAD,
        )

    def _connector(self, *, is_trusted: bool) -> aiohttp.TCPConnector:
        """Return a connector without a connection limit: a stream holds a connection as long as its task lasts."""
        if self._policy is None:
            return aiohttp.TCPConnector(ssl=self._tls or True, keepalive_timeout=IDLE_SECONDS, limit=0)
        resolve = self._resolve
        if resolve is None:
            resolve = self._names = self._names or SystemResolver()
        return checked_connector(resolve, is_trusted=is_trusted, tls=self._tls, limit=0)

    async def close(self) -> None:
        """Close all connections."""
        names, self._names = self._names, None
        if names is not None:
            names.close()
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()


class AiohttpReply:
    """An answer whose body has not been read."""

    def __init__(self, response: aiohttp.ClientResponse, max_bytes: int, seconds: float | None) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._max_bytes = max_bytes
        self._seconds = seconds

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
            if not self._response.content.at_eof():
                self._response.close()

    async def _read(self) -> bytes:
        body = await self._response.content.readany()
        if len(body) <= self._max_bytes and self._response.content.at_eof():
            return body  # most answers arrive in one chunk
        found = bytearray(body)
        while len(found) <= self._max_bytes and (piece := await self._response.content.readany()):
            found += piece
        if len(found) > self._max_bytes:
            raise too_large(self._max_bytes)
        return bytes(found)

    async def pieces(self) -> AsyncIterator[bytes]:
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
        self._response.close()


def _translated(error: Exception) -> Unreachable:
    """Return the error for a missing answer, which states whether the request may have arrived."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return TimedOut("No connection in time", was_sent=False)
    if isinstance(error, TimeoutError):
        return TimedOut("No answer in time", was_sent=True)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.NonHttpUrlClientError | TargetRefused | ValueError):
        return Unreachable(_not_sent(error), was_sent=False)
    if isinstance(error, aiohttp.ClientResponseError):
        return Unreachable("The answer is not HTTP, or its headers are too large", was_sent=True)
    return Unreachable("The connection broke off before there was an answer", was_sent=True)


def _not_sent(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"The name {error.host} has no address"
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLCertVerificationError() as cause):
            return f"The certificate of {error.host} is not accepted: {cause.verify_message}"
        case aiohttp.ClientConnectorSSLError():
            return f"{error.host}:{error.port} does not speak TLS as it should: {error.os_error}"
        case aiohttp.ClientConnectorError():
            return f"There is no connection to {error.host}:{error.port}: {error.os_error}"
        case TargetRefused():
            return str(error)
        case _:
            return f"The request cannot be sent: {error}"


def _broken(error: Exception) -> Unreachable | InvalidAgentResponse:
    if isinstance(error, TimeoutError):
        return TimedOut("The answer stopped coming", was_sent=True)
    if isinstance(error.__cause__, ContentEncodingError):
        return not_compressed()
    return StreamBroken("The connection broke off in the middle of the answer")
