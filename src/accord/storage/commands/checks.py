"""When published agents are looked for, and what came of it last.

A check that is due belongs to whoever moves its time on first; if that one dies, it is due again. How an agent is
looked for, how often and what counts as there is `core.registry.checks`.
"""

from msgspec import Struct

from accord.storage.store import Row, Tx


class Due(Struct, frozen=True, kw_only=True):
    """An agent to look for; `failures` is how often in a row it was not there."""

    tenant: str
    id: str
    failures: int
    card: str


class Checked(Struct, frozen=True, kw_only=True):
    """What came of a look; `state` is None before the first. Times are in milliseconds, `up_at` when it last was up."""

    state: str | None = None
    detail: str | None = None
    failures: int = 0
    checked_at: int | None = None
    up_at: int | None = None


_CHECKED = "state, detail, failures, checked_at, up_at"


async def claim(tx: Tx, limit: int, hold_ms: int) -> list[Due]:
    """Return agents that are due, and leave them to the caller for a while."""
    rows = await tx.all(
        """UPDATE listing_check SET due_at = {now} + :hold_ms
           WHERE (tenant, id) IN (
               SELECT tenant, id FROM listing_check WHERE due_at <= {now} ORDER BY due_at LIMIT :limit {skip_locked})
           RETURNING tenant, id, failures""",
        hold_ms=hold_ms,
        limit=limit,
    )
    found = [await _due(tx, *row) for row in rows]
    return [one for one in found if one is not None]


async def settle(tx: Tx, due: Due, state: str, detail: str, *, is_up: bool, again_ms: int) -> Checked:
    """Note what came of a look at an agent, and when to look again; one that was removed meanwhile has no row."""
    row = await tx.one(
        """UPDATE listing_check SET state = :state, detail = :detail, failures = :failures, checked_at = {now},
               up_at = CASE WHEN :is_up = 1 THEN {now} ELSE up_at END, due_at = {now} + :again_ms
           WHERE tenant = :tenant AND id = :id
           RETURNING """
        + _CHECKED,
        tenant=due.tenant,
        id=due.id,
        state=state,
        detail=detail,
        failures=0 if is_up else due.failures + 1,
        is_up=int(is_up),
        again_ms=again_ms,
    )
    return Checked() if row is None else _checked(row)


async def last(tx: Tx, tenant: str, id: str) -> Checked:
    """Return what came of the last look for an agent."""
    row = await tx.one(
        f"SELECT {_CHECKED} FROM listing_check WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id
    )
    return Checked() if row is None else _checked(row)


async def due(tx: Tx, tenant: str, id: str, hold_ms: int) -> Due | None:
    """Return an agent to look for now, due or not, and leave it to the caller for a while."""
    row = await tx.one(
        """UPDATE listing_check SET due_at = {now} + :hold_ms WHERE tenant = :tenant AND id = :id RETURNING failures""",
        tenant=tenant,
        id=id,
        hold_ms=hold_ms,
    )
    return None if row is None else await _due(tx, tenant, id, row[0])


async def _due(tx: Tx, tenant: str, id: str, failures: int) -> Due | None:
    row = await tx.one("SELECT card FROM listing WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id)
    return None if row is None else Due(tenant=tenant, id=id, failures=failures, card=row[0])


async def next_ms(tx: Tx) -> int | None:
    """Return in how many milliseconds the next look is due; None if there is nothing to look for."""
    row = await tx.one("SELECT min(due_at) - {now} FROM listing_check")
    return None if row is None or row[0] is None else max(0, row[0])


def _checked(row: Row) -> Checked:
    return Checked(**dict(zip(Checked.__struct_fields__, row, strict=True)))
