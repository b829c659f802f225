"""The console's live feed and lists: 500 open pages and 1,000 updates a second, and a first page of 100,000 tasks.

A server in a process of its own is listened to over real connections. A page that misses an event, or hears one twice,
ends the measurement: how quick something is that loses events is of no interest.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from functools import partial
from time import perf_counter
from typing import Any

import uvloop

from accord.engine.ids import uuid7
from accord.model import Message, Part, Role, Task, TaskState, TaskStatus
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.commands import task_lists, tasks
from accord.storage.commands.task_lists import TaskListQuery, VisibleTasks
from accord.storage.store import Store, Tx
from bench.report import Table, Target
from bench.server import Server, running
from bench.setting import POSTGRES, SQLITE, Setting
from bench.timing import Measured

PAGES, RATE, SECONDS = 500, 1000, 5
TASKS_AT_ONCE = 50
STORED = 100_000
LATE_SECONDS = 60.0

UPDATES, LAST, MS = "updates/s", "last page ms", "ms"


def _serving(port: int, database: str) -> list[str]:
    flags = ["--port", str(port), "--store", database]
    return [sys.executable, "-m", "accord", "serve", "bench.agents:reporter", *flags]


class Page(asyncio.Protocol):
    """An open page: counts what it is told of tasks with a title."""

    def __init__(self, title: bytes, wanted: int, *, keeps: bool) -> None:
        self._mark = b'"title":"%b"' % title
        self.count = 0
        self.stream = bytearray()
        self.is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_full: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._wanted = wanted
        self._keeps = keeps
        self._rest = b""

    def connection_made(self, transport: Any) -> None:
        transport.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        if self._keeps:
            self.stream += data
        known = self._rest + data
        if not self.is_open.done() and b"event: hello" in known:
            self.is_open.set_result(None)
        self.count += known.count(self._mark)
        self._rest = known[1 - len(self._mark) :]
        if self.count >= self._wanted and not self.is_full.done():
            self.is_full.set_result(perf_counter())

    def connection_lost(self, _error: Exception | None) -> None:
        for waited in (self.is_open, self.is_full):
            if not waited.done():
                waited.set_exception(ConnectionError(f"The server ended a page after {self.count} events"))


async def told(port: int, pages: int, seconds: int) -> Measured:
    """Listen with many pages to many tasks, and see that each hears everything."""
    each = RATE * seconds // TASKS_AT_ONCE
    wanted = TASKS_AT_ONCE * (each + 2)  # it works, it has ended
    loop = asyncio.get_running_loop()
    title = f"{each} {1000 * seconds // each}"
    listeners = [Page(title.encode(), wanted, keeps=number == 0) for number in range(pages)]
    for listener in listeners:
        await loop.create_connection(partial(_itself, listener), "127.0.0.1", port)
    async with asyncio.timeout(LATE_SECONDS):
        await asyncio.gather(*(listener.is_open for listener in listeners))
        begun = perf_counter()
        await asyncio.gather(*(_begin(port, title) for _ in range(TASKS_AT_ONCE)))
        ended = await asyncio.gather(*(listener.is_full for listener in listeners))
    await asyncio.sleep(0.5)  # what is told twice would come now
    counts = {listener.count for listener in listeners}
    if counts != {wanted} or len(_told(bytes(listeners[0].stream), title)) != wanted:
        raise AssertionError(f"{wanted} events were to be told, and were told: {sorted(counts)}")
    return {UPDATES: wanted / (max(ended) - begun), LAST: 1000 * (max(ended) - min(ended))}


def _itself(page: Page) -> Page:
    return page


async def _begin(port: int, text: str) -> None:
    body = json.dumps({"agent": "reporter", "text": text}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    if b" 201 " not in answer[:20]:
        raise AssertionError(answer[:200])


def _told(stream: bytes, title: str) -> set[tuple[str, int]]:
    """Return what a page was told of tasks with a title, as their ids and the numbers of their events."""
    lines = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {")]
    rows = [json.loads(line) for line in lines if b'"statusMessage"' in line]
    return {(row["id"], row["seq"]) for row in rows if row["title"] == title}


# --- lists ------------------------------------------------------------------------------------------------------------


async def filled(store: Store, count: int) -> None:
    """Keep many tasks, of which most have ended well."""
    await schema.upgrade_schema(store)
    for begin in range(0, count, 5000):
        await store.do(_fill, begin, min(count, begin + 5000))


async def _fill(tx: Tx, begin: int, end: int) -> None:
    for number in range(begin, end):
        at = 1_700_000_000_000 + number * 1000
        task_id = uuid7(at, number.to_bytes(10, "big"))
        state = TaskState.FAILED if number % 50 == 0 else TaskState.COMPLETED
        said = Message(message_id="m", role=Role.USER, parts=(Part(text=f"Task number {number} " * 5),))
        task = Task(id=task_id, context_id=f"c-{number // 10}", history=(said,), status=TaskStatus(state=state))
        new = tasks.TaskCreation(task=task, agent=f"agent-{number % 7}", owner=f"owner-{number % 3}", at=at)
        await tasks.create_task(tx, "", new)


async def _analyzed(tx: Tx) -> None:
    """Do what PostgreSQL does by itself soon after so much has come: before, it expects a small table."""
    await tx.run("ANALYZE")


LISTS = {
    "first page": (VisibleTasks(owner="", sees_all=True), TaskListQuery()),
    "of one owner": (VisibleTasks(owner="owner-1"), TaskListQuery()),
    "of one agent": (VisibleTasks(owner="", sees_all=True), TaskListQuery(agents=("agent-3",))),
    "failed": (VisibleTasks(owner="", sees_all=True), TaskListQuery(states=(TaskState.FAILED,))),
    "completed": (VisibleTasks(owner="", sees_all=True), TaskListQuery(states=(TaskState.COMPLETED,))),
    "of a context": (VisibleTasks(owner="", sees_all=True), TaskListQuery(context_id="c-77")),
    "top": (VisibleTasks(owner="owner-2"), TaskListQuery(is_top=True)),
    "words": (VisibleTasks(owner="", sees_all=True), TaskListQuery(words="number 99")),
    "of nobody": (VisibleTasks(owner="nobody"), TaskListQuery()),
}


async def listed(store: Store, times: int) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for name, (seen, wanted) in LISTS.items():
        taken = []
        for _ in range(times):
            begun = perf_counter()
            await store.read(task_lists.list_page, "", seen, wanted)
            taken.append(perf_counter() - begun)
        found[name] = {MS: 1000 * sorted(taken)[len(taken) // 2]}
    return found


async def measured(setting: Setting) -> tuple[dict[str, Measured], dict[str, Measured]]:
    live: dict[str, Measured] = {}
    lists: dict[str, Measured] = {}
    pages, seconds = setting.size(PAGES, 50), setting.size(SECONDS, 1)
    for kind in (SQLITE, POSTGRES):
        async with running(Server(f"accord, {kind}", _serving, kind), setting.database(kind)) as port:
            live[kind] = await told(port, pages, seconds)
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_store(setting.database(kind), lambda _: None))
            await filled(store, setting.size(STORED, 2000))
            if kind == POSTGRES:
                await store.do(_analyzed)
            for name, taken in (await listed(store, setting.rounds(7))).items():
                lists.setdefault(name, {})[f"{kind} {MS}"] = taken[MS]
    return live, lists


def run(setting: Setting) -> list[Table]:
    live, lists = uvloop.run(measured(setting))
    heard = Table(
        f"{setting.size(PAGES, 50)} pages hear of everything",
        "updates",
        (UPDATES, LAST),
        live,
        (),
        (
            f"{TASKS_AT_ONCE} tasks report {RATE} times a second together; every page is told as often, and of one it"
            f" is seen that each report is there. {LAST} is how much later than the first the last page has"
            " heard everything.",
        ),
    )
    shown = Table(
        f"A page of {setting.size(STORED, 2000):,} tasks",
        "lists",
        tuple(f"{kind} {MS}" for kind in (SQLITE, POSTGRES)),
        lists,
        tuple(Target("first page", f"{kind} {MS}", at_most=50) for kind in (SQLITE, POSTGRES)),
        ("50 rows, as `GET /api/tasks` reads them from the store.",),
    )
    return [heard, shown]
