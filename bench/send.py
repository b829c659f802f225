"""Blocking sends of a new task to an echo agent, without the wire: our service against the SDK's request handler."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import uvloop
from a2a.server.request_handlers import RequestHandler
from a2a.types import a2a_pb2

from accord.agents.echo import echo
from accord.model import Task, TaskState
from accord.service.host import Host
from bench import hosting, official
from bench.report import Table, side_by_side
from bench.setting import MEMORY, POSTGRES, SQLITE, Setting
from bench.timing import CPU, RATE, Measured, interleaved, paced

TOGETHER = (32, 1)
SAID = "Hello"

NOTES = (
    "One send: a new task, working, an artifact with the text, completed, and the whole task as the answer. accord:"
    " `Service.send` over a running host. a2a-sdk: `DefaultRequestHandler.on_message_send` with an executor that emits"
    " the same, over its `InMemoryTaskStore` or `DatabaseTaskStore`.",
    "In memory means SQLite's own memory for accord. The processor's time is that of the measured process, all threads,"
    " without the PostgreSQL server's.",
)


async def our_send(host: Host, _number: int) -> None:
    task = await host.default.send(hosting.saying(SAID), hosting.CALLER)
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED


async def their_send(handler: RequestHandler, _number: int) -> None:
    task = await handler.on_message_send(official.saying(SAID), official.context())
    assert task.status.state == a2a_pb2.TASK_STATE_COMPLETED


async def warm(send: Callable[[int], Awaitable[None]], at_once: int, seconds: float) -> Measured:
    await paced(send, at_once, seconds / 10)
    return await paced(send, at_once, seconds)


async def measured(setting: Setting) -> dict[str, Measured]:
    seconds = setting.size(1.5, 0.2)
    contenders = {}
    async with AsyncExitStack() as stack:
        for kind in (SQLITE, POSTGRES, MEMORY):
            host = await stack.enter_async_context(hosting.hosted(setting.database(kind), echo))
            handler = await stack.enter_async_context(official.handler(setting.database(kind), official.Chunks()))
            for at_once in TOGETHER:
                row = f"{kind}, {at_once} at once"
                contenders[f"{row}/accord"] = partial(warm, partial(our_send, host), at_once, seconds)
                contenders[f"{row}/a2a-sdk"] = partial(warm, partial(their_send, handler), at_once, seconds)
        return await interleaved(setting.rounds(3), contenders)


def run(setting: Setting) -> list[Table]:
    columns = (f"accord {RATE}", f"a2a-sdk {RATE}", "times", f"accord {CPU}", f"a2a-sdk {CPU}")
    rows = side_by_side(uvloop.run(measured(setting)), RATE)
    return [Table("Blocking send", "sends", columns, rows, (), NOTES)]
