"""The incoming message of a turn, and the conversion of values to parts."""

from collections.abc import Iterable, Sequence
from itertools import count, pairwise
from typing import Any

import msgspec
from msgspec import Struct

from accord.model import Artifact, Message, Part, Role


def parts_of(value: Any) -> tuple[Part, ...]:
    """Return a value as parts. None has no parts."""
    match value:
        case None:
            return ()
        case str():
            return (Part(text=str(value)),)  # frameworks pass subclasses of str, which cannot be encoded
        case bytes() | bytearray() | memoryview():
            return (Part(raw=bytes(value), media_type="application/octet-stream"),)
        case Part():
            return (value,)
        case Message() | Artifact():
            return value.parts
        case list() | tuple() if value and all(isinstance(item, Part) for item in value):
            return tuple(value)
    return (Part(data=_builtins(value), media_type="application/json"),)


def text_of(parts: Iterable[Part]) -> str:
    """Return the concatenated text of parts."""
    return "".join([part.text for part in parts if part.text is not None])


def as_message(text: str, message_id: str, task_id: str, context_id: str | None = None) -> Message:
    """Return a text as a message of the agent."""
    parts = (Part(text=text),)
    return Message(message_id=message_id, role=Role.AGENT, parts=parts, task_id=task_id, context_id=context_id)


CHILD_TASK = "childTask"
"""Metadata key of a question that was passed on: the ID of the child task that asks it."""


def child_of(question: Message) -> str | None:
    """Return the child task whose question a message passes on, or None."""
    child = (question.metadata or {}).get(CHILD_TASK)
    return child if question.role is Role.AGENT and isinstance(child, str) else None


def answer_to(question: Message, history: Sequence[Message]) -> Message | None:
    """Return the caller's next message after a question, or None."""
    for before, message in pairwise(history):
        if before.message_id == question.message_id and message.role is Role.USER:
            return message
    return None


class ArtifactIds:
    """The artifact IDs of a turn, including those chosen for artifacts without one.

    They depend only on the earlier calls, so every execution of the turn chooses the same.
    """

    def __init__(self) -> None:
        """Start a turn without artifacts."""
        self.used: set[str] = set()
        self._last: dict[str, str] = {}

    def choose(self, base: str, *, append: bool) -> str:
        """Return a new ID that starts with `base`, or with `append` the last ID chosen for `base`."""
        if not append or base not in self._last:
            numbered = (base if number == 1 else f"{base}-{number}" for number in count(1))
            self._last[base] = next(id for id in numbered if id not in self.used)
        return self._last[base]


def _builtins(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's models
    try:
        return msgspec.to_builtins(dump(mode="json") if callable(dump) else value)
    except TypeError as error:
        raise TypeError(f"An agent cannot answer with {type(value).__name__}: {error}") from None


YES = frozenset({"yes", "y", "ok", "okay", "approve", "approved", "true", "1"})
NO = frozenset({"no", "n", "reject", "rejected", "deny", "denied", "false", "0"})


class IncomingMessage(Struct, frozen=True):
    """A message and accessors for its content."""

    message: Message

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the message."""
        return self.message.parts

    @property
    def text(self) -> str:
        """The concatenated text of the message."""
        return text_of(self.parts)

    @property
    def data(self) -> Any:
        """The value of the first data part of the message, or None."""
        return next((part.data for part in self.parts if part.data is not msgspec.UNSET), None)

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts of the message that contain or link to a file."""
        return tuple(part for part in self.parts if part.raw is not None or part.url is not None)

    def __str__(self) -> str:
        return self.text


class Approval(Struct, frozen=True):
    """A person's decision. It is truthy if approved. `is_clear` is false if the text is neither yes nor no."""

    is_approved: bool
    comment: str
    is_clear: bool = True

    @classmethod
    def of(cls, answer: IncomingMessage) -> "Approval":
        """Parse a decision: `{"approved": true, "comment": "..."}` as data, or a word followed by a comment."""
        if isinstance(answer.data, dict):
            return cls(answer.data.get("approved") is True, str(answer.data.get("comment") or ""))
        text = answer.text.strip()
        word, _, comment = text.partition(" ")
        word = word.strip(".,:;!").lower()
        return cls(word in YES, comment.strip()) if word in YES | NO else cls(False, text, is_clear=False)

    def __bool__(self) -> bool:
        return self.is_approved
