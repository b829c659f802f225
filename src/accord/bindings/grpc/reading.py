"""Reads the one message of a call, and finds out who makes it: in that order only where it cannot be the other way.

gRPC's own handlers of calls with one message begin when it is there, and wait for it for ever. A call without its
message costs as much room as one that works, so strangers get little time and little room for it; whoever says in the
metadata who they are is let in first. What a message means is `calls`.
"""

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from accord.a2a import Caller
from accord.auth.authentication import BodyNeeded
from accord.auth.rate_limits import Quotas
from accord.bindings.http import Admit, Scope, address_of, presented
from accord.errors import InvalidRequest, RateLimited, RequestTimeout

_STRANGERS = object()


class Reader:
    """Reads the messages of all calls of a server, and counts those that have not come."""

    def __init__(self, quotas: Quotas, max_calls: int) -> None:
        """Of `max_calls`, a quarter may wait for messages of one caller or address, half for those of all strangers.

        Whoever is known has the time that the largest body may take over HTTP: how much of it has come, gRPC does not
        tell. Strangers have that of a body that brings nothing.
        """
        self._seconds = quotas.body_seconds
        self._known_seconds = quotas.body_seconds + quotas.body / max(quotas.body_rate, 1)
        self._of_one, self._of_strangers = -(-max_calls // 4), -(-max_calls // 2)
        self._unread: Counter[Hashable] = Counter()

    async def read(self, scope: Scope, context: Any, admit: Admit) -> tuple[Caller, bytes]:
        """Return who makes a call, and its message."""
        caller = await _early(scope, admit)
        if caller is not None and caller.owner:
            with self._room(caller.account, self._of_one):
                return caller, await _message(context, self._known_seconds)
        with self._room(_STRANGERS, self._of_strangers), self._room(address_of(scope), self._of_one):
            body = await _message(context, self._seconds)
        return caller or await admit(presented(scope, body)), body

    @contextmanager
    def _room(self, who: Hashable, most: int) -> Iterator[None]:
        if self._unread[who] >= most:
            raise RateLimited("Too many calls wait for their messages", retry_after=1, metadata={"limit": "unread"})
        self._unread[who] += 1
        try:
            yield
        finally:
            self._unread[who] -= 1
            if not self._unread[who]:
                del self._unread[who]


async def _early(scope: Scope, admit: Admit) -> Caller | None:
    """Return who makes a call, if that can be told without its message."""
    try:
        return await admit(presented(scope, None))
    except BodyNeeded:
        return None


async def _message(context: Any, seconds: float) -> bytes:
    """Return the first message. There should be no other: whatever comes after it is not read, as gRPC has it."""
    try:
        async with asyncio.timeout(seconds):
            message = await context.read()
    except TimeoutError:
        raise RequestTimeout("The message did not arrive in time") from None
    if message is grpc.aio.EOF:
        raise InvalidRequest("The call has no message")
    found: bytes = message
    return found
