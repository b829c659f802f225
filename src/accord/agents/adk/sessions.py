"""The session of a conversation, kept with its other state: what an ADK runner reads and appends to during one turn.

It is kept when a turn is over, together with what that waits for, so a turn that was lost begins with the session as it
was before. State of a user or an app (`user:`, `app:`) is that of this conversation. It is imported when an agent is
made, by `agent`.
"""

from typing import Any

import msgspec
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import BaseSessionService, ListSessionsResponse
from msgspec import Struct

from accord.agents.adk.calls import Call
from accord.core.context import Context

KEY = "adk/session"


class Kept(Struct, frozen=True, kw_only=True):
    """A session after a turn of a task, and the calls that the turn waits for."""

    task_id: str
    turn: int
    calls: list[Call]
    session: msgspec.Raw


class Sessions(BaseSessionService):  # type: ignore[misc]  # it is Any where the framework is not installed
    """The one session of a run."""

    def __init__(self, ctx: Context) -> None:
        """Keep it in the context's conversation."""
        self._ctx = ctx
        self._session: Session | None = None

    async def begin(self, turn: int) -> list[Call] | None:
        """Read the session; if the turn was over already, return what it waits for."""
        found = await self._ctx.recall_context(KEY)
        if found is None:
            return None
        kept = msgspec.json.decode(found, type=Kept)
        self._session = Session.model_validate_json(bytes(kept.session))
        return kept.calls if (kept.task_id, kept.turn) == (self._ctx.task_id, turn) else None

    async def end(self, turn: int, calls: list[Call]) -> None:
        """Keep the session after a turn."""
        if self._session is not None:
            session = msgspec.Raw(self._session.model_dump_json(by_alias=True, exclude_none=True).encode())
            kept = Kept(task_id=self._ctx.task_id, turn=turn, calls=calls, session=session)
            await self._ctx.remember_context(KEY, msgspec.json.encode(kept).decode())

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Begin the conversation's session."""
        identifier = session_id or self._ctx.context_id
        self._session = Session(id=identifier, app_name=app_name, user_id=user_id, state=dict(state or {}))
        return self._session

    async def get_session(self, *, app_name: str, user_id: str, session_id: str, config: Any = None) -> Session | None:
        """Return the session; how much of it is read does not matter."""
        found = self._session
        return found if found is not None and found.id == session_id else None

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the one session."""
        return ListSessionsResponse(sessions=[] if self._session is None else [self._session])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Forget the session."""
        self._session = None
