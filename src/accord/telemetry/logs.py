"""What a server writes down about itself: a line for each record, with all that the record is about.

It decides how a record looks, and neither what is worth one nor where a program of somebody else's has its records. The
commands that serve ask for it; an application that has an agent mounted has ways of its own.
"""

import json
import logging
import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from accord.engine import tracing
from accord.engine.hooks import Detail, ExecutionStarted, TaskFinished
from accord.protocol import http_headers
from accord.telemetry.events import EVENTS, FOREIGN

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; everything else was said about it."""

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a terminal would obey, reorder, or take for the end of a line: a record may tell what somebody else has said."""

OURS = ("ts", "level", "event", "logger", "message", "exception")
"""What every record says as JSON; what else is said under one of these names has a line below it."""

NOTHING: Mapping[str, str] = MappingProxyType({})

_about: ContextVar[Mapping[str, str]] = ContextVar("accord_about", default=NOTHING)
"""What everything is about that is done here: the task of a run, for the records of its agent as well."""

LIFE = "accord.server"
"""The logger of a server's start and stop: no fault, but what a stream of records begins and ends with."""

log = logging.getLogger("accord.tasks")

PLAIN = re.compile(r"[\w.:/@+-]+", re.ASCII)


class Lines(logging.Formatter):
    """A record as a line: when, how bad, of whom, what, and then `name=value` for whatever else is said of it."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback, if there is one, comes below it."""
        said = _harmless(record.message).replace("\n", "\\n")
        about = "".join(f" {name}={_shown(value)}" for name, value in (_said(record) | _traced()).items())
        return f"{self.formatTime(record)} {record.levelname} {record.name}: {said}{about}"

    def formatException(self, ei: Any) -> str:
        """Return a traceback, whose last line may be anybody's words."""
        return _harmless(super().formatException(ei))


class Objects(Lines):
    """A record as a JSON object in one line, with a name that stays, and with what it is about."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; what JSON cannot say is said as text."""
        is_ours = record.name == "accord" or record.name.startswith("accord.")
        said: dict[str, Any] = {
            "ts": self.formatTime(record),
            "level": record.levelname.lower(),
            "event": EVENTS.get(str(record.msg), FOREIGN) if is_ours else FOREIGN,
            "logger": record.name,
            "message": record.getMessage(),
        }
        more = {**_about.get(), **_said(record), **_traced()}
        said |= {f"{name}_" if name in OURS else name: value for name, value in more.items()}
        if record.exc_info and record.exc_info[0] is not None:
            said["exception"] = logging.Formatter.formatException(self, record.exc_info)
        return json.dumps(said, default=_text).replace("\x7f", "\\u007f")


FORMS: Mapping[str, type[Lines]] = {"text": Lines, "json": Objects}
"""How records may look, by the name of the setting."""


def write_down(form: str = "text", level: str = "warning") -> None:
    """Write our records from a level on, and others' warnings, to standard error, unless the program has handlers.

    Start and stop of the server are always written as JSON, and never as text: people see a panel instead.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(FORMS[form]())
    root.addHandler(handler)
    logging.getLogger("accord").setLevel(level.upper())
    logging.getLogger(LIFE).setLevel(logging.INFO if FORMS[form] is Objects else logging.WARNING)


def note_end(detail: TaskFinished) -> None:
    """Write how a task ended."""
    if not log.isEnabledFor(logging.INFO):  # the record costs every send
        return
    about = {"task_id": detail.task_id, "agent": detail.agent, "state": detail.state.name}
    log.info("task ended", extra=about | {"tenant": detail.tenant} if detail.tenant else about)


def hear(detail: Detail) -> None:
    """Let all records of a run, its agent's own as well, say what they are about; this is the hook.

    It is told within the run, whose context nobody else has.
    """
    if isinstance(detail, ExecutionStarted):
        said = {"task_id": detail.task_id, "context_id": detail.context_id, "agent": detail.agent}
        _about.set(said | {"tenant": detail.tenant} if detail.tenant else said)


def _said(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a record says besides what every record has."""
    return {name: value for name, value in vars(record).items() if name not in STANDARD}


def _traced() -> dict[str, str]:
    """Return which span what is written belongs to, if it is traced."""
    found = http_headers.trace_ids(tracing.current())
    return {} if found is None else {"trace_id": found[0], "span_id": found[1]}


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _shown(value: object) -> str:
    text = _text(value)
    return text if PLAIN.fullmatch(text) else _harmless(json.dumps(text, ensure_ascii=False))


def _harmless(text: str) -> str:
    return OBEYED.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
