"""Session service of ADK over the conversation's stored state.

The session is stored when a turn is over, together with its pending calls, so a turn that was lost begins with the
session as it was before; what another task has added meanwhile stays. State of a user or an app (`user:`, `app:`) is
that of this conversation.
"""

from typing import Any

import msgspec
from google.adk.sessions import Session, State
from google.adk.sessions.base_session_service import BaseSessionService, ListSessionsResponse
from msgspec import Struct

from accord.agents.adk import PendingCall
from accord.engine.context import Context

KEY = "adk/session"

MAX_ENDED_TURNS = 32
"""Tasks whose last turns are known to be over: more than end between two steps of one."""


class EndedTurn(Struct, frozen=True):
    """A turn that is over, and the calls that it waits for."""

    turn: int
    calls: list[PendingCall]


class SessionRecord(Struct, frozen=True, kw_only=True):
    """A session, and the last turn of each task that has added to it."""

    session: msgspec.Raw
    done: dict[str, EndedTurn] = {}


class AdkSessions(BaseSessionService):  # type: ignore[misc]  # it is Any where the framework is not installed
    """The one session of a run."""

    def __init__(self, ctx: Context) -> None:
        """Keep it in the context's conversation."""
        self._ctx = ctx
        self._session: Session | None = None
        self._found: str | None = None
        self._known: set[str] = set()

    async def begin(self, turn: int) -> list[PendingCall] | None:
        """Read the session; if the turn was over already, return what it waits for."""
        self._found = await self._ctx.recall_context(KEY)
        if self._found is None:
            return None
        kept = msgspec.json.decode(self._found, type=SessionRecord)
        self._session = Session.model_validate_json(bytes(kept.session))
        self._known = {event.id for event in self._session.events}
        done = kept.done.get(self._ctx.task_id)
        return done.calls if done is not None and done.turn == turn else None

    async def end(self, turn: int, calls: list[PendingCall]) -> None:
        """Keep the session after a turn."""
        if (own := self._session) is not None:
            await self._ctx.remember_context(KEY, lambda found: self._joined(found, own, EndedTurn(turn, calls)))

    def _joined(self, found: str | None, own: Session, done: EndedTurn) -> str:
        """Return a session with this turn in it; what is found may be by another task, that ended meanwhile."""
        kept = None if found is None else msgspec.json.decode(found, type=SessionRecord)
        before = {} if kept is None else {task: one for task, one in kept.done.items() if task != self._ctx.task_id}
        others = dict(list(before.items())[1 - MAX_ENDED_TURNS :])
        whole = own if kept is None or found == self._found else self._added(bytes(kept.session), own)
        session = msgspec.Raw(whole.model_dump_json(by_alias=True, exclude_none=True).encode())
        return msgspec.json.encode(SessionRecord(session=session, done={**others, self._ctx.task_id: done})).decode()

    def _added(self, found: bytes, own: Session) -> Session:
        """Return a session that was found, with the events of this turn."""
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
