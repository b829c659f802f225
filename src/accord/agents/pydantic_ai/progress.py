"""How far a turn has come, and what was said in its conversation before, as the framework's own messages.

A turn is noted after every call of the model and after its tools, so that a run which was lost or has parked goes on
from there on any node. It runs nothing; `agent` stands above, `agents.memory` keeps it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct

from accord.agents.memory import Memory, Turn
from accord.engine.context import Context
from accord.model import Part

NOTHING = Raw(b"[]")


class Wanted(Struct, frozen=True, kw_only=True):
    """A tool call that waits for a person's approval, or for a result that comes from elsewhere."""

    id: str
    tool: str
    args: dict[str, Any]
    is_approval: bool
    metadata: dict[str, Any]


class Mark(Struct, frozen=True, kw_only=True):
    """How far a turn has come; `replaces` are earlier turns that its messages have in them, which were made shorter."""

    messages: Raw = NOTHING
    said: tuple[Part, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    replaces: tuple[str, ...] = ()


class Progress:
    """The messages of a turn that is under way, and those before it."""

    def __init__(self, memory: Memory, mark: Mark, turns: Sequence[Turn], *, is_done: bool, most: int) -> None:
        """Use `load`."""
        self.mark = mark
        self.is_done = is_done
        self.earlier = [message for turn in turns for message in _decoded(turn.messages)]
        self.messages = _decoded(mark.messages)
        self._memory = memory
        self._known = tuple(turn.id for turn in turns)
        self._replaces = mark.replaces
        self._most = most

    @classmethod
    async def load(cls, ctx: Context, most: int) -> "Progress":
        """Read how far this turn has come, and at most so many turns before it."""
        memory = Memory(ctx, "pydantic_ai")
        found, is_done = await memory.noted(Mark)
        mark = found or Mark()
        turns = [] if mark.replaces else _latest(await memory.earlier(), most)
        return cls(memory, mark, turns, is_done=is_done, most=most)

    def reached(self, messages: Sequence[Any]) -> None:
        """Take in all messages of a run, which begin with those that it was given, unless it made them shorter."""
        before = len(self.earlier)
        if len(messages) < before or any(new is not old for new, old in zip(messages, self.earlier, strict=False)):
            self.earlier, before, self._replaces = [], 0, self._known
        self.messages = list(messages[before:])

    async def note(self, said: Sequence[Part], wanted: Sequence[Wanted] = ()) -> None:
        """Keep how far it has come."""
        self.mark = Mark(
            messages=_encoded(self.messages), said=tuple(said), wanted=tuple(wanted), replaces=self._replaces
        )
        await self._memory.note(self.mark)

    async def done(self) -> None:
        """Add the turn to the conversation."""

        def keep(turns: list[Turn]) -> list[Turn]:
            if self._replaces:  # it begins with what they said, before what another task has added meanwhile
                *others, own = turns
                turns = [own, *(turn for turn in others if turn.id not in self._replaces)]
            return _latest(turns, self._most)

        await self._memory.close(_encoded(self.messages), keep)


def _latest(turns: list[Turn], most: int) -> list[Turn]:
    """Return the latest turns; what the system prompt said in the first one is never left out."""
    if len(turns) <= most:
        return turns
    kept = turns[len(turns) - most :]
    first, *rest = _decoded(kept[0].messages)
    prompts = [part for part in _decoded(turns[0].messages)[0].parts if part.part_kind == "system-prompt"]
    again = dataclasses.replace(first, parts=[*prompts, *first.parts])
    return [Turn(kept[0].id, _encoded([again, *rest])), *kept[1:]]


def _decoded(messages: Raw) -> list[Any]:
    from pydantic_ai import ModelMessagesTypeAdapter

    return ModelMessagesTypeAdapter.validate_json(bytes(messages))


def _encoded(messages: Sequence[Any]) -> Raw:
    from pydantic_ai import ModelMessagesTypeAdapter

    return Raw(ModelMessagesTypeAdapter.dump_json(list(messages)))
