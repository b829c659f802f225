"""What an agent's steps gave, by key: a step that is here is never run again.

The row is written under the fence of the task, so only the worker that holds it can commit a step.
"""

from collections.abc import Sequence

from msgspec import Struct

from accord.storage.commands.tasks import Fenced
from accord.storage.store import Tx

FAILURE = "failure"
"""The step that keeps the exception that failed the task; steps of agents have other names."""


class Step(Struct, frozen=True, kw_only=True):
    """What a step gave, and the claim under which it was done."""

    task_id: str
    epoch: int
    key: str
    output: str
    at: int


async def load(tx: Tx, tenant: str, task_id: str) -> dict[str, str]:
    """Return every step of a task: key -> output."""
    rows = await tx.all(
        "SELECT key, output FROM step WHERE tenant = :tenant AND task_id = :task_id", tenant=tenant, task_id=task_id
    )
    return dict(rows)


async def find(tx: Tx, tenant: str, task_id: str, key: str) -> str | None:
    """Return one step's output."""
    row = await tx.one(
        "SELECT output FROM step WHERE tenant = :tenant AND task_id = :task_id AND key = :key",
        tenant=tenant,
        task_id=task_id,
        key=key,
    )
    return None if row is None else str(row[0])


async def put(tx: Tx, tenant: str, task_id: str, key: str, output: str, at: int) -> bool:
    """Keep what a step gave; false if it is there already."""
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


async def note(tx: Tx, tenant: str, task_id: str, entries: Sequence[tuple[str, str]], at: int) -> None:
    """Keep what many steps gave, by key; what is there already stays."""
    await tx.many(
        """INSERT INTO step (tenant, task_id, key, output, at) VALUES (:tenant, :task_id, :key, :output, :at)
           ON CONFLICT (tenant, task_id, key) DO NOTHING""",
        [{"tenant": tenant, "task_id": task_id, "key": key, "output": output, "at": at} for key, output in entries],
    )


async def commit(tx: Tx, tenant: str, step: Step) -> None:
    """Keep what a step gave, if the worker still holds the task."""
    row = await tx.one(
        "SELECT epoch FROM task WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=step.task_id
    )
    if row is None or row[0] != step.epoch:
        raise Fenced(f"Task {step.task_id} has another owner than epoch {step.epoch}, or does not exist")
    await put(tx, tenant, step.task_id, step.key, step.output, step.at)
