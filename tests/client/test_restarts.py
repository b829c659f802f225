"""A real server is killed in the midst of streams and started again: its clients go on as if nothing had happened."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from accord.client import Client
from accord.client.remote_task import message_of
from accord.client.text import text_of
from accord.model import Event, SendRequest, Task, TaskFilter, TaskState
from accord.protocol import lifecycle
from accord.storage.sqlite.driver import back_up
from tests.crash.conftest import until
from tests.ports import free_port
from tests.serve.running import AGENTS, Server

LEASE = {"ACCORD_ENGINE__LEASE_SECONDS": "1.5", "ACCORD_ENGINE__POLL_SECONDS": "0.2"}
LAST, PAUSE, SEEN = 40, 25, 10
"""How far the agent counts, where it waits, and how many pieces a client has seen when the server is killed."""

EARLY = 3
"""Where the agent waits for the backup. It waits here again after the restore, while its log is still shorter."""

WHOLE = "".join(f"{number} " for number in range(1, LAST + 1))
WAYS: list[dict[str, Any]] = [
    {"binding": "jsonrpc"},
    {"binding": "rest"},
    {"dialect": "v03"},
    {"dialect": "vault"},
    {"dialect": "gen"},
    {"binding": "grpc"},
]


class Watch:
    """One client, and how far it has seen its stream."""

    def __init__(self) -> None:
        self.saw_enough = asyncio.Event()
        self.events: list[Event] = []

    async def run(self, client: Client, text: str) -> None:
        stream: AsyncIterator[Event] = client.stream(SendRequest(message=message_of(text)))
        async for event in stream:
            self.events.append(event)
            if len(self.events) == SEEN:
                self.saw_enough.set()

    @property
    def tasks(self) -> int:
        """How often the stream started from the task."""
        return sum(isinstance(event.body, Task) for event in self.events)

    def text(self) -> str:
        first = self.events[0].body
        assert isinstance(first, Task)
        return text_of(lifecycle.fold(first, self.events[1:]))


@pytest.mark.proves("C-08", "C-01")
async def test_streams_and_handles_resume_after_a_kill(tmp_path: Path) -> None:
    go = tmp_path / "go"
    store = f"sqlite:///{tmp_path}/accord.db"
    text = f"{LAST} {PAUSE} {go}"
    serve = partial(Server, tmp_path, f"{AGENTS}:counting", "--store", store, **LEASE)  # type: ignore[arg-type]
    serve = partial(serve, ACCORD_SERVER__GRPC_PORT=str(free_port()))
    server = await asyncio.to_thread(serve)
    clients = [await Client.connect(server.url, **way) for way in WAYS]
    try:
        watches = [Watch() for _ in clients]
        handle = await clients[0].start(text)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for watch, client in zip(watches, clients, strict=True):
                group.create_task(watch.run(client, text))
            settled = group.create_task(handle.settled())
            told = group.create_task(_told(clients[0], text))
            for watch in watches:
                await watch.saw_enough.wait()
            server.process.kill()
            await asyncio.to_thread(server.ended)
            server = await asyncio.to_thread(serve, port=server.port)
            go.touch()
        assert settled.result().text == told.result() == WHOLE
        for way, watch in zip(WAYS, watches, strict=True):
            assert watch.text() == WHOLE, f"{way}: each piece once, none missing"
            numbers = [event.seq for event in watch.events[1:]]
            if way.get("binding") != "grpc":  # which has no place for them
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), way
        page = await clients[0].list(TaskFilter())
        assert page.total_size == len(WAYS) + 2, "no message began two tasks"
        assert {task.status.state for task in page.tasks} == {TaskState.COMPLETED}
    finally:
        for client in clients:
            await client.close()
        await asyncio.to_thread(server.stop)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
async def test_streams_end_on_a_restored_backup(way: dict[str, Any], tmp_path: Path) -> None:
    """The file of a stopped server is replaced by an earlier copy: what the client saw is no longer in the log."""
    early, late, copy = tmp_path / "early", tmp_path / "late", tmp_path / "copy.db"
    store, port = f"sqlite:///{tmp_path}/accord.db", free_port()
    serve = partial(Server, tmp_path, f"{AGENTS}:counting", "--store", store, **LEASE)  # type: ignore[arg-type]
    serve = partial(serve, ACCORD_SERVER__GRPC_PORT=str(port))
    server = await asyncio.to_thread(serve)
    client = await Client.connect(server.url, **way)
    watch = Watch()
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(watch.run(client, f"{LAST} {EARLY} {early} {PAUSE} {late}"))
            await until(lambda: len(watch.events) > EARLY)
            await asyncio.to_thread(back_up, tmp_path / "accord.db", copy)
            early.touch()
            await until(lambda: len(watch.events) > LAST // 2)
            server.process.kill()
            await asyncio.to_thread(server.ended)
            early.unlink()
            await asyncio.to_thread(replace, tmp_path / "accord.db", copy)
            server = await asyncio.to_thread(serve, port=server.port)
            await until(lambda: watch.tasks > 1)
            early.touch()
            late.touch()
        latest = max(at for at, event in enumerate(watch.events) if isinstance(event.body, Task))
        task = watch.events[latest].body
        assert isinstance(task, Task)
        ended = lifecycle.fold(task, watch.events[latest + 1 :])
        assert (ended.status.state, text_of(ended)) == (TaskState.COMPLETED, WHOLE)
    finally:
        await client.close()
        await asyncio.to_thread(server.stop)


@pytest.mark.proves("C-08")
async def test_messages_with_a_lost_answer_run_once(tmp_path: Path) -> None:
    go = tmp_path / "go"
    store = f"sqlite:///{tmp_path}/accord.db"
    serve = partial(Server, tmp_path, f"{AGENTS}:counting", "--store", store, **LEASE)  # type: ignore[arg-type]
    server = await asyncio.to_thread(serve)
    try:
        async with Client.connect(server.url) as client, asyncio.timeout(60):
            answer = asyncio.create_task(client.send_text(f"{LAST} {PAUSE} {go}"))  # it waits, and so does the agent
            await _until_it_waits(client)
            server.process.kill()
            await asyncio.to_thread(server.ended)
            server = await asyncio.to_thread(serve, port=server.port)
            go.touch()
            said = await answer
            assert said.text == WHOLE
            assert (await client.list(TaskFilter())).total_size == 1
    finally:
        await asyncio.to_thread(server.stop)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
async def test_waiting_clients_get_the_answer_of_the_next_server(way: dict[str, Any], tmp_path: Path) -> None:
    go = tmp_path / "go"
    store, port = f"sqlite:///{tmp_path}/accord.db", free_port()
    serve = partial(Server, tmp_path, f"{AGENTS}:counting", "--store", store, **LEASE)  # type: ignore[arg-type]
    serve = partial(serve, ACCORD_SERVER__GRPC_PORT=str(port), ACCORD_SERVER__GRACE_SECONDS="0.2")
    server = await asyncio.to_thread(serve)
    try:
        async with Client.connect(server.url, **way) as client, Client.connect(server.url) as beside:
            async with asyncio.timeout(60):
                answer = asyncio.create_task(client.send_text(f"{LAST} {PAUSE} {go}"))
                await _until_it_waits(beside)
                assert await asyncio.to_thread(server.stop) == 0
                server = await asyncio.to_thread(serve, port=server.port)
                go.touch()
                assert (await answer).text == WHOLE
                assert (await beside.list(TaskFilter())).total_size == 1
    finally:
        await asyncio.to_thread(server.stop)


async def _told(client: Client, text: str) -> str:
    return "".join([piece async for piece in client.stream_text(text)])


async def _until_it_waits(client: Client) -> None:
    """Follow the only task, once there is one, to where its agent waits."""
    tasks: tuple[Task, ...] = ()
    while not tasks:
        tasks = (await client.list(TaskFilter())).tasks
    chunks = 0
    async for event in client.task(tasks[0].id):
        chunks += len(event.body.artifacts[0].parts) if isinstance(event.body, Task) and event.body.artifacts else 1
        if chunks >= PAUSE:
            return


def replace(file: Path, copy: Path) -> None:
    """Put a copy in the place of a SQLite file that no process uses, as the documentation says."""
    for part in file.parent.glob(f"{file.name}-*"):
        part.unlink()
    copy.replace(file)
