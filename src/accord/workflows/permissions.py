"""File permissions of agents, and the check that they were kept.

Nothing is prevented, because any program of the same user could do it anyway. The directory is compared before and
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
from accord.workflows.agent_definition import Files, Permissions

IGNORED, READ_ONLY = ".agentignore", ".agentreadonly"
"""Files with patterns that agents must not touch, and with patterns that they may only read."""

SHOWN = 10
"""Maximum number of files in an error."""

Snapshot = Mapping[str, tuple[int, int, int]]
"""Path -> size, time of change, inode. A file with the same three values has not changed."""


class PermissionRules(Struct, frozen=True, kw_only=True):
    """Resolved permissions: patterns that may be changed (None for all), and patterns that must not."""

    write: tuple[str, ...] | None = None
    kept: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether every file may be changed, so that no snapshot is needed."""
        return self.write is None and not self.kept


def resolve_permissions(permissions: Permissions | None, profiles: Mapping[str, Permissions]) -> Permissions:
    """Return permissions with the values of their profile where they have none."""
    own = permissions or Permissions()
    base = profiles.get(own.profile or "", Permissions())
    own_files, theirs = own.files or Files(), base.files or Files()
    return Permissions(
        access=own.access or base.access,
        inherit=own.inherit and base.inherit,
        files=Files(
            read=own_files.read or theirs.read,
            write=own_files.write or theirs.write,
            deny=tuple(dict.fromkeys((*theirs.deny, *own_files.deny))),
        ),
        description=own.description or base.description,
        why=own.why or base.why,
    )


def rules_in(permissions: Permissions, directory: Path) -> PermissionRules:
    """Return the rules of permissions in a directory.

    `deny` applies to every access. With `write`, or with the access `readonly` or `restricted`, only `write` may be
    changed. Without them, `read` is read-only. With `full`, the ignore files of the directory do not apply.
    """
    files = permissions.files or Files()
    asks = permissions.inherit and permissions.access != "full"
    denied = (
        *files.deny,
        *(_patterns_in(directory / IGNORED) + _patterns_in(directory / READ_ONLY) if asks else ()),
    )
    if permissions.access in ("readonly", "restricted") or files.write:
        return PermissionRules(write=files.write, kept=denied)
    return PermissionRules(kept=(*files.read, *denied))


async def take_snapshot(directory: Path, ignored: Collection[Path] = ()) -> Snapshot:
    """Return a snapshot of a directory, without the files of the store."""
    return await asyncio.to_thread(lambda: dict(_file_states(directory, ignored)))


async def changed_since(directory: Path, at_ms: int, ignored: Collection[Path] = ()) -> list[str]:
    """Return the files that were created or changed since a time. Removals are not detected."""
    snapshot = await take_snapshot(directory, ignored)
    return sorted(path for path, (_, changed_ns, _) in snapshot.items() if changed_ns >= at_ms * 1_000_000)


def changed_files(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the files that were created, changed or removed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def find_violation(paths: Iterable[str], rules: PermissionRules, beside: Sequence[PermissionRules] = ()) -> str | None:
    """Return an error for the changed files that an agent may not change, or None.

    Files that agents `beside` it may change, who worked in the same directory at the same time, do not count.
    """
    allowed = (rules, *beside)
    forbidden = [path for path in paths if not any(_may_change(path, one) for one in allowed)]
    if not forbidden:
        return None
    more = f" and {len(forbidden) - SHOWN} more" if len(forbidden) > SHOWN else ""
    return f"The agent changed files that its permissions do not let it change: {', '.join(forbidden[:SHOWN])}{more}"


def describe_permissions(permissions: Permissions) -> str:
    """Return the permissions as text for a prompt; empty if there are no limits."""
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


# --- helpers ----------------------------------------------------------------------------------------------------------


def _may_change(path: str, rules: PermissionRules) -> bool:
    if rules.write is not None and not matches(path, rules.write):
        return False
    return not matches(path, rules.kept)


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path matches patterns like those of git's ignore files. The last match counts, and `!` negates."""
    is_match = False
    for pattern in patterns:
        body = pattern.removeprefix("!")
        if is_match == pattern.startswith("!") and _compiled(body).search(path):
            is_match = not is_match
    return is_match


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Regex:
    """Return the regular expression of a path pattern.

    `*` and `?` match within a name, `**` across, and everything below a match matches too. A pattern without a slash,
    except at its end, matches that name in any directory.
    """
    body = pattern.removeprefix("./").rstrip("/")
    anywhere = "(?:.*/)?" if "/" not in body else ""
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^\]]+\])", body.removeprefix("/"))
    return Regex(rf"\A(?s:{anywhere}{''.join(map(_piece, pieces))}(?:/.*)?)\z")


def _piece(piece: str) -> str:
    translated = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if piece in translated:
        return translated[piece]
    if piece.startswith("[") and piece.endswith("]"):
        letters = piece[1:-1].replace("\\", "\\\\")
        return f"[^{letters[1:]}]" if letters.startswith("!") else f"[{letters}]"
    return escape_text(piece)


def _patterns_in(file: Path) -> tuple[str, ...]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _is_apart(folder: Path) -> bool:
    """Whether a folder is a worktree or repository of its own, or the folder of a task's files."""
    return (folder / ".git").exists() or (folder.parent.name == FOLDER and (folder / BEGAN).exists())


def _file_states(directory: Path, ignored: Collection[Path]) -> Iterable[tuple[str, tuple[int, int, int]]]:
    """Yield the files of a directory, without those of git, of tasks, and of nested repositories."""
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
                continue  # it was removed in the meantime
            yield path.relative_to(directory).as_posix(), (status.st_size, status.st_ctime_ns, status.st_ino)
