"""Ends of tasks from outside: cancel, deadline, budget, lost nodes, and the end of the parent.

Each command ends a task for good in one transaction: its log, the fence, its job, its timers and its children, so that
nothing outlives it. An execution that ends its own task is `task_lifecycle.settle_execution`.
"""

from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct

from accord.model import Message, Part, Role, StatusUpdate, TaskState, TaskStatus
from accord.model.base import timestamp_ms
from accord.model.metadata_keys import USAGE
from accord.protocol import lifecycle
from accord.protocol.budgets import BudgetAccount
from accord.storage.commands import jobs, steps
from accord.storage.commands.jobs import DEADLINE, RUN, SLA, TIMERS, ClaimedJob, NewJob
from accord.storage.commands.steps import ChargedAccounts, RemoteUsage, UsageRequest, UsageResult
from accord.storage.commands.tasks import Append, EndedTask, StoredTask, TaskHead, append, lock_task
from accord.storage.store import Tx

H = TypeVar("H", bound=TaskHead)

LEFT_BEHIND = "The task that called this one has ended"
"""What a child says that ends with its parent."""


REMOTE_CANCELS = "remote"
"""The topic of hints that an agent elsewhere has to be told of a cancel."""


class EndRequest(Struct, frozen=True, kw_only=True):
    """How a task is to end."""

    task_id: str
    status: TaskStatus
    at: int
    owner: str | None = None
    agent: str | None = None
    is_held: bool = False
    """Whether only a task that is held and has not begun may end so."""


class TaskTimer(Struct, frozen=True, kw_only=True):
    """What ends a task after a while; `arg` says why."""

    task_id: str
    kind: str
    delay_ms: int
    arg: str | None = None


class TimerRequest(Struct, frozen=True, kw_only=True):
    """A timer that a run sets once: a run that comes again finds the step and leaves the timer as it is."""

    timer: TaskTimer
    step: steps.StepResult


class ReapedNodes(Struct, frozen=True, kw_only=True):
    """Nodes whose work was given back, and what ended because it was lost too often."""

    nodes: list[str]
    ended: list[EndedTask]


class NoSuchTask(Exception):
    """There is no such task, or it is somebody else's."""


class TaskHasEnded(Exception):
    """The task has ended."""

    def __init__(self, state: TaskState) -> None:
        """Name the state."""
        super().__init__(f"The task is {state.name}")
        self.state = state


class TaskHasStarted(Exception):
    """The task is not held any more."""


async def end_task(tx: Tx, tenant: str, ending: EndRequest) -> list[EndedTask]:
    """End a task from outside, whoever runs it: the fence is raised, its job and timers go, its node is told.

    Its children end with it, and theirs. Like all that end tasks, it returns which have ended.
    """
    stored = require_access(await lock_task(tx, tenant, ending.task_id), ending.task_id, ending.owner, ending.agent)
    if ending.is_held and await jobs.held_queue(tx, tenant, stored.id) is None:
        raise TaskHasStarted
    before, after = stored.task_state, ending.status.state
    if before in lifecycle.TERMINAL or after not in lifecycle.TRANSITIONS[before]:
        raise TaskHasEnded(before)
    return await _end_locked_task(tx, tenant, stored, ending.status, ending.at)


async def _end_locked_task(tx: Tx, tenant: str, stored: StoredTask, status: TaskStatus, at: int) -> list[EndedTask]:
    task = stored.task()
    account = await steps.read_account(tx, tenant, task.id)
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
    ended = await end_with_events(tx, tenant, stored, last)
    if status.state in lifecycle.TERMINAL:
        await pass_on_cancel(tx, tenant, task.id)
    return ended


async def end_with_events(tx: Tx, tenant: str, head: TaskHead, last: Append) -> list[EndedTask]:
    """End a task with its last events, whoever runs it and whoever has them."""
    await append(tx, tenant, last)
    await raise_fence(tx, tenant, head.id)
    others = await end_leftovers(tx, tenant, head.id, last.at)
    await _drop_run(tx, tenant, head.id)
    if head.parent_id is not None:
        await steps.wake_parent(tx, tenant, head.parent_id, head.id)
    return [EndedTask(tenant, head.id, head.agent, last.state or head.task_state), *others]


async def end_leftovers(tx: Tx, tenant: str, task_id: str, at: int) -> list[EndedTask]:
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
    ended: list[EndedTask] = []
    for child_id in await steps.open_children(tx, tenant, task_id):
        child = await lock_task(tx, tenant, child_id)
        if child is not None and child.task_state not in lifecycle.ENDED:
            ended += await _end_locked_task(
                tx, tenant, child, server_status(TaskState.CANCELED, LEFT_BEHIND, child, at), at
            )
    return ended


async def release_ended_job(tx: Tx, job: ClaimedJob) -> list[EndedTask]:
    """Remove work on a task that has ended, with what whoever said so had no time to end."""
    if await jobs.finish(tx, job) and (stored := await lock_task(tx, job.tenant, job.key)):
        return await _end_late(tx, job.tenant, stored)
    return []


async def _end_late(tx: Tx, tenant: str, stored: StoredTask) -> list[EndedTask]:
    """End what goes with a task whose run was lost after it had said how that ended: nobody else has counted it."""
    others = await end_leftovers(tx, tenant, stored.id, stored.updated_at)
    return [EndedTask(tenant, stored.id, stored.agent, stored.task_state), *others]


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


async def set_timer(tx: Tx, tenant: str, timer: TaskTimer) -> None:
    """End the task after a while, unless it ends before; setting the timer again moves it."""
    await tx.run(
        "DELETE FROM job WHERE tenant = :tenant AND kind = :kind AND key = :key",
        tenant=tenant,
        kind=timer.kind,
        key=timer.task_id,
    )
    job = NewJob(kind=timer.kind, key=timer.task_id, queue=TIMERS, arg=timer.arg, delay_ms=timer.delay_ms)
    await jobs.enqueue(tx, tenant, job)


async def set_timer_once(tx: Tx, tenant: str, request: TimerRequest) -> None:
    """Set a timer for the run that holds the task, and note that it did."""
    await steps.commit_step(tx, tenant, request.step)
    await set_timer(tx, tenant, request.timer)


async def expire_timer(tx: Tx, job: ClaimedJob, status: TaskStatus, at: int) -> list[EndedTask]:
    """Do what a timer is for: nothing if the task ended before or the timer was moved meanwhile."""
    if not await jobs.finish(tx, job):
        return []
    stored = await lock_task(tx, job.tenant, job.key)
    if stored is None or stored.task_state in lifecycle.ENDED:
        return []
    return await _end_locked_task(tx, job.tenant, stored, status, at)


# --- budgets ----------------------------------------------------------------------------------------------------------


async def charge_usage(tx: Tx, tenant: str, request: UsageRequest) -> UsageResult:
    """Count what a run has used; of its task and those above it, the topmost ends that has used more than it may.

    All that it has started ends with it, and so does the task of the run, which is the last to be looked at.
    """
    line = await steps.lock_ancestors(tx, tenant, request.task_id)
    return await _end_over_budget(tx, tenant, request, line, await steps.charge_accounts(tx, tenant, line, request))


async def charge_remote_usage(tx: Tx, tenant: str, told: RemoteUsage) -> UsageResult:
    """Count what an agent elsewhere says that it has used for a task; otherwise like `spend`, whoever runs the task."""
    line = await steps.lock_ancestors(tx, tenant, told.task_id)
    return await _end_over_budget(tx, tenant, told, line, await steps.charge_remote_total(tx, tenant, line, told))


async def _end_over_budget(
    tx: Tx, tenant: str, request: UsageRequest | RemoteUsage, line: list[TaskHead], charged: ChargedAccounts | None
) -> UsageResult:
    if charged is None:
        return UsageResult(account=await steps.read_account(tx, tenant, request.task_id))
    uses, accounts = charged
    for head, account in zip(line, accounts, strict=True):
        over = account.budget.over(account.used)
        if over is not None and head.task_state not in lifecycle.ENDED:
            stored = await lock_task(tx, tenant, head.id)
            assert stored is not None  # it is locked
            status = server_status(TaskState.FAILED, over, stored, request.at)
            ended = await _end_locked_task(tx, tenant, stored, status, request.at)
            return UsageResult(account=accounts[-1], counted=uses, over=over, ended=ended)
    return UsageResult(account=accounts[-1], counted=uses)


# --- nodes that are gone ----------------------------------------------------------------------------------------------


async def reap_nodes(tx: Tx, gone: Mapping[str, int]) -> ReapedNodes:
    """Give back the work of nodes that are gone and return their names; work that was lost too often ends.

    `gone` are nodes with the number of their last heartbeat: one that has sent another since is not gone.
    """
    ended: list[EndedTask] = []
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
                ended += await _give_up_task(tx, tenant, task_id, attempts)
        await jobs.forget_node(tx, node, counts=True)
    return ReapedNodes(nodes=dead, ended=ended)


async def _without_lease(tx: Tx) -> list[str]:
    """Return nodes that hold something but have no lease: they took it in the moment in which they were forgotten."""
    rows = await tx.all(
        """SELECT node FROM (SELECT node FROM job WHERE node IS NOT NULL
                             UNION SELECT node FROM push WHERE node IS NOT NULL) AS holder
           WHERE NOT EXISTS (SELECT 1 FROM node WHERE node.id = holder.node) ORDER BY node"""
    )
    return [row[0] for row in rows]


async def give_up_job(tx: Tx, job: ClaimedJob) -> list[EndedTask]:
    """End a task whose work was begun too often, unless somebody else holds it now."""
    return await _give_up_task(tx, job.tenant, job.key, job.attempts - 1) if await jobs.finish(tx, job) else []


async def _give_up_task(tx: Tx, tenant: str, task_id: str, attempts: int) -> list[EndedTask]:
    stored = await lock_task(tx, tenant, task_id)
    if stored is None or stored.task_state in lifecycle.TERMINAL:
        ended = [] if stored is None else await _end_late(tx, tenant, stored)
        await _drop_run(tx, tenant, task_id)
        return ended
    row = await tx.one("SELECT {now}")
    at = int(row[0]) if row else stored.updated_at
    times = "once" if attempts == 1 else f"{attempts} times"
    text = f"The agent's process was lost {times}; the task was given up"
    return await _end_locked_task(tx, tenant, stored, server_status(TaskState.FAILED, text, stored, at), at)


# --- small things -----------------------------------------------------------------------------------------------------


def server_status(state: TaskState, text: str, stored: StoredTask, at: int) -> TaskStatus:
    """Return a status in which the server explains itself."""
    message = Message(
        message_id=f"{stored.id}-{stored.last_seq + 1}",
        role=Role.AGENT,
        parts=(Part(text=text),),
        task_id=stored.id,
        context_id=stored.context_id,
    )
    return TaskStatus(state=state, message=message, timestamp=timestamp_ms(at))


def require_access(found: H | None, task_id: str, owner: str | None, agent: str | None) -> H:
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
