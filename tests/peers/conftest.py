"""Real servers for real peers: `accord serve` in a process of its own, and other implementations' clients in theirs."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conformance.scene import Receiver
from tests.environments import interpreter
from tests.peers.running import running as running_peer
from tests.serve.running import Server, accord, free_port, running

AGENT = "accord.testing.conformance:agent"
CLIENTS = Path(__file__).parent / "clients"
BOUND_SECONDS = 60


class Peer(NamedTuple):
    """A client or a server: its script, and the environment that has what it needs, where that is not ours."""

    script: str
    environment: str | None = None

    @property
    def python(self) -> str:
        return str(interpreter(self.environment)) if self.environment else sys.executable


class Served(NamedTuple):
    """A server, and a key to it."""

    url: str
    key: str | None


Serving = Callable[[str], Served]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A function that serves the conformance agent, once for each kind of server."""
    kinds = {
        "everything": lambda: ("--auth", "api-keys", "--capabilities", "all", "--grpc-port", str(free_port())),
        "without gRPC": lambda: ("--auth", "api-keys"),
        "open": lambda: (),
    }
    known: dict[str, Served] = {}
    with ExitStack() as stack:

        def serve(kind: str) -> Served:
            if kind not in known:
                folder = tmp_path_factory.mktemp("served")
                arguments = kinds[kind]()
                server: Server = stack.enter_context(running(folder, AGENT, *arguments, ACCORD_PUSH__ALLOW_PRIVATE="1"))
                known[kind] = Served(server.url, _key(folder) if "--auth" in arguments else None)
            return known[kind]

        yield serve


def _key(folder: Path) -> str:
    made = accord(folder, "apikeys", "create", "--owner", "peer", "-o", "json")
    assert made.returncode == 0, made.stderr
    key: str = json.loads(made.stdout)["key"]
    return key


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Peer], str]]:
    """A function that starts another implementation's server, once for all tests, and says where it is."""
    known: dict[Peer, str] = {}
    with ExitStack() as stack:

        def start(peer: Peer) -> str:
            if peer not in known:
                log = tmp_path_factory.mktemp(peer.script) / "log"
                known[peer] = stack.enter_context(running_peer(peer.python, peer.script, log))
            return known[peer]

        yield start


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A webhook."""
    async with Receiver().listening() as listening:
        yield listening


async def talk(peer: Peer, answer: Callable[[], str] | None = None, /, **arguments: Any) -> dict[str, Any]:
    """Run a client and return what it says at last; when it says to be ready for more, it is given `answer`."""
    pipe = asyncio.subprocess.PIPE
    command = (peer.python, str(CLIENTS / peer.script), json.dumps(arguments))
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            if answer is not None:
                assert json.loads(await process.stdout.readline())["ready"]
            out, err = await process.communicate(answer().encode() if answer else b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()[-4000:]
    told: dict[str, Any] = json.loads(out)
    return told
