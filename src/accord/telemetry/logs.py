"""Log records of a server, as text or JSON.

The message of a record of this package is its event, a stable code such as `task.ended`. Values are in `extra`. The
documentation lists all events. Serving commands configure logging. An application that mounts an agent has its own
configuration.
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

FOREIGN_EVENT = "log"
"""Event of records from agents and libraries."""

EVENT = re.compile(r"[a-z0-9_]+\.[a-z_]+")
"""An event: the message of a record of this package."""

STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Fields of every record. Other fields are extra."""

CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that a terminal would interpret, reorder, or take for a line end. Records may contain foreign text."""

OWN_FIELDS = ("ts", "level", "event", "logger", "message", "exception")
"""JSON fields of every record. An extra field with one of these names gets a trailing underscore."""

NO_CONTEXT: Mapping[str, str] = MappingProxyType({})

_log_context: ContextVar[Mapping[str, str]] = ContextVar("accord_about", default=NO_CONTEXT)
"""Context of all records written here: the task of an execution, also for its agent's own records."""

SERVER_LOGGER = "accord.server"
"""Logger of a server's start and stop, which frame a stream of records."""

log = logging.getLogger("accord.tasks")

PLAIN = re.compile(r"[\w.:/@+-]+", re.ASCII)


class LineFormatter(logging.Formatter):
    """Formats a record as a line: time, level, logger, message, and then `name=value` for each extra field."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line. A traceback follows on the next lines."""
        said = _harmless(record.message).replace("\n", "\\n")
        about = "".join(
            f" {name}={_format_value(value)}" for name, value in (_extra_fields(record) | _trace_fields()).items()
        )
        return f"{self.formatTime(record)} {record.levelname} {record.name}: {said}{about}"

    def formatException(self, ei: Any) -> str:
        """Return a traceback. Its last line may contain foreign text."""
        return _harmless(super().formatException(ei))


class JsonFormatter(LineFormatter):
    """Formats a record as a one-line JSON object, with its event and its context."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Values without a JSON form are converted to text."""
        is_ours = record.name == "accord" or record.name.startswith("accord.")
        said: dict[str, Any] = {
            "ts": self.formatTime(record),
            "level": record.levelname.lower(),
            "event": record.msg if is_ours and EVENT.fullmatch(str(record.msg)) else FOREIGN_EVENT,
            "logger": record.name,
            "message": record.getMessage(),
        }
        more = {**_log_context.get(), **_extra_fields(record), **_trace_fields()}
        said |= {f"{name}_" if name in OWN_FIELDS else name: value for name, value in more.items()}
        if record.exc_info and record.exc_info[0] is not None:
            said["exception"] = logging.Formatter.formatException(self, record.exc_info)
        return json.dumps(said, default=_text).replace("\x7f", "\\u007f")


FORMS: Mapping[str, type[LineFormatter]] = {"text": LineFormatter, "json": JsonFormatter}
"""Formatters by the name of the setting."""


def configure_logging(form: str = "text", level: str = "warning") -> None:
    """Log to standard error, unless the program has handlers.

    It writes records of Accord from `level` on, and warnings of other loggers. Start and stop of the server are always
    logged as JSON, and never as text: people see a panel instead.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(FORMS[form]())
    root.addHandler(handler)
    logging.getLogger("accord").setLevel(level.upper())
    logging.getLogger(SERVER_LOGGER).setLevel(logging.INFO if FORMS[form] is JsonFormatter else logging.WARNING)


def log_task_end(detail: TaskFinished) -> None:
    """Log the end of a task."""
    if not log.isEnabledFor(logging.INFO):  # the record costs every send
        return
    about = {"task_id": detail.task_id, "agent": detail.agent, "state": detail.state.name}
    log.info("task.ended", extra=about | {"tenant": detail.tenant} if detail.tenant else about)


def log_context_hook(detail: Detail) -> None:
    """Add the task to the context of all records of an execution; this is the hook.

    That includes records of its agent. The hook is called within the execution's own context.
    """
    if isinstance(detail, ExecutionStarted):
        said = {"task_id": detail.task_id, "context_id": detail.context_id, "agent": detail.agent}
        _log_context.set(said | {"tenant": detail.tenant} if detail.tenant else said)


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in STANDARD_FIELDS}


def _trace_fields() -> dict[str, str]:
    found = http_headers.trace_ids(tracing.current())
    return {} if found is None else {"trace_id": found[0], "span_id": found[1]}


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _format_value(value: object) -> str:
    text = _text(value)
    return text if PLAIN.fullmatch(text) else _harmless(json.dumps(text, ensure_ascii=False))


def _harmless(text: str) -> str:
    return CONTROL_CHARACTERS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
