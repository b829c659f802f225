"""Directories in which commands work, and their incoming and outgoing files.

The directory comes from the settings, is new for each conversation, or is a worktree for each task. Files are below
`.accord` in it, in a folder for each task, invisible to git. Names from callers and links from commands are not
trusted, and nothing is written or read outside of these folders. Folders are therefore opened step by step, and files
by their names in an open folder.
"""

import asyncio
import errno
import hashlib
import logging
import mimetypes
import os
import re
import stat
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from accord.agents import git
from accord.agents.git import GitFailed, Repository, Worktree, find_repository
from accord.agents.process.options import ProcessOptions
from accord.api import Context, Failed, Rejected
from accord.model import Part

FOLDER, BEGAN = ".accord", "began"

MAX_NAME = 120
"""Maximum size of a file's name in bytes; with its unique suffix it fits every file system."""

MAX_DEPTH = 32
"""Maximum depth of folders that are searched for files; each level holds an open file."""

MAX_MARK = 4096
"""Maximum size of the file that names the owner of folders, in bytes."""

log = logging.getLogger("accord.process")

_FOLDER = os.O_RDONLY | os.O_DIRECTORY

_UNSAFE = re.compile(r"[^\w.+@=-]+")


class TooManyFiles(Rejected):
    """A message has more or larger files than the agent accepts."""


class FolderOwner(Struct, frozen=True):
    """The task that owns folders."""

    tenant: str
    task_id: str


class TaskFolders(Struct, frozen=True, kw_only=True):
    """The folders for a task's files; `began` is the task's start, by the clock of the file system."""

    directory: Path
    folder: Path
    inbox: Path
    outbox: Path
    began: int


def open_folders(directory: Path, owner: FolderOwner, outbox: str | None) -> TaskFolders:
    """Create the folders of a task, or find the existing ones."""
    folder = directory / FOLDER / safe_name(owner.task_id)
    outbox_path = directory / outbox if outbox else folder / "outbox"
    with _open_folder(directory, folder) as inside:
        for name, content in ((".gitignore", b"*\n"), (BEGAN, msgspec.json.encode(owner))):
            with suppress(FileExistsError):
                _create(inside, name, content)
        began = os.stat(BEGAN, dir_fd=inside, follow_symlinks=False).st_mtime_ns
    boxes = TaskFolders(directory=directory, folder=folder, inbox=folder / "inbox", outbox=outbox_path, began=began)
    for box in (boxes.inbox, boxes.outbox):
        with _open_folder(directory, box):
            pass
    return boxes


def remove_folders(boxes: TaskFolders) -> None:
    """Remove the folders of a task."""
    with suppress(OSError), _open_folder(boxes.directory, boxes.folder.parent) as top:
        remove_tree(boxes.folder.name, top)


def remove_tree(name: str, parent: int) -> None:
    """Remove a folder of any depth, as far as permissions allow. No link is followed.

    `shutil.rmtree` recurses, and an agent can make folders deeper than its limit. Folders are therefore moved up one by
    one.
    """
    top = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    try:
        count, is_emptied = 0, True
        while is_emptied:
            is_emptied = False
            for inner in os.listdir(top):
                with suppress(OSError):
                    if not _unlinked(inner, top):
                        count = _move_up(inner, top, count)
                        os.rmdir(inner, dir_fd=top)
                    is_emptied = True
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _move_up(name: str, top: int, count: int) -> int:
    """Empty a folder: remove its files, and move its folders beside it. Return the number of moved folders so far."""
    folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=top)
    try:
        for inner in os.listdir(folder):
            if not _unlinked(inner, folder):
                count += 1
                os.rename(inner, f".moved-{os.getpid()}-{count}", src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    return count


def _unlinked(name: str, folder: int) -> bool:
    """Whether an entry was removed; folders are not."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


def find_folders(directory: Path) -> Iterator[tuple[FolderOwner, TaskFolders]]:
    """Yield the folders of tasks in a directory."""
    for mark in sorted(directory.glob(f"{FOLDER}/*/{BEGAN}")):
        try:
            owner = msgspec.json.decode(_content(mark, MAX_MARK) or b"", type=FolderOwner)
            began = mark.lstat().st_mtime_ns
        except (OSError, msgspec.MsgspecError):
            continue  # gone, or not ours
        inbox, outbox = mark.parent / "inbox", mark.parent / "outbox"
        yield owner, TaskFolders(directory=directory, folder=mark.parent, inbox=inbox, outbox=outbox, began=began)


def write_inbox(boxes: TaskFolders, files: Sequence[Part], max_files: int, max_bytes: int) -> list[Path]:
    """Write the files of a message, and return their paths."""
    if len(files) > max_files:
        raise TooManyFiles(f"The message has {len(files)} files, and {max_files} are taken")
    written: list[Path] = []
    with _open_folder(boxes.directory, boxes.inbox) as inbox:
        for number, part in enumerate(files, 1):
            raw = part.raw or b""
            if len(raw) > max_bytes:
                raise TooManyFiles(
                    f"The file {part.filename or number} has {len(raw)} bytes, and {max_bytes} are taken"
                )
            media_type = (part.media_type or "").partition(";")[0].strip()
            name = safe_name(part.filename or f"file{mimetypes.guess_extension(media_type) or ''}")
            while boxes.inbox / name in written:
                name = f"{number}-{name}"
            with suppress(FileNotFoundError):
                if not _unlinked(name, inbox):  # from an earlier turn, and possibly a link or a folder by now
                    remove_tree(name, inbox)
            _create(inbox, name, raw)
            written.append(boxes.inbox / name)
    return written


def read_outbox(boxes: TaskFolders, max_files: int, max_bytes: int) -> tuple[list[Part], list[str]]:
    """Return the files written since the task started, and the names of those that are too many or too large."""
    parts: list[Part] = []
    skipped: list[str] = []
    try:
        with _open_folder(boxes.directory, boxes.outbox) as outbox:
            for path, base, folder in _new_files(outbox, boxes.began):
                name = os.fsencode(path).decode(errors="backslashreplace")  # file names need not be UTF-8, answers must
                raw = _content(base, max_bytes, folder) if len(parts) < max_files else None
                if raw is None:
                    skipped.append(name)
                else:
                    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
                    parts.append(Part(raw=raw, filename=name, media_type=kind))
    except OSError as error:  # the command has removed or replaced it
        log.warning("process.outbox_unusable", extra={"path": str(boxes.outbox), "reason": str(error)})
    return parts, skipped


def safe_name(name: str) -> str:
    """Return a file name that is valid in any folder and resembles the original."""
    base = _UNSAFE.sub("_", re.split(r"[/\\]", name)[-1]).lstrip(".-")
    stem, dot, suffix = base.rpartition(".")
    if len(base.encode()) > MAX_NAME:
        base = _shortened(stem, MAX_NAME - 20) + dot + _shortened(suffix, 19) if dot else _shortened(base, MAX_NAME)
    return base or "file"


def _shortened(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def _new_files(outbox: int, began: int) -> Iterator[tuple[str, str, int]]:
    """Yield files written since the task started, sorted, as path, name and open folder. No link is followed."""
    for place, folders, names, folder in os.fwalk(".", dir_fd=outbox):
        folders[:] = sorted(folder_name for folder_name in folders if folder_name not in (".git", FOLDER))
        if folders and place.count("/") >= MAX_DEPTH:
            log.warning("process.outbox_too_deep", extra={"path": place, "depth": MAX_DEPTH})
            folders.clear()
        for name in sorted(names):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and max(status.st_mtime_ns, status.st_ctime_ns) >= began:
                yield Path(place, name).as_posix(), name, folder


@contextmanager
def _open_folder(directory: Path, folder: Path) -> Iterator[int]:
    """Open a folder below a directory, and create it if it is missing. No link on the way is followed."""
    reached = os.open(directory, _FOLDER)
    try:
        names = folder.relative_to(directory).parts if folder.is_relative_to(directory) else ("..",)
        for name in names:
            reached = _open_inner(reached, name)
        yield reached
    finally:
        os.close(reached)


def _open_inner(outer: int, name: str) -> int:
    """Return an open folder in another one, which is closed on success."""
    try:
        if name != "..":
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=outer)
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=outer)
            os.close(outer)
            return inner
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
    raise OSError(f"{name} leads out of the directory that the command works in")


def _create(folder: int, name: str, content: bytes) -> None:
    """Write a new file into an open folder; an existing file or link is an error."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    with open(descriptor, "wb") as file:
        file.write(content)


def _content(path: Path | str, max_bytes: int, folder: int | None = None) -> bytes | None:
    """Return a file's content, or None if it is too large or has become a link."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
            raw = file.read(max_bytes + 1)
    except OSError:
        return None
    return raw if len(raw) <= max_bytes else None


DAY_SECONDS = 24 * 3600.0

CONVERSATIONS, WORKTREES = "conversations", "worktrees"
"""Folders below the root."""


class Placement(Struct, frozen=True, kw_only=True):
    """Working directory and additional variables of a task, if its callers may choose them."""

    directory: Path
    env: Mapping[str, str] = {}


ChoosePlacement = Callable[[Context], Placement | None]
"""Reads the placement from a task; only for agents whose callers are all trusted."""


class Workspace(Struct, frozen=True, kw_only=True):
    """The workspace of one task, with variables that only this task gets."""

    directory: Path
    boxes: TaskFolders
    tree: Worktree | None = None
    env: Mapping[str, str] = {}


class Workspaces:
    """The workspaces of one agent."""

    def __init__(self, options: ProcessOptions, root: Path, choose_placement: ChoosePlacement | None = None) -> None:
        """Create workspaces below `root`, unless a task chooses its directory."""
        self._options = options
        self._choose_placement = choose_placement
        self._root = root
        self._fixed_directory = _absolute_path(options.directory)
        self._repository = _absolute_path(options.repository)
        self._git: Repository | None = None
        self._reading = asyncio.Lock()

    async def open(self, ctx: Context) -> Workspace:
        """Create the workspace of a task, or find the existing one."""
        placed = None if self._choose_placement is None else self._choose_placement(ctx)
        try:
            tree = await self._task_worktree(ctx.task_id)
            directory = tree.path if tree is not None else placed.directory if placed else self._directory(ctx)
            owner = FolderOwner(ctx.tenant, ctx.task_id)
            boxes = await asyncio.to_thread(_prepare_folders, directory, owner, self._options.outbox)
        except (OSError, GitFailed) as error:
            log.exception("process.no_place", extra={"task_id": ctx.task_id})
            raise Failed("The working directory of this task could not be prepared") from error
        return Workspace(directory=directory, boxes=boxes, tree=tree, env=placed.env if placed else {})

    async def close(self, place: Workspace) -> dict[str, object] | None:
        """Close the workspace of a finished task, and return the facts of its worktree if work is left there."""
        await asyncio.to_thread(remove_folders, place.boxes)
        if place.tree is None:
            return None
        try:
            async with place.tree.repository.lock():
                return await git.close_worktree(place.tree, keeps=self._options.keep_worktree)
        except (OSError, GitFailed) as error:
            log_extra = {"path": str(place.tree.path), "reason": str(error)}
            log.warning("process.worktree_stays", extra=log_extra)
            return worktree_facts(place.tree)

    async def prepare(self, is_over: Callable[[str, str], Awaitable[bool]]) -> None:
        """Check the directories, and close workspaces of tasks that ended while they were suspended.

        Directories of conversations that were idle for `keep_days` are removed.
        """
        for needed in (self._fixed_directory, self._repository):
            if needed is not None and not await asyncio.to_thread(needed.is_dir):
                raise ValueError(f"{needed} is no directory")
        for directory, owner, boxes in await asyncio.to_thread(lambda: list(self._remaining_folders())):
            if await is_over(owner.tenant, owner.task_id):
                await self.close(
                    Workspace(directory=directory, boxes=boxes, tree=await self._worktree_in(directory, owner))
                )
        if self._options.keep_days is not None:
            before = time.time() - self._options.keep_days * DAY_SECONDS
            await asyncio.to_thread(_sweep, self._root / CONVERSATIONS, before)

    def _directory(self, ctx: Context) -> Path:
        if self._fixed_directory is not None:
            return self._fixed_directory
        owner = "\0".join((ctx.tenant, ctx.caller.owner, ctx.context_id))
        return self._root / CONVERSATIONS / hashlib.sha256(owner.encode()).hexdigest()[:32]

    def _remaining_folders(self) -> Iterator[tuple[Path, FolderOwner, TaskFolders]]:
        fixed = [] if self._fixed_directory is None else [self._fixed_directory]
        for directory in (*fixed, *self._root.glob(f"{CONVERSATIONS}/*"), *self._root.glob(f"{WORKTREES}/*")):
            for owner, boxes in find_folders(directory):
                yield directory, owner, boxes

    async def _worktree_in(self, directory: Path, owner: FolderOwner) -> Worktree | None:
        if directory.parent != self._root / WORKTREES:
            return None
        try:
            return await self._task_worktree(owner.task_id)
        except (OSError, GitFailed) as error:
            log.warning("process.worktree_stays", extra={"path": str(directory), "reason": str(error)})
            return None

    async def _task_worktree(self, task_id: str) -> Worktree | None:
        options = self._options
        if self._repository is None:
            return None
        name = safe_name(task_id)
        async with self._reading:
            if self._git is None:  # read before any agent of this server has worked in it
                self._git = await find_repository(self._repository, os.environ)
        path, branch = self._root / WORKTREES / name, options.branch.replace("{task}", name)
        async with self._git.lock():
            return await git.open_worktree(self._git, path, branch, options.base)


def worktree_facts(tree: Worktree) -> dict[str, object]:
    """Return the facts of a worktree that callers may see."""
    return {"branch": tree.branch, "path": str(tree.path), "base": tree.base}


def _absolute_path(path: str | None) -> Path | None:
    return None if path is None else Path(path).expanduser().absolute()


def _prepare_folders(directory: Path, owner: FolderOwner, outbox: str | None) -> TaskFolders:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.parent.name == CONVERSATIONS:
        os.utime(directory)  # or an active conversation would look old
    return open_folders(directory, owner, outbox)


def _sweep(folder: Path, before: float) -> None:
    if not folder.is_dir():
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder_entry in folder.iterdir():
            if folder_entry.is_dir() and folder_entry.lstat().st_mtime < before:
                with suppress(OSError):
                    remove_tree(folder_entry.name, opened)
                log.info("process.directory_removed", extra={"path": str(folder_entry)})
    finally:
        os.close(opened)
