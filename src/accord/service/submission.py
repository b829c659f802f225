"""Submission of a message: to a new task, an open task, or the task of a duplicate."""

import hashlib
from contextlib import ExitStack
from enum import Enum
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import Caller
from accord.engine import tracing
from accord.engine.agent import Crash
from accord.engine.hooks import TaskAccepted
from accord.engine.log_writer import ExecutionStart
from accord.engine.node import Node
from accord.errors import ContentTypeNotSupported, InvalidParams, TaskNotFound, UnsupportedOperation
from accord.model import Event, Message, PushConfig, SendRequest, StatusUpdate, Task, TaskState, TaskStatus
from accord.model.base import timestamp_ms
from accord.model.metadata_keys import BUDGET
from accord.protocol import lifecycle
from accord.protocol.budgets import BudgetRequest, read_budget_request, smaller_limit
from accord.protocol.codec import invalid_field
from accord.protocol.extensions import ROUTE, route_of
from accord.storage.commands import task_endings, task_lifecycle
from accord.storage.commands.steps import ParentExecution
from accord.storage.commands.tasks import StoredTask, TaskCreation

PRIORITIES = {"high": -10, "normal": 0, "low": 10}
"""The caller's priority -> the job's number. Smaller numbers run first."""


class Submission(Struct, frozen=True):
    """A task and the sequence number of its last included event.

    `events` are events committed after it by this node, so a subscriber need not read them.
    """

    task: Task
    seq: int
    events: tuple[Event, ...] = ()


class FirstReply(Enum):
    """The first result that the sender waits for."""

    TASK = "the task, and perhaps nothing else"
    EVENTS = "the task, and then what comes of it"
    END = "what became of it"


class PreparedTask(Struct, frozen=True):
    """A task that is ready to be stored."""

    accept: task_lifecycle.AcceptRequest
    task: Task
    caller: Caller

    @property
    def events(self) -> tuple[Event, ...]:
        """The event that reports the start.

        Empty if no node claims the task yet or the agent reports the start itself.
        """
        accept = self.accept
        if accept.working is None:
            return ()
        return (Event(seq=1, body=accept.working, at=timestamp_ms(accept.new.at)),)


class TaskSubmission:
    """Submits messages to one agent."""

    def __init__(self, node: Node, agent: str) -> None:
        """Submit messages to the node's agent with that name."""
        self._node = node
        self._agent = agent
        self._served = node.agents[agent]

    @property
    def place(self) -> str:
        """The agent's name in the route of a message."""
        return f"{self._node.task_store.server_id}/{self._agent}"

    async def accept(
        self,
        request: SendRequest,
        caller: Caller,
        parent: ParentExecution | None = None,
        hears: FirstReply = FirstReply.TASK,
    ) -> Submission:
        """Store a message and start work on it. Returns the task as it was before that.

        With a `parent`, an execution is the caller: the new task is recorded there and ends with it.
        """
        self._check(request.message)
        request = _within_budget(request)
        if request.is_held:
            work = self._work(request, None, is_held=True)
            return await self._create_and_start(await self._prepare(request, caller, work, parent))
        with self._node.slots.reserve(self._agent) as node_id:
            work = self._work(request, node_id)
            if request.message.task_id:
                return await self._continue(request, caller, work, calls=parent is not None)
            return await self._create_and_start(await self._prepare(request, caller, work, parent), hears)

    async def find(self, task_id: str, caller: Caller) -> tuple[StoredTask, Task]:
        """Read a task of the caller. A missing task and another owner's task raise the same error."""
        found = await self._node.task_store.read(caller.tenant, task_id, caller.files_at)
        if found is None or caller.reach not in (None, found[0].owner) or found[0].agent != self._agent:
            raise TaskNotFound(metadata={"taskId": task_id})
        return found

    # --- a new task -----------------------------------------------------------------------------------------------

    async def _create_and_start(self, ready: PreparedTask, hears: FirstReply = FirstReply.TASK) -> Submission:
        store, caller, profile = self._node.store, ready.caller, self._served.profile
        is_early = hears is FirstReply.END and ready.accept.work.node is not None and profile.crash is not Crash.FAIL
        try:  # an execution that must not be repeated is on disk before it starts
            accepted = await (store.do_early if is_early else store.do)(
                task_lifecycle.accept_task, caller.tenant, ready.accept
            )
        except task_lifecycle.IdempotencyConflict:
            raise _other_send() from None
        is_followed = hears is FirstReply.EVENTS and accepted.job is not None
        if is_followed:
            self._node.slots.defer(self._agent, partial(self.start_created_task, ready, accepted))
        else:
            self.start_created_task(ready, accepted)
        if accepted.is_repeated:
            stored, task = await self.find(accepted.task_id, caller)
            return Submission(task, stored.last_seq)
        return Submission(ready.task, 0, ready.events if is_followed else ())

    async def ready(
        self, request: SendRequest, caller: Caller, parent: ParentExecution, places: ExitStack
    ) -> PreparedTask:
        """Return a child task that is prepared, with a slot on this node if one is free."""
        self._check(request.message)
        request = _within_budget(request)
        node_id = places.enter_context(self._node.slots.reserve(self._agent))
        return await self._prepare(request, caller, self._work(request, node_id), parent)

    async def _prepare(
        self, request: SendRequest, caller: Caller, work: task_lifecycle.JobOptions, parent: ParentExecution | None
    ) -> PreparedTask:
        node, at, message = self._node, self._node.now_ms(), request.message
        due = None if work.is_held else self._due(request, at)
        task_id = node.make_id()
        context_id, time = message.context_id or node.make_id(), timestamp_ms(at)
        message_id = message.message_id or node.make_id()
        task = Task(
            id=task_id,
            context_id=context_id,
            status=TaskStatus(state=TaskState.SUBMITTED, timestamp=time),
            history=(replace(message, message_id=message_id, task_id=task_id, context_id=context_id),),
            metadata=request.metadata,
        )
        new = TaskCreation(
            task=task,
            agent=self._agent,
            owner=caller.owner,
            at=at,
            origin=caller.origin,
            parent_id=None if parent is None or not parent.owns else parent.task_id,
            deadline_at=smaller_limit(due, None if parent is None else parent.deadline_at),
            trace=tracing.current(),
        )
        if node.task_store.has_large(task.history[0]):  # large parts become blobs
            packed = await node.task_store.pack(caller.tenant, (), task)
            new = replace(new, task=packed.snapshot or task, blobs=packed.blobs)
        working = None
        if work.node and not self._served.profile.reports_start:
            status = TaskStatus(state=TaskState.WORKING, timestamp=time)
            working = StatusUpdate(task_id=task_id, context_id=context_id, status=status)
        key, name = (None, None) if parent is not None else self._keys(message, caller)
        accept = task_lifecycle.AcceptRequest(
            new=new,
            message_id=message_id,
            work=work,
            key=key,
            name=name,
            parent=parent,
            working=working,
            deadline_ms=None if due is None else max(0, due - at),
            push=self._push(request, task_id, caller.tenant),
        )
        return PreparedTask(accept, task, caller)

    def start_created_task(self, ready: PreparedTask, accepted: task_lifecycle.Acceptance) -> None:
        """Start a created task, unless it is a duplicate."""
        self._report_acceptance(ready.caller, accepted.task_id, is_new=not accepted.is_repeated)
        if accepted.is_repeated:
            return
        if ready.accept.deadline_ms is not None:
            self._node.alarm(ready.accept.deadline_ms)
        if accepted.job is None:
            return
        new, working = ready.accept.new, ready.accept.working
        seq = 0 if working is None else 1
        start = ExecutionStart(
            job=accepted.job,
            task=ready.task if working is None else lifecycle.apply(ready.task, working),
            seq=seq,
            snapshot_seq=seq,
            message=ready.task.history[0],
            caller=ready.caller,
            steps={},
            deadline_at=new.deadline_at,
            parent_id=new.parent_id,
            has_large=bool(new.blobs),
            trace=new.trace,
        )
        self._node.start_execution(self._agent, start)

    def _due(self, request: SendRequest, at: int) -> int | None:
        """Return the deadline of a task, from the timeout of caller or profile, or earlier from its budget."""
        timeout, metadata = self._served.profile.timeout, request.message.metadata
        if timeout is None and metadata is None and request.metadata is None:
            return None
        timeout_ms = request.timeout_ms or (round(timeout * 1000) if timeout else None)
        asked = read_budget_request(metadata)
        return smaller_limit(
            None if timeout_ms is None else at + timeout_ms, None if asked is None else asked.deadline_at(at)
        )

    # --- an open task ---------------------------------------------------------------------------------------------

    async def _continue(
        self, request: SendRequest, caller: Caller, work: task_lifecycle.JobOptions, *, calls: bool
    ) -> Submission:
        node, message, task_id = self._node, request.message, request.message.task_id or ""
        at, asked = node.now_ms(), read_budget_request(message.metadata) or BudgetRequest()
        message_id = message.message_id or node.make_id()
        said = replace(message, message_id=message_id, task_id=task_id, context_id=message.context_id or None)
        packed, blobs = await node.task_store.pack_message(caller.tenant, said)
        key, name = self._keys(message, caller, calls=calls)
        say = task_lifecycle.MessageRequest(
            task_id=task_id,
            message=packed,
            blobs=blobs,
            work=work,
            at=at,
            owner=caller.owner,
            agent=self._agent,
            origin=caller.origin,
            key=key,
            name=name,
            push=self._push(request, task_id, caller.tenant),
            budget=asked.budget,
            deadline_at=asked.deadline_at(at),
            trace=tracing.current(),
        )
        try:
            done = await node.store.do(task_lifecycle.add_message, caller.tenant, say)
        except task_endings.NoSuchTask:
            raise TaskNotFound(metadata={"taskId": task_id}) from None
        except task_lifecycle.ContextMismatch:
            raise invalid_field("message.contextId", "Not the context of the task") from None
        except task_lifecycle.IdempotencyConflict:
            raise _other_send() from None
        except task_endings.TaskHasEnded:
            raise UnsupportedOperation("The task has ended and accepts no more messages") from None
        task = await node.task_store.unpack(caller.tenant, done.stored)
        if done.job is not None:
            node.start_from_stored(done.job, done.stored, task, done.steps)
        if say.deadline_at is not None:
            node.alarm(max(0, say.deadline_at - at))
        self._report_acceptance(caller, task_id, is_new=False)
        return Submission(task, done.stored.last_seq)

    # --- a held task ----------------------------------------------------------------------------------------------

    async def start_held_task(self, task_id: str, caller: Caller) -> Task:
        """Start a held task. Its timeout begins now. A started task is not changed."""
        node = self._node
        _, held = await self.find(task_id, caller)
        request = SendRequest(message=held.history[0], metadata=held.metadata)
        with node.slots.reserve(self._agent) as node_id:
            at = node.now_ms()
            due = self._due(request, at)
            begin = task_lifecycle.StartRequest(
                task_id=task_id, at=at, owner=caller.owner, agent=self._agent, node=node_id, deadline_at=due
            )
            try:
                done = await node.store.do(task_lifecycle.start_held_task, caller.tenant, begin)
            except task_endings.NoSuchTask:
                raise TaskNotFound(metadata={"taskId": task_id}) from None
            except task_endings.TaskHasEnded:
                raise UnsupportedOperation("The task was canceled before it began") from None
            task = await node.task_store.unpack(caller.tenant, done.stored)
            if done.job is not None:
                node.start_from_stored(done.job, done.stored, task, done.steps)
            if due is not None and not done.is_repeated:
                node.alarm(max(0, due - at))
        return task

    # --- helpers --------------------------------------------------------------------------------------------------

    def _work(self, request: SendRequest, node_id: str | None, *, is_held: bool = False) -> task_lifecycle.JobOptions:
        return task_lifecycle.JobOptions(
            queue=self._agent,
            priority=PRIORITIES[request.priority],
            max_attempts=self._served.profile.max_attempts,
            node=node_id,
            is_held=is_held,
        )

    def _push(self, request: SendRequest, task_id: str, tenant: str) -> PushConfig | None:
        """Return the webhook of a message in its stored form.

        A webhook without an id gets the task's id, as in the official SDK. A client that sends its webhook with each
        message then gets each event once.
        """
        push = request.configuration.task_push_notification_config if request.configuration else None
        if push is None:
            return None
        return self._node.task_store.webhook_secrets.seal(tenant, replace(push, id=push.id or task_id, task_id=task_id))

    def _keys(self, message: Message, caller: Caller, *, calls: bool = False) -> tuple[str | None, str | None]:
        """Return the idempotency key of a send, and the name that its caller gave.

        The key is a digest of caller, agent, message id and content: two different messages with one id are not
        duplicates. An execution that `calls` never sends duplicates. The caller's idempotency key replaces the message
        id, because some clients create a new id for each retry, and may be used for one message only.
        """
        owner, agent, named = caller.owner, self._agent, None if calls else caller.idempotency_key
        if named is not None:
            return _digest(owner, agent, named, replace(message, message_id="")), _digest(owner, agent, named)
        if not message.message_id or (self._served.profile.takes_repeats and not calls):
            return None, None
        return _digest(owner, agent, message), None

    def _check(self, message: Message) -> None:
        """Refuse media types that the agent does not accept, and messages that loop between servers."""
        route = None if message.metadata is None else route_of((message,))
        if route is not None and self.place in route.servers:
            raise invalid_field(
                f"message.metadata.{ROUTE}",
                f"The message has passed agent '{self._agent}' of this server before: servers call each other in a loop"
                f" ({' -> '.join((*route.servers, self.place))})",
            )
        if route is not None and route.hops > (most := self._node.limits.hops):
            raise invalid_field(
                f"message.metadata.{ROUTE}",
                f"{route.hops} servers have passed the message on, and at most {most} may (engine.hops)",
            )
        for part in message.parts:
            if part.media_type and not _accepts(accepted := self._served.profile.input_modes, part.media_type):
                raise ContentTypeNotSupported(
                    f"The agent does not take {part.media_type[:60]}; it takes {', '.join(accepted)}"
                )

    def _report_acceptance(self, caller: Caller, task_id: str, *, is_new: bool) -> None:
        self._node.hooks.emit(TaskAccepted(tenant=caller.tenant, task_id=task_id, agent=self._agent, is_new=is_new))


def _digest(*said: str | Message) -> str:
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()


def _other_send() -> InvalidParams:
    return invalid_field("Idempotency-Key", "Something else was sent under this key within a day")


def _within_budget(request: SendRequest) -> SendRequest:
    """Return the request with the request's budget in its message, or raise if the budget is not valid."""
    message, said = request.message, request.metadata
    if message.metadata is None and said is None:
        return request
    if read_budget_request(message.metadata) is not None or read_budget_request(said, "metadata") is None:
        return request
    assert said is not None  # it contains a budget
    return replace(request, message=replace(message, metadata={**(message.metadata or {}), BUDGET: said[BUDGET]}))


def _accepts(modes: tuple[str, ...], media_type: str) -> bool:
    """Whether one of the modes covers a media type. Parameters are ignored."""
    wanted = media_type.partition(";")[0].strip().lower()
    family = wanted.partition("/")[0] + "/*"
    return any(mode.lower() in (wanted, family, "*/*", "*") for mode in modes)
