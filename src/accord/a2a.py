"""The A2A interface that server, client and in-process transport implement, and its requests as calls.

An operation is a method of `A2A`, for code that works on local and remote agents alike. In a server each request is a
`Call` that passes middleware on its way to the service. All of them are a `Handler`.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from accord.errors import UnsupportedOperation
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


T = TypeVar("T")

Pending = Coroutine[Any, Any, T]

METHODS: Mapping[Operation, str] = {
    Operation.SEND: "send",
    Operation.STREAM: "stream",
    Operation.GET: "get",
    Operation.LIST: "list",
    Operation.CANCEL: "cancel",
    Operation.SUBSCRIBE: "subscribe",
    Operation.PUSH_SET: "push_set",
    Operation.PUSH_GET: "push_get",
    Operation.PUSH_LIST: "push_list",
    Operation.PUSH_DELETE: "push_delete",
    Operation.EXTENDED_CARD: "extended_card",
}
"""Operation -> the name of its method in `A2A`."""


# --- calls ------------------------------------------------------------------------------------------------------------


class Call(Struct):
    """An operation that a caller requests. Middleware may replace the request and the caller."""

    operation: Operation
    request: Any
    caller: Caller

    after: int | None = None
    """The number of the last event that the caller of a stream got."""

    starts_held_task: bool = False
    """Whether to start the held task that a request for a task names. A2A has no operation for it."""


class TaskEvents:
    """The events of an open stream. The code that opens a stream closes it."""

    __slots__ = ("_closers", "_first", "rest")

    def __init__(self, first: Event, rest: AsyncIterator[Event], on_close: Callable[[], None] | None = None) -> None:
        """Begin with `first`. `rest` is an async generator, and `on_close` is called after it is closed."""
        self._first: Event | None = first
        self._closers: list[Callable[[], Any]] = [] if on_close is None else [on_close]
        self.pass_through(rest)

    @property
    def head(self) -> Event:
        """The first event, which has not been read yet."""
        assert self._first is not None  # a stream is read once
        return self._first

    def first(self) -> Event:
        """Return the first event once, and release it: it may be a whole task, and the stream is long-lived."""
        first, self._first = self.head, None
        return first

    def replace_first(self, first: Event) -> None:
        """Begin with another event."""
        self._first = first

    def pass_through(self, rest: AsyncIterator[Event]) -> None:
        """Continue with `rest`, an async generator that reads the previous one."""
        self.rest = rest
        self._closers.append(rest.aclose)  # type: ignore[attr-defined]

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call a function when the stream is closed, before its inner parts are."""
        self._closers.append(callback)

    async def aclose(self) -> None:
        """Close the stream, its outermost part first."""
        try:
            while self._closers:
                closing = self._closers.pop()()
                if closing is not None:
                    await closing
        finally:
            if self._closers:
                await self.aclose()


class Handler:
    """Handles calls: a service, or middleware in front of it."""

    def handle(self, call: Call) -> Pending[Any]:
        """Execute an operation with a single reply, and return the reply."""
        raise NotImplementedError

    def follow(self, call: Call) -> Pending[TaskEvents]:
        """Execute a streaming operation until its first event, and return the open stream."""
        raise NotImplementedError


class Middleware(Handler):
    """Passes calls on to the next handler. Subclasses override one of the methods, or both."""

    def __init__(self, inner: Handler) -> None:
        """Pass calls on to `inner`."""
        self.inner = inner

    def handle(self, call: Call) -> Pending[Any]:
        """Pass on an operation with a single reply."""
        return self.inner.handle(call)

    def follow(self, call: Call) -> Pending[TaskEvents]:
        """Pass on a streaming operation."""
        return self.inner.follow(call)


class MethodHandler(Handler):
    """Handles calls with the methods of an agent."""

    def __init__(self, agent: A2A) -> None:
        """Call the methods of `agent`."""
        self._agent = agent

    def handle(self, call: Call) -> Pending[Any]:
        """Call the method of an operation with a single reply."""
        if call.starts_held_task:
            raise UnsupportedOperation("This agent holds no tasks")
        pending: Pending[Any] = getattr(self._agent, METHODS[call.operation])(call.request, call.caller)
        return pending

    async def follow(self, call: Call) -> TaskEvents:
        """Call the method of a streaming operation."""
        events = getattr(self._agent, METHODS[call.operation])(call.request, call.caller, call.after)
        return TaskEvents(await anext(events), events)


def handler_of(agent: A2A | Handler) -> Handler:
    """Return a handler of an agent's calls: the agent itself, if it is one."""
    return agent if isinstance(agent, Handler) else MethodHandler(agent)


class HostedAgent(Handler):
    """An agent on this server: a handler with the methods of A2A."""

    def __init__(self, handler: Handler) -> None:
        """Send all calls to `handler`."""
        self.handle = handler.handle  # type: ignore[method-assign]  # one function call less in each request
        self.follow = handler.follow  # type: ignore[method-assign]

    def send(self, request: SendRequest, caller: Caller) -> Pending[Task | Message]:
        """Send a message."""
        return self.handle(Call(Operation.SEND, request, caller))

    def stream(self, request: SendRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Send a message and yield the events of its task."""
        return read_stream(self, Call(Operation.STREAM, request, caller, after))

    def get(self, request: GetRequest, caller: Caller) -> Pending[Task]:
        """Return one task."""
        return self.handle(Call(Operation.GET, request, caller))

    def list(self, request: TaskFilter, caller: Caller) -> Pending[TaskPage]:
        """List tasks."""
        return self.handle(Call(Operation.LIST, request, caller))

    def cancel(self, request: CancelRequest, caller: Caller) -> Pending[Task]:
        """Cancel one task."""
        return self.handle(Call(Operation.CANCEL, request, caller))

    def start_held_task(self, task_id: str, caller: Caller) -> Pending[Task]:
        """Start a held task of the caller and return it. A task that has started is returned unchanged."""
        return self.handle(Call(Operation.GET, GetRequest(id=task_id), caller, starts_held_task=True))

    def subscribe(self, request: SubscribeRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Subscribe to a task."""
        return read_stream(self, Call(Operation.SUBSCRIBE, request, caller, after))

    def push_set(self, request: PushConfig, caller: Caller) -> Pending[PushConfig]:
        """Create or replace a webhook."""
        return self.handle(Call(Operation.PUSH_SET, request, caller))

    def push_get(self, request: PushGetRequest, caller: Caller) -> Pending[PushConfig]:
        """Return a webhook."""
        return self.handle(Call(Operation.PUSH_GET, request, caller))

    def push_list(self, request: PushListRequest, caller: Caller) -> Pending[PushPage]:
        """Return a page of a task's webhooks."""
        return self.handle(Call(Operation.PUSH_LIST, request, caller))

    def push_delete(self, request: PushDeleteRequest, caller: Caller) -> Pending[int]:
        """Delete webhooks and return their number."""
        return self.handle(Call(Operation.PUSH_DELETE, request, caller))

    def extended_card(self, request: CardRequest, caller: Caller) -> Pending[AgentCard]:
        """Return the card for authenticated callers."""
        return self.handle(Call(Operation.EXTENDED_CARD, request, caller))


async def read_stream(handler: Handler, call: Call) -> AsyncIterator[Event]:
    """Yield the events of a streaming operation, and close the stream."""
    stream = await handler.follow(call)
    try:
        yield stream.first()
        with suppress(StopAsyncIteration):
            while True:  # no event is held while a slow reader blocks: it may be a large task
                yield await anext(stream.rest)
    finally:
        await stream.aclose()
