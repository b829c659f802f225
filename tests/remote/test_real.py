"""A gateway process and an agent elsewhere that does as the test says, over real sockets: whatever comes, once."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.remote.test_gateway import ended, until
from tests.serve.running import BOUND_SECONDS, Server, running, text_of

WEBHOOK = "/api/webhook/tasks"
CUT = object()


class Elsewhere:
    """An agent of 1.0; `stream` is what it says of a task, and where it is cut."""

    def __init__(self, *, push: bool = False, streaming: bool = False) -> None:
        self.capabilities = {"pushNotifications": push, "streaming": streaming}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, str] = {}
        self.sends = 0
        self.streams = 0
        self.stream: Callable[[int], list[Any]] = lambda _: []
        self.allows: Callable[[str], bool] = lambda _: True
        self.issued: list[str] = []
        self.secured: dict[str, Any] = {}
        self.url = ""

    def card(self) -> dict[str, Any]:
        interface = {"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return {
            "name": "There",
            "description": "Works",
            "version": "1",
            "supportedInterfaces": [interface],
            "capabilities": self.capabilities,
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
            **self.secured,
        }

    def answer(self, call: dict[str, Any]) -> dict[str, Any]:
        params = call["params"]
        if call["method"] in ("SendMessage", "SendStreamingMessage"):
            self.sends += 1
            task_id = f"r-{self.sends}"
            push = params.get("configuration", {}).get("taskPushNotificationConfig") or {}
            self.tokens[task_id] = push.get("token", "")
            self.tasks[task_id] = told(task_id, "WORKING") | {"history": [params["message"]]}
            return {"result": {"task": self.tasks[task_id]}}
        if call["method"] == "GetTask" and params["id"] in self.tasks:
            return {"result": self.tasks[params["id"]]}
        return {"error": {"code": -32001, "message": "Task not found"}}


def told(task_id: str, state: str, text: str | None = None, at: str | None = None) -> dict[str, Any]:
    status = {"state": f"TASK_STATE_{state}"} | ({"timestamp": at} if at else {})
    task: dict[str, Any] = {"id": task_id, "contextId": "c", "status": status}
    if text is not None:
        task["artifacts"] = [{"artifactId": "a", "parts": [{"text": text}]}]
    return task


@contextmanager
def listening(far: Elsewhere) -> Iterator[Elsewhere]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply(200, far.card())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/token":
                far.issued.append(f"token-{len(far.issued) + 1}")
                self.reply(200, {"access_token": far.issued[-1], "token_type": "Bearer", "expires_in": 3600})
                return
            if not far.allows(self.headers.get("Authorization") or ""):
                self.reply(401, {})
                return
            call = json.loads(body)
            if call["method"] == "SendStreamingMessage":
                self.follow(call, far.answer(call)["result"])
            elif call["method"] == "SubscribeToTask" and call["params"]["id"] in far.tasks:
                self.follow(call)
            else:
                self.reply(200, {"jsonrpc": "2.0", "id": call["id"]} | far.answer(call))

        def follow(self, call: dict[str, Any], begun: dict[str, Any] | None = None) -> None:
            far.streams += 1
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for event in far.stream(far.streams) or ([begun] if begun else []):
                if event is CUT:
                    break
                data = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": event})
                self.wfile.write(f"data: {data}\n\n".encode())
            self.close_connection = True

        def reply(self, status: int, found: dict[str, Any]) -> None:
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    far.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield far
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


@contextmanager
def gateway(folder: Path, far: Elsewhere, **env: str) -> Iterator[Server]:
    with listening(far), running(folder, "--remote", f"there={far.url}", **env) as near:
        yield near


def acknowledged(near: Server, far: Elsewhere, message_id: str = "m") -> dict[str, Any]:
    """A task that the agent has taken on."""
    before = far.sends
    task = near.send("hello", message_id, at_once=True)
    until(lambda: far.sends > before and near.get(task["id"])["status"]["state"] != "TASK_STATE_SUBMITTED")
    return task


def report(near: Server, token: str, body: dict[str, Any]) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.post(near.url + WEBHOOK, json={"task": body}, headers=headers, timeout=BOUND_SECONDS).status_code


@pytest.mark.proves("0-44", "0-64")
def test_webhooks_twice_forged_late_and_out_of_order(tmp_path: Path) -> None:
    far = Elsewhere(push=True)
    with gateway(tmp_path, far) as near:
        first, second = acknowledged(near, far, "m-1"), acknowledged(near, far, "m-2")
        one, two = far.tokens["r-1"], far.tokens["r-2"]
        forged = told("r-1", "COMPLETED", "forged")
        assert [report(near, token, forged) for token in ("guessed", two, one + "x")] == [401, 401, 401]
        asked = told("r-1", "INPUT_REQUIRED", at="2026-01-01T00:00:02.000Z")
        asked["status"]["message"] = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "Which?"}]}
        assert [report(near, one, asked) for _ in range(2)] == [204, 204]
        assert report(near, one, told("r-1", "WORKING", at="2026-01-01T00:00:01.000Z")) == 204  # overtaken
        waiting = near.get(first["id"])
        assert waiting["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert "artifacts" not in waiting
        done = told("r-1", "COMPLETED", "done", "2026-01-01T00:00:03.000Z")
        assert [report(near, one, done) for _ in range(3)] == [204, 204, 204]
        assert report(near, one, told("r-1", "FAILED", at="2026-01-01T00:00:09.000Z")) == 204  # too late to matter
        found = near.get(first["id"])
        assert (found["status"]["state"], text_of(found)) == ("TASK_STATE_COMPLETED", "done")
        assert near.get(second["id"])["status"]["state"] == "TASK_STATE_WORKING"
        assert report(near, two, told("r-2", "COMPLETED", "other")) == 204
        assert text_of(near.get(second["id"])) == "other"
        assert far.sends == 2


def test_slow_webhooks_keep_no_other_out_and_are_given_up(tmp_path: Path) -> None:
    far = Elsewhere(push=True)
    with gateway(tmp_path, far, ACCORD_LIMITS__BODY_SECONDS="1") as near:
        task = acknowledged(near, far)
        token = far.tokens["r-1"]
        slow, strange = (begun(near, credentials) for credentials in (token, "guessed"))
        with slow, strange:
            assert answered(strange) == 401  # before it has sent anything
            assert report(near, token, told("r-1", "COMPLETED", "done")) == 204
            assert text_of(near.get(task["id"])) == "done"
            assert answered(slow) == 408


def begun(near: Server, token: str) -> socket.socket:
    """A connection over which the head of a webhook came and no body comes."""
    head = ["POST " + WEBHOOK + " HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", "Content-Length: 9"]
    connection = socket.create_connection(("localhost", near.port), timeout=BOUND_SECONDS)
    connection.sendall("\r\n".join([*head, "", ""]).encode())
    return connection


def answered(connection: socket.socket) -> int:
    with connection.makefile("rb") as answer:
        return int(answer.readline().split()[1])


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "asked"])
def test_tasks_lost_by_a_restarted_agent_end(tmp_path: Path, streaming: bool) -> None:
    far = Elsewhere(streaming=streaming)
    with gateway(tmp_path, far) as near:
        task = acknowledged(near, far)
        far.tasks.clear()
        lost = until(lambda: ended(near, task["id"]))
        assert lost["status"]["state"] == "TASK_STATE_UNSPECIFIED"
        assert "no longer has the task" in lost["status"]["message"]["parts"][0]["text"]
        assert far.sends == 1


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_stream_that_is_cut_at_any_event_is_taken_up_again(tmp_path: Path, cut: int) -> None:
    far = Elsewhere(streaming=True)

    def piece(text: str, *, append: bool) -> dict[str, Any]:
        artifact = {"artifactId": "a", "parts": [{"text": text}]}
        update = {"taskId": "r-1", "contextId": "c", "artifact": artifact, "append": append, "lastChunk": not append}
        return {"artifactUpdate": update}

    def stream(number: int) -> list[Any]:
        if number > 1:
            far.tasks["r-1"] = told("r-1", "COMPLETED", "one two")
            return [{"task": far.tasks["r-1"]}]
        status = {"taskId": "r-1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
        end = {"taskId": "r-1", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
        whole = [
            {"task": far.tasks["r-1"]},
            {"statusUpdate": status},
            piece("one ", append=False),
            piece("two", append=True),
            {"statusUpdate": end},
        ]
        if cut == len(whole):
            far.tasks["r-1"] = told("r-1", "COMPLETED", "one two")
        return [*whole[:cut], CUT]

    far.stream = stream
    with gateway(tmp_path, far) as near:
        task = acknowledged(near, far)
        done = until(lambda: ended(near, task["id"]))
        assert (done["status"]["state"], text_of(done)) == ("TASK_STATE_COMPLETED", "one two")
        assert len(done["artifacts"]) == 1
        assert far.sends == 1


def test_an_expired_token_is_renewed_on_the_way_to_the_agent(tmp_path: Path) -> None:
    """The agent forgets a token that it still promised: the message is refused, and sent once with a new one."""
    far = Elsewhere()
    far.allows = lambda shown: shown == f"Bearer {far.issued[-1]}" if far.issued else False
    with listening(far):
        flow = {"clientCredentials": {"tokenUrl": f"{far.url}/token", "scopes": {}}}
        far.secured = {
            "securitySchemes": {"oauth": {"oauth2SecurityScheme": {"flows": flow}}},
            "securityRequirements": [{"schemes": {"oauth": {"list": []}}}],
        }
        (tmp_path / "accord.toml").write_text(f'[remotes.there]\nurl = "{far.url}"\nkey = "there"\n', "utf-8")
        secrets = {"AGENTVAULT_OAUTH_THERE_CLIENT_ID": "us", "AGENTVAULT_OAUTH_THERE_CLIENT_SECRET": "secret"}
        with running(tmp_path, **secrets) as near:
            first = acknowledged(near, far, "m-1")
            far.tasks["r-1"] = told("r-1", "COMPLETED", "one")
            assert text_of(until(lambda: ended(near, first["id"]))) == "one"
            far.issued.append("expired")  # what the gateway has is good no more
            second = acknowledged(near, far, "m-2")
            far.tasks["r-2"] = told("r-2", "COMPLETED", "two")
            assert text_of(until(lambda: ended(near, second["id"]))) == "two"
        assert (far.sends, far.issued) == (2, ["token-1", "expired", "token-3"])
