"""A server that is killed in the middle of an answer: when it is back, the answer is whole, here and in history."""

import json
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.console.chatting import said, text_of, texts
from tests.serve.running import Server

AGENT = Path(__file__).parent / "lasting.py"


def read_until(url: str, text: str) -> list[dict[str, Any]]:
    """The chunks that come until a text has."""
    found: list[dict[str, Any]] = []
    body = {"id": "c-1", "message": said("go")}
    with httpx.stream("POST", f"{url}/api/chat", json=body, timeout=30) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                found.append(json.loads(line[6:]))
            if text in text_of(found):
                return found
    raise AssertionError("It ended before")


def open_gate(gate: Path) -> None:
    """Let whoever reads the pipe go on, however late it comes: it reads what is in there up to where nobody writes."""
    threading.Thread(target=gate.write_bytes, args=(b"go",), daemon=True).start()


def test_an_answer_is_whole_although_its_server_was_killed(tmp_path: Path) -> None:
    arguments = (f"{AGENT}:lasting", "--store", f"sqlite:///{tmp_path}/chat.db")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    start = partial(Server, tmp_path, *arguments, ACCORD_ENGINE__LEASE_SECONDS="1", LASTING_GATE=str(gate))
    first = start()
    try:
        begun = read_until(first.url, "one two ")
    finally:
        first.kill()
    second = start()
    try:
        with httpx.stream("GET", f"{second.url}/api/chat/c-1/stream", timeout=30) as resumed:
            assert resumed.status_code == 200
            open_gate(gate)
            lines = [line for line in resumed.iter_lines() if line.startswith("data: {")]
        chunks = [json.loads(line[6:]) for line in lines]
        assert chunks[0] == begun[0]
        assert text_of(chunks) == "one two three"
        messages = httpx.get(f"{second.url}/api/chats/c-1").json()["messages"]
        assert [texts(message) for message in messages] == ["go", "one two three"]
        assert messages[1]["id"] == begun[0]["messageId"]
    finally:
        second.kill()
