"""Worktree steps: create or reuse a worktree of the run's repository.

Nothing is removed except the remains of a git that was killed, and nothing is committed. Git runs without the
repository's own configuration (`agents.process.git`).
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from weakref import WeakValueDictionary

from accord.agents.process.git import HALF_MADE, GitFailed, Repository, find_repository
from accord.workflows.executors import Result, Scene, StepKind

BELOW = ".worktrees"
"""The directory of worktrees whose step has no path."""

_making: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
"""Locks by repository. Git locks a repository and does not wait, so each repository makes one worktree at a time."""


async def worktree(scene: Scene) -> Result:
    """Create or reuse the worktree of a step; its path is the output."""
    try:
        async with asyncio.timeout(scene.step.timeout):
            repository = await find_repository(scene.place, scene.env)
            path = await _Making(scene, repository).worktree()
    except GitFailed as error:
        return Result(ok=False, error=str(error))
    except TimeoutError:
        return Result(ok=False, error=f"The worktree was not there within {scene.step.timeout:g} seconds")
    return Result(ok=True, output=str(path), exit_code=0)


class _Making:
    """Creates the worktree of one step."""

    def __init__(self, scene: Scene, repository: Repository) -> None:
        self._scene = scene
        self._repository = repository

    async def worktree(self) -> Path:
        """Return the path of the worktree; create it if it does not exist."""
        step, text = self._scene.step, self._scene.values.text
        branch = text(step.branch or "").strip()
        base = text(step.base_branch or "HEAD").strip()
        path = await asyncio.to_thread(_found, self._scene.place, text(step.path or f"{BELOW}/{step.name}"))
        if branch.startswith("-") or not await self._succeeds("check-ref-format", f"refs/heads/{branch}"):
            raise GitFailed(f"{branch!r} is no name of a branch")
        async with _making.setdefault(self._repository.common, asyncio.Lock()):
            if not await self._is_there(path, branch):
                await self._make(path, branch, base)
        return path

    async def _is_there(self, path: Path, branch: str) -> bool:
        """Whether the worktree exists; raises GitFailed for another one at its path."""
        repository = self._repository
        found = next((tree for tree in await repository.worktrees() if tree.path == path), None)
        if found is None:
            return False
        if found.locked == HALF_MADE or not await asyncio.to_thread((path / ".git").exists):
            await repository.forget(found)
            return False
        if found.branch != branch:
            there = f"on {found.branch}" if found.branch else "on no branch"
            raise GitFailed(f"{path} is a worktree already, but {there} instead of {branch}: give the step a path")
        return True

    async def _make(self, path: Path, branch: str, base: str) -> None:
        repository = self._repository
        if self._scene.step.path is None:
            await asyncio.to_thread(_hide, path.parent)
        if await self._has(f"refs/heads/{branch}"):
            taken = next((tree.path for tree in await repository.worktrees() if tree.branch == branch), None)
            if taken is not None:
                raise GitFailed(f"The branch {branch} is checked out already, in {taken}: give the step another branch")
            await repository.add_worktree(path, branch, None)
            return
        if not self._scene.step.create_branch:
            raise GitFailed(f"There is no branch {branch}: make it, or say createBranch: true")
        if base.startswith("-") or not await self._has(f"{base}^{{commit}}"):
            raise GitFailed(f"There is no commit {base!r} to begin the branch {branch} from")
        await repository.add_worktree(path, branch, base)

    async def _has(self, name: str) -> bool:
        return await self._succeeds("rev-parse", "--verify", "--quiet", "--end-of-options", name)

    async def _succeeds(self, *arguments: str) -> bool:
        try:
            await self._repository.run(*arguments)
        except GitFailed:
            return False
        return True


def _hide(folder: Path) -> None:
    """Keep worktrees in a repository from being added to it."""
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), open(folder / ".gitignore", "x") as mark:  # also raised for a dangling link
        mark.write("*\n")


def _found(place: Path, path: str) -> Path:
    return (place / os.path.expanduser(path)).resolve()


STEP = StepKind(do=worktree)
