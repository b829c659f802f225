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
"""Events that a channel keeps for those who follow a little behind."""

POLL_SECONDS = 1.0
"""How late news may be when every hint is lost."""

LOOKED_AT = 1000
"""Tasks that one reading without a hint asks about: a few milliseconds of the database's time."""

Stops = Callable[[Event], bool]


def at_end(event: Event) -> bool:
    """Whether a subscription is over: the task has ended."""
    return _state_in(event, lifecycle.ENDED)


def at_answer(event: Event) -> bool:
    """Whether a stream that a message began is over: the task has ended, or asks.

    It stays open while credentials are awaited, which may arrive out of band (A2A 1.0, 7.6.1).
    """
    return _state_in(event, lifecycle.ENDED | {TaskState.INPUT_REQUIRED})


def at_turn_end(event: Event) -> bool:
    """Whether nothing more happens without the caller."""
    return _state_in(event, lifecycle.ENDED | lifecycle.INTERRUPTED)


def _state_in(event: Event, states: frozenset[TaskState]) -> bool:
    body = event.body
    return isinstance(body, StatusUpdate | Task) and body.status.state in states


class LogChannel:
    """What is known of one task's log to those who follow it."""

    def __init__(self, tenant: str, task_id: str, known: int) -> None:
        """Know that the log has had so many events."""
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
        """The last event's number, once one is known."""
        return self._events[-1].seq if self._events else None

    def feed(self, events: Sequence[Event]) -> None:
        """Take committed events; those that do not follow on what is known are left to reading."""
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
        """Forget the log, which is no longer what it was: everyone who follows it starts from the task."""
        self._events.clear()
        self.known = 0
        self.rewinds += 1
        self.is_stale = True
        self.wake()

    def hint(self) -> None:
        """Note that the log may have grown."""
        if not self.is_fed:
            self.is_stale = True
            self.wake()

    def after(self, seq: int) -> list[Event] | None:
        """Return the known events after a number, or None if the memory does not reach back so far."""
        last = self.last
        if last is None or last <= seq:
            return []
        missing = last - seq
        if missing > len(self._events):
            return None
        return list(self._events)[-missing:] if missing < len(self._events) else list(self._events)

    def wake(self) -> None:
        """Let everyone who waits look again."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def latest(self) -> Event | None:
        """The last event, once one is known."""
        return self._events[-1] if self._events else None

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits for more."""
        return bool(self._waiting)

    def look(self, length: int | None, known: int) -> None:
        """Take note of how long the log is, of which so many events were known when it was read.

        None if the task is gone; its readers get an error.
        """
        if length is not None and length < known:
            self.rewind()
        elif self.is_stale or length is None or length > self.known:
            self.is_stale = True
            self.wake()

    async def changed(self) -> None:
        """Wait until there may be more."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)


class Subscriber:
    """One who follows one task from one event on; enter it before the task can move on."""

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
        self._hub.leave(self._channel)

    async def events(self, stops: Stops) -> AsyncIterator[Event]:
        """Yield every later event once and in order, until one that `stops`; a task that is deleted is TaskNotFound.

        If the store went back in time, the task as it is now comes before the events of its new log.
        """
        channel = self._channel
        while True:
            is_rewound = self._rewinds != channel.rewinds
            batch = None if is_rewound else channel.after(self._after)
            if batch is None or (not batch and self._is_behind()):
                rewinds = channel.rewinds
                try:
                    batch = await (self._hub.start(channel) if is_rewound else self._hub.read(channel, self._after))
                except StoreUnavailable:  # the stream goes on when the database does
                    channel.is_stale = True
                    await channel.changed()
                    continue
                if rewinds != channel.rewinds:
                    continue
                self._rewinds = rewinds
            left = deque(batch)
            was_read = bool(batch)
            del batch
            while left:  # what has been yielded is not held while its reader takes its time
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
    """The channels of one process, and everyone who waits for a topic."""

    def __init__(self) -> None:
        """Know nobody yet."""
        self._archive: TaskStore | None = None
        self._channels: dict[str, LogChannel] = {}
        self._topics: dict[str, asyncio.Event] = {}
        self._observers: list[Callable[[Sequence[str]], None]] = []
        self._on_restart: list[Callable[[], None]] = []
        self._next_look: asyncio.TimerHandle | None = None
        self._suspects: dict[LogChannel, Event] = {}
        self._looking: asyncio.Task[None] | None = None

    def use(self, archive: TaskStore) -> None:
        """Read from an archive, whose store's hints come to `heard`."""
        self._archive = archive

    def heard(self, topics: Sequence[str]) -> None:
        """Pass hints on."""
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
        """Give an observer all hints from now on; whoever follows tasks needs none."""
        self._observers.append(observer)

    def unobserve(self, observer: Callable[[Sequence[str]], None]) -> None:
        """Give it no more."""
        self._observers = [one for one in self._observers if one != observer]

    def observe_restarts(self, observer: Callable[[], None]) -> None:
        """Call an observer when the store may have gone back in time, and at no other hint."""
        self._on_restart.append(observer)

    def unobserve_restarts(self, observer: Callable[[], None]) -> None:
        """Call it no more."""
        self._on_restart = [one for one in self._on_restart if one != observer]

    def watch(self, event: asyncio.Event, *topics: str) -> None:
        """Set `event` at every hint about one of the topics."""
        self._topics.update(dict.fromkeys(topics, event))

    def unwatch(self, topic: str, event: asyncio.Event) -> None:
        """Leave `event` alone at hints about a topic, unless another has taken its place."""
        if self._topics.get(topic) is event:
            del self._topics[topic]

    def follow(self, tenant: str, task_id: str, after: int) -> Subscriber:
        """Begin to follow a task; what happens from now on is not missed."""
        topic = tasks.task_topic(tenant, task_id)
        channel = self._channels.get(topic)
        if channel is None:
            channel = self._channels[topic] = LogChannel(tenant, task_id, after)
        channel.followers += 1
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(POLL_SECONDS, self._look)
        return Subscriber(self, channel, after)

    def is_followed(self, tenant: str, task_id: str) -> bool:
        """Whether anybody of this process follows a task."""
        return tasks.task_topic(tenant, task_id) in self._channels

    def feed(self, tenant: str, task_id: str, events: Sequence[Event]) -> None:
        """Hand over events that a run of this process has committed."""
        if channel := self._channels.get(tasks.task_topic(tenant, task_id)):
            channel.is_fed = True
            channel.feed(events)

    def starve(self, tenant: str, task_id: str) -> None:
        """Note that no run of this process works on the task any more."""
        if channel := self._channels.get(tasks.task_topic(tenant, task_id)):
            channel.is_fed = False
            channel.hint()

    def rewind(self, tenant: str, task_id: str) -> None:
        """Start everyone who follows a task from the task as it is now: its log went back in time."""
        if channel := self._channels.get(tasks.task_topic(tenant, task_id)):
            channel.rewind()

    def leave(self, channel: LogChannel) -> None:
        """Forget a follower, and the channel after the last one."""
        channel.followers -= 1
        if not channel.followers:
            self._channels.pop(tasks.task_topic(channel.tenant, channel.task_id), None)

    async def read(self, channel: LogChannel, after: int) -> list[Event]:
        """Read what lies after a number; whoever wants the same at the same time shares the reading."""
        async with channel.reading:
            known = channel.after(after)
            if known or (known is not None and not channel.is_stale and after >= channel.known):
                return known
            channel.is_stale = False
            archive = self._opened()
            events = await archive.events(channel.tenant, channel.task_id, after)
            is_full, follows_on = len(events) == tasks.READ_PAGE, bool(events) and events[0].seq == after + 1
            if not follows_on:
                events = await self._whole(archive, channel, after)
            has_more = is_full or channel.is_stale  # a hint came while this was read
            if follows_on:
                channel.feed(events)
            else:
                channel.known = events[-1].seq if events else after
            channel.is_stale = has_more
            return events

    async def start(self, channel: LogChannel) -> list[Event]:
        """Return the task as it is now, as one event."""
        archive = self._opened()
        stored = await archive.store.read(tasks.read_task, channel.tenant, channel.task_id)
        if stored is None:
            channel.is_stale = True  # for its other subscribers
            raise TaskNotFound(metadata={"taskId": channel.task_id})
        task = await archive.unpack(channel.tenant, stored)
        channel.known = max(channel.known, stored.last_seq)
        return [Event(seq=stored.last_seq, body=task, at=task.status.timestamp)]

    def _compare_soon(self) -> None:
        """Compare all logs with what is known of them now, once the store can be read."""
        for channel in self._channels.values():
            if channel.latest is not None:
                self._suspects.setdefault(channel, channel.latest)
        if self._next_look is not None:
            self._next_look.cancel()
            self._look()

    def _look(self) -> None:
        """Look without a hint, while anybody follows anything."""
        self._next_look = None
        if self._channels:
            self._looking = asyncio.create_task(self._look_for_all(), name="look")

    async def _look_for_all(self) -> None:
        """Tell every channel that is waited for how long its log is, whatever was hinted."""
        awaited = [channel for channel in self._channels.values() if channel.is_awaited]
        try:
            with suppress(StoreUnavailable):  # streams go on when the database does
                await self._compare()
                for begin in range(0, len(awaited), LOOKED_AT):
                    await self._look_for(awaited[begin : begin + LOOKED_AT])
        finally:
            self._next_look = asyncio.get_running_loop().call_later(POLL_SECONDS, self._look)

    async def _compare(self) -> None:
        """Find the logs that went back in time and may have grown again: the last known event is another one now."""
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

    async def _whole(self, archive: TaskStore, channel: LogChannel, after: int) -> list[Event]:
        """Return the task itself if its log was compacted: it says what the events did. One that is gone ends here."""
        stored = await archive.store.read(tasks.read_task, channel.tenant, channel.task_id)
        if stored is None:
            channel.is_stale = True  # for its other subscribers
            raise TaskNotFound(metadata={"taskId": channel.task_id})
        if stored.last_seq <= after or stored.min_seq <= after + 1:
            return []
        task = await archive.unpack(channel.tenant, stored)
        return [Event(seq=stored.last_seq, body=task, at=task.status.timestamp)]

    def _opened(self) -> TaskStore:
        if self._archive is None:
            raise StoreUnavailable("The hub has no store")
        return self._archive
