"""Google's Agent Development Kit: an agent, app or runner.

A turn is an invocation in the conversation's session. The session is durable, unless a runner is given, which has its
own services. Pending calls (long-running tools, confirmations, credentials) are questions of the task. Tools that are
plain functions are called in threads. Modules with Google's types (`events`, `sessions`) are imported when an agent is
made.
"""

from contextlib import aclosing
from importlib import import_module
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from accord.agents.turns import external_context
from accord.api import YES, Context, IncomingMessage, Profile
from accord.api.agent_types import Count, Given, Kind, Options, is_instance_of, profile
from accord.model import Part

__all__ = ["KIND"]


CONFIRM = "adk_request_confirmation"
CREDENTIAL = "adk_request_credential"
"""Function names of the framework's own questions."""


class PendingCall(Struct, frozen=True, kw_only=True):
    """A call that waits for a response."""

    id: str
    name: str
    args: dict[str, Any] = {}


async def ask_for_responses(
    ctx: Context, calls: list[PendingCall], key: str
) -> list[tuple[PendingCall, dict[str, Any]]]:
    """Ask for the response to each call in turn, and return the calls with their responses."""
    found = []
    for call in calls:
        asking = ctx.require_auth if call.name == CREDENTIAL else ctx.ask
        found.append((call, _response(call, await asking(_question(call), key=f"{key}/{call.id}"))))
    return found


def _question(call: PendingCall) -> tuple[Part, ...]:
    """Return the question as text, and the call as data for clients that are programs."""
    plain = {"id": call.id, "name": call.name, "args": call.args}
    return (Part(text=_question_text(call)), Part(data=plain, media_type="application/json"))


def _question_text(call: PendingCall) -> str:
    if call.name == CONFIRM:
        asked = call.args.get("originalFunctionCall") or {}
        hint = (call.args.get("toolConfirmation") or {}).get("hint")
        return str(hint or f"May {asked.get('name')} be called?")
    if call.name == CREDENTIAL:
        return "The agent needs credentials"
    texts = [value for value in call.args.values() if isinstance(value, str)]
    if len(texts) == 1:  # the only text argument of a tool is its question
        return texts[0]
    return f"{call.name} waits for an answer: {msgspec.json.encode(call.args).decode()}"


def _response(call: PendingCall, said: IncomingMessage) -> dict[str, Any]:
    if isinstance(said.data, dict):
        return said.data
    if call.name == CONFIRM:
        return {"confirmed": said.text.strip().strip(".,!").lower() in YES}
    return {"result": said.text if said.data is None else said.data}


ANY_MEDIA = ("text/plain", "application/json", "*/*")

ANONYMOUS_USER = "anybody"
"""User ID where callers are not authenticated."""

TOOL_THREADS = 32
"""As many as the event loop has for its own work. Threads that wait cost little."""

NEEDED = "ADK agents need google-adk: pip install 'accord[adk]'"


class AdkOptions(Options, frozen=True, kw_only=True):
    """Options of an ADK agent. At most `tool_threads` calls of plain functions are under way at a time."""

    tool_threads: Count = TOOL_THREADS


class AdkAgent:
    """An agent made from an ADK agent, app or runner."""

    def __init__(self, thing: Any, profile: Profile, options: AdkOptions) -> None:
        self.profile = profile
        self._options = options
        self._thing = thing
        self._is_runner = _is_runner(thing)

    async def run(self, ctx: Context) -> None:
        """Execute the turns of the task: one for its message, and one for each round of responses."""
        from accord.agents.adk import events

        content, turn = events.user_content(ctx.message.parts), 0
        while True:
            key = f"adk/turn/{turn}"
            kept = ctx.kept(key)
            if kept is None:
                calls = await self._turn(ctx, content, turn)
                kept = await ctx.keep(key, msgspec.json.encode(calls).decode())
            calls = msgspec.json.decode(kept, type=list[PendingCall])
            if not calls:
                return
            content = events.function_responses(await ask_for_responses(ctx, calls, key))
            turn += 1

    async def _turn(self, ctx: Context, content: Any, turn: int) -> list[PendingCall]:
        """Execute a turn unless it is finished, and return its pending calls."""
        if self._is_runner:
            return await self._invoke(ctx, self._thing, content, turn)
        from accord.agents.adk.sessions import AdkSessions

        sessions = AdkSessions(ctx)
        if (known := await sessions.begin(turn)) is not None:
            return known
        calls = await self._invoke(ctx, _runner(self._thing, sessions), content, turn)
        await ctx.flush()
        await sessions.end(turn, calls)
        return calls

    async def _invoke(self, ctx: Context, runner: Any, content: Any, turn: int) -> list[PendingCall]:
        from google.adk.agents.run_config import RunConfig, StreamingMode, ToolThreadPoolConfig

        from accord.agents.adk.events import AdkEventHandler

        user, session = runner_ids(ctx) if self._is_runner else (ctx.caller.owner or ANONYMOUS_USER, ctx.context_id)

        async def load(name: str, version: int) -> Any:
            where = {"app_name": runner.app_name, "user_id": user, "session_id": session}
            return await runner.artifact_service.load_artifact(filename=name, version=version, **where)

        root = runner.agent
        hearing = AdkEventHandler(ctx, load, turn, is_structured=getattr(root, "output_schema", None) is not None)
        threads = ToolThreadPoolConfig(max_workers=self._options.tool_threads)
        config = RunConfig(streaming_mode=StreamingMode.SSE, tool_thread_pool_config=threads)
        events = runner.run_async(user_id=user, session_id=session, new_message=content, run_config=config)
        async with aclosing(events) as heard:
            async for event in heard:
                await hearing.hear(event)
        await hearing.end()
        return hearing.calls


def _runner(thing: Any, sessions: Any) -> Any:
    """Return a runner for one turn, which contains only its services."""
    from google.adk.artifacts import InMemoryArtifactService
    from google.adk.memory import InMemoryMemoryService
    from google.adk.runners import Runner

    what = {"app": thing} if _is_app(thing) else {"agent": thing, "app_name": thing.name}
    return Runner(
        session_service=sessions,
        artifact_service=InMemoryArtifactService(),
        memory_service=InMemoryMemoryService(),
        auto_create_session=True,
        **what,
    )


def runner_ids(ctx: Context) -> tuple[str, str]:
    """Return user and session IDs for a runner whose services are shared by all callers and tenants.

    A user is `tenant/owner`, or the owner alone without a tenant.
    """
    user = "/".join(quote(one, safe="@:") for one in (ctx.tenant, ctx.caller.owner or ANONYMOUS_USER) if one)
    return user, external_context(ctx)


def _is_app(thing: Any) -> bool:
    return is_instance_of(thing, "google.adk.apps.app:App")


def _is_runner(thing: Any) -> bool:
    return is_instance_of(thing, "google.adk.runners:Runner")


def _is_agent(thing: Any) -> bool:
    return is_instance_of(thing, "google.adk.agents.base_agent:BaseAgent")


def make(given: Given) -> AdkAgent:
    """Make an agent from an ADK agent, app or runner."""
    try:
        import_module("google.adk.runners")
        import_module("accord.agents.adk.events")
    except ImportError as error:
        raise ImportError(NEEDED) from error
    thing = given.target
    root = thing.agent if _is_runner(thing) else thing.root_agent if _is_app(thing) else thing
    who = profile(
        given,
        name=root.name,
        description=getattr(root, "description", None),
        input_modes=ANY_MEDIA,
        output_modes=ANY_MEDIA,
    )
    if _is_runner(thing):
        thing.auto_create_session = True  # create the session of a new conversation
    return AdkAgent(thing, who, given.options)


def _recognises(thing: Any) -> bool:
    return _is_agent(thing) or _is_app(thing) or _is_runner(thing)


KIND = Kind(name="adk", options=AdkOptions, make=make, recognises=_recognises)
