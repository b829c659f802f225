"""`GET /api/events`: changes of tasks, deliveries and chats, sent to open pages.

It sends rows, not content. A notification names the task that changed, and the change is read from the store. A page
that reconnects with the number of its last event receives the events it missed. Without subscribers it does nothing.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from accord.a2a import Caller
from accord.api import Host, StoreUnavailable, chats, queries
from accord.api.queries import TaskChanges, VisibleTasks
from accord.console import EVENTS
from accord.console.feed_subscribers import FeedEvent, FeedSubscriber, FeedSubscribers, frame
from accord.console.routing import ApiReply, ApiRequest, ApiSection, route
from accord.console.views import TaskRow, TaskVisibility, chat_row, task_row, updated_row
from accord.errors import InvalidParams
from accord.http.asgi import Headers
from accord.http.sse import KEEP_ALIVE_SECONDS, STREAM_HEADERS, last_event_id
from accord.model.base import timestamp_ms
from accord.protocol.sse import KEEP_ALIVE

FLUSH_SECONDS = 0.1
"""Seconds during which changes are batched: too short for a person to notice, and one write for all."""

POLL_SECONDS = 2.0
"""Maximum delay in seconds if every notification is lost."""

SLACK_MS = 5000
"""Maximum clock difference between nodes, plus the time from a status to its commit, in milliseconds."""

MISSED = 1000
"""Maximum number of replayed events. A page that missed more reloads its lists."""

POLLED = 20_000
"""Maximum number of tasks that a poll reads. If more changed, all pages reload their lists."""

SHARED_SECONDS = 1.0
"""Seconds for which a replay is shared: after a restart all pages reconnect at once."""

AT_ONCE = 500
"""Tasks read in one query."""

IDLE_SECONDS = 60.0
"""Seconds for which a tenant is watched after its last subscriber left: most reconnect."""

LIFE_SECONDS = 15 * 60.0
"""Maximum duration of a stream. A page that reconnects is authenticated again."""

STEP = 64
"""Step between the numbers of one process, so that it recognizes its own: other processes have other clocks."""

TOPIC, TRIED = "task:", "tried:"
"""Prefixes of notifications about a task and about a delivery attempt."""

MAX_TOPICS = 50
"""Tasks whose log growth one page may subscribe to."""

HEADERS: Headers = [(name, value) for name, value in STREAM_HEADERS if name != b"cache-control"]
"""Stream headers, without the one that every console response has."""

SEES_ALL = VisibleTasks(owner="", sees_all=True)

log = logging.getLogger("accord.feed")


class StoredChanges(NamedTuple):
    """Changes of tasks from the store and the feed number at the read. `rows` is null for too many changes."""

    number: int
    rows: list[TaskRow] | None


class Feed:
    """The numbered events of a server, for all tenants."""

    def __init__(self, host: Host, visibility: TaskVisibility, now_ms: Callable[[], int]) -> None:
        """Create a feed of the tasks of `host`."""
        self._hub, self._store = host.hub, host.store
        self._visibility = visibility
        self._now_ms = now_ms
        self._mark = random.randrange(STEP)
        self._last = 0
        self._begun = self.seq
        self._tenants: dict[str, FeedSubscribers] = {}
        self._others: deque[tuple[str | None, FeedEvent]] = deque()
        self._others_from = self._begun
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._polled_at = 0.0
        self._rereading: dict[tuple[str, VisibleTasks, int], asyncio.Task[StoredChanges]] = {}

    @property
    def seq(self) -> int:
        """The number of the last event. Data read afterwards includes that event."""
        self._last = max(self._last, (self._now_ms() << 10) + self._mark)
        return self._last

    def _next(self) -> int:
        self._last = max(self._last + STEP, (self._now_ms() << 10) + self._mark)
        return self._last

    def send(self, kind: str, body: Any, *, tenant: str | None, owner: str | None, agent: str = "") -> None:
        """Send an event that is not about a task to subscribers who may see the owner's data or the agent.

        Without an owner it is for all callers who may see the agent. Without a tenant it is for all tenants.
        """
        number = self._next()
        event = FeedEvent(number, agent, owner, frame(number, kind, body))
        self._others.append((tenant, event))
        while len(self._others) > MISSED:
            self._others_from = self._others.popleft()[1].number
        for subscribers in self._tenants.values():
            if tenant in (None, subscribers.tenant):
                subscribers.send([event], is_kept=False)

    def start(self) -> None:
        """Start observing notifications."""
        self._hub.observe(self.notify)
        self._task = asyncio.create_task(self._run(), name="feed")

    async def stop(self) -> None:
        """Stop observing, and end all streams."""
        self._hub.unobserve(self.notify)
        for subscribers in self._tenants.values():
            subscribers.end()
        tasks = [*self._rereading.values(), *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def notify(self, topics: Sequence[str]) -> None:
        """Mark tasks, webhooks and chats named by notifications as changed."""
        if not self._tenants:
            return
        for topic in topics:
            if topic.startswith(TOPIC):
                tenant, _, task_id = topic[len(TOPIC) :].rpartition(":")
                self._mark_changed(tenant, lambda subscribers: subscribers.dirty, task_id)
            elif topic.startswith(TRIED):
                task_id, _, tenant = topic[len(TRIED) :].partition(":")
                self._mark_changed(tenant, lambda subscribers: subscribers.tried, task_id)
            elif topic.startswith(chats.TOPIC):
                tenant, chat_id = chats.chat_of_topic(topic)
                self._mark_changed(tenant, lambda subscribers: subscribers.chats, chat_id)

    def _mark_changed(self, tenant: str, changes: Callable[[FeedSubscribers], dict[str, None]], id: str) -> None:
        if subscribers := self._tenants.get(tenant):
            changes(subscribers)[id] = None
            self._wake.set()

    # --- subscribing ----------------------------------------------------------------------------------------------

    async def stream(self, caller: Caller, after: int | None, topics: frozenset[str]) -> AsyncIterator[bytes]:
        """Yield the events that a caller may see after a number, for up to `LIFE_SECONDS`."""
        subscribers = self._of_tenant(caller.tenant)
        subscriber = FeedSubscriber(self._visibility.visible_tasks(caller), topics)
        subscribers.join(subscriber)
        # From here on nothing is missed: earlier events are remembered or in the store.
        begin = self.seq
        seen_to = begin if after is None else after
        remembered = [] if after is None else self._remembered(subscribers, after)
        loop = asyncio.get_running_loop()
        until = loop.time() + LIFE_SECONDS
        try:
            hello = {"seq": begin, "now": timestamp_ms(self._now_ms())}
            yield frame(seen_to, "hello", hello)
            if after is not None:
                yield await self._missed(subscribers, subscriber.seen, after, remembered, begin)
            if topics:
                yield await self._log_frames(caller.tenant, subscriber, begin)
            while (piece := await subscriber.take(KEEP_ALIVE_SECONDS)) is not None:
                yield piece or KEEP_ALIVE
                if loop.time() > until:
                    return
        except StoreUnavailable as error:  # a client that reconnects continues from here
            log.warning("console.sent_away", extra={"reason": str(error)})
        finally:
            subscribers.leave(subscriber)
            subscribers.left_at = loop.time()

    def _of_tenant(self, tenant: str) -> FeedSubscribers:
        subscribers = self._tenants.get(tenant)
        if subscribers is None:
            subscribers = self._tenants[tenant] = FeedSubscribers(tenant, self.seq, self._now_ms())
            self._wake.set()
        return subscribers

    def _remembered(self, subscribers: FeedSubscribers, after: int) -> list[FeedEvent] | None:
        """Return the task events after a number, or None if they are no longer remembered."""
        is_own = after % STEP == self._mark and self._begun <= after <= self._last
        begin = after if is_own else after - (SLACK_MS << 10)
        return subscribers.events_after(begin) if begin >= subscribers.covered else None

    async def _missed(
        self,
        subscribers: FeedSubscribers,
        seen: VisibleTasks,
        after: int,
        remembered: list[FeedEvent] | None,
        begin: int,
    ) -> bytes:
        """Return the events that a subscriber missed, or a reset if there were too many."""
        others = [event for tenant, event in self._others if tenant in (None, subscribers.tenant)]
        read = await self._reread(subscribers, seen, after) if remembered is None else remembered
        events = None if read is None else [event for event in read if event.is_for(seen)]
        if events is None or len(events) > MISSED:
            return frame(begin, "reset", {})
        events += [event for event in others if after < event.number <= begin and event.is_for(seen)]
        events.sort(key=attrgetter("number"))
        frames = b"".join(event.frame for event in events) + b"id: %d\n\n" % begin
        # Events that are not about tasks are not in the store.
        return frames if after >= self._others_from else frames + frame(begin, "reset", {})

    async def _reread(self, subscribers: FeedSubscribers, seen: VisibleTasks, after: int) -> list[FeedEvent] | None:
        """Return the task events since about a number, or None if there were too many.

        Events from the store all have that number: a client that receives only some of them requests all of them again.
        """
        since = (after >> 10) - SLACK_MS
        key = (subscribers.tenant, seen, since - since % 1000)
        reading = self._rereading.get(key)
        if reading is None:
            reading = self._rereading[key] = asyncio.create_task(self._read(*key), name="feed reads again")
            asyncio.get_running_loop().call_later(SHARED_SECONDS, self._rereading.pop, key, None)
        # Others wait for the same read: a client that leaves must not cancel it.
        number, rows = await asyncio.shield(reading)
        if rows is None:
            return None
        events = [FeedEvent(after, row.agent, row.owner, frame(after, "task", row)) for row in rows]
        return events + subscribers.events_after(number)

    async def _read(self, tenant: str, seen: VisibleTasks, since: int) -> StoredChanges:
        number, store = self.seq, self._store
        ids = await queries.recently_changed_tasks(store, tenant, seen, since, MISSED + 1)
        if len(ids) > MISSED:
            return StoredChanges(number, None)
        changes = await queries.task_changes_since(store, tenant, {}, list(ids), since)
        return StoredChanges(number, sorted(self._rows({}, changes, since), key=attrgetter("updated_at")))

    async def _log_frames(self, tenant: str, subscriber: FeedSubscriber, begin: int) -> bytes:
        """Return the last sequence numbers of the tasks in a subscriber's topics."""
        rows = await queries.task_rows(self._store, tenant, sorted(subscriber.topics))
        visible_rows = [row for row in rows if subscriber.seen.sees(row.agent, row.owner)]
        return b"".join(frame(begin, "log", {"taskId": row.id, "seq": row.seq}) for row in visible_rows)

    # --- sending --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(POLL_SECONDS if self._tenants else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(FLUSH_SECONDS)
            self._wake.clear()
            is_due = loop.time() >= self._polled_at + POLL_SECONDS
            for subscribers in list(self._tenants.values()):
                await self._update(subscribers, polls=is_due)
            if is_due:
                self._polled_at = loop.time()
                self._drop_idle(loop.time())

    async def _update(self, subscribers: FeedSubscribers, *, polls: bool) -> None:
        """Send the changes of one tenant. Changes that cannot be read now are read later."""
        dirty: list[str] = []
        try:
            if polls:
                await self._poll(subscribers)
            while subscribers.dirty:
                dirty = list(subscribers.dirty)[:AT_ONCE]
                for task_id in dirty:
                    del subscribers.dirty[task_id]
                await self._flush(subscribers, dirty)
            await self._send_tried(subscribers)
            await self._send_chats(subscribers)
        except Exception as error:
            subscribers.dirty.update(dict.fromkeys(dirty))
            if isinstance(error, StoreUnavailable):
                log.warning("console.news_unreadable", extra={"reason": str(error)})
            else:
                log.exception("console.news_not_told")

    async def _poll(self, subscribers: FeedSubscribers) -> None:
        """Poll for changes whose notifications were lost."""
        now = self._now_ms()
        changed = await queries.recently_changed_tasks(
            self._store, subscribers.tenant, SEES_ALL, subscribers.polled_to - SLACK_MS, POLLED
        )
        subscribers.polled_to = now
        if len(changed) == POLLED:
            number = self._next()
            subscribers.send([FeedEvent(number, "", None, frame(number, "reset", {}))])
        known = subscribers.known(changed)
        subscribers.dirty.update({id: None for id, seq in changed.items() if seq > known.get(id, -1)})

    async def _flush(self, subscribers: FeedSubscribers, dirty: Sequence[str]) -> None:
        """Read the changes of tasks, and send them."""
        known, since = subscribers.known(dirty), subscribers.since - SLACK_MS
        unknown = [task_id for task_id in dirty if task_id not in known]
        changes = await queries.task_changes_since(self._store, subscribers.tenant, known, unknown, since)
        rows = {id: row for id in known if (row := subscribers.row(id)) is not None}
        subscribers.send([self._task_event(row) for row in self._rows(rows, changes, since)])
        for task_id, seq in changes.last.items():
            row = rows[task_id]
            if seq > known.get(task_id, -1):
                subscribers.send_growth(row, partial(self._log_frame, task_id, seq))
            subscribers.remember(row, seq)

    async def _send_tried(self, subscribers: FeedSubscribers) -> None:
        """Send events for called webhooks. A call during the read sends another event."""
        tried = list(subscribers.tried)[:AT_ONCE]
        for task in await queries.task_rows(self._store, subscribers.tenant, tried):
            self.send("delivery", {"taskId": task.id}, tenant=subscribers.tenant, owner=task.owner, agent=task.agent)
        for task_id in tried:
            del subscribers.tried[task_id]

    async def _send_chats(self, subscribers: FeedSubscribers) -> None:
        """Send events for changed chats."""
        changed = list(subscribers.chats)[:AT_ONCE]
        for chat in await chats.rows(self._store, subscribers.tenant, changed):
            self.send("chat", chat_row(chat), tenant=subscribers.tenant, owner=chat.owner)
        for chat_id in changed:
            del subscribers.chats[chat_id]

    def _rows(self, rows: dict[str, TaskRow], changes: TaskChanges, since: int) -> list[TaskRow]:
        """Return a row for each new status of tasks, in order, and update `rows`.

        A task that was unknown and has only been created yields its current row.
        """
        rows |= {task.id: task_row(task, self._visibility) for task in changes.fresh}
        updated: list[TaskRow] = []
        for change in changes.changes:
            row = rows[change.task_id] = updated_row(rows[change.task_id], change)
            updated.append(row)
        ids = {row.id for row in updated}
        return updated + [rows[task.id] for task in changes.fresh if task.id not in ids and task.updated_at >= since]

    def _task_event(self, row: TaskRow) -> FeedEvent:
        number = self._next()
        return FeedEvent(number, row.agent, row.owner, frame(number, "task", row))

    def _log_frame(self, task_id: str, seq: int) -> bytes:
        return frame(self._next(), "log", {"taskId": task_id, "seq": seq})

    def _drop_idle(self, now: float) -> None:
        """Drop tenants that have had no subscribers for `IDLE_SECONDS`."""
        for tenant, subscribers in list(self._tenants.items()):
            if not subscribers and now > subscribers.left_at + IDLE_SECONDS:
                del self._tenants[tenant]


class EventsApi(ApiSection):
    """The live feed over HTTP."""

    def __init__(self, feed: Feed) -> None:
        """Stream the events of `feed`."""
        self._feed = feed

    @route("GET", EVENTS)
    async def subscribe(self, request: ApiRequest) -> ApiReply:
        """Stream the live feed, after the event in `Last-Event-ID` or `after`, with log growth of the tasks in
        `topics`.
        """
        topics = [topic for value in request.query.get("topics", []) for topic in value.split(",") if topic]
        if len(topics) > MAX_TOPICS or not all(topic.startswith(TOPIC) and topic.isprintable() for topic in topics):
            raise InvalidParams(f"Topics are up to {MAX_TOPICS} tasks, as task:ID,task:ID")
        task_ids = frozenset(topic.removeprefix(TOPIC) for topic in topics)
        stream = self._feed.stream(request.caller, last_event_id(request.scope), task_ids)
        return ApiReply(stream=stream, headers=HEADERS)
