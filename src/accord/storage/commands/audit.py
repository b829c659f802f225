"""The audit log: who asked for what and what came of it, appended in batches, looked through and in the end deleted.

What is worth an entry, and that nothing secret is in one, is decided in `core.audit`. Entries are never changed.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from accord.storage.store import Tx, Value


class Entry(Struct, frozen=True, kw_only=True):
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


class Found(Entry, frozen=True, kw_only=True):
    """An entry as it is kept; entries of one moment are told apart by their ids."""

    id: int


class Query(Struct, frozen=True, kw_only=True):
    """Which entries to find; unset members do not matter. `before` is the (at, id) where the last page ended."""

    owner: str | None = None
    operation: str | None = None
    task_id: str | None = None
    outcome: str | None = None
    since: int | None = None
    before: tuple[int, int] | None = None
    limit: int = 50


COLUMNS = ", ".join(Entry.__struct_fields__)
_INSERT = f"INSERT INTO audit ({COLUMNS}) VALUES ({', '.join(f':{column}' for column in Entry.__struct_fields__)})"


async def append(tx: Tx, entries: Sequence[Entry]) -> None:
    """Keep entries, in this order."""
    await tx.many(_INSERT, list(map(asdict, entries)))


async def find(tx: Tx, tenant: str | None, query: Query) -> list[Found]:
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
        f"""SELECT {COLUMNS}, id FROM audit WHERE {" AND ".join(conditions)}
            ORDER BY at DESC, id DESC LIMIT :limit""",
        **values,
        limit=query.limit,
    )
    return [Found(**dict(zip(Found.__struct_fields__, row, strict=True))) for row in rows]


async def purge(tx: Tx, older_than_ms: int, limit: int) -> int:
    """Delete entries that are so old, and return how many.

    Only the first `limit` are looked at: entries are kept in the order of their time, near enough.
    """
    return await tx.run(
        """DELETE FROM audit WHERE id IN (SELECT id FROM audit ORDER BY id LIMIT :limit)
           AND at < (SELECT {now} - :age)""",
        limit=limit,
        age=older_than_ms,
    )
