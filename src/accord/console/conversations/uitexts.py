"""Texts of an answer as they grow: each a part of the UI message, with a start, pieces and an end.

A text that is begun again, as by an agent that was run again after a crash, is not shown twice: what was shown before
is passed over as long as it is the same, and only what differs begins a new part. For `console.conversations.uistream`,
which decides whose texts there are.
"""

from collections.abc import Iterator
from typing import Any

Chunk = dict[str, Any]


class _Text:
    """One text: what is shown of it and, while it is repeated, how much of that has been said again."""

    def __init__(self) -> None:
        self.id = ""
        self.is_open = False
        self.shown: list[str] = []
        self.repeated: int | None = None


class Texts:
    """The texts of one answer, by whose they are."""

    def __init__(self) -> None:
        """Know none yet."""
        self._texts: dict[str, _Text] = {}
        self._ids: set[str] = set()

    def has(self, text: str) -> bool:
        """Whether exactly this is shown already."""
        return any(sum(map(len, one.shown)) == len(text) and "".join(one.shown) == text for one in self._texts.values())

    def whole(self, of: str, text: str) -> Iterator[Chunk]:
        """Show a text at once."""
        self.again(of)
        yield from self.add(of, text)
        yield from self.end(of)

    def add(self, of: str, piece: str) -> Iterator[Chunk]:
        """Show more of a text, unless it is being repeated and that was shown before."""
        text = self._texts.setdefault(of, _Text())
        if text.repeated is not None:
            shown = "".join(text.shown)
            rest = shown[text.repeated :]
            if rest.startswith(piece):
                text.repeated += len(piece)
                return
            if piece.startswith(rest):
                piece, text.repeated = piece[len(rest) :], None
            else:
                piece = shown[: text.repeated] + piece
                yield from self._anew(text)
        if not text.is_open:
            text.id, text.is_open = self._new_id(of), True
            yield {"type": "text-start", "id": text.id}
        text.shown.append(piece)
        yield {"type": "text-delta", "id": text.id, "delta": piece}

    def again(self, of: str) -> None:
        """Begin a text again from its first letter."""
        text = self._texts.get(of)
        if text is not None and text.shown:
            text.repeated = 0

    def end(self, of: str) -> Iterator[Chunk]:
        """Say that a text is whole; one that has become shorter than before is shown anew."""
        text = self._texts.get(of)
        if text is None:
            return
        if text.repeated is not None:
            shown, left = "".join(text.shown), text.repeated
            text.repeated = None
            if 0 < left < len(shown):
                yield from self._anew(text)
                yield from self.add(of, shown[:left])
        yield from self._closed(text)

    def end_all(self) -> Iterator[Chunk]:
        """Say so of all that are not."""
        for of in list(self._texts):
            yield from self.end(of)

    def _anew(self, text: _Text) -> Iterator[Chunk]:
        yield from self._closed(text)
        text.shown, text.repeated = [], None

    def _closed(self, text: _Text) -> Iterator[Chunk]:
        if text.is_open:
            text.is_open = False
            yield {"type": "text-end", "id": text.id}

    def _new_id(self, of: str) -> str:
        """Return an id that no part of this answer has had: a text that has ended cannot go on under its own."""
        number, found = 1, of
        while found in self._ids:
            number += 1
            found = f"{of}-{number}"
        self._ids.add(found)
        return found
