"""What was said to an agent, and the ways to look at it.

Only values: `core.context` hands them to agents.
"""

from typing import Any

import msgspec
from msgspec import Struct

from accord.core.output import text_of
from accord.model import Message, Part

YES = frozenset({"yes", "y", "ok", "okay", "approve", "approved", "true", "1"})
NO = frozenset({"no", "n", "reject", "rejected", "deny", "denied", "false", "0"})


class Said(Struct, frozen=True):
    """A message with the ways to look at it."""

    message: Message

    @property
    def parts(self) -> tuple[Part, ...]:
        """Its parts."""
        return self.message.parts

    @property
    def text(self) -> str:
        """Its text, all of it."""
        return text_of(self.parts)

    @property
    def data(self) -> Any:
        """The value of its first data part, or None."""
        return next((part.data for part in self.parts if part.data is not msgspec.UNSET), None)

    @property
    def files(self) -> tuple[Part, ...]:
        """Its parts that carry or link to a file."""
        return tuple(part for part in self.parts if part.raw is not None or part.url is not None)

    def __str__(self) -> str:
        return self.text


class Approval(Struct, frozen=True):
    """A person's decision; it is true if it is a yes. One that is neither yes nor no is not clear."""

    is_approved: bool
    comment: str
    is_clear: bool = True

    @classmethod
    def of(cls, said: Said) -> "Approval":
        """Read a decision: `{"approved": true, "comment": "..."}` as data, or a word and what follows it."""
        if isinstance(said.data, dict):
            return cls(said.data.get("approved") is True, str(said.data.get("comment") or ""))
        text = said.text.strip()
        word, _, rest = text.partition(" ")
        word = word.strip(".,:;!").lower()
        return cls(word in YES, rest.strip()) if word in YES | NO else cls(False, text, is_clear=False)

    def __bool__(self) -> bool:
        return self.is_approved
