"""Servers on loopback that are not ours: what they answer, and what time they think it is."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from accord.model import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from accord.protocol.cards import encode_card
from accord.protocol.operations import DialectName

CARD = "/.well-known/agent-card.json"


class Elsewhere(ThreadingHTTPServer):
    """Answers what it was given, by the path, and 404 for the rest; its clock is `ahead` by so many seconds."""

    daemon_threads = True

    def __init__(self, ahead: float = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ahead = ahead
        self.pages: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Elsewhere

    def do_GET(self) -> None:
        body = self.server.pages.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((time.time() if timestamp is None else timestamp) + self.server.ahead)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def elsewhere(
    pages: Mapping[str, bytes] | None = None, ahead: float = 0, *, agent: bool = False
) -> Iterator[Elsewhere]:
    """Serve while the block runs; an `agent` has a card."""
    with Elsewhere(ahead) as server:
        server.pages |= pages or {}
        if agent:
            server.pages[CARD] = card(server.url)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def card(url: str) -> bytes:
    """The card of an agent at an address."""
    stated = AgentCard(
        name="weather",
        description="Says how the weather is",
        version="1.0.0",
        supported_interfaces=(AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0"),),
        capabilities=AgentCapabilities(),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(AgentSkill(id="weather", name="weather", description="Says how it is", tags=("weather",)),),
    )
    return encode_card(stated, frozenset({DialectName.V1}))
