"""Work to do and who does it: leases per node, a fence per claim, and a reaper that any node may run.

A node's heartbeat keeps all its leases; nothing is written per job while it runs. A claim raises the job's epoch and,
for a job that runs a task, the task's, so that the previous holder cannot write any more. Attempts are counted when a
job is claimed: a job that kills its node every time still ends.
"""

from collections.abc import Sequence

from msgspec import Struct

from accord.storage.store import Tx

RUN = "run"
"""The kind of job that runs the task whose id is its key."""


class NewJob(Struct, frozen=True, kw_only=True):
    """Work to do; `key` makes it unique among its kind, `delay_ms` puts it off."""

    kind: str
    key: str
    queue: str = "default"
    arg: str | None = None
    priority: int = 0
    delay_ms: int = 0
    max_attempts: int = 3


class Claimed(Struct, frozen=True, kw_only=True):
    """A job that this node holds, and the epoch it must show to write."""

    id: int
    tenant: str
    kind: str
    key: str
    arg: str | None
    epoch: int
    attempts: int
    max_attempts: int


def queue_topic(queue: str) -> str:
    """Return the topic of hints that a queue has work."""
    return f"queue:{queue}"


async def enqueue(tx: Tx, tenant: str, job: NewJob) -> bool:
    """Add work, unless the same is there already."""
    added = await tx.run(
        """INSERT INTO job (tenant, queue, kind, key, arg, priority, run_at, max_attempts)
           VALUES (:tenant, :queue, :kind, :key, :arg, :priority, {now} + :delay_ms, :max_attempts)
           ON CONFLICT (tenant, kind, key) DO NOTHING""",
        tenant=tenant,
        queue=job.queue,
        kind=job.kind,
        key=job.key,
        arg=job.arg,
        priority=job.priority,
        delay_ms=job.delay_ms,
        max_attempts=job.max_attempts,
    )
    tx.signal(queue_topic(job.queue))
    return added == 1


async def heartbeat(tx: Tx, node: str, lease_ms: int, info: str = "{}") -> None:
    """Say that a node lives, and keep everything it holds for as long as the lease lasts."""
    await tx.run(
        """INSERT INTO node (id, expires_at, info) VALUES (:node, {now} + :lease_ms, :info)
           ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at""",
        node=node,
        lease_ms=lease_ms,
        info=info,
    )


async def claim(tx: Tx, node: str, queue: str, count: int) -> list[Claimed]:
    """Take the most urgent work that is due; smaller priorities come first, then older work."""
    rows = await tx.all(
        """UPDATE job SET node = :node, epoch = epoch + 1, attempts = attempts + 1
           WHERE id IN (SELECT id FROM job WHERE queue = :queue AND node IS NULL AND run_at <= {now}
                        ORDER BY priority, run_at, id LIMIT :count {skip_locked})
           RETURNING id, tenant, kind, key, arg, epoch, attempts, max_attempts""",
        node=node,
        queue=queue,
        count=count,
    )
    found = [Claimed(**dict(zip(Claimed.__struct_fields__, row, strict=True))) for row in rows]
    for job in found:
        if job.kind == RUN:
            await tx.run(
                "UPDATE task SET epoch = :epoch WHERE tenant = :tenant AND id = :id",
                tenant=job.tenant,
                id=job.key,
                epoch=job.epoch,
            )
    return sorted(found, key=lambda job: job.id)


async def finish(tx: Tx, job: Claimed) -> bool:
    """Remove work that is done; false if somebody else holds it now."""
    removed = await tx.run("DELETE FROM job WHERE id = :id AND epoch = :epoch", id=job.id, epoch=job.epoch)
    return removed == 1


async def release(tx: Tx, job: Claimed, delay_ms: int = 0) -> bool:
    """Give work back, to be done again after a while; false if somebody else holds it now."""
    released = await tx.run(
        "UPDATE job SET node = NULL, run_at = {now} + :delay_ms WHERE id = :id AND epoch = :epoch",
        id=job.id,
        epoch=job.epoch,
        delay_ms=delay_ms,
    )
    return released == 1


async def reap(tx: Tx) -> Sequence[str]:
    """Give back the work of nodes whose lease ran out, and return their names."""
    dead = [row[0] for row in await tx.all("SELECT id FROM node WHERE expires_at < {now} ORDER BY id {skip_locked}")]
    for node in dead:
        freed = await tx.all("UPDATE job SET node = NULL, run_at = {now} WHERE node = :node RETURNING queue", node=node)
        await tx.run("DELETE FROM node WHERE id = :node", node=node)
        tx.signal(*{queue_topic(row[0]) for row in freed})
    return dead
