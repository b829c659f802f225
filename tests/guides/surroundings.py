"""What quickstarts take for granted, made here: a model, a flow, a Temporal, a coding agent, another server."""

import asyncio
import os
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import httpx
from temporalio.client import Client

from examples.agents.temporal_orders import worker
from tests.agents.chat import server as models
from tests.agents.http import webhook
from tests.agents.process.conftest import words
from tests.agents.temporal.server import running_server
from tests.environments import interpreter
from tests.guides.showing import Surroundings
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, environment

Making = Callable[[Path], AbstractAsyncContextManager[Surroundings]]


@asynccontextmanager
async def nothing(folder: Path) -> AsyncIterator[Surroundings]:
    """Nothing but our own environment."""
    yield Surroundings()


def elsewhere(name: str) -> Making:
    """The environment of a framework that cannot share ours."""

    @asynccontextmanager
    async def making(folder: Path) -> AsyncIterator[Surroundings]:
        python = await asyncio.to_thread(interpreter, name)
        yield Surroundings(python=str(python), env={"CREWAI_DISABLE_TELEMETRY": "true"})

    return making


@asynccontextmanager
async def model(folder: Path) -> AsyncIterator[Surroundings]:
    """A server of models that repeats."""
    async with models.serving() as found:
        yield Surroundings({"http://localhost:11434/v1": found.url})


@asynccontextmanager
async def flow(folder: Path) -> AsyncIterator[Surroundings]:
    """A flow of n8n that has one answer."""
    async with webhook.webhook(webhook.says([{"json": {"output": "two are on their way"}}])) as found:
        yield Surroundings({"http://localhost:5678/webhook/assistant": found.url})


@asynccontextmanager
async def coding_agent(folder: Path) -> AsyncIterator[Surroundings]:
    """A `claude` that behaves like the real one."""
    program = folder / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words("claude"))} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    yield Surroundings(env={"PATH": f"{program.parent}:{os.environ['PATH']}"})


@asynccontextmanager
async def temporal(folder: Path) -> AsyncIterator[Surroundings]:
    """A Temporal, and a worker of it."""
    with running_server() as address:
        client = await _connected(address)
        async with worker(client):
            yield Surroundings({"localhost:7233": address})


async def _connected(address: str) -> Client:
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            try:
                return await Client.connect(address)
            except RuntimeError:  # it listens before it is ready
                await asyncio.sleep(0.1)


@contextmanager
def serving(module: str, folder: Path, **env: str) -> Iterator[str]:
    """Run a server of the examples, which listens at the port that it is told, and give its address."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", module],
        cwd=folder,
        env=environment(folder, PORT=str(port), **env),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            _wait(process, url := f"http://localhost:{port}")
            yield url
        finally:
            process.kill()


def _wait(process: subprocess.Popen[str], url: str) -> None:
    until = time.monotonic() + BOUND_SECONDS
    while True:
        try:
            assert httpx.get(f"{url}/.well-known/agent-card.json").status_code == 200
            return
        except httpx.TransportError:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.1)


@asynccontextmanager
async def another_server(folder: Path) -> AsyncIterator[Surroundings]:
    """A server of the official SDK."""
    with serving("examples.migrating.a2a_sdk_server", folder) as url:
        yield Surroundings({"http://localhost:9000": url})


SURROUNDINGS: dict[str, Making] = {
    "adk": elsewhere("google-adk"),
    "command_line": coding_agent,
    "crewai": elsewhere("crewai"),
    "flow": flow,
    "model": model,
    "remote": another_server,
    "temporal": temporal,
}
"""By the name of the page; others need nothing."""
