"""The measured half of the benchmark of tasks elsewhere: parks them, takes webhooks in, and says what they became.

It talks in lines of JSON with `remote`, which brings the webhooks: what is held while all tasks wait, then on each
line read how the tasks stand.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import uvicorn
import uvloop
from msgspec.structs import replace

from accord.agents.remote import RemoteTerms
from accord.agents.remote.agent import RemoteAgent
from accord.agents.remote.isek import bridge_card
from accord.errors import UnsupportedOperation
from accord.http.webhooks import WebhookEndpoint
from accord.model import (
    AgentCapabilities,
    CancelRequest,
    Event,
    GetRequest,
    SendConfiguration,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
    TaskState,
    TaskStatus,
)
from accord.remote.flow_reports import WEBHOOK
from accord.remote.tasks import RemoteTasks
from accord.server.http_server import tune_garbage_collection
from accord.service.host import Host
from accord.storage.store import Row, Tx
from bench import hosting
from bench.memory_process import rss_mb

FDS = Path("/proc/self/fd")
ALL_PARKED_SECONDS = 600


class Elsewhere:
    """An agent that takes every message on at once and keeps the tokens for its webhooks."""

    is_idempotent = False

    def __init__(self) -> None:
        there = AgentCapabilities(streaming=False, push_notifications=True)
        self.card = replace(bridge_card("Elsewhere", "https://there.example"), capabilities=there)
        self.tokens: list[str] = []

    async def send(self, request: SendRequest) -> Task:
        """Acknowledge."""
        push = request.configuration and request.configuration.task_push_notification_config
        assert push
        self.tokens.append(push.token or "")
        return Task(id=f"r-{len(self.tokens) - 1}", status=TaskStatus(state=TaskState.WORKING))

    async def get(self, request: GetRequest) -> Task:
        raise UnsupportedOperation

    async def list(self, request: TaskFilter) -> TaskPage:
        raise UnsupportedOperation

    async def cancel(self, request: CancelRequest) -> Task:
        raise UnsupportedOperation

    async def subscribe(self, request: SubscribeRequest, *, after: int | None = None) -> AsyncIterator[Event]:
        raise UnsupportedOperation
        yield


async def standing(tx: Tx) -> list[Row]:
    """How many tasks there are of each state, and how many of those wait for nothing."""
    return await tx.all("SELECT state, COUNT(*) FROM task GROUP BY state")


async def unparked(tx: Tx) -> list[Row]:
    """How many runs are going on, or tasks not acknowledged."""
    return await tx.all(
        """SELECT (SELECT COUNT(*) FROM job WHERE kind = 'run' AND node IS NOT NULL)
                + (SELECT COUNT(*) FROM remote WHERE sent = 0)"""
    )


def sockets() -> int:
    """How many connections this process has."""
    if not FDS.exists():
        return 0
    return sum(os.path.realpath(one).rpartition("/")[2].startswith("socket:") for one in FDS.iterdir())


async def park(host: Host, count: int, at_once: int) -> None:
    """Begin so many tasks, and wait until all of them wait."""
    numbers = iter(range(count))
    acknowledging = SendConfiguration(return_immediately=True)

    async def sender() -> None:
        for number in numbers:
            request = replace(hosting.saying(str(number)), configuration=acknowledging)
            await host.default.send(request, hosting.CALLER)

    await asyncio.gather(*(sender() for _ in range(at_once)))
    async with asyncio.timeout(ALL_PARKED_SECONDS):
        while (await host.node.store.read(unparked))[0][0]:  # noqa: ASYNC110  # the rows are all that tells
            await asyncio.sleep(0.1)


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[int]:
    """Serve an application as a server of ours does, on a port of this machine."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(app, log_level="error", lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def main() -> None:
    asked = json.loads(sys.argv[1])
    peer = Elsewhere()

    @asynccontextmanager
    async def connect() -> AsyncIterator[Elsewhere]:
        yield peer

    agent = RemoteAgent(
        "https://there.example", name="there", terms=RemoteTerms(webhook="https://here.example"), connect=connect
    )
    tune_garbage_collection()
    async with hosting.hosted(asked["address"], agent) as host:
        remotes = RemoteTasks(host.node.task_store)
        await agent.join(remotes)
        idle, before, rss = len(asyncio.all_tasks()), sockets(), rss_mb()
        begun = perf_counter()
        await park(host, asked["count"], asked["at_once"])
        found = {
            "seconds": perf_counter() - begun,
            "tasks": len(asyncio.all_tasks()) - idle,
            "sockets": sockets() - before,
            "rss": rss_mb() - rss,
        }
        async with listening(WebhookEndpoint(remotes, rate=asked["rate"])) as port:
            say(found | {"port": port, "path": WEBHOOK, "tokens": peer.tokens})
            while await asyncio.to_thread(sys.stdin.readline):
                say(dict(await host.node.store.read(standing)))
        await agent.leave()


def say(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
