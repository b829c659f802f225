"""An agent over the endpoints of its card: fallback, retries, and sending a message once.

A message that may have been accepted is retried only where that is safe (`retries`). Otherwise the agent's tasks are
searched for it, and a message that is not found is reported as `Unconfirmed`. `subscription` follows the task.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol, cast

from msgspec.structs import replace

from accord import errors
from accord.client.interfaces import AgentEndpoint
from accord.client.retries import MESSAGE_ID_DIALECTS, Retries, may_retry
from accord.engine import tracing
from accord.engine.tracing import UNTRACED, RemoteCallSpan, Tracer
from accord.errors import AccordError
from accord.model import (
    AgentCard,
    CancelRequest,
    Event,
    GetRequest,
    Message,
    Request,
    Result,
    SendConfiguration,
    SendRequest,
    Task,
    TaskFilter,
    TaskPage,
    TaskState,
)
from accord.model.requests import MAX_PAGE_SIZE
from accord.outbound import TimedOut, Unreachable
from accord.protocol.dialects import DIALECTS
from accord.protocol.extensions import IDEMPOTENT_SEND, NUMBERED_EVENTS
from accord.protocol.operations import DialectName, Operation


class AgentLink(Protocol):
    """A connection to one agent.

    An agent's refusal is raised as an `AccordError`. A failed or incomplete exchange is raised as
    `transports.Unreachable`, an invalid answer as `InvalidAgentResponse`.
    """

    @property
    def dialect(self) -> DialectName:
        """The A2A version of the link."""

    @property
    def binding(self) -> str:
        """The protocol binding as cards name it: `JSONRPC`, `HTTP+JSON` or `GRPC`."""

    @property
    def resumable(self) -> bool:
        """Whether events have sequence numbers of the agent, which `follow(after=...)` accepts.

        False before the first event, and where `Event.seq` is only a running count.
        """

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Result:
        """Send one request and return the answer. `seconds` replaces the link's timeout."""

    def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Open a stream and yield its events. `after` is the sequence number of the last seen event.

        The stream ends when the agent ended it properly, and raises `transports.StreamBroken` when it was cut.
        """

    async def close(self) -> None:
        """Release the link's own resources. A transport that was passed to it stays open."""


OpenLink = Callable[[AgentEndpoint], AgentLink]
Sleep = Callable[[float], Awaitable[Any]]

_PUSH_OPERATIONS = frozenset({Operation.PUSH_SET, Operation.PUSH_GET, Operation.PUSH_LIST, Operation.PUSH_DELETE})
_REQUIRED = frozenset({Operation.SEND, Operation.GET})
"""Operations that every agent supports: if one is missing, the address or the version is wrong."""


class AgentPeer:
    """An agent, over the first of its endpoints that works."""

    def __init__(
        self,
        card: AgentCard,
        endpoints: Sequence[AgentEndpoint],
        open_link: OpenLink,
        *,
        retries: Retries | None = None,
        is_idempotent: bool | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Create a peer. Unless `is_idempotent` is set, the card determines whether a message may be sent twice."""
        promised = {extension.uri for extension in card.capabilities.extensions}
        self.card = card
        self.retries = retries or Retries()
        self.sleep = sleep
        self.streams = card.capabilities.streaming is not False
        self.subscribes = self.streams
        self.numbers_events = NUMBERED_EVENTS in promised
        self._is_idempotent = IDEMPOTENT_SEND in promised if is_idempotent is None else is_idempotent
        self._endpoints = endpoints
        self._open_link = open_link
        self._links: dict[int, AgentLink] = {}
        self._at = 0
        self._is_settled = False

    @property
    def link(self) -> AgentLink:
        """The link of the current endpoint."""
        link = self._links.get(self._at)
        if link is None:
            link = self._links[self._at] = self._open_link(self._endpoints[self._at])
        return link

    @property
    def endpoint(self) -> AgentEndpoint:
        """The current endpoint."""
        return self._endpoints[self._at]

    @property
    def is_idempotent(self) -> bool:
        """Whether a message may be sent again under the same id."""
        return self._is_idempotent and self.endpoint.dialect in MESSAGE_ID_DIALECTS

    @property
    def begins_by_sending(self) -> bool:
        """Whether a stream is a send followed by a subscription, as in AgentVault's profile."""
        return self.endpoint.dialect is DialectName.VAULT

    async def close(self) -> None:
        """Close all links."""
        for link in self._links.values():
            await link.close()

    # --- one exchange, or as many as are safe ---------------------------------------------------------------------

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Any:
        """Send a request and return the answer, with safe retries. A partial answer is read again in full."""
        self._check_capabilities(operation, request)
        attempt = 0
        while True:
            try:
                with UNTRACED if tracing.tracer is None else tracing.tracer.around(self._call_span(operation)):
                    result = await self.link.ask(operation, self._with_tenant(request), seconds=seconds)
            except (Unreachable, AccordError) as error:
                if attempt and isinstance(error, errors.TaskNotCancelable) and (ended := await self._canceled(request)):
                    return ended
                if self.moves_on(operation, error):
                    continue
                await self.pause(operation, request, error, attempt)
                attempt += 1
            else:
                self._is_settled = True
                return await self._complete(operation, result)

    def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Open a stream, once. The caller of this method calls `moves_on` and `settle`."""
        self._check_capabilities(operation, request)
        events = self.link.follow(operation, self._with_tenant(request), after)
        return events if tracing.tracer is None else _traced(events, tracing.tracer, self._call_span(operation))

    def settle(self) -> None:
        """Keep the current endpoint, because the agent has answered there."""
        self._is_settled = True

    def moves_on(self, operation: Operation, error: Exception) -> bool:
        """Switch to the next endpoint if this one has not worked and the request cannot have had an effect."""
        if self._is_settled:
            return False
        match error:
            case Unreachable(was_sent=False) | errors.VersionNotSupported():
                pass
            case errors.MethodNotFound() if operation in _REQUIRED:
                pass
            case _:
                return False
        self._at = (self._at + 1) % len(self._endpoints)
        return self._at != 0

    async def pause(self, operation: Operation, request: Request, error: Exception, attempt: int) -> None:
        """Wait until a request may be retried, or raise its error."""
        repeats = may_retry(operation, request, error, is_idempotent=self.is_idempotent)
        delay = self.retries.delay(attempt, error) if repeats and attempt < self.retries.attempts else None
        if delay is None:
            raise error
        await self.sleep(delay)

    def _call_span(self, operation: Operation) -> RemoteCallSpan:
        endpoint = self.endpoint
        return RemoteCallSpan(
            agent=self.card.name,
            operation=operation.value,
            binding=endpoint.binding,
            dialect=endpoint.dialect.value,
            url=endpoint.url,
        )

    # --- helpers --------------------------------------------------------------------------------------------------

    def _check_capabilities(self, operation: Operation, request: Request) -> None:
        """Refuse an operation that the card does not offer. Not every server has a proper refusal."""
        configuration = request.configuration if isinstance(request, SendRequest) else None
        has_push = operation in _PUSH_OPERATIONS or (
            configuration is not None and configuration.task_push_notification_config is not None
        )
        if has_push and not self.card.capabilities.push_notifications:
            raise errors.PushNotSupported
        if operation is Operation.EXTENDED_CARD and not self.card.capabilities.extended_agent_card:
            raise errors.ExtendedCardNotConfigured

    def _with_tenant(self, request: Request) -> Request:
        tenant = self.endpoint.tenant
        return request if tenant is None or request.tenant is not None else replace(request, tenant=tenant)

    async def _complete(self, operation: Operation, result: Result) -> Any:
        if isinstance(result, Task) and operation in DIALECTS[self.endpoint.dialect].partial_results:
            return await self.ask(Operation.GET, GetRequest(id=result.id))
        return result

    async def _canceled(self, request: Request) -> Task | None:
        """Return the task if an earlier cancel request canceled it and only the answer was lost."""
        if not isinstance(request, CancelRequest):
            return None
        task: Task = await self.ask(Operation.GET, GetRequest(id=request.id))
        return task if task.status.state is TaskState.CANCELED else None


async def _traced(events: AsyncIterator[Event], tracer: Tracer, call: RemoteCallSpan) -> AsyncIterator[Event]:
    """Yield a stream's events under a span of the request. The reader's own work is outside the span."""
    span = tracer.begin(call)
    try:
        async with aclosing(events):  # type: ignore[type-var]  # a generator in every link
            with span.current():
                event = await anext(events, None)
            while event is not None:
                yield event
                event = await anext(events, None)
    except Exception as error:
        span.note(error=tracing.failure(error))
        raise
    finally:
        span.end()


SEARCH_HISTORY = 20
"""Messages of each task that are searched for a sent message, which is among the last."""


class Unconfirmed(Unreachable):
    """An error for a sent message whose acceptance is unknown. The message is not sent again.

    `task_id` is the task of the message, if it was found: then the message was accepted and only the answer is
    missing. `because` is the cause.
    """

    def __init__(self, message_id: str, because: Unreachable, task_id: str | None = None) -> None:
        known = f"it became task {task_id}" if task_id else "it may have been accepted and is not sent again"
        super().__init__(f"No answer to message {message_id} ({because.reason}): {known}", was_sent=True)
        self.message_id = message_id
        self.task_id = task_id
        self.because = because


class UnconfirmedTimeout(Unconfirmed, TimedOut):
    """An `Unconfirmed` because the caller's timeout expired. A known task continues."""


def unconfirmed_error(message_id: str, because: Unreachable, task_id: str | None = None) -> Unconfirmed:
    """Return the error for a message without an answer."""
    kind = UnconfirmedTimeout if isinstance(because, TimedOut) else Unconfirmed
    return kind(message_id, because, task_id)


def returning_immediately(request: SendRequest) -> SendRequest:
    """Return a request that is answered as soon as the task exists."""
    return replace(
        request, configuration=replace(request.configuration or SendConfiguration(), return_immediately=True)
    )


async def send_once(peer: AgentPeer, request: SendRequest, *, seconds: float | None = None) -> Task | Message:
    """Send a message and return the agent's answer, which may be a task that is still working."""
    try:
        answer: Task | Message = await peer.ask(Operation.SEND, request, seconds=seconds)
    except Unreachable as error:
        if not error.was_sent:
            raise
        answer = await recover_task(peer, request, error)
    return answer


async def recover_task(peer: AgentPeer, request: SendRequest, error: Unreachable) -> Task:
    """Return the task of a message whose answer was lost, or raise `Unconfirmed`."""
    message_id = request.message.message_id
    try:
        task = await _find_task(peer, request)
    except (Unreachable, AccordError) as failed:
        raise unconfirmed_error(message_id, error) from failed
    if task is None:
        raise unconfirmed_error(message_id, error) from error
    if isinstance(error, TimedOut):  # the caller's timeout expired: the error names the task
        raise unconfirmed_error(message_id, error, task.id) from error
    return task


async def _find_task(peer: AgentPeer, request: SendRequest) -> Task | None:
    """Return the task of a message, by sending a duplicate to an idempotent agent, else from its task list."""
    if peer.is_idempotent:
        again = await peer.ask(Operation.SEND, returning_immediately(request))
        return again if isinstance(again, Task) else None
    if request.message.task_id is not None:
        task: Task = await peer.ask(Operation.GET, GetRequest(id=request.message.task_id))
        return task if _contains(task, request.message) else None
    if peer.endpoint.dialect is not DialectName.V1:  # the only dialect that specifies listing tasks
        return None
    task_filter = TaskFilter(
        context_id=request.message.context_id, page_size=MAX_PAGE_SIZE, history_length=SEARCH_HISTORY
    )
    page: TaskPage = await peer.ask(Operation.LIST, task_filter)
    listed_task = next((one for one in page.tasks if _contains(one, request.message)), None)
    if listed_task is None:
        return None
    return cast("Task", await peer.ask(Operation.GET, GetRequest(id=listed_task.id)))  # a list leaves the artifacts out


def _contains(task: Task, message: Message) -> bool:
    return any(sent.message_id == message.message_id for sent in task.history)
