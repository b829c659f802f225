"""The proof of 60 seconds: `python examples/kill9/run.py`, or `make kill9`.

It serves an agent, streams its answer, kills the server with SIGKILL in mid-sentence, starts it again and asks for the
rest with `Last-Event-ID`. It ends with 0 only if every event came exactly once and the answer is whole. The client is
Python's own http.client: what is proven is on the wire, not in a library.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agent import SENTENCE

HERE = Path(__file__).resolve().parent
KILL_AFTER = 7
"""Words that the client has heard when the server dies."""

BOUND_SECONDS = 60


BEGUN = time.monotonic()


class Event(NamedTuple):
    """What a stream says: a place in the log of the task, and what A2A 1.0 has for it.

    A stream begins with the task as it is at that place; everything that follows is one event of the log.
    """

    id: int
    body: dict[str, Any]

    @property
    def word(self) -> str:
        """The piece of the answer that it brings."""
        parts = self.body.get("artifactUpdate", {}).get("artifact", {}).get("parts", [])
        return "".join(part.get("text", "") for part in parts)

    @property
    def is_task(self) -> bool:
        """Whether it is the task so far, and no event."""
        return "task" in self.body

    def __str__(self) -> str:
        """Say it in one line."""
        status = (self.body.get("task") or self.body.get("statusUpdate") or {}).get("status", {})
        state = status.get("state", "").removeprefix("TASK_STATE_").lower()
        return (
            f"the task after event {self.id}: {state}" if self.is_task else f"{self.id:4}  {state or repr(self.word)}"
        )


def tell(who: str, what: object) -> None:
    """Say what happens, as it happens."""
    print(f"{time.monotonic() - BEGUN:5.1f} s  {who:7} {what}", flush=True)


class Server:
    """`accord serve` as a process of its own, on the same port and the same store whenever it is started."""

    def __init__(self, folder: Path) -> None:
        """Choose a port."""
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    def start(self) -> None:
        """Start it and wait until it answers."""
        serve = [sys.executable, "-m", "accord", "serve", f"{HERE / 'agent.py'}:speaker"]
        options = ["--port", str(self.port), "--store", f"sqlite:///{self.folder}/kill9.db"]
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen([*serve, *options], stderr=log, cwd=self.folder)
        until = time.monotonic() + BOUND_SECONDS
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"The server did not start:\n{(self.folder / 'server.log').read_text()}")
            time.sleep(0.05)
        tell("server", f"process {self.process.pid} listens on port {self.port}")

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), contextlib.closing(self.connect()) as connection:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

    def kill(self) -> None:
        """Kill it as nothing can be caught: no handler runs, nothing is flushed, nobody is told."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(BOUND_SECONDS)
        tell("server", f"kill -9 {self.process.pid}")

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection to it."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_SECONDS)

    def stream(self, method: str, params: dict[str, Any], **headers: str) -> Iterator[Event]:
        """Call a method of A2A 1.0 and yield its events, until the stream ends or breaks."""
        tell("client", " ".join([method, *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]))
        call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        with contextlib.closing(self.connect()) as connection:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            sent |= {"Content-Type": "application/json", "A2A-Version": "1.0", "Accept": "text/event-stream"}
            connection.request("POST", "/", call, sent)
            yield from events(connection.getresponse())


def events(response: http.client.HTTPResponse) -> Iterator[Event]:
    """Read server-sent events, each with the number that its `id` says."""
    number = 0
    for line in response:
        name, _, value = line.decode().strip().partition(":")
        if name == "id":
            number = int(value)
        elif name == "data":
            event = Event(number, json.loads(value)["result"])
            tell("", event)
            yield event


def interrupted(server: Server) -> list[Event]:
    """Stream an answer and kill the server while it comes; return what was heard."""
    heard: list[Event] = []
    message = {"messageId": "kill9", "role": "ROLE_USER", "parts": [{"text": "Say it"}]}
    with contextlib.suppress(OSError, http.client.HTTPException):
        for event in server.stream("SendStreamingMessage", {"message": message}):
            heard.append(event)
            if sum(bool(one.word) for one in heard) == KILL_AFTER and server.process.poll() is None:
                server.kill()
    tell("client", f"the stream broke after event {heard[-1].id}")
    return heard


def proven(before: list[Event], after: list[Event]) -> bool:
    """Say whether events are numbered from 1 without a gap or a repetition, and make up the answer."""
    events = [event for event in [*before, *after] if not event.is_task]
    numbers, answer = [event.id for event in events], "".join(event.word for event in events).strip()
    missing = sorted(set(range(1, numbers[-1] + 1)) - set(numbers))
    doubled = sorted({number for number in numbers if numbers.count(number) > 1})
    is_done = events[-1].body.get("statusUpdate", {}).get("status", {}).get("state") == "TASK_STATE_COMPLETED"
    tell("proof", f"events 1 to {numbers[-1]}: missing {missing or 'none'}, twice {doubled or 'none'}")
    tell("proof", f"the answer is {'whole' if answer == SENTENCE else 'NOT whole'}: {answer}")
    return is_done and answer == SENTENCE and numbers == list(range(1, numbers[-1] + 1))


def main() -> int:
    """Serve, stream, kill, serve again, go on."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        server.start()
        try:
            before = interrupted(server)
            server.start()
            task_id = before[0].body["task"]["id"]
            after = list(server.stream("SubscribeToTask", {"id": task_id}, Last_Event_ID=str(before[-1].id)))
        finally:
            server.process.kill()
            server.process.wait(BOUND_SECONDS)
    return 0 if proven(before, after) else 1


if __name__ == "__main__":
    sys.exit(main())
