"""Connection to a remote agent, opened by its card.

It is opened again when the card is stale or leads nowhere. It knows nothing of tasks. Everything that prevents a
connection is one of a few exceptions with a reason for a person.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.agents.remote import RemoteTerms
from accord.client.auth.choice import NoCredentials
from accord.client.credentials import KeyManagementError
from accord.client.discovery import BadCard, CardNotFound, NoSuchAgent
from accord.client.interfaces import NoWay
from accord.client.transports import Unreachable
from accord.engine.clock import SYSTEM
from accord.errors import AccordError, MethodNotFound
from accord.model import (
    AgentCard,
    CancelRequest,
    Event,
    GetRequest,
    Message,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
)
from accord.remote.tasks import RemoteContact, RemoteTasks
from accord.storage.store import StoreRefused, StoreUnavailable


class NotReachable(Exception):
    """There is no way to the agent as things are set here: no credentials, no such name, nothing that both speak."""


NO_ANSWER = (Unreachable, AccordError, CardNotFound, BadCard, NotReachable)
"""Everything that may come instead of an answer."""


class RemotePeer(Protocol):
    """What is asked of an agent elsewhere: a part of A2A, and its card."""

    @property
    def card(self) -> AgentCard:
        """Its card."""

    @property
    def is_idempotent(self) -> bool:
        """Whether it is known to take the same message twice for the same."""

    async def send(self, request: SendRequest) -> Task | Message:
        """Send a message."""

    def stream(self, request: SendRequest) -> AsyncIterator[Event]:
        """Send a message and follow what comes of it; the first event is the answer."""

    async def get(self, request: GetRequest) -> Task:
        """Read a task."""

    async def list(self, request: TaskFilter) -> TaskPage:
        """List tasks."""

    async def cancel(self, request: CancelRequest) -> Task:
        """Cancel a task."""

    def subscribe(self, request: SubscribeRequest, *, after: int | None = None) -> AsyncIterator[Event]:
        """Follow a task."""


class RemoteResources(Struct, kw_only=True):
    """What all runs of one agent share.

    `fault` is told what went wrong, which may be that the card is out of date, and `answered` what went well.
    """

    name: str
    terms: RemoteTerms
    remotes: RemoteTasks
    peer: Callable[[], Awaitable[RemotePeer]]
    fault: Callable[[Exception], None]
    answered: Callable[[], None]
    streams: asyncio.Semaphore
    may_push: bool = True
    sending: set[asyncio.Task[Any]] = msgspec.field(default_factory=set)


CARD_SECONDS = 24 * 60 * 60.0
"""How long a card is good if nothing speaks against it."""

LOOK_SECONDS = 10.0
"""How long somebody waits who wants to know whether an agent is there."""

DOUBT_SECONDS = 60.0
"""How old a card is at least that is read again because something went wrong: an agent that restarts is often back
sooner, and one that stays away need not be asked for its card all the time."""

NEEDS_OPERATOR = (NoWay, NoCredentials, KeyManagementError, NoSuchAgent, StoreRefused)
"""What only a person can mend."""

log = logging.getLogger("accord.remote")

Connect = Callable[[], AbstractAsyncContextManager[RemotePeer]]
"""Finds an agent by its card and opens the way to it."""


class _OldConnection(Struct):
    """A way that is used no more, but may still have answers on it."""

    at: float
    opened: AsyncExitStack


class RemoteConnection:
    """The way to one agent."""

    def __init__(
        self,
        name: str,
        connect: Connect,
        *,
        found: Callable[[RemotePeer], None],
        linger_seconds: float,
        now: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = SYSTEM.now_ms,
    ) -> None:
        """Open it with `connect` when it is needed; `found` is told each time, and old ways linger for answers."""
        self._name = name
        self._connect = connect
        self._found = found
        self._linger = linger_seconds
        self._now = now
        self._now_ms = now_ms
        self.contact: RemoteContact | None = None
        """How the agent was when it was last talked to."""
        self._lock = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._left: list[_OldConnection] = []
        self._peer: RemotePeer | None = None
        self._read_at = 0.0
        self._is_doubtful = False

    @property
    def is_open(self) -> bool:
        """Whether the agent was found."""
        return self._peer is not None

    async def peer(self) -> RemotePeer:
        """Return the agent, or raise why there is no way to it."""
        async with self._lock:
            if self._peer is not None and not self._is_due():
                return self._peer
            try:
                return await self._open()
            except NO_ANSWER as error:
                self._missed(str(error))
                if self._peer is None:
                    raise
                log.warning("remote card not read again", extra={"agent": self._name, "reason": str(error)})
                self._read_at, self._is_doubtful = self._now(), False
                return self._peer

    def fault(self, error: Exception) -> None:
        """Hear what went wrong: an agent that is not there, or does not know what it offered, may have moved."""
        is_gone = isinstance(error, Unreachable) and not error.was_sent
        self._is_doubtful = self._is_doubtful or is_gone or isinstance(error, MethodNotFound)
        if is_gone:
            self._missed(str(error))

    def answered(self) -> None:
        """Hear that the agent has answered something."""
        known = self.contact or RemoteContact(is_up=True, at=0)
        self.contact = replace(known, is_up=True, at=self._now_ms(), detail="")

    async def look(self) -> RemoteContact:
        """Find the agent anew, and return how it is."""
        try:
            async with asyncio.timeout(LOOK_SECONDS), self._lock:
                await self._open()
        except TimeoutError:
            self._missed(f"No answer within {LOOK_SECONDS:g} seconds")
        except NO_ANSWER as error:
            self._missed(str(error))
        assert self.contact is not None  # one way or the other
        return self.contact

    def _missed(self, why: str) -> None:
        known = self.contact or RemoteContact(is_up=False, at=0)
        self.contact = replace(known, is_up=False, at=self._now_ms(), detail=why)

    async def close(self) -> None:
        """Let go of all connections."""
        self._peer = None
        for left in self._left:
            await left.opened.aclose()
        self._left.clear()
        await self._opened.aclose()

    def _is_due(self) -> bool:
        return self._now() - self._read_at >= (DOUBT_SECONDS if self._is_doubtful else CARD_SECONDS)

    async def _open(self) -> RemotePeer:
        opened = AsyncExitStack()
        try:
            peer = await opened.enter_async_context(self._connect())
        except NEEDS_OPERATOR as error:
            raise NotReachable(str(error)) from error
        except StoreUnavailable as error:  # its name or its credentials are in there
            raise Unreachable(f"The store is not available: {error}", was_sent=False) from error
        await self._leave()
        self._peer, self._opened = peer, opened
        self._read_at, self._is_doubtful = self._now(), False
        discovered = getattr(peer, "discovered", None)
        findings = () if discovered is None else tuple(map(str, discovered.findings))
        self.contact = RemoteContact(is_up=True, at=self._now_ms(), findings=findings)
        self._found(peer)
        return peer

    async def _leave(self) -> None:
        """Use the old way no more; what is on its way there comes to its end."""
        now = self._now()
        gone = [left for left in self._left if now - left.at >= self._linger]
        self._left = [left for left in self._left if now - left.at < self._linger]
        for left in gone:
            await left.opened.aclose()
        if self._peer is not None:
            self._left.append(_OldConnection(now, self._opened))
