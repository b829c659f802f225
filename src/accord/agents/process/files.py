"""Files in and out: what came with a message, in a folder for the command, and what it leaves in another.

Both are below `.accord` in the directory where the command works, one for each task, and invisible to git. Names that
callers give and links that commands make are not trusted: nothing is written or read outside of these folders.
"""

import mimetypes
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from accord.core.context import Rejected
from accord.model import Part

FOLDER, BEGAN = ".accord", "began"

MAX_NAME = 120
"""Characters of a file's name: with what makes it unique it fits every file system."""

_UNSAFE = re.compile(r"[^\w.+@=-]+")


class TooMuch(Rejected):
    """A message has more or larger files than the agent takes."""


class Whose(Struct, frozen=True):
    """The task that folders belong to."""

    tenant: str
    task_id: str


class Boxes(Struct, frozen=True, kw_only=True):
    """Where files are for a command, and where it leaves its own; `began` is when its task did, for the file system."""

    folder: Path
    inbox: Path
    outbox: Path
    began: int


def open_boxes(directory: Path, whose: Whose, outbox: str | None) -> Boxes:
    """Make the folders of a task, or find them again."""
    top = directory / FOLDER
    folder = top / safe_name(whose.task_id)
    inbox = folder / "inbox"
    out = directory / outbox if outbox else folder / "outbox"
    for made in (top, folder, inbox, out):
        made.mkdir(parents=True, exist_ok=True)
        if not made.resolve().is_relative_to(directory.resolve()):
            raise OSError(f"{made.name} leads out of the directory that the command works in")
    (folder / ".gitignore").write_text("*\n")  # not beside it: what else is there may be the user's own
    mark = folder / BEGAN
    if not mark.exists():
        mark.write_bytes(msgspec.json.encode(whose))
    return Boxes(folder=folder, inbox=inbox, outbox=out, began=mark.stat().st_mtime_ns)


def close_boxes(boxes: Boxes) -> None:
    """Remove the folders of a task."""
    shutil.rmtree(boxes.folder, ignore_errors=True)


def opened(directory: Path) -> Iterator[tuple[Whose, Boxes]]:
    """Yield the folders of tasks in a directory."""
    for mark in sorted(directory.glob(f"{FOLDER}/*/{BEGAN}")):
        try:
            whose = msgspec.json.decode(mark.read_bytes(), type=Whose)
        except (OSError, msgspec.MsgspecError):
            continue  # gone, or not ours
        began = mark.stat().st_mtime_ns
        yield whose, Boxes(folder=mark.parent, inbox=mark.parent / "inbox", outbox=mark.parent / "outbox", began=began)


def put_in(boxes: Boxes, files: Sequence[Part], max_files: int, max_bytes: int) -> list[Path]:
    """Write the files of a message, and return where they are."""
    if len(files) > max_files:
        raise TooMuch(f"The message has {len(files)} files, and {max_files} are taken")
    written = []
    for number, part in enumerate(files, 1):
        raw = part.raw or b""
        if len(raw) > max_bytes:
            raise TooMuch(f"The file {part.filename or number} has {len(raw)} bytes, and {max_bytes} are taken")
        name = safe_name(part.filename or f"file{_suffix(part)}")
        path = boxes.inbox / name
        if path in written:
            path = boxes.inbox / f"{number}-{name}"
        path.write_bytes(raw)
        written.append(path)
    return written


def taken_out(boxes: Boxes, max_files: int, max_bytes: int) -> tuple[list[Part], list[str]]:
    """Return the files that a command has left, and the names of those that are too many or too large."""
    parts: list[Part] = []
    left: list[str] = []
    for path in _new_files(boxes):
        name = path.relative_to(boxes.outbox).as_posix()
        raw = _content(path, max_bytes) if len(parts) < max_files else None
        if raw is None:
            left.append(name)
        else:
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            parts.append(Part(raw=raw, filename=name, media_type=kind))
    return parts, left


def safe_name(name: str) -> str:
    """Return a name that is one in any folder, and shows what it was."""
    base = _UNSAFE.sub("_", re.split(r"[/\\]", name)[-1]).lstrip(".-")
    stem, dot, suffix = base.rpartition(".")
    if len(base) > MAX_NAME:
        base = stem[: MAX_NAME - 20] + dot + suffix[:19] if dot else base[:MAX_NAME]
    return base or "file"


def _suffix(part: Part) -> str:
    return mimetypes.guess_extension((part.media_type or "").partition(";")[0].strip()) or ""


def _new_files(boxes: Boxes) -> Iterator[Path]:
    """Yield what was written since the task began, by name; no folder is entered through a link."""
    for folder, folders, names in os.walk(boxes.outbox):
        folders[:] = sorted(one for one in folders if one not in (".git", FOLDER))
        for name in sorted(names):
            path = Path(folder, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and max(status.st_mtime_ns, status.st_ctime_ns) >= boxes.began:
                yield path


def _content(path: Path, max_bytes: int) -> bytes | None:
    """Return what is in a file, unless that is too much or the file has become a link."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            raw = file.read(max_bytes + 1)
    except OSError:
        return None
    return raw if len(raw) <= max_bytes else None
