"""A node as a process of its own: it runs the test agents on a store, and does what it is told on stdin.

    python -m tests.crash.node --store sqlite:///accord.db --lease 1.5

It says what happens on stdout (`agents.say`) and drains on SIGTERM, or when whoever started it is gone.
"""

import argparse
import asyncio
import hashlib
import json
import logging
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import msgspec

from accord.a2a import Caller
from accord.engine.hooks import Detail, EventsAppended, ExecutionEnded, ExecutionStarted, Hooks
from accord.engine.ids import new_id
from accord.engine.node import Limits
from accord.engine.subscriptions import Hub
from accord.engine.task_store import TaskStore
from accord.errors import AccordError
from accord.model import Event, Message, Part, Role, SendRequest, SubscribeRequest
from accord.service.host import Host
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.commands.tasks import Fenced
from accord.storage.postgres.driver import PostgresStore
from accord.storage.sqlite import driver
from accord.storage.store import Command, Store
from tests.crash.agents import AGENTS, say

P = ParamSpec("P")
T = TypeVar("T")

CALLER = Caller(tenant="acme", owner="alice", origin="v1")


def saying(text: str, message_id: str | None = None) -> SendRequest:
    """Return a request to send a text; without an id each is another message."""
    message = Message(message_id=message_id or new_id(), role=Role.USER, parts=(Part(text=text),))
    return SendRequest(message=message)


def digest(events: Sequence[Event]) -> str:
    """Return what stands for everything that events say."""
    return hashlib.sha256(b"".join(msgspec.json.encode(event.body) for event in events)).hexdigest()


def order(do: str, **details: Any) -> bytes:
    """Return the line that tells a node to do something."""
    return json.dumps({"do": do, **details}).encode() + b"\n"


def options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--lease", type=float, default=1.5)
    parser.add_argument("--grace", type=float, default=0.5)
    parser.add_argument("--busy-ms", type=int, default=driver.BUSY_MS, help="how long SQLite waits for a lock")
    parser.add_argument("--max-bytes", type=int, help="how long files may get, until SIGUSR1")
    parser.add_argument("--acknowledge", action="store_true", help="say what was committed")
    return parser.parse_args()


def observer(*, acknowledges: bool) -> Callable[[Detail], None]:
    """Return a hook that says what runs do."""

    def hook(detail: Detail) -> None:
        match detail:
            case ExecutionStarted():
                say("started", task=detail.task_id, agent=detail.agent, attempt=detail.attempt)
            case ExecutionEnded():
                say("ended", task=detail.task_id, state=detail.state.name if detail.state else None)
            case EventsAppended() if acknowledges:
                say("kept", task=detail.task_id, seq=detail.seq)

    return hook


class Logged(logging.Handler):
    """Says what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        say("logged", message=record.getMessage(), reason=getattr(record, "reason", None))


class Watched:
    """A store that says when it refuses a write because somebody else may write now."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.read, self.close = store.read, store.close

    async def do(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command."""
        return await self._run(self.store.do, command, *args, **kwargs)

    async def do_early(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command that nobody is told of."""
        return await self._run(self.store.do_early, command, *args, **kwargs)

    async def _run(self, how: Any, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            found: T = await how(command, *args, **kwargs)
            return found
        except Fenced:
            say("refused", command=command.__name__)
            raise


class Orders:
    """What a test may ask a node to do."""

    def __init__(self, host: Host, store: Store) -> None:
        self._host = host
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    async def follow_stdin(self) -> None:
        """Do what each line says, all at the same time, until there are no more."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            order = json.loads(line)
            task = asyncio.create_task(getattr(self, order.pop("do"))(**order))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def send(self, agent: str, text: str) -> None:
        """Send a message and say what came of it."""
        try:
            task = await self._host.services[agent].send(saying(text), CALLER)
        except AccordError as error:
            say("unsent", error=type(error).__name__, retry_after=error.retry_after)
        else:
            say("sent", task=getattr(task, "id", None))

    async def send_on(self, agent: str, text: str) -> None:
        """Send one message after the other, for ever."""
        while True:
            await self.send(agent, text)

    async def follow(self, task: str) -> None:
        """Follow a task from its beginning to its end and say what was seen."""
        stream = self._host.services["chunks"].subscribe(SubscribeRequest(id=task), CALLER, after=0)
        events = [event async for event in stream]
        say("followed", task=task, numbers=[event.seq for event in events], digest=digest(events[1:]))

    async def listen(self) -> None:
        """Say when hints of other nodes arrive."""
        if isinstance(self._store, PostgresStore):
            await self._store.listening()
        say("listening")


def limit_files(size: int) -> None:
    """Let no file grow beyond a size, until SIGUSR1: a disk that is full, for this process."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    signal.signal(signal.SIGUSR1, lambda *_: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))


async def main(given: argparse.Namespace) -> None:
    """Run a node until it is told to leave."""
    driver.BUSY_MS = given.busy_ms
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    hub = Hub()
    async with open_store(given.store, hub.heard) as store:
        await schema.upgrade_schema(store)
        if given.max_bytes is not None:
            limit_files(given.max_bytes)
        limits = Limits(lease_seconds=given.lease, poll_seconds=0.5)
        hooks = Hooks((observer(acknowledges=given.acknowledge),))
        host = Host(TaskStore(Watched(store)), hub, AGENTS, limits=limits, hooks=hooks)
        await host.start()
        say("ready")
        orders = asyncio.create_task(Orders(host, store).follow_stdin())
        orders.add_done_callback(lambda _: stop.set())
        await stop.wait()
        orders.cancel()
        await host.stop(given.grace)
    say("left")


if __name__ == "__main__":
    logging.getLogger("accord").addHandler(Logged())
    logging.getLogger("accord").setLevel(logging.INFO)
    asyncio.run(main(options()))
