"""Connection to a remote agent, opened by its card.

It is opened again when the card is stale or its URLs do not work. It is independent of tasks. Every obstacle to a
connection is one of a few exceptions with a reason for a person.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.agents.remote import RemoteTerms
from accord.api import SYSTEM, StoreRefused, StoreUnavailable
from accord.api.remote import RemoteContact, RemoteTasks
from accord.client.auth.choice import NoCredentials
from accord.client.credentials import KeyManagementError
from accord.client.discovery import BadCard, CardNotFound, NoSuchAgent
from accord.client.interfaces import NoUsableEndpoint
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
from accord.outbound import Unreachable


class NotReachable(Exception):
    """The settings do not allow a connection: missing credentials, an unknown name, or no common dialect."""


NO_ANSWER = (Unreachable, AccordError, CardNotFound, BadCard, NotReachable)
"""All errors in place of an answer."""


class RemotePeer(Protocol):
    """A remote agent: part of the A2A operations, and its card."""

    @property
    def card(self) -> AgentCard:
        """The agent's card."""

    @property
    def is_idempotent(self) -> bool:
        """Whether the agent is known to detect a message that is sent twice."""

    async def send(self, request: SendRequest) -> Task | Message:
        """Send a message."""

    def stream(self, request: SendRequest) -> AsyncIterator[Event]:
        """Send a message and yield its events; the first event is the answer."""

    async def get(self, request: GetRequest) -> Task:
        """Read a task."""

    async def list(self, request: TaskFilter) -> TaskPage:
        """List tasks."""

    async def cancel(self, request: CancelRequest) -> Task:
        """Cancel a task."""

    def subscribe(self, request: SubscribeRequest, *, after: int | None = None) -> AsyncIterator[Event]:
        """Subscribe to a task."""


CARD_SECONDS = 24 * 60 * 60.0
"""Maximum age of a card without errors, in seconds."""

LOOK_SECONDS = 10.0
"""Maximum time of a check whether an agent is available, in seconds."""

DOUBT_SECONDS = 60.0
"""Minimum age of a card before an error causes another read, in seconds.

An agent that restarts is often back sooner. The card of an agent that stays away need not be read all the time.
"""

NEEDS_OPERATOR = (NoUsableEndpoint, NoCredentials, KeyManagementError, NoSuchAgent, StoreRefused)
"""Errors that only the operator can fix."""

log = logging.getLogger("accord.remote")

Connect = Callable[[], AbstractAsyncContextManager[RemotePeer]]
"""Finds an agent by its card and opens a connection."""


class _OldConnection(Struct):
    """A replaced connection that may still have replies under way."""

    at: float
    opened: AsyncExitStack


class RemoteConnection:
    """The connection to one agent."""

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
        """Connect with `connect` on demand; `found` is called after each connection.

        Replaced connections linger for replies.
        """
        self._name = name
        self._connect = connect
        self._found = found
        self._linger = linger_seconds
        self._now = now
        self._now_ms = now_ms
        self.contact: RemoteContact | None = None
        """The agent's status at the last contact."""
        self._lock = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._replaced: list[_OldConnection] = []
        self._peer: RemotePeer | None = None
        self._read_at = 0.0
        self._is_doubtful = False

    @property
    def is_open(self) -> bool:
        """Whether a connection is open."""
        return self._peer is not None

    async def peer(self) -> RemotePeer:
        """Return the agent; raises an error of `NO_ANSWER` without a connection."""
        async with self._lock:
            if self._peer is not None and not self._is_stale():
                return self._peer
            try:
                return await self._open()
            except NO_ANSWER as error:
                self._record_miss(str(error))
                if self._peer is None:
                    raise
                log.warning("remote.card_not_read", extra={"agent": self._name, "reason": str(error)})
                self._read_at, self._is_doubtful = self._now(), False
                return self._peer

    def fault(self, error: Exception) -> None:
        """Record an error. An agent that is unreachable or lacks an offered method may have moved."""
        is_gone = isinstance(error, Unreachable) and not error.was_sent
        self._is_doubtful = self._is_doubtful or is_gone or isinstance(error, MethodNotFound)
        if is_gone:
            self._record_miss(str(error))

    def answered(self) -> None:
        """Record that the agent has answered."""
        last = self.contact or RemoteContact(is_up=True, at=0)
        self.contact = replace(last, is_up=True, at=self._now_ms(), detail="")

    async def check(self) -> RemoteContact:
        """Connect to the agent again, and return its status."""
        try:
            async with asyncio.timeout(LOOK_SECONDS), self._lock:
                await self._open()
        except TimeoutError:
            self._record_miss(f"No answer within {LOOK_SECONDS:g} seconds")
        except NO_ANSWER as error:
            self._record_miss(str(error))
        assert self.contact is not None  # both outcomes set it
        return self.contact

    def _record_miss(self, reason: str) -> None:
        last = self.contact or RemoteContact(is_up=False, at=0)
        self.contact = replace(last, is_up=False, at=self._now_ms(), detail=reason)

    async def close(self) -> None:
        """Close all connections."""
        self._peer = None
        for old in self._replaced:
            await old.opened.aclose()
        self._replaced.clear()
        await self._opened.aclose()

    def _is_stale(self) -> bool:
        return self._now() - self._read_at >= (DOUBT_SECONDS if self._is_doubtful else CARD_SECONDS)

    async def _open(self) -> RemotePeer:
        opened = AsyncExitStack()
        try:
            peer = await opened.enter_async_context(self._connect())
        except NEEDS_OPERATOR as error:
            raise NotReachable(str(error)) from error
        except StoreUnavailable as error:  # the store contains its name or its credentials
            raise Unreachable(f"The store is not available: {error}", was_sent=False) from error
        await self._replace()
        self._peer, self._opened = peer, opened
        self._read_at, self._is_doubtful = self._now(), False
        discovered = getattr(peer, "discovered", None)
        findings = () if discovered is None else tuple(map(str, discovered.findings))
        self.contact = RemoteContact(is_up=True, at=self._now_ms(), findings=findings)
        self._found(peer)
        return peer

    async def _replace(self) -> None:
        """Replace the connection; replies that are under way may still arrive."""
        now = self._now()
        expired = [old for old in self._replaced if now - old.at >= self._linger]
        self._replaced = [old for old in self._replaced if now - old.at < self._linger]
        for old in expired:
            await old.opened.aclose()
        if self._peer is not None:
            self._replaced.append(_OldConnection(now, self._opened))


class RemoteResources(Struct, kw_only=True):
    """Resources that all executions of one agent share."""

    name: str
    terms: RemoteTerms
    remotes: RemoteTasks
    connection: RemoteConnection
    streams: asyncio.Semaphore
    may_push: bool = True
    sending: set[asyncio.Task[Any]] = msgspec.field(default_factory=set)
