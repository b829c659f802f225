"""Notifications between the processes of a store, and the carriers that LISTEN/NOTIFY and NATS have in common.

Notifications are lossy: a carrier never fails a publisher and never remembers much. It reconnects for ever. Subscribers
poll as well, so a carrier that is down delays them by a second.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

Hear = Callable[[list[str]], None]
"""Takes the topics that something happened to."""

RECONNECT_SECONDS = 1
ALIVE_SECONDS = 15
"""A connection that had nothing to carry for so long is asked whether it lives: a silent network looks like silence."""

CLOSE_SECONDS = 10
MAX_WAITING = 10_000
"""Topics kept while there is no connection. Whoever follows one that was dropped polls, as with every lost hint."""

log = logging.getLogger("accord.signals")


class Signals(Protocol):
    """Carries hints between the processes of a store; `Carrier` is one to be completed."""

    async def open(self) -> None:
        """Start to connect, and return; whoever cannot be reached is tried for ever."""

    def publish(self, topics: list[str]) -> None:
        """Give topics to who follows here, at once, and to all other processes; never wait, never raise."""

    async def close(self) -> None:
        """Let go of everything."""


class Carrier:
    """Carries topics to other processes and back, over a connection that it keeps up for ever."""

    name: ClassVar[str]
    payload_bytes: ClassVar[int]

    def __init__(self, heard: Hear) -> None:
        """Give every topic to `heard`: at once what is published here, and what arrives from elsewhere."""
        self._heard = heard
        self._waiting: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._up = asyncio.Event()
        self._said_down = False
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start connecting; a carrier that cannot be reached delays hints and nothing else."""
        self._task = asyncio.create_task(self._keep_talking(), name=f"accord-{self.name}")

    async def connected(self) -> None:
        """Wait until hints travel both ways."""
        await self._up.wait()

    async def close(self) -> None:
        """Let go of the connection; hints that were not sent yet are lost."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)

    def publish(self, topics: list[str]) -> None:
        """Wake followers here at once, and those elsewhere with the next payload."""
        self._heard(topics)
        if len(self._waiting) < MAX_WAITING:
            self._waiting.update(dict.fromkeys(topics))
            self._wake.set()

    async def _talk(self) -> None:
        """Connect, call `_is_up`, and send what `_next` gives until the connection is lost; never return."""
        raise NotImplementedError

    def _is_up(self) -> None:
        self._up.set()
        if self._said_down:
            log.info("hints are carried again", extra={"carrier": self.name})
        self._said_down = False

    def _arrived(self, payload: str) -> None:
        try:
            self._heard(payload.split("\n"))
        except Exception:  # a follower's fault is no reason to hang up
            log.exception("a hint was not taken", extra={"carrier": self.name})

    async def _keep_talking(self) -> None:
        while True:
            try:
                await self._talk()
            except Exception as error:  # whatever it is, the next attempt may work
                if not self._said_down:
                    reason = str(error) or type(error).__name__
                    log.warning("hints are not carried, followers poll", extra={"carrier": self.name, "reason": reason})
                self._said_down = True
            finally:
                self._up.clear()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _next(self) -> list[str]:
        """Wait for topics, a lost connection or the time to ask whether it lives; return payloads, perhaps none."""
        if self._closing:  # `asyncio.wait_for` before 3.12 forgets a cancellation that comes together with its result
            raise asyncio.CancelledError
        # A plain timer, which costs less than `asyncio.timeout`: every hint passes here.
        alive = asyncio.get_running_loop().call_later(ALIVE_SECONDS, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            alive.cancel()
        self._wake.clear()
        topics, self._waiting = self._waiting, {}
        return pack_topics(topics, self.payload_bytes)


def pack_topics(topics: Iterable[str], most: int) -> list[str]:
    """Put topics together, a line each, into as few payloads as their size allows; one too long for any is dropped."""
    found: list[str] = []
    size = 0
    for topic in topics:
        length = len(topic.encode()) + 1
        if length > most:
            continue
        if found and size + length <= most:
            found[-1] += "\n" + topic
            size += length
        else:
            found.append(topic)
            size = length
    return found
