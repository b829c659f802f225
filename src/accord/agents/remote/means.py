"""What the runs of one agent elsewhere share: the agent as they ask it, their links, and a bounded number of streams.

Nothing is decided here; what a run does with it is `talk`, and who makes it `agent`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from accord.agents.remote.terms import Terms
from accord.client.discovery import BadCard, CardNotFound
from accord.client.wire import Unreachable
from accord.errors import AccordError
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
from accord.remote.tasks import RemoteTasks


class NotReachable(Exception):
    """There is no way to the agent as things are set here: no credentials, no such name, nothing that both speak."""


NO_ANSWER = (Unreachable, AccordError, CardNotFound, BadCard, NotReachable)
"""Everything that may come instead of an answer."""


class Peer(Protocol):
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


class Means(Struct, kw_only=True):
    """What all runs of one agent share.

    `fault` is told what went wrong, which may be that the card is out of date, and `answered` what went well.
    """

    name: str
    terms: Terms
    remotes: RemoteTasks
    peer: Callable[[], Awaitable[Peer]]
    fault: Callable[[Exception], None]
    answered: Callable[[], None]
    streams: asyncio.Semaphore
    may_push: bool = True
    sending: set[asyncio.Task[Any]] = msgspec.field(default_factory=set)
