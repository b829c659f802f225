"""Subscribers of one tenant's feed, and its latest events.

It uses neither the store nor HTTP. Subscribers who may see the same events share every frame.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from accord.api.queries import VisibleTasks
from accord.console.views import TaskRow

MAX_UNREAD_BYTES = 4 * 1024 * 1024
"""Maximum unread bytes of a subscriber. A slower one is disconnected and starts over."""

MAX_EVENTS = 4096
"""Events kept for reconnecting pages. A page that missed more reloads its lists."""

MAX_ROWS = 20_000
"""Task rows kept in memory. Rows of other tasks are read from the store when they change."""


class FeedEvent(NamedTuple):
    """A numbered event: the agent and owner it is about, and its frame. Without an owner it is for all callers."""

    number: int
    agent: str
    owner: str | None
    frame: bytes

    def is_for(self, seen: VisibleTasks) -> bool:
        """Whether a caller with this visibility may see the event."""
        if self.owner is None:
            return self.agent not in seen.hidden
        return seen.sees(self.agent, self.owner)


class FeedSubscriber:
    """One open page and its unread frames."""

    def __init__(self, seen: VisibleTasks, topics: frozenset[str]) -> None:
        """Subscribe to the tasks in `seen`, and to log growth of the tasks in `topics`."""
        self.seen = seen
        self.topics = topics
        self.is_over = False
        self._pieces: list[bytes] = []
        self._size = 0
        self._waits: asyncio.Future[None] | None = None

    def put(self, piece: bytes) -> None:
        """Add a frame. A subscriber with too many unread bytes is ended."""
        if self.is_over:
            return
        self._size += len(piece)
        if self._pieces and self._size > MAX_UNREAD_BYTES:
            self.end()
            return
        self._pieces.append(piece)
        self._wake()

    def end(self) -> None:
        """End the subscription. Unread frames are dropped: a page that reconnects receives them again."""
        self.is_over = True
        self._pieces.clear()
        self._wake()

    def _wake(self) -> None:
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    async def take(self, seconds: float) -> bytes | None:
        """Wait for unread frames. Returns an empty piece after `seconds`, and None at the end."""
        if not self._pieces and not self.is_over:
            self._waits = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._waits
            except TimeoutError:
                return b""
            finally:
                self._waits = None
        if self.is_over:
            return None
        pieces, self._pieces, self._size = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class FeedSubscribers:
    """The subscribers of one tenant.

    Events after the number `covered` are remembered, from the time `since`. Changes up to the time `looked` have been
    polled, so lost notifications do not matter for them.
    """

    def __init__(self, tenant: str, covered: int, since: int) -> None:
        self.tenant = tenant
        self.covered = covered
        self.since = self.looked = since
        self.left_at = 0.0
        self.dirty: dict[str, None] = {}
        self.tried: dict[str, None] = {}
        self.chats: dict[str, None] = {}
        self._views: dict[VisibleTasks, set[FeedSubscriber]] = {}
        self._topics: dict[str, set[FeedSubscriber]] = {}
        self._told: deque[FeedEvent] = deque()
        self._known: dict[str, tuple[TaskRow, int]] = {}

    # --- subscribers ----------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._views)

    def join(self, listener: FeedSubscriber) -> None:
        """Add a subscriber."""
        self._views.setdefault(listener.seen, set()).add(listener)
        for topic in listener.topics:
            self._topics.setdefault(topic, set()).add(listener)

    def leave(self, listener: FeedSubscriber) -> None:
        """Remove a subscriber."""
        groups: list[tuple[dict[Any, set[FeedSubscriber]], Any]] = [(self._views, listener.seen)]
        groups += [(self._topics, topic) for topic in listener.topics]
        for group, key in groups:
            group[key].discard(listener)
            if not group[key]:
                del group[key]

    def end(self) -> None:
        """End all subscriptions."""
        for listener in [one for group in self._views.values() for one in group]:
            listener.end()

    # --- events ---------------------------------------------------------------------------------------------------

    def tell(self, told: Sequence[FeedEvent], *, is_kept: bool = True) -> None:
        """Send each subscriber the events it may see, in one piece."""
        for seen, listeners in self._views.items():
            if piece := b"".join(one.frame for one in told if one.is_for(seen)):
                for listener in listeners:
                    listener.put(piece)
        if is_kept:
            self._told.extend(told)
            while len(self._told) > MAX_EVENTS:
                self.covered = self._told.popleft().number

    def told_after(self, number: int) -> list[FeedEvent]:
        """Return the remembered events after a number."""
        return [one for one in self._told if one.number > number]

    def grown(self, row: TaskRow, make: Callable[[], bytes]) -> None:
        """Notify the subscribers of a task that its log has grown."""
        if listeners := self._topics.get(row.id):
            piece = make()
            for listener in listeners:
                if listener.seen.sees(row.agent, row.owner):
                    listener.put(piece)

    # --- known tasks ----------------------------------------------------------------------------------------------

    def known(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the last known sequence number of each task that is known."""
        return {id: self._known[id][1] for id in ids if id in self._known}

    def row(self, task_id: str) -> TaskRow | None:
        """Return the last sent row of a task."""
        found = self._known.get(task_id)
        return None if found is None else found[0]

    def learn(self, row: TaskRow, seq: int) -> None:
        """Store the row of a task and its sequence number. The least recently changed rows are dropped."""
        self._known.pop(row.id, None)
        self._known[row.id] = row, seq
        if len(self._known) > MAX_ROWS:
            del self._known[next(iter(self._known))]


_encoder = msgspec.json.Encoder()


def frame(number: int, kind: str, body: Any) -> bytes:
    """Return an event as a server-sent event frame."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, kind.encode(), _encoder.encode(body))
