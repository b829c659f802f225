"""Pytest fixtures for tests of agents, loaded with the installed package."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from accord.client import Client
    from accord.testing.cassettes import PlaybackTransport, RecordingTransport
    from accord.testing.clock import MovableClock
    from accord.testing.inprocess import Running
    from accord.testing.sockets import Webhooks


RECORD = "--accord-record"
CASSETTES = "cassettes"
"""The folder beside a test with its recordings."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records cassettes."""
    told = "accord: ask the remote agents of tests with `accord_cassette`, and write down what they answer"
    parser.getgroup("accord").addoption(RECORD, action="store_true", default=False, help=told)


@pytest.fixture
def accord_server(tmp_path: Path) -> "Callable[..., AbstractAsyncContextManager[Running]]":
    """Run agents in this process: `async with accord_server(agent) as server`.

    It is `accord.testing.running`. With `kept=True` the tasks are stored in a file, and the next block of the same
    test continues with them.
    """
    from accord.testing import running

    def start(*agents: Any, kept: bool = False, **more: Any) -> "AbstractAsyncContextManager[Running]":
        return running(*agents, **{"store": tmp_path / "accord.db" if kept else None, **more})

    return start


@pytest.fixture
def accord_client() -> "Callable[..., AbstractAsyncContextManager[Client]]":
    """Run agents in this process, with a client of the first: `async with accord_client(agent, dialect="v03")`."""
    from accord.testing import running

    @asynccontextmanager
    async def connect(*agents: Any, dialect: str | None = None, **more: Any) -> "AsyncIterator[Client]":
        async with running(*agents, **more) as server, server.client(dialect=dialect) as client:
            yield client

    return connect


@pytest.fixture
def accord_socket_server() -> Callable[..., AbstractContextManager[str]]:
    """Serve agents on a free port of this machine: `with accord_socket_server(agent) as url`."""
    from accord.testing import serving

    return serving


@pytest.fixture
def accord_clock() -> "MovableClock":
    """Return a clock that the test moves: `accord_server(agent, clock=accord_clock)`."""
    from accord.testing import MovableClock

    return MovableClock()


@pytest.fixture
def accord_webhooks() -> "Callable[..., AbstractAsyncContextManager[Webhooks]]":
    """Receive webhooks on a free port of this machine: `async with accord_webhooks() as hooks`."""
    from accord.testing import catching

    return catching


@pytest.fixture
def accord_cassette(
    request: pytest.FixtureRequest,
) -> "Callable[..., AbstractAsyncContextManager[RecordingTransport | PlaybackTransport]]":
    """Play the recording of this test, or record it: `async with accord_cassette() as tape`."""
    from accord.testing import cassette

    def start(
        name: str | None = None, **more: Any
    ) -> "AbstractAsyncContextManager[RecordingTransport | PlaybackTransport]":
        file = f"{name or request.node.name}.json"
        return cassette(request.path.parent / CASSETTES / file, **{"record": request.config.getoption(RECORD), **more})

    return start
