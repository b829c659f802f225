"""An ADK agent, app or runner as an agent: turns, events and the stored session.

Text is streamed, files are artifacts, tool calls are progress, and data is text to a model. The session is stored when
a turn ends, together with its pending calls. A turn that was lost starts again with the earlier session. Events that
another task has added meanwhile remain. State of a user or an app (`user:`, `app:`) belongs to this conversation.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

import msgspec
from google.adk.agents.run_config import RunConfig, StreamingMode, ToolThreadPoolConfig
from google.adk.artifacts import InMemoryArtifactService
from google.adk.memory import InMemoryMemoryService
from google.adk.runners import Runner
from google.adk.sessions import Session, State
from google.adk.sessions.base_session_service import BaseSessionService, ListSessionsResponse
from google.genai import types
from msgspec import Struct

from accord.agents.adk import ANONYMOUS_USER, AdkOptions, is_app, is_runner, runner_ids
from accord.agents.messages import OCTETS, answer_id, describe_part
from accord.api import YES, Context, Failed, IncomingMessage, Profile
from accord.model import Part

CONFIRM = "adk_request_confirmation"
CREDENTIAL = "adk_request_credential"
"""Function names of the framework's own questions."""


class PendingCall(Struct, frozen=True, kw_only=True):
    """A call that waits for a response."""

    id: str
    name: str
    args: dict[str, Any] = {}


async def request_responses(
    ctx: Context, calls: list[PendingCall], key: str
) -> list[tuple[PendingCall, dict[str, Any]]]:
    """Ask for the response to each call in turn, and return the calls with their responses."""
    responses = []
    for call in calls:
        asking = ctx.require_auth if call.name == CREDENTIAL else ctx.ask
        responses.append((call, _response(call, await asking(_question(call), key=f"{key}/{call.id}"))))
    return responses


def _question(call: PendingCall) -> tuple[Part, ...]:
    """Return the question as text, and the call as data for clients that are programs."""
    plain = {"id": call.id, "name": call.name, "args": call.args}
    return (Part(text=_question_text(call)), Part(data=plain, media_type="application/json"))


def _question_text(call: PendingCall) -> str:
    if call.name == CONFIRM:
        original = call.args.get("originalFunctionCall") or {}
        hint = (call.args.get("toolConfirmation") or {}).get("hint")
        return str(hint or f"May {original.get('name')} be called?")
    if call.name == CREDENTIAL:
        return "The agent needs credentials"
    texts = [value for value in call.args.values() if isinstance(value, str)]
    if len(texts) == 1:  # the only text argument of a tool is its question
        return texts[0]
    return f"{call.name} waits for an answer: {msgspec.json.encode(call.args).decode()}"


def _response(call: PendingCall, reply: IncomingMessage) -> dict[str, Any]:
    if isinstance(reply.data, dict):
        return reply.data
    if call.name == CONFIRM:
        return {"confirmed": reply.text.strip().strip(".,!").lower() in YES}
    return {"result": reply.text if reply.data is None else reply.data}


# --- events -----------------------------------------------------------------------------------------------------------


def user_content(parts: Iterable[Part]) -> types.Content:
    """Return the caller's message as content of the user."""
    return types.Content(role="user", parts=[_adk_part(part) for part in parts])


def function_responses(answers: Iterable[tuple[PendingCall, dict[str, Any]]]) -> types.Content:
    """Return the responses to pending calls as content."""
    responses = [types.FunctionResponse(id=call.id, name=call.name, response=response) for call, response in answers]
    return types.Content(role="user", parts=[types.Part(function_response=one) for one in responses])


def pending_call(call: types.FunctionCall) -> PendingCall:
    """Return a call in its stored form."""
    return PendingCall(id=call.id or "", name=call.name or "", args=msgspec.to_builtins(call.args or {}))


def file_part(part: types.Part) -> Part | None:
    """Return the file in a part, or None."""
    if part.inline_data is not None:
        blob = part.inline_data
        return Part(raw=blob.data or b"", media_type=blob.mime_type or OCTETS, filename=blob.display_name)
    if part.file_data is not None:
        link = part.file_data
        return Part(url=link.file_uri, media_type=link.mime_type, filename=link.display_name)
    return None


def _adk_part(part: Part) -> types.Part:
    if part.text is not None:
        return types.Part(text=part.text)
    kind = part.media_type or OCTETS
    if part.raw is not None:
        return types.Part(inline_data=types.Blob(data=part.raw, mime_type=kind, display_name=part.filename))
    if part.url is not None:
        return types.Part(file_data=types.FileData(file_uri=part.url, mime_type=kind, display_name=part.filename))
    return types.Part(text=describe_part(part))


LoadArtifact = Callable[[str, int], Awaitable[Any]]


class AdkEventHandler:
    """Handler for the events of one turn."""

    def __init__(self, ctx: Context, load: LoadArtifact, turn: int, *, is_structured: bool) -> None:
        """Write events to `ctx`. `load` returns saved files, and a structured answer becomes data.

        Each turn has its own artifact. An execution that resumes with a later turn keeps the artifacts of the earlier
        ones.
        """
        self._ctx = ctx
        self._id = f"{answer_id(ctx)}-{turn + 1}" if turn else answer_id(ctx)
        self._load = load
        self._is_structured = is_structured
        self._streamed = ""
        self._answer = ""
        self._error: str | None = None
        self.calls: list[PendingCall] = []

    async def handle(self, event: Any) -> None:
        """Write an event to the task."""
        if event.author == "user":
            return
        if not event.partial:
            await self._count(event)
        self._error = (event.error_message or event.error_code) if event.error_code else None
        for part in (event.content.parts or ()) if event.content else ():
            await self._part(event, part)
        if not event.partial:
            self._streamed = ""
        if event.output is not None and not event.content:
            await self._ctx.artifact(event.output, id=self._id)
        for name, version in (event.actions.artifact_delta or {}).items():
            saved = await self._load(name, version)
            if saved is not None and (content_part := file_part(saved) or saved.text) is not None:
                await self._ctx.artifact(content_part, id=name, name=name)

    async def end(self) -> None:
        """Finish the turn; raises Failed if it ended with an error of the model."""
        if self._error is not None:
            raise Failed(f"The model failed: {self._error}")
        if self._is_structured and self._answer:
            await self._ctx.artifact(_data(self._answer), id=self._id)
        await self._ctx.finish(self._id)

    async def _part(self, event: Any, part: Any) -> None:
        if part.thought:
            return
        if part.text:
            await self._text(part.text, is_partial=bool(event.partial))
        elif part.function_call is not None and not event.partial:
            call = pending_call(part.function_call)
            if call.id in (event.long_running_tool_ids or ()):
                self.calls.append(call)
            else:
                await self._ctx.status(f"{event.author} calls {call.name}")
        elif (file := file_part(part)) is not None:
            await self._append(file)

    async def _text(self, text: str, *, is_partial: bool) -> None:
        """Write a text once. The framework sends it again as a whole after its pieces."""
        if is_partial:
            self._streamed += text
        elif self._streamed.startswith(text):
            self._streamed = self._streamed[len(text) :]
            return
        if self._is_structured:
            self._answer = self._streamed if is_partial else text
        else:
            await self._append(text)

    async def _append(self, chunk: Any) -> None:
        await self._ctx.artifact(chunk, id=self._id, append=True, last_chunk=False)

    async def _count(self, event: Any) -> None:
        used = event.usage_metadata
        if used is not None:
            spoken = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
            await self._ctx.usage(
                input_tokens=used.prompt_token_count or 0, output_tokens=spoken, model=event.model_version
            )


def _data(text: str) -> Any:
    """Return a structured answer as data, or as text if the model did not return valid JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


# --- the session ------------------------------------------------------------------------------------------------------

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
        record = msgspec.json.decode(self._found, type=SessionRecord)
        self._session = Session.model_validate_json(bytes(record.session))
        self._known = {event.id for event in self._session.events}
        done = record.done.get(self._ctx.task_id)
        return done.calls if done is not None and done.turn == turn else None

    async def end(self, turn: int, calls: list[PendingCall]) -> None:
        """Store the session after a turn."""
        if (own := self._session) is not None:
            await self._ctx.remember_context(KEY, lambda found: self._joined(found, own, EndedTurn(turn, calls)))

    def _joined(self, stored: str | None, own: Session, done: EndedTurn) -> str:
        """Return the session with this turn merged in. Another task may have stored a session meanwhile."""
        record = None if stored is None else msgspec.json.decode(stored, type=SessionRecord)
        before = {} if record is None else {task: one for task, one in record.done.items() if task != self._ctx.task_id}
        others = dict(list(before.items())[1 - MAX_ENDED_TURNS :])
        whole = own if record is None or stored == self._found else self._added(bytes(record.session), own)
        session = msgspec.Raw(whole.model_dump_json(by_alias=True, exclude_none=True).encode())
        return msgspec.json.encode(SessionRecord(session=session, done={**others, self._ctx.task_id: done})).decode()

    def _added(self, stored: bytes, own: Session) -> Session:
        """Return a stored session with the events of this turn added."""
        session = Session.model_validate_json(stored)
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
        session = self._session
        return session if session is not None and session.id == session_id else None

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the one session."""
        return ListSessionsResponse(sessions=[] if self._session is None else [self._session])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete the session from memory."""
        self._session = None


# --- the agent --------------------------------------------------------------------------------------------------------


class AdkAgent:
    """An agent made from an ADK agent, app or runner."""

    def __init__(self, thing: Any, profile: Profile, options: AdkOptions) -> None:
        self.profile = profile
        self._options = options
        self._thing = thing
        self._is_runner = is_runner(thing)

    async def run(self, ctx: Context) -> None:
        """Execute the turns of the task: one for its message, and one for each round of responses."""
        content, turn = user_content(ctx.message.parts), 0
        while True:
            key = f"adk/turn/{turn}"
            stored = ctx.kept(key)
            if stored is None:
                calls = await self._turn(ctx, content, turn)
                stored = await ctx.keep(key, msgspec.json.encode(calls).decode())
            calls = msgspec.json.decode(stored, type=list[PendingCall])
            if not calls:
                return
            content = function_responses(await request_responses(ctx, calls, key))
            turn += 1

    async def _turn(self, ctx: Context, content: Any, turn: int) -> list[PendingCall]:
        """Execute a turn unless it is finished, and return its pending calls."""
        if self._is_runner:
            return await self._invoke(ctx, self._thing, content, turn)
        sessions = AdkSessions(ctx)
        if (ended_calls := await sessions.begin(turn)) is not None:
            return ended_calls
        calls = await self._invoke(ctx, _runner(self._thing, sessions), content, turn)
        await ctx.flush()
        await sessions.end(turn, calls)
        return calls

    async def _invoke(self, ctx: Context, runner: Any, content: Any, turn: int) -> list[PendingCall]:
        user, session = runner_ids(ctx) if self._is_runner else (ctx.caller.owner or ANONYMOUS_USER, ctx.context_id)

        async def load(name: str, version: int) -> Any:
            where = {"app_name": runner.app_name, "user_id": user, "session_id": session}
            return await runner.artifact_service.load_artifact(filename=name, version=version, **where)

        root = runner.agent
        handler = AdkEventHandler(ctx, load, turn, is_structured=getattr(root, "output_schema", None) is not None)
        threads = ToolThreadPoolConfig(max_workers=self._options.tool_threads)
        config = RunConfig(streaming_mode=StreamingMode.SSE, tool_thread_pool_config=threads)
        events = runner.run_async(user_id=user, session_id=session, new_message=content, run_config=config)
        async with aclosing(events) as stream:
            async for event in stream:
                await handler.handle(event)
        await handler.end()
        return handler.calls


def _runner(thing: Any, sessions: Any) -> Any:
    """Return a runner for one turn, which contains only its services."""
    target = {"app": thing} if is_app(thing) else {"agent": thing, "app_name": thing.name}
    return Runner(
        session_service=sessions,
        artifact_service=InMemoryArtifactService(),
        memory_service=InMemoryMemoryService(),
        auto_create_session=True,
        **target,
    )
