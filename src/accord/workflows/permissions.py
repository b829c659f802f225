"""File permissions of agents, and the check that they were kept.

Nothing is prevented, because any program of the same user could do it anyway: the directory is compared before and
after a step, and a step that changed a forbidden file fails. Other changes in the directory count too, so agents with
permissions should have a directory or worktree of their own.
"""

import asyncio
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from accord.agents.process.workspace import BEGAN, FOLDER
from accord.agents.safe_regexes import Regex, escape_text
from accord.workflows.document import Files, Permissions

IGNORED, READ_ONLY = ".agentignore", ".agentreadonly"
"""Files with patterns of what agents must leave alone altogether, and of what they may only read."""

SHOWN = 10
"""How many files an error names."""

Snapshot = Mapping[str, tuple[int, int, int]]
"""Path -> size, time of change, place on disk: a file for which these are the same has not been changed."""


class PermissionRules(Struct, frozen=True, kw_only=True):
    """What permissions come to: patterns of what may be changed (None is everything), and of what may not."""

    write: tuple[str, ...] | None = None
    kept: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether anything may be changed, so that there is no need to look."""
        return self.write is None and not self.kept


def resolve_permissions(permissions: Permissions | None, profiles: Mapping[str, Permissions]) -> Permissions:
    """Return permissions with what their profile says where they say nothing themselves."""
    own = permissions or Permissions()
    base = profiles.get(own.profile or "", Permissions())
    mine, theirs = own.files or Files(), base.files or Files()
    return Permissions(
        access=own.access or base.access,
        inherit=own.inherit and base.inherit,
        files=Files(
            read=mine.read or theirs.read,
            write=mine.write or theirs.write,
            deny=tuple(dict.fromkeys((*theirs.deny, *mine.deny))),
        ),
        description=own.description or base.description,
        why=own.why or base.why,
    )


def rules_in(permissions: Permissions, directory: Path) -> PermissionRules:
    """Return what permissions come to in a directory.

    `deny` counts whatever the access is. What may be read and is not said to be written is only read. With the access
    `readonly` or `restricted` nothing else than `write` may be changed, with `full` what the directory's own files ask
    for does not count.
    """
    files = permissions.files or Files()
    asks = permissions.inherit and permissions.access != "full"
    kept = (*files.deny, *(_lines(directory / IGNORED) + _lines(directory / READ_ONLY) if asks else ()))
    if permissions.access in ("readonly", "restricted") or files.write:
        return PermissionRules(write=files.write, kept=kept)
    return PermissionRules(kept=(*files.read, *kept))


async def take_snapshot(directory: Path, ignored: Collection[Path] = ()) -> Snapshot:
    """Return what is in a directory, without the files of the store."""
    return await asyncio.to_thread(lambda: dict(_scan(directory, ignored)))


async def changed_since(directory: Path, at_ms: int, ignored: Collection[Path] = ()) -> list[str]:
    """Return what was made or changed in a directory since a time; what was removed is not seen."""
    found = await take_snapshot(directory, ignored)
    return sorted(path for path, (_, changed_ns, _) in found.items() if changed_ns >= at_ms * 1_000_000)


def changed_files(before: Snapshot, after: Snapshot) -> list[str]:
    """Return what was made, changed or removed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def find_violation(paths: Iterable[str], rules: PermissionRules, beside: Sequence[PermissionRules] = ()) -> str | None:
    """Say which of the files that were changed an agent may not change, or None.

    What those `beside` it may change, who worked in the same place at the same time, is not held against it.
    """
    allowed = (rules, *beside)
    found = [path for path in paths if not any(_may_change(path, one) for one in allowed)]
    if not found:
        return None
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"The agent changed files that its permissions do not let it change: {', '.join(found[:SHOWN])}{more}"


def describe_permissions(permissions: Permissions) -> str:
    """Return what an agent is told about its permissions; nothing if it may do anything."""
    files = permissions.files or Files()
    may = {
        "readonly": "You may read files but must not change any",
        "restricted": "You must not change any files but those named here",
    }
    lines = [
        may.get(permissions.access or "", ""),
        f"You may change: {', '.join(files.write)}" if files.write else "",
        f"You may only read: {', '.join(files.read)}" if files.read else "",
        f"You must neither read nor change: {', '.join(files.deny)}" if files.deny else "",
        permissions.description or "",
        f"The reason: {permissions.why}" if permissions.why else "",
    ]
    return "\n".join(line for line in lines if line)


# --- inside -----------------------------------------------------------------------------------------------------------


def _may_change(path: str, rules: PermissionRules) -> bool:
    if rules.write is not None and not matches(path, rules.write):
        return False
    return not matches(path, rules.kept)


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path is meant by patterns like those of git's ignore files: the last that fits counts, `!` undoes."""
    found = False
    for pattern in patterns:
        body = pattern.removeprefix("!")
        if found == pattern.startswith("!") and _compiled(body).search(path):
            found = not found
    return found


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Regex:
    """Return a pattern for paths: `*` and `?` within a name, `**` across; whatever is below what it means is meant too.

    Without a slash but at its end it means that name anywhere.
    """
    body = pattern.removeprefix("./").rstrip("/")
    anywhere = "(?:.*/)?" if "/" not in body else ""
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]]+\])", body.removeprefix("/"))
    return Regex(rf"\A(?s:{anywhere}{''.join(map(_piece, pieces))}(?:/.*)?)\z")


def _piece(piece: str) -> str:
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if piece in known:
        return known[piece]
    if piece.startswith("[") and piece.endswith("]"):
        letters = piece[1:-1].replace("\\", "\\\\")
        return f"[^{letters[1:]}]" if letters.startswith("!") else f"[{letters}]"
    return escape_text(piece)


def _lines(file: Path) -> tuple[str, ...]:
    """Return the patterns in a file, if it is there."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _is_apart(folder: Path) -> bool:
    """Whether a folder is a worktree or a repository of its own, or has what a task was given and has left."""
    return (folder / ".git").exists() or (folder.parent.name == FOLDER and (folder / BEGAN).exists())


def _scan(directory: Path, ignored: Collection[Path]) -> Iterable[tuple[str, tuple[int, int, int]]]:
    """Yield the files of a directory: not git's own nor a task's, and not those of repositories within it."""
    own = {path.name for path in ignored}
    for folder, folders, names in os.walk(directory):
        at = Path(folder)
        folders[:] = [one for one in folders if one != ".git" and not _is_apart(at / one)]
        links = [one for one in folders if (at / one).is_symlink()]
        for name in (*names, *links):
            path = at / name
            if name in own and at.resolve() / name in ignored:
                continue
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # it was there a moment ago
            yield path.relative_to(directory).as_posix(), (status.st_size, status.st_ctime_ns, status.st_ino)
