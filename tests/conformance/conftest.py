"""Servers to play scenarios on: one application for each, in this process, over the store that is wanted."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from accord.engine.agent import Agent
from accord.server.application import Application, to_a2a
from tests.conformance.grpc_wire import GrpcWire
from tests.conformance.matrix import Row, Store
from tests.conformance.scene import CONFORMANCE, Gate, Scene
from tests.conformance.wire import Binding, JsonRpcWire, RestWire, Speech, Wire
from tests.databases import emptied, postgres

__all__ = ["postgres"]

KEYS = {"alice": "the key of alice", "bob": "the key of bob, not of alice", "reader": "a key to look with"}
SECRETS = [
    {"secret": KEYS["alice"], "owner": "alice", "tenant": "*"},
    {"secret": KEYS["bob"], "owner": "bob"},
    {"secret": KEYS["reader"], "owner": "alice", "roles": ["reader"]},
]
AUTH = {"schemes": [{"type": "header", "name": "X-Key", "secrets": SECRETS}]}
PORTS = 20
"""How often another port is tried: somebody else may take the one that was free a moment ago."""


@pytest.fixture
async def scene(row: Row, speech: Speech, store: Store, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """A server for one scenario."""
    gate = Gate()
    settings = {**row.settings, "store": await _address(store, request), "auth": AUTH}
    async with AsyncExitStack() as stack:
        app = await _started(stack, gate.agent if row.gated else CONFORMANCE, settings, speech.binding)
        yield Scene(gate, _Wires(app, stack), speech, stack)


class _Wires:
    """Makes the wires of a server's callers."""

    def __init__(self, app: Application, stack: AsyncExitStack) -> None:
        self._app, self._stack = app, stack

    def __call__(self, speech: Speech, caller: str, *, unsaid: bool = False) -> Wire:
        headers = {"X-Key": KEYS[caller]} if caller else {}
        if speech.binding is Binding.JSONRPC:
            return JsonRpcWire(self._app, speech.dialect, headers, unsaid=unsaid)
        if speech.binding is Binding.REST:
            return RestWire(self._app, speech.dialect, headers)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{self._app.settings.server.grpc_port}")
        self._stack.push_async_callback(channel.close)
        return GrpcWire(channel, speech.dialect, headers)


async def _address(store: Store, request: pytest.FixtureRequest) -> str:
    """The address of an empty store."""
    if store is Store.POSTGRES:
        return await emptied(request.getfixturevalue("postgres"))
    if store is Store.MEMORY:
        return "sqlite://:memory:"
    folder: Path = request.getfixturevalue("tmp_path")
    return f"sqlite:///{folder}/accord.db"


async def _started(stack: AsyncExitStack, agent: Agent, settings: dict[str, Any], binding: Binding) -> Application:
    """An application that runs, with a port of its own where it needs one."""
    for _ in range(PORTS):
        server = {"grace_seconds": 0, **settings.get("server", {})}
        if binding is Binding.GRPC:
            server["grpc_port"] = _free_port()
        app = to_a2a(agent, **{**settings, "server": server})
        try:
            await stack.enter_async_context(app)
        except OSError:
            continue
        return app
    raise OSError("There is no free port")


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
