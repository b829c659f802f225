"""Flows behind a webhook: an HTTP server beside the suite, whose paths are the behaviours."""

import base64
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from accord.agents.http import AGENT_TYPE
from accord.agents.http.flow import HttpOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject

URL = "flow-url"
"""The file in the scratch folder that has the address."""


class Flow(BaseHTTPRequestHandler):
    """One request to a flow; the class of a server knows its scratch folder."""

    protocol_version = "HTTP/1.1"
    scratch: Path
    said: dict[str, list[str]]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        behaves: Callable[[dict[str, Any]], None] = getattr(self, self.path.strip("/"))
        try:
            behaves(asked)
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def chunks(self) -> Callable[[str], None]:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

        def say(text: str) -> None:
            self.wfile.write(f"data: {json.dumps({'text': text})}\n\n".encode())
            self.wfile.flush()

        return say

    # --- behaviours ---------------------------------------------------------------------------------------------------

    def echo(self, asked: dict[str, Any]) -> None:
        self.answer([{"output": f"you said {asked['message']}"}])

    def stream(self, asked: dict[str, Any]) -> None:
        say = self.chunks()
        for word in ("one ", "two ", "three "):
            say(word)

    def held(self, asked: dict[str, Any]) -> None:
        say = self.chunks()
        say("one ")
        marks.held_in_thread(self.scratch)
        say("two ")

    def remember(self, asked: dict[str, Any]) -> None:
        before = self.said.setdefault(asked["metadata"]["context_id"], [])
        before.append(asked["message"])
        self.answer({"text": " ".join(before)})

    def slow(self, asked: dict[str, Any]) -> None:
        marks.work_in_thread(self.scratch, self.is_left)
        self.close_connection = True

    def is_left(self) -> bool:
        """Whether whoever asked has hung up."""
        is_there, _, _ = select.select([self.connection], [], [], 0)
        return bool(is_there) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def fail(self, asked: dict[str, Any]) -> None:
        self.answer({"error": "no such city\nTraceback: flow.py"}, 422)

    def ask(self, asked: dict[str, Any]) -> None:
        if asked["message"] == "Rome":
            self.answer({"output": "to Rome"})
        else:
            self.answer({"status": "input-required", "text": "Which city?"})

    def file(self, asked: dict[str, Any]) -> None:
        (given,) = asked["files"]
        changed = base64.b64encode(base64.b64decode(given["data"]) + b"!").decode()
        self.answer({"text": "changed", "files": [given | {"data": changed}]})

    def usage(self, asked: dict[str, Any]) -> None:
        self.answer({"output": "done", "usage": {"prompt_tokens": 7, "completion_tokens": 5}})


@contextmanager
def beside(scratch: Path) -> Iterator[None]:
    """Have the flows run."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Flow,), {"scratch": scratch, "said": {}}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    (scratch / URL).write_text(f"http://127.0.0.1:{server.server_port}")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=marks.BOUND_SECONDS)


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    options = HttpOptions(
        url=f"{(scratch / URL).read_text()}/{behaviour}", multimodal_mode=True, timeout=marks.LONG_SECONDS
    )
    return AGENT_TYPE.make(AgentArguments(options=options, name="subject"))


HAS = frozenset({"echo", "stream", "held", "remember", "slow", "fail", "ask", "file", "usage"})
SUBJECT = Subject(kind="http", make=make, has=HAS, crash=Crash.FAIL, beside=beside)
