"""How a task ends other than by its own run: cancelled, too late, over its budget, given up, or left behind by the task
that called it.

Each command ends a task for good in one transaction: its log, the fence, its job, its timers and its children, so that
nothing outlives it whoever dies in between. The end that a run comes to by itself is `runs.settle`; who may end what is
decided in `core.service`.
"""

from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct

from accord.model import Message, Part, Role, StatusUpdate, TaskState, TaskStatus
from accord.model.base import timestamp_ms
from accord.model.metadata_keys import USAGE
from accord.protocol import lifecycle
from accord.protocol.budgets import BudgetAccount
from accord.storage.commands import children, jobs, steps, usage
from accord.storage.commands.jobs import DEADLINE, RUN, SLA, TIMERS, Claimed, NewJob
from accord.storage.commands.tasks import Append, Ended, Head, Stored, append, lock_task
from accord.storage.commands.usage import Charged, Spend, Spent, Told
from accord.storage.store import Tx

H = TypeVar("H", bound=Head)

LEFT_BEHIND = "The task that called this one has ended"
"""What a child says that ends with its parent."""


REMOTE_CANCELS = "remote"
"""The topic of hints that an agent elsewhere has to be told of a cancel."""


class Ending(Struct, frozen=True, kw_only=True):
    """How a task is to end."""

    task_id: str
    status: TaskStatus
    at: int
    owner: str | None = None
    agent: str | None = None
    is_held: bool = False
    """Whether only a task that is held and has not begun may end so."""


class Timer(Struct, frozen=True, kw_only=True):
    """What ends a task after a while; `arg` says why."""

    task_id: str
    kind: str
    delay_ms: int
    arg: str | None = None


class Limit(Struct, frozen=True, kw_only=True):
    """A timer that a run sets once: a run that comes again finds the step and leaves the timer as it is."""

    timer: Timer
    step: steps.Step


class Reaped(Struct, frozen=True, kw_only=True):
    """Nodes whose work was given back, and what ended because it was lost too often."""

    nodes: list[str]
    ended: list[Ended]


class NoSuchTask(Exception):
    """There is no such task, or it is somebody else's."""


class HasEnded(Exception):
    """The task has ended."""

    def __init__(self, state: TaskState) -> None:
        """Name the state."""
        super().__init__(f"The task is {state.name}")
        self.state = state


class HasBegun(Exception):
    """The task is not held any more."""


async def end(tx: Tx, tenant: str, ending: Ending) -> list[Ended]:
    """End a task from outside, whoever runs it: the fence is raised, its job and timers go, its node is told.

    Its children end with it, and theirs. Like all that end tasks, it returns which have ended.
    """
    stored = owned(await lock_task(tx, tenant, ending.task_id), ending.task_id, ending.owner, ending.agent)
    if ending.is_held and await jobs.held_queue(tx, tenant, stored.id) is None:
        raise HasBegun
    before, after = stored.task_state, ending.status.state
    if before in lifecycle.TERMINAL or after not in lifecycle.TRANSITIONS[before]:
        raise HasEnded(before)
    return await _end(tx, tenant, stored, ending.status, ending.at)


async def _end(tx: Tx, tenant: str, stored: Stored, status: TaskStatus, at: int) -> list[Ended]:
    task = stored.task()
    account = await usage.read(tx, tenant, task.id)
    shown = None if account == BudgetAccount() else {USAGE: account.shown}
    update = StatusUpdate(task_id=task.id, context_id=stored.context_id, status=status, metadata=shown)
    last = Append(
        task_id=task.id,
        epoch=stored.epoch,
        after=stored.last_seq,
        bodies=[update],
        at=at,
        state=status.state,
        snapshot=lifecycle.apply(task, update),
    )
    ended = await end_with(tx, tenant, stored, last)
    if status.state in lifecycle.TERMINAL:
        await pass_on_cancel(tx, tenant, task.id)
    return ended


async def end_with(tx: Tx, tenant: str, head: Head, last: Append) -> list[Ended]:
    """End a task with its last events, whoever runs it and whoever has them."""
    await append(tx, tenant, last)
    await raise_fence(tx, tenant, head.id)
    others = await end_rest(tx, tenant, head.id, last.at)
    await _drop_run(tx, tenant, head.id)
    if head.parent_id is not None:
        await children.rouse_parent(tx, tenant, head.parent_id, head.id)
    return [Ended(tenant, head.id, head.agent, last.state or head.task_state), *others]


async def end_rest(tx: Tx, tenant: str, task_id: str, at: int) -> list[Ended]:
    """End what a task that has ended leaves behind: its timers go, its children are cancelled.

    Its job goes after that: a child locks itself, then its parent's job.
    """
    await tx.run(
        "DELETE FROM job WHERE tenant = :tenant AND key = :key AND kind IN (:deadline, :sla) AND node IS NULL",
        tenant=tenant,
        key=task_id,
        deadline=DEADLINE,
        sla=SLA,
    )
    ended: list[Ended] = []
    for child_id in await children.living(tx, tenant, task_id):
        child = await lock_task(tx, tenant, child_id)
        if child is not None and child.task_state not in lifecycle.ENDED:
            ended += await _end(tx, tenant, child, said(TaskState.CANCELED, LEFT_BEHIND, child, at), at)
    return ended


async def let_go(tx: Tx, job: Claimed) -> list[Ended]:
    """Remove work on a task that has ended, with what whoever said so had no time to end."""
    if await jobs.finish(tx, job) and (stored := await lock_task(tx, job.tenant, job.key)):
        return await _end_late(tx, job.tenant, stored)
    return []


async def _end_late(tx: Tx, tenant: str, stored: Stored) -> list[Ended]:
    """End what goes with a task whose run was lost after it had said how that ended: nobody else has counted it."""
    others = await end_rest(tx, tenant, stored.id, stored.updated_at)
    return [Ended(tenant, stored.id, stored.agent, stored.task_state), *others]


async def pass_on_cancel(tx: Tx, tenant: str, task_id: str) -> None:
    """Let the agent elsewhere be told that a task has ended here, if one does it."""
    told = await tx.run(
        "UPDATE remote SET cancel_at = {now} WHERE tenant = :tenant AND task_id = :task_id",
        tenant=tenant,
        task_id=task_id,
    )
    if told:
        tx.signal(REMOTE_CANCELS)


# --- timers -----------------------------------------------------------------------------------------------------------


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


async def limit(tx: Tx, tenant: str, request: Limit) -> None:
    """Set a timer for the run that holds the task, and note that it did."""
    await steps.commit(tx, tenant, request.step)
    await set_timer(tx, tenant, request.timer)


async def expire(tx: Tx, job: Claimed, status: TaskStatus, at: int) -> list[Ended]:
    """Do what a timer is for: nothing if the task ended before or the timer was moved meanwhile."""
    if not await jobs.finish(tx, job):
        return []
    stored = await lock_task(tx, job.tenant, job.key)
    if stored is None or stored.task_state in lifecycle.ENDED:
        return []
    return await _end(tx, job.tenant, stored, status, at)


# --- budgets ----------------------------------------------------------------------------------------------------------


async def spend(tx: Tx, tenant: str, request: Spend) -> Spent:
    """Count what a run has used; of its task and those above it, the topmost ends that has used more than it may.

    All that it has started ends with it, and so does the task of the run, which is the last to be looked at.
    """
    line = await usage.lineage(tx, tenant, request.task_id)
    return await _spent(tx, tenant, request, line, await usage.charge(tx, tenant, line, request))


async def hear(tx: Tx, tenant: str, told: Told) -> Spent:
    """Count what an agent elsewhere says that it has used for a task; otherwise like `spend`, whoever runs the task."""
    line = await usage.lineage(tx, tenant, told.task_id)
    return await _spent(tx, tenant, told, line, await usage.hear(tx, tenant, line, told))


async def _spent(tx: Tx, tenant: str, request: Spend | Told, line: list[Head], charged: Charged | None) -> Spent:
    if charged is None:
        return Spent(account=await usage.read(tx, tenant, request.task_id))
    uses, accounts = charged
    for head, account in zip(line, accounts, strict=True):
        over = account.budget.over(account.used)
        if over is not None and head.task_state not in lifecycle.ENDED:
            stored = await lock_task(tx, tenant, head.id)
            assert stored is not None  # it is locked
            status = said(TaskState.FAILED, over, stored, request.at)
            ended = await _end(tx, tenant, stored, status, request.at)
            return Spent(account=accounts[-1], counted=uses, over=over, ended=ended)
    return Spent(account=accounts[-1], counted=uses)


# --- nodes that are gone ----------------------------------------------------------------------------------------------


async def reap(tx: Tx, gone: Mapping[str, int]) -> Reaped:
    """Give back the work of nodes that are gone and return their names; work that was lost too often ends.

    `gone` are nodes with the number of their last heartbeat: one that has sent another since is not gone.
    """
    ended: list[Ended] = []
    dead = []
    for node, beats in sorted(gone.items()):
        if await tx.one("SELECT 1 FROM node WHERE id = :node AND beats = :beats {skip_locked}", node=node, beats=beats):
            dead.append(node)
    dead += await _without_lease(tx)
    for node in dead:
        exhausted = await tx.all(  # in the order of age: parents are locked before their children
            """SELECT tenant, key, attempts FROM job
               WHERE node = :node AND kind = :kind AND attempts >= max_attempts ORDER BY tenant, key""",
            node=node,
            kind=RUN,
        )
        for tenant, task_id, attempts in exhausted:
            if (tenant, task_id) not in {one[:2] for one in ended}:  # it may have ended with its parent just now
                ended += await _give_up(tx, tenant, task_id, attempts)
        await jobs.leave(tx, node, counts=True)
    return Reaped(nodes=dead, ended=ended)


async def _without_lease(tx: Tx) -> list[str]:
    """Return nodes that hold something but have no lease: they took it in the moment in which they were forgotten."""
    rows = await tx.all(
        """SELECT node FROM (SELECT node FROM job WHERE node IS NOT NULL
                             UNION SELECT node FROM push WHERE node IS NOT NULL) AS holder
           WHERE NOT EXISTS (SELECT 1 FROM node WHERE node.id = holder.node) ORDER BY node"""
    )
    return [row[0] for row in rows]


async def give_up(tx: Tx, job: Claimed) -> list[Ended]:
    """End a task whose work was begun too often, unless somebody else holds it now."""
    return await _give_up(tx, job.tenant, job.key, job.attempts - 1) if await jobs.finish(tx, job) else []


async def _give_up(tx: Tx, tenant: str, task_id: str, attempts: int) -> list[Ended]:
    stored = await lock_task(tx, tenant, task_id)
    if stored is None or stored.task_state in lifecycle.TERMINAL:
        ended = [] if stored is None else await _end_late(tx, tenant, stored)
        await _drop_run(tx, tenant, task_id)
        return ended
    row = await tx.one("SELECT {now}")
    at = int(row[0]) if row else stored.updated_at
    times = "once" if attempts == 1 else f"{attempts} times"
    text = f"The agent's process was lost {times}; the task was given up"
    return await _end(tx, tenant, stored, said(TaskState.FAILED, text, stored, at), at)


# --- small things -----------------------------------------------------------------------------------------------------


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


def owned(found: H | None, task_id: str, owner: str | None, agent: str | None) -> H:
    """Return a task if it is there, its owner's and its agent's; None is anybody's."""
    if found is None or owner not in (None, found.owner) or agent not in (None, found.agent):
        raise NoSuchTask(task_id)
    return found


async def raise_fence(tx: Tx, tenant: str, task_id: str) -> None:
    """Let nobody write who holds the task now."""
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
