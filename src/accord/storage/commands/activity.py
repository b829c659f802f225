"""How busy the agents of a tenant are: tasks that have just begun, and such as have not ended.

Both are counted along an index and up to a bound, beyond which a number means "at least": it costs little to look,
however much there is. When a task began is read off its id, which is a UUIDv7; one whose caller chose another id counts
only while it is open.
"""

from msgspec import Struct

from accord.storage.commands.browsing import Seen
from accord.storage.store import Tx

MAX_ROWS = 10_000
"""Tasks that one count looks at: some ten milliseconds."""


class Activity(Struct, frozen=True, kw_only=True):
    """Tasks by agent: how many `begun`, and how many are `open`.

    `first` is the id of the oldest that was counted among the former, if there were more of them than were looked at.
    """

    begun: dict[str, int]
    open: dict[str, int]
    first: str | None = None


async def by_agent(tx: Tx, tenant: str, seen: Seen, since: str, until: str, limit: int = MAX_ROWS) -> Activity:
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
    return Activity(
        begun={agent: count for agent, count, _ in begun},
        open=dict(unended),
        first=min(first for _, _, first in begun) if is_cut else None,
    )
