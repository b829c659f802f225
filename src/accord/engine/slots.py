"""Slots of a node: how many executions fit, reservations for those about to start, and when these start."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager

from accord.engine.agent import Agent
from accord.engine.execution import Execution

MAX_START_DELAY_SECONDS = 0.02
"""Maximum delay of an execution that waits for messages that are being accepted."""

log = logging.getLogger("accord.engine")


class SlotReservation:
    """A context manager that reserves slots for executions about to start. It yields the given node or None.

    Every message passes here.
    """

    __slots__ = ("_agent", "_count", "_node", "_slots")

    def __init__(self, slots: "Slots", agent: str, count: int, node: str | None) -> None:
        self._slots = slots
        self._agent = agent
        self._count = count
        self._node = node

    def __enter__(self) -> str | None:
        self._slots.reserved[self._agent] += self._count
        return self._node

    def __exit__(self, *_raised: object) -> None:
        slots = self._slots
        slots.reserved[self._agent] -= self._count
        if slots.has_deferred:
            slots.start_when_idle()


class Slots:
    """The slots of one node, and the executions that wait for a calm moment to start."""

    def __init__(
        self,
        node: str,
        agents: Mapping[str, Agent],
        running: Mapping[tuple[str, str], Execution],
        *,
        limit: int,
        has_tenant_limit: bool,
        on_release: Callable[[], None],
    ) -> None:
        """Share `limit` slots between `running` executions of `agents`.

        With a limit per tenant only claims from the store can take a slot. `on_release` is called for a free slot.
        """
        self.reserved: Counter[str] = Counter()
        self.waiting: Counter[Hashable] = Counter()
        self.is_open = False
        self.has_backlog = False
        """Whether older jobs may wait in the store, which go first."""
        self._node = node
        self._agents = agents
        self._running = running
        self._limit = limit
        self._has_tenant_limit = has_tenant_limit
        self._on_release = on_release
        self._deferred: list[tuple[str, Callable[[], object]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def room(self, agent: str) -> int:
        """Return how many more executions of an agent fit on this node. Those that wait for others do not count."""
        if not self.is_open:
            return 0
        free = self._limit - len(self._running) + len(self.waiting) - sum(self.reserved.values())
        concurrency = self._agents[agent].profile.concurrency
        if concurrency is not None:
            running = sum(
                execution.job.queue == agent and execution not in self.waiting for execution in self._running.values()
            )
            free = min(free, concurrency - running - self.reserved[agent])
        return max(0, free)

    def reserve(self, agent: str) -> SlotReservation:
        """Return a reservation for an execution whose task is being stored.

        It yields this node, or None without room or behind an older job. Any node may then claim.
        """
        if self._has_tenant_limit or self.has_backlog or not self.room(agent):
            self.has_backlog = True
            return SlotReservation(self, agent, 0, None)
        return SlotReservation(self, agent, 1, self._node)

    def reserve_claims(self, agent: str, count: int) -> SlotReservation:
        """Return a reservation for jobs that are being claimed."""
        return SlotReservation(self, agent, count, self._node)

    @contextmanager
    def without(self, execution: Hashable) -> Iterator[None]:
        """Release the slot of an execution while it waits, because its child tasks need slots."""
        self.waiting[execution] += 1
        self._on_release()
        try:
            yield
        finally:
            self.waiting[execution] -= 1
            if not self.waiting[execution]:
                del self.waiting[execution]

    # --- deferred starts ------------------------------------------------------------------------------------------

    @property
    def has_deferred(self) -> bool:
        """Whether executions wait for their start."""
        return bool(self._deferred)

    def defer(self, agent: str, begin: Callable[[], object]) -> None:
        """Start an execution once no message is being accepted, and reserve its slot until then.

        It would otherwise delay callers that still wait for their task ID.
        """
        self.reserved[agent] += 1
        self._deferred.append((agent, begin))

    def start_when_idle(self) -> None:
        """Start the deferred executions if no message is being accepted, or else after a short delay."""
        loop = asyncio.get_running_loop()
        if sum(self.reserved.values()) == len(self._deferred):
            loop.call_soon(self.start_deferred)
        elif self._timer is None:
            self._timer = loop.call_later(MAX_START_DELAY_SECONDS, self.start_deferred)

    def start_deferred(self) -> None:
        """Start all deferred executions now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deferred, self._deferred = self._deferred, []
        for agent, begin in deferred:
            self.reserved[agent] -= 1
            try:
                begin()
            except Exception:  # start the others; the node releases the orphaned job
                log.exception("job.not_begun", extra={"agent": agent})
