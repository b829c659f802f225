"""The following half of the latency benchmark: says that it is ready, follows, and says how late events arrived."""

import asyncio
import json
import statistics
import sys
import time

import uvloop

from accord.engine.subscriptions import Hub, Subscriber
from accord.engine.task_store import TaskStore
from accord.model import ArtifactUpdate
from accord.storage.address import open_store
from accord.storage.postgres.driver import PostgresStore
from bench import hosting


async def follow(follower: Subscriber, count: int) -> list[float]:
    late = []
    async with follower:
        async for event in follower.events(lambda event: event.seq == count):
            now = time.monotonic_ns()
            assert isinstance(event.body, ArtifactUpdate)
            late.append((now - int(event.body.artifact.parts[0].text or 0)) / 1e6)
    return late


async def main() -> None:
    asked = json.loads(sys.argv[1])
    hub = Hub()
    async with open_store(asked["address"], hub.heard) as store:
        hub.use(TaskStore(store))
        if isinstance(store, PostgresStore):
            await store.listening()
        followers = [hub.follow(hosting.TENANT, id, 0) for id in asked["tasks"] for _ in range(asked["followers"])]
        following = asyncio.gather(*(follow(follower, asked["count"]) for follower in followers))
        await asyncio.sleep(0.2)  # everyone has looked once and waits
        print("ready", flush=True)
        late = [one for found in await following for one in found]
    cuts = statistics.quantiles(late, n=100)
    print(json.dumps({"count": len(late), "p50": cuts[49], "p99": cuts[98]}), flush=True)


uvloop.run(main())
