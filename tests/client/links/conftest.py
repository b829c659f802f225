"""Ways to talk to one served agent: every binding in every dialect that it has, over real sockets."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from accord.client.grpc_link import GrpcLink
from accord.client.http_link import JsonRpcLink, RestLink
from accord.client.peer import AgentLink
from accord.engine.ids import new_id
from accord.model import Event, Message, Part, Role, SendConfiguration, SendRequest
from accord.outbound import HttpSession, HttpTransport
from accord.protocol.operations import DialectName
from tests.ports import free_port
from tests.serve.running import Server, running

V1, V03, VAULT, GEN, RELAY = DialectName
AGENTS = Path(__file__).parent / "agents.py"


class Way(NamedTuple):
    """One binding in one dialect, and where below the server it is."""

    kind: Callable[..., Any]
    dialect: DialectName
    path: str

    def __str__(self) -> str:
        return f"{self.kind.binding}-{self.dialect.value}"  # type: ignore[attr-defined]  # every link says its binding


WAYS = (
    Way(JsonRpcLink, V1, "/"),
    Way(JsonRpcLink, V03, "/"),
    Way(JsonRpcLink, VAULT, "/a2a"),
    Way(JsonRpcLink, GEN, "/gen"),
    Way(JsonRpcLink, RELAY, "/"),
    Way(RestLink, V1, ""),
    Way(RestLink, V03, ""),
    Way(GrpcLink, V1, ""),
    Way(GrpcLink, V03, ""),
)

STANDARD = tuple(way for way in WAYS if way.dialect in (V1, V03))


class Served(NamedTuple):
    """A served agent."""

    server: Server
    grpc: str

    def address(self, way: Way) -> str:
        return self.grpc if way.kind is GrpcLink else self.server.url + way.path


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    port = free_port()
    with running(tmp_path_factory.mktemp("served"), f"{AGENTS}:words", "--grpc-port", str(port)) as server:
        yield Served(server, f"localhost:{port}")


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    found = HttpSession()
    yield found
    await found.close()


@pytest.fixture
async def link(request: pytest.FixtureRequest, served: Served, transport: HttpTransport) -> AsyncIterator[AgentLink]:
    """The link of one way; a test says which ones by `indirect` parameters."""
    way: Way = request.param
    found: AgentLink = way.kind(transport, served.address(way), way.dialect)
    yield found
    await found.close()


each_way = pytest.mark.parametrize("link", WAYS, indirect=True, ids=str)
each_standard = pytest.mark.parametrize("link", STANDARD, indirect=True, ids=str)


def saying(text: str, *, at_once: bool = False, task_id: str | None = None, **more: Any) -> SendRequest:
    """A message to the agent."""
    message = Message(message_id=new_id(), role=Role.USER, parts=(Part(text=text),), task_id=task_id)
    configuration = SendConfiguration(return_immediately=at_once, **more) if at_once or more else None
    return SendRequest(message=message, configuration=configuration)


async def all_of(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]
