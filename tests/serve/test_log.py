"""What real processes write down: which task, and why; an agent that has its own ways with records keeps them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.running import BOUND_SECONDS, environment, running

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


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_is_written_down_with_its_task(tmp_path: Path, processes: int) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    with running(tmp_path, "mine.py:broken", "--workers", str(processes)) as server:
        task = server.send("ab")
        server.says("RuntimeError: abab")
    assert f"agent failed task_id={task['id']}\nTraceback" in server.all_shown


def test_records_are_the_agents_if_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_WAYS)
    with running(tmp_path, "mine.py:broken") as server:
        server.send("ab")
        server.says("RuntimeError: abab")
    assert "mine: agent failed\nTraceback" in server.all_shown
    assert server.all_shown.count("RuntimeError: abab") == 1


def test_a_failure_of_a_tool_is_written_down_with_its_task(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
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
    assert f"agent failed task_id={done.stdout.strip()}\nTraceback" in done.stderr
    assert "RuntimeError: abab" in done.stderr
