"""A relay on this machine, with a broker and an agent of its own: real processes, all of which end with the server."""

import asyncio
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from msgspec.structs import replace

from accord.agents.command_supervisor import descendants
from accord.agents.relay.agent import AGENT_TYPE, CONCURRENT_REQUESTS, LocalRelay, RelayOptions
from accord.api.agent_types import AgentArguments
from accord.model import Message, Part, Role, TaskState
from accord.retries import RetryPolicy
from accord.testing import running, text_in
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, Server, accord, environment
from tests.serve.test_environment import UNPRIVILEGED

HERE = Path(__file__).parent
CLI, NATIVE = HERE / "cli.py", HERE / "native.py"


def command(folder: Path) -> list[str]:
    return [sys.executable, str(CLI), str(folder)]


def local(folder: Path, *more: str, **options: Any) -> LocalRelay:
    return LocalRelay([*command(folder), *more], target_agent="Worker1", poll_interval=0.02, timeout=30.0, **options)


async def gone(folder: Path, *pids: int) -> None:
    """Wait until nothing is left of what was started."""
    started = {int(line) for line in (folder / "pids").read_text().split()} | set(pids)
    async with asyncio.timeout(BOUND_SECONDS):
        while any(map(lives, started)):  # noqa: ASYNC110  # nobody says when a process has gone
            await asyncio.sleep(0.02)


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


async def works(folder: Path) -> None:
    """Wait until it works."""
    file = folder / "beats"
    async with asyncio.timeout(BOUND_SECONDS):
        while not file.exists() or file.stat().st_size < 2:  # noqa: ASYNC110  # it is another process
            await asyncio.sleep(0.02)


async def test_commands_answer_channel_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCORD_STORE", "PGPASSWORD"):
        monkeypatch.setenv(name, "secret")
    async with running(local(tmp_path)) as a2a:
        assert await a2a.ask_text("hello") == "you said hello"
        many = await asyncio.gather(*(a2a.ask_text(f"number {at}") for at in range(6)))
        assert many == [f"you said number {at}" for at in range(6)]
        known = "RELAY_AGENT_NAME,RELAY_CHANNEL,RELAY_CONTEXT_ID,RELAY_TASK_ID"
        assert await a2a.ask_text("env") == known, "the rest is none of its business"
        much = await a2a.ask_text("much")
        assert (len(much) > 1_000_000, much.endswith("[the rest is left out]")) == (True, True)
    await gone(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
async def test_command_cannot_read_the_key_of_the_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = local(tmp_path)
    python = tmp_path / "python"
    python.write_text(UNPRIVILEGED.format(python=sys.executable))
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    async with running(agent) as a2a:
        assert await a2a.ask_text("look") == "nothing"


async def test_the_text_may_have_its_place_among_the_arguments(tmp_path: Path) -> None:
    async with running(local(tmp_path, "{prompt}")) as a2a:
        assert await a2a.ask_text("$(reboot); `x` 'y'") == "you said $(reboot); `x` 'y'"
        assert await a2a.ask_text("--version") == "you said  --version", "it is no flag"


async def test_commands_get_their_conversation(tmp_path: Path) -> None:
    async with running(local(tmp_path, "{prompt}", "--session={context}")) as a2a:
        first = await a2a.send_text("{context}")
        again = Message(message_id="m-2", role=Role.USER, parts=(Part(text="on"),), context_id=first.context_id)
        second = await a2a.send(again)
        other = await a2a.ask_text("on")
    assert text_in(first).startswith("you said {context} --session=")
    session = text_in(first).rpartition("=")[2]
    assert str(UUID(session)) == session
    assert text_in(second) == f"you said on --session={session}"
    assert session not in other


async def test_failed_commands_report_the_reason(tmp_path: Path) -> None:
    async with running(local(tmp_path)) as a2a:
        task = await a2a.send_text("fail")
        assert (task.status.state, text_in(task)) == (TaskState.FAILED, "exit status 3: no such city")
    async with running(LocalRelay(["/nowhere/at/all"], target_agent="W", poll_interval=0.02)) as a2a:
        task = await a2a.send_text("go")
        assert text_in(task).startswith("/nowhere/at/all cannot be started")


async def test_cancelled_everything_it_has_started_is_gone(tmp_path: Path) -> None:
    async with running(local(tmp_path)) as a2a:
        task = await a2a.send_text("slow", at_once=True)
        await works(tmp_path)
        assert (await a2a.cancel(task)).status.state is TaskState.CANCELED
        await gone(tmp_path)
        assert await a2a.ask_text("hello") == "you said hello", "the agent itself is still there"


async def test_cancelled_in_the_middle_of_a_flood_it_leaves_its_place(tmp_path: Path) -> None:
    async with running(local(tmp_path)) as a2a:
        for _ in range(CONCURRENT_REQUESTS):
            task = await a2a.send_text("flood", at_once=True)
            await works(tmp_path)
            await a2a.cancel(task)
            await gone(tmp_path)
            (tmp_path / "beats").unlink()
        assert await a2a.ask_text("hello") == "you said hello"


async def test_timed_out_requests_free_their_slot(tmp_path: Path) -> None:
    made = local(tmp_path)
    made.timeout = 0.3
    async with running(made) as a2a:
        tasks = await asyncio.gather(*(a2a.send_text(f"slow {at}") for at in range(CONCURRENT_REQUESTS)))
        assert {text_in(task) for task in tasks} == {"No DONE response within 0.3s"}
        made.timeout = 30.0
        assert await a2a.ask_text("hello") == "you said hello"
        await gone(tmp_path)


async def test_stopped_everything_it_has_started_is_gone(tmp_path: Path) -> None:
    async with running(local(tmp_path)) as a2a:
        await a2a.send_text("slow", at_once=True)
        await works(tmp_path)
    await gone(tmp_path)


def native() -> LocalRelay:
    return LocalRelay([sys.executable, str(NATIVE)], native=True, target_agent="Worker1", poll_interval=0.02)


async def test_an_agent_that_ends_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.agents.relay.agent.RESTARTS", RetryPolicy(first_seconds=0.01))
    async with running(native()) as a2a:
        assert await a2a.ask_text("one") == "natively one"
        first = natives()
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        assert await a2a.ask_text("two") == "natively two"
        assert not set(natives()) & set(first)
    assert not natives()


def natives() -> list[int]:
    """Return the native agents that this process has started."""
    found = []
    for pid in descendants(os.getpid()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [pid] if str(NATIVE).encode() in words[:2] else []
    return found


async def test_an_agent_may_read_the_channel_itself(tmp_path: Path) -> None:
    async with running(native()) as a2a:
        assert await a2a.ask_text("hello there") == "natively hello"


def test_settings_make_one_with_a_command() -> None:
    said = RelayOptions(command="claude -p", timeout=5.0)
    with pytest.raises(ValueError, match="there is no claude on this machine: install it"):
        AGENT_TYPE.make(AgentArguments(options=said, name="cli", env={"PATH": ""}))
    made = AGENT_TYPE.make(AgentArguments(options=replace(said, installed_later=True), name="cli"))
    assert isinstance(made, LocalRelay)
    assert (made.command, made.target_agent, made.timeout) == (["claude", "-p"], "Worker1", 5.0)


# --- the command ------------------------------------------------------------------------------------------------------


class Relayed(Server):
    """`accord a2a serve` as a real process."""

    verb = ("a2a", "serve")


def said(text: str) -> dict[str, Any]:
    """A message as the specification of the relay writes it."""
    message = {"role": "user", "parts": [{"type": "text", "text": text}], "messageId": f"m-{text}"}
    return {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": {"message": message}}


FLAGS = ("--channel", "general", "--agent", "Worker1")


@pytest.mark.proves("1-53", "1-54", "1-55", "1-56")
async def test_the_command_serves_an_agent_of_a_channel(tmp_path: Path) -> None:
    stand_in = shlex.join(command(tmp_path))
    server = await asyncio.to_thread(Relayed, tmp_path, *FLAGS, "--command", stand_in)
    try:
        card = await _card(server.port)
        assert card["name"] == "Agent Relay"
        assert card["description"] == "Multi-agent workspace (channel: general)"
        assert card["capabilities"]["streaming"] is False
        assert "Serving Worker1 in #general" in server.says("Serving")
        async with httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
            task = (await http.post(f"{server.url}/", json=said("hello"))).json()["result"]
            assert task["status"]["state"] == "completed"
            assert task["artifacts"][0]["parts"][0]["text"] == "you said hello"
            slow = said("slow")
            slow["params"]["configuration"] = {"blocking": False}
            await http.post(f"{server.url}/", json=slow)
        await works(tmp_path)
    finally:
        status = await asyncio.to_thread(server.stop)
    assert status == 0
    await gone(tmp_path)


async def test_killed_it_leaves_nothing_behind(tmp_path: Path) -> None:
    server = await asyncio.to_thread(Relayed, tmp_path, *FLAGS, "--command", shlex.join(command(tmp_path)))
    async with httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
        slow = said("slow")
        slow["params"]["configuration"] = {"blocking": False}
        await http.post(f"{server.url}/", json=slow)
    await works(tmp_path)
    await asyncio.to_thread(server.kill)
    await gone(tmp_path)


async def test_without_a_command_an_agent_may_join(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    server = await asyncio.to_thread(Relayed, tmp_path, *FLAGS, PATH=str(empty))
    try:
        told = await asyncio.to_thread(server.says, "RELAY_BASE_URL=")
        env = environment(tmp_path) | dict(pair.split("=", 1) for pair in shlex.split(told))
        worker = await asyncio.create_subprocess_exec(sys.executable, str(NATIVE), env=env)
        try:
            async with httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
                task = (await http.post(f"{server.url}/", json=said("hello"))).json()["result"]
            assert task["artifacts"][0]["parts"][0]["text"] == "natively hello"
        finally:
            worker.kill()
            await asyncio.wait_for(worker.wait(), BOUND_SECONDS)
    finally:
        await asyncio.to_thread(server.stop)


def test_unservable_commands_are_reported_at_start(tmp_path: Path) -> None:
    nothing = accord(tmp_path, "a2a", "serve", "--command", "no-such-command -p")
    assert (nothing.returncode, "Command not found" in nothing.stderr) == (2, True)
    keyless = accord(tmp_path, "a2a", "serve", "--relay-url", "https://relay.example", RELAY_API_KEY="")
    assert (keyless.returncode, keyless.stderr) == (1, "The relay requires an API key: set RELAY_API_KEY.\n")
    open_to_all = accord(tmp_path, "a2a", "serve", "--host", "0.0.0.0", "--port", str(free_port()))
    assert (open_to_all.returncode, "Anybody could use this server" in open_to_all.stderr) == (1, True)
    assert "a2a" in accord(tmp_path, "--help").stdout


# --- served by a program ----------------------------------------------------------------------------------------------


@pytest.mark.proves("1-52")
async def test_a_program_serves_it_with_one_call(tmp_path: Path) -> None:
    port = free_port()
    code = (
        "from accord import serve_agent\n"
        "from accord.agents.relay.agent import LocalRelay\n"
        f"serve_agent(LocalRelay({command(tmp_path)!r}, target_agent='Worker1'), port={port}, store='sqlite://:memory:')\n"
    )
    env = environment(tmp_path)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=env)
    try:
        card = await _card(port)
        assert (card["name"], card["capabilities"]["streaming"]) == ("Agent Relay", False)
        async with httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
            task = (await http.post(f"http://localhost:{port}/", json=said("hello"))).json()["result"]
        assert task["artifacts"][0]["parts"][0]["text"] == "you said hello"
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), BOUND_SECONDS) == 0
    await gone(tmp_path)


async def _card(port: int) -> dict[str, Any]:
    async with httpx.AsyncClient() as http, asyncio.timeout(BOUND_SECONDS):
        while True:
            try:
                card: dict[str, Any] = (await http.get(f"http://localhost:{port}/.well-known/agent.json")).json()
                return card
            except httpx.ConnectError:
                await asyncio.sleep(0.05)


def test_a_program_may_not_open_it_to_all() -> None:
    from accord import RelayA2AAdapter, serve_agent
    from accord.server.http_server import CannotListen

    with pytest.raises(CannotListen, match="Anybody could use this server"):
        serve_agent(RelayA2AAdapter("rk"), host="0.0.0.0", store="sqlite://:memory:")
