"""Regular expressions of users, matched in linear time.

Texts come from agents and callers, and Python's own engine takes exponential time for some pairs of text and pattern.
RE2 never does. It releases the GIL while it searches, and rejects patterns that cannot be linear: lookaround and
backreferences.
"""

import asyncio
import re
from functools import lru_cache

LOOP_STEPS = 20_000_000
"""Steps of a search on the event loop: 0.1 s, for the few patterns that take the worst case (5 ns per step)."""

STEPS = 1_000_000_000
"""Steps of a search in a thread: 5 s in the worst case. A usual pattern has 50 steps per byte: 20 MB of text."""

MEMORY = 2 * 1024 * 1024
"""Maximum memory of a compiled pattern and RE2's cache of its searches, in bytes."""

PATTERN_BYTES = 4_000
"""Maximum length of a pattern in bytes.

RE2 compiles with the GIL held: up to 0.2 s for this length, and 7 s for 150 KB.
"""

_NO_LEAST = re.compile(r"\{,\d+\}")
"""Matches `a{,3}`, whose braces RE2 would read as text."""

_FIXES = {
    "(?=": "lookahead is not supported: use two checks",
    "(?!": "lookahead is not supported: use two checks",
    "(?<=": "lookbehind is not supported: use two checks",
    "(?<!": "lookbehind is not supported: use two checks",
    "(?>": "atomic groups are not supported, nor needed: leave `?>` out",
    "(?P=": "backreferences are not supported: write the text again",
    "(?x": "verbose patterns are not supported: leave blanks and comments out",
    "(?#": "comments are not supported: leave them out",
    r"\Z": r"write \z for the end of the text",
    r"\u": r"write \x{...} for a character by its number",
}
"""Syntax that Python supports and RE2 does not -> the replacement."""


class BadRegex(ValueError):
    """A pattern that RE2 does not accept, or a text that is too long to search."""


class Regex:
    """A compiled pattern. `^` and `$` match at lines."""

    def __init__(self, pattern: str, *, is_case_sensitive: bool = True) -> None:
        """Compile a pattern; raises BadRegex."""
        if (size := len(pattern.encode(errors="replace"))) > PATTERN_BYTES:
            raise BadRegex(f"{size} bytes are too much for a regular expression: at most {PATTERN_BYTES} are read")
        if _NO_LEAST.search(pattern):
            raise BadRegex(f"{pattern!r} is not a valid regular expression: write {{0,N}} for {{,N}}")
        import re2  # 2 to 4 ms: most commands compile no pattern of a user

        options = re2.Options()
        options.log_errors = False
        options.max_mem = MEMORY
        options.case_sensitive = is_case_sensitive
        try:
            self._compiled = re2.compile(f"(?m){pattern}", options)
        except (re2.error, UnicodeEncodeError) as error:
            raise BadRegex(f"{pattern!r} is not a valid regular expression: {_reason(pattern, error)}") from None
        self._pattern = pattern

    def search(self, text: str) -> bool:
        """Whether the text has a match; raises BadRegex if the text is too long.

        On an event loop only short searches are allowed. Longer ones belong in a thread.
        """
        data = text.encode(errors="replace")
        steps = len(data) * self._compiled.programsize
        if steps > (LOOP_STEPS if _is_on_loop() else STEPS):
            raise BadRegex(f"{len(data)} bytes are too much to search for {self._pattern!r}")
        return self._compiled.search(data) is not None


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Regex:
    """Return a compiled pattern; raises BadRegex."""
    return Regex(pattern)


def escape_text(text: str) -> str:
    """Return a pattern that matches exactly this text."""
    import re2

    return str(re2.escape(text.encode(errors="replace").decode()))


def _reason(pattern: str, error: Exception) -> str:
    fix = next((fix for unsupported, fix in _FIXES.items() if unsupported in pattern), None)
    if fix is None and any(f"\\{digit}" in pattern for digit in range(1, 10)):
        fix = _FIXES["(?P="]
    text = error.args[0]
    reason = text.decode(errors="replace") if isinstance(text, bytes) else str(error)
    return reason if fix is None else f"{reason} ({fix})"


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
