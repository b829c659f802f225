"""Several servers of ours on one PostgreSQL, as processes that can be killed, and what each costs the processor."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psutil

START_SECONDS = 60.0


@dataclass
class Node:
    """A server on a port of its own; after a kill it is started there again."""

    port: int
    command: list[str]
    env: Mapping[str, str]
    process: asyncio.subprocess.Process | None = None
    spent: float = field(default=0.0)
    """Seconds of the processor that processes used which are gone."""

    async def start(self) -> None:
        silent = asyncio.subprocess.DEVNULL
        environment = {**os.environ, **self.env}
        self.process = await asyncio.create_subprocess_exec(
            *self.command, env=environment, stdout=silent, stderr=silent
        )
        async with asyncio.timeout(START_SECONDS):
            while not await _answers(self.port):
                if self.process.returncode is not None:
                    raise RuntimeError(f"A node ended with {self.process.returncode} while it started")
                await asyncio.sleep(0.05)

    async def end(self, number: signal.Signals) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        self.spent += _seconds(psutil.Process(self.process.pid))
        self.process.send_signal(number)
        await self.process.wait()

    @property
    def cpu(self) -> float:
        """Seconds of the processor that this node has used so far."""
        is_alive = self.process is not None and self.process.returncode is None
        return self.spent + (_seconds(psutil.Process(self.process.pid)) if is_alive and self.process else 0.0)


@asynccontextmanager
async def cluster(count: int, target: str, database: str, env: Mapping[str, str]) -> AsyncIterator[list[Node]]:
    """Run so many servers on one database; the first prepares it."""
    nodes = []
    for _ in range(count):
        port = _free()
        flags = ["--port", str(port), "--store", database]
        nodes.append(Node(port, [sys.executable, "-m", "accord", "serve", target, *flags], env))
    try:
        await nodes[0].start()
        await asyncio.gather(*(node.start() for node in nodes[1:]))
        yield nodes
    finally:
        await asyncio.gather(*(node.end(signal.SIGKILL) for node in nodes))


def cpu_below(pid: int) -> float:
    """Return the seconds of the processor that a process and those that it has started have used so far."""
    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        if process is root:  # whoever has gone already
            total += times.children_user + times.children_system
    return total


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


async def _answers(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
    except OSError:
        return False
    writer.close()
    return b" 200 " in answer[:16]
