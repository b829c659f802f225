"""Nodes to kill: processes of their own on a SQLite file or a real PostgreSQL, and a client in the test's process."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from accord.engine.node import Limits
from accord.engine.subscriptions import Hub
from accord.engine.task_store import TaskStore
from accord.model import ArtifactUpdate, Event, GetRequest, SendConfiguration, SendRequest, SubscribeRequest, Task
from accord.protocol import lifecycle
from accord.service.host import Host
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.commands import tasks
from accord.storage.encoding import decode_event
from tests import databases
from tests.crash.agents import AGENTS
from tests.crash.node import CALLER, order, saying

ROOT = Path(__file__).parent.parent.parent
BOUND_SECONDS = 60
LEASE_SECONDS = 1.5

Fact = dict[str, Any]


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


class Postgres:
    """A PostgreSQL server of this test process, which can be killed and started again."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self._server = databases.started(folder)

    async def empty(self) -> str:
        """Empty the database and return its address."""
        address: str = self._server.get_uri()
        connection = await asyncpg.connect(address)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await connection.close()
        return address

    def kill(self) -> None:
        """Kill every process of the server at once."""
        master = self._master()
        master.suspend()  # or it would clean up after the others
        family = [*master.children(recursive=True), master]
        for process in family:
            process.kill()
        for process in family:
            process.wait(BOUND_SECONDS)

    def freeze(self) -> None:
        """Stop every process of the server where it is, so that it is silent and its connections stay."""
        self._master().suspend()
        for process in self._master().children(recursive=True):
            process.suspend()

    def thaw(self) -> None:
        """Let the server go on."""
        for process in self._master().children(recursive=True):
            process.resume()
        self._master().resume()

    def start(self) -> None:
        """Start the server again on what it left behind, however long it takes to recover."""
        databases.start(self._server)

    def stop(self) -> None:
        """Stop the server for good; nobody needs what it would still write."""
        master = self._master()
        if master.is_running():
            master.send_signal(signal.SIGQUIT)
            master.wait(BOUND_SECONDS)
        self._server.cleanup()

    def _master(self) -> Any:
        return self._server.get_postmaster_info().process


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Run a server. As root it runs as another user, so it cannot live among pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="accord-crash-") as folder:
        server = Postgres(folder)
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server that nobody kills."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgres]:
    """A server of the module's own, to be killed."""
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    server: Postgres = request.getfixturevalue("postgres")
    return await server.empty()


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/accord.db"


def assert_intact(store_url: str) -> None:
    """Check the file, if it is one."""
    if store_url.startswith("sqlite"):
        connection = apsw.Connection(store_url.removeprefix("sqlite:///"))
        assert connection.pragma("integrity_check") == "ok"
        connection.close()


def is_free(store_url: str) -> bool:
    """Whether nobody is writing to the file, if it is one."""
    if not store_url.startswith("sqlite"):
        return True
    connection = apsw.Connection(store_url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(100)
    try:
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True


# --- nodes ------------------------------------------------------------------------------------------------------------


class Node:
    """A process that runs agents, and what it has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.facts: defaultdict[str, list[Fact]] = defaultdict(list)
        self._news: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            if not line.endswith(b"\n"):
                break  # it was killed in the middle of a word
            fact = json.loads(line)
            self.facts[fact["fact"]].append(fact)
            self._news[fact["fact"]].set()
        for event in list(self._news.values()):
            event.set()

    def said(self, name: str, **wanted: Any) -> list[Fact]:
        """Return what it has said so far about something."""
        return [fact for fact in self.facts[name] if wanted.items() <= fact.items()]

    async def says(self, name: str, count: int = 1, **wanted: Any) -> Fact:
        """Wait until it says something, for the so-manieth time."""
        news = self._news[name]
        until = asyncio.get_running_loop().time() + BOUND_SECONDS
        while len(found := self.said(name, **wanted)) < count:
            left = until - asyncio.get_running_loop().time()
            assert left > 0, f"the node never said {name} {wanted}, but {self._summary()}"
            assert not self._reading.done(), f"the node ended and never said {name} {wanted}, but {self._summary()}"
            news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), left)
        return found[count - 1]

    def _summary(self) -> str:
        return ", ".join(f"{name} ({len(facts)}): {facts[-3:]}" for name, facts in self.facts.items())

    def tell(self, do: str, **details: Any) -> None:
        """Tell it to do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(order(do, **details))

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    async def freeze(self, store_url: str) -> None:
        """Stop it where it is, but not inside of a transaction on a file: nobody else could write until it goes on."""
        async with asyncio.timeout(BOUND_SECONDS):
            while True:
                self.signal(signal.SIGSTOP)
                await asyncio.to_thread(os.waitid, os.P_PID, self.process.pid, os.WSTOPPED)  # it may run on till then
                if await asyncio.to_thread(is_free, store_url):
                    return
                self.signal(signal.SIGCONT)

    async def ended(self) -> int:
        """Wait until it has ended and everything it said was read; return its status."""
        async with asyncio.timeout(BOUND_SECONDS):
            status = await self.process.wait()
            await self._reading
        if self.process.stdin is not None:
            self.process.stdin.close()
        return status

    async def kill(self) -> None:
        """Kill it, as a crash would."""
        with suppress(ProcessLookupError):  # it has ended by itself
            self.process.kill()
        await self.ended()


async def until(is_so: Callable[[], bool | Awaitable[bool]]) -> None:
    """Look again and again until something is so."""
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            found = is_so()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.02)


Start = Callable[..., Coroutine[Any, Any, Node]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """A function that starts a node and waits until it is ready; what still runs in the end is killed."""
    nodes: list[Node] = []

    async def started(store_url: str, *arguments: str, lease: float = LEASE_SECONDS) -> Node:
        command = ["-m", "tests.crash.node", "--store", store_url, "--lease", str(lease), *arguments]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        node = Node(process)
        nodes.append(node)
        await node.says("ready")
        return node

    yield started
    for node in nodes:
        await node.kill()


# --- a client ---------------------------------------------------------------------------------------------------------


class Client:
    """A host that runs nothing: it sends, reads and follows on the same store as the nodes."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.store = host.node.store

    async def send(self, agent: str, text: str, message_id: str | None = None) -> str:
        """Send a message and return the task's id at once."""
        at_once = SendConfiguration(return_immediately=True)
        request = SendRequest(message=saying(text, message_id).message, configuration=at_once)
        task = await self.host.services[agent].send(request, CALLER)
        assert isinstance(task, Task)
        return task.id

    async def get(self, agent: str, task_id: str) -> Task:
        """Read a task."""
        return await self.host.services[agent].get(GetRequest(id=task_id), CALLER)

    async def rested(self, task_id: str) -> Task:
        """Wait until a task has ended, and return it."""
        async with asyncio.timeout(BOUND_SECONDS):
            return await self.host.node.settled(CALLER.tenant, task_id)

    def follow(self, agent: str, task_id: str) -> AsyncIterator[Event]:
        """Follow a task from its first event on."""
        return self.host.services[agent].subscribe(SubscribeRequest(id=task_id), CALLER, after=0)

    async def log(self, task_id: str) -> list[Event]:
        """Return a task's log; it has no gaps."""
        rows = await self.store.read(tasks.events_after, CALLER.tenant, task_id, 0, 1_000_000)
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
        return [decode_event(row) for row in rows]

    async def reaches(self, task_id: str, seq: int) -> None:
        """Wait until a task's log has so many events."""

        async def is_so() -> bool:
            stored = await self.store.read(tasks.read_task, CALLER.tenant, task_id)
            return stored is not None and stored.last_seq >= seq

        await until(is_so)


@asynccontextmanager
async def connected(store_url: str) -> AsyncIterator[Client]:
    """Connect a client to a store."""
    hub = Hub()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(store_url, hub.heard))
        await schema.upgrade_schema(store)
        yield Client(Host(TaskStore(store), hub, AGENTS, limits=Limits(lease_seconds=LEASE_SECONDS)))


@pytest.fixture
async def client(store_url: str) -> AsyncIterator[Client]:
    """A client of the store."""
    async with connected(store_url) as found:
        yield found


def text(task: Task) -> str:
    """Return everything that a task's artifacts say."""
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)


def explained(task: Task) -> str:
    """Return what a task's status says."""
    assert task.status.message is not None
    return "".join(part.text or "" for part in task.status.message.parts)


def artifacts(events: list[Event]) -> list[ArtifactUpdate]:
    """Return the chunks among events, without the empty one that only says that an artifact is whole."""
    chunks = [event.body for event in events if isinstance(event.body, ArtifactUpdate)]
    return [chunk for chunk in chunks if chunk.artifact.parts != (lifecycle.NOTHING,)]


def gapless(events: list[Event]) -> bool:
    """Whether events follow on each other; the first one is the task that they follow on."""
    numbers = [event.seq for event in events]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))
