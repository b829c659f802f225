"""The measured half of the memory benchmark: runs tasks and says how much memory it has meanwhile."""

import asyncio
import json
import resource
import sys
from pathlib import Path

import uvloop

from accord.agents.echo import echo
from accord.service.host import Host
from bench import hosting
from bench.timing import Spent, spent

STATM = Path("/proc/self/statm")


def rss_mb() -> float:
    """Return the resident memory; where the system does not tell, its peak."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


async def send(host: Host, count: int, at_once: int) -> Spent:
    """Send so many messages."""
    numbers = iter(range(count))

    async def sender() -> None:
        for _ in numbers:
            await host.default.send(hosting.saying("Remember nothing of this"), hosting.CALLER)

    async def everyone() -> None:
        await asyncio.gather(*(sender() for _ in range(at_once)))

    return await spent(everyone)


def left(host: Host, tasks: int) -> dict[str, int]:
    """Return what the engine and the hub still know."""
    engine = host.node
    return {
        "runs": len(engine._executions),
        "working": len(engine._working),
        "orphans": len(engine._orphans),
        "channels": len(engine.hub._channels),
        "asyncio tasks": len(asyncio.all_tasks()) - tasks,
    }


async def main() -> None:
    asked = json.loads(sys.argv[1])
    async with hosting.hosted(asked["address"], echo) as host:
        idle = len(asyncio.all_tasks())
        samples: list[tuple[float, ...]] = []
        for done in range(asked["warm_up"], asked["total"] + 1, asked["step"]):
            count = asked["step"] if samples else asked["warm_up"]
            taken = await send(host, count, asked["at_once"])
            samples.append((done, rss_mb(), count / taken.clock * 1e3, taken.cpu / count * 1e3))
            print(".", end="", file=sys.stderr, flush=True)
        await asyncio.sleep(0.1)  # what the last answers began has ended
        print(json.dumps({"samples": samples, "left": left(host, idle)}))


if __name__ == "__main__":
    uvloop.run(main())
