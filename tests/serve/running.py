"""`accord serve` as a real process: what it shows, how it is asked, and its end by its id."""

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
AGENTS = Path(__file__).parent / "agents.py"
TRUST = ssl.create_default_context()
"""Shared: httpx would read every authority of the system again for each request."""

BOUND_SECONDS = 60
"""For machines that are busy with other things; a test that works needs a second or two."""

V1 = {"A2A-Version": "1.0"}


def environment(folder: Path, **more: str) -> dict[str, str]:
    """An environment without settings, whose home is a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ACCORD_")}
    return kept | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "PYTHONPATH": str(ROOT)} | more


def accord(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "accord", *arguments],
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
        cwd=folder,
        env=environment(folder, **env),
    )


class Server:
    """A served process; it is ready when it says so, to people by how to try it."""

    program: tuple[str, ...] = ("accord",)
    verb: tuple[str, ...] = ("serve",)
    sign = "curl "
    """What it says when it is ready."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        port: int | None = None,
        scheme: str = "http",
        python: str | None = None,
        **env: str,
    ) -> None:
        self.port = port or free_port()
        self.url = f"{scheme}://localhost:{self.port}"
        command = [python or sys.executable, "-m", *self.program, *self.verb, *arguments, "--port", str(self.port)]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment(folder, **env)
        )
        self.shown: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.says(self.sign)
        except BaseException:
            self.kill()
            raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.shown.append(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def says(self, text: str, count: int = 1) -> str:
        """Wait for a line with a text in it, or for so many, and return the last."""
        with self._news:
            self._news.wait_for(lambda: len(self._with(text)) >= count or not self._reader.is_alive(), BOUND_SECONDS)
            lines = self._with(text)
            assert len(lines) >= count, f"it never said {text!r}, but: {self.all_shown}"
            return lines[count - 1]

    def _with(self, text: str) -> list[str]:
        return [line for line in self.shown if text in line]

    @property
    def all_shown(self) -> str:
        return "".join(self.shown)

    def ended(self) -> int:
        """Wait until it has ended and everything it said was read; return its status."""
        status = self.process.wait(timeout=BOUND_SECONDS)
        self._reader.join(timeout=BOUND_SECONDS)
        assert self.process.stderr is not None
        if not self._reader.is_alive():
            self.process.stderr.close()
        return status

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop and return its status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended()

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self.process.kill()
        self.ended()

    # --- asking ---------------------------------------------------------------------------------------------------

    def post(
        self, method: str, *, path: str = "/", headers: dict[str, str] | None = None, **params: Any
    ) -> httpx.Response:
        """Call a method of A2A 1.0."""
        body = rpc(method, **params)
        given = V1 | (headers or {})
        return httpx.post(f"{self.url}{path}", json=body, headers=given, timeout=BOUND_SECONDS, verify=TRUST)

    def send(self, text: str, message_id: str = "m", *, path: str = "/", at_once: bool = False) -> dict[str, Any]:
        """Send a text and return the task."""
        configuration = {"returnImmediately": at_once}
        answer = self.post("SendMessage", path=path, message=said(text, message_id), configuration=configuration)
        task: dict[str, Any] = answer.json()["result"]["task"]
        return task

    def get(self, task_id: str, *, path: str = "/") -> dict[str, Any]:
        """Read a task."""
        task: dict[str, Any] = self.post("GetTask", path=path, id=task_id).json()["result"]
        return task


class Machine(Server):
    """A server whose records are for machines."""

    sign = "server.started"

    def records(self) -> list[dict[str, Any]]:
        """Everything that it wrote: each line is an object."""
        return [json.loads(line) for line in self.shown]


@contextmanager
def running(folder: Path, *arguments: str, **more: Any) -> Iterator[Server]:
    """Serve while the block runs."""
    server = Server(folder, *arguments, **more)
    try:
        yield server
    finally:
        server.stop()


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def said(text: str, message_id: str = "m") -> dict[str, Any]:
    """A message of A2A 1.0."""
    return {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}


def text_of(task: dict[str, Any]) -> str:
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


def events(response: httpx.Response) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a stream over JSON-RPC or HTTP+JSON, with their numbers."""
    number = -1
    for line in response.iter_lines():
        if line.startswith("id:"):
            number = int(line.removeprefix("id:"))
        elif line.startswith("data:"):
            data = json.loads(line.removeprefix("data:"))
            yield number, data.get("result", data)
