"""What a server writes down about itself: a line for each record, with all that the record is about.

It decides how a record looks, and neither what is worth one nor where a program of somebody else's has its records. The
commands that serve ask for it; an application that has an agent mounted has ways of its own.
"""

import json
import logging
import re
import time
from typing import Any

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; everything else was said about it."""

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""What a terminal would obey, or take for the end of a line: a record may tell what somebody else has said."""

PLAIN = re.compile(r"[\w.:/@+-]+", re.ASCII)


class Lines(logging.Formatter):
    """A record as a line: when, how bad, of whom, what, and then `name=value` for whatever else is said of it."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback, if there is one, comes below it."""
        said = _harmless(record.message).replace("\n", "\\n")
        about = "".join(f" {name}={_shown(value)}" for name, value in vars(record).items() if name not in STANDARD)
        return f"{self.formatTime(record)} {record.levelname} {record.name}: {said}{about}"

    def formatException(self, ei: Any) -> str:
        """Return a traceback, whose last line may be anybody's words."""
        return _harmless(super().formatException(ei))


def write_down() -> None:
    """Write what goes wrong to standard error, unless whoever is served has said what becomes of records."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(Lines())
    root.addHandler(handler)


def _shown(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if PLAIN.fullmatch(text) else _harmless(json.dumps(text, ensure_ascii=False))


def _harmless(text: str) -> str:
    return OBEYED.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
