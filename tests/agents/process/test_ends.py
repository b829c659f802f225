"""Nothing of a command outlives its task: not when it is cancelled, not when the node dies, however it behaves."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accord.agents import subprocesses
from accord.agents.command_supervisor import descendants
from accord.model import GetRequest, Task, TaskState
from accord.testing import running
from accord.testing.inprocess import Running
from tests.agents.process.conftest import BOUND_SECONDS, Left, Making, another, lives, status, text, until, words
from tests.bounds import LONG_SECONDS, bounded

ROOT = Path(__file__).parent.parent.parent.parent
GONE_SECONDS = 30
"""Within which nothing may be left of a command that was cancelled."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


async def family(a2a: Running, task: Task) -> list[int]:
    """The processes that the wild command says it has."""

    async def told() -> list[int]:
        return [int(pid) for pid in text(await a2a.get(task)).split()]

    found: list[int] = await until(told)
    return found


@linux
async def test_grandchildren_that_left_and_ignore_sigterm_are_gone(making: Making, tmp_path: Path, left: Left) -> None:
    async with running(making(command=words("wild", str(tmp_path)), grace=1.0)) as a2a:
        task = await a2a.send_text("go", at_once=True)
        pids = await family(a2a, task)
        assert len(pids) == 3
        assert all(map(lives, pids))
        assert (await a2a.cancel(task)).status.state is TaskState.CANCELED
        async with asyncio.timeout(GONE_SECONDS):
            await until(lambda: not any(map(lives, pids)) and not left())


@linux
@partial(bounded, seconds=LONG_SECONDS)
async def test_fifty_at_a_time_leave_no_orphan(making: Making, tmp_path: Path, left: Left) -> None:
    async with running(making(command=words("wild", str(tmp_path)), grace=0.2), bound=120) as a2a:
        tasks = [await a2a.send_text("go", at_once=True) for _ in range(50)]
        async with asyncio.timeout(120):
            families = await asyncio.gather(*(family(a2a, task) for task in tasks))
        pids = {pid for found in families for pid in found}
        assert len(pids) == 150
        assert all(map(lives, pids))
        await asyncio.gather(*(a2a.cancel(task) for task in tasks))
        await until(lambda: not any(map(lives, pids)) and not left())


@linux
async def test_a_node_that_stops_takes_its_commands_with_it(making: Making, tmp_path: Path, left: Left) -> None:
    async with running(making(command=words("wild", str(tmp_path)), grace=0.2)) as a2a:
        pids = await family(a2a, await a2a.send_text("go", at_once=True))
    assert not any(map(lives, pids))
    assert not left()


async def test_a_keeper_that_is_killed_takes_the_command_with_it(tmp_path: Path) -> None:
    command = subprocesses.SubprocessCommand(argv=["sleep", "1000"], directory=tmp_path, env=os.environ, grace=0.2)
    process = await subprocesses.start(command)
    process._supervisor.kill()
    async with asyncio.timeout(BOUND_SECONDS):
        assert await process.ended() == -signal.SIGKILL
        await process.stop()
    await until(lambda: not lives(process.pid))


@pytest.mark.parametrize("has_terminal", [False, True])
async def test_failed_starts_leave_no_process(tmp_path: Path, has_terminal: bool, left: Left) -> None:
    before = os.listdir("/dev/fd")
    for argv, directory in ((["no-such-command"], tmp_path), (["true"], tmp_path / "none"), (["a\0b"], tmp_path)):
        command = subprocesses.SubprocessCommand(
            argv=argv, directory=directory, env=os.environ, grace=0.2, has_terminal=has_terminal
        )
        with pytest.raises(subprocesses.SubprocessNotStarted):
            await subprocesses.start(command)
    assert not left()
    assert len(os.listdir("/dev/fd")) == len(before)


async def test_a_cancel_during_start_leaves_no_process(tmp_path: Path, left: Left) -> None:
    command = subprocesses.SubprocessCommand(argv=["sleep", "1000"], directory=tmp_path, env=os.environ, grace=0.2)
    starting = asyncio.create_task(subprocesses.start(command))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not left()


# --- kill -9 ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def node(store: str, told: str, home: Path, **said: Any) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A node that has taken a message, and the id of its task."""
    options = msgspec.json.encode({"root": str(home / "work"), "grace": 0.2, **said}).decode()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.agents.process.node", options, store, told),
        cwd=ROOT,
        env={**os.environ, "HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(BOUND_SECONDS):
            task_id = (await process.stdout.readline()).decode().strip()
        yield process, task_id
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ended(a2a: Running, task_id: str) -> Task:
    async def look() -> Task | None:
        task = await a2a.service.get(GetRequest(id=task_id), a2a.caller)
        return task if task.status.state in (TaskState.COMPLETED, TaskState.FAILED) else None

    task: Task = await until(look)
    return task


@linux
async def test_a_node_that_is_killed_leaves_no_process_and_its_task_fails(making: Making, tmp_path: Path) -> None:
    store, command = f"sqlite:///{tmp_path}/accord.db", words("wild", str(tmp_path))
    async with node(store, "go", tmp_path, command=command) as (process, task_id):
        await until((tmp_path / "beats").exists)
        below = descendants(process.pid)
        assert len(below) >= 4
        process.kill()
        await process.wait()
        await until(lambda: not any(map(lives, below)))
        beats = (tmp_path / "beats").stat().st_size
        async with another(making, store, command=command) as a2a:
            task = await ended(a2a, task_id)
            assert task.status.state is TaskState.FAILED
        assert (tmp_path / "beats").stat().st_size == beats, "what is not done twice was not done twice"


@linux
async def test_sessions_resume_after_a_killed_node(
    making: Making, binary: Callable[[str], str], tmp_path: Path
) -> None:
    store, said = f"sqlite:///{tmp_path}/accord.db", {"preset": "claude", "path": binary("claude")}
    async with node(store, "sleep", tmp_path, **said) as (process, task_id):
        await until(lambda: list((tmp_path / "sessions").glob("*/*")))
        async with another(making, store, **said) as a2a:

            async def spoken() -> bool:
                return "begin" in text(await a2a.service.get(GetRequest(id=task_id), a2a.caller))

            await until(spoken)
            process.kill()
            await process.wait()
            task = await ended(a2a, task_id)
            assert task.status.state is TaskState.COMPLETED, status(task)
            assert (
                text(task)
                == "I begin sleep | You were interrupted. Go on where you stopped, and do not repeat what is done. "
            )
