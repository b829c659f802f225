"""Raw HTTP/1.1 connections: bytes out exactly as a test wants them, answers in exactly as they came.

Every client library would mend, refuse or hide something of what these tests send and look at.
"""

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

BOUND_SECONDS = 60.0
NO_BODY = (204, 304)


class HungUp(Exception):
    """The server closed the connection before there was a whole answer; what came is kept."""


class Answer(NamedTuple):
    """One answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """The only value of a header."""
        found = [value for key, value in self.headers if key == name]
        assert len(found) < 2, found
        return found[0] if found else None

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def said(self) -> bytes:
        """All of it but for the time of day, which two answers that are the same may differ in."""
        lines = [f"{name}: {value}" for name, value in self.headers if name != "date"]
        return "\r\n".join([str(self.status), *lines, ""]).encode("latin-1") + self.body


class Wire:
    """One connection."""

    def __init__(self, port: int, *, source: str | None = None, receive_buffer: int | None = None) -> None:
        self._socket = socket.socket()
        self._socket.settimeout(BOUND_SECONDS)
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source is not None:
            self._socket.bind((source, 0))
        self._socket.connect(("127.0.0.1", port))
        self._held = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def pour(self, data: bytes, *, most: int) -> None:
        """Send the same until the server has hung up; that it has not after so many bytes is a failure."""
        sent = 0
        with suppress(ConnectionError):
            while sent < most:
                self.say(data)
                sent += len(data)
            raise AssertionError(f"{sent} bytes were taken")

    def ask(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send a request that is as it should be, unless its headers say otherwise."""
        stated = {"Host": "localhost", "Content-Type": "application/json"} | dict(headers or {})
        if body or method == "POST":
            stated.setdefault("Content-Length", str(len(body)))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in stated.items()), "", ""]
        self.say("\r\n".join(lines).encode("latin-1") + body)

    # --- what comes back ----------------------------------------------------------------------------------------------

    def head(self) -> Answer:
        """Read the head of an answer; those that only say to go on are passed over."""
        while True:
            first, *lines = self.until(b"\r\n\r\n").decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
            version, status = first.split(" ")[:2]
            assert version == "HTTP/1.1", first
            fields = [line.split(": ", 1) for line in lines]
            if status != "100":
                return Answer(int(status), [(name.lower(), value) for name, value in fields], b"")

    def answer(self, *, is_head: bool = False) -> Answer:
        """Read one whole answer."""
        head = self.head()
        return head if is_head else head._replace(body=self.body(head))

    def body(self, head: Answer) -> bytes:
        """Read the body that belongs to a head."""
        if head.status in NO_BODY:
            return b""
        if head.header("transfer-encoding") == "chunked":
            return b"".join(iter(self.chunk, b""))
        length = head.header("content-length")
        return self.rest() if length is None else self.exactly(int(length))

    def chunk(self) -> bytes:
        """Read one chunk of a body; the last is empty."""
        size = int(self.until(b"\r\n"), 16)
        data = self.exactly(size)
        assert self.exactly(2) == b"\r\n"
        return data

    def rest(self) -> bytes:
        """Read until the server hangs up."""
        while more := self._more():
            self._held += more
        return self._taken(len(self._held))

    def until(self, end: bytes) -> bytes:
        """Read up to some bytes and them."""
        while (at := self._held.find(end)) < 0:
            self._fetch()
        return self._taken(at + len(end))

    def exactly(self, size: int) -> bytes:
        """Read so many bytes."""
        while len(self._held) < size:
            self._fetch()
        return self._taken(size)

    def _taken(self, size: int) -> bytes:
        found = bytes(self._held[:size])
        del self._held[:size]
        return found

    def _fetch(self) -> None:
        more = self._more()
        if not more:
            raise HungUp(bytes(self._held))
        self._held += more

    def _more(self) -> bytes:
        try:
            return self._socket.recv(1024 * 1024)
        except ConnectionResetError:
            return b""
