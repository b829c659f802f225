"""Scenes for tests of steps: a directory, an environment, and what the channel and the tree hear."""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.workflows.document import Step
from accord.workflows.executors import Scene
from accord.workflows.values import Values

BOUND_SECONDS = 30
"""For machines that are busy with other things."""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What commands get: a path, and a home without anybody's settings."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", **more}


def scene(
    directory: Path,
    *,
    values: Values | None = None,
    env: Mapping[str, str] | None = None,
    lines: list[str] | None = None,
    **step: Any,
) -> Scene:
    """A step in a directory; `lines` gets what is heard."""
    heard = [] if lines is None else lines

    async def hear(text: str) -> None:
        heard.append(text)

    return Scene(
        run_id="run-1",
        step=Step(**{"name": "work", "type": "deterministic", **step}),
        attempt=1,
        directory=directory,
        env=environment(directory) if env is None else env,
        values=values or Values(),
        heard=hear,
    )


def git(directory: Path, *arguments: str) -> str:
    """Do something with git."""
    author = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**environment(directory), **author, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    ran = subprocess.run(
        ["git", "-C", str(directory), *arguments], check=True, capture_output=True, text=True, env=env, timeout=60
    )
    return ran.stdout.strip()


def repository(directory: Path) -> Path:
    """A repository with one commit."""
    directory.mkdir(parents=True, exist_ok=True)
    git(directory, "init", "--quiet", "--initial-branch=main")
    (directory / "readme").write_text("first\n")
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "-m", "first")
    return directory


async def appears(file: Path) -> str:
    """What is in a file, once there is something in it."""
    async with asyncio.timeout(BOUND_SECONDS):
        while not await asyncio.to_thread(lambda: file.exists() and file.read_text().strip()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return await asyncio.to_thread(lambda: file.read_text().strip())


def is_alive(pid: int) -> bool:
    """Whether a process is there, and is not only waiting to be buried."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def gone(pid: int, seconds: float = BOUND_SECONDS) -> None:
    """Wait until a process is gone."""
    async with asyncio.timeout(seconds):
        while is_alive(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
