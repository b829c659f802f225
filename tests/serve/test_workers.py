"""`--workers 2`: both answer, one may be killed and is replaced, and none outlives the process that started them."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc

from tests.ports import free_port
from tests.serve.running import AGENTS, BOUND_SECONDS, V1, Server, events, rpc, running, said, text_of

LEASE = {"ACCORD_ENGINE__LEASE_SECONDS": "1.5", "ACCORD_ENGINE__POLL_SECONDS": "0.2"}
TARGETS = [f"{AGENTS}:who", f"{AGENTS}:halting"]


@pytest.fixture
def server(tmp_path: Path, store_url: str) -> Iterator[Server]:
    with running(tmp_path, *TARGETS, "--workers", "2", "--store", store_url, **LEASE) as found:
        yield found


T = TypeVar("T")


def until(look: Callable[[], T | None]) -> T:
    """Look again and again until there is something."""
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        if found := look():
            return found
    raise AssertionError("it never came to that")


def processes(server: Server, count: int = 2, *, without: frozenset[int] = frozenset()) -> frozenset[int]:
    """The processes that answer, once there are so many that are no others."""
    seen: set[int] = set()

    def ask(number: int) -> None:
        with suppress(httpx.TransportError):  # it may be killed with the question in its hands
            seen.add(int(text_of(server.send("x", f"{time.monotonic_ns()}-{number}"))))

    def look() -> frozenset[int] | None:
        with ThreadPoolExecutor(8) as several:
            list(several.map(ask, range(16)))
        found = frozenset(seen) - without
        return found if len(found) == count else None

    return until(look)


def begun(server: Server, go: Path) -> tuple[str, int]:
    """A task that waits for a file, and the process that works on it."""
    body = rpc("SendStreamingMessage", message=said(str(go), f"halting-{go}"))
    with httpx.stream(
        "POST", f"{server.url}/agents/halting/", json=body, headers=V1, timeout=BOUND_SECONDS
    ) as response:
        for _, event in events(response):
            task = event.get("task", {}).get("id") or event[next(iter(event))]["taskId"]
            if "artifactUpdate" in event:
                return task, int(event["artifactUpdate"]["artifact"]["parts"][0]["text"])
    raise AssertionError("it never began")


@pytest.mark.proves("3-09")
def test_killed_workers_are_replaced_and_their_tasks_finished(server: Server, tmp_path: Path) -> None:
    both = processes(server)
    assert server.process.pid not in both
    go = tmp_path / "go"
    task, working = begun(server, go)
    assert working in both
    os.kill(working, signal.SIGKILL)
    go.touch()

    def ended() -> str | None:
        try:
            found = server.get(task, path="/agents/halting/")
        except httpx.TransportError:
            return None
        return text_of(found) if found["status"]["state"] == "TASK_STATE_COMPLETED" else None

    said_by = {int(word) for word in until(ended).split()}
    assert working not in said_by, "who takes over says everything anew"
    others = processes(server, without=frozenset({working}))
    assert both - {working} < others, "the other one is still there, and there is a new one"
    assert server.stop() == 0
    assert "Traceback" not in server.all_shown


def test_grpc_is_answered_by_them_as_well(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, *TARGETS, "--workers", "2", "--grpc-port", str(port)) as server:
        both = processes(server)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = a2a_pb2_grpc.A2AServiceStub(channel)
            message = a2a_pb2.Message(message_id="g", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text="x")])
            sent = stub.SendMessage(a2a_pb2.SendMessageRequest(message=message), timeout=BOUND_SECONDS)
        assert int(sent.task.artifacts[0].parts[0].text) in both
        assert server.stop() == 0


def test_workers_do_not_outlive_their_parent(server: Server, tmp_path: Path) -> None:
    assert len(processes(server)) == 2
    server.process.kill()
    server.ended()
    assert not server._reader.is_alive(), "somebody still holds the pipe that it wrote to"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz", timeout=BOUND_SECONDS)


def test_granian_workers_are_replaced_and_end_with_the_parent(tmp_path: Path) -> None:
    with running(tmp_path, *TARGETS, "--workers", "2", "--server", "granian", **LEASE) as server:
        one, other = processes(server)
        os.kill(one, signal.SIGKILL)
        assert other in processes(server, without=frozenset({one}))
        server.process.kill()
        server.ended()
        assert not server._reader.is_alive()


def test_limits_hold_in_every_worker(tmp_path: Path) -> None:
    """A head of 100 KB is too large by default; with room for it, whichever process is asked takes it, in pieces."""
    large = b"x" * 50_000
    answered = {}
    for head in ("500000", "32000"):
        with running(tmp_path, *TARGETS, "--workers", "2", ACCORD_LIMITS__HEAD=head) as server:
            answered[head] = {_asked(server.port, large)[:12] for _ in range(6)}
    assert answered["500000"] == {b"HTTP/1.1 200"}
    assert answered["32000"] <= {b"HTTP/1.1 431", b""}, "whoever still sends may not get to read why"


def _asked(port: int, value: bytes) -> bytes:
    """Send nothing, with a header of twice this value, which comes in pieces, and return how the answer begins."""
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND_SECONDS) as asking:
        asking.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Large: ")
        with suppress(OSError):  # it may have been refused by now
            for piece in (value, value, b"\r\nContent-Length: 2\r\n\r\n{}"):
                time.sleep(0.05)
                asking.sendall(piece)
            return asking.recv(64)
        return b""
