"""Output of a command: terminal text, or events of a format.

Text is converted as a terminal would show it: colors and titles are left out, and overwritten lines appear once. No
screen is emulated, so the output of full-screen programs reads badly. Bytes may be split at any place.
"""

import codecs
import re
from collections.abc import Iterable

from accord.agents.messages import LineBuffer
from accord.agents.process.formats import Format, FormatState, Observation, TextOutput, read_line
from accord.agents.safe_regexes import Regex

MAX_SEQUENCE = 4096
"""Maximum length of an escape sequence, in characters; a longer one is treated as text."""

MAX_LINE = 4096
"""Maximum length of a line that can still be overwritten, in characters."""

PASTE_MODE = "\x1b[?2004h"
"""Sequence of a program that accepts pasted text as one piece."""

REPLIES = {"\x1b[5n": "\x1b[0n", "\x1b[6n": "\x1b[1;1R", "\x1b[c": "\x1b[?1;2c", "\x1b[0c": "\x1b[?1;2c"}
"""A program's queries of a terminal (status, cursor position, identity) and the answers that it waits for."""

_SEQUENCE = re.compile(
    r"""\x1b\[[0-?]*[ -/]*[@-~]                     # CSI: colours, cursor, erasing
      | \x9b[0-?]*[ -/]*[@-~]
      | \x1b\][^\x07\x1b]*(?:\x07|\x1b\\)           # OSC: titles, links
      | \x1b[PX^_][^\x1b]*\x1b\\                     # DCS and its like, which any other ESC ends (VT500)
      | \x1b[ -/]+[0-~]
      | \x1b[0-OQ-WYZ\\`-~]                         # the two-character ones that begin nothing longer
    """,
    re.VERBOSE,
)
_ERASE_LINE = re.compile(r"[\x1b\x9b]\[?([012]?)K")
_COLUMN = re.compile(r"[\x1b\x9b]\[?(\d*)G")


class TerminalText:
    """The text of one stream of bytes."""

    def __init__(self) -> None:
        self.pastes = False
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._line: list[str] = []
        self._at = 0
        self._taken = 0
        self._is_rewritten = False
        self._replies = ""

    def feed(self, data: bytes) -> str:
        """Add bytes, and return the text that they add; a line that is being overwritten is held back."""
        text_out = [self._put(piece) for piece in self._pieces(self._bytes.decode(data))]
        if self._at == len(self._line) and not self._is_rewritten:
            text_out.append(self._pending_text())
        return "".join(text_out)

    def settle(self) -> str:
        """Return text that was held back, at a pause or the end of the output."""
        return self._pending_text()

    def replies(self) -> bytes:
        """Return a terminal's answers to queries so far, once."""
        replies, self._replies = self._replies, ""
        return replies.encode()

    def _pieces(self, text: str) -> list[str]:
        """Split text into escape sequences and single characters; an incomplete sequence waits for its rest."""
        text, self._rest = self._rest + text, ""
        pieces: list[str] = []
        at = 0
        while at < len(text):
            if text[at] not in "\x1b\x9b":
                pieces.append(text[at])
                at += 1
            elif match := _SEQUENCE.match(text, at):
                pieces.append(match[0])
                at = match.end()
            elif len(text) - at > MAX_SEQUENCE:
                at += 1  # it only looked like one
            else:
                self._rest = text[at:]
                break
        return pieces

    def _put(self, piece: str) -> str:
        """Add a character to the line, or execute a sequence; return a finished line."""
        if piece == "\n":
            return self._end_line()
        if piece == "\r":
            self._at = 0
        elif piece == "\b":
            self._at = max(0, self._at - 1)
        elif piece[0] in "\x1b\x9b":
            self._execute(piece)
        elif piece == "\t" or (piece >= " " and not "\x7f" <= piece <= "\x9f"):
            self._write(piece)
        return ""

    def _execute(self, sequence: str) -> None:
        if sequence == PASTE_MODE:
            self.pastes = True
        elif sequence in REPLIES:
            self._replies += REPLIES[sequence]
        elif erased := _ERASE_LINE.fullmatch(sequence):
            self._erase(0 if erased[1] == "2" else self._at)
        elif column := _COLUMN.fullmatch(sequence):
            self._at = min(len(self._line), max(0, int(column[1] or 1) - 1))

    def _erase(self, start: int) -> None:
        if start < self._taken:
            self._is_rewritten = True
        del self._line[start:]
        self._at = min(self._at, start)

    def _write(self, character: str) -> None:
        if self._at == len(self._line):
            self._line.append(character)
        elif self._line[self._at] != character:
            self._line[self._at] = character
            self._is_rewritten = self._is_rewritten or self._at < self._taken
        self._at += 1
        if self._at > MAX_LINE and self._taken == len(self._line):
            self._line, self._at, self._taken = [], 0, 0

    def _end_line(self) -> str:
        text_out = self._pending_text() + "\n"
        self._line, self._at, self._taken = [], 0, 0
        return text_out

    def _pending_text(self) -> str:
        """Return the new text of the line, or the whole line again if its earlier text was overwritten."""
        text_out = "".join(self._line[0 if self._is_rewritten else self._taken :])
        if self._is_rewritten:
            text_out = "\n" + text_out
        self._taken, self._is_rewritten = len(self._line), False
        return text_out


def terminal_text(text: str) -> str:
    """Return a whole text as a terminal would show it."""
    terminal = TerminalText()
    return terminal.feed(text.encode(errors="replace")) + terminal.settle()


def text_tail(text: str, characters: int) -> str:
    """Return the end of a text, from the start of a line if there is one."""
    text = terminal_text(text).strip()
    if len(text) <= characters:
        return text
    cut = text[-characters:]
    return "…" + (cut.partition("\n")[2] or cut)


NOISE_BYTES = 4096
"""Maximum size of stored output that is not events, in bytes; it may contain the reason why there are none."""

SCREEN = 4000
"""Number of characters of a screen that are searched for a question."""

SHOWN_LINES, SHOWN = 12, 2000
"""Maximum lines and characters of a screen in a question."""


class TextReader:
    """Reads text without terminal sequences and without line breaks at its start and end."""

    def __init__(self) -> None:
        self.screen = ""
        self._plain = TerminalText()
        self._breaks = ""
        self._has_text = False

    @property
    def pastes(self) -> bool:
        """Whether the program accepts pasted text as one piece."""
        return self._plain.pastes

    @property
    def noise(self) -> str:
        """Always empty, because all output is text."""
        return ""

    def feed(self, data: bytes) -> list[Observation]:
        """Parse a chunk of output."""
        return self._observe(self._plain.feed(data))

    def settle(self) -> list[Observation]:
        """Return held-back output after a pause."""
        return self._observe(self._plain.settle())

    def end(self) -> list[Observation]:
        """Return the remaining output at the end."""
        return self.settle()

    def replies(self) -> bytes:
        """Return a terminal's own answers to the program's queries."""
        return self._plain.replies()

    def is_question(self, patterns: Iterable[Regex]) -> bool:
        """Whether the screen shows a question."""
        shown = self.screen[-SCREEN:]
        return any(pattern.search(shown) for pattern in patterns)

    def question(self) -> str:
        """Return the last lines of the screen."""
        lines = [line.rstrip() for line in self.screen.splitlines() if line.strip()]
        return "\n".join(lines[-SHOWN_LINES:])[-SHOWN:]

    def clear(self) -> None:
        """Clear the screen."""
        self.screen = ""

    def _observe(self, text: str) -> list[Observation]:
        self.screen = (self.screen + text)[-2 * SCREEN :]
        text = self._breaks + text if self._has_text else text.lstrip("\n")
        text_out = text.rstrip("\n")
        self._breaks = text[len(text_out) :]
        self._has_text = self._has_text or bool(text_out)
        return [TextOutput(text_out)] if text_out else []


class EventReader:
    """Reads events, one in each line; other lines are noise."""

    def __init__(self, form: Format) -> None:
        self._form = form
        self._memory = FormatState()
        self._lines = LineBuffer()
        self._noise = b""

    @property
    def noise(self) -> str:
        """Output that is not events."""
        return self._noise.decode(errors="replace")

    def feed(self, data: bytes) -> list[Observation]:
        """Parse a chunk of output."""
        return [observation for line in self._lines.feed(data) for observation in self._read(line)]

    def settle(self) -> list[Observation]:
        """Return nothing, because an incomplete line is not an event."""
        return []

    def end(self) -> list[Observation]:
        """Return the remaining output at the end."""
        last, self._lines = bytes(self._lines.rest), LineBuffer()
        return self._read(last)

    def _read(self, line: bytes) -> list[Observation]:
        if not line.strip():
            return []
        observations = read_line(line, self._form, self._memory)
        if observations is None:
            self._noise = (self._noise + line + b"\n")[-NOISE_BYTES:]
        return observations or []


OutputReader = TextReader | EventReader
