"""Notifications between the processes of a store, and the common carrier for LISTEN/NOTIFY and NATS.

Notifications are lossy: a carrier never fails a publisher and keeps a bounded queue. It reconnects indefinitely.
Subscribers also poll, so a carrier that is down delays them by a second.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

Hear = Callable[[list[str]], None]
"""Receives the topics that changed."""

RECONNECT_SECONDS = 1
ALIVE_SECONDS = 15
"""Idle time after which a connection is checked. A dead network looks like an idle one."""

CLOSE_SECONDS = 10
MAX_WAITING = 10_000
"""Topics kept while disconnected. Subscribers of a dropped topic poll, as with every lost notification."""

log = logging.getLogger("accord.signals")


class Signals(Protocol):
    """Carries notifications between the processes of a store. `Carrier` is the base class."""

    async def open(self) -> None:
        """Start connecting and return. Unreachable servers are retried indefinitely."""

    def publish(self, topics: list[str]) -> None:
        """Deliver topics to local subscribers at once, and to all other processes. Never waits, never raises."""

    async def close(self) -> None:
        """Close the connection."""


class Carrier:
    """Carries topics to and from other processes over a connection that it keeps open."""

    name: ClassVar[str]
    payload_bytes: ClassVar[int]

    def __init__(self, heard: Hear) -> None:
        """Pass every topic to `heard`: local ones when published, remote ones on arrival."""
        self._heard = heard
        self._waiting: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._up = asyncio.Event()
        self._said_down = False
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start connecting. An unreachable carrier only delays notifications."""
        self._task = asyncio.create_task(self._keep_talking(), name=f"accord-{self.name}")

    async def connected(self) -> None:
        """Wait until notifications travel both ways."""
        await self._up.wait()

    async def close(self) -> None:
        """Close the connection. Unsent notifications are lost."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)

    def publish(self, topics: list[str]) -> None:
        """Wake local subscribers at once, and those in other processes with the next payload."""
        self._heard(topics)
        if len(self._waiting) < MAX_WAITING:
            self._waiting.update(dict.fromkeys(topics))
            self._wake.set()

    async def _talk(self) -> None:
        """Connect, call `_is_up`, and send payloads from `_next` until the connection is lost; never return."""
        raise NotImplementedError

    def _is_up(self) -> None:
        self._up.set()
        if self._said_down:
            log.info("signals.up", extra={"carrier": self.name})
        self._said_down = False

    def _arrived(self, payload: str) -> None:
        try:
            self._heard(payload.split("\n"))
        except Exception:  # a subscriber's error must not close the connection
            log.exception("signals.not_taken", extra={"carrier": self.name})

    async def _keep_talking(self) -> None:
        while True:
            try:
                await self._talk()
            except Exception as error:  # the next attempt may work after any error
                if not self._said_down:
                    reason = str(error) or type(error).__name__
                    log.warning("signals.down", extra={"carrier": self.name, "reason": reason})
                self._said_down = True
            finally:
                self._up.clear()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _next(self) -> list[str]:
        """Wait for topics, a lost connection or the idle check. Return payloads, possibly none."""
        if self._closing:  # `asyncio.wait_for` before 3.12 loses a cancellation that coincides with its result
            raise asyncio.CancelledError
        # A plain timer, cheaper than `asyncio.timeout`: every notification passes here.
        alive = asyncio.get_running_loop().call_later(ALIVE_SECONDS, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            alive.cancel()
        self._wake.clear()
        topics, self._waiting = self._waiting, {}
        return pack_topics(topics, self.payload_bytes)


def pack_topics(topics: Iterable[str], most: int) -> list[str]:
    """Pack topics, one per line, into as few payloads as possible. A topic longer than a payload is dropped."""
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
