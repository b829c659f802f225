"""The audit log: entries written in batches after the requests that they describe.

An entry has names, ids and reasons, never content or secrets.
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
"""Outcomes that are no error's reason: it was done; the caller left before it was."""

AUTHENTICATE = "Authenticate"
"""The operation of whoever was not let in."""

REGISTRY = ("PublishAgent", "ChangeAgent", "RemoveAgent", "MakeKey", "EndKey")
"""The operations of the registry, which A2A does not have."""

MAX_WAITING = 10_000
"""Entries that wait to be written: some megabytes, and more than a second of full load."""

BATCH = 500
"""Entries in one transaction."""

LINGER_SECONDS = 0.25
"""How long the first entry waits for more: on a busy server a few transactions a second write all of them."""

RETRY_SECONDS = 2.0
"""When writing is tried again after the store was away."""

STOP_SECONDS = 5.0
"""How long the last entries may take when the server stops."""

NOISE_RATE, NOISE_BURST = 1.0, 20
"""Entries a second, and at once, about one caller or address that is refused for its sheer number of requests."""

MAX_TEXT = 512
"""Characters of a name or an id that was made up by a caller."""

_NOISY = frozenset(error().row.reason for error in (RateLimited, StorageQuotaExceeded, AuthenticationFailed))

log = logging.getLogger("accord.audit")


class Audited(Choice):
    """What is worth an entry: everything, what changes something or is refused, or nothing."""

    ALL = "all"
    WRITES = "writes"
    NONE = "none"


WRITES = frozenset(
    {Operation.SEND, Operation.STREAM, Operation.CANCEL, Operation.PUSH_SET, Operation.PUSH_DELETE},
)
"""The operations that change something."""

_WANTED = {Audited.ALL: frozenset(Operation), Audited.WRITES: WRITES, Audited.NONE: frozenset[Operation]()}


class Audit:
    """Collects entries and writes them."""

    def __init__(
        self,
        store: Store,
        audited: Audited = Audited.WRITES,
        *,
        now_ms: Callable[[], int] = SYSTEM.now_ms,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write to `store` what is `audited`."""
        self.now_ms = now_ms
        self.lost = 0
        """Entries that were not written, since the start."""
        self._store = store
        self.is_on = audited is not Audited.NONE
        self._wanted = _WANTED[audited]
        self._waiting: deque[AuditEntry] = deque()
        self._noise = Bucket(NOISE_RATE, NOISE_BURST, clock)
        self._news, self._stopping = asyncio.Event(), asyncio.Event()
        self._said_lost = 0
        self._loop: asyncio.Task[None] | None = None

    # --- collecting -----------------------------------------------------------------------------------------------

    def wants(self, operation: Operation, outcome: str) -> bool:
        """Whether something is worth an entry; what is refused always is."""
        return operation in self._wanted or (self.is_on and outcome != OK)

    def note(self, entry: AuditEntry) -> None:
        """Take an entry; it is written soon."""
        if entry.outcome in _NOISY and self._noise.take((entry.tenant, entry.owner, entry.peer)):
            return  # the first ones tell it all, and a flood must not wash away everything else
        if len(self._waiting) >= MAX_WAITING:
            self._lose(1)
            return
        self._waiting.append(entry)
        self._news.set()

    def refused(self, presented: Presented) -> None:
        """Take note of somebody who was not let in."""
        if self.is_on:
            outcome = AuthenticationFailed().row.reason
            at, peer = self.now_ms(), presented.peer or None
            self.note(
                AuditEntry(tenant="", at=at, owner="", peer=peer, agent="", operation=AUTHENTICATE, outcome=outcome)
            )

    # --- startup, loop, shutdown ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write."""
        self._loop = asyncio.create_task(self._work(), name="audit")

    async def stop(self) -> None:
        """Write what is left, if that is possible soon."""
        self._stopping.set()
        self._news.set()
        if self._loop is not None:
            await asyncio.wait({self._loop}, timeout=STOP_SECONDS)
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        self._lose(len(self._waiting))
        self._waiting.clear()
        self._say_lost()

    async def _work(self) -> None:
        while True:
            await self._news.wait()
            await self._pause(LINGER_SECONDS)
            self._news.clear()
            is_done = await self._write()
            if self._stopping.is_set():
                return
            if not is_done:
                await self._pause(RETRY_SECONDS)
                self._news.set()

    async def _write(self) -> bool:
        """Write what waits; false if the store is away."""
        while batch := list(islice(self._waiting, BATCH)):
            try:
                await self._store.do(monitoring.append_audit, batch)
            except StoreUnavailable as error:
                log.warning("audit waits for the store", extra={"reason": str(error), "waiting": len(self._waiting)})
                return False
            except Exception:  # what cannot be written must not keep the rest from being written
                log.exception("audit entries cannot be written", extra={"entries": len(batch)})
                self._lose(len(batch))
            for _ in batch:
                self._waiting.popleft()
        self._say_lost()
        return True

    async def _pause(self, seconds: float) -> None:
        """Wait, unless it is time to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _lose(self, count: int) -> None:
        if count and self.lost == self._said_lost:
            log.error("audit entries are being lost")
        self.lost += count

    def _say_lost(self) -> None:
        if self.lost > self._said_lost:
            log.error("audit entries were lost", extra={"entries": self.lost - self._said_lost, "total": self.lost})
            self._said_lost = self.lost


def entry(
    operation: Operation | str, caller: Caller, agent: str, task_id: str | None, outcome: str, at: int
) -> AuditEntry:
    """Return the entry of what a caller asked of an agent, or of the registry about one."""
    return AuditEntry(
        tenant=_printable_id(caller.tenant),
        at=at,
        owner=_printable_id(caller.owner),
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
    """Return the same way in, with an entry for everybody who is refused."""

    async def admit_or_note(presented: Presented) -> Caller:
        try:
            return await admit(presented)
        except AuthenticationFailed:
            audit.refused(presented)
            raise

    return admit_or_note


def _printable_id(text: str) -> str:
    """Return text that every store can keep: a caller may ask for a task by any name."""
    if text.isascii() and len(text) <= MAX_TEXT and "\0" not in text:
        return text
    return text[:MAX_TEXT].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
