"""Session service of ADK over the conversation's stored state.

The session is stored when a turn ends, together with its pending calls. A turn that was lost starts again with the
earlier session, and events that another task has added meanwhile remain. State of a user or an app (`user:`, `app:`)
belongs to this conversation.
"""

from typing import Any

import msgspec
from google.adk.sessions import Session, State
from google.adk.sessions.base_session_service import BaseSessionService, ListSessionsResponse
from msgspec import Struct

from accord.agents.adk import PendingCall
from accord.api import Context

KEY = "adk/session"

MAX_ENDED_TURNS = 32
"""Maximum number of tasks whose last turn is stored; fewer end between two steps of one task."""


class EndedTurn(Struct, frozen=True):
    """A finished turn and its pending calls."""

    turn: int
    calls: list[PendingCall]


class SessionRecord(Struct, frozen=True, kw_only=True):
    """A session, and the last turn of each task that has added to it."""

    session: msgspec.Raw
    done: dict[str, EndedTurn] = {}


class AdkSessions(BaseSessionService):  # type: ignore[misc]  # it is Any where the framework is not installed
    """The one session of an execution."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._session: Session | None = None
        self._found: str | None = None
        self._known: set[str] = set()

    async def begin(self, turn: int) -> list[PendingCall] | None:
        """Read the session. Return the pending calls if this turn has already finished, else None."""
        self._found = await self._ctx.recall_context(KEY)
        if self._found is None:
            return None
        kept = msgspec.json.decode(self._found, type=SessionRecord)
        self._session = Session.model_validate_json(bytes(kept.session))
        self._known = {event.id for event in self._session.events}
        done = kept.done.get(self._ctx.task_id)
        return done.calls if done is not None and done.turn == turn else None

    async def end(self, turn: int, calls: list[PendingCall]) -> None:
        """Store the session after a turn."""
        if (own := self._session) is not None:
            await self._ctx.remember_context(KEY, lambda found: self._joined(found, own, EndedTurn(turn, calls)))

    def _joined(self, found: str | None, own: Session, done: EndedTurn) -> str:
        """Return the session with this turn merged in. Another task may have stored a session meanwhile."""
        kept = None if found is None else msgspec.json.decode(found, type=SessionRecord)
        before = {} if kept is None else {task: one for task, one in kept.done.items() if task != self._ctx.task_id}
        others = dict(list(before.items())[1 - MAX_ENDED_TURNS :])
        whole = own if kept is None or found == self._found else self._added(bytes(kept.session), own)
        session = msgspec.Raw(whole.model_dump_json(by_alias=True, exclude_none=True).encode())
        return msgspec.json.encode(SessionRecord(session=session, done={**others, self._ctx.task_id: done})).decode()

    def _added(self, found: bytes, own: Session) -> Session:
        """Return a stored session with the events of this turn added."""
        session = Session.model_validate_json(found)
        there = self._known | {event.id for event in session.events}
        for event in own.events:
            if event.id not in there:
                session.events.append(event)
                changes = event.actions.state_delta.items()
                session.state.update({key: value for key, value in changes if not key.startswith(State.TEMP_PREFIX)})
        session.last_update_time = max(session.last_update_time, own.last_update_time)
        return session

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create the conversation's session."""
        identifier = session_id or self._ctx.context_id
        self._session = Session(id=identifier, app_name=app_name, user_id=user_id, state=dict(state or {}))
        return self._session

    async def get_session(self, *, app_name: str, user_id: str, session_id: str, config: Any = None) -> Session | None:
        """Return the session with all its events; `config` is ignored."""
        found = self._session
        return found if found is not None and found.id == session_id else None

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the one session."""
        return ListSessionsResponse(sessions=[] if self._session is None else [self._session])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete the session from memory."""
        self._session = None
