"""Whole servers over HTTP: ours, the official SDK's, fasta2a, and a bare ASGI application that does nothing.

Each is a process of its own and is asked by this one, in turn. What must hold is a share of the bare application's
rate, so that it means the same on any machine.
"""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from time import perf_counter
from typing import NamedTuple

import uvloop

from bench import load
from bench.report import Table, Target
from bench.setting import MEMORY, POSTGRES, SQLITE, Setting
from bench.timing import Measured, in_rounds, medians

BARE = "bare ASGI"
STREAMS, CHUNKS = 16, 1000
SHORT = 50
"""Chunks of a stream that is rewritten as a whole with every chunk, so that the measurement ends."""

SEND, ONE, GET, CARD = "send, 32", "send, 1", "get, 32", "card, 16"
EVENTS, FIRST = "events", "first event ms"
START = "cold start ms"
SHARED = (SEND, ONE, GET, CARD, EVENTS, FIRST)

_numbers = count(1)


class Server(NamedTuple):
    """A server that is compared: how it is started, and how long a stream it can be asked for."""

    name: str
    command: Callable[[int, str], list[str]]
    kind: str = MEMORY
    chunks: int = CHUNKS


def _accord(port: int, database: str) -> list[str]:
    flags = ["--port", str(port), "--store", database]
    return [sys.executable, "-m", "accord", "serve", "bench.agents:bench", *flags]


def _other(name: str, port: int, database: str) -> list[str]:
    return [sys.executable, "-m", "bench.servers", name, str(port), database]


OURS = (
    Server(BARE, partial(_other, "bare")),
    Server("accord, SQLite", _accord, SQLITE),
    Server("accord, PostgreSQL", _accord, POSTGRES),
    Server("accord, memory", _accord),
)
OTHERS = (
    Server("a2a-sdk, SQLite", partial(_other, "a2a-sdk"), SQLITE, SHORT),
    Server("a2a-sdk, PostgreSQL", partial(_other, "a2a-sdk"), POSTGRES, SHORT),
    Server("a2a-sdk, memory", partial(_other, "a2a-sdk"), chunks=SHORT),
    Server("fasta2a, memory", partial(_other, "fasta2a")),
)
SERVERS = OURS + OTHERS


@asynccontextmanager
async def running(server: Server, database: str) -> AsyncIterator[int]:
    """Run a server until it has answered once, and then as long as the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    silent = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*server.command(port, database), stdout=silent, stderr=silent)
    try:
        await _answers(port, process)
        yield port
    finally:
        process.terminate()
        await process.wait()


async def _answers(port: int, process: asyncio.subprocess.Process) -> None:
    while process.returncode is None:
        try:
            await load.rate(port, sends, 1, 0)
            return
        except OSError:
            await asyncio.sleep(0.005)
    raise RuntimeError("A server did not start")


# --- requests ---------------------------------------------------------------------------------------------------------


_ASKED = (
    b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{"message":'
    b'{"messageId":"m-%d","role":"ROLE_USER","parts":[{"text":"%b"}]}}}'
)
_READ = b'{"jsonrpc":"2.0","id":%d,"method":"GetTask","params":{"id":"%b"}}'
_HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"


def posted(body: bytes) -> bytes:
    """Make a request of a body."""
    return b"%bContent-Length: %d\r\n\r\n%b" % (_HEAD, len(body), body)


def _call(method: bytes, text: bytes) -> bytes:
    number = next(_numbers)
    return posted(_ASKED % (number, method, number, text))


def sends(_number: int) -> bytes:
    """Make a request that sends a word."""
    return _call(b"SendMessage", b"Hello")


def _gets(tasks: list[bytes], number: int) -> bytes:
    return posted(_READ % (number, tasks[number % len(tasks)]))


async def made(port: int, requests: Iterable[bytes]) -> list[str]:
    """Send messages, one after the other, and return the ids of their tasks."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found: list[str] = []
    for request in requests:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        found.append(json.loads(await reader.readexactly(length))["result"]["task"]["id"])
    writer.close()
    return found


# --- measurements -----------------------------------------------------------------------------------------------------


async def measure(port: int, server: Server, seconds: float, chunks: int) -> Measured:
    """Measure everything of one server, once."""
    await load.rate(port, sends, 4, seconds / 10)
    length = min(chunks, server.chunks)
    many, one = await load.rate(port, sends, 32, seconds), await load.rate(port, sends, 1, seconds)
    found = {SEND: many.per_second, "p50 ms": many.p50, "p99 ms": many.p99, ONE: one.per_second}
    tasks = [id.encode() for id in await made(port, map(sends, range(20)))] if server.name != BARE else []
    found[GET] = (await load.rate(port, partial(_gets, tasks), 32, seconds)).per_second if tasks else many.per_second
    card = load.get("/.well-known/agent-card.json")
    found[CARD] = (await load.rate(port, lambda _: card, 16, seconds)).per_second
    events = await load.streams(port, lambda _: _call(b"SendStreamingMessage", b"%d" % length), STREAMS)
    if events.cut and not server.name.startswith("a2a-sdk"):  # whose SQLite store is locked for too long, now and then
        raise load.BadAnswer(f"{server.name} cut {events.cut} streams")
    return found | {EVENTS: events.per_second, FIRST: events.first, "streams cut": events.cut}


async def cold(server: Server, setting: Setting) -> Measured:
    """Measure how long a server takes from its start to its first answer."""
    database = setting.database(server.kind)
    start = perf_counter()
    async with running(server, database):
        return {START: (perf_counter() - start) * 1e3}


async def measured(setting: Setting) -> tuple[dict[str, Measured], dict[str, Measured]]:
    """Return what was measured, and the shares.

    All are measured in turn with the bare application: ours in many short rounds, as their shares are what must hold
    and the machine is twice as fast in one second as in the next; the others are so far away that a few rounds tell.
    """
    async with AsyncExitStack() as stack:
        ports = {one.name: await stack.enter_async_context(running(one, setting.database(one.kind))) for one in SERVERS}

        async def taken(which: tuple[Server, ...], rounds: int, seconds: float) -> dict[str, list[Measured]]:
            size = setting.size((seconds, CHUNKS), (0.2, CHUNKS // 10))
            measures = {one.name: partial(measure, ports[one.name], one, *size) for one in which}
            return await in_rounds(setting.rounds(rounds), measures)

        ours = await taken(OURS, 20, 0.35)
        others = await taken((OURS[0], *OTHERS), 3, 1.2)
    shares = _shares(ours, BARE, SHARED) | _shares(others, BARE, SHARED)
    del shares[BARE], others[BARE]  # ours are what its row stands beside
    rows = medians(ours | others)
    starts = {one.name: partial(cold, one, setting) for one in SERVERS if one.kind == MEMORY}
    started = await in_rounds(setting.rounds(3), starts)
    for name, found in medians(started).items():
        rows[name] |= found
    for name, found in _shares(started, "a2a-sdk, memory", (START,)).items():
        if name != BARE:
            shares[name]["start, of a2a-sdk"] = found[START]
    return rows, shares


def _shares(taken: dict[str, list[Measured]], whole: str, columns: tuple[str, ...]) -> dict[str, Measured]:
    """Return what each is of one of them: the middle of its shares in each round."""
    return medians(
        {
            name: [
                {column: one[column] / other[column] for column in columns}
                for one, other in zip(found, taken[whole], strict=True)
            ]
            for name, found in taken.items()
        }
    )


NOTES = (
    "JSON-RPC of A2A 1.0 over keep-alive connections: blocking sends of a new task to an agent that repeats a word,"
    " with 32 connections and with one; reading ended tasks; the card. Requests per second.",
    f"{STREAMS} streams at once of {CHUNKS} chunks of 50 bytes, for the a2a-sdk of {SHORT}, because it rewrites the"
    " task with each: events per second, and when the first arrives. Every event of ours is on the disk before it is"
    " sent.",
    "The bare application parses the JSON and answers a fixed task, or writes fixed events. fasta2a answers a send"
    " before its agent has run.",
)
TARGETS = (
    Target("accord, SQLite", SEND, at_least=0.10),
    Target("accord, PostgreSQL", SEND, at_least=0.12),
    Target("accord, SQLite", ONE, at_least=0.10),
    Target("accord, SQLite", GET, at_least=0.3),
    Target("accord, PostgreSQL", GET, at_least=0.3),
    Target("accord, SQLite", CARD, at_least=0.8),
    Target("accord, SQLite", EVENTS, at_least=0.2),
    Target("accord, PostgreSQL", EVENTS, at_least=0.2),
    Target("accord, SQLite", FIRST, at_most=5),
    Target("accord, PostgreSQL", FIRST, at_most=5),
    Target("accord, memory", "start, of a2a-sdk", at_most=0.5),
)


def run(setting: Setting) -> list[Table]:
    rows, shares = uvloop.run(measured(setting))
    columns = (SEND, "p50 ms", "p99 ms", ONE, GET, CARD, EVENTS, FIRST, "streams cut", START)
    share = (*SHARED, "start, of a2a-sdk")
    return [
        Table("Whole servers", "per second", columns, rows, (), NOTES),
        Table("As a share of the bare application", "of bare", share, shares, TARGETS),
    ]
