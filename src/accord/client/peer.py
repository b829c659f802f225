"""One agent as it is really reached: the ways its card offers, the one that works, and requests repeated where safe.

It knows what the agent offers, refused or promised, and nothing of tasks: what is said to the agent and what comes of
it is the business of `sending` and `resume` above. A link below is one exchange; here is what happens when that fails.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from accord.client.links import Link
from accord.client.retries import NAMED_MESSAGES, Retries, may_repeat
from accord.client.selection import Way
from accord.client.wire import Unreachable
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
from accord.model import AgentCard, CancelRequest, Event, GetRequest, Request, Result, SendRequest, Task, TaskState
from accord.protocol.dialects import DIALECTS
from accord.protocol.extensions import IDEMPOTENT_SEND, NUMBERED_EVENTS
from accord.protocol.operations import DialectName, Operation

OpenLink = Callable[[Way], Link]
Sleep = Callable[[float], Awaitable[Any]]

_PUSHES = frozenset({Operation.PUSH_SET, Operation.PUSH_GET, Operation.PUSH_LIST, Operation.PUSH_DELETE})
_EVERYWHERE = frozenset({Operation.SEND, Operation.GET})
"""What every agent can be asked: where it cannot, the address or the version is wrong."""


class Peer:
    """An agent, over whichever of its ways works."""

    def __init__(
        self,
        card: AgentCard,
        ways: Sequence[Way],
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
        self._links: dict[int, Link] = {}
        self._at = 0
        self._is_settled = False

    @property
    def link(self) -> Link:
        """The way that is used now."""
        found = self._links.get(self._at)
        if found is None:
            found = self._links[self._at] = self._open_link(self._ways[self._at])
        return found

    @property
    def way(self) -> Way:
        """What that way is."""
        return self._ways[self._at]

    @property
    def is_idempotent(self) -> bool:
        """Whether the same message may be sent again."""
        return self._is_idempotent and self.way.dialect in NAMED_MESSAGES

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
        repeats = may_repeat(operation, request, error, is_idempotent=self.is_idempotent)
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
