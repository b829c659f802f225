"""The live feed: changes of tasks, deliveries and chats, sent to open pages.

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
from accord.console.feed_subscribers import FeedEvent, FeedSubscriber, FeedSubscribers, frame
from accord.console.task_rows import TaskVisibility, chat_row, task_row, updated_row
from accord.console.views import TaskRow
from accord.http.sse import KEEP_ALIVE_SECONDS
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

TOPIC, TOLD = "task:", "task"
TRIED, DELIVERY = "tried:", "delivery"
CHAT = "chat"

SEES_ALL = VisibleTasks(owner="", sees_all=True)

log = logging.getLogger("accord.feed")


class FeedNotice(NamedTuple):
    """An event that is not about a task, for one tenant, or for all with a null `tenant`."""

    tenant: str | None
    told: FeedEvent


class StoredChanges(NamedTuple):
    """Changes of tasks from the store and the feed number at the read. `rows` is null for too many changes."""

    number: int
    rows: list[TaskRow] | None


class Feed:
    """The numbered events of a server, for all tenants."""

    def __init__(self, host: Host, sight: TaskVisibility, now_ms: Callable[[], int]) -> None:
        """Create a feed of the tasks of `host`."""
        self._host = host
        self._sight = sight
        self._now_ms = now_ms
        self._mark = random.randrange(STEP)
        self._last = 0
        self._begun = self.seq
        self._audiences: dict[str, FeedSubscribers] = {}
        self._others: deque[FeedNotice] = deque()
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

    def tell(self, kind: str, body: Any, *, tenant: str | None, owner: str | None, agent: str = "") -> None:
        """Send an event that is not about a task to subscribers who may see the owner's data or the agent.

        Without an owner it is for all callers who may see the agent. Without a tenant it is for all tenants.
        """
        number = self._next()
        told = FeedEvent(number, agent, owner, frame(number, kind, body))
        self._others.append(FeedNotice(tenant, told))
        while len(self._others) > MISSED:
            self._others_from = self._others.popleft().told.number
        for audience in self._audiences.values():
            if tenant in (None, audience.tenant):
                audience.tell([told], is_kept=False)

    def start(self) -> None:
        """Start observing notifications."""
        self._host.engine.hub.observe(self.heard)
        self._task = asyncio.create_task(self._run(), name="feed")

    async def stop(self) -> None:
        """Stop observing, and end all streams."""
        self._host.engine.hub.unobserve(self.heard)
        for audience in self._audiences.values():
            audience.end()
        tasks = [*self._rereading.values(), *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def heard(self, topics: Sequence[str]) -> None:
        """Mark tasks, webhooks and chats named by notifications as changed."""
        if not self._audiences:
            return
        for topic in topics:
            if topic.startswith(TOPIC):
                tenant, _, task_id = topic[len(TOPIC) :].rpartition(":")
                if audience := self._audiences.get(tenant):
                    audience.dirty[task_id] = None
                    self._wake.set()
            elif topic.startswith(TRIED):
                task_id, _, tenant = topic[len(TRIED) :].partition(":")
                if audience := self._audiences.get(tenant):
                    audience.tried[task_id] = None
                    self._wake.set()
            elif topic.startswith(chats.TOPIC):
                tenant, chat_id = chats.chat_of_topic(topic)
                if audience := self._audiences.get(tenant):
                    audience.chats[chat_id] = None
                    self._wake.set()

    # --- subscribing ----------------------------------------------------------------------------------------------

    async def stream(self, caller: Caller, after: int | None, topics: frozenset[str]) -> AsyncIterator[bytes]:
        """Yield the events that a caller may see after a number, for up to `LIFE_SECONDS`."""
        audience = self._audience(caller.tenant)
        listener = FeedSubscriber(self._sight.seen(caller), topics)
        audience.join(listener)
        # From here on nothing is missed: earlier events are remembered or in the store.
        begin = self.seq
        seen_to = begin if after is None else after
        remembered = [] if after is None else self._remembered(audience, after)
        loop = asyncio.get_running_loop()
        until = loop.time() + LIFE_SECONDS
        try:
            hello = {"seq": begin, "now": timestamp_ms(self._now_ms())}
            yield frame(seen_to, "hello", hello)
            if after is not None:
                yield await self._missed(audience, listener.seen, after, remembered, begin)
            if topics:
                yield await self._logs(caller.tenant, listener, begin)
            while (piece := await listener.take(KEEP_ALIVE_SECONDS)) is not None:
                yield piece or KEEP_ALIVE
                if loop.time() > until:
                    return
        except StoreUnavailable as error:  # a client that reconnects continues from here
            log.warning("console.sent_away", extra={"reason": str(error)})
        finally:
            audience.leave(listener)
            audience.left_at = loop.time()

    def _audience(self, tenant: str) -> FeedSubscribers:
        found = self._audiences.get(tenant)
        if found is None:
            found = self._audiences[tenant] = FeedSubscribers(tenant, self.seq, self._now_ms())
            self._wake.set()
        return found

    def _remembered(self, audience: FeedSubscribers, after: int) -> list[FeedEvent] | None:
        """Return the task events after a number, or None if they are no longer remembered."""
        is_own = after % STEP == self._mark and self._begun <= after <= self._last
        begin = after if is_own else after - (SLACK_MS << 10)
        return audience.told_after(begin) if begin >= audience.covered else None

    async def _missed(
        self, audience: FeedSubscribers, seen: VisibleTasks, after: int, remembered: list[FeedEvent] | None, begin: int
    ) -> bytes:
        """Return the events that a subscriber missed, or a reset if there were too many."""
        others = [one.told for one in self._others if one.tenant in (None, audience.tenant)]
        told = await self._reread(audience, seen, after) if remembered is None else remembered
        told = None if told is None else [one for one in told if one.is_for(seen)]
        if told is None or len(told) > MISSED:
            return frame(begin, "reset", {})
        told += [one for one in others if after < one.number <= begin and one.is_for(seen)]
        told.sort(key=attrgetter("number"))
        frames = b"".join(one.frame for one in told) + b"id: %d\n\n" % begin
        # Events that are not about tasks are not in the store.
        return frames if after >= self._others_from else frames + frame(begin, "reset", {})

    async def _reread(self, audience: FeedSubscribers, seen: VisibleTasks, after: int) -> list[FeedEvent] | None:
        """Return the task events since about a number, or None if there were too many.

        Events from the store all have that number: a client that receives only some of them requests all of them again.
        """
        since = (after >> 10) - SLACK_MS
        key = (audience.tenant, seen, since - since % 1000)
        reading = self._rereading.get(key)
        if reading is None:
            reading = self._rereading[key] = asyncio.create_task(self._read(*key), name="feed reads again")
            asyncio.get_running_loop().call_later(SHARED_SECONDS, self._rereading.pop, key, None)
        # Others wait for the same read: a client that leaves must not cancel it.
        number, rows = await asyncio.shield(reading)
        if rows is None:
            return None
        found = [FeedEvent(after, row.agent, row.owner, frame(after, TOLD, row)) for row in rows]
        return found + audience.told_after(number)

    async def _read(self, tenant: str, seen: VisibleTasks, since: int) -> StoredChanges:
        number, store = self.seq, self._host.engine.store
        ids = await queries.recently_changed_tasks(store, tenant, seen, since, MISSED + 1)
        if len(ids) > MISSED:
            return StoredChanges(number, None)
        found = await queries.task_changes_since(store, tenant, {}, list(ids), since)
        return StoredChanges(number, sorted(self._rows({}, found, since), key=attrgetter("updated_at")))

    async def _logs(self, tenant: str, listener: FeedSubscriber, begin: int) -> bytes:
        """Return the last sequence numbers of the tasks in a subscriber's topics."""
        rows = await queries.task_rows(self._host.engine.store, tenant, sorted(listener.topics))
        seen = [row for row in rows if listener.seen.sees(row.agent, row.owner)]
        return b"".join(frame(begin, "log", {"taskId": row.id, "seq": row.seq}) for row in seen)

    # --- sending --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(POLL_SECONDS if self._audiences else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(FLUSH_SECONDS)
            self._wake.clear()
            is_due = loop.time() >= self._polled_at + POLL_SECONDS
            for audience in list(self._audiences.values()):
                await self._see_to(audience, looks=is_due)
            if is_due:
                self._polled_at = loop.time()
                self._forget(loop.time())

    async def _see_to(self, audience: FeedSubscribers, *, looks: bool) -> None:
        """Send the changes of one tenant. Changes that cannot be read now are read later."""
        dirty: list[str] = []
        try:
            if looks:
                await self._look(audience)
            while audience.dirty:
                dirty = list(audience.dirty)[:AT_ONCE]
                for task_id in dirty:
                    del audience.dirty[task_id]
                await self._flush(audience, dirty)
            await self._tell_tried(audience)
            await self._tell_chats(audience)
        except Exception as error:
            audience.dirty.update(dict.fromkeys(dirty))
            if isinstance(error, StoreUnavailable):
                log.warning("console.news_unreadable", extra={"reason": str(error)})
            else:
                log.exception("console.news_not_told")

    async def _look(self, audience: FeedSubscribers) -> None:
        """Poll for changes whose notifications were lost."""
        now = self._now_ms()
        found = await queries.recently_changed_tasks(
            self._host.engine.store, audience.tenant, SEES_ALL, audience.looked - SLACK_MS, POLLED
        )
        audience.looked = now
        if len(found) == POLLED:
            number = self._next()
            audience.tell([FeedEvent(number, "", None, frame(number, "reset", {}))])
        known = audience.known(found)
        audience.dirty.update({id: None for id, seq in found.items() if seq > known.get(id, -1)})

    async def _flush(self, audience: FeedSubscribers, dirty: Sequence[str]) -> None:
        """Read the changes of tasks, and send them."""
        known, since = audience.known(dirty), audience.since - SLACK_MS
        unknown = [task_id for task_id in dirty if task_id not in known]
        news = await queries.task_changes_since(self._host.engine.store, audience.tenant, known, unknown, since)
        rows = {id: row for id in known if (row := audience.row(id)) is not None}
        told = self._rows(rows, news, since)
        audience.tell([self._numbered(row) for row in told])
        for task_id, seq in news.last.items():
            row = rows[task_id]
            if seq > known.get(task_id, -1):
                audience.grown(row, partial(self._log, task_id, seq))
            audience.learn(row, seq)

    async def _tell_tried(self, audience: FeedSubscribers) -> None:
        """Send events for called webhooks. A call during the read sends another event."""
        tried = list(audience.tried)[:AT_ONCE]
        for task in await queries.task_rows(self._host.engine.store, audience.tenant, tried):
            self.tell(DELIVERY, {"taskId": task.id}, tenant=audience.tenant, owner=task.owner, agent=task.agent)
        for task_id in tried:
            del audience.tried[task_id]

    async def _tell_chats(self, audience: FeedSubscribers) -> None:
        """Send events for changed chats."""
        changed = list(audience.chats)[:AT_ONCE]
        for chat in await chats.rows(self._host.engine.store, audience.tenant, changed):
            self.tell(CHAT, chat_row(chat), tenant=audience.tenant, owner=chat.owner)
        for chat_id in changed:
            del audience.chats[chat_id]

    def _rows(self, rows: dict[str, TaskRow], news: TaskChanges, since: int) -> list[TaskRow]:
        """Return a row for each new status of tasks, in order, and update `rows`.

        A task that was unknown and has only been created yields its current row.
        """
        rows |= {found.id: task_row(found, self._sight) for found in news.fresh}
        told: dict[str, None] = {}
        found: list[TaskRow] = []
        for change in news.changes:
            row = rows[change.task_id] = updated_row(rows[change.task_id], change)
            found.append(row)
            told[row.id] = None
        return found + [rows[one.id] for one in news.fresh if one.id not in told and one.updated_at >= since]

    def _numbered(self, row: TaskRow) -> FeedEvent:
        number = self._next()
        return FeedEvent(number, row.agent, row.owner, frame(number, TOLD, row))

    def _log(self, task_id: str, seq: int) -> bytes:
        return frame(self._next(), "log", {"taskId": task_id, "seq": seq})

    def _forget(self, now: float) -> None:
        """Drop tenants that have had no subscribers for `IDLE_SECONDS`."""
        for tenant, audience in list(self._audiences.items()):
            if not audience and now > audience.left_at + IDLE_SECONDS:
                del self._audiences[tenant]
