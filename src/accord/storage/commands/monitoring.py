"""Figures for operators: backlog, activity of agents, stored bytes, and the audit log.

Counts go along an index and up to a bound, beyond which a number means "at least". Stored bytes are sums over
`task.bytes` and webhooks. Audit entries are appended in batches and never changed.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from accord.storage.commands.task_lists import VisibleTasks
from accord.storage.store import Tx, Value

MAX_COUNTED_ROWS = 10_000
"""Rows that one count looks at, which is some ten milliseconds: whoever has more waiting knows enough."""

MAX_TENANTS = 1_000
"""Tenants whose tasks are counted, each by itself."""

OPEN_STATES = ("submitted", "working", "input_required", "auth_required")
"""The states of tasks that have not ended."""


class Backlog(Struct, frozen=True, kw_only=True):
    """Work of one queue that nobody has taken: how much is due, and for how long the oldest of it has been."""

    due: int
    oldest_ms: int


class WaitingCounts(Struct, frozen=True, kw_only=True):
    """Tasks by state, work by queue, webhooks with something to deliver now and such as were given up, living nodes."""

    tasks: dict[str, int]
    queues: dict[str, Backlog]
    webhooks_due: int
    webhooks_dead: int
    nodes: int


# The conditions are those of the indexes `task_open`, `job_due`, `push_due` and `push_dead`, word for word: SQLite uses
# them for no others. Times are compared with `(SELECT {now})`: PostgreSQL reads that once, `{now}` once for each row.
_OPEN_TASK = "task WHERE {open}"
_FREE_JOB = "job WHERE node IS NULL AND parked = 0"
_DUE_PUSH = "push WHERE due_at IS NOT NULL AND node IS NULL AND due_at <= (SELECT {now})"
_DEAD_PUSH = "push WHERE dead_at IS NOT NULL"
_LIVING_NODE = "node WHERE expires_at > (SELECT {now})"


def _distinct(rows: str, column: str, after: str) -> str:
    """Return a table `found` of a column's distinct values, by one look-up each in the index that begins with it.

    `after` is the index's next column: ordered by both, SQLite takes that index and no other.
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
    """Count everything that waits."""
    queues = await tx.all(f"{_QUEUES} SELECT queue FROM found WHERE queue IS NOT NULL")
    return WaitingCounts(
        tasks=await _tasks(tx, limit),
        queues={queue: await _backlog(tx, queue, limit) for (queue,) in queues},
        webhooks_due=await _count_rows(tx, _DUE_PUSH, limit),
        webhooks_dead=await _count_rows(tx, _DEAD_PUSH, limit),
        nodes=await _count_rows(tx, _LIVING_NODE, limit),
    )


async def _tasks(tx: Tx, limit: int) -> dict[str, int]:
    """Count by tenant and state, as the index `task_open` has them: ended tasks are not even looked at."""
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
    """Count what is due in a queue. What is for later is passed over in the index, as it is when work is claimed."""
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
"""Tasks that one count looks at: some ten milliseconds."""


class ActivityByAgent(Struct, frozen=True, kw_only=True):
    """Tasks by agent: how many `begun`, and how many are `open`.

    `first` is the id of the oldest that was counted among the former, if there were more of them than were looked at.
    """

    begun: dict[str, int]
    open: dict[str, int]
    first: str | None = None


async def activity_by_agent(
    tx: Tx, tenant: str, seen: VisibleTasks, since: str, until: str, limit: int = MAX_ACTIVITY_ROWS
) -> ActivityByAgent:
    """Count what somebody sees; those have begun whose ids lie between `since` and `until`."""
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
"""The bytes of a task's snapshot: both engines read them off the row's header."""

FILE_BYTES = """COALESCE((SELECT sum(blob.size) FROM blob_ref JOIN blob
                         ON blob.tenant = blob_ref.tenant AND blob.hash = blob_ref.hash
                     WHERE blob_ref.tenant = task.tenant AND blob_ref.task_id = task.id), 0)"""
"""The bytes of its files."""

WEBHOOK_BYTES = """CASE WHEN pushes > 0 THEN COALESCE((SELECT sum(octet_length(config)) FROM push
                                                 WHERE push.tenant = task.tenant AND push.task_id = task.id), 0)
                   ELSE 0 END"""
"""The bytes of its webhooks: up to 20 of 20 KB, also on ended tasks."""

_SUMS = (
    f"count(*), CAST(COALESCE(sum(COALESCE(bytes, {SNAPSHOT_BYTES} + {FILE_BYTES}) + {WEBHOOK_BYTES}), 0) AS {{int}})"
)


class StoredTotal(Struct, frozen=True, kw_only=True):
    """What is stored."""

    tasks: int
    bytes: int


class OwnerTotal(StoredTotal, frozen=True, kw_only=True):
    """What an owner stores in a tenant."""

    tenant: str
    owner: str


async def stored_total(tx: Tx, tenant: str | None, owner: str | None) -> StoredTotal:
    """Return what an owner stores, or with None all owners; in a tenant, or with None in all."""
    conditions, values = ["1 = 1"], dict[str, Value]()
    for column, value in (("tenant", tenant), ("owner", owner)):
        if value is not None:
            conditions.append(f"{column} = :{column}")
            values[column] = value
    row = await tx.one(f"SELECT {_SUMS} FROM task WHERE {' AND '.join(conditions)}", **values)
    tasks, size = row or (0, 0)
    return StoredTotal(tasks=tasks, bytes=size)


async def stored_by_owner(tx: Tx, tenant: str | None, limit: int) -> list[OwnerTotal]:
    """Return the owners who store most bytes, most first; in a tenant, or with None in all."""
    where, values = ("", {}) if tenant is None else ("WHERE tenant = :tenant", {"tenant": tenant})
    rows = await tx.all(
        f"""SELECT tenant, owner, {_SUMS} AS size FROM task {where}
            GROUP BY tenant, owner ORDER BY size DESC, tenant, owner LIMIT :limit""",
        **values,
        limit=limit,
    )
    return [OwnerTotal(tenant=tenant, owner=owner, tasks=tasks, bytes=size) for tenant, owner, tasks, size in rows]


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One thing that was asked. `outcome` is "ok", or the reason of the error; `at` is in epoch milliseconds."""

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
    """An entry as it is kept; entries of one moment are told apart by their ids."""

    id: int


class AuditLogQuery(Struct, frozen=True, kw_only=True):
    """Which entries to find; unset members do not matter. `before` is the (at, id) where the last page ended."""

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
    """Keep entries, in this order."""
    await tx.many(_INSERT_AUDIT, list(map(asdict, entries)))


async def find_audit(tx: Tx, tenant: str | None, query: AuditLogQuery) -> list[StoredAuditEntry]:
    """Return a page of entries of a tenant, or with None of all, the newest first."""
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
    return [StoredAuditEntry(**dict(zip(StoredAuditEntry.__struct_fields__, row, strict=True))) for row in rows]


async def purge_audit(tx: Tx, older_than_ms: int, limit: int) -> int:
    """Delete entries that are so old, and return how many.

    Only the first `limit` are looked at: entries are kept in the order of their time, near enough.
    """
    return await tx.run(
        """DELETE FROM audit WHERE id IN (SELECT id FROM audit ORDER BY id LIMIT :limit)
           AND at < (SELECT {now} - :age)""",
        limit=limit,
        age=older_than_ms,
    )
