"""What happens to a task as a whole: it is accepted, continued, settled or woken.

Each command changes the task, its log, its job and its timers in one transaction. What a caller may do is decided in
`core.service`, and how a task ends from outside in `endings`; here is only what must not come apart.
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
from accord.storage.commands import children, jobs, pushes, steps, usage
from accord.storage.commands.children import Parent, Watch
from accord.storage.commands.endings import HasEnded, NoSuchTask, Timer, end_rest, owned, raise_fence, set_timer
from accord.storage.commands.jobs import DEADLINE, RUN, Claimed, NewJob
from accord.storage.commands.tasks import (
    Append,
    Ended,
    Head,
    NewTask,
    Stored,
    append,
    create_task,
    extend,
    lock_head,
    read_task,
    topic,
)
from accord.storage.store import Tx

IDEMPOTENCY_MS = 24 * 3600 * 1000
"""How long a send that is repeated finds the task it made."""


class Work(Struct, frozen=True, kw_only=True):
    """How a task is to be run: by the node that accepts it if `node` is set, else by whoever claims it.

    One that `is_held` is not run before somebody begins it.
    """

    queue: str
    priority: int = 0
    max_attempts: int = 3
    node: str | None = None
    is_held: bool = False


class Accept(Struct, frozen=True, kw_only=True):
    """A message that makes a task. `working` is the event that says so, if a node takes the task at once.

    What makes it the same message is its `key` or, if a run calls, the step of its `parent`. No other may be sent under
    its `name`, if it has one.
    """

    new: NewTask
    message_id: str
    work: Work
    key: str | None = None
    name: str | None = None
    parent: Parent | None = None
    working: StatusUpdate | None = None
    deadline_ms: int | None = None
    push: PushConfig | None = None


class Say(Struct, frozen=True, kw_only=True):
    """A message to a task that exists; what it may use, and until when it has time, becomes less or stays.

    With a `trace` what comes of it belongs to that one from now on.
    """

    task_id: str
    message: Message
    work: Work
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


class Begin(Struct, frozen=True, kw_only=True):
    """That a task is to be begun which was held, by this node if it is given, and until when it then has time."""

    task_id: str
    at: int
    owner: str | None = None
    agent: str | None = None
    node: str | None = None
    deadline_at: int | None = None


class Accepted(Struct, frozen=True, kw_only=True):
    """What became of a message: the task, whether the same was sent before, and the job if this node took it."""

    task_id: str
    is_repeated: bool = False
    job: Claimed | None = None


class Continued(Accepted, frozen=True, kw_only=True):
    """What became of a message to a task that exists: the task with it, and its steps if this node took the job."""

    stored: Stored
    steps: dict[str, str] = {}


class Settle(Struct, frozen=True, kw_only=True):
    """The end of a run: its last events and entries, by key, and whether its job is done or waits.

    Work waits until it is woken or `delay_ms` have passed; `awaited` is the step it waits for, if one, and `child` the
    task whose question it has passed on; `watch` is all that at once. Work on a task that another waits for names that
    one's `parent_id`.
    """

    last: Append
    job: Claimed
    entries: tuple[tuple[str, str], ...] = ()
    parks: bool = False
    delay_ms: int | None = None
    awaited: str | None = None
    child: str | None = None
    watch: Watch | None = None
    parent_id: str | None = None

    @property
    def ended(self) -> list[Ended]:
        """The task, if this ends it."""
        job, state = self.job, self.last.state
        if self.parks or state is None or state not in lifecycle.ENDED:
            return []
        return [Ended(job.tenant, job.key, job.queue, state)]


class News(Struct, frozen=True, kw_only=True):
    """What a waiting task waits for, by the key under which it does."""

    task_id: str
    key: str
    output: str
    at: int


class OtherContext(Exception):
    """The message names another context than its task's."""


class OtherSend(Exception):
    """Something else was sent under the name of this message."""


class AlreadyWoken(Exception):
    """What the work wants to wait for is there already."""


async def accept(tx: Tx, tenant: str, request: Accept) -> Accepted:
    """Keep a new task and the job that runs it, unless the same message made one before."""
    new, work, task_id = request.new, request.work, request.new.task.id
    if request.key is not None and (known := await _known(tx, tenant, request.key, task_id)):
        return Accepted(task_id=known, is_repeated=True)
    await _name(tx, tenant, request.name, task_id)
    if request.parent and (known := await children.adopt(tx, tenant, request.parent, task_id, new.at)):
        return Accepted(task_id=known, is_repeated=True)
    begins = [] if request.working is None or work.node is None else [request.working]
    await create_task(tx, tenant, new, int(work.node is not None), begins)
    job = await jobs.enqueue(tx, tenant, _run_job(task_id, request.message_id, work))
    if request.deadline_ms is not None:
        await set_timer(tx, tenant, Timer(task_id=task_id, kind=DEADLINE, delay_ms=request.deadline_ms))
    if request.push is not None:
        await pushes.put(tx, tenant, task_id, request.push, new.origin or "", after=0)
    return Accepted(task_id=task_id, job=job)


async def say(tx: Tx, tenant: str, request: Say) -> Continued:
    """Add a message to a task and see to it that somebody works on it.

    It writes no snapshot, so it writes as much however long the task is; the run that comes of it does when it rests.
    """
    head = owned(await lock_head(tx, tenant, request.task_id), request.task_id, request.owner, request.agent)
    if request.message.context_id not in (None, head.context_id):
        raise OtherContext(f"Task {head.id} does not belong to context {request.message.context_id}")
    if request.key is not None and await _known(tx, tenant, request.key, head.id):
        return Continued(task_id=head.id, is_repeated=True, stored=await _reread(tx, tenant, head))
    await _name(tx, tenant, request.name, head.id)
    if head.task_state in lifecycle.ENDED:
        raise HasEnded(head.task_state)
    await append(tx, tenant, _adding(head, request))
    await _tighten(tx, tenant, head, request)
    if request.trace is not None:
        await _traced(tx, tenant, head, request.trace)
    if request.push is not None:
        dialect = request.origin or head.origin or ""
        await pushes.put(tx, tenant, head.id, request.push, dialect, after=head.last_seq)
    if head.parent_id is not None and head.task_state in lifecycle.INTERRUPTED:
        await children.rouse_parent(tx, tenant, head.parent_id, head.id)
    job = await rouse(tx, tenant, head, request.work, request.message.message_id)
    known = {} if job is None else await steps.load(tx, tenant, head.id)
    return Continued(task_id=head.id, job=job, stored=await _reread(tx, tenant, head), steps=known)


async def begin(tx: Tx, tenant: str, request: Begin) -> Continued:
    """Let a task be run that was held; one that has been begun before goes on as it does."""
    head = owned(await lock_head(tx, tenant, request.task_id), request.task_id, request.owner, request.agent)
    if head.task_state is TaskState.CANCELED:
        raise HasEnded(head.task_state)
    queue = await jobs.held_queue(tx, tenant, head.id)
    if queue is None or head.task_state is not TaskState.SUBMITTED:
        return Continued(task_id=head.id, is_repeated=True, stored=await _reread(tx, tenant, head))
    await _due(tx, tenant, head, request.deadline_at, request.at)
    job = await rouse(tx, tenant, head, Work(queue=queue, node=request.node))
    known = {} if job is None else await steps.load(tx, tenant, head.id)
    return Continued(task_id=head.id, job=job, stored=await _reread(tx, tenant, head), steps=known)


async def _tighten(tx: Tx, tenant: str, head: Head, request: Say) -> None:
    """Let a task have less than before, if a message says so."""
    await usage.limit(tx, tenant, head.id, request.budget, request.at)
    await _due(tx, tenant, head, request.deadline_at, request.at)


async def _due(tx: Tx, tenant: str, head: Head, due: int | None, at: int) -> None:
    """Let a task have time until then, if it had longer."""
    if due is not None and (head.deadline_at is None or due < head.deadline_at):
        await tx.run(
            "UPDATE task SET deadline_at = :due WHERE tenant = :tenant AND id = :id", tenant=tenant, id=head.id, due=due
        )
        delay_ms = max(0, due - at)
        await set_timer(tx, tenant, Timer(task_id=head.id, kind=DEADLINE, delay_ms=delay_ms))


async def _traced(tx: Tx, tenant: str, head: Head, trace: str) -> None:
    """Let what comes of a message belong to its sender's trace."""
    await tx.run(
        "UPDATE task SET trace = :trace WHERE tenant = :tenant AND id = :id", tenant=tenant, id=head.id, trace=trace
    )


def _adding(head: Head, request: Say) -> Append:
    """Return what a message adds to a task's log."""
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


async def _reread(tx: Tx, tenant: str, head: Head) -> Stored:
    stored = await read_task(tx, tenant, head.id)
    if stored is None:
        raise NoSuchTask(head.id)
    return stored


async def settle(tx: Tx, tenant: str, request: Settle) -> list[Ended]:
    """Append a run's last events and finish or park its job; return what has ended with it."""
    watch = request.watch
    awaited = (request.awaited,) if request.awaited is not None else watch.keys if watch is not None else ()
    if awaited:
        # Whoever wakes a task holds its row; looking without it would miss what is being put there right now.
        await tx.one(
            "SELECT 1 FROM task WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=request.job.key
        )
        for key in awaited:
            if await steps.find(tx, tenant, request.job.key, key) is not None:
                raise AlreadyWoken(key)
    others: list[Ended] = []
    children_started = await extend(tx, tenant, request.last)
    if request.entries:
        await steps.note(tx, tenant, request.job.key, request.entries, request.last.at)
    if request.child is not None and not await children.asks(tx, tenant, request.child):
        raise AlreadyWoken(request.child)
    if watch is not None and await children.have_moved(tx, tenant, watch):
        raise AlreadyWoken(request.job.key)
    if request.parks:
        await jobs.park(tx, request.job, request.delay_ms, request.child if watch is None else children.ANY)
    elif request.last.state not in lifecycle.ENDED:
        await jobs.finish(tx, request.job)
    elif children_started:
        others = await end_rest(tx, tenant, request.job.key, request.last.at)
        await jobs.finish(tx, request.job)
    else:
        await jobs.finish_last(tx, request.job)
    if request.parent_id is not None:
        await children.rouse_parent(tx, tenant, request.parent_id, request.job.key)
    return [*request.ended, *others]


async def wake(tx: Tx, tenant: str, news: News) -> bool:
    """Hand a waiting task what it waits for; false if it has that already or has ended for good.

    A task that was given up as unknown goes on: its news are late, not wrong.
    """
    head = await lock_head(tx, tenant, news.task_id)
    if head is None or head.task_state in lifecycle.TERMINAL:
        return False
    if not await steps.put(tx, tenant, news.task_id, news.key, news.output, news.at):
        return False
    tx.signal(topic(tenant, news.task_id))  # a run that waits for other things as well looks here too
    await rouse(tx, tenant, head)
    return True


def _run_job(task_id: str, message_id: str, work: Work, epoch: int = 0) -> NewJob:
    return NewJob(
        kind=RUN,
        key=task_id,
        queue=work.queue,
        arg=message_id,
        priority=work.priority,
        max_attempts=work.max_attempts,
        node=work.node,
        epoch=epoch,
        parked=work.is_held,
    )


async def _known(tx: Tx, tenant: str, key: str, task_id: str) -> str | None:
    """Return the task that the same message made before; otherwise note that it made this one."""
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
    # By a statement of its own: the one above does not see a task that was committed while it waited for the key.
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


async def _name(tx: Tx, tenant: str, name: str | None, task_id: str) -> None:
    """Note the name of a message that is new, or raise if it belongs to another: kept as long as keys are."""
    if name is not None and await _known(tx, tenant, name, task_id):
        raise OtherSend(f"A message to task {task_id} has the name of another")


async def rouse(
    tx: Tx, tenant: str, head: Head, work: Work | None = None, message_id: str | None = None
) -> Claimed | None:
    """See to it that a task is run: its waiting job becomes due, or is taken by `work.node`; without one it gets one.

    Work that a node holds goes on; it finds what is new when it next writes.
    """
    row = await tx.one(
        "SELECT id, node, queue FROM job WHERE tenant = :tenant AND kind = :kind AND key = :key {for_update}",
        tenant=tenant,
        kind=RUN,
        key=head.id,
    )
    if row is None:
        made = work or Work(queue=head.agent)
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
