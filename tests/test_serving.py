"""`accord serve` as a real process: what a newcomer sees, and the official SDK's client talking to it."""

import base64
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import new_text_message
from a2a.types import a2a_pb2

from accord import __version__
from accord.protocol.operations import DialectName

BOUND_SECONDS = 20


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A served process, ended by its id."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.port = free_port()
        self.url = f"http://localhost:{self.port}/"
        command = [sys.executable, "-m", "accord", "serve", "--port", str(self.port), *arguments]
        environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "100", "XDG_DATA_HOME": str(folder)}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.shown: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._ready.wait(BOUND_SECONDS), "".join(self.shown)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.shown.append(line)
            if line.startswith("curl"):
                self._ready.set()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=BOUND_SECONDS)
        self._reader.join(timeout=BOUND_SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("data"))
    try:
        yield running
    finally:
        running.stop()


def test_the_welcome_holds_what_a_newcomer_needs(server: Server) -> None:
    shown = "".join(server.shown)
    assert f"accord {__version__}" in shown
    assert f"{server.url}.well-known/agent-card.json" in shown
    line = next(line for line in server.shown if line.startswith("curl"))
    body = re.search(r"-d '(.*)'", line)
    assert body is not None
    answer = httpx.post(server.url, content=body[1], headers={"Content-Type": "application/json", "A2A-Version": "1.0"})
    assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_the_official_client_sends_streams_and_reads(server: Server) -> None:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, server.url).get_agent_card()
        for streaming in (False, True):
            client = ClientFactory(ClientConfig(streaming=streaming, httpx_client=http)).create(card)
            request = a2a_pb2.SendMessageRequest(message=new_text_message("hello brave world", role=a2a_pb2.ROLE_USER))
            events = [event async for event in client.send_message(request)]
            kinds = [event.WhichOneof("payload") for event in events]
            if streaming:
                assert kinds == ["task", "status_update", *["artifact_update"] * 3, "status_update"]
            else:
                assert kinds == ["task"]
            task_id = events[0].task.id
            task = await client.get_task(a2a_pb2.GetTaskRequest(id=task_id))
            assert task.status.state == a2a_pb2.TASK_STATE_COMPLETED
            assert "".join(part.text for part in task.artifacts[0].parts) == "hello brave world"
            page = await client.list_tasks(a2a_pb2.ListTasksRequest(page_size=1))
            assert (page.page_size, len(page.tasks)) == (1, 1)


def test_an_open_address_is_refused_with_the_reason() -> None:
    command = [sys.executable, "-m", "accord", "serve", "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)
    assert done.returncode == 2
    assert "no authentication yet" in done.stderr


def test_a_taken_port_is_reported_and_nothing_claims_to_listen(server: Server) -> None:
    command = [sys.executable, "-m", "accord", "serve", "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)
    assert done.returncode == 1
    assert "--port" in done.stderr
    assert "is listening" not in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_s_surface() -> None:
    def accord(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "accord", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)

    assert accord("--version").stdout.strip() == __version__
    assert "serve" in accord("--help").stdout
    assert accord("dance").returncode == 2


def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    running = Server(tmp_path)
    with httpx.Client() as client:
        dialects = {
            client.post(running.url, json=call, headers={"X-A2A-Dialect": dialect.value}).headers["x-a2a-dialect"]
            for dialect in DialectName
            for call in [{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "t"}}]
        }
    assert dialects == {dialect.value for dialect in DialectName}
    assert running.stop() in (0, -signal.SIGTERM)
    assert "Traceback" not in "".join(running.shown)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_open_connections_do_not_keep_it_alive(number: signal.Signals, tmp_path: Path) -> None:
    running = Server(tmp_path)
    with socket.create_connection(("127.0.0.1", running.port)) as unfinished:
        unfinished.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        httpx.get(running.url + ".well-known/agent-card.json")
        running.process.send_signal(number)
        running.process.wait(timeout=BOUND_SECONDS)
    running.stop()
    assert "Traceback" not in "".join(running.shown)


@pytest.mark.proves("0-01", "3-09")
def test_tasks_outlive_a_killed_server(tmp_path: Path) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello again"}]}
    send = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    first = Server(tmp_path)
    task = httpx.post(first.url, json=send).json()["result"]["task"]
    first.process.kill()
    first.stop()
    second = Server(tmp_path)
    try:
        get = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}
        assert httpx.post(second.url, json=get).json()["result"] == task
    finally:
        second.stop()


@pytest.mark.parametrize(
    ("store", "reason"), [("mysql://x", "sqlite:///"), ("sqlite:////proc/nowhere/a.db", "/proc/nowhere/a.db")]
)
def test_a_store_that_cannot_be_used_is_reported(store: str, reason: str) -> None:
    command = [sys.executable, "-m", "accord", "serve", "--port", str(free_port()), "--store", store]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)
    assert done.returncode in (2, 3)
    assert reason in done.stderr
    assert "is listening" not in done.stderr
    assert "Traceback" not in done.stderr


def test_large_files_go_where_the_operator_says(tmp_path: Path) -> None:
    place = tmp_path / "blobs"
    large = base64.b64encode(bytes(300_000)).decode()
    parts = [{"raw": large, "mediaType": "application/zip", "filename": "a.zip"}]
    message = {"messageId": "m", "role": "ROLE_USER", "parts": parts}
    send = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    running = Server(tmp_path, "--blobs", f"dir://{place}")
    try:
        task = httpx.post(running.url, json=send).json()["result"]["task"]
    finally:
        running.stop()
    assert task["artifacts"][0]["parts"] == parts
    assert [file.stat().st_size for file in place.rglob("*") if file.is_file()] == [300_000]
