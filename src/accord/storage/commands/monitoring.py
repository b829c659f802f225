"""Figures for operators: backlog, activity of agents, stored bytes, and the audit log.

Counts use an index and stop at a bound, beyond which a number means "at least". Stored bytes are sums over `task.bytes`
and webhooks. Audit entries are appended in batches and never changed.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from accord.storage.commands.task_lists import VisibleTasks
from accord.storage.encoding import from_row
from accord.storage.store import Tx, Value

MAX_COUNTED_ROWS = 10_000
"""Maximum number of rows per count, about ten milliseconds. A larger backlog needs no exact number."""

MAX_TENANTS = 1_000
"""Maximum number of tenants whose tasks are counted, each separately."""

OPEN_STATES = ("submitted", "working", "input_required", "auth_required")
"""The states of tasks that have not ended."""


class Backlog(Struct, frozen=True, kw_only=True):
    """Unclaimed jobs of one queue: the number of due jobs and the delay of the oldest."""

    due: int
    oldest_ms: int


class WaitingCounts(Struct, frozen=True, kw_only=True):
    """Open tasks by state, jobs by queue, due and dead webhooks, and live nodes."""

    tasks: dict[str, int]
    queues: dict[str, Backlog]
    webhooks_due: int
    webhooks_dead: int
    nodes: int


# The conditions match those of the indexes `task_open`, `job_due`, `push_due` and `push_dead` word for word: SQLite
# uses a partial index for no others. Times are compared with `(SELECT {now})`: PostgreSQL reads that once, `{now}` once
# per row.
_OPEN_TASK = "task WHERE {open}"
_FREE_JOB = "job WHERE node IS NULL AND parked = 0"
_DUE_PUSH = "push WHERE due_at IS NOT NULL AND node IS NULL AND due_at <= (SELECT {now})"
_DEAD_PUSH = "push WHERE dead_at IS NOT NULL"
_LIVING_NODE = "node WHERE expires_at > (SELECT {now})"


def _distinct(rows: str, column: str, after: str) -> str:
    """Return a CTE `found` of a column's distinct values, with one index lookup for each.

    `after` is the index's next column. Ordering by both makes SQLite use that index.
    """
    return f"""WITH RECURSIVE found({column}) AS (
                   SELECT (SELECT {column} FROM {rows} ORDER BY {column}, {after} LIMIT 1)
                   UNION ALL
                   SELECT (SELECT {column} FROM {rows} AND {column} > found.{column}
                           ORDER BY {column}, {after} LIMIT 1)
                   FROM found WHERE found.{column} IS NOT NULL)"""


_TENANTS = _distinct(_OPEN_TASK, "tenant", "state")
_QUEUES = _distinct(_FREE_JOB, "queue", "tenant")


async def count_waiting(tx: Tx, limit: int = MAX_COUNTED_ROWS) -> WaitingCounts:
    """Count open tasks, unclaimed jobs, webhooks and nodes."""
    queues = await tx.all(f"{_QUEUES} SELECT queue FROM found WHERE queue IS NOT NULL")
    return WaitingCounts(
        tasks=await _tasks(tx, limit),
        queues={queue: await _backlog(tx, queue, limit) for (queue,) in queues},
        webhooks_due=await _count_rows(tx, _DUE_PUSH, limit),
        webhooks_dead=await _count_rows(tx, _DEAD_PUSH, limit),
        nodes=await _count_rows(tx, _LIVING_NODE, limit),
    )


async def _tasks(tx: Tx, limit: int) -> dict[str, int]:
    """Count open tasks by tenant and state, in the order of the index `task_open`. Ended tasks are not read."""
    counts = (
        f"""(SELECT count(*) FROM (SELECT 1 FROM {_OPEN_TASK} AND task.tenant = found.tenant AND state = '{state}'
                LIMIT :limit) AS counted)"""
        for state in OPEN_STATES
    )
    rows = await tx.all(
        f"{_TENANTS} SELECT {', '.join(counts)} FROM found WHERE tenant IS NOT NULL LIMIT :tenants",
        limit=limit,
        tenants=MAX_TENANTS,
    )
    return {state: sum(row[position] for row in rows) for position, state in enumerate(OPEN_STATES)}


async def _backlog(tx: Tx, queue: str, limit: int) -> Backlog:
    """Count due jobs of a queue. Later jobs are skipped in the index, as in a claim."""
    row = await tx.one(
        f"""SELECT count(*), COALESCE((SELECT {{now}}) - min(run_at), 0) FROM (
                SELECT run_at FROM {_FREE_JOB} AND queue = :queue AND run_at <= (SELECT {{now}})
                LIMIT :limit) AS due""",
        queue=queue,
        limit=limit,
    )
    due, oldest = row or (0, 0)
    return Backlog(due=due, oldest_ms=oldest)


async def _count_rows(tx: Tx, rows: str, limit: int) -> int:
    row = await tx.one(f"SELECT count(*) FROM (SELECT 1 FROM {rows} LIMIT :limit) AS counted", limit=limit)
    return int(row[0]) if row else 0


MAX_ACTIVITY_ROWS = 10_000
"""Maximum number of tasks per count: about ten milliseconds."""


class ActivityByAgent(Struct, frozen=True, kw_only=True):
    """Tasks by agent: the numbers of `begun` and `open` tasks.

    `first` is set if the count of `begun` tasks reached its limit: it is the ID of the oldest counted task.
    """

    begun: dict[str, int]
    open: dict[str, int]
    first: str | None = None


async def activity_by_agent(
    tx: Tx, tenant: str, seen: VisibleTasks, since: str, until: str, limit: int = MAX_ACTIVITY_ROWS
) -> ActivityByAgent:
    """Count visible tasks per agent. A task has begun in the period if its ID lies between `since` and `until`."""
    conditions, values = seen.condition()
    seen_only = "".join(f" AND {condition}" for condition in conditions)
    begun = await tx.all(
        f"""SELECT agent, count(*), min(id) FROM (
                SELECT agent, id FROM task
                WHERE task.tenant = :tenant AND task.id >= :since AND task.id < :until{seen_only}
                ORDER BY task.id DESC LIMIT :limit) AS begun
            GROUP BY agent""",
        tenant=tenant,
        since=since,
        until=until,
        limit=limit,
        **values,
    )
    unended = await tx.all(
        f"""SELECT agent, count(*) FROM (
                SELECT agent FROM task WHERE task.tenant = :tenant AND {{open}}{seen_only}
                LIMIT :limit) AS unended
            GROUP BY agent""",
        tenant=tenant,
        limit=limit,
        **values,
    )
    is_cut = sum(count for _, count, _ in begun) >= limit
    return ActivityByAgent(
        begun={agent: count for agent, count, _ in begun},
        open=dict(unended),
        first=min(first for _, _, first in begun) if is_cut else None,
    )


SNAPSHOT_BYTES = """COALESCE((SELECT octet_length(doc) FROM snapshot
                        WHERE snapshot.tenant = task.tenant AND snapshot.task_id = task.id), 0)"""
"""Size of a task's snapshot. Both engines read it from the row's header."""

FILE_BYTES = """COALESCE((SELECT sum(blob.size) FROM blob_ref JOIN blob
                         ON blob.tenant = blob_ref.tenant AND blob.hash = blob_ref.hash
                     WHERE blob_ref.tenant = task.tenant AND blob_ref.task_id = task.id), 0)"""
"""Size of a task's files."""

WEBHOOK_BYTES = """CASE WHEN pushes > 0 THEN COALESCE((SELECT sum(octet_length(config)) FROM push
                                                 WHERE push.tenant = task.tenant AND push.task_id = task.id), 0)
                   ELSE 0 END"""
"""Size of a task's webhooks: up to 20 of 20 KB each, also on ended tasks."""

_SUMS = (
    f"count(*), CAST(COALESCE(sum(COALESCE(bytes, {SNAPSHOT_BYTES} + {FILE_BYTES}) + {WEBHOOK_BYTES}), 0) AS {{int}})"
)


class StoredTotal(Struct, frozen=True, kw_only=True):
    """Number and size of stored tasks."""

    tasks: int
    bytes: int


class OwnerTotal(StoredTotal, frozen=True, kw_only=True):
    """Number and size of an owner's tasks in a tenant."""

    tenant: str
    owner: str


async def stored_total(tx: Tx, tenant: str | None, owner: str | None) -> StoredTotal:
    """Return the stored total. None for `tenant` or `owner` selects all of them."""
    conditions, values = ["1 = 1"], dict[str, Value]()
    for column, value in (("tenant", tenant), ("owner", owner)):
        if value is not None:
            conditions.append(f"{column} = :{column}")
            values[column] = value
    row = await tx.one(f"SELECT {_SUMS} FROM task WHERE {' AND '.join(conditions)}", **values)
    tasks, size = row or (0, 0)
    return StoredTotal(tasks=tasks, bytes=size)


async def stored_by_owner(tx: Tx, tenant: str | None, limit: int) -> list[OwnerTotal]:
    """Return the owners who store most bytes, largest first. None for `tenant` selects all tenants."""
    where, values = ("", {}) if tenant is None else ("WHERE tenant = :tenant", {"tenant": tenant})
    rows = await tx.all(
        f"""SELECT tenant, owner, {_SUMS} AS size FROM task {where}
            GROUP BY tenant, owner ORDER BY size DESC, tenant, owner LIMIT :limit""",
        **values,
        limit=limit,
    )
    return [OwnerTotal(tenant=tenant, owner=owner, tasks=tasks, bytes=size) for tenant, owner, tasks, size in rows]


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One audited operation. `outcome` is "ok" or the reason of the error; `at` is in epoch milliseconds."""

    tenant: str
    at: int
    owner: str
    scheme: str | None = None
    peer: str | None = None
    dialect: str | None = None
    agent: str
    operation: str
    task_id: str | None = None
    outcome: str


class StoredAuditEntry(AuditEntry, frozen=True, kw_only=True):
    """A stored audit entry. Its ID orders entries of the same millisecond."""

    id: int


class AuditLogQuery(Struct, frozen=True, kw_only=True):
    """Filters for audit entries. Unset fields match everything.

    `before` is the (at, id) at which the previous page ended.
    """

    owner: str | None = None
    operation: str | None = None
    task_id: str | None = None
    outcome: str | None = None
    since: int | None = None
    before: tuple[int, int] | None = None
    limit: int = 50


AUDIT_COLUMNS = ", ".join(AuditEntry.__struct_fields__)
_INSERT_AUDIT = (
    f"INSERT INTO audit ({AUDIT_COLUMNS}) VALUES ({', '.join(f':{column}' for column in AuditEntry.__struct_fields__)})"
)


async def append_audit(tx: Tx, entries: Sequence[AuditEntry]) -> None:
    """Append audit entries, in this order."""
    await tx.many(_INSERT_AUDIT, list(map(asdict, entries)))


async def find_audit(tx: Tx, tenant: str | None, query: AuditLogQuery) -> list[StoredAuditEntry]:
    """Return a page of audit entries, newest first. None for `tenant` selects all tenants."""
    conditions, values = ["1 = 1"], dict[str, Value]()
    if tenant is not None:
        conditions, values = ["tenant = :tenant"], dict[str, Value](tenant=tenant)
    for column, operator, name in (
        ("owner", "=", "owner"),
        ("operation", "=", "operation"),
        ("task_id", "=", "task_id"),
        ("outcome", "=", "outcome"),
        ("at", ">=", "since"),
    ):
        value = getattr(query, name)
        if value is not None:
            conditions.append(f"{column} {operator} :{name}")
            values[name] = value
    if query.before is not None:
        conditions.append("(at, id) < (:before_at, :before_id)")
        values |= {"before_at": query.before[0], "before_id": query.before[1]}
    rows = await tx.all(
        f"""SELECT {AUDIT_COLUMNS}, id FROM audit WHERE {" AND ".join(conditions)}
            ORDER BY at DESC, id DESC LIMIT :limit""",
        **values,
        limit=query.limit,
    )
    return [from_row(StoredAuditEntry, row) for row in rows]


async def purge_audit(tx: Tx, older_than_ms: int, limit: int) -> int:
    """Delete audit entries older than `older_than_ms` and return their number.

    Only the first `limit` entries by ID are considered. IDs follow time closely.
    """
    return await tx.run(
        """DELETE FROM audit WHERE id IN (SELECT id FROM audit ORDER BY id LIMIT :limit)
           AND at < (SELECT {now} - :age)""",
        limit=limit,
        age=older_than_ms,
    )
