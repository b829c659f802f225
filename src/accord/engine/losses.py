"""Detection of events that the store lost after acknowledging them.

A promoted standby or a restored backup goes back in time. A node then compares the store with its own writes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from weakref import WeakSet

from accord.engine.agent import Agent, Crash
from accord.engine.execution import Execution
from accord.engine.subscriptions import Hub
from accord.model.base import timestamp_ms
from accord.storage.commands import jobs
from accord.storage.store import RESTARTED, Store, StoreUnavailable

log = logging.getLogger("accord.engine")


class Losses:
    """The losses that a node has found. Drops the affected executions."""

    def __init__(
        self,
        store: Store,
        hub: Hub,
        executions: Mapping[tuple[str, str], Execution],
        agents: Mapping[str, Agent],
        abandon: Callable[[tuple[str, str]], None],
        check_due: asyncio.Event,
        now_ms: Callable[[], int],
    ) -> None:
        """Compare `executions` with the store. `abandon` stops an execution, and `check_due` schedules a check."""
        self._store = store
        self._hub = hub
        self._executions = executions
        self._abandon = abandon
        self._agents = agents
        self._check_due = check_due
        self._now_ms = now_ms
        self._is_unsure = False
        self._older_executions: WeakSet[Execution] = WeakSet()
        self._tasks: set[tuple[str, str]] = set()
        self._found_ms = 0
        self._seconds = 0.0

    @property
    def note(self) -> str | None:
        """The warning for operators, or None without any loss."""
        if not self._found_ms:
            return None
        tasks = f"{len(self._tasks)} of this node's running tasks lost events"
        span = f", and up to {self._seconds:g} s of changes are lost" if self._seconds else ""
        return f"went back in time, found at {timestamp_ms(self._found_ms)}: {tasks}{span}"

    def add_heartbeats(self, count: int, heartbeat_seconds: float) -> None:
        """Report lost heartbeats of this node. All commits since then are lost as well."""
        if not count:
            return
        self._seconds = max(self._seconds, (count + 1) * heartbeat_seconds)
        self._found_ms = self._now_ms()
        log.error("store.went_back", extra={"seconds": (count + 1) * heartbeat_seconds})
        self._hub.heard([RESTARTED])

    def suspect(self) -> None:
        """Schedule a comparison, after a notification that the store may have gone back in time."""
        self._is_unsure = True
        self._older_executions.update(self._executions.values())
        self._check_due.set()

    async def compare(self) -> None:
        """Drop executions whose events the store lost. Their tasks are claimed again."""
        if not self._is_unsure:
            return
        self._is_unsure = False
        try:
            for execution in list(self._executions.values()):
                if not execution.is_cancelled and (lost := await execution.lost()) is not None:
                    await self._drop(execution, *lost)
        except StoreUnavailable:
            self._is_unsure = True
            raise

    async def drop_if_rewound(self, key: tuple[str, str]) -> None:
        """Drop an execution that waits for a missing task, if the store may have gone back to before its creation."""
        execution = self._executions.get(key)
        if execution is not None and execution in self._older_executions:
            await self._drop(execution, execution.log.seq, execution.log.seq)
            await asyncio.Event().wait()  # until this task is canceled

    async def _drop(self, execution: Execution, known: int, kept: int) -> None:
        """Stop an execution and release its job. A job that must not be repeated fails."""
        self._tasks.add((execution.tenant, execution.job.key))
        self._found_ms = self._now_ms()
        log.error("store.lost_events", extra={"task_id": execution.job.key, "known_seq": known, "kept_seq": kept})
        self._hub.rewind(execution.tenant, execution.job.key)
        self._abandon((execution.tenant, execution.job.key))
        is_unrepeatable = self._agents[execution.job.queue].profile.crash is Crash.FAIL
        await self._store.do(jobs.release_id, execution.job.id, execution.job.epoch, counts=is_unrepeatable)
