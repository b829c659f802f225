"""Commands that wait for an answer in their terminal, while their tasks wait for the same answer in the store.

A task that waits is rows only, and no run of it is there to be told that it was cancelled: so whoever is held is looked
after here, and let go of when its task is over, is gone on with elsewhere, or was not answered in time. What is held is
held by this process alone; `talk` says what becomes of an answer that finds nobody.
"""

import asyncio
import logging

from msgspec import Struct

from accord.agents.process.live import Live
from accord.engine.agent import Node
from accord.errors import AccordError
from accord.model import TaskState
from accord.protocol import lifecycle
from accord.storage.commands import tasks
from accord.storage.records import state_of
from accord.storage.store import StoreUnavailable

LOOK_SECONDS = 0.5
"""How often the task of a held command is looked at: as often as a node looks for what it no longer holds."""

ELSEWHERE_SECONDS = 5.0
"""How long an answered task may take to come back here; then it is gone on with elsewhere."""

EXPIRED = "expired"
"""What is handed in to a task whose command waited too long."""

log = logging.getLogger("accord.process")

Key = tuple[str, str]


class Kept(Struct, frozen=True):
    """A held command, and who looks after it."""

    live: Live
    watch: asyncio.Task[None]


class Holding:
    """The held commands of one agent, by tenant and task."""

    def __init__(self, node: Node) -> None:
        """Look after tasks in a node's store."""
        self._node = node
        self._held: dict[Key, Kept] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def put(self, key: Key, live: Live, seconds: float, question: str | None) -> None:
        """Hold a command for so long; a task that waits under the key `question` is told when that is over."""
        watch = asyncio.create_task(self._watch(key, live, seconds, question), name=f"held {key[1]}")
        self._held[key] = Kept(live, watch)

    def take(self, key: Key) -> Live | None:
        """Return a held command to whoever goes on with it."""
        kept = self._held.pop(key, None)
        if kept is None:
            return None
        kept.watch.cancel()
        return kept.live

    async def close(self) -> None:
        """Let go of all; their tasks go on waiting."""
        held, self._held = self._held, {}
        for kept in held.values():
            kept.watch.cancel()
        await asyncio.gather(*(kept.live.process.stop() for kept in held.values()), *self._leaving)

    async def _watch(self, key: Key, live: Live, seconds: float, question: str | None) -> None:
        """Wait for a reason to let go."""
        try:
            async with asyncio.timeout(seconds):
                reason = await self._reason(key)
        except TimeoutError:
            reason = EXPIRED
        leaving = self._held.pop(key).watch  # this very task, which whoever closes must wait for
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        log.info("held process is let go of: %s", reason, extra={"task_id": key[1], "pid": live.process.pid})
        await live.process.stop()
        if reason == EXPIRED and question is not None:
            await self._tell(key, question)

    async def _reason(self, key: Key) -> str:
        """Wait until the task is no longer there to be answered, or was, and return which."""
        has_asked, unasked = False, 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                head = await self._node.store.read(tasks.read_head, *key)
            except StoreUnavailable:
                continue
            state = None if head is None else state_of(head.state)
            if state is None or state in lifecycle.ENDED:
                return "its task is over"
            has_asked = has_asked or state is TaskState.INPUT_REQUIRED
            unasked = unasked + 1 if has_asked and state is not TaskState.INPUT_REQUIRED else 0
            if unasked * LOOK_SECONDS > ELSEWHERE_SECONDS:
                return "its task goes on elsewhere"

    async def _tell(self, key: Key, question: str) -> None:
        """Tell the task that nobody can be answered any more, as soon as the store takes it."""
        while True:
            try:
                await self._node.wake(*key, question, EXPIRED)
                return
            except (StoreUnavailable, AccordError) as error:
                log.warning("task was not told", extra={"task_id": key[1], "reason": str(error)})
                await asyncio.sleep(LOOK_SECONDS)
