"""The file of settings: which one counts, what is in it, and in which line.

It is `accord.toml`, or the table `[tool.accord]` of a project's `pyproject.toml`. What the names in it mean is
`config.load`'s business.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

FILE, PROJECT = "accord.toml", "pyproject.toml"
TABLE = ("tool", "accord")
"""Where a project's file has our settings."""


class BadSettings(ValueError):
    """The settings are wrong: what, where, and what to write instead."""


class Found(NamedTuple):
    """A file of settings: its table, and its text for whoever wants to know lines."""

    path: Path
    table: Mapping[str, Any]
    text: str

    @property
    def source(self) -> str:
        """What it is called where a value came from."""
        return f"{self.path} [{'.'.join(TABLE)}]" if self.path.name == PROJECT else str(self.path)

    def line(self, name: str) -> int | None:
        """Return in which line a setting is, by its dotted name."""
        before = f"{'.'.join(TABLE)}." if self.path.name == PROJECT else ""
        return lines(self.text).get(before + name)


def find(file: Path | None = None) -> Found | None:
    """Return the named file, else that of the working directory; there, two files with settings are an error."""
    if file is not None:
        found = in_project(file) if file.name == PROJECT else _whole(file)
        if found is None:
            raise BadSettings(f"{file} has no settings: they are in its table [{'.'.join(TABLE)}]")
        return found
    own, project = Path(FILE), Path(PROJECT)
    beside = in_project(project) if project.is_file() else None
    if not own.is_file():
        return beside
    if beside is not None:
        raise BadSettings(
            f"Both {FILE} and [{'.'.join(TABLE)}] of {PROJECT} have settings: keep one of them, or name one"
            " with --config or ACCORD_CONFIG"
        )
    return _whole(own)


def _whole(path: Path) -> Found:
    text = _read(path)
    return Found(path, _parsed(path, text), text)


def in_project(path: Path) -> Found | None:
    """Return what a project's file says about us; one that does not mention us may be as broken as it likes."""
    text = _read(path)
    if TABLE[-1] not in text:
        return None
    table: Any = _parsed(path, text)
    for name in TABLE:
        table = table.get(name) if isinstance(table, dict) else None
    return Found(path, table, text) if isinstance(table, dict) else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadSettings(f"{path} is not TOML: {error}") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{path} is not TOML: {error}") from None


# --- lines ------------------------------------------------------------------------------------------------------------


def lines(text: str) -> dict[str, int]:
    """Return the line of each value of a file, and of each table, by its dotted name.

    Python's reader knows no lines, but whether a statement is whole: its first line is what is wanted.
    """
    found: dict[str, int] = {}
    header: tuple[str, ...] = ()
    for number, statement, said in _statements(text):
        if statement.lstrip().startswith("["):
            *_, header = _paths(said)
            found.setdefault(".".join(header), number)
        else:
            for path in _paths(said):
                found.setdefault(".".join((*header, *path)), number)
    return found


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield where each statement begins, its text and what it says by itself."""
    begun, pending = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if not pending:
            begun = number
        pending += line + "\n"
        try:
            said = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue  # it goes on in the next line
        if said:
            yield begun, pending, said
        pending = ""


def _paths(said: Any, *before: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all values of a statement, and of its tables; lists are values."""
    if before:
        yield before
    inner = said[0] if isinstance(said, list) and said and isinstance(said[0], dict) and not said[0] else said
    for name, value in inner.items() if isinstance(inner, dict) else ():
        yield from _paths(value, *before, name)
