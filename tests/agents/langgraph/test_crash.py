"""Nodes that are killed while a graph runs or waits: another goes on from the last checkpoint, on either store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from accord.a2a import Caller
from accord.client import Client
from accord.model import GetRequest, Message, Part, Role, SendConfiguration, SendRequest, Task, TaskState
from accord.protocol import lifecycle
from tests.databases import emptied
from tests.serve.running import Server

GRAPHS = Path(__file__).parent / "graphs.py"
LEASES = {"ACCORD_ENGINE__LEASE_SECONDS": "1.5", "ACCORD_ENGINE__POLL_SECONDS": "0.2"}
BOUND_SECONDS = 60
STEPS = 30
"""Of the long graph."""

_numbers = iter(range(10**9))


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/accord.db"
    return await emptied(request.getfixturevalue("postgres"))


Serving = Callable[[str], Awaitable[Server]]


@pytest.fixture
async def serving(store: str, tmp_path: Path) -> AsyncIterator[Serving]:
    """A function that starts a node with one of the graphs; what still runs in the end is killed."""
    started: list[Server] = []

    async def serve(graph: str) -> Server:
        target = f"{GRAPHS}:{graph}"
        env: dict[str, Any] = LEASES | {"SCRATCH": str(tmp_path)}
        server = await asyncio.to_thread(lambda: Server(tmp_path, target, "--store", store, **env))
        started.append(server)
        return server

    yield serve
    for server in started:
        await asyncio.to_thread(server.kill)


class Talk:
    """The agent of a server, as a caller sees it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def send(self, part: Part, *, at_once: bool = False, task_id: str | None = None) -> Task:
        message = Message(message_id=f"m-{next(_numbers)}", role=Role.USER, parts=(part,), task_id=task_id)
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=at_once))
        async with asyncio.timeout(BOUND_SECONDS):
            task = await self._client.send(request, Caller())
        assert isinstance(task, Task)
        return task

    async def reaches(self, task: Task, state: TaskState) -> Task:
        async with asyncio.timeout(BOUND_SECONDS):
            while (now := await self._client.get(GetRequest(id=task.id), Caller())).status.state is not state:
                assert now.status.state not in lifecycle.TERMINAL, now.status
                await asyncio.sleep(0.05)
        return now


@asynccontextmanager
async def talking(server: Server) -> AsyncIterator[Talk]:
    async with Client.connect(server.url, timeout=BOUND_SECONDS) as client:
        yield Talk(client)


def notes(folder: Path) -> list[str]:
    file = folder / "notes"
    return file.read_text().splitlines() if file.exists() else []


async def noted(folder: Path, is_so: Callable[[list[str]], bool]) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while not is_so(notes(folder)):  # noqa: ASYNC110  # it is done in another process
            await asyncio.sleep(0.01)


def asked(task: Task) -> dict[str, str]:
    """The ids of what is asked, by question."""
    assert task.status.message is not None
    listed: list[dict[str, Any]] = (task.status.message.metadata or {})["interrupts"]
    return {one["value"]: one["id"] for one in listed}


@pytest.mark.proves("3-19", "C-01")
async def test_long_graphs_resume_from_their_checkpoint(serving: Serving, tmp_path: Path) -> None:
    first = await serving("long")
    async with talking(first) as talk:
        task = await talk.send(Part(text="go"), at_once=True)
        await noted(tmp_path, lambda done: len(done) >= STEPS // 3)
    await asyncio.to_thread(first.kill)
    before = notes(tmp_path)
    second = await serving("long")
    async with talking(second) as talk:
        done = await talk.reaches(task, TaskState.COMPLETED)
    after = notes(tmp_path)[len(before) :]
    everything = [str(number) for number in range(1, STEPS + 1)]
    assert before == everything[: len(before)]
    assert after in (everything[len(before) :], everything[len(before) - 1 :]), "but for the one that was cut off"
    text = "".join(part.text or "" for artifact in done.artifacts for part in artifact.parts)
    assert text == "\n\n".join(everything), "each is said once"


async def test_interrupts_are_answered_on_another_node(serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    first = await serving("both")
    async with talking(first) as talk:
        task = await talk.send(Part(data={"votes": []}))
        ids = asked(task)
    await asyncio.to_thread(first.kill)
    second = await serving("both")
    async with talking(second) as talk:
        answers = {ids["left?"]: "yes", ids["right?"]: "no"}
        done = await talk.send(Part(data=answers), task_id=task.id)
    assert done.status.state is TaskState.COMPLETED, done.status
    assert done.artifacts[0].parts[0].data == ["left yes", "right no"]
    assert sorted(notes(tmp_path)) == ["left yes", "right no"]


async def test_accepted_answers_are_not_requested_again(serving: Serving, tmp_path: Path) -> None:
    """The node is killed while the graph goes on with the first of two answers."""
    first = await serving("both")
    async with talking(first) as talk:
        task = await talk.send(Part(data={"votes": []}))
        await talk.send(Part(text="yes"), task_id=task.id, at_once=True)
        await noted(tmp_path, lambda done: done == ["left yes"])
    await asyncio.to_thread(first.kill)
    (tmp_path / "go").touch()
    second = await serving("both")
    async with talking(second) as talk:
        task = await talk.reaches(task, TaskState.INPUT_REQUIRED)
        assert [*asked(task)] == ["right?"]
        done = await talk.send(Part(text="no"), task_id=task.id)
    assert done.artifacts[0].parts[0].data == ["left yes", "right no"]
    assert notes(tmp_path) == ["left yes", "left yes", "right no"], "the one that was cut off is run again"
