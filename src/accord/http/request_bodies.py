"""Request bodies, read within limits of size, time and memory; long ones only from authenticated callers.

The first 64 KiB of a body are read at once. Before more is read, the caller is authenticated from the headers. A body
whose sender cannot be authenticated without it (an HMAC signature, an open route) counts against smaller limits.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import NamedTuple

from accord.a2a import Caller
from accord.auth.authentication import BodyNeeded, Presented
from accord.auth.rate_limits import Quotas
from accord.errors import AgentUnavailable, RateLimited, RequestTimeout, RequestTooLarge
from accord.http import timers
from accord.http.asgi import QUOTAS, Receive, Scope, address_of, presented
from accord.http.response_bodies import ClientGone

RECEIVED_KEY = "accord.wire"
"""Message key of a compressed body: the bytes that were received for it. Only those extend the timeout."""

SMALL_BODY = 64 * 1024
"""Bytes of each body that are read before authentication and are not counted. uvicorn buffers as much by itself."""

MAX_INFLATION = 32
"""Inflated bytes per received byte of an unauthenticated sender's body. JSON usually shrinks to a tenth; 16 KiB can
become 16 MiB.
"""

Identify = Callable[[Presented], Awaitable[Caller | None]]
"""Authenticates a request. None is an unauthenticated sender on an open route."""


async def identify_nobody(_presented: Presented) -> None:
    """Authenticate no request from its headers: the body of this one authenticates its sender."""


class BodySender(NamedTuple):
    """The account that a body counts for: that of an authenticated caller, else the client address."""

    account: Hashable
    is_stranger: bool


NAMELESS = BodySender(None, is_stranger=False)
"""The caller of a server without authentication. It has no share of its own, as it is the only one."""


class ReceivedBodies:
    """Bytes of bodies that are being received: in total, of all unauthenticated senders, and of each sender."""

    def __init__(self) -> None:
        """Start with none."""
        self.held = 0
        self.strangers = 0
        self._shares: Counter[BodySender] = Counter()

    def take(self, sender: BodySender, more: int, limit: int) -> None:
        """Count `more` bytes, or refuse them.

        Unauthenticated senders hold at most half of `limit` together and a quarter of it per address. One caller holds
        at most half.
        """
        share = limit // 4 if sender.is_stranger else limit // 2
        if sender != NAMELESS and self._shares[sender] + more > share:
            message = "Too many large requests of this caller are being received"
            raise RateLimited(message, retry_after=1, metadata={"limit": "bodies"})
        if self.held + more > limit or (sender.is_stranger and self.strangers + more > limit // 2):
            raise AgentUnavailable("Too many large requests are being received; try again", retry_after=1)
        self._add(sender, more)

    def give_back(self, sender: BodySender, size: int) -> None:
        """Stop counting `size` bytes."""
        self._add(sender, -size)
        if not self._shares[sender]:
            del self._shares[sender]

    def _add(self, sender: BodySender, more: int) -> None:
        self.held += more
        self._shares[sender] += more
        if sender.is_stranger:
            self.strangers += more


RECEIVED_BODIES = ReceivedBodies()
"""The counts of this process."""


class BodyTimeout:
    """Cancels the current task when a body is late. Received bytes extend the time; a pause has its own limit."""

    def __init__(self, quotas: Quotas) -> None:
        """Start."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)  # with the loop given, which saves a system call
        self._alarm = timers.timers_of(self._loop)
        self._quotas = quotas
        self._began = self._loop.time()
        self._is_late = False
        self._number = self._alarm.set(quotas.body_seconds, self._give_up)

    def extend(self, received: int) -> None:
        """Restart the timer after a piece; `received` are the bytes of all pieces."""
        quotas = self._quotas
        left = self._began + quotas.body_seconds + received / quotas.body_rate - self._loop.time()
        self.stop()
        self._number = self._alarm.set(min(left, quotas.body_seconds), self._give_up)

    async def suspend(self, waits: Awaitable[Caller | None]) -> Caller | None:
        """Await an operation that must not count as the client's time, such as a password hash."""
        self.stop()
        paused = self._loop.time()
        try:
            return await waits
        finally:
            self._began += self._loop.time() - paused

    def stop(self) -> None:
        """Stop the timer."""
        self._alarm.clear(self._number)

    def has_cancelled(self) -> bool:
        """Whether the task was canceled by this timeout and by nothing else."""
        return self._is_late and self._task is not None and not self._task.uncancel()

    def _give_up(self) -> None:
        self._is_late = True
        if self._task is not None:
            self._task.cancel()


async def read_request(
    scope: Scope, receive: Receive, identify: Identify, quotas: Quotas = QUOTAS
) -> tuple[Caller | None, bytes]:
    """Read a body, and return it with the caller if already authenticated.

    The caller is None, and still to be authenticated, if the body is short or authenticates its sender.
    """
    timeout = BodyTimeout(quotas)
    sender: BodySender | None = None
    caller: Caller | None = None
    chunks: list[bytes] = []
    size = held = received = 0
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            received += message.get(RECEIVED_KEY, len(chunk))
            if size > quotas.body or received > quotas.body:
                raise RequestTooLarge(f"The body is larger than {quotas.body} bytes")
            if size > SMALL_BODY:
                if sender is None:
                    caller = await timeout.suspend(_identify_from_headers(scope, identify))
                    sender = _sender(caller, scope)
                if sender.is_stranger and size - SMALL_BODY > MAX_INFLATION * received:
                    raise RequestTooLarge(f"The body inflates to more than {MAX_INFLATION} times its compressed size")
            if not message.get("more_body"):
                return caller, b"".join([*chunks, chunk]) if chunks else chunk
            if sender is not None:
                RECEIVED_BODIES.take(sender, size - SMALL_BODY - held, quotas.bodies)
                held = size - SMALL_BODY
            chunks.append(chunk)
            timeout.extend(received)
    except asyncio.CancelledError:
        if timeout.has_cancelled():
            raise RequestTimeout(f"The body did not arrive in time; {size} bytes came") from None
        raise
    finally:
        timeout.stop()
        if sender is not None:
            RECEIVED_BODIES.give_back(sender, held)


async def _identify_from_headers(scope: Scope, identify: Identify) -> Caller | None:
    try:
        return await identify(presented(scope, None))
    except BodyNeeded:
        return None


def _sender(caller: Caller | None, scope: Scope) -> BodySender:
    if caller is None:
        return BodySender(address_of(scope), is_stranger=True)
    return BodySender(caller.account, is_stranger=False) if caller.owner else NAMELESS
