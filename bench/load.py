"""Load over HTTP/1.1 from this process: many connections that each wait for their answer, and streams that are counted.

It parses no more than it must, because what the client costs is missing from the ratio between two servers.
"""

import asyncio
import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

Request = Callable[[int], bytes]
"""Makes the bytes of the request with that number."""


def get(path: str, *headers: str) -> bytes:
    """Return a whole request."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


class BadAnswer(Exception):
    """The server did not answer as it should."""


class _Asking(asyncio.Protocol):
    """One connection that asks again as soon as it has its answer."""

    def __init__(self, request: Request, numbers: "Numbers", until: float) -> None:
        self._request = request
        self._numbers = numbers
        self._until = until
        self._buffer = b""
        self._sent = 0.0
        self.waits: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or len(self._buffer) < end + 4 + _length(self._buffer[:end]):
            return
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            self._fail(BadAnswer(self._buffer[:500].decode(errors="replace")))
            return
        now = perf_counter()
        self.waits.append(now - self._sent)
        self._buffer = b""
        if now >= self._until:
            self._transport.close()
            self.done.set_result(None)
        else:
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(BadAnswer(f"The connection was closed: {exc}"))

    def _ask(self) -> None:
        self._sent = perf_counter()
        self._transport.write(self._request(self._numbers.next()))

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Numbers:
    """Counts the requests of all connections."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last


def _length(head: bytes) -> int:
    at = head.lower().find(b"content-length:")
    if at < 0:
        raise BadAnswer(f"An answer without a length: {head[:200]!r}")
    return int(head[at + 15 : (head + b"\r").index(b"\r", at)])


class Rate:
    """How many requests a second were answered, and how long they took, in milliseconds."""

    def __init__(self, waits: list[float], seconds: float) -> None:
        cuts = statistics.quantiles(waits, n=100) if len(waits) > 1 else [waits[0]] * 99
        self.per_second = len(waits) / seconds
        self.p50, self.p99 = cuts[49] * 1e3, cuts[98] * 1e3


async def rate(port: int, request: Request, at_once: int, seconds: float) -> Rate:
    """Let so many connections ask for a while."""
    numbers, start = Numbers(), perf_counter()
    until = start + seconds
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: _Asking(request, numbers, until), "127.0.0.1", port)
        for _ in range(at_once)
    ]
    asking = [protocol for _, protocol in made]
    await asyncio.gather(*(one.done for one in asking))
    return Rate([wait for one in asking for wait in one.waits], perf_counter() - start)


# --- streams ----------------------------------------------------------------------------------------------------------


class _Reading(asyncio.Protocol):
    """One connection that reads one stream to its end."""

    def __init__(self, request: bytes) -> None:
        self._bytes = request
        self._last = b""
        self.events = 0
        self.is_cut = False
        self.first: float | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._start = perf_counter()
        transport.write(self._bytes)

    def data_received(self, data: bytes) -> None:
        found = (self._last[-6:] + data).count(b"data: ") - self._last[-6:].count(b"data: ")
        if found and self.first is None:
            self.first = perf_counter() - self._start
        self.events += found
        self._last = (self._last + data)[-64:]
        if self._last.endswith(b"0\r\n\r\n"):  # the chunk that ends the body
            self._transport.close()
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.is_cut = True
            self.done.set_result(None)


class Streams:
    """How many events a second arrived, when the first ones did, in milliseconds, and how many streams were cut."""

    def __init__(self, reading: list[_Reading], seconds: float) -> None:
        self.per_second = sum(one.events for one in reading) / seconds
        self.first = statistics.median([one.first for one in reading if one.first is not None] or [0.0]) * 1e3
        self.cut = sum(one.is_cut for one in reading)


async def streams(port: int, request: Request, at_once: int) -> Streams:
    """Let so many connections read a stream each."""
    loop, start = asyncio.get_running_loop(), perf_counter()
    made = [
        await loop.create_connection(partial(_Reading, request(number)), "127.0.0.1", port) for number in range(at_once)
    ]
    reading = [protocol for _, protocol in made]
    await asyncio.gather(*(one.done for one in reading))
    return Streams(reading, perf_counter() - start)
