"""`accord`, started so that tests see soon what operators see late: `python -m tests.abuse.launch serve ...`

It changes nothing but how long a stream is silent, and how much is logged and where; no setting says either.
"""

import logging
import os

KEEP_ALIVE, LOG = "ABUSE_KEEP_ALIVE_SECONDS", "ABUSE_LOG"
"""The variables that say so."""


class Everything(logging.Formatter):
    """A record with all that came with it, as a handler that ships logs elsewhere would write it."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{super().format(record)} {record.__dict__}"


def main() -> None:
    if seconds := os.environ.get(KEEP_ALIVE):
        from accord.http import sse

        sse.KEEP_ALIVE_SECONDS = float(seconds)
    if file := os.environ.get(LOG):
        handler = logging.FileHandler(file)
        handler.setFormatter(Everything())
        logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    from accord.cli import main as accord

    accord()


if __name__ == "__main__":
    main()
