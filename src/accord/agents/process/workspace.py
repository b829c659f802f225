"""Where a command works: a directory that it is given, a fresh one for each conversation, or a worktree for each task.

Fresh directories are below one root and have names that say nothing of whose they are. What is put into them is
`files`; worktrees are `worktree`.
"""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from accord.agents.process import files, worktree
from accord.agents.process.files import Boxes, Whose
from accord.agents.process.git import GitFailed, Repository, find_repository
from accord.agents.process.options import ProcessOptions
from accord.agents.process.worktree import Worktree
from accord.engine.context import Context, Failed

DAY_SECONDS = 24 * 3600.0

CONVERSATIONS, WORKTREES = "conversations", "worktrees"
"""Folders below the root."""

log = logging.getLogger("accord.process")


class Placed(Struct, frozen=True, kw_only=True):
    """Where a task is to work, and which variables it gets besides, if whoever may give it tasks says so."""

    directory: Path
    env: Mapping[str, str] = {}


Placing = Callable[[Context], Placed | None]
"""Reads that from a task; only for agents that no stranger can give tasks to."""


class Place(Struct, frozen=True, kw_only=True):
    """Where one task works, and variables that only it gets."""

    directory: Path
    boxes: Boxes
    tree: Worktree | None = None
    env: Mapping[str, str] = {}


class Workspaces:
    """The places of one agent."""

    def __init__(self, options: ProcessOptions, root: Path, placing: Placing | None = None) -> None:
        """Make fresh places below `root`, unless a task says where it works."""
        self._options = options
        self._placing = placing
        self._root = root
        self._given = _path(options.directory)
        self._repository = _path(options.repository)
        self._git: Repository | None = None
        self._making = asyncio.Lock()

    async def open(self, ctx: Context) -> Place:
        """Make the place of a task, or find it again."""
        placed = None if self._placing is None else self._placing(ctx)
        try:
            tree = await self._tree(ctx.task_id)
            directory = tree.path if tree is not None else placed.directory if placed else self._directory(ctx)
            whose = Whose(ctx.tenant, ctx.task_id)
            boxes = await asyncio.to_thread(_prepared, directory, whose, self._options.outbox)
        except (OSError, GitFailed) as error:
            log.exception("no place to work", extra={"task_id": ctx.task_id})
            raise Failed("There is no place to work for this task") from error
        return Place(directory=directory, boxes=boxes, tree=tree, env=placed.env if placed else {})

    async def close(self, place: Place) -> dict[str, object] | None:
        """Leave a place when its task is done, and return where its work is, if it has left any in a worktree."""
        await asyncio.to_thread(files.close_boxes, place.boxes)
        if place.tree is None:
            return None
        try:
            async with self._making:
                return await worktree.left(place.tree, keeps=self._options.keep_worktree)
        except (OSError, GitFailed) as error:
            about = {"path": str(place.tree.path), "reason": str(error)}
            log.warning("worktree stays: %s: %s", place.tree.path, error, extra=about)
            return told(place.tree)

    async def prepare(self, is_over: Callable[[str, str], Awaitable[bool]]) -> None:
        """Refuse what is not there, and leave places that nobody has left: of tasks that ended while they waited.

        Directories of conversations in which nothing was said for long are removed.
        """
        for wanted in (self._given, self._repository):
            if wanted is not None and not await asyncio.to_thread(wanted.is_dir):
                raise ValueError(f"{wanted} is no directory")
        for directory, whose, boxes in await asyncio.to_thread(lambda: list(self._left())):
            if await is_over(whose.tenant, whose.task_id):
                await self.close(Place(directory=directory, boxes=boxes, tree=await self._found(directory, whose)))
        if self._options.keep_days is not None:
            before = time.time() - self._options.keep_days * DAY_SECONDS
            await asyncio.to_thread(_sweep, self._root / CONVERSATIONS, before)

    def _directory(self, ctx: Context) -> Path:
        if self._given is not None:
            return self._given
        whose = "\0".join((ctx.tenant, ctx.caller.owner, ctx.context_id))
        return self._root / CONVERSATIONS / hashlib.sha256(whose.encode()).hexdigest()[:32]

    def _left(self) -> Iterator[tuple[Path, Whose, Boxes]]:
        given = [] if self._given is None else [self._given]
        for directory in (*given, *self._root.glob(f"{CONVERSATIONS}/*"), *self._root.glob(f"{WORKTREES}/*")):
            for whose, boxes in files.opened(directory):
                yield directory, whose, boxes

    async def _found(self, directory: Path, whose: Whose) -> Worktree | None:
        """Return the worktree that a directory is."""
        if directory.parent != self._root / WORKTREES:
            return None
        try:
            return await self._tree(whose.task_id)
        except (OSError, GitFailed) as error:
            log.warning("worktree stays: %s: %s", directory, error)
            return None

    async def _tree(self, task_id: str) -> Worktree | None:
        options = self._options
        if self._repository is None:
            return None
        name = files.safe_name(task_id)
        async with self._making:  # git locks its repository and does not wait
            if self._git is None:  # before an agent of this server has worked in it
                self._git = await find_repository(self._repository, os.environ)
            path, branch = self._root / WORKTREES / name, options.branch.replace("{task}", name)
            return await worktree.made(self._git, path, branch, options.base)


def told(tree: Worktree) -> dict[str, object]:
    """Return what a caller may know of a worktree that is there."""
    return {"branch": tree.branch, "path": str(tree.path), "base": tree.base}


def _path(given: str | None) -> Path | None:
    return None if given is None else Path(given).expanduser().absolute()


def _prepared(directory: Path, whose: Whose, outbox: str | None) -> Boxes:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.parent.name == CONVERSATIONS:
        os.utime(directory)  # or a conversation that goes on would look old
    return files.open_boxes(directory, whose, outbox)


def _sweep(folder: Path, before: float) -> None:
    if not folder.is_dir():
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for one in folder.iterdir():
            if one.is_dir() and one.lstat().st_mtime < before:
                with suppress(OSError):
                    files.remove_tree(one.name, opened)
                log.info("removed the directory of an old conversation", extra={"path": str(one)})
    finally:
        os.close(opened)
