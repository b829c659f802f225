"""Schedules: when they are due, in every zone and through changes of the clock; and one run for each time."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.a2a import Caller
from accord.errors import AgentUnavailable
from accord.model import Message, SendConfiguration, SendRequest, Task, TaskFilter, TaskState
from accord.service.host import Host
from accord.storage.store import StoreUnavailable
from accord.workflows.agent import WorkflowAgent
from accord.workflows.document import Schedule
from accord.workflows.source import read_document
from accord.workflows.triggers import MISSED_MS, RETRY_SECONDS, Timetable, entries_of, latest_time, next_time, read_cron
from tests.cases import each
from tests.engine.conftest import Hosting, text

UTC_ZONE, BERLIN = ZoneInfo("UTC"), ZoneInfo("Europe/Berlin")
MINUTE, HOUR = 60_000, 3_600_000


def ms(stated: str) -> int:
    """A time like 2030-01-31T08:00Z."""
    return round(datetime.fromisoformat(stated).timestamp() * 1000)


def times(cron: str, zone: str, since: str, count: int) -> list[str]:
    """The next times of a schedule, in its zone."""
    found, at = [], ms(since)
    for _ in range(count):
        later = next_time(read_cron(cron), ZoneInfo(zone), at)
        assert later is not None
        at = later
        found.append(datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).isoformat(timespec="minutes"))
    return found


# --- when -------------------------------------------------------------------------------------------------------------


@each(
    ("cron", "zone", "since", "due"),
    [
        ("30 6 * * 1-5", "Europe/Berlin", "2030-01-04T12:00Z", ["2030-01-07T06:30+01:00", "2030-01-08T06:30+01:00"]),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00Z", ["2104-02-29T00:00+00:00"]),
        ("0 12 13 * 5", "UTC", "2030-01-01T00:00Z", ["2030-01-04T12:00+00:00", "2030-01-11T12:00+00:00"]),
        ("*/20 23 31 12 *", "UTC", "2029-12-31T23:30Z", ["2029-12-31T23:40+00:00", "2030-12-31T23:00+00:00"]),
        ("0 9 * * *", "Pacific/Kiritimati", "2030-01-01T00:00Z", ["2030-01-02T09:00+14:00"]),
        ("0 9 * * *", "Pacific/Pago_Pago", "2030-01-01T21:00Z", ["2030-01-02T09:00-11:00"]),
        # The clocks skip 02:30, which comes an hour later, and show 02:30 twice, of which the first counts.
        ("30 2 * * *", "Europe/Berlin", "2030-03-30T12:00Z", ["2030-03-31T03:30+02:00", "2030-04-01T02:30+02:00"]),
        ("30 2 * * *", "Europe/Berlin", "2030-10-26T12:00Z", ["2030-10-27T02:30+02:00", "2030-10-28T02:30+01:00"]),
        # What comes every hour comes in every hour that there is.
        ("30 * * * *", "Europe/Berlin", "2030-03-31T00:00Z", ["2030-03-31T01:30+01:00", "2030-03-31T03:30+02:00"]),
        (
            *("30 * * * *", "Europe/Berlin", "2030-10-27T00:00Z"),
            ["2030-10-27T02:30+02:00", "2030-10-27T02:30+01:00", "2030-10-27T03:30+01:00"],
        ),
    ],
)
def test_the_next_times_of_a_schedule(cron: str, zone: str, since: str, due: list[str]) -> None:
    assert times(cron, zone, since, len(due)) == due


def test_the_latest_due_time_lies_between() -> None:
    hourly = read_cron("0 * * * *")
    at = ms("2030-05-01T10:00Z")
    assert latest_time(hourly, UTC_ZONE, at - 1, at) == at
    assert latest_time(hourly, UTC_ZONE, at, at + HOUR - 1) is None
    assert latest_time(hourly, UTC_ZONE, at - 5 * HOUR, at + 1) == at


FIELD = st.sampled_from(["*", "*/7", "0", "3,17", "5-9"])


@given(
    fields=st.tuples(FIELD, FIELD, st.sampled_from(["*", "1", "15,31"]), st.just("*"), st.sampled_from(["*", "1-5"])),
    at=st.integers(ms("2025-01-01T00:00Z"), ms("2035-01-01T00:00Z")),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"]),
)
def test_next_and_latest_times_are_consistent(fields: tuple[str, ...], at: int, zone: str) -> None:
    cron, where = read_cron(" ".join(fields)), ZoneInfo(zone)
    due = next_time(cron, where, at)
    assert due is not None
    assert due > at
    assert due % MINUTE == 0
    assert latest_time(cron, where, at, due) == due
    assert latest_time(cron, where, at, due - 1) is None


def test_schedules_that_are_alike_have_names_of_their_own() -> None:
    said = [Schedule(cron="@daily", input=word) for word in ("a", "b", "c")]
    assert [entry.name for entry in entries_of(said)] == ["@daily UTC", "@daily UTC #2", "@daily UTC #3"]


# --- what begins ------------------------------------------------------------------------------------------------------

FLOW = """
version: "1.0"
name: nightly
swarm: {pattern: dag}
on:
  schedule:
    - {cron: "0 * * * *", input: hour, vars: {who: clock}}
    - {cron: "30 6 * * *", timezone: Europe/Berlin, input: morning}
vars: {who: nobody}
workflows:
  - name: main
    steps:
      - {name: say, type: deterministic, command: "printf '%s %s' {{input}} {{vars.who}}"}
"""


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self, at: str) -> None:
        self.at = ms(at)

    def __call__(self) -> int:
        return self.at

    def becomes(self, at: str) -> None:
        self.at = ms(at)


class Nodes:
    """Nodes that serve one document; each has a timetable, which looks at the clock when it is told to."""

    def __init__(self, hosting: Hosting, folder: Path) -> None:
        self._hosting, self._folder = hosting, folder
        self.clock = Clock("2030-05-01T10:20Z")
        self.host: Host

    async def add(self) -> Timetable:
        document = read_document(FLOW)
        agent = WorkflowAgent(document, directory=self._folder, env={"PATH": "/usr/bin:/bin"})
        self.host = host = await self._hosting(agent, *agent.members.values())
        agent._store = host.node.store
        assert document.on is not None
        return Timetable(
            "nightly", document.on.schedule, host.node.store, beginning(host), now_ms=self.clock, sleep=never
        )

    async def runs(self) -> list[str]:
        """What the runs that there are have said, once they have ended."""
        page = await self.host.services["nightly"].list(TaskFilter(), Caller())
        ended = [await self.host.node.settled("", task.id) for task in page.tasks]
        assert {task.status.state for task in ended} <= {TaskState.COMPLETED}
        return sorted(text(task) for task in ended)


def beginning(host: Host) -> Callable[[Message], Any]:
    async def begin(message: Message) -> None:
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
        assert isinstance(await host.services["nightly"].send(request, Caller()), Task)

    return begin


async def never(_seconds: float) -> None:
    raise AssertionError("it does not look by itself here")


@pytest.fixture
def nodes(hosting: Hosting, tmp_path: Path) -> Nodes:
    return Nodes(hosting, tmp_path)


async def test_each_time_begins_one_run_however_many_nodes_there_are(nodes: Nodes) -> None:
    every = [await nodes.add() for _ in range(3)]
    assert await asyncio.gather(*(one.look() for one in every)) == [60.0] * 3
    assert await nodes.runs() == [], "a schedule that is new has missed nothing"
    nodes.clock.becomes("2030-05-01T11:00:00.250Z")
    await asyncio.gather(*(one.look() for one in every))
    await asyncio.gather(*(one.look() for one in every))
    assert await nodes.runs() == ["hour clock"]
    nodes.clock.becomes("2030-05-02T04:30Z")
    await asyncio.gather(*(one.look() for one in every))
    assert await nodes.runs() == ["hour clock", "hour clock", "morning nobody"]


async def test_schedules_start_once_across_nodes(nodes: Nodes) -> None:
    first = await nodes.add()
    await first.look()
    nodes.clock.becomes("2030-05-01T11:00Z")
    await first.look()
    nodes.clock.becomes("2030-05-01T11:10Z")
    await (await nodes.add()).look()
    assert await nodes.runs() == ["hour clock"]


@pytest.mark.parametrize(
    ("back", "made_up"), [("2030-05-01T11:59Z", 1), ("2030-05-01T15:30Z", 1), ("2030-05-02T05:30:01Z", 1)]
)
async def test_a_time_that_was_missed_is_made_up_for_once(nodes: Nodes, back: str, made_up: int) -> None:
    await (await nodes.add()).look()
    nodes.clock.becomes(back)
    for _ in range(2):
        await (await nodes.add()).look()
    assert await nodes.runs() == ["hour clock"] * made_up


async def test_a_time_that_was_missed_long_ago_is_gone(nodes: Nodes) -> None:
    await (await nodes.add()).look()
    nodes.clock.at = ms("2030-05-02T04:30Z") + MISSED_MS + 1
    await (await nodes.add()).look()
    assert await nodes.runs() == ["hour clock"], "that of 05:00, and not that of 06:30 in Berlin"


async def test_the_clock_is_looked_at_when_something_is_due(nodes: Nodes) -> None:
    timetable = await nodes.add()
    nodes.clock.becomes("2030-05-01T10:59:59.500Z")
    assert await timetable.look() == 0.5
    nodes.clock.becomes("2030-05-01T10:59:00Z")
    assert await timetable.look() == 60.0


async def test_failed_schedule_starts_are_retried_alone(nodes: Nodes) -> None:
    timetable = await nodes.add()
    await timetable.look()
    begin, is_broken = timetable._begin, True

    async def failing(message: Message) -> None:
        if is_broken and message.message_id.startswith("schedule/nightly/0 *"):
            raise AgentUnavailable
        await begin(message)

    timetable._begin = failing
    nodes.clock.becomes("2030-05-02T04:30Z")
    assert await timetable.look() == RETRY_SECONDS
    assert await nodes.runs() == ["morning nobody"]
    is_broken = False
    await timetable.look()
    assert await nodes.runs() == ["hour clock", "morning nobody"]


async def test_the_scheduler_survives_any_error(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    timetable = await nodes.add()
    errors: list[Exception] = [StoreUnavailable("away"), RuntimeError("a mistake")]
    slept: list[float] = []

    async def look() -> float:
        if errors:
            raise errors.pop(0)
        return 7.0

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    timetable.look, timetable._sleep = look, sleep  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await timetable.run()
    assert slept == [RETRY_SECONDS, 60.0, 7.0]
    assert "a mistake" in caplog.text


def test_a_message_is_the_same_from_every_node() -> None:
    (entry,) = entries_of([Schedule(cron="@daily", timezone="Europe/Berlin", input="x")])
    at = round((datetime(2030, 5, 1, tzinfo=BERLIN).astimezone(UTC) - timedelta(0)).timestamp() * 1000)
    assert entry.message("nightly", at) == entry.message("nightly", at)
    assert entry.message("nightly", at).message_id == "schedule/nightly/@daily Europe/Berlin/2030-04-30T22:00+00:00"
