"""The message of every record that the package writes is an event, and the reference has them all."""

import ast
from collections.abc import Iterator
from pathlib import Path

import accord
from accord.telemetry.logs import EVENT, FOREIGN_EVENT
from docs.reference.events import MEANINGS

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


def test_every_record_is_an_event_without_arguments() -> None:
    found = dict(said())
    assert len(found) > 100
    unnamed = {place: ast.unparse(what) for place, what in found.items() if event_of(what) is None}
    assert not unnamed, "write a code such as task.ended, and what it is about in `extra`"


def event_of(what: ast.expr) -> str | None:
    match what:
        case ast.Constant(value=str(event)) if EVENT.fullmatch(event):
            return event
    return None


def test_the_reference_has_every_event_and_no_other() -> None:
    assert {event_of(what) for _, what in said()} == MEANINGS.keys()


def test_events_look_like_events() -> None:
    assert all(EVENT.fullmatch(event) for event in MEANINGS)
    assert not EVENT.fullmatch(FOREIGN_EVENT)


def test_event_names_have_one_meaning() -> None:
    """What is said besides must not hide what every record says."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Dict):
                names = {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
                assert not names & {"event", "ts", "level", "logger", "message", "exception"}, path
