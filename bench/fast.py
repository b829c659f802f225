"""A server that costs almost nothing, for measuring clients: `python -m bench.fast PORT`.

It speaks just enough HTTP/1.1 for clients that send whole requests: one fixed card, one fixed answer with the caller's
id, and streams that are written in large pieces, made beforehand.
"""

import asyncio
import json
import re
import sys
from functools import cache
from typing import Any

import uvloop

from bench.words import TEXT

_ID = re.compile(rb'"id" ?: ?("[^"]*"|[0-9]+)')
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]+)", re.IGNORECASE)
_COUNT = re.compile(rb'"text" ?: ?"([0-9]+)"')

PIECE = 64 * 1024
"""Bytes written at once, of a stream."""

ANY_ID = b"<id>"
"""Stands for the caller's id in what was made beforehand."""

DONE = {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00.000Z"}
TASK = {
    "id": "t-1",
    "contextId": "c-1",
    "status": DONE,
    "artifacts": [{"artifactId": "answer", "parts": [{"text": "Hello"}]}],
}


def card(port: int) -> bytes:
    """Return the agent's card."""
    url = f"http://127.0.0.1:{port}/"
    found = {
        "name": "Fast",
        "description": "Answers at once",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "fast", "name": "Fast", "description": "Answers at once", "tags": ["fast"]}],
    }
    return json.dumps(found).encode()


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _framed(number: int, result: dict[str, Any]) -> bytes:
    said = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (ANY_ID, json.dumps(result).encode())
    return b"id: %d\ndata: %b\n\n" % (number, said)


@cache
def _events(count: int) -> bytes:
    """Return a stream to anybody: the task, so many chunks of its answer, and its end."""
    named = {"taskId": "t-1", "contextId": "c-1"}
    begun = {**TASK, "status": {**DONE, "state": "TASK_STATE_WORKING"}, "artifacts": []}
    frames = [_framed(0, {"task": begun})]
    for number in range(1, count + 1):
        artifact = {"artifactId": "answer", "parts": [{"text": TEXT}]}
        update = {**named, "artifact": artifact, "append": number > 1}
        frames.append(_framed(number, {"artifactUpdate": update}))
    frames.append(_framed(count + 1, {"statusUpdate": {**named, "status": DONE}}))
    return b"".join(frames)


class Connection(asyncio.Protocol):
    """One connection; whoever reads slowly is written to slowly."""

    card = b""

    def __init__(self) -> None:
        self._buffer = b""
        self._left: list[bytes] = []
        self._is_paused = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._buffer, 0, end + 2)
        size = end + 4 + (int(length[1]) if length else 0)
        if len(self._buffer) >= size:
            asked, self._buffer = self._buffer[:size], self._buffer[size:]
            self._answer(asked)

    def _answer(self, asked: bytes) -> None:
        if asked.startswith(b"GET"):
            self._transport.write(_whole(self.card))
            return
        found = _ID.search(asked, asked.index(b"\r\n\r\n"))
        identifier = found[1] if found else b"null"
        if b"SendStreamingMessage" not in asked:
            task = json.dumps({"task": TASK}).encode()
            self._transport.write(_whole(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (identifier, task)))
            return
        count = _COUNT.search(asked)
        events = _events(int(count[1]) if count else 1).replace(ANY_ID, identifier)
        self._left = [events[at : at + PIECE] for at in range(0, len(events), PIECE)][::-1]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        self._transport.write(head)
        self._write_on()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._write_on()

    def _write_on(self) -> None:
        while self._left and not self._is_paused:
            self._transport.write(self._left.pop())
            if not self._left:
                self._transport.close()


async def serve(port: int) -> None:
    Connection.card = card(port)
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
