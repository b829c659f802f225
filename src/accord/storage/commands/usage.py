"""What tasks have used, each with those that it has started: sums that are kept among a task's steps.

A use is counted once by the step that it is, and for every task above the one that it is of, in one transaction. That a
task ends which has used too much is `endings`; what a budget is, `protocol.budgets`.
"""

import msgspec
from msgspec import Struct

from accord.protocol.budgets import Account, Budget, Use
from accord.storage.commands import steps
from accord.storage.commands.tasks import Fenced, Head, lock_head
from accord.storage.store import Tx

ACCOUNT = "usage"
"""The step that is a task's account; steps of agents have other names."""

_ACCOUNT: msgspec.json.Decoder[Account] = msgspec.json.Decoder(Account)
_NEW = Account()


class Spend(Struct, frozen=True, kw_only=True):
    """What a run has used, under its claim, what its task may, and the step that makes it count once."""

    task_id: str
    epoch: int
    step: str
    use: Use
    budget: Budget
    at: int
    model: str | None = None


class Spent(Struct, frozen=True, kw_only=True):
    """The account after that, and why the run has to stop if it has; `is_counted` is false if it was known before."""

    account: Account
    is_counted: bool
    over: str | None = None


def account_of(output: str | None) -> Account:
    """Return the account that a step has kept."""
    return _NEW if output is None else _ACCOUNT.decode(output)


async def read(tx: Tx, tenant: str, task_id: str) -> Account:
    """Return a task's account."""
    return account_of(await steps.find(tx, tenant, task_id, ACCOUNT))


async def limit(tx: Tx, tenant: str, task_id: str, budget: Budget, at: int) -> None:
    """Let a budget be known that is at least as tight as the one before; the task is locked."""
    if budget != Budget():
        await _put(tx, tenant, task_id, (await read(tx, tenant, task_id)).limited(budget), at)


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


async def charge(tx: Tx, tenant: str, line: list[Head], spend: Spend) -> list[Account] | None:
    """Count a use for a task, the last of its line, and for those above; None if it was counted before."""
    if not line or line[-1].epoch != spend.epoch:
        raise Fenced(f"Task {spend.task_id} has another owner than epoch {spend.epoch}, or does not exist")
    if not await steps.put(tx, tenant, spend.task_id, spend.step, "null", spend.at):
        return None
    accounts: list[Account] = []
    for head in line:
        account = (await read(tx, tenant, head.id)).charged(spend.use, spend.model)
        if head.id == spend.task_id:
            account = account.limited(spend.budget)
        await _put(tx, tenant, head.id, account, spend.at)
        accounts.append(account)
    return accounts


async def _put(tx: Tx, tenant: str, task_id: str, account: Account, at: int) -> None:
    await tx.run(
        """INSERT INTO step (tenant, task_id, key, output, at) VALUES (:tenant, :task_id, :key, :output, :at)
           ON CONFLICT (tenant, task_id, key) DO UPDATE SET output = excluded.output, at = excluded.at""",
        tenant=tenant,
        task_id=task_id,
        key=ACCOUNT,
        output=msgspec.json.encode(account).decode(),
        at=at,
    )
