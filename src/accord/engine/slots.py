"""Slot reservations for executions that are about to start."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from accord.a2a import Caller
from accord.model import Message, Task
from accord.storage.commands.jobs import ClaimedJob
from accord.storage.store import ARRIVALS


class ExecutionStart(Struct, frozen=True, kw_only=True):
    """The input of an execution: the task after event `seq`, with the store's snapshot after event `kept`."""

    job: ClaimedJob
    task: Task
    seq: int
    kept: int
    message: Message
    caller: Caller
    steps: dict[str, str]
    deadline_at: int | None = None
    parent_id: str | None = None
    resumes: bool = False
    has_large: bool = False
    trace: str | None = None


log = logging.getLogger("accord.engine")


class SlotReservation:
    """A context manager that reserves slots for executions about to start. It yields the given node or None.

    Every message passes here.
    """

    __slots__ = ("_agent", "_count", "_node", "_promised")

    def __init__(self, promised: Counter[str], agent: str, count: int, node: str | None) -> None:
        self._promised = promised
        self._agent = agent
        self._count = count
        self._node = node

    def __enter__(self) -> str | None:
        self._promised[self._agent] += self._count
        return self._node

    def __exit__(self, *_raised: object) -> None:
        self._promised[self._agent] -= self._count


class DeferredStarts:
    """Executions whose start waits until no message is being accepted, or for some turns of the loop.

    They would otherwise delay callers that still wait for their task ID.
    """

    def __init__(self, promised: Counter[str]) -> None:
        """Count reservations in `promised`, together with those of messages being accepted."""
        self._promised = promised
        self._held: list[tuple[str, Callable[[], object]]] = []

    def add(self, agent: str, begin: Callable[[], object]) -> None:
        """Schedule `begin`, and reserve a slot for this agent until then."""
        self._promised[agent] += 1
        self._held.append((agent, begin))
        if len(self._held) == 1:
            asyncio.get_running_loop().call_soon(self.begin, ARRIVALS)

    def begin(self, turns: int = 0) -> None:
        """Start all waiting executions, after at most `turns` turns of the loop."""
        if turns and sum(self._promised.values()) > len(self._held):
            asyncio.get_running_loop().call_soon(self.begin, turns - 1)
            return
        held, self._held = self._held, []
        for agent, begin in held:
            self._promised[agent] -= 1
            try:
                begin()
            except Exception:  # start the others; the node releases the orphaned job
                log.exception("job.not_begun", extra={"agent": agent})
