"""Semantics of A2A's operations for one hosted agent.

Input and output are model objects, every refusal is an `AccordError`. It is independent of dialect and binding.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import METHODS, Call, Caller, Handler, Pending, TaskEvents, read_stream
from accord.engine.context import wait_key
from accord.engine.messages import as_message
from accord.engine.node import LATE, Node
from accord.engine.node_port import PreparedChild
from accord.engine.subscriptions import Stops, at_answer, at_end, at_turn_end
from accord.engine.webhook_delivery import check_events
from accord.errors import (
    AgentUnavailable,
    ExtendedCardNotConfigured,
    InvalidParams,
    PushNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    TaskTimeout,
    UnsupportedOperation,
)
from accord.model import (
    AgentCard,
    Artifact,
    ArtifactUpdate,
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    Message,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    PushPage,
    Role,
    SendConfiguration,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
    TaskState,
    TaskStatus,
)
from accord.model.base import timestamp_ms
from accord.model.metadata_keys import TASK_CONFIG
from accord.protocol import lifecycle
from accord.protocol.operations import Operation
from accord.protocol.parts import joined_text
from accord.service import pagination
from accord.service.submission import FirstReply, TaskSubmission
from accord.storage.commands import task_endings, task_lifecycle, task_lists, tasks, webhooks
from accord.storage.commands.steps import ParentExecution
from accord.storage.store import BadValue, StoreUnavailable

CheckPush = Callable[[PushConfig], None]
"""Raises InvalidParams for a webhook that would never be called."""

UNNAMED = "default"
"""The id under which clients of 0.3 read the webhook that they set without an id."""

RETRY_SECONDS = 5
"""`Retry-After` while the database is unavailable, in seconds."""


class Offers(Struct, frozen=True, kw_only=True):
    """The optional parts of A2A that a server offers."""

    streaming: bool = True
    push: bool = True
    extended_card: bool = False


class Service(Handler):
    """The A2A interface over one agent of a node."""

    def __init__(
        self, node: Node, agent: str, *, check_push: CheckPush | None = None, offers: Offers | None = None
    ) -> None:
        """Serve the node's agent with that name. Webhooks are offered only with a `check_push`."""
        self.offers = replace(offers or Offers(), push=check_push is not None and (offers or Offers()).push)
        self.extended: Callable[[], AgentCard] | None = None
        self._node = node
        self._served = node.agents[agent]
        self.agent = agent
        self._check_push = check_push
        self._intake = TaskSubmission(node, agent)

    # --- messages -------------------------------------------------------------------------------------------------

    async def send(self, request: SendRequest, caller: Caller) -> Task | Message:
        """Send a message and return the task or the message that answers it.

        Waits until the task ends or waits for its caller, unless the request asks to return immediately.
        """
        configuration = request.configuration or SendConfiguration()
        answers_alone = self._answers_alone(request, caller)
        self._check_inline(request)
        with _retryable:
            waits = answers_alone or not configuration.return_immediately  # no effect on a message alone (3.2.2)
            task = (await self._intake.accept(request, caller, hears=FirstReply.END if waits else FirstReply.TASK)).task
            if waits and not request.is_held:
                task = await self._settled(task.id, caller)
        if request.timeout_ms is not None and _is_late(task):
            raise TaskTimeout(metadata={"taskId": task.id})  # the caller limited its wait to this deadline
        if answers_alone and task.status.state is TaskState.COMPLETED:
            return _answer(task)
        return lifecycle.limit_history(task, configuration.history_length)

    async def _settled(self, task_id: str, caller: Caller) -> Task:
        """Wait for a task as long as its node runs, and return it.

        When the node drains, its waiting callers are canceled and get the task in its current state. The task
        continues on another node, where the caller can read it by id. An error would make callers send the same work
        again.
        """
        try:
            if not self._node.is_dismissing:
                return await self._node.settled(caller.tenant, task_id)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is None or not self._node.is_dismissing:
                raise
            waiting.uncancel()
        await self._node.store.do(tasks.read_head, caller.tenant, task_id)  # makes the reported state durable
        return (await self._intake.find(task_id, caller))[1]

    def _answers_alone(self, request: SendRequest, caller: Caller) -> bool:
        return not caller.wants_task and self._served.profile.answers_alone(request.message)

    def stream(self, request: SendRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Send a message and yield the task's events. The first event is the task.

        A caller that sends a duplicate may pass `after`: the first event is then the task as of that event.
        """
        return read_stream(self, Call(Operation.STREAM, request, caller, after))

    def subscribe(self, request: SubscribeRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Subscribe to a task that has not ended. The first event is the current task.

        `after` is the sequence number of the last seen event. With it, the first event is the task as of that event,
        and later events follow. This also works for an ended task.
        """
        return read_stream(self, Call(Operation.SUBSCRIBE, request, caller, after))

    def handle(self, call: Call) -> Pending[Any]:
        """Execute an operation with a single reply."""
        if call.starts_held_task:
            return self.start_held_task(call.request.id, call.caller)
        pending: Pending[Any] = getattr(self, METHODS[call.operation])(call.request, call.caller)
        return pending

    def follow(self, call: Call) -> Pending[TaskEvents]:
        """Execute a streaming operation until its first event."""
        if not self.offers.streaming:
            raise UnsupportedOperation("This agent does not stream")
        open_stream = self._stream if call.operation is Operation.STREAM else self._subscribe
        return open_stream(call.request, call.caller, call.after)

    async def _stream(self, request: SendRequest, caller: Caller, after: int | None) -> TaskEvents:
        if self._answers_alone(request, caller):
            return TaskEvents(Event(seq=0, body=await self.send(request, caller)), _no_events())
        configuration = request.configuration or SendConfiguration()
        self._check_inline(request)
        with _retryable:
            begun = await self._intake.accept(request, caller, hears=FirstReply.EVENTS)
            task, seq = begun.task, begun.seq
            if after is not None and after < seq:
                task, seq = await self._from(*await self._intake.find(task.id, caller), after, caller)
        first = lifecycle.limit_history(task, configuration.history_length)
        stream = self._open(first, seq, caller, at_answer, begun.events)
        apply_stream_options(stream, request)
        return stream

    async def _subscribe(self, request: SubscribeRequest, caller: Caller, after: int | None) -> TaskEvents:
        with _retryable:
            stored, first = await self._intake.find(request.id, caller)
            if stored.task_state in lifecycle.ENDED and after is None:
                raise UnsupportedOperation("The task has ended; there is nothing left to follow")
            first, seq = await self._from(stored, first, after, caller)
        return self._open(first, seq, caller, at_end)

    def _open(self, task: Task, seq: int, caller: Caller, stops: Stops, known: Sequence[Event] = ()) -> TaskEvents:
        """Return the task and the events that follow it."""
        hub, first = self._node.hub, Event(seq=seq, body=task, at=task.status.timestamp)
        subscriber = hub.follow(caller.tenant, task.id, seq)
        if known:
            hub.feed(caller.tenant, task.id, known)
        return TaskEvents(first, _no_events() if stops(first) else subscriber.events(stops), subscriber.leave)

    async def _from(self, stored: tasks.StoredTask, task: Task, after: int | None, caller: Caller) -> tuple[Task, int]:
        """Return the task as of an event, as far back as its log reaches, and that event's sequence number."""
        if after is not None and after < stored.last_seq:
            past = await self._node.task_store.as_of(caller.tenant, stored, after, caller.files_at)
            if past is not None:
                return past, after
        return task, stored.last_seq

    # --- tasks ----------------------------------------------------------------------------------------------------

    async def get(self, request: GetRequest, caller: Caller) -> Task:
        """Read one task."""
        with _retryable:
            _, task = await self._intake.find(request.id, caller)
        return lifecycle.limit_history(task, request.history_length)

    async def list(self, request: TaskFilter, caller: Caller) -> TaskPage:
        """List tasks, newest status first."""
        query = pagination.task_query(request, owner=caller.reach, agent=self.agent)
        with _retryable:
            found, total = await self._node.store.read(task_lists.list_tasks, caller.tenant, query)
            task_store, files_at = self._node.task_store, caller.files_at
            whole = [await task_store.unpack(caller.tenant, stored, files_at) for stored in found]
        return pagination.task_page(found, whole, total, request)

    async def cancel(self, request: CancelRequest, caller: Caller) -> Task:
        """Cancel one task and its child tasks."""
        with _retryable:
            return await self._cancel(request, caller)

    async def _cancel(self, request: CancelRequest, caller: Caller) -> Task:
        message = as_message(request.reason, self._node.make_id(), request.id) if request.reason else None
        await self._end(request.id, TaskState.CANCELED, message, caller.reach, caller.tenant)
        return (await self._intake.find(request.id, caller))[1]

    async def _end(
        self,
        task_id: str,
        state: TaskState,
        message: Message | None,
        owner: str | None,
        tenant: str,
        *,
        is_held: bool = False,
    ) -> None:
        at = self._node.now_ms()
        status = TaskStatus(state=state, message=message, timestamp=timestamp_ms(at))
        ending = task_endings.EndRequest(
            task_id=task_id, status=status, at=at, owner=owner, agent=self.agent, is_held=is_held
        )
        try:
            ended = await self._node.store.do(task_endings.end_task, tenant, ending)
        except task_endings.NoSuchTask:
            raise TaskNotFound(metadata={"taskId": task_id}) from None
        except task_endings.TaskHasEnded:
            raise TaskNotCancelable(metadata={"taskId": task_id}) from None
        except task_endings.TaskHasStarted:
            raise UnsupportedOperation("The task has already started; its result cannot be set from outside") from None
        self._node.hooks.emit_ended(ended)
        self._node.stop_execution(tenant, task_id)

    async def start_held_task(self, task_id: str, caller: Caller) -> Task:
        """Start a held task of the caller and return it. A started task is not changed."""
        with _retryable:
            return await self._intake.start_held_task(task_id, caller)

    async def conclude(self, task_id: str, state: TaskState, result: Message | None, caller: Caller) -> None:
        """End a held task of the caller, because its work was done another way."""
        with _retryable:
            await self._end(task_id, state, result, caller.owner, caller.tenant, is_held=True)

    async def wake(self, tenant: str, task_id: str, key: str, value: Any) -> bool:
        """Deliver a signal to a task under `key`. False if the task already has it or has ended."""
        output = msgspec.json.encode(value).decode()
        news = task_lifecycle.TaskSignal(task_id=task_id, key=wait_key(key), output=output, at=self._node.now_ms())
        with _retryable:
            return await self._node.store.do(task_lifecycle.deliver_signal, tenant, news)

    async def origin(self, task_id: str, caller: Caller) -> str | None:
        """Return the recorded origin of the request that created a task."""
        with _retryable:
            stored = await self._node.store.read(tasks.read_task, caller.tenant, task_id)
        return None if stored is None or stored.owner != caller.owner else stored.origin

    # --- webhooks -------------------------------------------------------------------------------------------------

    async def push_set(self, request: PushConfig, caller: Caller) -> PushConfig:
        """Create or replace a webhook."""
        self._need_pushes(request)
        task_id = request.task_id or ""
        with _retryable:
            stored, _ = await self._intake.find(task_id, caller)
            config = replace(request, id=request.id or self._node.make_id(), task_id=task_id)
            sealed = self._node.task_store.webhook_secrets.seal(caller.tenant, config)
            await self._node.store.do(
                webhooks.put, caller.tenant, task_id, sealed, caller.origin or stored.origin or ""
            )
        return config

    async def push_get(self, request: PushGetRequest, caller: Caller) -> PushConfig:
        """Read a webhook.

        Without an id it is the unnamed webhook or else the first. `default` also names the only webhook of a task.
        """
        self._need_pushes()
        configs = await self._configs(request.task_id, caller)
        named = {config.id: config for config in configs}
        found = named.get(request.id)
        if found is None and request.id in (None, UNNAMED):
            is_clear = request.id is None or len(configs) == 1
            found = named.get(request.task_id) or next(iter(configs if is_clear else ()), None)
        if found is not None:
            return found
        raise TaskNotFound("There is no such push configuration", metadata={"taskId": request.task_id})

    async def push_list(self, request: PushListRequest, caller: Caller) -> PushPage:
        """List a task's webhooks."""
        self._need_pushes()
        return pagination.push_page(await self._configs(request.task_id, caller), request)

    async def push_delete(self, request: PushDeleteRequest, caller: Caller) -> int:
        """Remove webhooks and return their number."""
        self._need_pushes()
        with _retryable:
            await self._intake.find(request.task_id, caller)
            return await self._node.store.do(webhooks.delete, caller.tenant, request.task_id, request.id, request.url)

    async def _configs(self, task_id: str, caller: Caller) -> tuple[PushConfig, ...]:
        with _retryable:
            await self._intake.find(task_id, caller)
            found = await self._node.store.read(webhooks.list_webhooks, caller.tenant, task_id)
        return tuple(self._node.task_store.webhook_secrets.open(caller.tenant, hook.config) for hook in found)

    def _check_inline(self, request: SendRequest) -> None:
        if request.configuration is not None and request.configuration.task_push_notification_config is not None:
            self._need_pushes(request.configuration.task_push_notification_config)

    def _need_pushes(self, config: PushConfig | None = None) -> None:
        """Refuse webhooks if the server has none, and a webhook that would never be called."""
        if self._check_push is None or not self.offers.push:
            raise PushNotSupported
        if config is not None:
            check_events(config.events)
            self._check_push(config)

    async def extended_card(self, request: CardRequest, caller: Caller) -> AgentCard:
        """Read the card for authenticated callers."""
        if not self.offers.extended_card:
            raise UnsupportedOperation("This agent has no extended card")  # as its card states (3.3.4)
        if self.extended is None:
            raise ExtendedCardNotConfigured
        return self.extended()

    # --- other agents ---------------------------------------------------------------------------------------------

    async def call(self, message: Message, caller: Caller, parent: ParentExecution) -> str:
        """Send a message to this agent for an execution, and return the task id.

        A new task is recorded under the execution's step.
        """
        try:
            return (await self._intake.accept(SendRequest(message=message), caller, parent)).task.id
        except UnsupportedOperation:
            if message.task_id is None:
                raise
            return message.task_id  # it has ended meanwhile, which the waiting execution will see

    async def spawn(self, request: SendRequest, caller: Caller, parent: ParentExecution) -> str:
        """Create an independent task for an execution's caller, and return its id. It is recorded under the step."""
        return (await self._intake.accept(request, caller, parent)).task.id

    async def prepare_child(
        self, message: Message, timeout_ms: int | None, caller: Caller, parent: ParentExecution, places: ExitStack
    ) -> PreparedChild:
        """Return a child task of this agent that is prepared, but not yet created."""
        limit = None if timeout_ms is None else {TASK_CONFIG: {"timeout": timeout_ms}}
        ready = await self._intake.ready(SendRequest(message=message, metadata=limit), caller, parent, places)
        return PreparedChild(ready.accept, partial(self._intake.start_created_task, ready))


async def _no_events() -> AsyncIterator[Event]:
    return
    yield


def _answer(task: Task) -> Message:
    if task.status.message is not None:
        return replace(task.status.message, task_id=None)
    parts = joined_text(tuple(part for artifact in task.artifacts for part in artifact.parts))
    return Message(message_id=task.id, role=Role.AGENT, parts=parts or (Part(text=""),), context_id=task.context_id)


def _is_late(task: Task) -> bool:
    message = task.status.message
    return task.status.state is TaskState.FAILED and message is not None and message.parts == (Part(text=LATE),)


class _Retryable:
    """Turns a StoreUnavailable into AgentUnavailable with a retry time, and a BadValue into InvalidParams."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, BadValue):
            raise InvalidParams(f"Invalid parameters: {error}") from None
        if isinstance(error, StoreUnavailable):
            raise AgentUnavailable(
                "The task store is not available at the moment; try again", retry_after=RETRY_SECONDS
            ) from error


_retryable = _Retryable()


def apply_stream_options(stream: TaskEvents, request: SendRequest) -> None:
    """Apply a request's options to the events after its task."""
    task = stream.head.body
    if not request.include_intermediates and isinstance(task, Task):
        stream.pass_through(_outcome(task, stream.rest))
    if request.buffer_size is not None:
        stream.pass_through(_cut_up(stream.rest, request.buffer_size))


async def _cut_up(events: AsyncIterator[Event], size: int) -> AsyncIterator[Event]:
    async for event in events:
        if not isinstance(event.body, ArtifactUpdate):
            yield event
            continue
        for piece in _pieces(event, event.body, size):
            yield piece


async def _outcome(task: Task, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """Yield at each turn's end its whole artifacts and its status."""
    held: list[Event] = []
    async for event in events:
        held.append(event)
        if at_turn_end(event):
            task, before = lifecycle.fold(task, held[:-1]), held[-1].seq - 1
            for artifact in task.artifacts:
                yield Event(seq=before, body=_whole(task, artifact), at=event.at)
            task, held = lifecycle.apply(task, event.body), []
            yield event


def _whole(task: Task, artifact: Artifact) -> ArtifactUpdate:
    return ArtifactUpdate(task_id=task.id, context_id=task.context_id or "", artifact=artifact, last_chunk=True)


def _pieces(event: Event, update: ArtifactUpdate, size: int) -> Iterator[Event]:
    """Cut long texts.

    All pieces but the last have the preceding number, so that resuming after one repeats the event.
    """
    cut = [piece for part in update.artifact.parts for piece in _cut(part, size)]
    for at, part in enumerate(cut):
        is_last = at == len(cut) - 1
        piece = replace(
            update,
            artifact=replace(update.artifact, parts=(part,)),
            append=update.append or at > 0,
            last_chunk=update.last_chunk and is_last,
        )
        yield Event(seq=event.seq if is_last else event.seq - 1, body=piece, at=event.at)


def _cut(part: Part, size: int) -> Iterator[Part]:
    """Yield a text part in pieces of at most `size` bytes that split no character. Other parts are not changed."""
    if part.text is None or len(part.text.encode()) <= size:
        yield part
        return
    piece, used = "", 0
    for character in part.text:
        width = len(character.encode())
        if piece and used + width > size:
            yield replace(part, text=piece)
            piece, used = "", 0
        piece, used = piece + character, used + width
    yield replace(part, text=piece)
