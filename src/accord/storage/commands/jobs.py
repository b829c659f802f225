"""Jobs: claimed by nodes under leases with an epoch, released when a node is gone."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from accord.storage.encoding import from_row
from accord.storage.store import Row, Tx, Value

EXECUTE_TASK = "run"
"""The kind of job that executes the task whose ID is its key. Its argument is the message that started the turn."""

DEADLINE, SLA = "deadline", "sla"
"""The kinds of jobs that end the task whose ID is their key."""

LIMIT_STEP = "%/sla:%"
"""Keys of the steps that record when each SLA of a task ends."""

TIMERS = "timers"
"""The queue of jobs that every node can run."""

NO_LIMIT = 2**31

CLAIMS = 4_711_003
"""Advisory lock for claims under a tenant limit. Two nodes that count at the same time would both find room."""

MAX_TENANTS = 64
"""Maximum number of tenants served by one claim. The others follow with the next claim."""


class NewJob(Struct, frozen=True, kw_only=True):
    """A job to enqueue."""

    kind: str
    key: str
    """Unique within the kind and the tenant: the ID of a task, for example."""
    queue: str = "default"
    arg: str | None = None
    priority: int = 0
    """Smaller values go first."""
    delay_ms: int = 0
    max_attempts: int = 3
    epoch: int = 0
    node: str | None = None
    """The node that claims the job at once, if any."""
    parked: bool = False
    """Whether the job is suspended until it is woken."""


class ClaimedJob(Struct, frozen=True, kw_only=True):
    """A claimed job and its epoch, which the node must present to write."""

    id: int
    tenant: str
    queue: str
    kind: str
    key: str
    arg: str | None
    epoch: int
    attempts: int
    max_attempts: int


class PeerNode(Struct, frozen=True):
    """A node as its peers see it: the number of its heartbeats and its own description."""

    id: str
    beats: int
    info: str


class HeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat: the epochs of the node's claimed jobs, and its peers."""

    held: dict[int, int]
    peers: list[PeerNode]
    before: int | None = None
    """The number of the node's previous stored heartbeat, if any."""


_CLAIMED = "id, tenant, queue, kind, key, arg, epoch, attempts, max_attempts"

# The ID alone is not enough: SQLite reuses the ID of a deleted job.
_HELD = "id = :id AND epoch = :epoch AND tenant = :tenant AND kind = :kind AND key = :key"


def queue_topic(queue: str) -> str:
    """Return the notification topic of new jobs in a queue."""
    return f"queue:{queue}"


def node_topic(node: str) -> str:
    """Return the notification topic of changes to a node's claimed jobs."""
    return f"node:{node}"


async def enqueue(tx: Tx, tenant: str, job: NewJob) -> ClaimedJob | None:
    """Enqueue a job unless the same one exists. Return it if it is claimed at once."""
    row = await tx.one(
        f"""INSERT INTO job (tenant, queue, kind, key, arg, priority, run_at, max_attempts, epoch, node, attempts,
                             parked)
            VALUES (:tenant, :queue, :kind, :key, :arg, :priority, {{now}} + :delay_ms, :max_attempts, :epoch, :node,
                    :attempts, :parked)
            ON CONFLICT (tenant, kind, key) DO NOTHING RETURNING {_CLAIMED}""",
        tenant=tenant,
        queue=job.queue,
        kind=job.kind,
        key=job.key,
        arg=job.arg,
        priority=job.priority,
        delay_ms=job.delay_ms,
        max_attempts=job.max_attempts,
        epoch=job.epoch + (job.node is not None),
        node=job.node,
        attempts=int(job.node is not None),
        parked=int(job.parked),
    )
    if job.node is None:
        tx.signal(*(() if job.parked else (queue_topic(job.queue),)))
        return None
    return None if row is None else _claimed(row)


async def claim(tx: Tx, node: str, queue: str, count: int, tenant_limit: int | None = None) -> list[ClaimedJob]:
    """Claim due jobs of all tenants in turn.

    Tenants with fewer claimed jobs come first. A tenant's jobs are ordered by priority (smaller first) and age.
    `tenant_limit` is the maximum number of claimed jobs of one tenant on all nodes together.
    """
    most = NO_LIMIT if tenant_limit is None else tenant_limit
    if tenant_limit is not None:
        await tx.lock(CLAIMS)
    waiting = await _waiting_tenants(tx, queue)
    running = await _running(tx) if len(waiting) > 1 or (waiting and tenant_limit is not None) else {}
    turns = sorted((running.get(tenant, 0), since, tenant) for tenant, since in waiting)
    found: list[tuple[int, int, int, int]] = []
    for number, _, tenant in [turn for turn in turns if turn[0] < most][:MAX_TENANTS]:
        due = await _due(tx, queue, tenant, min(count, most - number))
        found += [(number + rank, priority, run_at, id) for rank, (id, priority, run_at) in enumerate(due)]
    return await take(tx, node, await _free(tx, [id for *_, id in sorted(found)[:count]]))


async def _free(tx: Tx, ids: Sequence[int]) -> list[int]:
    """Return the jobs whose tasks are not locked.

    Other commands lock a task before its job, and would wait for this one.
    """
    if not ids:
        return []
    listed = msgspec.json.encode(ids).decode()
    locked = await tx.all(
        """SELECT job.id FROM job JOIN task ON task.tenant = job.tenant AND task.id = job.key
           WHERE job.id IN ({each} :ids {end}) {skip_locked}""",
        ids=listed,
    )
    without = await tx.all(
        """SELECT id FROM job WHERE id IN ({each} :ids {end}) AND NOT EXISTS (
               SELECT 1 FROM task WHERE task.tenant = job.tenant AND task.id = job.key)""",
        ids=listed,
    )
    free = {row[0] for row in (*locked, *without)}
    return [id for id in ids if id in free]


async def _waiting_tenants(tx: Tx, queue: str) -> list[tuple[str, int]]:
    """Return the tenants with due jobs, each with its first job's due time.

    It takes two index lookups per tenant, for any number of jobs.
    """
    rows = await tx.all(
        """WITH RECURSIVE waiting(tenant) AS (
               SELECT (SELECT min(tenant) FROM job WHERE queue = :queue AND node IS NULL AND parked = 0)
               UNION ALL
               SELECT (SELECT min(job.tenant) FROM job
                       WHERE queue = :queue AND node IS NULL AND parked = 0 AND job.tenant > waiting.tenant)
               FROM waiting WHERE waiting.tenant IS NOT NULL),
           candidate(tenant, since) AS (
               SELECT waiting.tenant, (
                   SELECT run_at FROM job WHERE queue = :queue AND job.tenant = waiting.tenant AND node IS NULL
                   AND parked = 0 AND run_at <= {now} ORDER BY priority, run_at LIMIT 1)
               FROM waiting)
           SELECT tenant, since FROM candidate WHERE since IS NOT NULL""",
        queue=queue,
    )
    return [(tenant, since) for tenant, since in rows]


async def _running(tx: Tx) -> dict[str, int]:
    """Return the number of claimed jobs per tenant.

    Jobs that wait for child tasks are not counted: otherwise a tenant limit could block the child tasks.
    """
    rows = await tx.all(
        """SELECT job.tenant, count(*) FROM job WHERE node IS NOT NULL AND (
               SELECT 1 FROM task WHERE task.tenant = job.tenant AND task.parent_id = job.key
               AND task.state IN ('submitted', 'working') LIMIT 1) IS NULL
           GROUP BY job.tenant"""
    )
    return dict(rows)


async def _due(tx: Tx, queue: str, tenant: str, limit: int) -> list[tuple[int, int, int]]:
    rows = await tx.all(
        """SELECT id, priority, run_at FROM job
           WHERE queue = :queue AND tenant = :tenant AND node IS NULL AND parked = 0 AND run_at <= {now}
           ORDER BY priority, run_at, id LIMIT :limit {skip_locked}""",
        queue=queue,
        tenant=tenant,
        limit=limit,
    )
    return [(id, priority, run_at) for id, priority, run_at in rows]


async def take(tx: Tx, node: str, ids: Sequence[int]) -> list[ClaimedJob]:
    """Claim these jobs for a node, even if another node holds them."""
    if not ids:
        return []
    listed = msgspec.json.encode(ids).decode()
    rows = await tx.all(
        f"""UPDATE job SET node = :node, epoch = epoch + 1, attempts = attempts + 1 WHERE id IN ({{each}} :ids {{end}})
            RETURNING {_CLAIMED}""",
        node=node,
        ids=listed,
    )
    await tx.run(
        """UPDATE task SET epoch = job.epoch FROM job WHERE job.id IN ({each} :ids {end}) AND job.kind = :kind
           AND task.tenant = job.tenant AND task.id = job.key""",
        ids=listed,
        kind=EXECUTE_TASK,
    )
    place = {id: position for position, id in enumerate(ids)}
    return sorted(map(_claimed, rows), key=lambda job: place[job.id])


async def held_queue(tx: Tx, tenant: str, task_id: str) -> str | None:
    """Return the queue of a held task's job.

    Return None if the task is not held: its job was claimed before or is due.
    """
    row = await tx.one(
        """SELECT queue FROM job WHERE tenant = :tenant AND kind = :kind AND key = :key AND parked = 1 AND epoch = 0
           {for_update}""",
        tenant=tenant,
        kind=EXECUTE_TASK,
        key=task_id,
    )
    return None if row is None else row[0]


async def finish(tx: Tx, job: ClaimedJob) -> bool:
    """Delete a finished job. Return false if another node holds it now."""
    removed = await tx.run(f"DELETE FROM job WHERE {_HELD}", **_held(job))
    return removed == 1


async def finish_last(tx: Tx, job: ClaimedJob) -> None:
    """Delete the finished job of an ended task, and the task's timers."""
    await tx.run(
        # The kinds are named twice: without the first, SQLite would look through all jobs of the tenant.
        """DELETE FROM job WHERE tenant = :tenant AND key = :key AND kind IN (:kind, :deadline, :sla) AND (
               (id = :id AND epoch = :epoch AND kind = :kind) OR (kind IN (:deadline, :sla) AND node IS NULL))""",
        **_held(job),
        deadline=DEADLINE,
        sla=SLA,
    )


async def release(tx: Tx, job: ClaimedJob, delay_ms: int = 0, *, counts: bool = True) -> bool:
    """Release a job to be claimed again after a delay. Return false if another node holds it now.

    Without `counts` this attempt is not counted: an orderly handover is not a failure.
    """
    released = await tx.run(
        f"""UPDATE job SET node = NULL, run_at = {{now}} + :delay_ms, attempts = attempts - :forgotten
            WHERE {_HELD}""",
        **_held(job),
        delay_ms=delay_ms,
        forgotten=int(not counts),
    )
    tx.signal(queue_topic(job.queue))
    return released == 1


async def release_id(tx: Tx, id: int, epoch: int, *, counts: bool = True) -> None:
    """Release a job by its ID and epoch; `counts` as in `release`."""
    row = await tx.one(
        """UPDATE job SET node = NULL, run_at = {now}, attempts = attempts - :forgotten
           WHERE id = :id AND epoch = :epoch RETURNING queue""",
        id=id,
        epoch=epoch,
        forgotten=int(not counts),
    )
    if row is not None:
        tx.signal(queue_topic(row[0]))


async def park(tx: Tx, job: ClaimedJob, delay_ms: int | None = None, child: str | None = None) -> bool:
    """Suspend a job until it is woken, or for `delay_ms` at most. Return false if another node holds it now.

    With a `child` it is also woken when that child task no longer waits for input.
    """
    parked = await tx.run(
        f"""UPDATE job SET node = NULL, attempts = 0, parked = :parked, child = :child, run_at = {{now}} + :delay_ms
            WHERE {_HELD}""",
        **_held(job),
        parked=int(delay_ms is None),
        child=child,
        delay_ms=delay_ms or 0,
    )
    if delay_ms is not None:
        tx.signal(queue_topic(job.queue))
    return parked == 1


async def heartbeat(tx: Tx, node: str, lease_ms: int, beats: int = 1, info: str = "{}") -> HeartbeatAnswer:
    """Record the numbered heartbeat of a node; return the jobs that it holds and its peers.

    Pass an increasing number even after the node was deleted. Peers must not mistake a new heartbeat for an old one.
    """
    row = await tx.one("SELECT beats FROM node WHERE id = :node", node=node)
    await tx.run(
        """INSERT INTO node (id, expires_at, info, beats) VALUES (:node, {now} + :lease_ms, :info, :beats)
           ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, beats = excluded.beats""",
        node=node,
        lease_ms=lease_ms,
        info=info,
        beats=beats,
    )
    peers = await tx.all("SELECT id, beats, info FROM node WHERE id <> :node ORDER BY id", node=node)
    before = None if row is None else row[0]
    return HeartbeatAnswer(held=await held_jobs(tx, node), peers=[PeerNode(*peer) for peer in peers], before=before)


async def store_time(tx: Tx) -> int:
    """Return the store's time in epoch milliseconds."""
    row = await tx.one("SELECT {now}")
    assert row is not None
    return int(row[0])


async def align_due_times(tx: Tx, now_ms: int) -> None:
    """Correct due times after the store's clock jumped.

    `now_ms` is the time on the clock by which deadlines were set. Suspended jobs with a due time are due now: an
    execution resumed too early waits again for the remaining time.
    """
    await tx.run(
        """UPDATE job SET run_at = {now} + task.deadline_at - :now_ms FROM task
           WHERE job.kind = :kind AND job.node IS NULL AND task.tenant = job.tenant AND task.id = job.key
           AND task.deadline_at IS NOT NULL""",
        now_ms=now_ms,
        kind=DEADLINE,
    )
    await tx.run(
        """UPDATE job SET run_at = {now} WHERE kind = :kind AND node IS NULL AND parked = 0 AND run_at > {now}""",
        kind=EXECUTE_TASK,
    )
    limits = await tx.all(
        """SELECT job.id, step.output FROM job JOIN step ON step.tenant = job.tenant AND step.task_id = job.key
           WHERE job.kind = :kind AND job.node IS NULL AND step.key LIKE :step ORDER BY step.at""",
        kind=SLA,
        step=LIMIT_STEP,
    )
    left = {id: int(due) - now_ms for id, due in limits if due.isdecimal()}  # the last SLA of each task counts
    await tx.many(
        "UPDATE job SET run_at = {now} + :left WHERE id = :id AND node IS NULL",
        [{"id": id, "left": left_ms} for id, left_ms in left.items()],
    )


async def limit_of(tx: Tx, job: ClaimedJob) -> int | None:
    """Return the end of a task's last SLA, by the clock of the node that set it."""
    row = await tx.one(
        """SELECT output FROM step WHERE tenant = :tenant AND task_id = :task_id AND key LIKE :step
           ORDER BY at DESC LIMIT 1""",
        tenant=job.tenant,
        task_id=job.key,
        step=LIMIT_STEP,
    )
    return int(row[0]) if row and row[0].isdecimal() else None


async def held_jobs(tx: Tx, node: str) -> dict[int, int]:
    """Return the claimed jobs of a node: job ID -> epoch."""
    return dict(await tx.all("SELECT id, epoch FROM job WHERE node = :node", node=node))


async def forget_node(tx: Tx, node: str, *, counts: bool = False) -> None:
    """Delete a node and release its jobs at once; `counts` as in `release`."""
    freed = await tx.all(
        "UPDATE job SET node = NULL, attempts = attempts - :forgotten WHERE node = :node RETURNING queue",
        node=node,
        forgotten=int(not counts),
    )
    await tx.run("UPDATE push SET node = NULL WHERE node = :node", node=node)
    await tx.run("DELETE FROM node WHERE id = :node", node=node)
    tx.signal("push", *{queue_topic(row[0]) for row in freed})


def _held(job: ClaimedJob) -> dict[str, Value]:
    return {"id": job.id, "epoch": job.epoch, "tenant": job.tenant, "kind": job.kind, "key": job.key}


def _claimed(row: Row) -> ClaimedJob:
    return from_row(ClaimedJob, row)
