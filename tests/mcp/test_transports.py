"""`accord mcp` as a process: over standard input and output, over HTTP, of agents here and elsewhere."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitResult

from tests.mcp.conftest import AGENTS, command
from tests.mcp.test_tools import BOUND_SECONDS, text, until
from tests.ports import free_port
from tests.serve.flowing import CLOSED, written
from tests.serve.running import Server, accord, environment

MODES: list[Any] = ["auto", "legacy"]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Server]:
    """A running server with two agents."""
    store = f"sqlite:///{tmp_path}/elsewhere.db"
    server = Server(tmp_path, f"{AGENTS}:echo", f"{AGENTS}:trip", "--store", store)
    yield server
    server.stop()


@contextmanager
def over_http(folder: Path, *arguments: str) -> Iterator[str]:
    """Run the command as an HTTP server, and give its address."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "accord", "mcp", "--transport", "http", "--port", str(port), *arguments],
        cwd=folder,
        env=environment(folder),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert f":{port}/mcp" in process.stderr.readline()
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=BOUND_SECONDS)
        finally:
            process.kill()


@pytest.mark.parametrize("mode", MODES)
async def test_over_standard_input_and_output_nothing_else_is_printed(mode: Any, tmp_path: Path) -> None:
    asked: list[str] = []

    async def fill_in(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"answer": "Rome"})

    server = command(tmp_path, f"{AGENTS}:echo", f"{AGENTS}:trip", "--store", f"sqlite:///{tmp_path}/a.db")
    async with asyncio.timeout(BOUND_SECONDS), Client(server, mode=mode, elicitation_callback=fill_in) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["echo", "trip_agent"]
        assert text(await client.call_tool("echo", {"message": "hello"})) == ["you said hello"]
        assert text(await client.call_tool("trip_agent", {"message": "a trip"})) == ["to Rome by None"]
    assert asked == ["Which city?"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
async def test_commands_of_agents_find_no_secrets_of_the_process(tmp_path: Path) -> None:
    written(tmp_path, CLOSED, "own.py")
    written(tmp_path, '[push]\nsigning_keys = ["env:WEBHOOK_KEY"]\n', "accord.toml")
    server = command(tmp_path, "own.py:show", "--store", "sqlite://:memory:")
    assert server.env is not None
    server.env["WEBHOOK_KEY"] = "very-secret-signing-key-of-this-server"
    async with asyncio.timeout(BOUND_SECONDS), Client(server) as client:
        assert text(await client.call_tool("show", {"message": "x"})) == ["0 False"]


async def test_over_standard_input_and_output_a_call_is_cancelled(tmp_path: Path) -> None:
    file = tmp_path / "slow"
    server = command(tmp_path, f"{AGENTS}:slow", "--store", f"sqlite:///{tmp_path}/a.db")
    async with asyncio.timeout(BOUND_SECONDS), Client(server) as client:
        call = asyncio.create_task(client.call_tool("slow", {"message": str(file)}))
        await until(file, "working")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(file, "stopped")


@pytest.mark.parametrize("mode", MODES)
async def test_over_http_a_call_is_cancelled(mode: Any, tmp_path: Path) -> None:
    file = tmp_path / "slow"
    with over_http(tmp_path, f"{AGENTS}:slow", "--store", f"sqlite:///{tmp_path}/a.db") as url:
        async with asyncio.timeout(BOUND_SECONDS), Client(url, mode=mode) as client:
            call = asyncio.create_task(client.call_tool("slow", {"message": str(file)}))
            await until(file, "working")
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await until(file, "stopped")


@pytest.mark.parametrize("mode", MODES)
async def test_remote_agents_are_tools_over_http(mode: Any, elsewhere: Server, tmp_path: Path) -> None:
    heard: list[str | None] = []

    async def heard_of(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    with over_http(tmp_path, "--url", elsewhere.url) as url:
        async with asyncio.timeout(BOUND_SECONDS), Client(url, mode=mode) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["echo", "trip_agent"]
            result = await client.call_tool("echo", {"message": "hello"}, progress_callback=heard_of)
            assert text(result) == ["you said hello"]
            asked = await client.call_tool("trip_agent", {"message": "a trip"})
            answer = {"message": "Rome", "task_id": asked.structured_content["task_id"]}
            assert text(await client.call_tool("trip_agent", answer)) == ["to Rome by None"]
    assert heard == ["you said hello"]


async def test_one_agent_of_a_server_may_be_named(elsewhere: Server, tmp_path: Path) -> None:
    server = command(tmp_path, "--url", f"{elsewhere.url}/agents/trip-agent")
    async with asyncio.timeout(BOUND_SECONDS), Client(server) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["trip_agent"]


async def test_unreachable_agents_are_errors(elsewhere: Server, tmp_path: Path) -> None:
    server = command(tmp_path, "--url", elsewhere.url)
    async with asyncio.timeout(BOUND_SECONDS), Client(server) as client:
        await asyncio.to_thread(elsewhere.kill)
        result = await client.call_tool("echo", {"message": "hello"})
    assert result.is_error
    assert text(result) == ["The agent cannot be reached"]


def test_unservable_agents_are_reported_on_standard_error(tmp_path: Path) -> None:
    nowhere = accord(tmp_path, "mcp", "--url", f"http://127.0.0.1:{free_port()}")
    assert (nowhere.returncode, nowhere.stdout) == (3, ""), "as for every command"
    assert "Traceback" not in nowhere.stderr
    assert accord(tmp_path, "mcp", "nowhere:agent").returncode == 2
    none = accord(tmp_path, "mcp", "--url", "http://[")
    assert (none.returncode, none.stdout) == (3, ""), none.stderr
    assert "an invalid address" in none.stderr


def test_occupied_ports_are_reported(elsewhere: Server, tmp_path: Path) -> None:
    taken = accord(tmp_path, "mcp", "--url", elsewhere.url, "--transport", "http", "--port", str(elsewhere.port))
    assert (taken.returncode, taken.stdout) == (1, "")
    assert "in use" in taken.stderr


def test_strangers_are_kept_out(tmp_path: Path) -> None:
    refused = accord(tmp_path, "mcp", "--transport", "http", "--host", "0.0.0.0")
    assert refused.returncode == 2
    assert "The host must be a loopback address" in refused.stderr.replace("\n", " ")
