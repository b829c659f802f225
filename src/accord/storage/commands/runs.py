"""What happens to a task as a whole: it is accepted, continued, settled, woken, ended from outside or given up.

Each command changes the task, its log, its job and its timers in one transaction. What a caller may do is decided in
`core.service`; here is only what must not come apart.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from accord.model import (
    EventBody,
    Message,
    MessageUpdate,
    Part,
    PushConfig,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.storage.commands import jobs, pushes, steps
from accord.storage.commands.jobs import DEADLINE, RUN, SLA, TIMERS, Claimed, NewJob
from accord.storage.commands.tasks import Append, NewTask, Stored, append, create_task, lock_task
from accord.storage.store import Tx

IDEMPOTENCY_MS = 24 * 3600 * 1000
"""How long a send that is repeated finds the task it made."""


class Work(Struct, frozen=True, kw_only=True):
    """How a task is to be run: by the node that accepts it if `node` is set, else by whoever claims it."""

    queue: str
    priority: int = 0
    max_attempts: int = 3
    node: str | None = None


class Accept(Struct, frozen=True, kw_only=True):
    """A message that makes a task. `working` is the event that says so, if a node takes the task at once."""

    new: NewTask
    message_id: str
    work: Work
    key: str | None = None
    working: StatusUpdate | None = None
    deadline_ms: int | None = None
    push: PushConfig | None = None


class Say(Struct, frozen=True, kw_only=True):
    """A message to a task that exists."""

    task_id: str
    message: Message
    work: Work
    at: int
    owner: str | None = None
    agent: str | None = None
    key: str | None = None
    push: PushConfig | None = None
    blobs: tuple[str, ...] = ()


class Accepted(Struct, frozen=True, kw_only=True):
    """What became of a message: the task, whether the same was sent before, and the job if this node took it."""

    task_id: str
    is_repeated: bool = False
    job: Claimed | None = None


class Settle(Struct, frozen=True, kw_only=True):
    """The end of a run: its last events, and whether its job is done or waits.

    Work waits until it is woken or `delay_ms` have passed; `awaited` is the step it waits for, if one.
    """

    last: Append
    job: Claimed
    parks: bool = False
    delay_ms: int | None = None
    awaited: str | None = None


class Timer(Struct, frozen=True, kw_only=True):
    """What ends a task after a while; `arg` says why."""

    task_id: str
    kind: str
    delay_ms: int
    arg: str | None = None


class News(Struct, frozen=True, kw_only=True):
    """What a waiting task waits for, by the key under which it does."""

    task_id: str
    key: str
    output: str
    at: int


class Ending(Struct, frozen=True, kw_only=True):
    """How a task is to end."""

    task_id: str
    status: TaskStatus
    at: int
    owner: str | None = None
    agent: str | None = None


class NoSuchTask(Exception):
    """There is no such task, or it is somebody else's."""


class HasEnded(Exception):
    """The task has ended."""

    def __init__(self, state: TaskState) -> None:
        """Name the state."""
        super().__init__(f"The task is {state.name}")
        self.state = state


class AlreadyWoken(Exception):
    """What the work wants to wait for is there already."""


async def accept(tx: Tx, tenant: str, request: Accept) -> Accepted:
    """Keep a new task and the job that runs it, unless the same message made one before."""
    new, work, task_id = request.new, request.work, request.new.task.id
    if request.key is not None and (known := await _known(tx, tenant, request.key, task_id)):
        return Accepted(task_id=known, is_repeated=True)
    begins = [] if request.working is None or work.node is None else [request.working]
    await create_task(tx, tenant, new, int(work.node is not None), begins)
    job = await jobs.enqueue(tx, tenant, _run_job(task_id, request.message_id, work))
    if request.deadline_ms is not None:
        await set_timer(tx, tenant, Timer(task_id=task_id, kind=DEADLINE, delay_ms=request.deadline_ms))
    if request.push is not None:
        await pushes.put(tx, tenant, task_id, request.push, new.origin or "", after=0)
    return Accepted(task_id=task_id, job=job)


async def say(tx: Tx, tenant: str, request: Say) -> Accepted:
    """Add a message to a task and see to it that somebody works on it."""
    stored = await _mine(tx, tenant, request.task_id, request.owner, request.agent)
    if request.key is not None and await _known(tx, tenant, request.key, request.task_id):
        return Accepted(task_id=request.task_id, is_repeated=True)
    task = stored.task()
    if task.status.state in lifecycle.ENDED:
        raise HasEnded(task.status.state)
    context = stored.context_id
    bodies: list[EventBody] = []
    if task.status.state in lifecycle.INTERRUPTED:  # the question joins the history before its answer
        status = TaskStatus(state=TaskState.WORKING, timestamp=timestamp_ms(request.at))
        bodies.append(StatusUpdate(task_id=task.id, context_id=context, status=status))
    bodies.append(MessageUpdate(task_id=task.id, context_id=context, message=request.message))
    new = _append(task.id, stored.epoch, stored.last_seq, bodies, request.at, applied(task, bodies))
    await append(tx, tenant, replace(new, blobs=request.blobs))
    if request.push is not None:
        await pushes.put(tx, tenant, task.id, request.push, stored.origin or "", after=stored.last_seq)
    return Accepted(task_id=task.id, job=await _rouse(tx, tenant, stored, request.work, request.message.message_id))


async def settle(tx: Tx, tenant: str, request: Settle) -> int:
    """Append a run's last events and finish or park its job; return the last sequence number."""
    if request.awaited is not None:
        # Whoever wakes a task holds its row; looking without it would miss what is being put there right now.
        await tx.one(
            "SELECT 1 FROM task WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=request.job.key
        )
        if await steps.find(tx, tenant, request.job.key, request.awaited) is not None:
            raise AlreadyWoken(request.awaited)
    last = await append(tx, tenant, request.last)
    if request.parks:
        await jobs.park(tx, request.job, request.delay_ms)
    else:
        await jobs.finish(tx, request.job)
        if request.last.state in lifecycle.ENDED:
            await _drop_timers(tx, tenant, request.job.key)
    return last


async def wake(tx: Tx, tenant: str, news: News) -> bool:
    """Hand a waiting task what it waits for; false if it has that already or has ended for good.

    A task that was given up as unknown goes on: its news are late, not wrong.
    """
    stored = await lock_task(tx, tenant, news.task_id)
    if stored is None or stored.task_state in lifecycle.TERMINAL:
        return False
    if not await steps.put(tx, tenant, news.task_id, news.key, news.output, news.at):
        return False
    await _rouse(tx, tenant, stored, None, None)
    return True


async def end(tx: Tx, tenant: str, ending: Ending) -> Task:
    """End a task from outside, whoever runs it: the fence is raised, its job and timers go, its node is told."""
    stored = await _mine(tx, tenant, ending.task_id, ending.owner, ending.agent)
    task = stored.task()
    before, after = task.status.state, ending.status.state
    if before in lifecycle.TERMINAL or after not in lifecycle.TRANSITIONS[before]:
        raise HasEnded(before)
    return await _end(tx, tenant, stored, task, ending.status, ending.at)


async def _end(tx: Tx, tenant: str, stored: Stored, task: Task, status: TaskStatus, at: int) -> Task:
    update = StatusUpdate(task_id=task.id, context_id=stored.context_id, status=status)
    ended = lifecycle.apply(task, update)
    await append(tx, tenant, _append(task.id, stored.epoch, stored.last_seq, [update], at, ended))
    await _raise_fence(tx, tenant, task.id)
    await _drop_run(tx, tenant, task.id)
    await _drop_timers(tx, tenant, task.id)
    return ended


async def set_timer(tx: Tx, tenant: str, timer: Timer) -> None:
    """End the task after a while, unless it ends before; setting the timer again moves it."""
    await tx.run(
        "DELETE FROM job WHERE tenant = :tenant AND kind = :kind AND key = :key",
        tenant=tenant,
        kind=timer.kind,
        key=timer.task_id,
    )
    job = NewJob(kind=timer.kind, key=timer.task_id, queue=TIMERS, arg=timer.arg, delay_ms=timer.delay_ms)
    await jobs.enqueue(tx, tenant, job)


async def expire(tx: Tx, job: Claimed, status: TaskStatus, at: int) -> bool:
    """Do what a timer is for; false if the task ended before or the timer was moved meanwhile."""
    if not await jobs.finish(tx, job):
        return False
    stored = await lock_task(tx, job.tenant, job.key)
    if stored is None or stored.task_state in lifecycle.ENDED:
        return False
    await _end(tx, job.tenant, stored, stored.task(), status, at)
    return True


async def reap(tx: Tx) -> list[str]:
    """Give back the work of nodes whose lease ran out and return their names; work that was lost too often ends."""
    dead = [row[0] for row in await tx.all("SELECT id FROM node WHERE expires_at < {now} ORDER BY id {skip_locked}")]
    dead += await _without_lease(tx)
    for node in dead:
        exhausted = await tx.all(
            "SELECT tenant, key, attempts FROM job WHERE node = :node AND kind = :kind AND attempts >= max_attempts",
            node=node,
            kind=RUN,
        )
        for tenant, task_id, attempts in exhausted:
            await _give_up(tx, tenant, task_id, attempts)
        await jobs.leave(tx, node, counts=True)
    return dead


async def _without_lease(tx: Tx) -> list[str]:
    """Return nodes that hold something but have no lease: they took it in the moment in which they were forgotten."""
    rows = await tx.all(
        """SELECT node FROM (SELECT node FROM job WHERE node IS NOT NULL
                             UNION SELECT node FROM push WHERE node IS NOT NULL) AS holder
           WHERE NOT EXISTS (SELECT 1 FROM node WHERE node.id = holder.node) ORDER BY node"""
    )
    return [row[0] for row in rows]


async def give_up(tx: Tx, job: Claimed) -> None:
    """End a task whose work was begun too often, unless somebody else holds it now."""
    if await jobs.finish(tx, job):
        await _give_up(tx, job.tenant, job.key, job.attempts - 1)


async def _give_up(tx: Tx, tenant: str, task_id: str, attempts: int) -> None:
    stored = await lock_task(tx, tenant, task_id)
    if stored is None or stored.task_state in lifecycle.TERMINAL:
        await _drop_run(tx, tenant, task_id)
        return
    row = await tx.one("SELECT {now}")
    at = int(row[0]) if row else stored.updated_at
    times = "once" if attempts == 1 else f"{attempts} times"
    text = f"The agent's process was lost {times}; the task was given up"
    await _end(tx, tenant, stored, stored.task(), said(TaskState.FAILED, text, stored, at), at)


def said(state: TaskState, text: str, stored: Stored, at: int) -> TaskStatus:
    """Return a status in which the server explains itself."""
    message = Message(
        message_id=f"{stored.id}-{stored.last_seq + 1}",
        role=Role.AGENT,
        parts=(Part(text=text),),
        task_id=stored.id,
        context_id=stored.context_id,
    )
    return TaskStatus(state=state, message=message, timestamp=timestamp_ms(at))


def applied(task: Task, bodies: Sequence[EventBody]) -> Task:
    """Return the task after several events."""
    for body in bodies:
        task = lifecycle.apply(task, body)
    return task


def _append(task_id: str, epoch: int, after: int, bodies: Sequence[EventBody], at: int, moved: Task) -> Append:
    changes = any(isinstance(body, StatusUpdate) for body in bodies)
    return Append(
        task_id=task_id,
        epoch=epoch,
        after=after,
        bodies=bodies,
        at=at,
        state=moved.status.state if changes else None,
        snapshot=moved,
    )


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
    )


async def _mine(tx: Tx, tenant: str, task_id: str, owner: str | None, agent: str | None) -> Stored:
    stored = await lock_task(tx, tenant, task_id)
    if stored is None or owner not in (None, stored.owner) or agent not in (None, stored.agent):
        raise NoSuchTask(task_id)
    return stored


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
    row = await tx.one("SELECT task_id FROM idempotency WHERE tenant = :tenant AND key = :key", tenant=tenant, key=key)
    return None if row is None else str(row[0])


async def _rouse(tx: Tx, tenant: str, stored: Stored, work: Work | None, message_id: str | None) -> Claimed | None:
    """See to it that a task is run: its waiting job becomes due, or is taken by `work.node`; without one it gets one.

    Work that a node holds goes on; it finds what is new when it next writes.
    """
    row = await tx.one(
        "SELECT id, node, queue FROM job WHERE tenant = :tenant AND kind = :kind AND key = :key {for_update}",
        tenant=tenant,
        kind=RUN,
        key=stored.id,
    )
    if row is None:
        made = work or Work(queue=stored.agent)
        job = await jobs.enqueue(tx, tenant, _run_job(stored.id, message_id or "", made, stored.epoch))
        if job is not None:
            await _raise_fence(tx, tenant, stored.id)
        return job
    id, holder, queue = row
    if holder is not None:
        return None
    await tx.run("UPDATE job SET parked = 0, run_at = {now} WHERE id = :id", id=id)
    if work is None or work.node is None:
        tx.signal(jobs.queue_topic(queue))
        return None
    return (await jobs.take(tx, work.node, [id]))[0]


async def _raise_fence(tx: Tx, tenant: str, task_id: str) -> None:
    await tx.run("UPDATE task SET epoch = epoch + 1 WHERE tenant = :tenant AND id = :id", tenant=tenant, id=task_id)


async def _drop_run(tx: Tx, tenant: str, task_id: str) -> None:
    """Remove the job that runs a task, and tell the node that holds it."""
    holders = await tx.all(
        "DELETE FROM job WHERE tenant = :tenant AND kind = :kind AND key = :key RETURNING node",
        tenant=tenant,
        kind=RUN,
        key=task_id,
    )
    tx.signal(*(jobs.node_topic(row[0]) for row in holders if row[0] is not None))


async def _drop_timers(tx: Tx, tenant: str, task_id: str) -> None:
    await tx.run(
        "DELETE FROM job WHERE tenant = :tenant AND key = :key AND kind IN (:deadline, :sla) AND node IS NULL",
        tenant=tenant,
        key=task_id,
        deadline=DEADLINE,
        sla=SLA,
    )
