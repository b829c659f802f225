"""Workflows that are served: files of them, and the ways to begin their runs, to wait for them and to answer them."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.serve.running import BOUND_SECONDS, Server, text_of

PLAIN = """
version: "1.0"
name: plain
swarm: {pattern: dag}
workflows:
  - name: main
    steps:
      - {name: say, type: deterministic, command: "printf '%s' WORD"}
"""

CLOSED = """
import ctypes, os
from accord import agent

PR_GET_DUMPABLE = 3

@agent
async def show(text: str) -> str:
    return f"{ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)} {'WEBHOOK_KEY' in os.environ}"
"""
"""An agent that shows whether others of the same user can read its process, and whether a secret is left in it."""


def written(folder: Path, text: str, name: str = "flow.yaml") -> Path:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def ask(server: Server, *parts: dict[str, Any], message_id: str = "m", path: str = "/", **more: Any) -> dict[str, Any]:
    """Send parts and return the task."""
    message = {"messageId": message_id, "role": "ROLE_USER", "parts": list(parts), **more}
    task: dict[str, Any] = server.post("SendMessage", path=path, message=message).json()["result"]["task"]
    return task


def reason(task: dict[str, Any]) -> str:
    assert task["status"]["state"] == "TASK_STATE_REJECTED", task
    return "".join(part["text"] for part in task["status"]["message"]["parts"])


def until(found: Callable[[], Any]) -> Any:
    """Look until there is something, and return it."""
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        if (seen := found()) is not None:
            return seen
        time.sleep(0.05)
    raise AssertionError("it never came")


def ended(server: Server, run: str, *, path: str = "/") -> dict[str, Any]:
    """A run when it has ended."""
    ends = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED", "TASK_STATE_CANCELED"}

    def look() -> dict[str, Any] | None:
        task = server.get(run, path=path)
        return task if task["status"]["state"] in ends else None

    task: dict[str, Any] = until(look)
    return task


def result(task: dict[str, Any]) -> str:
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    return text_of(task)


def call(server: Server, path: str, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{server.url}/hooks/{path}", content=content, headers=named, timeout=BOUND_SECONDS)


def began(answer: httpx.Response) -> str:
    assert answer.status_code == 202, answer.text
    run: str = answer.json()["run"]
    return run


def hand_in(server: Server, run: str, what: str, body: Any, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{server.url}/api/runs/{run}/{what}"
    return httpx.post(url, json=body, headers=named, timeout=BOUND_SECONDS).status_code


def asks(server: Server, run: str, headers: dict[str, str] | None = None) -> bool:
    task = server.post("GetTask", headers=headers, id=run).json()["result"]
    return bool(task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED")
