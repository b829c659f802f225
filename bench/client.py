"""Clients against one fast server: ours, the official SDK's, and aiohttp without any A2A.

The server (`bench.fast`) is a process of its own and answers before a client has got ready to wait, so what is measured
is the client: whole calls, one at a time and 32 at once, and how fast it reads a stream.
"""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

import uvloop

from accord.client import Client
from accord.model import Message, Part, Role, SendRequest
from bench.report import Table, Target
from bench.setting import Setting
from bench.timing import RATE, Measured, interleaved, paced

RAW, OURS, SDK = "aiohttp", "accord", "a2a-sdk"
ONE, MANY, EVENTS = "calls, 1", "calls, 32", "events"
AT_ONCE = 32
CHUNKS = 20_000

_numbers = count(1)


class Contender(NamedTuple):
    """A client that is compared: how it makes one call, and how it reads a stream and says how much that was."""

    call: Callable[[], Awaitable[object]]
    read: Callable[[int], Awaitable[int]]


@asynccontextmanager
async def _served() -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.fast", str(port))
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                break
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        await process.wait()


# --- the clients ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Contender]:
    import aiohttp

    def asked(method: str, text: str) -> dict[str, Any]:
        number = next(_numbers)
        message = {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": text}]}
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": {"message": message}}

    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def call() -> object:
            async with session.post(url, data=json.dumps(asked("SendMessage", "Hello")).encode()) as response:
                return json.loads(await response.read())["result"]["task"]

        async def read(chunks: int) -> int:
            body = json.dumps(asked("SendStreamingMessage", str(chunks))).encode()
            async with session.post(url, data=body) as response:
                return sum([piece.count(b"\n\n") async for piece in response.content.iter_any()])

        yield Contender(call, read)


@asynccontextmanager
async def ours(url: str) -> AsyncIterator[Contender]:
    def asked(text: str) -> SendRequest:
        return SendRequest(
            message=Message(message_id=f"m-{next(_numbers)}", role=Role.USER, parts=(Part(text=text),)),
        )

    async with Client.connect(url) as client:

        async def call() -> object:
            return await client.send(asked("Hello"))

        async def read(chunks: int) -> int:
            return sum([1 async for _ in client.stream(asked(str(chunks)))])

        yield Contender(call, read)


@asynccontextmanager
async def official(url: str) -> AsyncIterator[Contender]:
    import httpx
    from a2a.client import A2ACardResolver, ClientConfig, ClientFactory

    from bench.official import saying

    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        plain, streaming = (
            ClientFactory(ClientConfig(streaming=streams, httpx_client=http)).create(card) for streams in (False, True)
        )

        async def call() -> object:
            return [answer async for answer in plain.send_message(saying("Hello"))]

        async def read(chunks: int) -> int:
            return sum([1 async for _ in streaming.send_message(saying(str(chunks)))])

        yield Contender(call, read)


CONTENDERS = {RAW: raw, OURS: ours, SDK: official}

# --- measurements -----------------------------------------------------------------------------------------------------


async def measure(contender: Contender, seconds: float, chunks: int) -> Measured:
    """Measure everything of one client, once."""

    async def call(_number: int) -> None:
        await contender.call()

    one = (await paced(call, 1, seconds))[RATE]
    many = (await paced(call, AT_ONCE, seconds))[RATE]
    start = perf_counter()
    events = await contender.read(chunks)
    taken = perf_counter() - start
    if events < chunks:
        raise RuntimeError(f"{events} of {chunks} events arrived")
    return {ONE: one, MANY: many, EVENTS: events / taken}


async def measured(setting: Setting) -> dict[str, Measured]:
    seconds, chunks = setting.size(1.5, 0.1), setting.size(CHUNKS, CHUNKS // 20)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_served())
        made = {name: await stack.enter_async_context(make(url)) for name, make in CONTENDERS.items()}
        return await interleaved(
            setting.rounds(5), {name: partial(measure, found, seconds, chunks) for name, found in made.items()}
        )


def _ratios(rows: dict[str, Measured]) -> dict[str, Measured]:
    found = rows[OURS]
    return {
        f"cost of {RAW}": {ONE: rows[RAW][ONE] / found[ONE], MANY: rows[RAW][MANY] / found[MANY]},
        f"rate of {SDK}": {column: found[column] / rows[SDK][column] for column in (ONE, MANY, EVENTS)},
    }


NOTES = (
    f"Calls a second of `SendMessage`, one at a time and {AT_ONCE} at once over kept connections, each with a message"
    f" of its own and its answer read into a task; events a second of a stream of {CHUNKS:,} chunks.",
    "The server answers with bytes that were made beforehand. aiohttp posts and parses the same JSON and knows nothing"
    " of A2A; of a stream it only counts the events.",
)
TARGETS = (
    Target(f"cost of {RAW}", ONE, at_most=1.5),
    Target(f"cost of {RAW}", MANY, at_most=1.5),
    Target(f"rate of {SDK}", ONE, at_least=3),
    Target(f"rate of {SDK}", MANY, at_least=8),
    Target(f"rate of {SDK}", EVENTS, at_least=8),
)


def run(setting: Setting) -> list[Table]:
    rows = uvloop.run(measured(setting))
    return [
        Table("Clients", "per second", (ONE, MANY, EVENTS), rows, (), NOTES),
        Table("Our client, as times", "times", (ONE, MANY, EVENTS), _ratios(rows), TARGETS),
    ]
