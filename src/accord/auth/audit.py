"""The audit log, written in batches after the requests that its entries describe.

An entry has names, IDs and reasons, never content or secrets.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice

from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.auth.rate_limits import Bucket
from accord.engine.clock import SYSTEM
from accord.errors import AuthenticationFailed, RateLimited, StorageQuotaExceeded
from accord.model.base import Choice
from accord.protocol.operations import Operation
from accord.storage.commands import monitoring
from accord.storage.commands.monitoring import AuditEntry
from accord.storage.store import Store, StoreUnavailable

OK, ABANDONED = "ok", "ABANDONED"
"""Outcomes besides error reasons: success, and a caller that disconnected early."""

AUTHENTICATE = "Authenticate"
"""The operation of a refused authentication."""

REGISTRY = ("PublishAgent", "ChangeAgent", "RemoveAgent", "MakeKey", "EndKey")
"""The operations of the registry, which are not part of A2A."""

MAX_WAITING = 10_000
"""Maximum number of unwritten entries: some megabytes, and more than a second of full load."""

BATCH = 500
"""Entries per transaction."""

LINGER_SECONDS = 0.25
"""Delay of the first entry of a batch. A busy server then needs a few transactions a second."""

RETRY_SECONDS = 2.0
"""Delay before a retry when the store was unavailable."""

STOP_SECONDS = 5.0
"""Time for the last entries when the server stops."""

NOISE_RATE, NOISE_BURST = 1.0, 20
"""Entries per second and burst for one caller or address that is refused for its number of requests."""

MAX_TEXT = 512
"""Maximum characters of a name or ID chosen by a caller."""

_NOISY = frozenset(error().row.reason for error in (RateLimited, StorageQuotaExceeded, AuthenticationFailed))

log = logging.getLogger("accord.audit")


class Audited(Choice):
    """The operations to audit: all, only writes and refusals, or none."""

    ALL = "all"
    WRITES = "writes"
    NONE = "none"


WRITES = frozenset(
    {Operation.SEND, Operation.STREAM, Operation.CANCEL, Operation.PUSH_SET, Operation.PUSH_DELETE},
)
"""The operations that change data."""

_WANTED = {Audited.ALL: frozenset(Operation), Audited.WRITES: WRITES, Audited.NONE: frozenset[Operation]()}


class Audit:
    """Collects audit entries and writes them."""

    def __init__(
        self,
        store: Store,
        audited: Audited = Audited.WRITES,
        *,
        now_ms: Callable[[], int] = SYSTEM.now_ms,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write entries for the `audited` operations to `store`."""
        self.now_ms = now_ms
        self.lost = 0
        """Number of lost entries since the start."""
        self._store = store
        self.is_on = audited is not Audited.NONE
        self._wanted = _WANTED[audited]
        self._waiting: deque[AuditEntry] = deque()
        self._noise = Bucket(NOISE_RATE, NOISE_BURST, clock)
        self._wakeup, self._stopping = asyncio.Event(), asyncio.Event()
        self._reported_lost = 0
        self._loop: asyncio.Task[None] | None = None

    # --- collecting -----------------------------------------------------------------------------------------------

    def wants(self, operation: Operation, outcome: str) -> bool:
        """Whether an outcome of an operation is audited. Errors always are, unless the audit is off."""
        return operation in self._wanted or (self.is_on and outcome != OK)

    def note(self, entry: AuditEntry) -> None:
        """Add an entry, which is written soon."""
        if entry.outcome in _NOISY and self._noise.take((entry.tenant, entry.owner, entry.peer)):
            return  # the first ones suffice, and a flood must not displace other entries
        if len(self._waiting) >= MAX_WAITING:
            self._drop(1)
            return
        self._waiting.append(entry)
        self._wakeup.set()

    def refused(self, presented: Presented) -> None:
        """Add an entry for a failed authentication."""
        if self.is_on:
            caller = Caller(peer=presented.peer or None)
            self.note(entry(AUTHENTICATE, caller, "", None, AuthenticationFailed().row.reason, self.now_ms()))

    # --- startup, loop, shutdown ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to write entries."""
        self._loop = asyncio.create_task(self._work(), name="audit")

    async def stop(self) -> None:
        """Write the remaining entries, for a limited time."""
        self._stopping.set()
        self._wakeup.set()
        if self._loop is not None:
            await asyncio.wait({self._loop}, timeout=STOP_SECONDS)
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        self._drop(len(self._waiting))
        self._waiting.clear()
        self._report_lost()

    async def _work(self) -> None:
        while True:
            await self._wakeup.wait()
            await self._pause(LINGER_SECONDS)
            self._wakeup.clear()
            is_done = await self._write()
            if self._stopping.is_set():
                return
            if not is_done:
                await self._pause(RETRY_SECONDS)
                self._wakeup.set()

    async def _write(self) -> bool:
        """Write the waiting entries. Return false if the store is unavailable."""
        while batch := list(islice(self._waiting, BATCH)):
            try:
                await self._store.do(monitoring.append_audit, batch)
            except StoreUnavailable as error:
                log.warning("audit.waits", extra={"reason": str(error), "waiting": len(self._waiting)})
                return False
            except Exception:  # entries that cannot be written must not block the others
                log.exception("audit.not_written", extra={"entries": len(batch)})
                self._drop(len(batch))
            for _ in batch:
                self._waiting.popleft()
        self._report_lost()
        return True

    async def _pause(self, seconds: float) -> None:
        """Sleep, or return early on stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _drop(self, count: int) -> None:
        if count and self.lost == self._reported_lost:
            log.error("audit.losing")
        self.lost += count

    def _report_lost(self) -> None:
        if self.lost > self._reported_lost:
            log.error("audit.lost", extra={"entries": self.lost - self._reported_lost, "total": self.lost})
            self._reported_lost = self.lost


def entry(
    operation: Operation | str, caller: Caller, agent: str, task_id: str | None, outcome: str, at: int
) -> AuditEntry:
    """Return the entry of a caller's operation on an agent or in the registry."""
    return AuditEntry(
        tenant=caller.tenant and _printable_id(caller.tenant),
        at=at,
        owner=caller.owner and _printable_id(caller.owner),
        scheme=caller.scheme,
        peer=caller.peer,
        dialect=caller.origin,
        agent=agent,
        operation=operation if isinstance(operation, str) else _NAMES[operation],
        task_id=None if task_id is None else _printable_id(task_id),
        outcome=outcome,
    )


_NAMES = {operation: operation.value for operation in Operation}


def watched(admit: Callable[[Presented], Awaitable[Caller]], audit: Audit) -> Callable[[Presented], Awaitable[Caller]]:
    """Return `admit` with an audit entry for each failed authentication."""

    async def admit_or_note(presented: Presented) -> Caller:
        try:
            return await admit(presented)
        except AuthenticationFailed:
            audit.refused(presented)
            raise

    return admit_or_note


def _printable_id(text: str) -> str:
    """Return text that every store accepts, since callers choose task IDs freely."""
    if text.isascii() and len(text) <= MAX_TEXT and "\0" not in text:
        return text
    return text[:MAX_TEXT].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
