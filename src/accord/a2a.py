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
    """The API key, token or session that authenticated a caller, if it can end while the caller is connected.

    `kind` is the type of admission and `id` identifies it within that type. `until` is its expiry in milliseconds since
    the epoch. `key_id` is the API key, also for a session that it opened.
    """

    kind: str
    id: str = ""
    until: int | None = None
    key_id: str | None = None


class Caller(Struct, frozen=True, kw_only=True):
    """The authenticated sender of a request, and how the request arrived."""

    tenant: str = ""
    """The tenant whose tasks the caller works on."""

    owner: str = ""
    """The name under which the caller owns tasks."""

    origin: str | None = None
    """The edge's note of how the caller arrived. It is stored with new tasks."""

    roams: bool = False
    """Whether a request may name another tenant."""

    roles: frozenset[str] | None = None
    """The roles of the caller. None allows everything."""

    extensions: frozenset[str] = frozenset()
    """The A2A extensions that the request declared."""

    idempotency_key: str | None = None
    """The caller's idempotency key for the message that it sends."""

    wants_task: bool = False
    """Whether the caller gets the task behind a reply that is a message alone."""

    sees_all: bool = False
    """Whether the caller reads and changes the tasks of every owner in its tenant."""

    ticket: Admission | None = None
    """The admission to check while the caller stays connected."""

    scheme: str | None = None
    """The scheme that authenticated the caller, for the audit log."""

    peer: str | None = None
    """The address that the request came from, for the audit log."""

    binding: str | None = None
    """The binding that the request used, for metrics."""

    trace: str | None = None
    """The trace context of the request, if requests are traced."""

    files_at: str | None = None
    """The origin where the caller fetches files too large for a reply, "" for the server's own.

    None sends all bytes in the reply.
    """

    @property
    def account(self) -> tuple[str | None, str]:
        """The tenant and owner for rate limits and quotas, without the tenant if the caller `roams`."""
        return None if self.roams else self.tenant, self.owner

    @property
    def is_of_server(self) -> bool:
        """Whether the caller belongs to the server rather than to one tenant.

        A caller of one tenant does not see what all tenants share. For a caller of the server, its roles decide.
        """
        return self.roams or not self.tenant

    @property
    def reach(self) -> str | None:
        """The owner whose tasks the caller sees. None means every owner."""
        return None if self.sees_all else self.owner


class A2A(Protocol):
    """The operations of A2A."""

    async def send(self, request: SendRequest, caller: Caller) -> Task | Message:
        """Send a message. Return the task once it ends or waits, or at once if the request asks for that."""

    def stream(self, request: SendRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Send a message and yield the events of its task. The first event is the task.

        A caller that repeats a message can pass the last event it got as `after`. Earlier events are not sent again.
        """

    async def get(self, request: GetRequest, caller: Caller) -> Task:
        """Return one task."""

    async def list(self, request: TaskFilter, caller: Caller) -> TaskPage:
        """List tasks, newest status first."""

    async def cancel(self, request: CancelRequest, caller: Caller) -> Task:
        """Cancel one task."""

    def subscribe(self, request: SubscribeRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Subscribe to a task that has not ended. The first event is the current task.

        With `after`, the number of the last event that the caller got, only later events are sent. This also works for
        an ended task.
        """

    async def push_set(self, request: PushConfig, caller: Caller) -> PushConfig:
        """Create or replace a webhook."""

    async def push_get(self, request: PushGetRequest, caller: Caller) -> PushConfig:
        """Return a webhook."""

    async def push_list(self, request: PushListRequest, caller: Caller) -> PushPage:
        """Return a page of a task's webhooks."""

    async def push_delete(self, request: PushDeleteRequest, caller: Caller) -> int:
        """Delete webhooks and return their number."""

    async def extended_card(self, request: CardRequest, caller: Caller) -> AgentCard:
        """Return the card for authenticated callers."""


@runtime_checkable
class HeldTasks(Protocol):
    """An agent with held tasks, which start when their caller executes them."""

    async def execute(self, task_id: str, caller: Caller) -> Task:
        """Start a held task of the caller and return it. A task that has started is returned unchanged."""


class HostedAgent(A2A, HeldTasks, Protocol):
    """An agent on this server: the A2A operations and held tasks."""


# --- operations by name, each one row away from its method ----------------------------------------------------------

Answering = Callable[[Any, Caller], Awaitable[Any]]
Streaming = Callable[[Any, Caller, int | None], AsyncIterator[Event]]


def unary_operations(agent: A2A) -> dict[Operation, Answering]:
    """Return the operations with a single reply."""
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
    """Return the streaming operations. Their last argument is the number of the last event that the caller got."""
    return {Operation.STREAM: agent.stream, Operation.SUBSCRIBE: agent.subscribe}
