"""A webhook on loopback, from nothing but the standard library: peers run it in environments of their own.

It answers everything with 200, and judges nothing but which state is told.
"""

import asyncio
import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple

from interop.outcome import BOUND_SECONDS

COMPLETED = {"TASK_STATE_COMPLETED", "completed", "COMPLETED"}
"""In A2A 1.0, 0.3 and AgentVault's profile."""


class Told(NamedTuple):
    """One request."""

    headers: dict[str, str]
    body: Any


class Hook:
    """A place to be told about tasks, while the block runs."""

    def __init__(self) -> None:
        """Listen once entered."""
        self.url = ""
        self.got: list[Told] = []
        self._more = asyncio.Event()

    async def __aenter__(self) -> "Hook":
        """Begin to listen."""
        self._server = await asyncio.start_server(self._receive, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop to listen."""
        self._server.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.got.append(Told(headers, json.loads(body)))
        self._more.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def completed(self) -> Told:
        """Wait for the request that says that a task has completed."""
        async with asyncio.timeout(BOUND_SECONDS):
            while True:
                for told in self.got:
                    if COMPLETED.intersection(_values("state", told.body)):
                        return told
                self._more.clear()
                await self._more.wait()


def _values(key: str, body: Any) -> Iterator[str]:
    """Everything of a name, at any depth."""
    if isinstance(body, dict):
        for name, value in body.items():
            if name == key and isinstance(value, str):
                yield value
            else:
                yield from _values(key, value)
    elif isinstance(body, list):
        for value in body:
            yield from _values(key, value)


def mentions(told: Told, task_id: str) -> bool:
    """Whether a request is about a task."""
    return task_id in {*_values("id", told.body), *_values("taskId", told.body)}
