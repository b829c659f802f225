"""A subscription to one task's events, across broken streams and restarted servers.

A broken stream continues after the last event, if the agent numbers its events. Otherwise a new subscription begins
with the current task, or the task is polled. Where a missed event cannot be detected, events only cause the task to
be read again, so nothing is lost or counted twice. A message is sent once (`peer`).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from msgspec.structs import replace

from accord.client.peer import AgentPeer, Unconfirmed, recover_task, returning_immediately, send_once
from accord.errors import (
    AccordError,
    AgentUnavailable,
    AuthenticationFailed,
    InternalError,
    MethodNotFound,
    PermissionDenied,
    RateLimited,
    UnsupportedOperation,
)
from accord.model import (
    ArtifactUpdate,
    Event,
    EventBody,
    GetRequest,
    Message,
    MessageUpdate,
    SendRequest,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskState,
    TaskStatus,
)
from accord.outbound import StreamBroken, StreamEndedEarly, TimedOut, Unreachable
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.operations import Operation

AT_ANSWER: Final = ENDED | {TaskState.INPUT_REQUIRED}
"""States that end the stream of a message. Credentials may still arrive out of band (A2A 1.0, 7.6.1)."""

AT_REST: Final = ENDED | INTERRUPTED
"""States that only the caller can change."""

_CUT_MESSAGE: Final = "The stream ended before the task did"
_NO_STREAMS = (UnsupportedOperation, MethodNotFound)
_TRANSIENT = (RateLimited, AgentUnavailable)
_FINAL = (AuthenticationFailed, PermissionDenied)

Events = AsyncGenerator[Event, None]


class TaskSubscription:
    """A subscription to one task, and its position in the event log."""

    def __init__(
        self,
        peer: AgentPeer,
        *,
        task_id: str | None = None,
        after: int | None = None,
        stops: frozenset[TaskState] = ENDED,
        until: TaskStatus | None = None,
        known: Task | None = None,
    ) -> None:
        """Subscribe to a task, or to the task that a message starts, until it reaches a state in `stops`.

        `after` is the sequence number of the last seen event, `known` the last known task. `until` is a status in
        which the task is known to wait: the subscription ends when it finds the task still in it.
        """
        self.task_id = task_id
        self.context_id: str | None = None
        self.state: TaskState | None = None
        self.seen = after
        self.is_over = False
        self._peer = peer
        self._link = peer.link
        self._stops = stops
        self._until = until
        self._subscribes = True
        self._is_bare = known is None  # nothing but the task's existence was reported
        self._last = after or 0
        self._failures = 0
        self._poll = peer.retries.first_poll_seconds
        self._looked = known

    # --- starting with a message ----------------------------------------------------------------------------------

    async def send(self, request: SendRequest) -> Events:
        """Send a message and yield the events that it causes.

        The first event is the task, or a message if the agent answers without a task.
        """
        async with aclosing(self._begin(request)) as events:
            async for event in events:
                yield event
        async with aclosing(self.go_on()) as events:
            async for event in events:
                yield event

    async def _begin(self, request: SendRequest) -> Events:
        """Yield the events of the first stream, or one event if the agent does not stream."""
        attempt = 0
        while self._peer.streams and not self._peer.begins_by_sending:
            try:
                async with aclosing(self._read(Operation.STREAM, request)) as events:
                    async for event in events:
                        self._tell(event)
                        yield event
                        if self.is_over:
                            return
                if self.task_id is None:
                    raise StreamEndedEarly(_CUT_MESSAGE)
                return
            except StreamEndedEarly as error:
                if (told := await self._looked_for(request, error)) is None:
                    break
                yield told
                return
            except (Unreachable, AccordError) as error:
                if self.task_id is not None:
                    told = await self._broke_off(error)
                else:
                    told = await self._not_begun(request, error, attempt)
                    attempt += 1
                if told is not None:
                    yield told
                if self.task_id is not None:
                    return
        yield self._made(await send_once(self._peer, returning_immediately(request)))

    async def _looked_for(self, request: SendRequest, error: StreamEndedEarly) -> Event | None:
        """Return the task of a message whose stream ended without an event, or None if the message must be sent again.

        An agent that ends such a stream does not stream this message. Its task list is the only trace of the message
        (C-08).
        """
        if self._peer.is_idempotent:
            return None
        try:
            return self._made(await recover_task(self._peer, request, error))
        except Unconfirmed:
            return None

    async def _not_begun(self, request: SendRequest, error: Unreachable | AccordError, attempt: int) -> Event | None:
        """Return the task that a failed send started, or None if the message must be sent again.

        The next send may use another endpoint.
        """
        peer = self._peer
        if peer.moves_on(Operation.SEND, error):
            return None
        if isinstance(error, _NO_STREAMS):
            peer.streams = peer.subscribes = False
        elif isinstance(error, Unreachable) and error.was_sent and not peer.is_idempotent:
            return self._made(await recover_task(peer, request, error))
        else:
            await peer.pause(Operation.STREAM, request, error, attempt)
        return None

    async def _broke_off(self, error: Unreachable | AccordError) -> Event | None:
        """Return the task if it has stopped despite the broken stream, None to subscribe again, or raise the error.

        If the agent numbers its events, an error in the middle of a stream concerns only the stream, and a later
        subscription gets the rest. Otherwise the error is the agent's last report.
        """
        if isinstance(error, Unreachable):
            return None
        task: Task = await self._peer.ask(Operation.GET, GetRequest(id=self._named()))
        if task.status.state in self._stops:
            return self._made(task)
        if self.seen is not None and isinstance(error, (*_TRANSIENT, InternalError)):
            return None
        raise error

    # --- starting anywhere ----------------------------------------------------------------------------------------

    async def go_on(self) -> Events:
        """Yield the events after the last seen event until the subscription ends."""
        while not self.is_over:
            step = self._subscribed() if self._subscribes and self._peer.subscribes else self._polled()
            async with aclosing(step) as events:
                async for event in events:
                    yield event

    async def _subscribed(self) -> Events:
        """Yield the events of one subscription, then wait if it had none."""
        after, is_certain, failure = self.seen, None, None
        try:
            async with aclosing(self._read(Operation.SUBSCRIBE, SubscribeRequest(id=self._named()))) as events:
                async for event in events:
                    if is_certain is None:
                        is_certain = self._is_certain(event, after)
                    told = self._told_anew(event) if is_certain else await self._look()
                    if told is not None:
                        yield told
                        if self.is_over:
                            return
        except _FINAL:
            raise
        except (Unreachable, AccordError) as error:
            failure = error
        if failure is None and not self.is_over:
            if self.seen is None and (told := await self._look()) is not None:
                yield told
            if self.state in INTERRUPTED:
                self.is_over = True  # it waits for its caller: the agent ended the stream properly
        if not self.is_over:
            await self._interrupted(failure, is_progress=is_certain is not None)

    async def _interrupted(self, failure: Unreachable | AccordError | None, *, is_progress: bool) -> None:
        """Choose how to continue after a subscription that ended before the task did."""
        match failure:
            case None if is_progress:
                return
            case None:
                await self._pause(StreamBroken(_CUT_MESSAGE))
            case StreamBroken() if self.seen is None and not is_progress:
                self._subscribes = False  # some agents end the stream of an ended task without an event
            case TimedOut(was_sent=True):
                await self._knock()
            case Unreachable() | RateLimited() | AgentUnavailable():
                if not self._peer.moves_on(Operation.SUBSCRIBE, failure):
                    await self._pause(failure)
            case InternalError() if self.seen is not None:
                await self._pause(failure)
            case _:
                self._subscribes = False  # the task has ended, or the agent has no subscriptions: a read shows which

    async def _knock(self) -> None:
        """Check that an agent is reachable after a long silence, which is normal for a long task."""
        try:
            await self._peer.ask(Operation.GET, GetRequest(id=self._named()))
        except Unreachable as error:
            await self._pause(error)
        else:
            self._failures = 0

    async def _polled(self) -> Events:
        """Yield the task if it has changed. Each unchanged poll lengthens the interval."""
        told = await self._look()
        if told is not None:
            self._poll = self._peer.retries.first_poll_seconds
            yield told
        if self.state in INTERRUPTED:
            self.is_over = True
        if not self.is_over:
            await self._peer.sleep(self._poll)
            self._poll = min(self._poll * 1.5, self._peer.retries.most_poll_seconds)

    # --- one stream, one read -------------------------------------------------------------------------------------

    async def _read(self, operation: Operation, request: SendRequest | SubscribeRequest) -> Events:
        """Yield the events of one stream, without those already seen."""
        peer, after = self._peer, self.seen
        self._link = peer.link
        skips = after if peer.numbers_events and after is not None else -1
        is_first = True
        following = peer.follow(operation, request, after)
        async with aclosing(following) as events:  # type: ignore[type-var]  # every link's stream is a generator
            async for event in events:
                if event.seq < skips and (is_first or isinstance(event.body, Task)):
                    skips = -1  # the agent's store was restored from a backup: its log is shorter than what was seen
                is_first = False
                if event.seq <= skips:
                    self.is_over = self._rests(event)
                    if self.is_over:
                        return
                    continue
                if self._failures or self._is_bare:
                    self._failures = 0
                    peer.settle()
                yield event

    async def _look(self) -> Event | None:
        """Return the task as an event if it has changed since the last read."""
        try:
            task: Task = await self._peer.ask(Operation.GET, GetRequest(id=self._named()))
        except Unreachable as error:
            await self._pause(error)
            return None
        self._failures = 0
        if task == self._looked:
            return None
        self._looked = task
        return self._made(task)

    def _is_certain(self, event: Event, after: int | None) -> bool:
        """Whether a subscription that begins with this event has neither a gap nor a repetition."""
        if isinstance(event.body, Task):
            return True
        if not self._link.resumable or (after is not None and event.seq < after):
            return False
        if after is None:
            return self._is_bare and event.seq <= 1
        return self._peer.numbers_events or event.seq == after + 1

    def _rests(self, event: Event) -> bool:
        """Whether a subscription's first task still has the status that ended the last one."""
        return isinstance(event.body, Task) and self._until is not None and event.body.status == self._until

    # --- recorded state -------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> Event:
        """Record the task's state after a log event, and return the event with the number to report."""
        if self._link.resumable:
            self.seen = self._last = event.seq
        else:
            self._last += 1
            if event.seq != self._last and not self._is_bare:
                event = replace(event, seq=self._last)
        if type(event.body) is not ArtifactUpdate or self.task_id is None:  # most events are chunks, and change nothing
            self._note(event.body)
        return event

    def _told_anew(self, event: Event) -> Event | None:
        """Return an event of a subscription, or None if it repeats the task of the last read."""
        told = self._tell(event)
        return None if isinstance(told.body, Task) and told.body == self._looked else told

    def _made(self, answer: Task | Message) -> Event:
        """Return an event for an answer or a read task, which has no number in the log.

        Which events such a task includes is unknown, so the next stream must begin with the task again.
        """
        self.seen = None
        was_bare, self._is_bare = self._is_bare, False
        self._note(answer)
        if was_bare and isinstance(answer, Task) and self._peer.begins_by_sending and not self.is_over:
            # In this dialect the subscription may replay everything from the first event, so the answer leaves it out.
            self._is_bare = self._looked is None
            status = TaskStatus(state=TaskState.SUBMITTED, timestamp=answer.status.timestamp)
            answer = replace(answer, status=status, artifacts=(), history=())
        return Event(seq=self._last, body=answer)

    def _note(self, body: EventBody) -> None:
        self._is_bare = False
        match body:
            case ArtifactUpdate():
                if self.task_id is None:
                    self.task_id, self.context_id = body.task_id, body.context_id
            case StatusUpdate():
                self._stands(body.task_id, body.context_id, body.status)
            case Task():
                self._stands(body.id, body.context_id, body.status)
            case MessageUpdate():
                self.task_id = self.task_id or body.task_id
            case Message():
                self.is_over = True

    def _stands(self, task_id: str, context_id: str | None, status: TaskStatus) -> None:
        self.task_id = self.task_id or task_id
        self.context_id = context_id or self.context_id
        self.state = status.state
        self.is_over = status.state in self._stops

    def _named(self) -> str:
        if self.task_id is None:
            raise RuntimeError("There is no task to follow")
        return self.task_id

    async def _pause(self, error: Exception) -> None:
        """Wait before the next attempt, or raise the last error after too many attempts without progress."""
        retries = self._peer.retries
        delay = retries.delay(self._failures, error) if self._failures < retries.following else None
        if delay is None:
            raise error
        self._failures += 1
        await self._peer.sleep(delay)
