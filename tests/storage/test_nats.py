"""Hints over a real NATS server: between stores and processes, through its death, and without it."""

import asyncio
import importlib
import logging
import subprocess
import sys
import sysconfig
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from accord.storage import notifications
from accord.storage.address import open_store
from accord.storage.nats import NatsSignals
from accord.storage.postgres.driver import PostgresStore
from accord.storage.store import StoreUnavailable, Tx
from tests.storage.conftest import Heard

BOUND_SECONDS = 30
SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"


class Nats:
    """A NATS server on a loopback port, which stays the same when it is started again."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        self._port = "-1"
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [str(SERVER), "-a", "127.0.0.1", "-p", self._port, "--ports_file_dir", str(self._folder)]
        self._process = subprocess.Popen([*command, *self._options], stderr=subprocess.PIPE, text=True)
        self._said: list[str] = []
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=[ready], daemon=True)
        self._reader.start()
        assert ready.wait(BOUND_SECONDS), "".join(self._said)
        if self._port == "-1":
            self._port = next(line for line in self._said if "client connections on" in line).rpartition(":")[2].strip()

    def _read(self, ready: threading.Event) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            if "Server is ready" in line:
                ready.set()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(BOUND_SECONDS)
        self._reader.join(BOUND_SECONDS)
        assert self._process.stderr is not None
        self._process.stderr.close()


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    server = Nats(tmp_path_factory.mktemp("nats"))
    try:
        yield server
    finally:
        server.kill()


class Node:
    """A carrier of hints, and what it heard."""

    def __init__(self, *servers: str) -> None:
        self.heard: list[list[str]] = []
        self._changed = asyncio.Event()
        self.signals = NatsSignals(servers, self._hear)

    def _hear(self, topics: list[str]) -> None:
        self.heard.append(topics)
        self._changed.set()

    @property
    def topics(self) -> list[str]:
        return [topic for topics in self.heard for topic in topics]

    async def until(self, topic: str) -> None:
        async with asyncio.timeout(BOUND_SECONDS):
            while topic not in self.topics:
                self._changed.clear()
                await self._changed.wait()

    async def connected(self) -> None:
        async with asyncio.timeout(BOUND_SECONDS):
            await self.signals.connected()


@pytest.fixture
async def nodes(nats: Nats) -> AsyncIterator[tuple[Node, Node]]:
    async with AsyncExitStack() as stack:
        found = Node(nats.url), Node(nats.url)
        for node in found:
            await node.signals.open()
            stack.push_async_callback(node.signals.close)
            await node.connected()
        yield found


async def test_notifications_arrive_locally_at_once_and_remotely_once(nodes: tuple[Node, Node]) -> None:
    one, other = nodes
    one.signals.publish(["task:1"])
    assert one.topics == ["task:1"]
    await other.until("task:1")
    other.signals.publish(["task:2"])
    await one.until("task:2")  # was sent after ours, so ours would have come back by now
    assert one.topics == other.topics == ["task:1", "task:2"]


async def test_notifications_during_a_publish_go_in_the_next(nodes: tuple[Node, Node]) -> None:
    one, other = nodes
    for at in range(5000):
        one.signals.publish([f"task:{at % 1000}"])
    one.signals.publish(["last"])
    await other.until("last")
    assert sorted(set(other.topics)) == sorted(set(one.topics))
    assert len(other.heard) < 10


async def test_long_payloads_are_cut(nodes: tuple[Node, Node]) -> None:
    one, other = nodes
    topics = [f"task:{at}:{'x' * 200}" for at in range(2000)]
    one.signals.publish([*topics, "too long" * 10_000, "last"])
    await other.until("last")
    assert other.topics == [*topics, "last"]
    assert max(sum(len(topic) + 1 for topic in heard) for heard in other.heard) <= NatsSignals.payload_bytes


async def test_a_server_that_died_is_found_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "accord.signals")
    server = Nats(tmp_path)
    one, other = Node(server.url), Node(server.url)
    try:
        for node in (one, other):
            await node.signals.open()
            await node.connected()
        await asyncio.to_thread(server.kill)
        one.signals.publish(["while it is gone"])
        assert one.topics == ["while it is gone"]
        await asyncio.to_thread(server.start)
        for node in (one, other):
            await node.connected()
        one.signals.publish(["back"])
        await other.until("back")
    finally:
        for node in (one, other):
            await node.signals.close()
        await asyncio.to_thread(server.kill)
    said = [record.message for record in caplog.records]
    assert said.count("signals.down") == 2, "once for each of both, however often they try"
    assert said.count("signals.up") == 2


def watch_for_warnings(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[str]":
    """Return where the reasons of warnings arrive."""
    reasons: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(notifications.log, "warning", lambda _, extra: reasons.put_nowait(extra["reason"]))
    return reasons


async def test_without_a_server_notifications_stay_local(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node("nats://127.0.0.1:1", "nats://127.0.0.1:2")
    warned = watch_for_warnings(monkeypatch)
    await node.signals.open()
    for at in range(20_000):
        node.signals.publish([str(at)])
    assert len(node.heard) == 20_000
    assert "Connect call failed" in await asyncio.wait_for(warned.get(), BOUND_SECONDS)
    await asyncio.wait_for(node.signals.close(), BOUND_SECONDS)
    assert warned.empty()


async def test_one_server_of_several_is_enough(nodes: tuple[Node, Node], nats: Nats) -> None:
    node = Node("nats://127.0.0.1:1", nats.url)
    await node.signals.open()
    await node.connected()
    node.signals.publish(["hello"])
    await nodes[0].until("hello")
    await node.signals.close()


async def test_missing_publish_permission_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(
        'authorization { users = [{ user: "guest", password: "s3cret", permissions: { subscribe: "other" } }] }'
    )
    server = Nats(tmp_path, "-c", str(config))
    warned = watch_for_warnings(monkeypatch)
    try:
        for who, reason in [("guest:s3cret", "permissions violation"), ("guest:wrong", "authorization violation")]:
            node = Node(server.url.replace("//", f"//{who}@"))
            await node.signals.open()
            said = await asyncio.wait_for(warned.get(), BOUND_SECONDS)
            await node.signals.close()
            assert reason in said.lower()
            assert who not in said
    finally:
        await asyncio.to_thread(server.kill)


# With a store


async def shout(tx: Tx, topic: str) -> None:
    tx.signal(topic)


async def test_stores_hear_each_other_through_nats(nats: Nats, postgres: str) -> None:
    one, other = Node(nats.url), Node(nats.url)
    stores = []
    for node in (one, other):
        await node.signals.open()
        await node.connected()
        stores.append(PostgresStore(postgres, node.signals.publish, listen=False))
        await stores[-1].open()
    await stores[0].do(shout, "task:42")
    await other.until("task:42")
    assert one.topics == ["task:42"]
    for store in stores:
        await store.close()
    for node in (one, other):
        await node.signals.close()


PROCESS = """
import asyncio, json, sys
from accord.storage.address import open_store

async def shout(tx, topic):
    tx.signal(topic)

async def main():
    heard = asyncio.Event()
    async with asyncio.timeout(30), open_store(sys.argv[1], lambda topics: "ping" in topics and heard.set()) as store:
        print("ready", flush=True)
        await heard.wait()
        await store.do(shout, "pong")
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


async def test_processes_hear_each_other_by_the_store_s_address(nats: Nats, postgres: str) -> None:
    url, node = f"{postgres}&signals={nats.url}", Node(nats.url)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(url, node._hear))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROCESS, url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        async with asyncio.timeout(BOUND_SECONDS):
            assert await process.stdout.readline() == b"ready\n"
            while "pong" not in node.topics:  # its carrier may connect after its store: say it again, as a poll would
                await store.do(shout, "ping")
                node._changed.clear()
                try:
                    await asyncio.wait_for(node._changed.wait(), 0.5)
                except TimeoutError:
                    continue
            await process.communicate(b"")
    assert process.returncode == 0
    with pytest.raises(StoreUnavailable):
        await store.do(shout, "closed")


async def test_a_store_works_while_nats_does_not(postgres: str, heard: Heard) -> None:
    async with open_store(f"{postgres}&signals=nats://127.0.0.1:1", heard) as store:
        await store.do(shout, "here")
    assert heard == ["here"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "nats" or name.startswith("nats.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "accord.storage.nats")
    with pytest.raises(ImportError, match=r"pip install 'accord\[nats\]'"):
        importlib.import_module("accord.storage.nats")
