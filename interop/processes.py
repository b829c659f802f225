"""Processes on both sides: `accord serve` of several kinds, other implementations' servers, and their clients.

It judges nothing. Tests and the report use it alike, so that both try the same things in the same way.
"""

import asyncio
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import NamedTuple

from interop.clients.telling import SAYING
from interop.outcome import NOTHING_FOR_IT, Operation, Outcome, Verdict
from tests.environments import ROOT, interpreter
from tests.ports import free_port
from tests.serve.running import accord
from tests.serve.running import running as served

AGENT = "accord.testing.conformance:agent"
CHATTING = [f"{ROOT}/tests/console/agents.py:{name}" for name in ("streams", "fails", "asks", "makes", "waits")]
START_SECONDS = 60
"""For machines that are busy with other things; the slowest server needs three seconds."""

TALK_SECONDS = 180
"""For everything that a client does; it bounds each operation itself."""


@cache
def _version(python: str, distribution: str) -> str:
    """Ask an environment; once, as every row of a peer and every operation of it shows the release."""
    ask = f"from importlib.metadata import version; print(version({distribution!r}))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=START_SECONDS, check=True)
    return done.stdout.strip()


class Peer(NamedTuple):
    """A client or a server: its script, and the environment that has what it needs, where that is not ours."""

    script: str
    environment: str | None = None

    @property
    def python(self) -> str:
        """The interpreter of its environment."""
        return str(interpreter(self.environment)) if self.environment else sys.executable

    def version(self, distribution: str) -> str:
        """Return which release of a distribution its environment has."""
        return _version(self.python, distribution)


class Served(NamedTuple):
    """A server, and a key to it."""

    url: str
    key: str | None


class Servers:
    """Servers of both sides, each started when it is first asked for, and ended with the block."""

    KINDS: Mapping[str, tuple[str, ...]] = {
        "everything": (AGENT, "--auth", "api-keys", "--capabilities", "all", "--grpc-port", "PORT"),
        "without gRPC": (AGENT, "--auth", "api-keys"),
        "open": (AGENT,),
        "chats": (*CHATTING,),
    }
    """Of ours: the agent that conformance kits talk to with more or less around it, or some that chat."""

    def __enter__(self) -> "Servers":
        """Begin with none."""
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="accord-interop-")))
        self._ours: dict[str, Served] = {}
        self._theirs: dict[Peer, str] = {}
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End them all."""
        self._stack.close()

    def ours(self, kind: str) -> Served:
        """Return `accord serve` of a kind."""
        if kind not in self._ours:
            folder = self._folder / kind.replace(" ", "-")
            folder.mkdir()
            flags = [str(free_port()) if flag == "PORT" else flag for flag in self.KINDS[kind]]
            server = self._stack.enter_context(served(folder, *flags, ACCORD_PUSH__ALLOW_PRIVATE="1"))
            self._ours[kind] = Served(server.url, _key(folder) if "--auth" in flags else None)
        return self._ours[kind]

    def theirs(self, peer: Peer) -> str:
        """Return the address of a peer's server."""
        if peer not in self._theirs:
            log = self._folder / f"{peer.script}.log"
            self._theirs[peer] = self._stack.enter_context(_running(peer, log))
        return self._theirs[peer]


def _key(folder: Path) -> str:
    made = accord(folder, "apikeys", "create", "--owner", "peer", "-o", "json")
    assert made.returncode == 0, made.stderr
    key: str = json.loads(made.stdout)["key"]
    return key


@contextmanager
def _running(peer: Peer, log: Path) -> Iterator[str]:
    """Run a script of `servers` while the block runs; give the URL that it says. What else it says goes into a log."""
    command = (peer.python, "-W", "ignore", "-m", f"interop.servers.{peer.script}")
    with log.open("wb") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
    with process:
        try:
            assert process.stdout is not None
            has_spoken, _, _ = select.select([process.stdout], [], [], START_SECONDS)
            line = process.stdout.readline() if has_spoken else ""
            assert line, f"{peer.script} never said where it is, but: {log.read_text()[-4000:]}"
            url: str = json.loads(line)["url"]
            yield url
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(START_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


async def talk(peer: Peer, arguments: Mapping[str, object]) -> dict[Operation, Outcome]:
    """Run a script of `clients`, and return what came of each operation."""
    pipe = asyncio.subprocess.PIPE
    command = (peer.python, "-W", "ignore", "-m", f"interop.clients.{peer.script}", json.dumps(arguments))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(TALK_SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()[-4000:]
    said = [line for line in out.decode().splitlines() if line.startswith(SAYING)]
    assert said, f"{peer.script} said nothing, but: {err.decode()[-4000:]}"
    return outcomes(json.loads(said[-1].removeprefix(SAYING)))


def outcomes(told: Mapping[str, tuple[str, str]]) -> dict[Operation, Outcome]:
    """Return what a script said, with every operation in it."""
    known = {Operation(name): Outcome(Verdict(verdict), reason) for name, (verdict, reason) in told.items()}
    return {operation: known.get(operation, NOTHING_FOR_IT) for operation in Operation}
