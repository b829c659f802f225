"""Signatures of requests that have been used, for all nodes and beyond their lives: each is good once.

They are kept where repeated sends are recognised, as keys that made no task and that no message can have, and expire
with those. What a signature is and for how long it is good is `core.schemes.hmac`.
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
