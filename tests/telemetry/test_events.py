"""Every record that the package writes has a stable name, and every name is written by something."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import accord
from accord.telemetry.logs import EVENTS, FOREIGN_EVENT

PACKAGE = Path(accord.__file__).parent
LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
LOGGERS = frozenset({"log", "logger", "logging"})


def said() -> Iterator[tuple[str, ast.expr]]:
    """Where something is written down, and what."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=logger), attr=level), args=[what, *_]):
                    if logger in LOGGERS and level in LEVELS:
                        yield f"{path.relative_to(PACKAGE)}:{node.lineno}", what


def test_every_record_has_a_name() -> None:
    found = dict(said())
    assert len(found) > 100
    unnamed = {
        place: ast.unparse(what)
        for place, what in found.items()
        if not (isinstance(what, ast.Constant) and what.value in EVENTS)
    }
    assert not unnamed, "write the sentence as it stands, and its name in accord.telemetry.logs"


def test_every_name_is_written_by_something() -> None:
    written = {what.value for _, what in said() if isinstance(what, ast.Constant)}
    assert EVENTS.keys() - written == set()


def test_names_look_like_names() -> None:
    assert all(re.fullmatch(r"[a-z0-9_]+\.[a-z_]+", name) for name in EVENTS.values())
    assert FOREIGN_EVENT not in EVENTS.values()


def test_nothing_else_is_said_under_the_name_of_the_event() -> None:
    """What is said besides must not hide what every record says."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Dict):
                names = {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
                assert not names & {"event", "ts", "level", "logger", "message", "exception"}, path
