"""Two of our servers, and a wire between them that loses answers after the message was accepted: it is done once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from accord.agents.remote import RemoteTerms, ReportMode
from accord.agents.remote.agent import RemoteAgent
from accord.client.retries import Retries
from accord.model import TaskState
from accord.remote.tasks import RemoteTasks
from accord.service.host import Host
from tests.engine.conftest import ALICE, Hosting, saying
from tests.engine.doubles import sent
from tests.ports import free_port
from tests.serve.running import AGENTS, Server

HERE, THERE = "127.0.0.1", "127.0.0.2"
"""Where the server listens, and where its card says that it does: the wire is in between, on the same ports."""

HASTY = Retries(attempts=1, first_seconds=0.01)
LONG = 60
"""More answers than a message is looked for that must not be sent again."""

CHUNK = 64 * 1024
WAYS: list[dict[str, Any]] = [
    {"binding": "jsonrpc"},
    {"binding": "rest"},
    {"binding": "grpc"},
    {"dialect": "v03", "binding": "jsonrpc"},
    {"dialect": "v03", "binding": "grpc"},
    {"dialect": "gen"},
]
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Wire:
    """Passes on what is sent, and of the answer as much as set; then the connection breaks."""

    def __init__(self) -> None:
        self.losses = 0
        """How many connections lose what is answered; the next ones do not."""
        self.instead = b""
        """What comes in the place of an answer."""
        self.lost = 0

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        far, far_writer = await asyncio.open_connection(HERE, port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, far_writer))
                group.create_task(self._answer(far, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            far_writer.close()
            writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self.losses and not self._is_preface(data):
                self.losses -= 1
                self.lost += 1
                writer.write(self.instead)
                await writer.drain()
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    def _is_preface(self, data: bytes) -> bool:
        """Whether these are frames of HTTP/2 that answer nothing: settings, their acknowledgement, a larger window."""
        while len(data) >= 9 and data[3] in (4, 6, 8) and not data.startswith(b"HTTP"):
            data = data[9 + int.from_bytes(data[:3]) :]
        return not data


class Far(Server):
    """A server whose card names the wire."""

    def __init__(self, folder: Path) -> None:
        port, self.grpc_port = free_port(), free_port()
        env = {"ACCORD_SERVER__GRPC_PORT": str(self.grpc_port), "ACCORD_SERVER__URL": f"http://{THERE}:{port}"}
        super().__init__(folder, f"{AGENTS}:who", "--store", "sqlite://:memory:", port=port, **env)

    def count(self) -> int:
        """How many tasks it has."""
        total: int = self.post("ListTasks").json()["result"]["totalSize"]
        return total


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    server = Far(tmp_path_factory.mktemp("far"))
    yield server
    server.stop()


@pytest.fixture
async def wire(far: Far) -> AsyncIterator[Wire]:
    made = Wire()
    async with AsyncExitStack() as stack:
        for port in (far.port, far.grpc_port):
            await stack.enter_async_context(await asyncio.start_server(made.pass_on, THERE, port))
        yield made


@asynccontextmanager
async def gateway(hosting: Hosting, far: Far, mode: ReportMode, **way: Any) -> AsyncIterator[Host]:
    terms = RemoteTerms(mode=mode, first_poll=0.01, most_poll=0.05, sends=4, answer_seconds=10)
    agent = RemoteAgent(f"http://{THERE}:{far.port}", name="there", terms=terms, retries=HASTY, **way)
    await agent.prepare()
    host = await hosting(agent)
    await agent.join(RemoteTasks(host.node.task_store))
    try:
        yield host
    finally:
        await host.stop(0)
        await agent.leave()


@pytest.mark.parametrize("hosting", ["sqlite"], indirect=True)
@pytest.mark.parametrize("mode", [ReportMode.POLL, ReportMode.SUBSCRIBE], ids=["poll", "stream"])
@pytest.mark.parametrize(("losses", "instead"), [(1, b""), (1, BUSY), (LONG, b"")], ids=["cut", "503", "cut for long"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
async def test_a_message_whose_answer_is_lost_is_done_once(
    way: dict[str, Any], losses: int, instead: bytes, mode: ReportMode, far: Far, wire: Wire, hosting: Hosting
) -> None:
    before = await asyncio.to_thread(far.count)
    async with gateway(hosting, far, mode, **way) as here:
        wire.losses = losses
        wire.instead = b"" if way.get("binding") == "grpc" else instead
        done = await sent(here.default, saying("hello"), ALICE)
        assert done.status.state is TaskState.COMPLETED
    assert wire.lost == losses
    assert await asyncio.to_thread(far.count) == before + 1
