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

    Events after the number `covered` are remembered, from the time `since`. Changes up to the time `polled_to` were
    polled, so lost notifications do not matter for them.
    """

    def __init__(self, tenant: str, covered: int, since: int) -> None:
        self.tenant = tenant
        self.covered = covered
        self.since = self.polled_to = since
        self.left_at = 0.0
        self.dirty: dict[str, None] = {}
        self.tried: dict[str, None] = {}
        self.chats: dict[str, None] = {}
        self._views: dict[VisibleTasks, set[FeedSubscriber]] = {}
        self._topics: dict[str, set[FeedSubscriber]] = {}
        self._sent: deque[FeedEvent] = deque()
        self._known: dict[str, tuple[TaskRow, int]] = {}

    # --- subscribers ----------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._views)

    def join(self, subscriber: FeedSubscriber) -> None:
        """Add a subscriber."""
        self._views.setdefault(subscriber.seen, set()).add(subscriber)
        for topic in subscriber.topics:
            self._topics.setdefault(topic, set()).add(subscriber)

    def leave(self, subscriber: FeedSubscriber) -> None:
        """Remove a subscriber."""
        groups: list[tuple[dict[Any, set[FeedSubscriber]], Any]] = [(self._views, subscriber.seen)]
        groups += [(self._topics, topic) for topic in subscriber.topics]
        for group, key in groups:
            group[key].discard(subscriber)
            if not group[key]:
                del group[key]

    def end(self) -> None:
        """End all subscriptions."""
        for subscriber in [member for group in self._views.values() for member in group]:
            subscriber.end()

    # --- events ---------------------------------------------------------------------------------------------------

    def send(self, events: Sequence[FeedEvent], *, is_kept: bool = True) -> None:
        """Send each subscriber the events it may see, in one piece."""
        for seen, subscribers in self._views.items():
            if piece := b"".join(event.frame for event in events if event.is_for(seen)):
                for subscriber in subscribers:
                    subscriber.put(piece)
        if is_kept:
            self._sent.extend(events)
            while len(self._sent) > MAX_EVENTS:
                self.covered = self._sent.popleft().number

    def events_after(self, number: int) -> list[FeedEvent]:
        """Return the remembered events after a number."""
        return [event for event in self._sent if event.number > number]

    def send_growth(self, row: TaskRow, make: Callable[[], bytes]) -> None:
        """Notify the subscribers of a task that its log has grown."""
        if subscribers := self._topics.get(row.id):
            piece = make()
            for subscriber in subscribers:
                if subscriber.seen.sees(row.agent, row.owner):
                    subscriber.put(piece)

    # --- known tasks ----------------------------------------------------------------------------------------------

    def known(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the last known sequence number of each task that is known."""
        return {id: self._known[id][1] for id in ids if id in self._known}

    def row(self, task_id: str) -> TaskRow | None:
        """Return the last sent row of a task."""
        entry = self._known.get(task_id)
        return None if entry is None else entry[0]

    def remember(self, row: TaskRow, seq: int) -> None:
        """Store the row of a task and its sequence number. The least recently changed rows are dropped."""
        self._known.pop(row.id, None)
        self._known[row.id] = row, seq
        if len(self._known) > MAX_ROWS:
            del self._known[next(iter(self._known))]


_encoder = msgspec.json.Encoder()


def frame(number: int, kind: str, body: Any) -> bytes:
    """Return an event as a server-sent event frame."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, kind.encode(), _encoder.encode(body))
