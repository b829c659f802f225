"""What goes over the wire between a workflow and an agent elsewhere: a proxy that writes it down, and can break it."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

BOUND_SECONDS = 60

STREAM, SEND, CANCEL, SUBSCRIBE, GET = "stream", "send", "cancel", "subscribe", "get"

CALLS = {
    "message/stream": STREAM,
    "SendStreamingMessage": STREAM,
    "message/send": SEND,
    "SendMessage": SEND,
    "tasks/cancel": CANCEL,
    "CancelTask": CANCEL,
    "tasks/resubscribe": SUBSCRIBE,
    "SubscribeToTask": SUBSCRIBE,
    "tasks/get": GET,
    "GetTask": GET,
}
"""Method of A2A 0.3 or 1.0 -> what it does."""

CARD = "card"


class Seen(NamedTuple):
    """One request: what it asks for, the method by its own name, its headers, and what it brings."""

    what: str
    method: str
    headers: dict[str, str]
    params: dict[str, Any]

    @property
    def text(self) -> str:
        """What its message says."""
        return "".join(part.get("text", "") for part in self.params["message"]["parts"])


class Wire:
    """A proxy before one agent.

    `cut_after` breaks the next stream off after so many events, and without `has_card` there is no card; `passed` is
    how many events streams have brought.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.url = ""
        self.seen: list[Seen] = []
        self.cut_after: int | None = None
        self.has_card = True
        self.is_cut = threading.Event()
        self.passed = 0
        self.news = threading.Condition()

    def note(self, seen: Seen) -> None:
        with self.news:
            self.seen.append(seen)
            self.news.notify_all()

    @property
    def order(self) -> list[str]:
        """What was asked for, in that order."""
        return [seen.what for seen in self.seen]

    def all(self, what: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.what == what]

    def waits_for(self, what: str, count: int = 1) -> Seen:
        """Wait until something was asked for so often."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.all(what)) >= count, BOUND_SECONDS), self.order
            return self.all(what)[count - 1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wire: Wire

    def do_GET(self) -> None:
        is_card = ".well-known" in self.path
        if is_card:
            self.wire.note(Seen(CARD, "GET", self._given(), {}))
        if is_card and not self.wire.has_card:
            self._reply(404, {}, b"nothing here")
        else:
            self._pass_on(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = json.loads(body or b"{}")
        method = call.get("method", "")
        self.wire.note(Seen(CALLS.get(method, method), method, self._given(), call.get("params", {})))
        self._pass_on(body)

    def _given(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def _pass_on(self, body: bytes) -> None:
        to = urlsplit(self.wire.upstream)
        connection = http.client.HTTPConnection(to.hostname or "", to.port, timeout=BOUND_SECONDS)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOPS}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOPS}
            if "text/event-stream" in kept.get("Content-Type", kept.get("content-type", "")):
                self._stream(answer, kept)
            else:
                found = answer.read().replace(self.wire.upstream.encode(), self.wire.url.encode())
                self._reply(answer.status, kept, found)
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            connection.close()

    def _stream(self, answer: http.client.HTTPResponse, headers: dict[str, str]) -> None:
        cut, self.wire.cut_after = self.wire.cut_after, None
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        events = 0
        if cut == 0:  # the agent has ended the stream without an event
            self.wire.is_cut.set()
            return
        while line := answer.readline():
            self.wfile.write(line)
            self.wfile.flush()
            if line.startswith(b"data:"):
                events += 1
                self.wire.passed += 1
            if line in (b"\n", b"\r\n") and cut is not None and events >= cut:
                self.wire.is_cut.set()
                return

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


_HOPS = frozenset({"host", "connection", "transfer-encoding", "content-length", "accept-encoding", "etag", "date"})
"""Headers that are about one connection, or about a body that is changed on the way."""


@contextmanager
def wired(upstream: str) -> Iterator[Wire]:
    """A proxy before an agent while the block runs."""
    wire = Wire(upstream)
    handler = type("Handler", (_Handler,), {"wire": wire})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    wire.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield wire
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
