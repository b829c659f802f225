"""Signatures of requests that have been used, for all nodes and beyond their lives: each is good once.

A signed delivery of a webhook endpoint is kept with the run that it started. They are kept where repeated sends are
recognised, as keys that made no task and that no message can have, and expire with those. What a signature is and for
how long it is good is `core.schemes.hmac` and `workflows.hooks`.
"""

from accord.storage.store import Tx


async def use(tx: Tx, digest: str, lasts_ms: int) -> bool:
    """Note that a signature is used, for as long as it could be used again; false if it had been."""
    noted = await tx.run(
        """INSERT INTO idempotency (tenant, key, task_id, expires_at) VALUES ('', :key, '', {now} + :lasts_ms)
           ON CONFLICT (tenant, key) DO NOTHING""",
        key=f"signature {digest}",
        lasts_ms=lasts_ms,
    )
    return noted > 0


async def claim_delivery(tx: Tx, delivery: str, lasts_ms: int) -> str | None:
    """Claim a signed delivery and return None; or return its run, empty while another request holds the claim."""
    key = f"delivery {delivery}"
    claimed = await tx.run(
        """INSERT INTO idempotency (tenant, key, task_id, expires_at) VALUES ('', :key, '', {now} + :lasts_ms)
           ON CONFLICT (tenant, key) DO UPDATE SET task_id = excluded.task_id, expires_at = excluded.expires_at
           WHERE idempotency.expires_at < {now}""",
        key=key,
        lasts_ms=lasts_ms,
    )
    if claimed:
        return None
    row = await tx.one("SELECT task_id FROM idempotency WHERE tenant = '' AND key = :key", key=key)
    return "" if row is None else str(row[0])


async def note_run(tx: Tx, delivery: str, run: str, lasts_ms: int) -> None:
    """Keep the run that a claimed delivery started."""
    await tx.run(
        "UPDATE idempotency SET task_id = :run, expires_at = {now} + :lasts_ms WHERE tenant = '' AND key = :key",
        key=f"delivery {delivery}",
        run=run,
        lasts_ms=lasts_ms,
    )
