"""Many agents that stream at once, every event on the disk before anybody sees it: our engine against the SDK's.

Both are measured whole, from the send to the last event of each stream: queue, run, store and follower, without a wire.
What one event costs the store when each is written for itself is `bench.append`.
"""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from time import perf_counter

import uvloop
from a2a.server.request_handlers import RequestHandler

from accord.service.host import Host
from bench import hosting, official
from bench.chunks import chunks, our_stream, their_stream
from bench.report import Table, Target, side_by_side
from bench.setting import POSTGRES, SQLITE, Setting
from bench.timing import RATE, Measured, interleaved
from bench.words import TEXT

STREAMS = 64
LENGTH = 128
TIMES = 50

NOTES = (
    f"{STREAMS} tasks at once, each of which streams {LENGTH} chunks of {len(TEXT)} bytes to a follower as fast as it"
    " can; events per second until the last follower has its last.",
    "accord: `Service.stream`. a2a-sdk: `DefaultRequestHandler.on_message_send_stream` over its `DatabaseTaskStore`; a"
    " stream that breaks because its store is locked counts for nothing.",
)


async def ours(host: Host, length: int) -> Measured:
    start = perf_counter()
    await asyncio.gather(*(our_stream(host, length) for _ in range(STREAMS)))
    return {RATE: STREAMS * length / (perf_counter() - start)}


async def theirs(handler: RequestHandler, length: int) -> Measured:
    start = perf_counter()
    streams = (their_stream(handler, length) for _ in range(STREAMS))
    ended = await asyncio.gather(*streams, return_exceptions=True)
    broken = [error for error in ended if error is not None]
    for error in broken:
        if not isinstance(error, official.REFUSALS):
            raise error
    return {RATE: (STREAMS - len(broken)) * length / (perf_counter() - start), "broken": len(broken)}


async def measured(setting: Setting) -> dict[str, Measured]:
    length = setting.size(LENGTH, LENGTH // 16)
    contenders = {}
    async with AsyncExitStack() as stack:
        for kind in (SQLITE, POSTGRES):
            host = await stack.enter_async_context(hosting.hosted(setting.database(kind), chunks))
            agent = official.Chunks(TEXT)
            handler = await stack.enter_async_context(official.handler(setting.database(kind), agent))
            contenders[f"{kind}/accord"] = partial(ours, host, length)
            contenders[f"{kind}/a2a-sdk"] = partial(theirs, handler, length)
        return await interleaved(setting.rounds(3), contenders)


def run(setting: Setting) -> list[Table]:
    rows = side_by_side(uvloop.run(measured(setting)), RATE)
    columns = (f"accord {RATE}", f"a2a-sdk {RATE}", "times", "a2a-sdk broken")
    targets = tuple(Target(kind, "times", at_least=TIMES) for kind in (SQLITE, POSTGRES))
    return [Table(f"{STREAMS} streams at once, durably", "events", columns, rows, targets, NOTES)]
