"""A command in a terminal of its own: what it shows, keys that are pressed, and its end."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accord.cli.replies import PROMPT
from tests.serve.running import BOUND_SECONDS, environment

CTRL_C, CTRL_D = "\x03", "\x04"


def _take_keys() -> None:
    """Make the terminal the process's own: Ctrl+C is a signal then, and is not ignored as background jobs do."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A process whose standard streams are a terminal."""

    def __init__(self, folder: Path, *arguments: str, **env: str) -> None:
        self._keys, screen = pty.openpty()
        termios.tcsetwinsize(screen, (40, 100))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "accord", *arguments],
            stdin=screen,
            stdout=screen,
            stderr=screen,
            cwd=folder,
            env=environment(folder, TERM="xterm-256color", **env),
            start_new_session=True,
            preexec_fn=_take_keys,  # noqa: PLW1509  # there is no other way
        )
        os.close(screen)
        self.shown = ""
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._keys, 65536)
            except OSError:  # the process has ended
                piece = b""
            with self._news:
                self.shown += piece.decode(errors="replace")
                self._news.notify_all()
            if not piece:
                return

    def says(self, text: str, count: int = 1) -> None:
        """Wait until a text was shown, so many times."""
        with self._news:
            self._news.wait_for(
                lambda: self.shown.count(text) >= count or not self._reader.is_alive(), timeout=BOUND_SECONDS
            )
            assert self.shown.count(text) >= count, f"it never showed {text!r}, but: {self.shown!r}"

    def asks(self) -> None:
        """Wait until somebody may type: keys that come before may get lost."""
        with self._news:
            self._news.wait_for(
                lambda: self.shown.endswith(PROMPT) or not self._reader.is_alive(), timeout=BOUND_SECONDS
            )
            assert self.shown.endswith(PROMPT), f"it does not ask, but: {self.shown!r}"

    def press(self, keys: str) -> None:
        os.write(self._keys, keys.encode())

    def interrupted(self) -> int:
        """Press Ctrl+C until it ends: Python does not notice one that comes just before it waits for a key."""
        for _ in range(BOUND_SECONDS):
            self.press(CTRL_C)
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(timeout=1)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(timeout=BOUND_SECONDS)
        self._reader.join(timeout=BOUND_SECONDS)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
        os.close(self._keys)


@contextmanager
def terminal(folder: Path, *arguments: str, **env: str) -> Iterator[Terminal]:
    """Run a command in a terminal while the block runs."""
    opened = Terminal(folder, *arguments, **env)
    try:
        yield opened
    finally:
        opened.close()
