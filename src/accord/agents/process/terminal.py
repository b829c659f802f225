"""A terminal of our own, for commands that talk to people rather than to programs.

It is the side that a person would sit at: what the command shows is read, what a person would type is written. What of
that is text is `plain`'s business.
"""

import asyncio
import errno
import fcntl
import os
import re
import struct
import termios

COLUMNS, ROWS = 200, 50
"""Wide, so that few lines are broken where their author did not break them."""

MAX_LINE = 4000
"""Bytes of one line: a terminal that edits lines for its command keeps no more of one."""

PASTE = "\x1b[200~", "\x1b[201~"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Terminal:
    """The near side of a terminal; `far` is for the command, and is closed once the command has it."""

    def __init__(self) -> None:
        """Open a terminal that does not repeat what is typed."""
        self._near, self.far = os.openpty()
        os.set_blocking(self._near, False)
        attributes = termios.tcgetattr(self.far)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.far, termios.TCSANOW, attributes)
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def hand_over(self) -> None:
        """Let go of the far side."""
        os.close(self.far)

    @property
    def edits_lines(self) -> bool:
        """Whether the terminal gives its command whole lines, of `MAX_LINE` at most."""
        return bool(termios.tcgetattr(self._near)[3] & termios.ICANON)

    async def read(self, size: int) -> bytes:
        """Return what the command shows next; nothing if it has let go of the terminal."""
        while True:
            try:
                return os.read(self._near, size)
            except BlockingIOError:
                await self._ready(writes=False)
            except OSError as error:
                if error.errno == errno.EIO:
                    return b""
                raise

    async def write(self, data: bytes) -> None:
        """Type something."""
        while data:
            try:
                data = data[os.write(self._near, data) :]
            except BlockingIOError:
                await self._ready(writes=True)

    def close(self) -> None:
        """Let go of the near side."""
        os.close(self._near)

    async def _ready(self, *, writes: bool) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if writes else (loop.add_reader, loop.remove_reader)
        add(self._near, _done, ready)
        try:
            await ready
        finally:
            remove(self._near)


def _done(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def typed(text: str, *, pastes: bool) -> bytes:
    """Return what to type for a text and the key that sends it off.

    Control characters are left out: whoever asks must not press Ctrl-C. A text of several lines is pasted, if the
    command takes that as one piece (`pastes`), or made one line: the second would answer what the first one led to.
    """
    clean = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    if pastes and "\n" in clean:
        return (PASTE[0] + clean + PASTE[1] + "\r").encode()
    return (" ".join(clean.split("\n")) + "\r").encode()
