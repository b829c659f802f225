"""A step that makes a worktree of the repository that a run works in, or takes the one that is there already.

So a run that comes here again finds what it made. Nothing is removed but what a killed git has left half made, and
nothing is committed: that is for the steps that work there. Git is a command like any other (`command`).
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

from msgspec import Struct

from accord.agents.process.worktree import GIT_SECONDS, GitFailed
from accord.workflows.steps.command import Ran, run
from accord.workflows.steps.kinds import StepKind
from accord.workflows.steps.scene import Result, Scene

BELOW = ".worktrees"
"""Where worktrees are whose step does not say where."""

HALF_MADE = "initializing"
"""Why git has locked a worktree that it had not finished when it was killed."""

ELSEWHERE = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
"""Variables that point git at a repository, whatever directory it is in."""

_making: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
"""Git locks its repository and does not wait, so one at a time is made of each."""


class Tree(Struct, frozen=True):
    """A worktree that git knows of; one without a branch is on none."""

    path: Path
    branch: str | None
    locked: str | None


async def worktree(scene: Scene) -> Result:
    """Make the worktree of a step, and say where it is."""
    try:
        async with asyncio.timeout(scene.step.timeout):
            path = await _Git(scene).worktree()
    except GitFailed as error:
        return Result(ok=False, error=str(error))
    except TimeoutError:
        return Result(ok=False, error=f"The worktree was not there within {scene.step.timeout:g} seconds")
    return Result(ok=True, output=str(path), exit_code=0)


class _Git:
    """What is done with git for one step."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._place = scene.place
        self._env = _environment(scene.env)

    async def worktree(self) -> Path:
        """Return where the worktree is, which is made unless it is there."""
        step, text = self._scene.step, self._scene.values.text
        branch = text(step.branch or "").strip()
        base = text(step.base_branch or "HEAD").strip()
        path = await asyncio.to_thread(_found, self._place, text(step.path or f"{BELOW}/{step.name}"))
        if branch.startswith("-") or (await self._run("check-ref-format", f"refs/heads/{branch}")).error is not None:
            raise GitFailed(f"{branch!r} is no name of a branch")
        common = await self._do("rev-parse", "--path-format=absolute", "--git-common-dir")
        async with _making.setdefault(Path(common), asyncio.Lock()):
            if not await self._is_there(path, branch):
                await self._make(path, branch, base)
        return path

    async def _is_there(self, path: Path, branch: str) -> bool:
        """Whether it is there already; what is there instead is an error."""
        found = next((tree for tree in await self._trees() if tree.path == path), None)
        if found is None:
            return False
        if not await asyncio.to_thread((path / ".git").exists):
            if found.locked is not None:
                await self._do("worktree", "unlock", str(path))
            await self._do("worktree", "prune", "--expire", "now")
            return False
        if found.locked == HALF_MADE:
            await self._do("worktree", "remove", "--force", "--force", str(path))
            return False
        if found.branch != branch:
            there = f"on {found.branch}" if found.branch else "on no branch"
            raise GitFailed(f"{path} is a worktree already, but {there} instead of {branch}: give the step a path")
        return True

    async def _make(self, path: Path, branch: str, base: str) -> None:
        if self._scene.step.path is None:
            await asyncio.to_thread(_hide, path.parent)
        if await self._has(f"refs/heads/{branch}"):
            taken = next((tree.path for tree in await self._trees() if tree.branch == branch), None)
            if taken is not None:
                raise GitFailed(f"The branch {branch} is checked out already, in {taken}: give the step another branch")
            await self._do("worktree", "add", "--quiet", str(path), branch)
            return
        if not self._scene.step.create_branch:
            raise GitFailed(f"There is no branch {branch}: make it, or say createBranch: true")
        if base.startswith("-") or not await self._has(f"{base}^{{commit}}"):
            raise GitFailed(f"There is no commit {base!r} to begin the branch {branch} from")
        await self._do("worktree", "add", "--quiet", "--no-track", "-b", branch, str(path), base)

    async def _trees(self) -> list[Tree]:
        return list(_read(await self._do("worktree", "list", "--porcelain")))

    async def _has(self, name: str) -> bool:
        return (await self._run("rev-parse", "--verify", "--quiet", "--end-of-options", name)).error is None

    async def _do(self, *arguments: str) -> str:
        ran = await self._run(*arguments)
        if ran.error is not None:
            raise GitFailed(ran.problem or ran.errors.strip() or ran.error)
        return ran.output

    async def _run(self, *arguments: str) -> Ran:
        return await run(("git", *arguments), directory=self._place, env=self._env, seconds=GIT_SECONDS)


def _hide(folder: Path) -> None:
    """Keep worktrees within a repository from being added to it."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / ".gitignore"
    if not mark.exists():
        mark.write_text("*\n")


def _found(place: Path, path: str) -> Path:
    return (place / os.path.expanduser(path)).resolve()


def _read(listed: str) -> Iterator[Tree]:
    """Yield what git lists: lines for each, ended by an empty one."""
    for block in listed.split("\n\n"):
        said = dict(line.partition(" ")[::2] for line in block.splitlines() if line)
        if "worktree" in said:
            branch = said.get("branch", "").removeprefix("refs/heads/") or None
            yield Tree(Path(said["worktree"]).resolve(), branch, said.get("locked"))


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return what git gets: nothing that points it at another repository."""
    kept = {name: value for name, value in env.items() if name not in ELSEWHERE}
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


STEP = StepKind(do=worktree)
