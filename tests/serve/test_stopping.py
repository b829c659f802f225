"""How a server ends: what runs is finished or handed over, streams get their events, and the status says success."""

import signal
import socket
import time
from pathlib import Path

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc

from tests.ports import free_port
from tests.serve.running import AGENTS, BOUND_SECONDS, V1, Server, events, rpc, running, said, text_of

PATIENT = {"ACCORD_SERVER__GRACE_SECONDS": "45"}
HALTING = f"{AGENTS}:halting"

servers = pytest.mark.parametrize(
    "more", [[], ["--workers", "2"], ["--server", "granian"]], ids=["uvicorn", "workers", "granian"]
)


@servers
def test_agents_finish_within_the_grace_period(tmp_path: Path, more: list[str]) -> None:
    go = tmp_path / "go"
    seen = []
    body = rpc("SendStreamingMessage", message=said(str(go)))
    with running(tmp_path, HALTING, *more, **PATIENT) as server:
        with httpx.stream("POST", f"{server.url}/", json=body, headers=V1, timeout=BOUND_SECONDS) as response:
            for number, last in events(response):
                seen.append((number, last))
                if "artifactUpdate" in last and not go.exists():
                    server.process.send_signal(signal.SIGTERM)
                    _wait_until_closed(server)
                    go.touch()
        assert server.ended() == 0  # by itself: whoever leaves `running` sends another signal
    assert seen[-1][1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    numbers = [number for number, _ in seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert "Traceback" not in server.all_shown


def _wait_until_no_calls(port: int) -> None:
    """Wait until it answers no new calls, and so has begun to end those that there are; the last may just hang."""
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            try:
                a2a_pb2_grpc.A2AServiceStub(channel).ListTasks(a2a_pb2.ListTasksRequest(), timeout=2)
            except grpc.RpcError:
                return
    raise AssertionError("it still takes calls")


def _wait_until_closed(server: Server) -> None:
    """Wait until it refuses connections, and so has noticed that it is to stop."""
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        try:
            httpx.get(f"{server.url}/healthz", timeout=BOUND_SECONDS)
        except httpx.ConnectError:
            return
        except httpx.TransportError:
            continue  # this one it had already taken
    raise AssertionError("it still takes connections")


@servers
def test_tasks_are_handed_over_after_the_grace_period(tmp_path: Path, more: list[str]) -> None:
    """The lease is far longer than the test may take: who takes over does not wait for it."""
    go, store = tmp_path / "go", ["--store", f"sqlite:///{tmp_path}/a.db"]
    slow = {"ACCORD_ENGINE__LEASE_SECONDS": "600", "ACCORD_ENGINE__POLL_SECONDS": "0.2"}
    body = rpc("SendStreamingMessage", message=said(str(go)))
    with (
        running(tmp_path, HALTING, *store, *more, ACCORD_SERVER__GRACE_SECONDS="0.2", **slow) as first,
        httpx.stream("POST", f"{first.url}/", json=body, headers=V1, timeout=BOUND_SECONDS) as response,
    ):
        following = events(response)
        task = next(following)[1]["task"]["id"]
        assert first.stop() == 0
        with pytest.raises(httpx.RemoteProtocolError):  # an end that nobody takes for the task's
            list(following)
        assert "Traceback" not in first.all_shown
        assert "ERROR" not in first.all_shown
    go.touch()
    with running(tmp_path, HALTING, *store, **slow) as second:
        ended = second.send(str(go))  # the same message, and so the same task: it is waited for
        assert (ended["id"], ended["status"]["state"]) == (task, "TASK_STATE_COMPLETED")
        assert set(text_of(ended).split()) == {str(second.process.pid)}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_open_connections_do_not_keep_it_alive(number: signal.Signals, tmp_path: Path) -> None:
    go = tmp_path / "never"
    body = rpc("SendStreamingMessage", message=said(str(go)))
    with (
        running(tmp_path, HALTING, ACCORD_SERVER__GRACE_SECONDS="0.5") as server,
        socket.create_connection(("127.0.0.1", server.port)) as unfinished,
        httpx.stream("POST", f"{server.url}/", json=body, headers=V1, timeout=BOUND_SECONDS) as response,
    ):
        unfinished.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        following = events(response)
        assert next(following)
        assert server.stop(number) == 0
    assert "Traceback" not in server.all_shown


@servers
def test_a_function_that_never_returns_does_not_keep_it_alive(tmp_path: Path, more: list[str]) -> None:
    begun = tmp_path / "begun"
    with running(tmp_path, f"{AGENTS}:blocking", *more, ACCORD_SERVER__GRACE_SECONDS="0.2") as server:
        server.send(str(begun), at_once=True)
        end = time.monotonic() + BOUND_SECONDS
        while not begun.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        assert server.stop() == 0
    assert "Traceback" not in server.all_shown


@pytest.mark.proves("3-09")
def test_tasks_outlive_a_killed_server(tmp_path: Path) -> None:
    first = Server(tmp_path)
    task = first.send("hello again")
    first.kill()
    with running(tmp_path) as second:
        assert second.get(task["id"]) == task


def test_grpc_calls_are_finished_as_well(tmp_path: Path) -> None:
    go, port = tmp_path / "go", free_port()
    with (
        running(tmp_path, HALTING, "--grpc-port", str(port), **PATIENT) as server,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        assert f"│ grpc     port {port}" in server.all_shown
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        message = a2a_pb2.Message(message_id="g", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text=str(go))])
        seen = []
        for event in stub.SendStreamingMessage(a2a_pb2.SendMessageRequest(message=message), timeout=BOUND_SECONDS):
            seen.append(event)
            if event.WhichOneof("payload") == "artifact_update" and not go.exists():
                server.process.send_signal(signal.SIGTERM)
                _wait_until_no_calls(port)
                go.touch()
        assert seen[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED
        assert server.ended() == 0
