"""Retention: logs of ended tasks become snapshots, and expired tasks are deleted.

Every node works in small batches and skips rows that another node has locked.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from accord.storage.blobs import Blobs, sweep
from accord.storage.commands import authentication, monitoring, retention
from accord.storage.store import Store, StoreUnavailable

BATCH = 200
"""Tasks per transaction."""

log = logging.getLogger("accord.upkeep")


class Retention(Struct, frozen=True, kw_only=True):
    """Retention periods in seconds, for ended tasks and the audit log. None keeps entries forever."""

    compact_after: float = 3600.0
    purge_after: float | None = 30 * 24 * 3600.0
    purge_audit_after: float | None = 90 * 24 * 3600.0
    every: float = 60.0


class RetentionLoop:
    """Applies the retention periods on one node."""

    def __init__(self, store: Store, blobs: Blobs | None = None, keep: Retention | None = None) -> None:
        """Apply the periods `keep` to `store`, and delete unreferenced `blobs`."""
        self._store = store
        self._blobs = blobs
        self._keep = keep or Retention()
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start. The first pass follows after one interval, when startup is over."""
        self._loop = asyncio.create_task(self._work(), name="upkeep")

    async def stop(self) -> None:
        """Stop between two batches."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(self._keep.every)
            try:
                await self.once()
            except StoreUnavailable as error:
                log.warning("store.unavailable", extra={"reason": str(error)})
            except Exception:  # the node continues without retention; the error is in the log
                log.exception("upkeep.failed")

    async def once(self) -> None:
        """Compact, purge and sweep once."""
        store, keep = self._store, self._keep
        await _until_done(lambda: store.do(retention.compact, round(keep.compact_after * 1000), BATCH))
        if keep.purge_after is not None:
            age = round(keep.purge_after * 1000)
            await _until_done(lambda: store.do(retention.purge, age, BATCH))
        if keep.purge_audit_after is not None:
            audit_age = round(keep.purge_audit_after * 1000)
            await _until_done(lambda: store.do(monitoring.purge_audit, audit_age, BATCH))
        await _until_done(lambda: store.do(retention.forget_keys, BATCH))
        await _until_done(lambda: store.do(authentication.purge_sessions, BATCH))
        if self._blobs is not None:
            await sweep(store, self._blobs)


async def _until_done(batch: Callable[[], Coroutine[Any, Any, int]]) -> None:
    while await batch():
        pass
