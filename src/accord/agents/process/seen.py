"""What can be seen in the events that a command prints, whatever their format, and how an event is looked into.

Nothing is known here of processes or tasks: `formats` has a table for each format, and `talk` acts on what was seen. An
event that is not in a table, or is not formed as expected, says nothing: these formats grow with every release.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

BRIEF = 200
"""Characters of a tool's arguments that are shown."""


class Said(Struct, frozen=True):
    """A piece of the answer."""

    text: str


class Doing(Struct, frozen=True):
    """What it does at the moment."""

    text: str


class Session(Struct, frozen=True):
    """What it calls the conversation."""

    id: str


class Used(Struct, frozen=True, kw_only=True):
    """What it has used up; with a `key` it may be told again and counts once."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    model: str | None = None
    key: str | None = None


class Asked(Struct, frozen=True):
    """What it wants to know; with `grants`, whether it may do these things."""

    question: str
    grants: tuple[str, ...] = ()


class Made(Struct, frozen=True):
    """A value that is its answer."""

    data: Any


class Broke(Struct, frozen=True):
    """Why it gives up."""

    text: str


Seen = Said | Doing | Session | Used | Asked | Made | Broke
Event = Mapping[str, Any]


class Memory:
    """What one run has printed so far, as far as later events depend on it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.model: str | None = None
        self.input_tokens = self.output_tokens = 0
        self.streams = False
        self.message = ""
        self.has_said = False
        self._is_apart = False

    def whole(self, text: str) -> Iterator[Seen]:
        """Say a message of its own."""
        self._is_apart = True
        return self.piece(text)

    def piece(self, text: str) -> Iterator[Seen]:
        """Say more of the message that is being said."""
        if text:
            apart = "\n\n" if self._is_apart and self.has_said else ""
            self.has_said, self._is_apart = True, False
            yield Said(apart + text)

    def begin(self) -> None:
        """Let the next piece begin another message."""
        self._is_apart = True


Read = Callable[[Event, Memory], Iterator[Seen]]
Format = Mapping[str, Read]


def read(line: bytes, form: Format, memory: Memory) -> list[Seen] | None:
    """Return what a line tells; None if it is no event."""
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(event, dict):
        return None
    found = form.get(text(event, "type"))
    return [] if found is None else list(found(event, memory))


# --- looking into events ------------------------------------------------------------------------------------------


def at(event: Any, *path: str) -> Any:
    """Return what is at a path in an event, or None."""
    for name in path:
        event = event.get(name) if isinstance(event, dict) else None
    return event


def text(event: Any, *path: str) -> str:
    """Return the text at a path, or none; NUL is left out, because no store keeps it."""
    found = at(event, *path)
    return found.replace("\0", "") if isinstance(found, str) else ""


def count(event: Any, *path: str) -> int:
    """Return the number at a path, or 0."""
    found = at(event, *path)
    return max(0, int(found)) if isinstance(found, int | float) else 0


def amount(event: Any, *path: str) -> float:
    """Return the sum of money at a path, or 0."""
    found = at(event, *path)
    return max(0.0, float(found)) if isinstance(found, int | float) else 0.0


def items(event: Any, *path: str) -> list[Any]:
    """Return the list at a path, or an empty one."""
    found = at(event, *path)
    return found if isinstance(found, list) else []


def brief(value: Any) -> str:
    """Return a tool's arguments in a line: the only one, or the one that says most, or all as JSON."""
    if isinstance(value, dict):
        named = (value.get(name) for name in ("command", "file_path", "path", "pattern", "url", "query", "description"))
        value = next((one for one in named if isinstance(one, str)), value)
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    shown = " ".join(shown.replace("\0", "").split())
    return shown if len(shown) <= BRIEF else shown[:BRIEF] + "…"


def tool(name: str, arguments: Any) -> Iterator[Seen]:
    """See that a tool is used."""
    shown = brief(arguments) if arguments else ""
    yield Doing(f"{name}: {shown}" if shown else name)
