"""Ends of tasks from outside: cancel, deadline, budget, lost nodes, and the end of the parent.

Each command ends a task in one transaction, with its event log, the fence, its job, its timers and its child tasks.
Nothing outlives the task. An execution ends its own task with `task_lifecycle.settle_execution`.
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
from accord.storage.commands.jobs import DEADLINE, EXECUTE_TASK, SLA, TIMERS, ClaimedJob, NewJob
from accord.storage.commands.steps import ChargedAccounts, RemoteUsage, UsageRequest, UsageResult
from accord.storage.commands.tasks import Append, EndedTask, StoredTask, TaskHead, append, lock_task
from accord.storage.store import Tx

H = TypeVar("H", bound=TaskHead)

LEFT_BEHIND = "The task that called this one has ended"
"""Status message of a child task that ends with its parent."""


REMOTE_CANCELS = "remote"
"""The notification topic of cancels to send to remote agents."""


class EndRequest(Struct, frozen=True, kw_only=True):
    """A request to end a task with a status."""

    task_id: str
    status: TaskStatus
    at: int
    owner: str | None = None
    agent: str | None = None
    is_held: bool = False
    """Whether only a held task that has not started may be ended."""


class TaskTimer(Struct, frozen=True, kw_only=True):
    """A timer that ends a task. `arg` is the reason."""

    task_id: str
    kind: str
    delay_ms: int
    arg: str | None = None


class TimerRequest(Struct, frozen=True, kw_only=True):
    """A timer that an execution sets once. A later attempt finds the step and leaves the timer unchanged."""

    timer: TaskTimer
    step: steps.StepResult


class ReapedNodes(Struct, frozen=True, kw_only=True):
    """Lost nodes whose jobs were released, and the tasks that ended for it."""

    nodes: list[str]
    ended: list[EndedTask]


class NoSuchTask(Exception):
    """The task does not exist, or it has another owner."""


class TaskHasEnded(Exception):
    """The task has ended."""

    def __init__(self, state: TaskState) -> None:
        """Store the task's state."""
        super().__init__(f"The task is {state.name}")
        self.state = state


class TaskHasStarted(Exception):
    """The task was held, but has already started."""


async def end_task(tx: Tx, tenant: str, ending: EndRequest) -> list[EndedTask]:
    """End a task from outside.

    Raise its fence, delete its job and timers, and notify its node. Its child tasks end with it, recursively. Return
    all ended tasks, as every command that ends tasks does.
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
    """End a task with its last events, regardless of the node that holds it."""
    await append(tx, tenant, last)
    await raise_fence(tx, tenant, head.id)
    others = await end_leftovers(tx, tenant, head.id, last.at)
    await _drop_run(tx, tenant, head.id)
    if head.parent_id is not None:
        await steps.wake_parent(tx, tenant, head.parent_id, head.id)
    return [EndedTask(tenant, head.id, head.agent, last.state or head.task_state), *others]


async def end_leftovers(tx: Tx, tenant: str, task_id: str, at: int) -> list[EndedTask]:
    """Delete the timers of an ended task and cancel its child tasks.

    Call this before deleting its job: a child task locks itself, then its parent's job.
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
    """Delete the job of an ended task, and end its leftovers."""
    if await jobs.finish(tx, job) and (stored := await lock_task(tx, job.tenant, job.key)):
        return await _end_late(tx, job.tenant, stored)
    return []


async def _end_late(tx: Tx, tenant: str, stored: StoredTask) -> list[EndedTask]:
    """End the leftovers of a task whose execution was lost after the task ended.

    Its end is returned because no other command has counted it.
    """
    others = await end_leftovers(tx, tenant, stored.id, stored.updated_at)
    return [EndedTask(tenant, stored.id, stored.agent, stored.task_state), *others]


async def pass_on_cancel(tx: Tx, tenant: str, task_id: str) -> None:
    """Schedule a cancel of the remote task, if the task has one."""
    told = await tx.run(
        "UPDATE remote SET cancel_at = {now} WHERE tenant = :tenant AND task_id = :task_id",
        tenant=tenant,
        task_id=task_id,
    )
    if told:
        tx.signal(REMOTE_CANCELS)


# --- timers -----------------------------------------------------------------------------------------------------------


async def set_timer(tx: Tx, tenant: str, timer: TaskTimer) -> None:
    """Set a timer that ends the task. Setting it again moves it."""
    await tx.run(
        "DELETE FROM job WHERE tenant = :tenant AND kind = :kind AND key = :key",
        tenant=tenant,
        kind=timer.kind,
        key=timer.task_id,
    )
    job = NewJob(kind=timer.kind, key=timer.task_id, queue=TIMERS, arg=timer.arg, delay_ms=timer.delay_ms)
    await jobs.enqueue(tx, tenant, job)


async def set_timer_once(tx: Tx, tenant: str, request: TimerRequest) -> None:
    """Set a timer for the execution that holds the task, and record the step."""
    await steps.commit_step(tx, tenant, request.step)
    await set_timer(tx, tenant, request.timer)


async def expire_timer(tx: Tx, job: ClaimedJob, status: TaskStatus, at: int) -> list[EndedTask]:
    """End a task whose timer expired. Does nothing if the task has ended or the timer was moved."""
    if not await jobs.finish(tx, job):
        return []
    stored = await lock_task(tx, job.tenant, job.key)
    if stored is None or stored.task_state in lifecycle.ENDED:
        return []
    return await _end_locked_task(tx, job.tenant, stored, status, at)


# --- budgets ----------------------------------------------------------------------------------------------------------


async def charge_usage(tx: Tx, tenant: str, request: UsageRequest) -> UsageResult:
    """Charge an execution's usage. The topmost task over its budget ends.

    All its descendants end with it, including the charged task, which is checked last.
    """
    line = await steps.lock_ancestors(tx, tenant, request.task_id)
    return await _end_over_budget(tx, tenant, request, line, await steps.charge_accounts(tx, tenant, line, request))


async def charge_remote_usage(tx: Tx, tenant: str, told: RemoteUsage) -> UsageResult:
    """Charge the usage that a remote agent reports, like `charge_usage` but without a claim."""
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
            assert stored is not None  # it is locked above
            status = server_status(TaskState.FAILED, over, stored, request.at)
            ended = await _end_locked_task(tx, tenant, stored, status, request.at)
            return UsageResult(account=accounts[-1], counted=uses, over=over, ended=ended)
    return UsageResult(account=accounts[-1], counted=uses)


# --- lost nodes -------------------------------------------------------------------------------------------------------


async def reap_nodes(tx: Tx, gone: Mapping[str, int]) -> ReapedNodes:
    """Release the jobs of lost nodes. A task whose job was lost too often ends.

    `gone` maps nodes to the number of their last heartbeat. A node with a later heartbeat is skipped.
    """
    ended: list[EndedTask] = []
    dead = []
    for node, beats in sorted(gone.items()):
        if await tx.one("SELECT 1 FROM node WHERE id = :node AND beats = :beats {skip_locked}", node=node, beats=beats):
            dead.append(node)
    dead += await _without_lease(tx)
    for node in dead:
        exhausted = await tx.all(  # ordered by age: parents are locked before their children
            """SELECT tenant, key, attempts FROM job
               WHERE node = :node AND kind = :kind AND attempts >= max_attempts ORDER BY tenant, key""",
            node=node,
            kind=EXECUTE_TASK,
        )
        for tenant, task_id, attempts in exhausted:
            if (tenant, task_id) not in {one[:2] for one in ended}:  # it may just have ended with its parent
                ended += await _give_up_task(tx, tenant, task_id, attempts)
        await jobs.forget_node(tx, node, counts=True)
    return ReapedNodes(nodes=dead, ended=ended)


async def _without_lease(tx: Tx) -> list[str]:
    """Return nodes with claims but without a lease: they claimed something while they were being deleted."""
    rows = await tx.all(
        """SELECT node FROM (SELECT node FROM job WHERE node IS NOT NULL
                             UNION SELECT node FROM push WHERE node IS NOT NULL) AS holder
           WHERE NOT EXISTS (SELECT 1 FROM node WHERE node.id = holder.node) ORDER BY node"""
    )
    return [row[0] for row in rows]


async def give_up_job(tx: Tx, job: ClaimedJob) -> list[EndedTask]:
    """End a task whose job was started too often, unless another node holds it now."""
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


# --- helpers ----------------------------------------------------------------------------------------------------------


def server_status(state: TaskState, text: str, stored: StoredTask, at: int) -> TaskStatus:
    """Return a task status with a message from the server."""
    message = Message(
        message_id=f"{stored.id}-{stored.last_seq + 1}",
        role=Role.AGENT,
        parts=(Part(text=text),),
        task_id=stored.id,
        context_id=stored.context_id,
    )
    return TaskStatus(state=state, message=message, timestamp=timestamp_ms(at))


def require_access(found: H | None, task_id: str, owner: str | None, agent: str | None) -> H:
    """Return the task if it exists and matches owner and agent. None matches any. Raises NoSuchTask."""
    if found is None or owner not in (None, found.owner) or agent not in (None, found.agent):
        raise NoSuchTask(task_id)
    return found


async def raise_fence(tx: Tx, tenant: str, task_id: str) -> None:
    """Fence off the current holder of a task."""
    await tx.run("UPDATE task SET epoch = epoch + 1 WHERE tenant = :tenant AND id = :id", tenant=tenant, id=task_id)


async def _drop_run(tx: Tx, tenant: str, task_id: str) -> None:
    """Delete the job that runs a task, and notify the node that holds it."""
    holders = await tx.all(
        "DELETE FROM job WHERE tenant = :tenant AND kind = :kind AND key = :key RETURNING node",
        tenant=tenant,
        kind=EXECUTE_TASK,
        key=task_id,
    )
    tx.signal(*(jobs.node_topic(row[0]) for row in holders if row[0] is not None))
