"""The transport for HTTP/2 and for httpx2 clients that the caller created.

The proxies, mounts and hooks of such a client apply.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping

from accord.errors import InvalidAgentResponse
from accord.outbound.messages import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    MAX_BYTES,
    SILENT_SECONDS,
    UNCOMPRESSED,
    USER_AGENT,
    HttpRequest,
    StreamBroken,
    TimedOut,
    Unreachable,
    not_compressed,
    too_large,
)
from accord.outbound.policy import Policy

try:
    import httpx2
except ImportError as error:
    raise ImportError("The httpx2 transport needs httpx2 with HTTP/2: pip install 'accord[http2]'") from error


class Httpx2Transport:
    """Sends requests with httpx2."""

    def __init__(
        self,
        *,
        client: httpx2.AsyncClient | None = None,
        tls: ssl.SSLContext | None = None,
        policy: Policy | None = None,
        max_bytes: int = MAX_BYTES,
        connect_seconds: float = CONNECT_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        """Send with `client`, which the caller closes, or with a new client.

        A new client uses HTTP/2 where the server supports it. `tls` replaces the system's certificates. An answer
        may have `max_bytes` after decompression. A `policy` is refused: a name could resolve to another address by
        the time httpx2 connects to it.
        """
        if policy is not None:
            raise ValueError("Only the aiohttp transport can keep requests out of private networks")
        self._owns = client is None
        self._client = client or httpx2.AsyncClient(
            http2=True,
            verify=tls or True,
            trust_env=False,
            headers={"User-Agent": USER_AGENT},
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=IDLE_SECONDS),
        )
        self._max_bytes = max_bytes
        self._connect_seconds = connect_seconds
        self._silent_seconds = silent_seconds

    async def open(self, request: HttpRequest) -> "Httpx2Reply":
        """Send a request and return the answer's head, or raise `Unreachable`."""
        deadline = None if request.seconds is None else asyncio.get_running_loop().time() + request.seconds
        connect = self._connect_seconds if request.seconds is None else min(self._connect_seconds, request.seconds / 2)
        read = self._silent_seconds if request.streams else None
        try:
            built = self._client.build_request(
                request.method,
                request.url,
                headers=[*request.headers, UNCOMPRESSED] if request.streams else list(request.headers),
                content=request.body,
                timeout=httpx2.Timeout(None, connect=connect, pool=connect, read=read),
            )
            async with asyncio.timeout_at(deadline):
                response = await self._client.send(built, stream=True, follow_redirects=False)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise _translated(error) from error
        return Httpx2Reply(response, self._max_bytes, deadline)

    async def close(self) -> None:
        """Close all connections, unless the caller owns the client."""
        if self._owns:
            await self._client.aclose()


class Httpx2Reply:
    """An answer whose body has not been read."""

    def __init__(self, response: httpx2.Response, max_bytes: int, deadline: float | None) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._max_bytes = max_bytes
        self._deadline = deadline

    async def read(self) -> bytes:
        """Read the whole body and release the connection."""
        data = bytearray()
        try:
            async with asyncio.timeout_at(self._deadline):
                async for piece in self._response.aiter_bytes():
                    data += piece
                    if len(data) > self._max_bytes:
                        raise too_large(self._max_bytes)
        except (httpx2.HTTPError, OSError) as error:
            raise _broken(error) from error
        finally:
            await self._response.aclose()
        return bytes(data)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Read the body as it arrives."""
        try:
            async for piece in self._response.aiter_bytes():
                yield piece
        except (httpx2.HTTPError, OSError) as error:
            raise _broken(error) from error
        finally:
            await self._response.aclose()

    async def close(self) -> None:
        """Release the connection."""
        await self._response.aclose()


def _translated(error: Exception) -> Unreachable:
    """Return the error for a missing answer, which states whether the request may have arrived."""
    if isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return TimedOut("No connection in time", was_sent=False)
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return TimedOut("No answer in time", was_sent=True)
    if isinstance(error, httpx2.ConnectError):
        return Unreachable(f"There is no connection to {error.request.url.host}: {error}", was_sent=False)
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL | httpx2.LocalProtocolError | ValueError):
        return Unreachable(f"The request cannot be sent: {error}", was_sent=False)
    return Unreachable("The connection broke off before there was an answer", was_sent=True)


def _broken(error: Exception) -> Unreachable | InvalidAgentResponse:
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return TimedOut("The answer stopped coming", was_sent=True)
    if isinstance(error, httpx2.DecodingError):
        return not_compressed()
    return StreamBroken("The connection broke off in the middle of the answer")
