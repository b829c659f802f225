"""What a command prints, as what can be seen in it: plain text, or the events of a format.

It takes bytes as they come and knows neither where they are from nor what becomes of what is seen; `live` does.
"""

from collections.abc import Iterable
from typing import Protocol

from accord.agents.process.plain import Plain
from accord.agents.process.seen import Format, Memory, Said, Seen, read
from accord.agents.regexes import Regex

NOISE_BYTES = 4096
"""How much is kept of what is no event: it may say why there are none."""

SCREEN = 4000
"""Characters of a screen that are looked at for a question."""

SHOWN_LINES, SHOWN = 12, 2000
"""Lines and characters of a screen that are shown as a question."""


class Output(Protocol):
    """One way to read what is printed."""

    def feed(self, data: bytes) -> list[Seen]:
        """Take in what came."""

    def settle(self) -> list[Seen]:
        """Return what was kept back, for nothing came for a moment."""

    def end(self) -> list[Seen]:
        """Return what is left, for nothing more will come."""

    @property
    def noise(self) -> str:
        """What was printed beside events."""


class Text:
    """Text, without what a terminal makes of it, and without line breaks at its beginning and end."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.screen = ""
        self._plain = Plain()
        self._breaks = ""
        self._has_begun = False

    @property
    def pastes(self) -> bool:
        """Whether pasted text is taken as one piece."""
        return self._plain.pastes

    @property
    def noise(self) -> str:
        """Nothing: everything is text."""
        return ""

    def feed(self, data: bytes) -> list[Seen]:
        """Take in what came."""
        return self._said(self._plain.feed(data))

    def settle(self) -> list[Seen]:
        """Return what was kept back, for nothing came for a moment."""
        return self._said(self._plain.settle())

    def end(self) -> list[Seen]:
        """Return what is left, for nothing more will come."""
        return self.settle()

    def replies(self) -> bytes:
        """Return what a terminal answers by itself to what was asked of it."""
        return self._plain.replies()

    def is_question(self, patterns: Iterable[Regex]) -> bool:
        """Whether what is shown waits for an answer."""
        shown = self.screen[-SCREEN:]
        return any(pattern.search(shown) for pattern in patterns)

    def question(self) -> str:
        """Return the last lines that are shown."""
        lines = [line.rstrip() for line in self.screen.splitlines() if line.strip()]
        return "\n".join(lines[-SHOWN_LINES:])[-SHOWN:]

    def answered(self) -> None:
        """Look at nothing that was shown so far."""
        self.screen = ""

    def _said(self, text: str) -> list[Seen]:
        self.screen = (self.screen + text)[-2 * SCREEN :]
        text = self._breaks + text if self._has_begun else text.lstrip("\n")
        said = text.rstrip("\n")
        self._breaks = text[len(said) :]
        self._has_begun = self._has_begun or bool(said)
        return [Said(said)] if said else []


class Events:
    """Events, one in each line; other lines are noise."""

    def __init__(self, form: Format) -> None:
        """Read a format."""
        self._form = form
        self._memory = Memory()
        self._rest = bytearray()
        self._noise = b""

    @property
    def noise(self) -> str:
        """What was printed beside events."""
        return self._noise.decode(errors="replace")

    def feed(self, data: bytes) -> list[Seen]:
        """Take in what came."""
        self._rest += data
        if b"\n" not in data:
            return []
        lines = self._rest.split(b"\n")
        self._rest = lines.pop()
        return [seen for line in lines for seen in self._read(bytes(line))]

    def settle(self) -> list[Seen]:
        """Return nothing: half a line tells nothing."""
        return []

    def end(self) -> list[Seen]:
        """Return what is left, for nothing more will come."""
        last, self._rest = bytes(self._rest), bytearray()
        return self._read(last)

    def _read(self, line: bytes) -> list[Seen]:
        if not line.strip():
            return []
        seen = read(line, self._form, self._memory)
        if seen is None:
            self._noise = (self._noise + line + b"\n")[-NOISE_BYTES:]
        return seen or []
