"""When the schedules of a document are due, and the runs that begin then.

Every node that serves a document looks at the clock by itself, and says the same message at the same time: the
idempotency of `core.intake` lets one run begin of it, however many nodes there are. A time that came while none of them
ran is made up for, once. How a message becomes a run is the business of whoever gives `begin`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from accord.errors import AccordError
from accord.model import Message, Part, Role
from accord.model.base import timestamp_ms
from accord.storage.commands import schedules
from accord.storage.store import Store, StoreUnavailable
from accord.workflows.beginning import INNER
from accord.workflows.cron import Cron, read_cron
from accord.workflows.document import Schedule

MISSED_MS = 3600 * 1000
"""How old a time that was missed may be for its run to begin after all."""

MAX_SLEEP = 60.0
"""Seconds after which the clock is looked at again: it may have been set, or the machine may have slept."""

RETRY_SECONDS = 5.0

MAX_DAYS = 366 * 9
"""How far ahead is looked: a 29th of February may be eight years away."""

Begin = Callable[[Message], Awaitable[Any]]

log = logging.getLogger("accord.workflows")


# --- when -------------------------------------------------------------------------------------------------------------


def next_after(cron: Cron, zone: ZoneInfo, at: int) -> int | None:
    """Return the first time of a schedule that is later than another, if one comes; times are in milliseconds."""
    first = _day(at, zone) - timedelta(days=1)
    for ahead in range(MAX_DAYS):
        later = [time for time in _times(cron, zone, first + timedelta(days=ahead)) if time > at]
        if later:
            return later[0]
    return None


def latest(cron: Cron, zone: ZoneInfo, since: int, now: int) -> int | None:
    """Return the last time of a schedule after `since` up to now, if there was one."""
    day, before = _day(now, zone) + timedelta(days=1), _day(since, zone)
    while day >= before - timedelta(days=1):
        passed = [time for time in _times(cron, zone, day) if since < time <= now]
        if passed:
            return passed[-1]
        day -= timedelta(days=1)
    return None


def _day(at: int, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(at / 1000, zone).date()


@lru_cache(maxsize=256)
def _times(cron: Cron, zone: ZoneInfo, day: date) -> tuple[int, ...]:
    """Return when a schedule is due on a day of its zone, in order.

    A time that the clocks skip comes as much later, and of one that they show twice the first counts; whatever comes
    every hour comes in both of them.
    """
    by_day, by_weekday = day.day in cron.days, day.isoweekday() % 7 in cron.weekdays
    if day.month not in cron.months or not ((by_day or by_weekday) if cron.is_either else (by_day and by_weekday)):
        return ()
    folds = (0, 1) if len(cron.hours) == 24 else (0,)
    times = {
        datetime(day.year, day.month, day.day, hour, minute, fold=fold, tzinfo=zone).timestamp()
        for hour in cron.hours
        for minute in cron.minutes
        for fold in folds
    }
    return tuple(sorted(round(time * 1000) for time in times))


# --- what begins ------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A schedule, with a name that tells it from the others of its document."""

    name: str
    cron: Cron
    zone: ZoneInfo
    said: Schedule

    def message(self, agent: str, at: int) -> Message:
        """Return what is said to an agent at a time: the same from every node."""
        when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="minutes")
        wish = {"input": self.said.input, "vars": self.said.vars}
        return Message(
            message_id=f"schedule/{agent}/{self.name}/{when}",
            role=Role.USER,
            parts=(Part(data={name: value for name, value in wish.items() if value}),),
            metadata={INNER: True, SCHEDULED: when},
        )


SCHEDULED = "schedule"
"""Metadata key of the time that a run began for."""


def entries_of(said: Sequence[Schedule]) -> list[Entry]:
    """Return the schedules of a document; raises BadCron, and KeyError or ValueError for a zone that is none."""
    found: dict[str, Entry] = {}
    for one in said:
        plain = f"{one.cron} {one.timezone}"
        again = sum(name == plain or name.startswith(f"{plain} #") for name in found)
        name = f"{plain} #{again + 1}" if again else plain
        found[name] = Entry(name, read_cron(one.cron), ZoneInfo(one.timezone), one)
    return list(found.values())


class Timetable:
    """The schedules of one agent on one node."""

    def __init__(
        self,
        agent: str,
        said: Sequence[Schedule],
        store: Store,
        begin: Begin,
        *,
        now_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Begin runs of `agent` when one of its schedules is due."""
        self._agent = agent
        self._entries = entries_of(said)
        self._store = store
        self._begin = begin
        self._now_ms, self._sleep = now_ms, sleep
        self._seen: dict[str, int] = {}

    async def run(self) -> None:
        """Look at the clock until cancelled."""
        while True:
            try:
                seconds = await self.look()
            except StoreUnavailable as error:
                log.warning("schedules wait: %s", error, extra={"agent": self._agent})
                seconds = RETRY_SECONDS
            except Exception:  # the next time may come all the same; what went wrong is in the log
                log.exception("schedules failed", extra={"agent": self._agent})
                seconds = MAX_SLEEP
            await self._sleep(seconds)

    async def look(self) -> float:
        """Begin what is due, and return the seconds until something may be due again."""
        now = self._now_ms()
        if not self._seen:
            names = [entry.name for entry in self._entries]
            self._seen = await self._store.do(schedules.known, self._agent, names, now)
        is_done = all([await self._look_at(entry, now) for entry in self._entries])
        times = [next_after(entry.cron, entry.zone, now) for entry in self._entries]
        waits = [(time - self._now_ms()) / 1000 for time in times if time is not None]
        return max(0.0, min(MAX_SLEEP if is_done else RETRY_SECONDS, *waits))

    async def _look_at(self, entry: Entry, now: int) -> bool:
        """Begin a run if a schedule is due; false if that should be tried again."""
        due = latest(entry.cron, entry.zone, max(self._seen[entry.name], now - MISSED_MS - 1), now)
        if due is None:
            return True
        about = {"agent": self._agent, "schedule": entry.name, "due": timestamp_ms(due)}
        try:
            await self._begin(entry.message(self._agent, due))
        except AccordError as error:
            log.warning("schedule could not begin a run: %s", error, extra=about)
            return False
        log.info("schedule began a run", extra=about)
        await self._store.do(schedules.see, self._agent, entry.name, due)
        self._seen[entry.name] = due
        return True
