"""Removing large parts that nobody needs and nobody removed: a request put them and failed, or a node died."""

from accord.storage.blobs.base import Blobs
from accord.storage.commands.blobs import GRACE_MS, unreferred
from accord.storage.store import Store

AT_ONCE = 1000
"""Blobs that are removed at a time."""


async def sweep(store: Store, blobs: Blobs, grace_ms: int = GRACE_MS) -> int:
    """Remove blobs that nobody has needed for a while, and return how many were tried."""
    found = await store.read(unreferred, AT_ONCE, grace_ms)
    for tenant, hash in found:
        await blobs.delete(tenant, hash)
    return len(found)
