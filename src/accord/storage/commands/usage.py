"""What tasks have used, each with those that it has started: sums that are kept among a task's steps.

A use is counted once by the step that it is, and for every task above the one that it is of, in one transaction. That a
task ends which has used too much is `endings`; what a budget is, `protocol.budgets`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from accord.protocol.budgets import Budget, BudgetAccount, TokenUsage, TotalUsage
from accord.storage.commands import steps
from accord.storage.commands.tasks import Ended, Fenced, Head, lock_head
from accord.storage.store import Tx

ACCOUNT = "usage"
"""The step that is a task's account; steps of agents have other names."""

ELSEWHERE = "elsewhere:"
"""Begins the steps that keep what agents elsewhere said last, each with what the task is called there."""

_ACCOUNT: msgspec.json.Decoder[BudgetAccount] = msgspec.json.Decoder(BudgetAccount)
_TOTAL: msgspec.json.Decoder[TotalUsage] = msgspec.json.Decoder(TotalUsage)
_NEW = BudgetAccount()


class Spend(Struct, frozen=True, kw_only=True):
    """What a run has used, under its claim, what its task may, and the step that makes it count once."""

    task_id: str
    epoch: int
    step: str
    use: TokenUsage
    budget: Budget
    at: int
    model: str | None = None


class Told(Struct, frozen=True, kw_only=True):
    """What an agent elsewhere says that it has used in all for a task, which is called `name` there."""

    task_id: str
    name: str
    total: TotalUsage
    at: int


Uses = tuple[tuple[TokenUsage, str | None], ...]
"""What was used, each with its model, if that is known."""


class Spent(Struct, frozen=True, kw_only=True):
    """The account after that, what was counted, which is nothing if it was known before, and why the run has to stop
    if it has, with what has ended for it."""

    account: BudgetAccount
    counted: Uses = ()
    over: str | None = None
    ended: Sequence[Ended] = ()


def account_of(output: str | None) -> BudgetAccount:
    """Return the account that a step has kept."""
    return _NEW if output is None else _ACCOUNT.decode(output)


async def read(tx: Tx, tenant: str, task_id: str) -> BudgetAccount:
    """Return a task's account."""
    return account_of(await steps.find(tx, tenant, task_id, ACCOUNT))


async def limit(tx: Tx, tenant: str, task_id: str, budget: Budget, at: int) -> None:
    """Let a budget be known that is at least as tight as the one before; the task is locked."""
    if budget != Budget():
        await _put(tx, tenant, task_id, ACCOUNT, (await read(tx, tenant, task_id)).limited(budget), at)


async def left(tx: Tx, tenant: str, task_id: str) -> Budget:
    """Return what a task may still use: what is left of its budget, or less if a task above it has less."""
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
        account=ACCOUNT,
    )
    budget = Budget()
    for row in rows:
        account = account_of(row[0])
        budget = budget.tightened(account.budget.left(account.used))
    return budget


async def lineage(tx: Tx, tenant: str, task_id: str) -> list[Head]:
    """Return a task and those above it, the topmost first: in the order in which all lock them."""
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


class Charged(NamedTuple):
    """What was counted, and the accounts of a line after that."""

    uses: Uses
    accounts: list[BudgetAccount]


async def charge(tx: Tx, tenant: str, line: list[Head], spend: Spend) -> Charged | None:
    """Count a use for a task, the last of its line, and for those above; None if it was counted before."""
    if not line or line[-1].epoch != spend.epoch:
        raise Fenced(f"Task {spend.task_id} has another owner than epoch {spend.epoch}, or does not exist")
    if not await steps.put(tx, tenant, spend.task_id, spend.step, "null", spend.at):
        return None
    return await _charge(tx, tenant, line, ((spend.use, spend.model),), spend.at, spend.budget)


async def hear(tx: Tx, tenant: str, line: list[Head], told: Told) -> Charged | None:
    """Count what an agent elsewhere has used since it last said so; None if that is nothing."""
    key = f"{ELSEWHERE}{told.name}"
    found = await steps.find(tx, tenant, told.task_id, key)
    uses = tuple(told.total.since(TotalUsage() if found is None else _TOTAL.decode(found)))
    if not line or not uses:
        return None
    await _put(tx, tenant, told.task_id, key, told.total, told.at)
    return await _charge(tx, tenant, line, uses, told.at)


async def _charge(tx: Tx, tenant: str, line: list[Head], uses: Uses, at: int, budget: Budget = _NEW.budget) -> Charged:
    """Count uses for a whole line, whose last task has this budget at most."""
    accounts: list[BudgetAccount] = []
    for head in line:
        account = await read(tx, tenant, head.id)
        for use, model in uses:
            account = account.charged(use, model)
        if head is line[-1]:
            account = account.limited(budget)
        await _put(tx, tenant, head.id, ACCOUNT, account, at)
        accounts.append(account)
    return Charged(uses, accounts)


async def _put(tx: Tx, tenant: str, task_id: str, key: str, value: BudgetAccount | TotalUsage, at: int) -> None:
    await tx.run(
        """INSERT INTO step (tenant, task_id, key, output, at) VALUES (:tenant, :task_id, :key, :output, :at)
           ON CONFLICT (tenant, task_id, key) DO UPDATE SET output = excluded.output, at = excluded.at""",
        tenant=tenant,
        task_id=task_id,
        key=key,
        output=msgspec.json.encode(value).decode(),
        at=at,
    )
