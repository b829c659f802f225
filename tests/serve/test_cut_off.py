"""What those are told who still wait when a server's grace is over: the task as it stands, or to ask again."""

import json
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc

from tests.ports import free_port
from tests.serve.flowing import until
from tests.serve.running import AGENTS, BOUND_SECONDS, V1, Server, rpc, running, said

HALTING = f"{AGENTS}:halting"
BRIEF = {
    "ACCORD_SERVER__GRACE_SECONDS": "0.2",
    "ACCORD_ENGINE__LEASE_SECONDS": "600",
    "ACCORD_ENGINE__POLL_SECONDS": "0.2",
}

servers = pytest.mark.parametrize(
    "more", [[], ["--workers", "2"], ["--server", "granian"]], ids=["uvicorn", "workers", "granian"]
)

OLD = {"kind": "message", "role": "user"}


def old(text: str, message_id: str) -> dict[str, Any]:
    """A message of A2A 0.3."""
    return {"messageId": message_id, **OLD, "parts": [{"kind": "text", "text": text}]}


def old_rest(text: str, message_id: str) -> dict[str, Any]:
    """A message of A2A 0.3 over HTTP+JSON."""
    return {"messageId": message_id, "role": "ROLE_USER", "content": [{"text": text}]}


Ask = Callable[[str, str], tuple[str, dict[str, str], Any]]

WAYS: dict[str, Ask] = {
    "v1 rpc": lambda text, name: ("/", V1, rpc("SendMessage", message=said(text, name))),
    "v1 batch": lambda text, name: ("/", V1, [rpc("SendMessage", message=said(text, name))]),
    "v1 rest": lambda text, name: ("/message:send", V1, {"message": said(text, name)}),
    "v03 rpc": lambda text, name: ("/", {}, rpc("message/send", message=old(text, name))),
    "v03 rest": lambda text, name: ("/v1/message:send", {}, {"message": old_rest(text, name)}),
}
"""How a message is sent whose answer is waited for."""


def tasks(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{server.url}/tasks", timeout=BOUND_SECONDS).json()["tasks"]
    return found


def begun(server: Server, count: int) -> None:
    """Wait until so many tasks are being worked on."""
    until(lambda: [task["status"]["state"] for task in tasks(server)] == ["TASK_STATE_WORKING"] * count or None)


def task_of(answer: Any) -> dict[str, Any]:
    """The task in an answer of any way."""
    if isinstance(answer, list):
        (answer,) = answer
    result = answer.get("result", answer)
    found: dict[str, Any] = result.get("task", result)
    return found


@servers
def test_interrupted_waits_return_the_current_task(tmp_path: Path, more: list[str]) -> None:
    """An error would have many a caller send the message anew, under another id: the work would be done twice."""
    go, store = tmp_path / "go", ["--store", f"sqlite:///{tmp_path}/a.db"]

    def sending(server: Server, name: str) -> httpx.Response:
        path, headers, body = WAYS[name](str(go), name)
        return httpx.post(f"{server.url}{path}", json=body, headers=headers, timeout=BOUND_SECONDS)

    with running(tmp_path, HALTING, *store, *more, **BRIEF) as first, ThreadPoolExecutor(len(WAYS)) as pool:
        waiting: dict[str, Future[httpx.Response]] = {name: pool.submit(sending, first, name) for name in WAYS}
        begun(first, len(WAYS))
        assert first.stop() == 0
        answers = {name: answer.result(BOUND_SECONDS) for name, answer in waiting.items()}
        for line in ("ERROR", "Traceback"):
            assert line not in first.all_shown
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(WAYS, 200)
    found = {name: task_of(answer.json()) for name, answer in answers.items()}
    assert {task["status"]["state"] for task in found.values()} == {"TASK_STATE_WORKING", "working"}
    go.touch()
    with running(tmp_path, HALTING, *store, **BRIEF) as second:
        for name in ("v1 rpc", "v1 rest"):
            ended = second.send(str(go), name)  # the same message is waited for
            assert (ended["id"], ended["status"]["state"]) == (found[name]["id"], "TASK_STATE_COMPLETED")
        assert {task["id"] for task in tasks(second)} == {task["id"] for task in found.values()}


def test_shutdown_returns_the_task_and_ends_streams(tmp_path: Path) -> None:
    go, port = tmp_path / "go", free_port()

    def asked(name: str) -> a2a_pb2.SendMessageRequest:
        message = a2a_pb2.Message(message_id=name, role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text=str(go))])
        return a2a_pb2.SendMessageRequest(message=message)

    with (
        running(tmp_path, HALTING, "--grpc-port", str(port), **BRIEF) as server,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        waiting = stub.SendMessage.future(asked("one"), timeout=BOUND_SECONDS)
        stream = stub.SendStreamingMessage(asked("many"), timeout=BOUND_SECONDS)
        begun(server, 2)
        assert server.stop() == 0
        assert waiting.result(BOUND_SECONDS).task.status.state == a2a_pb2.TASK_STATE_WORKING
        with pytest.raises(grpc.RpcError) as broken:
            list(stream)
        assert (broken.value.code(), broken.value.details()) == (
            grpc.StatusCode.UNAVAILABLE,
            "The server stops; ask again",
        )
        assert "Traceback" not in server.all_shown


UNFINISHED = {
    "/": "POST / HTTP/1.1\r\nA2A-Version: 1.0\r\n",
    "/message:send": "POST /message:send HTTP/1.1\r\n",
    "/v1/message:send": "POST /v1/message:send HTTP/1.1\r\n",
    "/api/chat": "POST /api/chat HTTP/1.1\r\n",
}
REST = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


@servers
def test_interrupted_requests_get_retry_after(tmp_path: Path, more: list[str]) -> None:
    with running(tmp_path, *more, **BRIEF) as server:
        connections = {path: socket.create_connection(("127.0.0.1", server.port)) for path in UNFINISHED}
        for path, connection in connections.items():
            connection.settimeout(BOUND_SECONDS)
            connection.sendall((UNFINISHED[path] + REST).encode())
            assert connection.recv(len(GO_ON), socket.MSG_WAITALL).lower() == GO_ON.lower(), "it waits for the body"
        assert server.stop() == 0
        answers = {path: read(connection) for path, connection in connections.items()}
        for line in ("ERROR", "Traceback"):
            assert line not in server.all_shown
    for path, (head, _) in answers.items():
        assert head.startswith("http/1.1 503 "), path
        assert "\r\nretry-after: 1" in head, path
    assert answers["/"][1] == {
        "jsonrpc": "2.0",
        "id": None,
        "error": answers["/"][1]["error"] | {"code": -32000, "message": "The server stops; ask again"},
    }
    error = answers["/message:send"][1]["error"]
    assert (error["status"], error["details"][0]["reason"]) == ("UNAVAILABLE", "AGENT_UNAVAILABLE")
    old_error = answers["/v1/message:send"][1]
    assert (old_error["code"], old_error["data"]["reason"]) == (-32000, "AGENT_UNAVAILABLE")


def read(connection: socket.socket) -> tuple[str, Any]:
    """A whole answer: its head in small letters, and its body if that is JSON."""
    with connection, connection.makefile("rb") as answer:
        head, _, body = answer.read().partition(b"\r\n\r\n")
    is_json = b"json" in head.lower()
    return head.decode().lower(), json.loads(body) if is_json else body
