"""The life of a task: accepted, continued by messages and signals, and settled by its execution.

Each command changes the task, its event log, its job and its timers in one transaction. Ends from outside are in
`task_endings`.
"""

from msgspec import Struct
from msgspec.structs import replace

from accord.model import (
    EventBody,
    Message,
    MessageUpdate,
    PushConfig,
    StatusUpdate,
    TaskState,
    TaskStatus,
)
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.protocol.budgets import Budget
from accord.storage.commands import jobs, steps, webhooks
from accord.storage.commands.jobs import DEADLINE, EXECUTE_TASK, ClaimedJob, NewJob
from accord.storage.commands.steps import ChildWatch, ParentExecution
from accord.storage.commands.task_endings import (
    NoSuchTask,
    TaskHasEnded,
    TaskTimer,
    end_leftovers,
    raise_fence,
    require_access,
    set_timer,
)
from accord.storage.commands.tasks import (
    Append,
    EndedTask,
    StoredTask,
    TaskCreation,
    TaskHead,
    append,
    create_task,
    extend,
    lock_head,
    read_task,
    task_topic,
)
from accord.storage.store import Tx

IDEMPOTENCY_MS = 24 * 3600 * 1000
"""How long a repeated send returns the task of the first."""


class JobOptions(Struct, frozen=True, kw_only=True):
    """How to run a task's job: on `node` at once if set, else on the node that claims it.

    With `is_held` the task is not executed until it is started.
    """

    queue: str
    priority: int = 0
    max_attempts: int = 3
    node: str | None = None
    is_held: bool = False


class AcceptRequest(Struct, frozen=True, kw_only=True):
    """A message that creates a task."""

    new: TaskCreation
    message_id: str
    work: JobOptions
    key: str | None = None
    """The idempotency key. A message with the same key is a duplicate."""
    name: str | None = None
    """The name that no other message may use."""
    parent: ParentExecution | None = None
    """For a child task, the creating execution. A message of the same step is a duplicate."""
    working: StatusUpdate | None = None
    """The first event of the task, if a node claims it at once."""
    deadline_ms: int | None = None
    push: PushConfig | None = None


class MessageRequest(Struct, frozen=True, kw_only=True):
    """A message to an existing task. It can only tighten the task's budget and deadline.

    A `trace` replaces the task's trace.
    """

    task_id: str
    message: Message
    work: JobOptions
    at: int
    owner: str | None = None
    agent: str | None = None
    key: str | None = None
    name: str | None = None
    push: PushConfig | None = None
    origin: str | None = None
    blobs: tuple[str, ...] = ()
    budget: Budget = Budget()
    deadline_at: int | None = None
    trace: str | None = None


class StartRequest(Struct, frozen=True, kw_only=True):
    """A request to start a held task, on `node` if set. `deadline_at` can only shorten its deadline."""

    task_id: str
    at: int
    owner: str | None = None
    agent: str | None = None
    node: str | None = None
    deadline_at: int | None = None


class Acceptance(Struct, frozen=True, kw_only=True):
    """The result of a message."""

    task_id: str
    is_repeated: bool = False
    """Whether the message is a duplicate."""
    job: ClaimedJob | None = None
    """The task's job, if this node claimed it."""


class Continuation(Acceptance, frozen=True, kw_only=True):
    """The result of a message to an existing task, with the updated task."""

    stored: StoredTask
    steps: dict[str, str] = {}
    """The task's steps, if this node claimed the job."""


class SettleRequest(Struct, frozen=True, kw_only=True):
    """The end of an execution: its last events, and the fate of its job."""

    last: Append
    job: ClaimedJob
    entries: tuple[tuple[str, str], ...] = ()
    """Steps to store, as (key, output)."""
    parks: bool = False
    """Whether the job is suspended. Otherwise it is deleted."""
    delay_ms: int | None = None
    """The maximum time of the suspension."""
    awaited: str | None = None
    """The step that the task waits for."""
    child: str | None = None
    """The child task whose question was passed on to the caller."""
    watch: ChildWatch | None = None
    """All steps and child tasks that the task waits for, in place of `awaited` and `child`."""
    parent_id: str | None = None
    """The parent task, if it waits for this one."""

    @property
    def ended(self) -> list[EndedTask]:
        """The task, if this ends it."""
        job, state = self.job, self.last.state
        if self.parks or state is None or state not in lifecycle.ENDED:
            return []
        return [EndedTask(job.tenant, job.key, job.queue, state)]


class TaskSignal(Struct, frozen=True, kw_only=True):
    """A value from outside for a suspended task, under the key that it waits for."""

    task_id: str
    key: str
    output: str
    at: int


class ContextMismatch(Exception):
    """The message names a different context than its task's."""


class IdempotencyConflict(Exception):
    """Another message was sent with the same name."""


class AlreadySignaled(Exception):
    """The awaited value or change has already arrived."""


async def accept_task(tx: Tx, tenant: str, request: AcceptRequest) -> Acceptance:
    """Store a new task and its job. A duplicate returns the existing task."""
    new, work, task_id = request.new, request.work, request.new.task.id
    if request.key is not None and (known := await _find_duplicate(tx, tenant, request.key, task_id)):
        return Acceptance(task_id=known, is_repeated=True)
    await _claim_name(tx, tenant, request.name, task_id)
    if request.parent and (known := await steps.adopt_child(tx, tenant, request.parent, task_id, new.at)):
        return Acceptance(task_id=known, is_repeated=True)
    begins = [] if request.working is None or work.node is None else [request.working]
    await create_task(tx, tenant, new, int(work.node is not None), begins)
    job = await jobs.enqueue(tx, tenant, _run_job(task_id, request.message_id, work))
    if request.deadline_ms is not None:
        await set_timer(tx, tenant, TaskTimer(task_id=task_id, kind=DEADLINE, delay_ms=request.deadline_ms))
    if request.push is not None:
        await webhooks.put(tx, tenant, task_id, request.push, new.origin or "", after=0)
    return Acceptance(task_id=task_id, job=job)


async def add_message(tx: Tx, tenant: str, request: MessageRequest) -> Continuation:
    """Append a message to a task and requeue the task.

    It writes no snapshot, so its cost does not depend on the task's length. The resulting execution writes one when it
    settles.
    """
    head = require_access(await lock_head(tx, tenant, request.task_id), request.task_id, request.owner, request.agent)
    if request.message.context_id not in (None, head.context_id):
        raise ContextMismatch(f"Task {head.id} does not belong to context {request.message.context_id}")
    if request.key is not None and await _find_duplicate(tx, tenant, request.key, head.id):
        return Continuation(task_id=head.id, is_repeated=True, stored=await _reread(tx, tenant, head))
    await _claim_name(tx, tenant, request.name, head.id)
    if head.task_state in lifecycle.ENDED:
        raise TaskHasEnded(head.task_state)
    await append(tx, tenant, _message_events(head, request))
    await _tighten(tx, tenant, head, request)
    if request.trace is not None:
        await _set_trace(tx, tenant, head, request.trace)
    if request.push is not None:
        dialect = request.origin or head.origin or ""
        await webhooks.put(tx, tenant, head.id, request.push, dialect, after=head.last_seq)
    if head.parent_id is not None and head.task_state in lifecycle.INTERRUPTED:
        await steps.wake_parent(tx, tenant, head.parent_id, head.id)
    job = await requeue_task(tx, tenant, head, request.work, request.message.message_id)
    known = {} if job is None else await steps.load_steps(tx, tenant, head.id)
    return Continuation(task_id=head.id, job=job, stored=await _reread(tx, tenant, head), steps=known)


async def start_held_task(tx: Tx, tenant: str, request: StartRequest) -> Continuation:
    """Start a held task. A task that was started before is returned unchanged."""
    head = require_access(await lock_head(tx, tenant, request.task_id), request.task_id, request.owner, request.agent)
    if head.task_state is TaskState.CANCELED:
        raise TaskHasEnded(head.task_state)
    queue = await jobs.held_queue(tx, tenant, head.id)
    if queue is None or head.task_state is not TaskState.SUBMITTED:
        return Continuation(task_id=head.id, is_repeated=True, stored=await _reread(tx, tenant, head))
    await _shorten_deadline(tx, tenant, head, request.deadline_at, request.at)
    job = await requeue_task(tx, tenant, head, JobOptions(queue=queue, node=request.node))
    known = {} if job is None else await steps.load_steps(tx, tenant, head.id)
    return Continuation(task_id=head.id, job=job, stored=await _reread(tx, tenant, head), steps=known)


async def _tighten(tx: Tx, tenant: str, head: TaskHead, request: MessageRequest) -> None:
    """Tighten a task's budget and deadline."""
    await steps.tighten_budget(tx, tenant, head.id, request.budget, request.at)
    await _shorten_deadline(tx, tenant, head, request.deadline_at, request.at)


async def _shorten_deadline(tx: Tx, tenant: str, head: TaskHead, due: int | None, at: int) -> None:
    """Move a task's deadline earlier. A later `due` is ignored."""
    if due is not None and (head.deadline_at is None or due < head.deadline_at):
        await tx.run(
            "UPDATE task SET deadline_at = :due WHERE tenant = :tenant AND id = :id", tenant=tenant, id=head.id, due=due
        )
        delay_ms = max(0, due - at)
        await set_timer(tx, tenant, TaskTimer(task_id=head.id, kind=DEADLINE, delay_ms=delay_ms))


async def _set_trace(tx: Tx, tenant: str, head: TaskHead, trace: str) -> None:
    """Replace a task's trace with the sender's."""
    await tx.run(
        "UPDATE task SET trace = :trace WHERE tenant = :tenant AND id = :id", tenant=tenant, id=head.id, trace=trace
    )


def _message_events(head: TaskHead, request: MessageRequest) -> Append:
    """Return the events of a message for its task's log."""
    task_id, context_id = head.id, head.context_id
    message = replace(request.message, context_id=context_id)
    bodies: list[EventBody] = [MessageUpdate(task_id=task_id, context_id=context_id, message=message)]
    state = None
    if head.task_state in lifecycle.INTERRUPTED:  # the question joins the history before its answer
        state = TaskState.WORKING
        status = TaskStatus(state=state, timestamp=timestamp_ms(request.at))
        bodies.insert(0, StatusUpdate(task_id=task_id, context_id=context_id, status=status))
    return Append(
        task_id=task_id,
        epoch=head.epoch,
        after=head.last_seq,
        bodies=bodies,
        at=request.at,
        state=state,
        blobs=request.blobs,
    )


async def _reread(tx: Tx, tenant: str, head: TaskHead) -> StoredTask:
    stored = await read_task(tx, tenant, head.id)
    if stored is None:
        raise NoSuchTask(head.id)
    return stored


async def settle_execution(tx: Tx, tenant: str, request: SettleRequest) -> list[EndedTask]:
    """Append an execution's last events, and finish or suspend its job. Return the ended tasks."""
    watch = request.watch
    awaited = (request.awaited,) if request.awaited is not None else watch.keys if watch is not None else ()
    if awaited:
        # A command that wakes a task holds its row. Without the lock, this check would miss a concurrent signal.
        await tx.one(
            "SELECT 1 FROM task WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=request.job.key
        )
        for key in awaited:
            if await steps.find_step(tx, tenant, request.job.key, key) is not None:
                raise AlreadySignaled(key)
    others: list[EndedTask] = []
    children_started = await extend(tx, tenant, request.last)
    if request.entries:
        await steps.put_steps(tx, tenant, request.job.key, request.entries, request.last.at)
    if request.child is not None and not await steps.is_waiting_for_answer(tx, tenant, request.child):
        raise AlreadySignaled(request.child)
    if watch is not None and await steps.have_children_changed(tx, tenant, watch):
        raise AlreadySignaled(request.job.key)
    if request.parks:
        await jobs.park(tx, request.job, request.delay_ms, request.child if watch is None else steps.ANY_CHILD)
    elif request.last.state not in lifecycle.ENDED:
        await jobs.finish(tx, request.job)
    elif children_started:
        others = await end_leftovers(tx, tenant, request.job.key, request.last.at)
        await jobs.finish(tx, request.job)
    else:
        await jobs.finish_last(tx, request.job)
    if request.parent_id is not None:
        await steps.wake_parent(tx, tenant, request.parent_id, request.job.key)
    return [*request.ended, *others]


async def deliver_signal(tx: Tx, tenant: str, news: TaskSignal) -> bool:
    """Deliver a signal to a task. Return false if the key has a value already or the task has ended.

    A task given up as unknown continues: the signal is late, but valid.
    """
    head = await lock_head(tx, tenant, news.task_id)
    if head is None or head.task_state in lifecycle.TERMINAL:
        return False
    if not await steps.put_step(tx, tenant, news.task_id, news.key, news.output, news.at):
        return False
    tx.signal(task_topic(tenant, news.task_id))  # an execution that also waits for other things checks here
    await requeue_task(tx, tenant, head)
    return True


def _run_job(task_id: str, message_id: str, work: JobOptions, epoch: int = 0) -> NewJob:
    return NewJob(
        kind=EXECUTE_TASK,
        key=task_id,
        queue=work.queue,
        arg=message_id,
        priority=work.priority,
        max_attempts=work.max_attempts,
        node=work.node,
        epoch=epoch,
        parked=work.is_held,
    )


async def _find_duplicate(tx: Tx, tenant: str, key: str, task_id: str) -> str | None:
    """Return the task of an earlier duplicate. Otherwise record this task for the key."""
    noted = await tx.run(
        """INSERT INTO idempotency (tenant, key, task_id, expires_at) VALUES (:tenant, :key, :task_id, {now} + :ttl)
           ON CONFLICT (tenant, key) DO UPDATE SET task_id = excluded.task_id, expires_at = excluded.expires_at
           WHERE idempotency.expires_at < {now}""",
        tenant=tenant,
        key=key,
        task_id=task_id,
        ttl=IDEMPOTENCY_MS,
    )
    if noted:
        return None
    # This is a separate statement: the one above does not see a task committed while it waited for the key.
    row = await tx.one(
        """SELECT task_id FROM idempotency WHERE tenant = :tenant AND key = :key AND EXISTS (
               SELECT 1 FROM task WHERE task.tenant = idempotency.tenant AND task.id = idempotency.task_id)""",
        tenant=tenant,
        key=key,
    )
    if row is not None:
        return str(row[0])
    await tx.run(
        """UPDATE idempotency SET task_id = :task_id, expires_at = {now} + :ttl
           WHERE tenant = :tenant AND key = :key""",
        tenant=tenant,
        key=key,
        task_id=task_id,
        ttl=IDEMPOTENCY_MS,
    )
    return None


async def _claim_name(tx: Tx, tenant: str, name: str | None, task_id: str) -> None:
    """Reserve a message's name, or raise IdempotencyConflict. It expires like an idempotency key."""
    if name is not None and await _find_duplicate(tx, tenant, name, task_id):
        raise IdempotencyConflict(f"A message to task {task_id} has the name of another")


async def requeue_task(
    tx: Tx, tenant: str, head: TaskHead, work: JobOptions | None = None, message_id: str | None = None
) -> ClaimedJob | None:
    """Make a task's job due, or claim it for `work.node`. Creates a job if the task has none.

    A claimed job continues: its node finds the new events at its next write.
    """
    row = await tx.one(
        "SELECT id, node, queue FROM job WHERE tenant = :tenant AND kind = :kind AND key = :key {for_update}",
        tenant=tenant,
        kind=EXECUTE_TASK,
        key=head.id,
    )
    if row is None:
        made = work or JobOptions(queue=head.agent)
        job = await jobs.enqueue(tx, tenant, _run_job(head.id, message_id or "", made, head.epoch))
        if job is not None:
            await raise_fence(tx, tenant, head.id)
        return job
    id, holder, queue = row
    if holder is not None:
        return None
    await tx.run("UPDATE job SET parked = 0, child = NULL, run_at = {now} WHERE id = :id", id=id)
    if work is None or work.node is None:
        tx.signal(jobs.queue_topic(queue))
        return None
    return (await jobs.take(tx, work.node, [id]))[0]
