"""Running flows: what a flow yields is sent over a transport, once for all who need the same at the same time.

It adds nothing to a request itself and repeats none that carries A2A: whoever sends asks `retry` after a 401. The flows
are the other files of this folder; the links stand above.
"""

import asyncio
from collections.abc import Callable

from accord.client.auth.flow import Auth, Flow
from accord.client.wire import Outgoing, Reply, TimedOut, Transport, Unreachable


class Driver:
    """Adds the credentials of one way to authenticate to requests."""

    def __init__(self, auth: Auth, transport: Transport) -> None:
        """Run the flows of `auth`, sending what they ask for over `transport`."""
        self.auth = auth
        self._transport = transport
        self._asking: asyncio.Future[Exception | None] | None = None

    async def prepare(self, request: Outgoing) -> Outgoing:
        """Return the request with credentials.

        Raises `AuthenticationFailed` if none can be had, and `Unreachable`, with nothing sent, if whoever gives them
        does not answer.
        """
        return await self._run(lambda: self.auth.prepare(request))

    async def retry(self, request: Outgoing, refused: Reply) -> Outgoing | None:
        """Return a request to send in place of one that was answered with 401, or None if that is final.

        It is asked for once: a second 401 is final.
        """
        if self.auth.retry(request, refused) is None:
            return None
        return await self._run(lambda: _stated(self.auth.retry(request, refused)))

    async def _run(self, begin: Callable[[], Flow]) -> Outgoing:
        while True:
            flow = begin()
            try:
                asked = next(flow)
            except StopIteration as done:
                return _request(done)
            if self._asking is None:
                return await self._ask(flow, asked)
            flow.close()  # somebody is asking already: what they are told may be all that this needs
            failure = await asyncio.shield(self._asking)  # one who gives up must not end it for the others
            if failure is not None:
                raise failure

    async def _ask(self, flow: Flow, asked: Outgoing) -> Outgoing:
        """Run a flow that has to ask; whoever else would have to meanwhile waits for how it goes."""
        self._asking = asking = asyncio.get_running_loop().create_future()
        failure: Exception | None = None
        try:
            while True:
                asked = flow.send(await self._exchange(asked))
        except StopIteration as done:
            return _request(done)
        except Exception as error:
            failure = error
            raise
        finally:
            flow.close()
            self._asking = None
            asking.set_result(failure)

    async def _exchange(self, request: Outgoing) -> Reply:
        """Send what a flow asks for; if that fails, the request that needed it was not sent."""
        try:
            opened = await self._transport.open(request)
            try:
                body = await opened.read()
            finally:
                await opened.close()
        except Unreachable as error:
            kind = TimedOut if isinstance(error, TimedOut) else Unreachable
            raise kind(f"No credentials to be had: {error.reason}", was_sent=False) from error
        return Reply(status=opened.status, headers=opened.headers, body=body)


def _stated(flow: Flow | None) -> Flow:
    if flow is None:  # it said otherwise a moment ago
        raise RuntimeError("A way to authenticate must decide to ask again from the request alone")
    return flow


def _request(done: StopIteration) -> Outgoing:
    found: Outgoing = done.value
    return found
