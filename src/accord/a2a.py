"""The A2A interface that server, client and in-process transport implement.

An operation is a method. Code that takes an `A2A` works on local and remote agents alike.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from accord.model import (
    AgentCard,
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    Message,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    PushPage,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
)
from accord.protocol.operations import Operation


class Admission(Struct, frozen=True, kw_only=True):
    """What a caller came in with, where that may end while it is here: at a time, or by the hand of somebody.

    `id` is what those of its `kind` know it by, and `until` the time in milliseconds until when it is good. `key_id` is
    the API key that it is, or rests on.
    """

    kind: str
    id: str = ""
    until: int | None = None
    key_id: str | None = None


class Caller(Struct, frozen=True, kw_only=True):
    """Who asks.

    One that `roams` may name another tenant in its request. `roles` say what it may do, None that it may do everything.
    `origin` is the edge's own note of how it came in, which the service keeps with new tasks; `extensions` are those
    that it declared, and `idempotency_key` is its own name for what it sends. One that `wants_task` is shown the task
    behind an answer that is a message alone, and one that `sees_all` reads and changes what others of its tenant have
    as if it were its own. `ticket` is what may end while it is here. `scheme` and `peer`, the way it authenticated and
    the address it came from, are for the audit log, `binding` is for the metrics, and `trace` the context of a trace
    that its request brought, where requests are traced.
    """

    tenant: str = ""
    owner: str = ""
    origin: str | None = None
    roams: bool = False
    roles: frozenset[str] | None = None
    extensions: frozenset[str] = frozenset()
    idempotency_key: str | None = None
    wants_task: bool = False
    sees_all: bool = False
    ticket: Admission | None = None
    scheme: str | None = None
    peer: str | None = None
    binding: str | None = None
    trace: str | None = None
    files_at: str | None = None
    """The origin at which the caller can fetch files too large for an answer, "" for the server's own; None sends all
    bytes in the answer."""

    @property
    def account(self) -> tuple[str | None, str]:
        """As whom it is counted: one that roams is the same in every tenant that it names, which is None."""
        return None if self.roams else self.tenant, self.owner

    @property
    def is_of_server(self) -> bool:
        """Whether it is of the server itself, and not of one tenant of it: what all have in common is not that one's.

        Whether it may look at that is a matter of its roles.
        """
        return self.roams or not self.tenant

    @property
    def reach(self) -> str | None:
        """Whose tasks it gets to see: its own, or with None everybody's."""
        return None if self.sees_all else self.owner


class A2A(Protocol):
    """The operations of A2A."""

    async def send(self, request: SendRequest, caller: Caller) -> Task | Message:
        """Send a message and answer with the task, once it ended or waits, or at once if asked so."""

    def stream(self, request: SendRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Send a message and follow what comes of it; the first event is the task.

        Whoever sends the same message again may say `after` which event: what it saw is not repeated.
        """

    async def get(self, request: GetRequest, caller: Caller) -> Task:
        """Read one task."""

    async def list(self, request: TaskFilter, caller: Caller) -> TaskPage:
        """List tasks, newest status first."""

    async def cancel(self, request: CancelRequest, caller: Caller) -> Task:
        """Cancel one task."""

    def subscribe(self, request: SubscribeRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Follow a task that has not ended; the first event is the task as it is now.

        With `after`, the number of the last event that the caller saw, what came later follows, of an ended task too.
        """

    async def push_set(self, request: PushConfig, caller: Caller) -> PushConfig:
        """Create or replace a webhook."""

    async def push_get(self, request: PushGetRequest, caller: Caller) -> PushConfig:
        """Read a webhook."""

    async def push_list(self, request: PushListRequest, caller: Caller) -> PushPage:
        """List a task's webhooks."""

    async def push_delete(self, request: PushDeleteRequest, caller: Caller) -> int:
        """Remove webhooks and say how many there were."""

    async def extended_card(self, request: CardRequest, caller: Caller) -> AgentCard:
        """Read the card for authenticated callers."""


@runtime_checkable
class HeldTasks(Protocol):
    """What has tasks that were held when they were made, for who is to decide when they begin."""

    async def execute(self, task_id: str, caller: Caller) -> Task:
        """Let a task of the caller's begin that was held, and return it; one that has begun is left alone."""


class HostedAgent(A2A, HeldTasks, Protocol):
    """An agent that is served here: it can be asked what A2A knows, and whatever is held here begun."""


# --- the operations by name: each is one row away from the method that does it --------------------------------------

Answering = Callable[[Any, Caller], Awaitable[Any]]
Streaming = Callable[[Any, Caller, int | None], AsyncIterator[Event]]


def unary_operations(agent: A2A) -> dict[Operation, Answering]:
    """Return the operations that answer once."""
    return {
        Operation.SEND: agent.send,
        Operation.GET: agent.get,
        Operation.LIST: agent.list,
        Operation.CANCEL: agent.cancel,
        Operation.PUSH_SET: agent.push_set,
        Operation.PUSH_GET: agent.push_get,
        Operation.PUSH_LIST: agent.push_list,
        Operation.PUSH_DELETE: agent.push_delete,
        Operation.EXTENDED_CARD: agent.extended_card,
    }


def streaming_operations(agent: A2A) -> dict[Operation, Streaming]:
    """Return the operations that answer with a stream; the last argument is the event after which it goes on."""
    return {Operation.STREAM: agent.stream, Operation.SUBSCRIBE: agent.subscribe}
