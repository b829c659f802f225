"""A webhook that behaves as a test says: real HTTP on loopback, and every way of not speaking it well."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

BOUND_SECONDS = 30.0


class Asked(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]


Behave = Callable[[Asked, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Writes an answer, or something else."""


class Webhook:
    """What listens: the answers are given one after the other, and the last of them for good."""

    def __init__(self, url: str, *answers: Behave) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self.answers = list(answers)
        self.open = 0
        self.changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._count(1)
        try:
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                async with self.changed:
                    self.changed.notify_all()
                await answer(asked, reader, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            await self._count(-1)

    async def _count(self, change: int) -> None:
        async with self.changed:
            self.open += change
            self.changed.notify_all()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(BOUND_SECONDS), self.changed:
            await self.changed.wait_for(is_so)


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(first.split()[0], first.split()[1], headers, body)


@asynccontextmanager
async def webhook(*answers: Behave) -> AsyncIterator[Webhook]:
    """Listen while the block runs."""
    found = Webhook("", *answers)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, limit=64 * 1024 * 1024)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/webhook/flow"
    try:
        yield found
    finally:
        server.close()


# --- ways to answer ---------------------------------------------------------------------------------------------------


def says(body: Any, media_type: str = "application/json", status: int = 200, **headers: str) -> Behave:
    """Answer as one should."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    more = {"Content-Type": media_type, "Content-Length": str(len(content))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }

    async def answer(_asked: Asked, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(status, {name: value for name, value in more.items() if value}) + content)

    return answer


def streams(pieces: Sequence[bytes], media_type: str, go: asyncio.Event | None = None, *, ends: bool = True) -> Behave:
    """Answer in chunks; with `go`, only the first until that is set. One that does not end is cut off."""

    async def answer(_asked: Asked, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(200, {"Content-Type": media_type, "Transfer-Encoding": "chunked"}))
        for at, piece in enumerate(pieces):
            if at == 1 and go is not None:
                async with asyncio.timeout(BOUND_SECONDS):
                    await go.wait()
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        if ends:
            writer.write(b"0\r\n\r\n")
        else:
            writer.close()

    return answer


def writes(content: bytes) -> Behave:
    """Write something that need not be HTTP, and hang up."""

    async def answer(_asked: Asked, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        await writer.drain()
        writer.close()

    return answer


async def hangs(_asked: Asked, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Say nothing until the other side hangs up."""
    await reader.read()


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
