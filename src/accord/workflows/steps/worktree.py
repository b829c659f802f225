"""Worktree steps: create or reuse a worktree of the run's repository.

Nothing is removed except the remains of a git that was killed, and nothing is committed. Git runs without the
repository's own configuration (`agents.git`).
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from accord.agents.git import GitFailed, Repository, find_repository
from accord.workflows.executors import Result, Scene, StepExecutorType

BELOW = ".worktrees"
"""The directory of worktrees whose step has no path."""


async def worktree(scene: Scene) -> Result:
    """Create or reuse the worktree of a step; its path is the output."""
    try:
        async with asyncio.timeout(scene.step.timeout):
            path = await _open(scene, await find_repository(scene.place, scene.env))
    except GitFailed as error:
        return Result(ok=False, error=str(error))
    except TimeoutError:
        return Result(ok=False, error=f"The worktree was not there within {scene.step.timeout:g} seconds")
    return Result(ok=True, output=str(path), exit_code=0)


async def _open(scene: Scene, repository: Repository) -> Path:
    """Return the path of the worktree; create it if it does not exist."""
    step, text = scene.step, scene.values.text
    branch = text(step.branch or "").strip()
    base = text(step.base_branch or "HEAD").strip()
    path = await asyncio.to_thread(_resolve, scene.place, text(step.path or f"{BELOW}/{step.name}"))
    if branch.startswith("-") or not await repository.succeeds("check-ref-format", f"refs/heads/{branch}"):
        raise GitFailed(f"{branch!r} is not a valid branch name")
    async with repository.lock():
        existing = await repository.find_worktree(path)
        if existing is None:
            if step.path is None:
                await asyncio.to_thread(_hide, path.parent)
            await _add(repository, path, branch, base, creates=step.create_branch)
        elif existing.branch != branch:
            there = f"on {existing.branch}" if existing.branch else "on no branch"
            raise GitFailed(f"{path} is a worktree already, but {there} instead of {branch}: give the step a path")
    return path


async def _add(repository: Repository, path: Path, branch: str, base: str, *, creates: bool) -> None:
    if await repository.has(f"refs/heads/{branch}"):
        taken = next((tree.path for tree in await repository.worktrees() if tree.branch == branch), None)
        if taken is not None:
            raise GitFailed(f"The branch {branch} is checked out already, in {taken}: give the step another branch")
        await repository.add_worktree(path, branch, None)
        return
    if not creates:
        raise GitFailed(f"There is no branch {branch}: make it, or say createBranch: true")
    if base.startswith("-") or not await repository.has(f"{base}^{{commit}}"):
        raise GitFailed(f"There is no commit {base!r} to begin the branch {branch} from")
    await repository.add_worktree(path, branch, base)


def _hide(folder: Path) -> None:
    """Keep worktrees in a repository from being added to it."""
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), open(folder / ".gitignore", "x") as mark:  # also raised for a dangling link
        mark.write("*\n")


def _resolve(place: Path, path: str) -> Path:
    return (place / os.path.expanduser(path)).resolve()


STEP = StepExecutorType(do=worktree)
