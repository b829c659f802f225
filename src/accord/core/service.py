"""A2A's semantics over tasks that live in memory, as long as the process does.

It knows no dialect and no binding: model in, model out, `AccordError` for every refusal. Each task has one log; the
task itself, blocking answers and streams are views of it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable

from msgspec.structs import replace

from accord.core.ids import new_id
from accord.core.interface import Agent, Caller
from accord.errors import (
    InvalidParams,
    PushNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
    Violation,
)
from accord.model import (
    AgentCard,
    Artifact,
    ArtifactUpdate,
    CancelRequest,
    CardRequest,
    Event,
    EventBody,
    GetRequest,
    Message,
    MessageUpdate,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    PushPage,
    Role,
    SendConfiguration,
    SendRequest,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
    TaskState,
    TaskStatus,
)
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle

DEFAULT_PAGE_SIZE = 50
"""A2A 1.0, 3.1.4."""

log = logging.getLogger("accord.service")


class Record:
    """One task, its log and those who wait for it to grow."""

    def __init__(self, task: Task, caller: Caller) -> None:
        self.caller = caller
        self.events: list[Event] = []
        self.running: asyncio.Task[None] | None = None
        self._snapshot = task
        self._folded = 0
        self._grown = asyncio.Event()

    @property
    def task(self) -> Task:
        """The task as it is now: the last snapshot and what came after it."""
        self._snapshot = lifecycle.fold(self._snapshot, self.events[self._folded :])
        self._folded = len(self.events)
        return self._snapshot

    def append(self, body: EventBody, at: str) -> None:
        """Keep an event and wake whoever follows; chunks are put together only when somebody looks."""
        event = Event(seq=len(self.events) + 1, body=body, at=at)
        if not isinstance(body, ArtifactUpdate):
            self._snapshot = lifecycle.apply(self.task, body)
            self._folded = event.seq
        self.events.append(event)
        self._grown.set()
        self._grown = asyncio.Event()

    async def follow(self, after: int) -> AsyncIterator[Event]:
        """Yield every event after a sequence number, until the task ends or waits for its caller."""
        while True:
            grown = self._grown
            for event in self.events[after:]:
                after = event.seq
                yield event
            if after == len(self.events) and self.is_settled:
                return
            if after == len(self.events):
                await grown.wait()

    @property
    def is_settled(self) -> bool:
        """Whether nothing more happens without the caller."""
        return self._snapshot.status.state in lifecycle.ENDED | lifecycle.INTERRUPTED


class Service:
    """The A2A interface over one agent."""

    def __init__(
        self,
        agent: Agent,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        make_id: Callable[[], str] = new_id,
    ) -> None:
        """Serve `agent`; clock and ids can be injected."""
        self._agent = agent
        self._now_ms = now_ms
        self._make_id = make_id
        self._records: dict[str, Record] = {}

    async def send(self, request: SendRequest, caller: Caller) -> Task | Message:
        """Send a message and answer with the task, once it ended or waits, or at once if asked so."""
        configuration = request.configuration or SendConfiguration()
        record = self._accept(request, caller)
        if not configuration.return_immediately:
            async for _ in record.follow(len(record.events)):
                pass
        return lifecycle.limit_history(record.task, configuration.history_length)

    async def stream(self, request: SendRequest, caller: Caller) -> AsyncIterator[Event]:
        """Send a message and follow what comes of it; the first event is the task."""
        configuration = request.configuration or SendConfiguration()
        record = self._accept(request, caller)
        seen = len(record.events)
        first = lifecycle.limit_history(record.task, configuration.history_length)
        yield Event(seq=seen, body=first, at=first.status.timestamp)
        async for event in record.follow(seen):
            yield event

    async def get(self, request: GetRequest, caller: Caller) -> Task:
        """Read one task."""
        return lifecycle.limit_history(self._find(request.id, caller).task, request.history_length)

    async def list(self, request: TaskFilter, caller: Caller) -> TaskPage:
        """List tasks, newest status first."""
        tasks = [record.task for record in self._records.values() if _is_owner(record, caller)]
        found = sorted((task for task in tasks if _matches(task, request)), key=_newest, reverse=True)
        after = _page_start(request.page_token)
        rest = found if after is None else [task for task in found if _newest(task) < after]
        size = request.page_size or DEFAULT_PAGE_SIZE
        token = "~".join(_newest(rest[size - 1])) if len(rest) > size else ""
        page = tuple(_shown(task, request) for task in rest[:size])
        return TaskPage(tasks=page, next_page_token=token, page_size=size, total_size=len(found))

    async def cancel(self, request: CancelRequest, caller: Caller) -> Task:
        """Cancel one task."""
        record = self._find(request.id, caller)
        if record.task.status.state in lifecycle.TERMINAL:
            raise TaskNotCancelable(metadata={"taskId": request.id})
        if record.running is not None:
            record.running.cancel()
        self._status(record, TaskState.CANCELED, request.reason)
        return record.task

    async def subscribe(self, request: SubscribeRequest, caller: Caller) -> AsyncIterator[Event]:
        """Follow a task that has not ended; the first event is the task as it is now."""
        record = self._find(request.id, caller)
        if record.task.status.state in lifecycle.ENDED:
            raise UnsupportedOperation("The task has ended; there is nothing left to follow")
        seen = len(record.events)
        yield Event(seq=seen, body=record.task, at=record.task.status.timestamp)
        async for event in record.follow(seen):
            yield event

    async def push_set(self, request: PushConfig, caller: Caller) -> PushConfig:
        """Refuse: this service sends no push notifications."""
        raise PushNotSupported

    async def push_get(self, request: PushGetRequest, caller: Caller) -> PushConfig:
        """Refuse: this service sends no push notifications."""
        raise PushNotSupported

    async def push_list(self, request: PushListRequest, caller: Caller) -> PushPage:
        """Refuse: this service sends no push notifications."""
        raise PushNotSupported

    async def push_delete(self, request: PushDeleteRequest, caller: Caller) -> int:
        """Refuse: this service sends no push notifications."""
        raise PushNotSupported

    async def extended_card(self, request: CardRequest, caller: Caller) -> AgentCard:
        """Refuse: the card says that there is no extended one (3.3.4)."""
        raise UnsupportedOperation("This agent has no extended card")

    def origin(self, task_id: str) -> str | None:
        """Return the edge's note of how the caller that created a task came in."""
        record = self._records.get(task_id)
        return record.caller.origin if record else None

    async def close(self) -> None:
        """Cancel whatever still runs."""
        running = [record.running for record in self._records.values() if record.running is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # --- accepting a message --------------------------------------------------------------------------------------

    def _accept(self, request: SendRequest, caller: Caller) -> Record:
        configuration = request.configuration
        if configuration is not None and configuration.task_push_notification_config is not None:
            raise PushNotSupported
        if request.message.task_id:
            return self._continue(request.message, caller)
        return self._start(request.message, request.metadata, caller)

    def _continue(self, message: Message, caller: Caller) -> Record:
        record = self._find(message.task_id or "", caller)
        if message.context_id and message.context_id != record.task.context_id:
            raise _invalid("message.contextId", "Not the context of the task")
        if record.task.status.state in lifecycle.ENDED:
            raise UnsupportedOperation("The task has ended and accepts no more messages")
        said = self._completed(message, record.task)
        record.append(
            MessageUpdate(task_id=record.task.id, context_id=record.task.context_id or "", message=said), self._now()
        )
        return record

    def _start(self, message: Message, metadata: dict[str, object] | None, caller: Caller) -> Record:
        status = TaskStatus(state=TaskState.SUBMITTED, timestamp=self._now())
        context = message.context_id or self._make_id()
        task = Task(id=self._make_id(), context_id=context, status=status, metadata=metadata)
        said = self._completed(message, task)
        record = self._records[task.id] = Record(replace(task, history=(said,)), caller)
        record.running = asyncio.create_task(self._run(record, said), name=f"agent {task.id}")
        return record

    def _completed(self, message: Message, task: Task) -> Message:
        return replace(
            message, message_id=message.message_id or self._make_id(), task_id=task.id, context_id=task.context_id
        )

    # --- running the agent ----------------------------------------------------------------------------------------

    async def _run(self, record: Record, message: Message) -> None:
        self._status(record, TaskState.WORKING)
        try:
            await self._collect(record, message)
        except Exception:  # an agent may raise anything: logged in full, shown as nothing
            log.exception("agent failed", extra={"task_id": record.task.id})
            self._status(record, TaskState.FAILED, "The agent failed")
        else:
            self._status(record, TaskState.COMPLETED)

    async def _collect(self, record: Record, message: Message) -> None:
        artifact_id, task = self._make_id(), record.task
        count = 0
        async for part in self._agent.run(message):
            artifact = Artifact(artifact_id=artifact_id, parts=(part,))
            update = ArtifactUpdate(
                task_id=task.id, context_id=task.context_id or "", artifact=artifact, append=count > 0
            )
            record.append(update, self._now())
            count += 1
            await asyncio.sleep(0)  # an agent that never waits must not keep everybody else waiting

    def _status(self, record: Record, state: TaskState, text: str | None = None) -> None:
        task, at = record.task, self._now()
        said = text and Message(
            message_id=self._make_id(),
            role=Role.AGENT,
            parts=(Part(text=text),),
            task_id=task.id,
            context_id=task.context_id,
        )
        status = TaskStatus(state=state, timestamp=at, message=said or None)
        record.append(StatusUpdate(task_id=task.id, context_id=task.context_id or "", status=status), at)

    def _find(self, task_id: str, caller: Caller) -> Record:
        record = self._records.get(task_id)
        if record is None or not _is_owner(record, caller):
            raise TaskNotFound(metadata={"taskId": task_id})
        return record

    def _now(self) -> str:
        return timestamp_ms(self._now_ms())


def _is_owner(record: Record, caller: Caller) -> bool:
    return (record.caller.tenant, record.caller.owner) == (caller.tenant, caller.owner)


def _matches(task: Task, request: TaskFilter) -> bool:
    return (
        (request.context_id is None or task.context_id == request.context_id)
        and (request.status is None or task.status.state is request.status)
        and (request.status_timestamp_after is None or (task.status.timestamp or "") >= request.status_timestamp_after)
    )


def _newest(task: Task) -> tuple[str, str]:
    return (task.status.timestamp or "", task.id)


def _shown(task: Task, request: TaskFilter) -> Task:
    shown = lifecycle.limit_history(task, request.history_length)
    return shown if request.include_artifacts else replace(shown, artifacts=())


def _page_start(token: str | None) -> tuple[str, str] | None:
    """Return the key after which a page begins."""
    if not token:
        return None
    at, separator, identifier = token.partition("~")
    if not separator:
        raise _invalid("pageToken", "Not a token that this server gave out")
    return at, identifier


def _invalid(field: str, reason: str) -> InvalidParams:
    return InvalidParams(f"Invalid parameters: `{field}`: {reason}", violations=(Violation(field, reason),))
