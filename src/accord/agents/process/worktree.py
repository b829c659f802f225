"""A worktree of a git repository for each task, so that tasks do not write over each other's files.

It is made from a base and removed when nothing in it would be lost: what was not committed stays where it is, what was
committed stays in the branch. Git is called by `git`; `workspace` stands above.
"""

import asyncio
import os.path
from pathlib import Path

from msgspec import Struct

from accord.agents.process.git import HALF_MADE, GitFailed, Repository

GITLINK = "160000 "
"""Mode of a submodule in git's index."""


class Worktree(Struct, frozen=True, kw_only=True):
    """Where a task works, on which branch, and the commit that it began from."""

    repository: Repository
    path: Path
    branch: str
    base: str


async def made(repository: Repository, path: Path, branch: str, base: str) -> Worktree:
    """Make the worktree of a task, or find it again."""
    if not await _is_there(repository, path):
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        known = await repository.run("branch", "--list", "--format=%(refname)", branch)
        await repository.add_worktree(path, branch, None if known else base)
    begun = await repository.run("merge-base", branch, base)
    return Worktree(repository=repository, path=path, branch=branch, base=begun)


async def left(tree: Worktree, *, keeps: bool) -> dict[str, object] | None:
    """Remove a worktree if that loses nothing, and return what is left of it: a branch, or all."""
    repository, path = tree.repository, tree.path
    changed = await repository.run_in(
        path, "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=all"
    )
    commits = int(await repository.run_in(path, "rev-list", "--count", f"{tree.base}..HEAD"))
    head = await asyncio.to_thread(repository.head_of, path)
    removes = not keeps and not changed and head == f"ref: refs/heads/{tree.branch}"
    if removes:
        # Only git in a submodule could say whether it has changes, by that repository's own configuration.
        files = await repository.run_in(path, "ls-files", "--stage")
        if any(line.startswith(GITLINK) for line in files.splitlines()):
            raise GitFailed(f"{path} has submodules")
        await repository.run("worktree", "remove", "--force", str(path))  # whether it has changes is known
        if not commits:
            await repository.run("branch", "--quiet", "-D", tree.branch)
            return None
    return {
        "branch": tree.branch,
        "path": None if removes else str(path),
        "base": tree.base,
        "commits": commits,
        "uncommitted": bool(changed),
    }


async def _is_there(repository: Repository, path: Path) -> bool:
    """Whether a worktree is there as it was made; what a killed server left half made is removed."""
    place = await asyncio.to_thread(path.resolve)
    found = next((tree for tree in await repository.worktrees() if tree.path == place), None)
    is_there = await asyncio.to_thread(os.path.lexists, path / ".git")
    if found is not None and (found.locked == HALF_MADE or not is_there):
        await repository.forget(found)
        return False
    if is_there:
        await asyncio.to_thread(repository.admin_of, path)
    return is_there
