"""What length costs: chunks of one streamed task, messages of one context, turns of one task. It must be linear.

A stream is measured through a real run: sent to the service, committed chunk by chunk, followed to its end. The SDK is
asked for fewer chunks, because it rewrites the task for each.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import uvloop
from a2a.server.request_handlers import RequestHandler

from accord.agents.function import agent
from accord.engine.context import Context
from accord.model import Task, TaskState
from accord.service.host import Host
from bench import hosting, official
from bench.report import Table, Target
from bench.setting import POSTGRES, SQLITE, Setting
from bench.timing import TRIES, Measured, best, interleaved, spent
from bench.words import TEXT

LENGTHS = (1000, 2000, 4000)
THEIR_LENGTHS = (50, 100, 200)
TWICE = "second / first"
FOURFOLD = "third / second"
CPU_TWICE = f"CPU {TWICE}"
AT_MOST_TWICE = 2.2
AT_MOST_LATER = 1.3

MESSAGES = 200

STREAM_NOTES = (
    f"One task that streams chunks of {len(TEXT)} bytes; milliseconds from the send to the last event, one stream at a"
    f" time. Twice as long may cost {AT_MOST_TWICE} times as much. CPU is this process's, without a database server's.",
    "accord: `Service.stream` over a running host. a2a-sdk: `DefaultRequestHandler.on_message_send_stream` over its"
    " `DatabaseTaskStore`, which is asked for a twentieth of the chunks.",
)
MESSAGE_NOTES = (
    f"{MESSAGES} blocking sends, one after the other: each a new task of one context, or each the answer to a question"
    " that one task asks (`ctx.ask`). Milliseconds for the first and for the second half.",
)


@agent(name="Chunks")
async def chunks(ctx: Context) -> Any:
    """Say as many chunks as asked for."""
    for _ in range(int(ctx.text)):
        yield TEXT


@agent(name="Asker")
async def asker(ctx: Context) -> str:
    """Ask as many questions as asked for."""
    for number in range(int(ctx.text)):
        await ctx.ask(f"What comes after {number}?")
    return "Enough"


async def our_stream(host: Host, length: int) -> None:
    events = [event async for event in host.services["Chunks"].stream(hosting.saying(str(length)), hosting.CALLER)]
    assert events[-1].seq in (length + 2, length + 3)  # working, the chunks, perhaps an empty last one, completed


async def their_stream(handler: RequestHandler, length: int) -> None:
    stream = handler.on_message_send_stream(official.saying(str(length)), official.context())
    assert len([event async for event in stream]) == length + 3  # the task, working, the chunks, completed


async def grown(stream: Callable[[int], Awaitable[None]], lengths: tuple[int, ...], tries: int) -> Measured:
    """Measure a stream of each length."""
    first, second, third = [await best(partial(stream, length), tries) for length in lengths]
    return {
        "first": first.clock,
        "second": second.clock,
        "third": third.clock,
        TWICE: second.clock / first.clock,
        FOURFOLD: third.clock / second.clock,
        CPU_TWICE: second.cpu / first.cpu,
    }


async def halves(send: Callable[[], Awaitable[None]], count: int) -> Measured:
    """Measure the first and the second half of so many sends."""
    first, second = [await spent(send, count // 2) for _ in range(2)]
    return {
        "first": first.clock,
        "second": second.clock,
        TWICE: second.clock / first.clock,
        CPU_TWICE: second.cpu / first.cpu,
    }


async def one_context(host: Host, count: int) -> Measured:
    context_id = host.node.make_id()

    async def send() -> None:
        await host.services["Chunks"].send(hosting.saying("1", context_id=context_id), hosting.CALLER)

    return await halves(send, count)


async def one_task(host: Host, count: int) -> Measured:
    service = host.services["Asker"]
    task = await service.send(hosting.saying(str(count + 1)), hosting.CALLER)
    assert isinstance(task, Task)
    assert task.status.state is TaskState.INPUT_REQUIRED

    async def send() -> None:
        await service.send(hosting.saying("One more", task_id=task.id), hosting.CALLER)

    return await halves(send, count)


async def measured(setting: Setting) -> tuple[dict[str, Measured], dict[str, Measured]]:
    lengths = setting.size(LENGTHS, tuple(length // 10 for length in LENGTHS))
    theirs = setting.size(THEIR_LENGTHS, tuple(length // 10 for length in THEIR_LENGTHS))
    count = setting.size(MESSAGES, MESSAGES // 10)
    streams, messages = {}, {}
    async with AsyncExitStack() as stack:
        for kind in (SQLITE, POSTGRES):
            host = await stack.enter_async_context(hosting.hosted(setting.database(kind), chunks, asker))
            streams[f"accord on {kind}, {_listed(lengths)}"] = partial(grown, partial(our_stream, host), lengths, TRIES)
            messages[f"{count} tasks of one context, {kind}"] = partial(one_context, host, count)
            messages[f"{count} turns of one task, {kind}"] = partial(one_task, host, count)
        handler = await stack.enter_async_context(official.handler(setting.database(SQLITE), official.Chunks(TEXT)))
        streams[f"a2a-sdk on {SQLITE}, {_listed(theirs)}"] = partial(grown, partial(their_stream, handler), theirs, 1)
        rounds = setting.rounds(5)
        return await interleaved(rounds, streams), await interleaved(rounds, messages)


def _listed(lengths: tuple[int, ...]) -> str:
    return " / ".join(f"{length:,}" for length in lengths)


def run(setting: Setting) -> list[Table]:
    streams, messages = uvloop.run(measured(setting))
    ours = tuple(Target(row, TWICE, at_most=AT_MOST_TWICE) for row in streams if row.startswith("accord"))
    linear = tuple(Target(row, TWICE, at_most=AT_MOST_LATER) for row in messages)
    lengths, parts = ("first", "second", "third", TWICE, FOURFOLD, CPU_TWICE), ("first", "second", TWICE, CPU_TWICE)
    return [
        Table("Chunks of one task", "milliseconds", lengths, streams, ours, STREAM_NOTES),
        Table("Messages in a row", "milliseconds", parts, messages, linear, MESSAGE_NOTES),
    ]
