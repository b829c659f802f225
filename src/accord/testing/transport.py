"""The client's HTTP without a network: requests go straight into an ASGI application, answers come as they are made.

    async with Client.connect("https://agents.test", transport=AsgiTransport(app)) as client: ...

It is a transport like any other, so discovery, negotiation, credentials, streams and retries are the client's own. It
starts no application; `inprocess` stands above, `asgi` below.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from accord.bindings.http import App
from accord.client.transports import TIMEOUT_SECONDS, HttpRequest, StreamBroken, TimedOut
from accord.testing.asgi import Response, stream


class AsgiTransport:
    """Sends requests to one application, whatever host they name."""

    def __init__(self, app: App) -> None:
        """Send to `app`, which somebody else starts and stops."""
        self._app = app
        self._open: set[Answer] = set()

    async def open(self, request: HttpRequest) -> "Answer":
        """Send a request and return the answer's head; what the application raises is raised here."""
        parts = urlsplit(request.url)
        stack = AsyncExitStack()
        entering = stream(
            self._app,
            request.body or b"",
            method=request.method,
            path=parts.path or "/",
            query=parts.query,
            headers={"host": parts.netloc, **{name.lower(): value for name, value in request.headers}},
            bound=request.seconds or TIMEOUT_SECONDS,
            scheme=parts.scheme,
        )
        try:
            response = await stack.enter_async_context(entering)
        except TimeoutError:
            raise TimedOut("No answer in time", was_sent=True) from None
        answer = Answer(response, stack, self._open)
        self._open.add(answer)
        return answer

    async def close(self) -> None:
        """Close all connections."""
        for answer in list(self._open):
            await answer.close()


class Answer:
    """An answer whose body has not been read."""

    def __init__(self, response: Response, stack: AsyncExitStack, among: "set[Answer]") -> None:
        """Read `response`; leaving `stack` closes its connection."""
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._stack = stack
        self._among = among

    async def read(self) -> bytes:
        """Read the whole body and let the connection go."""
        try:
            return await self._response.read()
        except TimeoutError:
            raise TimedOut("The answer stopped coming", was_sent=True) from None
        finally:
            await self.close()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Read the body as it comes."""
        try:
            async for piece in self._response.pieces():
                yield piece
        except TimeoutError:
            raise StreamBroken("The answer stopped coming") from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Let the connection go."""
        self._among.discard(self)
        await self._stack.aclose()
