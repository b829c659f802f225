"""An agent over the endpoints of its card: fallback, retries, and sending a message once.

A message that may have been accepted is retried only where that is safe (`retries`). Otherwise the agent's tasks are
searched for it, and a message that is not found is reported as `Unconfirmed`. `subscription` follows the task.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from msgspec.structs import replace

from accord.client.interfaces import AgentEndpoint
from accord.client.retries import MESSAGE_ID_DIALECTS, Retries, may_retry
from accord.client.transports import TimedOut, Unreachable
from accord.engine import tracing
from accord.engine.tracing import UNTRACED, RemoteCallSpan, Tracer
from accord.errors import (
    AccordError,
    ExtendedCardNotConfigured,
    MethodNotFound,
    PushNotSupported,
    TaskNotCancelable,
    VersionNotSupported,
)
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
from accord.protocol.dialects import DIALECTS
from accord.protocol.extensions import IDEMPOTENT_SEND, NUMBERED_EVENTS
from accord.protocol.operations import DialectName, Operation


class AgentLink(Protocol):
    """A way to talk to one agent.

    What the agent refuses is raised as an `AccordError`, what never reached it or came back incomplete as
    `wire.Unreachable`, and an answer that cannot be understood as `InvalidAgentResponse`.
    """

    @property
    def dialect(self) -> DialectName:
        """The version of A2A that it speaks."""

    @property
    def binding(self) -> str:
        """What carries it, as cards name it: `JSONRPC`, `HTTP+JSON` or `GRPC`."""

    @property
    def resumable(self) -> bool:
        """Whether events carry numbers of the agent's own, which `follow(after=...)` may name.

        It is known from the first event on; before that, and where `Event.seq` is only a running count, it is False.
        """

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Result:
        """Ask once and return the answer; `seconds` replaces the link's own patience."""

    def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Ask for a stream and yield its events; `after` is the number of the last event that was seen.

        It ends when the agent ended it as it should, and raises `wire.Broken` when the stream was cut.
        """

    async def close(self) -> None:
        """Let go of what is this link's alone; a transport that it was given stays open."""


OpenLink = Callable[[AgentEndpoint], AgentLink]
Sleep = Callable[[float], Awaitable[Any]]

_PUSHES = frozenset({Operation.PUSH_SET, Operation.PUSH_GET, Operation.PUSH_LIST, Operation.PUSH_DELETE})
_EVERYWHERE = frozenset({Operation.SEND, Operation.GET})
"""What every agent can be asked: where it cannot, the address or the version is wrong."""


class AgentPeer:
    """An agent, over whichever of its ways works."""

    def __init__(
        self,
        card: AgentCard,
        ways: Sequence[AgentEndpoint],
        open_link: OpenLink,
        *,
        retries: Retries | None = None,
        is_idempotent: bool | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Talk to an agent; unless the caller knows better, its card says whether a message may be sent twice."""
        promised = {extension.uri for extension in card.capabilities.extensions}
        self.card = card
        self.retries = retries or Retries()
        self.sleep = sleep
        self.streams = card.capabilities.streaming is not False
        self.subscribes = self.streams
        self.numbers_events = NUMBERED_EVENTS in promised
        self._is_idempotent = IDEMPOTENT_SEND in promised if is_idempotent is None else is_idempotent
        self._ways = ways
        self._open_link = open_link
        self._links: dict[int, AgentLink] = {}
        self._at = 0
        self._is_settled = False

    @property
    def link(self) -> AgentLink:
        """The way that is used now."""
        found = self._links.get(self._at)
        if found is None:
            found = self._links[self._at] = self._open_link(self._ways[self._at])
        return found

    @property
    def way(self) -> AgentEndpoint:
        """What that way is."""
        return self._ways[self._at]

    @property
    def is_idempotent(self) -> bool:
        """Whether the same message may be sent again."""
        return self._is_idempotent and self.way.dialect in MESSAGE_ID_DIALECTS

    @property
    def begins_by_sending(self) -> bool:
        """Whether a stream is a message sent and then a subscription, as in AgentVault's profile."""
        return self.way.dialect is DialectName.VAULT

    async def close(self) -> None:
        """Let go of all links."""
        for link in self._links.values():
            await link.close()

    # --- one exchange, or as many as are safe ---------------------------------------------------------------------

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Any:
        """Ask and return the answer, repeating what may be repeated; a partial answer is read again in full."""
        self._need(operation, request)
        attempt = 0
        while True:
            try:
                with UNTRACED if tracing.tracer is None else tracing.tracer.around(self._calling(operation)):
                    result = await self.link.ask(operation, self._addressed(request), seconds=seconds)
            except (Unreachable, AccordError) as error:
                if attempt and isinstance(error, TaskNotCancelable) and (ended := await self._canceled(request)):
                    return ended
                if self.moves_on(operation, error):
                    continue
                await self.pause(operation, request, error, attempt)
                attempt += 1
            else:
                self._is_settled = True
                return await self._whole(operation, result)

    def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Ask for a stream, once; whoever follows calls `moves_on` and `settle`."""
        self._need(operation, request)
        events = self.link.follow(operation, self._addressed(request), after)
        return events if tracing.tracer is None else _traced(events, tracing.tracer, self._calling(operation))

    def settle(self) -> None:
        """Keep to the way that is used now: the agent has answered there."""
        self._is_settled = True

    def moves_on(self, operation: Operation, error: Exception) -> bool:
        """Take the next way, if nothing has come of this one and nothing can have come of the request."""
        if self._is_settled:
            return False
        match error:
            case Unreachable(was_sent=False) | VersionNotSupported():
                pass
            case MethodNotFound() if operation in _EVERYWHERE:
                pass
            case _:
                return False
        self._at = (self._at + 1) % len(self._ways)
        return self._at != 0

    async def pause(self, operation: Operation, request: Request, error: Exception, attempt: int) -> None:
        """Wait until a request may be sent again, or raise what it ended in."""
        repeats = may_retry(operation, request, error, is_idempotent=self.is_idempotent)
        delay = self.retries.delay(attempt, error) if repeats and attempt < self.retries.attempts else None
        if delay is None:
            raise error
        await self.sleep(delay)

    def _calling(self, operation: Operation) -> RemoteCallSpan:
        way = self.way
        return RemoteCallSpan(
            agent=self.card.name,
            operation=operation.value,
            binding=way.binding,
            dialect=way.dialect.value,
            url=way.url,
        )

    # --- small things ---------------------------------------------------------------------------------------------

    def _need(self, operation: Operation, request: Request) -> None:
        """Refuse what the card says that there is not: not every server has a proper refusal of its own, or any."""
        told = request.configuration if isinstance(request, SendRequest) else None
        has_push = operation in _PUSHES or (told is not None and told.task_push_notification_config is not None)
        if has_push and not self.card.capabilities.push_notifications:
            raise PushNotSupported
        if operation is Operation.EXTENDED_CARD and not self.card.capabilities.extended_agent_card:
            raise ExtendedCardNotConfigured

    def _addressed(self, request: Request) -> Request:
        tenant = self.way.tenant
        return request if tenant is None or request.tenant is not None else replace(request, tenant=tenant)

    async def _whole(self, operation: Operation, result: Result) -> Any:
        if isinstance(result, Task) and operation in DIALECTS[self.way.dialect].partial_results:
            return await self.ask(Operation.GET, GetRequest(id=result.id))
        return result

    async def _canceled(self, request: Request) -> Task | None:
        """Return a task that the first of several requests to cancel has ended, of which only the answer was lost."""
        if not isinstance(request, CancelRequest):
            return None
        task: Task = await self.ask(Operation.GET, GetRequest(id=request.id))
        return task if task.status.state is TaskState.CANCELED else None


async def _traced(events: AsyncIterator[Event], tracer: Tracer, calling: RemoteCallSpan) -> AsyncIterator[Event]:
    """Follow a stream whose request belongs to a span; what its reader does meanwhile does not."""
    span = tracer.begin(calling)
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
"""Messages of each task that are searched for one of ours; it is new, so it is among the last."""


class Unconfirmed(Unreachable):
    """A message was sent, but whether it was accepted is not known: it is not sent again.

    `task_id` is the task that came of it, where one was found: the message was accepted, and only its answer is
    missing. `because` is what happened.
    """

    def __init__(self, message_id: str, because: Unreachable, task_id: str | None = None) -> None:
        """Say what is known."""
        known = f"it became task {task_id}" if task_id else "it may have been accepted and is not sent again"
        super().__init__(f"No answer to message {message_id} ({because.reason}): {known}", was_sent=True)
        self.message_id = message_id
        self.task_id = task_id
        self.because = because


class UnconfirmedTimeout(Unconfirmed, TimedOut):
    """The same, because the caller's time was up; a task that is known goes on."""


def unconfirmed_error(message_id: str, because: Unreachable, task_id: str | None = None) -> Unconfirmed:
    """Return what to raise of a message without an answer."""
    kind = UnconfirmedTimeout if isinstance(because, TimedOut) else Unconfirmed
    return kind(message_id, because, task_id)


def returning_immediately(request: SendRequest) -> SendRequest:
    """Return a request that is answered with the task as soon as there is one."""
    return replace(
        request, configuration=replace(request.configuration or SendConfiguration(), return_immediately=True)
    )


async def send_once(peer: AgentPeer, request: SendRequest, *, seconds: float | None = None) -> Task | Message:
    """Send a message and return what the agent answers, which may be a task that goes on."""
    try:
        answer: Task | Message = await peer.ask(Operation.SEND, request, seconds=seconds)
    except Unreachable as error:
        if not error.was_sent:
            raise
        answer = await recover_task(peer, request, error)
    return answer


async def recover_task(peer: AgentPeer, request: SendRequest, error: Unreachable) -> Task:
    """Return the task that came of a message whose answer was lost, or raise `Unconfirmed`."""
    message_id = request.message.message_id
    try:
        task = await _find_task(peer, request)
    except (Unreachable, AccordError) as failed:
        raise unconfirmed_error(message_id, error) from failed
    if task is None:
        raise unconfirmed_error(message_id, error) from error
    if isinstance(error, TimedOut):  # the caller's time is up; it is told what to come back for
        raise unconfirmed_error(message_id, error, task.id) from error
    return task


async def _find_task(peer: AgentPeer, request: SendRequest) -> Task | None:
    """Return the task of a message: told again by an agent that knows the message, or as its list has it."""
    if peer.is_idempotent:
        again = await peer.ask(Operation.SEND, returning_immediately(request))
        return again if isinstance(again, Task) else None
    if request.message.task_id is not None:
        task: Task = await peer.ask(Operation.GET, GetRequest(id=request.message.task_id))
        return task if _holds(task, request.message) else None
    if peer.way.dialect is not DialectName.V1:  # the only one in which listing tasks is not an invention
        return None
    wanted = TaskFilter(context_id=request.message.context_id, page_size=MAX_PAGE_SIZE, history_length=SEARCH_HISTORY)
    page: TaskPage = await peer.ask(Operation.LIST, wanted)
    ours = next((one for one in page.tasks if _holds(one, request.message)), None)
    if ours is None:
        return None
    found: Task = await peer.ask(Operation.GET, GetRequest(id=ours.id))  # a list leaves the artifacts out
    return found


def _holds(task: Task, message: Message) -> bool:
    return any(said.message_id == message.message_id for said in task.history)
