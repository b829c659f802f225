"""Steps of a task: memoized results, usage, and the child tasks that it started.

A step is written under the fence of its task and never executed again. The usage of a task and its child tasks is a
step, counted once for the task and all its ancestors. A child task is recorded as a step of its parent in the
transaction that creates it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from accord.protocol import lifecycle
from accord.protocol.budgets import Budget, BudgetAccount, TokenUsage, TotalUsage
from accord.storage.commands import jobs
from accord.storage.commands.tasks import EndedTask, Fenced, TaskHead, lock_head
from accord.storage.encoding import state_name, state_of
from accord.storage.store import Tx

FAILURE_STEP = "failure"
"""The step that stores the exception that failed the task. Steps of agents have other names."""


class StepResult(Struct, frozen=True, kw_only=True):
    """The output of a step, and the claim under which it was executed."""

    task_id: str
    epoch: int
    key: str
    output: str
    at: int


async def load_steps(tx: Tx, tenant: str, task_id: str) -> dict[str, str]:
    """Return all steps of a task: key -> output."""
    rows = await tx.all(
        "SELECT key, output FROM step WHERE tenant = :tenant AND task_id = :task_id", tenant=tenant, task_id=task_id
    )
    return dict(rows)


async def find_step(tx: Tx, tenant: str, task_id: str, key: str) -> str | None:
    """Return a step's output, or None."""
    row = await tx.one(
        "SELECT output FROM step WHERE tenant = :tenant AND task_id = :task_id AND key = :key",
        tenant=tenant,
        task_id=task_id,
        key=key,
    )
    return None if row is None else str(row[0])


async def put_step(tx: Tx, tenant: str, task_id: str, key: str, output: str, at: int) -> bool:
    """Store a step's output. Return false if the step already exists."""
    added = await tx.run(
        """INSERT INTO step (tenant, task_id, key, output, at) VALUES (:tenant, :task_id, :key, :output, :at)
           ON CONFLICT (tenant, task_id, key) DO NOTHING""",
        tenant=tenant,
        task_id=task_id,
        key=key,
        output=output,
        at=at,
    )
    return added == 1


async def put_steps(tx: Tx, tenant: str, task_id: str, entries: Sequence[tuple[str, str]], at: int) -> None:
    """Store the outputs of several steps by key. Existing steps are not changed."""
    await tx.many(
        """INSERT INTO step (tenant, task_id, key, output, at) VALUES (:tenant, :task_id, :key, :output, :at)
           ON CONFLICT (tenant, task_id, key) DO NOTHING""",
        [{"tenant": tenant, "task_id": task_id, "key": key, "output": output, "at": at} for key, output in entries],
    )


async def commit_step(tx: Tx, tenant: str, step: StepResult) -> None:
    """Store a step's output if the node still holds the task; raises Fenced."""
    row = await tx.one(
        "SELECT epoch FROM task WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=step.task_id
    )
    if row is None or row[0] != step.epoch:
        raise Fenced(f"Task {step.task_id} has another owner than epoch {step.epoch}, or does not exist")
    await put_step(tx, tenant, step.task_id, step.key, step.output, step.at)


USAGE_STEP = "usage"
"""The step that stores a task's account. Steps of agents have other names."""

REMOTE_USAGE_PREFIX = "elsewhere:"
"""Prefix of the steps with the latest usage totals of remote agents, followed by the remote task's name."""

_ACCOUNT_DECODER: msgspec.json.Decoder[BudgetAccount] = msgspec.json.Decoder(BudgetAccount)
_TOTAL_DECODER: msgspec.json.Decoder[TotalUsage] = msgspec.json.Decoder(TotalUsage)
_EMPTY_ACCOUNT = BudgetAccount()


class UsageRequest(Struct, frozen=True, kw_only=True):
    """Usage to charge, under the claim of an execution."""

    task_id: str
    epoch: int
    step: str
    """The step that ensures that the usage is counted once."""
    use: TokenUsage
    budget: Budget
    """The task's budget."""
    at: int
    model: str | None = None


class RemoteUsage(Struct, frozen=True, kw_only=True):
    """The total usage that a remote agent reports for a task, which it calls `name`."""

    task_id: str
    name: str
    total: TotalUsage
    at: int


Uses = tuple[tuple[TokenUsage, str | None], ...]
"""Usage entries, each with its model if known."""


class UsageResult(Struct, frozen=True, kw_only=True):
    """The result of a charge."""

    account: BudgetAccount
    """The task's account after it."""
    counted: Uses = ()
    """The counted usage, empty for a duplicate."""
    over: str | None = None
    """The reason to stop, if a budget is exceeded."""
    ended: Sequence[EndedTask] = ()
    """The tasks that ended for it."""


def decode_account(output: str | None) -> BudgetAccount:
    """Decode the account in a step's output. None is an empty account."""
    return _EMPTY_ACCOUNT if output is None else _ACCOUNT_DECODER.decode(output)


async def read_account(tx: Tx, tenant: str, task_id: str) -> BudgetAccount:
    """Return a task's account."""
    return decode_account(await find_step(tx, tenant, task_id, USAGE_STEP))


async def tighten_budget(tx: Tx, tenant: str, task_id: str, budget: Budget, at: int) -> None:
    """Tighten a task's budget. The caller must hold the task's lock."""
    if budget != Budget():
        await _put_usage(tx, tenant, task_id, USAGE_STEP, (await read_account(tx, tenant, task_id)).limited(budget), at)


async def remaining_budget(tx: Tx, tenant: str, task_id: str) -> Budget:
    """Return a task's remaining budget, limited by those of its ancestors."""
    rows = await tx.all(
        """WITH RECURSIVE above(id, parent_id) AS (
               SELECT id, parent_id FROM task WHERE tenant = :tenant AND id = :id
               UNION ALL
               SELECT task.id, task.parent_id FROM above
               JOIN task ON task.tenant = :tenant AND task.id = above.parent_id)
           SELECT output FROM above JOIN step ON step.tenant = :tenant AND step.task_id = above.id
           WHERE step.key = :account""",
        tenant=tenant,
        id=task_id,
        account=USAGE_STEP,
    )
    budget = Budget()
    for row in rows:
        account = decode_account(row[0])
        budget = budget.tightened(account.budget.left(account.used))
    return budget


async def lock_ancestors(tx: Tx, tenant: str, task_id: str) -> list[TaskHead]:
    """Lock a task and its ancestors. Return them topmost first, the order in which all commands lock."""
    rows = await tx.all(
        """WITH RECURSIVE above(id, parent_id, height) AS (
               SELECT id, parent_id, 0 FROM task WHERE tenant = :tenant AND id = :id
               UNION ALL
               SELECT task.id, task.parent_id, height + 1 FROM above
               JOIN task ON task.tenant = :tenant AND task.id = above.parent_id)
           SELECT id FROM above ORDER BY height DESC""",
        tenant=tenant,
        id=task_id,
    )
    heads = [await lock_head(tx, tenant, row[0]) for row in rows]
    return [head for head in heads if head is not None]


class ChargedAccounts(NamedTuple):
    """The counted usage, and the accounts of a task's line after it."""

    uses: Uses
    accounts: list[BudgetAccount]


async def charge_accounts(tx: Tx, tenant: str, line: list[TaskHead], spend: UsageRequest) -> ChargedAccounts | None:
    """Charge usage to a task, the last of its line, and its ancestors. Return None if it was counted before."""
    if not line or line[-1].epoch != spend.epoch:
        raise Fenced(f"Task {spend.task_id} has another owner than epoch {spend.epoch}, or does not exist")
    if not await put_step(tx, tenant, spend.task_id, spend.step, "null", spend.at):
        return None
    return await _charge_ancestors(tx, tenant, line, ((spend.use, spend.model),), spend.at, spend.budget)


async def charge_remote_total(tx: Tx, tenant: str, line: list[TaskHead], told: RemoteUsage) -> ChargedAccounts | None:
    """Charge the increase of a remote agent's usage total. Return None if it has not changed."""
    key = f"{REMOTE_USAGE_PREFIX}{told.name}"
    found = await find_step(tx, tenant, told.task_id, key)
    uses = tuple(told.total.since(TotalUsage() if found is None else _TOTAL_DECODER.decode(found)))
    if not line or not uses:
        return None
    await _put_usage(tx, tenant, told.task_id, key, told.total, told.at)
    return await _charge_ancestors(tx, tenant, line, uses, told.at)


async def _charge_ancestors(
    tx: Tx, tenant: str, line: list[TaskHead], uses: Uses, at: int, budget: Budget = _EMPTY_ACCOUNT.budget
) -> ChargedAccounts:
    """Charge usage to a whole line. `budget` limits its last task."""
    accounts: list[BudgetAccount] = []
    for head in line:
        account = await read_account(tx, tenant, head.id)
        for use, model in uses:
            account = account.charged(use, model)
        if head is line[-1]:
            account = account.limited(budget)
        await _put_usage(tx, tenant, head.id, USAGE_STEP, account, at)
        accounts.append(account)
    return ChargedAccounts(uses, accounts)


async def _put_usage(tx: Tx, tenant: str, task_id: str, key: str, value: BudgetAccount | TotalUsage, at: int) -> None:
    await tx.run(
        """INSERT INTO step (tenant, task_id, key, output, at) VALUES (:tenant, :task_id, :key, :output, :at)
           ON CONFLICT (tenant, task_id, key) DO UPDATE SET output = excluded.output, at = excluded.at""",
        tenant=tenant,
        task_id=task_id,
        key=key,
        output=msgspec.json.encode(value).decode(),
        at=at,
    )


_ENDED_STATES = ", ".join(f"'{state_name(state)}'" for state in sorted(lifecycle.ENDED, key=lambda state: state.name))


_WORKING_STATES = frozenset(lifecycle.TRANSITIONS) - lifecycle.ENDED - lifecycle.INTERRUPTED

ANY_CHILD = "*"
"""Wildcard in a parent's job: it waits for any child task."""


class ChildWatch(Struct, frozen=True, kw_only=True):
    """The steps and child tasks that a suspended task waits for."""

    keys: tuple[str, ...] = ()
    """Keys of steps. One of them suffices."""
    children: dict[str, bool] = {}
    """Child task -> its last seen state: true if it waited for input, false if it was working."""


class ParentExecution(Struct, frozen=True, kw_only=True):
    """The execution that creates a child task, its claim, and the step that records the child.

    Usage of the child task counts for its parent too, whose budget is `budget`. The parent's `deadline_at` also limits
    the child. Without `owns` the step only records an independent task with its own deadline and budget.
    """

    task_id: str
    epoch: int
    step: str
    budget: Budget = Budget()
    deadline_at: int | None = None
    owns: bool = True


async def adopt_child(tx: Tx, tenant: str, parent: ParentExecution, child_id: str, at: int) -> str | None:
    """Record a child task. Return the existing child task of the same step, if any.

    It locks the parent, which cannot end at the same time without its new child task.
    """
    row = await tx.one(
        "SELECT epoch, state FROM task WHERE tenant = :tenant AND id = :id {for_update}",
        tenant=tenant,
        id=parent.task_id,
    )
    if row is None or row[0] != parent.epoch:
        raise Fenced(f"Task {parent.task_id} has another owner than epoch {parent.epoch}, or does not exist")
    found = await find_step(tx, tenant, parent.task_id, parent.step)
    if found is not None:
        return msgspec.json.decode(found, type=str)
    if state_of(row[1]) in lifecycle.TERMINAL:
        raise lifecycle.TaskEnded(f"Task {parent.task_id} has ended and cannot create child tasks")
    await put_step(tx, tenant, parent.task_id, parent.step, msgspec.json.encode(child_id).decode(), at)
    if not parent.owns:
        return None
    await tx.run(
        "UPDATE task SET children = children + 1 WHERE tenant = :tenant AND id = :id", tenant=tenant, id=parent.task_id
    )
    await tighten_budget(tx, tenant, parent.task_id, parent.budget, at)
    return None


async def open_children(tx: Tx, tenant: str, parent_id: str) -> list[str]:
    """Return the child tasks that have not ended. Unknown ones count as ended."""
    counted = await tx.one("SELECT children FROM task WHERE tenant = :tenant AND id = :id", tenant=tenant, id=parent_id)
    if counted is None or not counted[0]:
        return []
    rows = await tx.all(
        f"SELECT id FROM task WHERE tenant = :tenant AND parent_id = :id AND state NOT IN ({_ENDED_STATES})",
        tenant=tenant,
        id=parent_id,
    )
    return sorted(row[0] for row in rows)


async def is_waiting_for_answer(tx: Tx, tenant: str, child_id: str) -> bool:
    """Whether a child task waits for input. It is locked until this transaction ends."""
    row = await tx.one(
        "SELECT state FROM task WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=child_id
    )
    return row is not None and state_of(row[0]) in lifecycle.INTERRUPTED


async def have_children_changed(tx: Tx, tenant: str, watch: ChildWatch) -> bool:
    """Whether any watched child task has changed its known state.

    All are locked until this transaction ends.
    """
    if not watch.children:
        return False
    rows = await tx.all(
        """SELECT id, state FROM task WHERE tenant = :tenant AND id IN (SELECT key FROM {pairs} :wanted {end})
           ORDER BY id {for_update}""",
        tenant=tenant,
        wanted=msgspec.json.encode(watch.children).decode(),
    )
    known = {True: lifecycle.INTERRUPTED, False: _WORKING_STATES}
    return len(rows) < len(watch.children) or any(
        state_of(state) not in known[watch.children[child]] for child, state in rows
    )


async def wake_parent(tx: Tx, tenant: str, parent_id: str, child_id: str) -> None:
    """Wake a parent that waits for this child task."""
    row = await tx.one(
        """UPDATE job SET parked = 0, child = NULL, run_at = {now}
           WHERE tenant = :tenant AND kind = :kind AND key = :key AND node IS NULL AND child IN (:child, :any)
           RETURNING queue""",
        tenant=tenant,
        kind=jobs.EXECUTE_TASK,
        key=parent_id,
        child=child_id,
        any=ANY_CHILD,
    )
    if row is not None:
        tx.signal(jobs.queue_topic(row[0]))
