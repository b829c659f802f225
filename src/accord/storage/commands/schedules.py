"""Up to when the schedules of served agents have been seen to, so that a time is known to have been missed.

They are the server's and belong to no tenant. When a schedule is due is decided in `workflows.schedules`, and that each
of its times begins one run only is the idempotency of `runs`.
"""

from collections.abc import Sequence

from accord.storage.store import Tx


async def known(tx: Tx, agent: str, names: Sequence[str], at: int) -> dict[str, int]:
    """Return up to when each of an agent's schedules has been seen to; one that is new, from now on."""
    await tx.many(
        """INSERT INTO schedule (agent, name, seen_at) VALUES (:agent, :name, :at)
           ON CONFLICT (agent, name) DO NOTHING""",
        [{"agent": agent, "name": name, "at": at} for name in names],
    )
    rows = await tx.all("SELECT name, seen_at FROM schedule WHERE agent = :agent", agent=agent)
    found = {str(name): int(seen_at) for name, seen_at in rows}
    return {name: found[name] for name in names}


async def see(tx: Tx, agent: str, name: str, at: int) -> None:
    """Note that a schedule has been seen to up to a time."""
    await tx.run(
        "UPDATE schedule SET seen_at = :at WHERE agent = :agent AND name = :name AND seen_at < :at",
        agent=agent,
        name=name,
        at=at,
    )
