"""`accord serve` as a process of its own, with keys to come in by; ended by its id, and never without being looked at.

Nothing in it is a double: what a test reaches here is what an operator would run.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from accord.auth.api_keys import new_key
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewApiKey
from tests.abuse.wire import Answer, Wire
from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
BOUND_SECONDS = 30.0
VICTIM = "tests.abuse.agents:victim"


class Holder(NamedTuple):
    """Somebody with a key: `tenant` None may name any."""

    owner: str
    tenant: str | None = ""
    roles: tuple[str, ...] = ()


class Server:
    """A running server."""

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], agents: Sequence[str], env: Mapping[str, str], start: str
    ) -> None:
        self.folder = folder
        self.port, self.grpc_port = free_port(), free_port()
        self.store = str(settings.get("store") or f"sqlite:///{folder}/accord.db")
        self.keys: dict[str, str] = {}
        server = {"port": self.port, "grpc_port": self.grpc_port, "grace_seconds": 0} | settings.get("server", {})
        file = folder / "accord.toml"
        file.write_text(_toml({"store": self.store} | dict(settings) | {"server": server}), encoding="utf-8")
        self._command = [sys.executable, "-m", start, "serve", *agents, "--config", str(file)]
        outside = {name: value for name, value in os.environ.items() if not name.startswith("ACCORD_")}
        self._env = {**outside, "XDG_DATA_HOME": str(folder), "COLUMNS": "200", **env}
        self._said: list[str] = []
        self._ready = threading.Event()

    def admit(self, holders: Mapping[str, Holder]) -> None:
        """Make a key for each holder, by its name."""
        self.keys = {name: key for name, key in asyncio.run(_made(self.store, holders))}

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=self._env, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._ready.wait(BOUND_SECONDS), self.said

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)
            if line.startswith("curl"):
                self._ready.set()

    def stop(self) -> None:
        """End it; that it had to be killed is a failure."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(BOUND_SECONDS)
        finally:
            self._process.kill()
            self._reader.join(BOUND_SECONDS)
            assert self._process.stdout is not None
            self._process.stdout.close()

    @property
    def said(self) -> str:
        """Everything that it has written to its standard output and error."""
        return "".join(self._said)

    @property
    def pid(self) -> int:
        return self._process.pid

    def connect(self, **options: Any) -> Wire:
        """Open a connection."""
        return Wire(self.port, **options)

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        """Send one request over a connection of its own; underscores in the names of headers are dashes."""
        with self.connect() as wire:
            wire.ask(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
            return wire.answer(is_head=method == "HEAD")

    def check(self) -> None:
        """Raise unless it lives, answers, and has never met an error that it did not foresee."""
        assert self._process.poll() is None, self.said
        assert self.ask("GET", "/healthz").status == 200
        assert "Traceback" not in self.said, self.said

    def status(self, name: str) -> int:
        """A number out of what the system knows about the process, in bytes where it is a size."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                number, *unit = value.split()
                return int(number) * (1024 if unit else 1)
        raise KeyError(name)

    def cpu_seconds(self) -> float:
        """How long the process has kept a core busy."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    *agents: str,
    holders: Mapping[str, Holder] | None = None,
    env: Mapping[str, str] | None = None,
    start: str = "accord",
) -> Iterator[Server]:
    """Run a server while the block does; with `holders`, whoever asks needs a key. `start` is the module to run."""
    settings = dict(settings or {})
    if holders:
        settings["auth"] = {"schemes": [{"type": "api-keys"}]} | settings.get("auth", {})
    server = Server(folder, settings, agents or (VICTIM,), env or {}, start)
    if holders:
        server.admit(holders)
    try:
        server.start()
        yield server
        server.check()
    finally:
        server.stop()


async def _made(store: str, holders: Mapping[str, Holder]) -> list[tuple[str, str]]:
    found = []
    async with open_store(store) as opened:
        await schema.upgrade_schema(opened)
        for name, holder in holders.items():
            made = new_key()
            new = NewApiKey(
                id=made.id, hash=made.hash, name=name, owner=holder.owner, tenant=holder.tenant, roles=holder.roles
            )
            await opened.do(authentication.create_api_key, new)
            found.append((name, made.key))
    return found


def _toml(table: Mapping[str, Any], *path: str) -> str:
    """Plain values first, then the tables; everything that JSON writes in one line, TOML reads, but for objects."""
    lines = [f"{key} = {_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += [f"[{'.'.join((*path, key))}]", _toml(value, *path, key)]
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
