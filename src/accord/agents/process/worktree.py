"""A worktree of a git repository for each task, so that tasks do not write over each other's files.

It is made from a base and removed when nothing in it would be lost: what was not committed stays where it is, what was
committed stays in the branch. Git is called as a command; `workspace` stands above.
"""

import asyncio
import os
from pathlib import Path

from msgspec import Struct

GIT_SECONDS = 120.0
"""How long git may take for one thing: a checkout of a large repository is slow."""


class GitFailed(Exception):
    """Git did not do it; the text is its own."""


class Worktree(Struct, frozen=True, kw_only=True):
    """Where a task works, on which branch, and the commit that it began from."""

    repository: Path
    path: Path
    branch: str
    base: str


async def made(repository: Path, path: Path, branch: str, base: str) -> Worktree:
    """Make the worktree of a task, or find it again."""
    if not await asyncio.to_thread((path / ".git").exists):
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        await git(repository, "worktree", "prune")
        known = await git(repository, "branch", "--list", "--format=%(refname)", branch)
        new = (
            ("worktree", "add", "--quiet", str(path), branch)
            if known
            else ("worktree", "add", "--quiet", "-b", branch, str(path), base)
        )
        await git(repository, *new)
    begun = await git(repository, "merge-base", branch, base)
    return Worktree(repository=repository, path=path, branch=branch, base=begun)


async def left(tree: Worktree, *, keeps: bool) -> dict[str, object] | None:
    """Remove a worktree if that loses nothing, and return what is left of it: a branch, or all."""
    changed = await git(tree.path, "status", "--porcelain", "--untracked-files=normal")
    commits = int(await git(tree.path, "rev-list", "--count", f"{tree.base}..HEAD"))
    branch = await git(tree.path, "rev-parse", "--abbrev-ref", "HEAD")
    removes = not keeps and not changed and branch == tree.branch
    if removes:
        await git(tree.repository, "worktree", "remove", str(tree.path))
        if not commits:
            await git(tree.repository, "branch", "--quiet", "-D", tree.branch)
            return None
    return {
        "branch": tree.branch,
        "path": None if removes else str(tree.path),
        "base": tree.base,
        "commits": commits,
        "uncommitted": bool(changed),
    }


async def git(directory: Path, *arguments: str) -> str:
    """Do something with git and return what it says."""
    process = await asyncio.create_subprocess_exec(
        "git",
        *("-C", str(directory), *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**_environment(), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
    )
    try:
        async with asyncio.timeout(GIT_SECONDS):
            out, err = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    if process.returncode != 0:
        raise GitFailed(err.decode(errors="replace").strip() or f"git {arguments[0]} failed")
    return out.decode(errors="replace").strip()


def _environment() -> dict[str, str]:
    """Return what git needs; variables that point it at another repository are none of that."""
    return {name: value for name in ("PATH", "HOME") if (value := os.environ.get(name)) is not None}
