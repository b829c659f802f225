"""Tasks that tasks have started: a child belongs to the run that called it, and may ask through it.

A child is made under its parent's claim and noted among the parent's steps, in the transaction that makes it, so a
parent that is run again finds it. How tasks end, and their children with them, is `runs`.
"""

import msgspec
from msgspec import Struct

from accord.protocol import lifecycle
from accord.protocol.budgets import Budget
from accord.storage.commands import jobs, steps, usage
from accord.storage.commands.tasks import Fenced
from accord.storage.records import state_name, state_of
from accord.storage.store import Tx

_ENDED = ", ".join(f"'{state_name(state)}'" for state in sorted(lifecycle.ENDED, key=lambda state: state.name))


_BUSY = frozenset(lifecycle.TRANSITIONS) - lifecycle.ENDED - lifecycle.INTERRUPTED

ANY = "*"
"""In place of the child whose question a parent waits with: it waits for any of them."""


class Watch(Struct, frozen=True, kw_only=True):
    """What a run waits for: something under one of these keys, or that one of its children moves.

    Each child is known to ask (true) or to be at work.
    """

    keys: tuple[str, ...] = ()
    children: dict[str, bool] = {}


class Parent(Struct, frozen=True, kw_only=True):
    """The run that calls: its task, the claim under which it runs, and the step that notes its child.

    What the child uses, its parent has used as well: `budget` is what that may. The child knows until when it has time.
    One that does not `own` what it makes only notes it: that is a task like any other, with a time and a budget of its
    own.
    """

    task_id: str
    epoch: int
    step: str
    budget: Budget = Budget()
    deadline_at: int | None = None
    owns: bool = True


async def adopt(tx: Tx, tenant: str, parent: Parent, child_id: str, at: int) -> str | None:
    """Let a run have a child, and note it; return the one that it has already for the same step.

    The parent is locked: it cannot end in the same moment without knowing of the child.
    """
    row = await tx.one(
        "SELECT epoch, state FROM task WHERE tenant = :tenant AND id = :id {for_update}",
        tenant=tenant,
        id=parent.task_id,
    )
    if row is None or row[0] != parent.epoch:
        raise Fenced(f"Task {parent.task_id} has another owner than epoch {parent.epoch}, or does not exist")
    found = await steps.find(tx, tenant, parent.task_id, parent.step)
    if found is not None:
        return msgspec.json.decode(found, type=str)
    if state_of(row[1]) in lifecycle.TERMINAL:
        raise lifecycle.TaskEnded(f"Task {parent.task_id} has ended and calls nobody any more")
    await steps.put(tx, tenant, parent.task_id, parent.step, msgspec.json.encode(child_id).decode(), at)
    if not parent.owns:
        return None
    await tx.run(
        "UPDATE task SET children = children + 1 WHERE tenant = :tenant AND id = :id", tenant=tenant, id=parent.task_id
    )
    await usage.limit(tx, tenant, parent.task_id, parent.budget, at)
    return None


async def living(tx: Tx, tenant: str, parent_id: str) -> list[str]:
    """Return the children of a task that have not ended; one that was given up as unknown has."""
    counted = await tx.one("SELECT children FROM task WHERE tenant = :tenant AND id = :id", tenant=tenant, id=parent_id)
    if counted is None or not counted[0]:
        return []
    rows = await tx.all(
        f"SELECT id FROM task WHERE tenant = :tenant AND parent_id = :id AND state NOT IN ({_ENDED})",
        tenant=tenant,
        id=parent_id,
    )
    return sorted(row[0] for row in rows)


async def asks(tx: Tx, tenant: str, child_id: str) -> bool:
    """Whether a child waits for an answer; if so it does until this transaction ends."""
    row = await tx.one(
        "SELECT state FROM task WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=child_id
    )
    return row is not None and state_of(row[0]) in lifecycle.INTERRUPTED


async def have_moved(tx: Tx, tenant: str, watch: Watch) -> bool:
    """Whether one of the children asks or has ended of which that is not known; if not, none does until this
    transaction ends."""
    if not watch.children:
        return False
    rows = await tx.all(
        """SELECT id, state FROM task WHERE tenant = :tenant AND id IN (SELECT key FROM {pairs} :wanted {end})
           ORDER BY id {for_update}""",
        tenant=tenant,
        wanted=msgspec.json.encode(watch.children).decode(),
    )
    known = {True: lifecycle.INTERRUPTED, False: _BUSY}
    return len(rows) < len(watch.children) or any(
        state_of(state) not in known[watch.children[child]] for child, state in rows
    )


async def rouse_parent(tx: Tx, tenant: str, parent_id: str, child_id: str) -> None:
    """Let a parent look again that waits for this child: to end or ask, or to ask no longer."""
    row = await tx.one(
        """UPDATE job SET parked = 0, child = NULL, run_at = {now}
           WHERE tenant = :tenant AND kind = :kind AND key = :key AND node IS NULL AND child IN (:child, :any)
           RETURNING queue""",
        tenant=tenant,
        kind=jobs.RUN,
        key=parent_id,
        child=child_id,
        any=ANY,
    )
    if row is not None:
        tx.signal(jobs.queue_topic(row[0]))
