"""What real processes write down: which task, and why; an agent that has its own ways with records keeps them."""

import json
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from accord import __version__
from tests.serve.running import BOUND_SECONDS, Machine, accord, environment, running

BROKEN = """
async def broken(text: str) -> str:
    raise RuntimeError(text * 2)
"""

OWN_WAYS = f"""
import logging
logging.basicConfig(format="mine: %(message)s")
{BROKEN}
"""

CLIENT = """
import asyncio, sys
from mcp import Client, StdioServerParameters

async def main():
    server = StdioServerParameters(command=sys.executable, args=sys.argv[1:])
    async with Client(server) as client:
        print((await client.call_tool("broken", {"message": "ab"})).structured_content["task_id"])

asyncio.run(main())
"""


class MachineDemo(Machine):
    verb = ("demo",)


@pytest.mark.parametrize("more", [(), ("--workers", "2"), ("--server", "granian")], ids=["one", "two", "granian"])
def test_json_logs_contain_only_records(tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    server = Machine(tmp_path, "mine.py:broken", "--log-format", "json", *more)
    try:
        task = server.send("ab")
        with socket.create_connection(("127.0.0.1", server.port), BOUND_SECONDS) as rude:
            rude.sendall(b"what?\r\n\r\n")
            while rude.recv(1024):
                pass
        server.says("run.agent_failed")
    finally:
        status = server.stop()
    first, *between, last = server.records()
    assert (status, first["event"], last["event"]) == (0, "server.started", "server.stopped")
    assert (first["url"], first["port"], last["url"]) == (server.url, server.port, server.url)
    assert (first["version"], first["store"], first["agents"]) == (__version__, "sqlite", ["broken"])
    assert [one["task_id"] for one in between if one["event"] == "run.agent_failed"] == [task["id"]]
    assert {one["event"] for one in between} <= {"run.agent_failed", "task.ended", "log"}, (
        "what the HTTP server says is a record too"
    )


def test_both_servers_of_the_demonstration_write_records(tmp_path: Path) -> None:
    demo = MachineDemo(tmp_path, ACCORD_TELEMETRY__LOG_FORMAT="json")
    try:
        demo.says("server.started", 2)
    finally:
        assert demo.stop() == 0
    assert [one["event"] for one in demo.records()] == ["server.started"] * 2 + ["server.stopped"] * 2
    assert demo.records()[1]["url"] == demo.url


@pytest.mark.parametrize("processes", ["1", "2"])
def test_json_logs_report_start_errors_as_records(tmp_path: Path, processes: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        done = accord(tmp_path, "serve", "--port", port, "--log-format", "json", "--workers", processes)
    (said,) = map(json.loads, done.stderr.splitlines())
    assert (done.returncode, said["event"]) == (1, "server.not_started")
    assert said["reason"].startswith(f"Cannot listen on 127.0.0.1:{port}: ")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_is_written_down_with_its_task(tmp_path: Path, processes: int) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    with running(tmp_path, "mine.py:broken", "--workers", str(processes)) as server:
        task = server.send("ab")
        server.says("RuntimeError: abab")
    assert f"run.agent_failed task_id={task['id']}\nTraceback" in server.all_shown


@pytest.mark.proves("0-60")
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_server_writes_how_tasks_end(tmp_path: Path, processes: str) -> None:
    with running(tmp_path, "--workers", processes) as server:
        task = server.send("ab")
        line = server.says("task.ended")
    assert line.endswith(f" INFO accord.tasks: task.ended task_id={task['id']} agent=Echo state=COMPLETED\n")
    assert "server.started" not in server.all_shown, "people see the panel"


@pytest.mark.proves("0-58")
def test_remote_acknowledgements_are_logged(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with running(tmp_path / "there") as there, running(tmp_path, "--remote", f"far={there.url}") as server:
        task = server.send("ab")
        for event in ("remote.acknowledged", "remote.ended", "task.ended"):
            line = server.says(f" {event} ")
            assert " INFO accord." in line
            assert f"task_id={task['id']}" in line


def test_log_levels_filter_records(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    with running(tmp_path, "mine.py:broken", "--log-level", "warning") as server:
        server.send("ab")
        server.says("RuntimeError: abab")
    assert "task.ended" not in server.all_shown
    refused = accord(tmp_path, "serve", "--log-level", "loud")
    assert (refused.returncode, "telemetry.log_level" in refused.stderr) == (2, True), refused.stderr


def test_agents_can_write_log_records(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_WAYS)
    with running(tmp_path, "mine.py:broken") as server:
        server.send("ab")
        server.says("RuntimeError: abab")
    assert "mine: run.agent_failed\nTraceback" in server.all_shown
    assert server.all_shown.count("RuntimeError: abab") == 1


def test_a_failure_of_a_tool_is_written_down_with_its_task(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    command = [sys.executable, "-c", CLIENT, "-m", "accord", "mcp", "mine.py:broken", "--store", "sqlite:///tasks.db"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=True,
        cwd=tmp_path,
        env=environment(tmp_path),
    )
    assert f"run.agent_failed task_id={done.stdout.strip()}\nTraceback" in done.stderr
    assert "RuntimeError: abab" in done.stderr
