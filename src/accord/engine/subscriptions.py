"""Subscriptions to the event logs of tasks: one channel per task and process.

Notifications are lossy: a subscriber reads past its cursor on a notification, and once a second without one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from types import TracebackType

from accord.engine.task_store import TaskStore
from accord.errors import TaskNotFound
from accord.model import Event, StatusUpdate, Task, TaskState
from accord.protocol import lifecycle
from accord.storage.commands import tasks
from accord.storage.store import RESTARTED, StoreUnavailable

MEMORY = 2048
"""Events that a channel keeps for subscribers that are slightly behind."""

POLL_SECONDS = 1.0
"""Maximum delay of events whose notifications were all lost."""

LOOKED_AT = 1000
"""Tasks per poll of log lengths. One poll takes a few milliseconds of database time."""

Stops = Callable[[Event], bool]


def at_end(event: Event) -> bool:
    """Whether an event ends a subscription: the task has ended."""
    return _state_in(event, lifecycle.ENDED)


def at_answer(event: Event) -> bool:
    """Whether an event ends a stream that a message started: the task has ended, or asks.

    The stream stays open while credentials are awaited, which may arrive out of band (A2A 1.0, 7.6.1).
    """
    return _state_in(event, lifecycle.ENDED | {TaskState.INPUT_REQUIRED})


def at_turn_end(event: Event) -> bool:
    """Whether nothing more happens to the task without its caller."""
    return _state_in(event, lifecycle.ENDED | lifecycle.INTERRUPTED)


def _state_in(event: Event, states: frozenset[TaskState]) -> bool:
    body = event.body
    return isinstance(body, StatusUpdate | Task) and body.status.state in states


class LogChannel:
    """The recent events of one task's log, for its subscribers."""

    def __init__(self, tenant: str, task_id: str, known: int) -> None:
        """Start with a log of `known` events."""
        self.tenant = tenant
        self.task_id = task_id
        self.known = known
        self.followers = 0
        self.is_fed = False
        self.is_stale = True
        self.rewinds = 0
        self.reading = asyncio.Lock()
        self._events: deque[Event] = deque(maxlen=MEMORY)
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def last(self) -> int | None:
        """The sequence number of the last kept event, or None."""
        return self._events[-1].seq if self._events else None

    def feed(self, events: Sequence[Event]) -> None:
        """Add committed events. If they do not follow the last kept event, subscribers read the log instead."""
        last = self.last
        if last is not None:
            events = [event for event in events if event.seq > last]
        if not events:
            return
        if last is not None and events[0].seq != last + 1:
            self.is_stale = True
        else:
            self._events.extend(events)
            self.known = max(self.known, events[-1].seq)
            self.is_stale = False
        self.wake()

    def rewind(self) -> None:
        """Drop all events, because the log went back in time. Subscribers restart from the task."""
        self._events.clear()
        self.known = 0
        self.rewinds += 1
        self.is_stale = True
        self.wake()

    def hint(self) -> None:
        """Mark the log as possibly longer."""
        if not self.is_fed:
            self.is_stale = True
            self.wake()

    def after(self, seq: int) -> list[Event] | None:
        """Return the kept events after a sequence number, or None if some of them are not kept."""
        last = self.last
        if last is None or last <= seq:
            return []
        missing = last - seq
        if missing > len(self._events):
            return None
        return list(self._events)[-missing:] if missing < len(self._events) else list(self._events)

    def wake(self) -> None:
        """Wake all waiting subscribers."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def latest(self) -> Event | None:
        """The last kept event, or None."""
        return self._events[-1] if self._events else None

    @property
    def is_awaited(self) -> bool:
        """Whether a subscriber waits for more events."""
        return bool(self._waiting)

    def look(self, length: int | None, known: int) -> None:
        """Compare the length of the log with `known`, the count of known events before the read.

        None as `length` means that the task is gone. Its readers get an error.
        """
        if length is not None and length < known:
            self.rewind()
        elif self.is_stale or length is None or length > self.known:
            self.is_stale = True
            self.wake()

    async def changed(self) -> None:
        """Wait until there may be more events."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)


class Subscriber:
    """A subscriber of one task from one event on. Enter it before the task can change."""

    def __init__(self, hub: "Hub", channel: LogChannel, after: int) -> None:
        self._hub = hub
        self._channel = channel
        self._after = after
        self._rewinds = channel.rewinds

    async def __aenter__(self) -> "Subscriber":
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """End the subscription."""
        self._hub.leave(self._channel)

    async def events(self, stops: Stops) -> AsyncIterator[Event]:
        """Yield every later event once and in order, until one for which `stops` is true.

        If the store went back in time, the current task comes before the events of its new log. Raises TaskNotFound if
        the task is deleted.
        """
        channel = self._channel
        while True:
            is_rewound = self._rewinds != channel.rewinds
            batch = None if is_rewound else channel.after(self._after)
            if batch is None or (not batch and self._is_behind()):
                rewinds = channel.rewinds
                try:
                    batch = await (self._hub.start(channel) if is_rewound else self._hub.read(channel, self._after))
                except StoreUnavailable:  # the stream continues when the database is available again
                    channel.is_stale = True
                    await channel.changed()
                    continue
                if rewinds != channel.rewinds:
                    continue
                self._rewinds = rewinds
            left = deque(batch)
            was_read = bool(batch)
            del batch
            while left:  # release yielded events while a slow reader handles them
                self._after = left[0].seq
                is_last = stops(left[0])
                yield left.popleft()
                if is_last:
                    return
            if not was_read and not self._is_behind():
                await channel.changed()

    def _is_behind(self) -> bool:
        return self._channel.is_stale or self._after < self._channel.known


class Hub:
    """The channels of one process and the watchers of notification topics."""

    def __init__(self) -> None:
        """Create a hub without channels."""
        self._task_store: TaskStore | None = None
        self._channels: dict[str, LogChannel] = {}
        self._topics: dict[str, asyncio.Event] = {}
        self._observers: list[Callable[[Sequence[str]], None]] = []
        self._on_restart: list[Callable[[], None]] = []
        self._next_look: asyncio.TimerHandle | None = None
        self._suspects: dict[LogChannel, Event] = {}
        self._looking: asyncio.Task[None] | None = None

    def use(self, task_store: TaskStore) -> None:
        """Read from a task store whose notifications are passed to `heard`."""
        self._task_store = task_store

    def heard(self, topics: Sequence[str]) -> None:
        """Pass notifications on to channels, watchers and observers."""
        for topic in topics:
            if topic == RESTARTED:
                self._compare_soon()
                for observe_restart in self._on_restart:
                    observe_restart()
            if channel := self._channels.get(topic):
                channel.hint()
            if event := self._topics.get(topic):
                event.set()
        for observe in self._observers:
            observe(topics)

    def observe(self, observer: Callable[[Sequence[str]], None]) -> None:
        """Call an observer for all notifications from now on. Task subscribers do not need this."""
        self._observers.append(observer)

    def unobserve(self, observer: Callable[[Sequence[str]], None]) -> None:
        """Stop calling an observer."""
        self._observers = [one for one in self._observers if one != observer]

    def observe_restarts(self, observer: Callable[[], None]) -> None:
        """Call an observer only when the store may have gone back in time."""
        self._on_restart.append(observer)

    def unobserve_restarts(self, observer: Callable[[], None]) -> None:
        """Stop calling a restart observer."""
        self._on_restart = [one for one in self._on_restart if one != observer]

    def watch(self, event: asyncio.Event, *topics: str) -> None:
        """Set `event` at every notification about one of the topics."""
        self._topics.update(dict.fromkeys(topics, event))

    def unwatch(self, topic: str, event: asyncio.Event) -> None:
        """Stop setting `event` for a topic, unless another event has replaced it."""
        if self._topics.get(topic) is event:
            del self._topics[topic]

    def follow(self, tenant: str, task_id: str, after: int) -> Subscriber:
        """Subscribe to a task. No later event is missed."""
        topic = tasks.task_topic(tenant, task_id)
        channel = self._channels.get(topic)
        if channel is None:
            channel = self._channels[topic] = LogChannel(tenant, task_id, after)
        channel.followers += 1
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(POLL_SECONDS, self._look)
        return Subscriber(self, channel, after)

    def is_followed(self, tenant: str, task_id: str) -> bool:
        """Whether the task has a subscriber in this process."""
        return tasks.task_topic(tenant, task_id) in self._channels

    def feed(self, tenant: str, task_id: str, events: Sequence[Event]) -> None:
        """Pass on events that an execution in this process has committed."""
        if channel := self._channels.get(tasks.task_topic(tenant, task_id)):
            channel.is_fed = True
            channel.feed(events)

    def starve(self, tenant: str, task_id: str) -> None:
        """Note that no execution in this process writes to the task."""
        if channel := self._channels.get(tasks.task_topic(tenant, task_id)):
            channel.is_fed = False
            channel.hint()

    def rewind(self, tenant: str, task_id: str) -> None:
        """Restart all subscribers of a task from the current task, because its log went back in time."""
        if channel := self._channels.get(tasks.task_topic(tenant, task_id)):
            channel.rewind()

    def leave(self, channel: LogChannel) -> None:
        """Remove a subscriber, and with the last one its channel."""
        channel.followers -= 1
        if not channel.followers:
            self._channels.pop(tasks.task_topic(channel.tenant, channel.task_id), None)

    async def read(self, channel: LogChannel, after: int) -> list[Event]:
        """Read the events after a sequence number. Concurrent readers share one query."""
        async with channel.reading:
            known = channel.after(after)
            if known or (known is not None and not channel.is_stale and after >= channel.known):
                return known
            channel.is_stale = False
            task_store = self._opened()
            events = await task_store.events(channel.tenant, channel.task_id, after)
            is_full, follows_on = len(events) == tasks.READ_PAGE, bool(events) and events[0].seq == after + 1
            if not follows_on:
                events = await self._whole(task_store, channel, after)
            has_more = is_full or channel.is_stale  # a notification arrived during the read
            if follows_on:
                channel.feed(events)
            else:
                channel.known = events[-1].seq if events else after
            channel.is_stale = has_more
            return events

    async def start(self, channel: LogChannel) -> list[Event]:
        """Return the current task as one event."""
        task_store = self._opened()
        stored = await task_store.store.read(tasks.read_task, channel.tenant, channel.task_id)
        if stored is None:
            channel.is_stale = True  # for its other subscribers
            raise TaskNotFound(metadata={"taskId": channel.task_id})
        task = await task_store.unpack(channel.tenant, stored)
        channel.known = max(channel.known, stored.last_seq)
        return [Event(seq=stored.last_seq, body=task, at=task.status.timestamp)]

    def _compare_soon(self) -> None:
        """Compare all logs with the last known events, as soon as the store can be read."""
        for channel in self._channels.values():
            if channel.latest is not None:
                self._suspects.setdefault(channel, channel.latest)
        if self._next_look is not None:
            self._next_look.cancel()
            self._look()

    def _look(self) -> None:
        """Poll without a notification, while there are subscribers."""
        self._next_look = None
        if self._channels:
            self._looking = asyncio.create_task(self._look_for_all(), name="look")

    async def _look_for_all(self) -> None:
        """Update every awaited channel with the length of its log, regardless of notifications."""
        awaited = [channel for channel in self._channels.values() if channel.is_awaited]
        try:
            with suppress(StoreUnavailable):  # streams continue when the database is available again
                await self._compare()
                for begin in range(0, len(awaited), LOOKED_AT):
                    await self._look_for(awaited[begin : begin + LOOKED_AT])
        finally:
            self._next_look = asyncio.get_running_loop().call_later(POLL_SECONDS, self._look)

    async def _compare(self) -> None:
        """Rewind channels whose log went back in time and may have grown again: the last known event differs."""
        while self._suspects:
            channel, latest = next(iter(self._suspects.items()))
            events = await self._opened().events(channel.tenant, channel.task_id, latest.seq - 1, 1)
            if [(event.seq, event.at) for event in events] != [(latest.seq, latest.at)]:
                channel.rewind()
            self._suspects.pop(channel, None)

    async def _look_for(self, channels: Sequence[LogChannel]) -> None:
        wanted = {channel.task_id: channel.tenant for channel in channels}
        known = [channel.known for channel in channels]
        lengths = await self._opened().store.read(tasks.log_lengths, wanted)
        for channel, before in zip(channels, known, strict=True):
            channel.look(lengths.get(channel.task_id), before)

    async def _whole(self, task_store: TaskStore, channel: LogChannel, after: int) -> list[Event]:
        """Return the task as one event if its log was compacted. Raises TaskNotFound if it is gone."""
        stored = await task_store.store.read(tasks.read_task, channel.tenant, channel.task_id)
        if stored is None:
            channel.is_stale = True  # for its other subscribers
            raise TaskNotFound(metadata={"taskId": channel.task_id})
        if stored.last_seq <= after or stored.min_seq <= after + 1:
            return []
        task = await task_store.unpack(channel.tenant, stored)
        return [Event(seq=stored.last_seq, body=task, at=task.status.timestamp)]

    def _opened(self) -> TaskStore:
        if self._task_store is None:
            raise StoreUnavailable("The hub has no store")
        return self._task_store
