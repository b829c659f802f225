"""What agents with histories of their own remember in our store: how far a turn has come, and the turns before it.

Both are in the framework's own form, which only its kind reads. A turn that is run again, after a crash or because it
has parked, finds what it noted last, and joins the conversation once however often it ends; `core.context` is below.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from accord.engine.context import Context

Form = TypeVar("Form")


class Turn(Struct, frozen=True):
    """What one turn has added to a conversation."""

    id: str
    messages: Raw


class _Note(Struct, frozen=True):
    turn: str
    value: Raw = Raw(b"null")
    is_done: bool = False


class Memory:
    """The memory of one turn."""

    def __init__(self, ctx: Context, kind: str) -> None:
        """Remember what agents of a kind need; their keys begin with its name."""
        self.turn = f"{ctx.task_id}/{ctx.message.message_id}"
        self._ctx = ctx
        self._history = f"{kind}/history"
        self._note = f"{kind}/turn/{ctx.task_id}"

    async def noted(self, form: type[Form]) -> tuple[Form | None, bool]:
        """Return what this turn noted last, and whether it is done."""
        found = await self._ctx.recall_context(self._note)
        note = None if found is None else msgspec.json.decode(found, type=_Note)
        if note is None or note.turn != self.turn:
            return None, False
        return msgspec.json.decode(note.value, type=form | None), note.is_done

    async def note(self, value: Struct) -> None:
        """Keep how far the turn has come; everything said is committed before."""
        await self._keep(_Note(self.turn, Raw(msgspec.json.encode(value))))

    async def earlier(self) -> list[Turn]:
        """Return the turns of the conversation before this one."""
        return self._others(await self._ctx.recall_context(self._history))

    async def close(self, messages: Raw, keep: Callable[[list[Turn]], list[Turn]]) -> None:
        """Add what this turn has said to the conversation; running it again does nothing from now on.

        `keep` says what is kept of all turns, of which this is the last: another task may have added one meanwhile.
        """
        await self._ctx.flush()
        turn = Turn(self.turn, messages)

        def joined(found: str | None) -> str:
            return msgspec.json.encode(keep([*self._others(found), turn])).decode()

        await self._ctx.remember_context(self._history, joined)
        await self._keep(_Note(self.turn, is_done=True))

    def _others(self, found: str | None) -> list[Turn]:
        """Return the turns of a history but this one."""
        turns = [] if found is None else msgspec.json.decode(found, type=list[Turn])
        return [turn for turn in turns if turn.id != self.turn]

    async def _keep(self, note: _Note) -> None:
        await self._ctx.flush()
        await self._ctx.remember_context(self._note, msgspec.json.encode(note).decode())
