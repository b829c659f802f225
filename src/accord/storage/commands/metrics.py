"""How much there is of what waits, of all tenants together, for those who watch a server.

Each number is counted along an index up to a bound, beyond which it means "at least", so that looking costs little
however much has piled up. It only reads; what happens while agents work is counted by `telemetry`.
"""

from msgspec import Struct

from accord.storage.store import Tx

MAX_ROWS = 10_000
"""Rows that one count looks at, which is some ten milliseconds: whoever has more waiting knows enough."""

MAX_TENANTS = 1_000
"""Tenants whose tasks are counted, each by itself."""

OPEN = ("submitted", "working", "input_required", "auth_required")
"""The states of tasks that have not ended."""


class Backlog(Struct, frozen=True, kw_only=True):
    """Work of one queue that nobody has taken: how much is due, and for how long the oldest of it has been."""

    due: int
    oldest_ms: int


class Waiting(Struct, frozen=True, kw_only=True):
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


async def count(tx: Tx, limit: int = MAX_ROWS) -> Waiting:
    """Count everything that waits."""
    queues = await tx.all(f"{_QUEUES} SELECT queue FROM found WHERE queue IS NOT NULL")
    return Waiting(
        tasks=await _tasks(tx, limit),
        queues={queue: await _backlog(tx, queue, limit) for (queue,) in queues},
        webhooks_due=await _number(tx, _DUE_PUSH, limit),
        webhooks_dead=await _number(tx, _DEAD_PUSH, limit),
        nodes=await _number(tx, _LIVING_NODE, limit),
    )


async def _tasks(tx: Tx, limit: int) -> dict[str, int]:
    """Count by tenant and state, as the index `task_open` has them: ended tasks are not even looked at."""
    counts = (
        f"""(SELECT count(*) FROM (SELECT 1 FROM {_OPEN_TASK} AND task.tenant = found.tenant AND state = '{state}'
                LIMIT :limit) AS counted)"""
        for state in OPEN
    )
    rows = await tx.all(
        f"{_TENANTS} SELECT {', '.join(counts)} FROM found WHERE tenant IS NOT NULL LIMIT :tenants",
        limit=limit,
        tenants=MAX_TENANTS,
    )
    return {state: sum(row[position] for row in rows) for position, state in enumerate(OPEN)}


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


async def _number(tx: Tx, rows: str, limit: int) -> int:
    row = await tx.one(f"SELECT count(*) FROM (SELECT 1 FROM {rows} LIMIT :limit) AS counted", limit=limit)
    return int(row[0]) if row else 0
