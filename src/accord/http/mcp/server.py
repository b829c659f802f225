"""The MCP server: lists agents or skills as tools and answers their calls, over stdio or HTTP.

A call sends a message and reports progress until the task's turn ends. If the client cancels the call, the task is
canceled. A question of the agent is a form where the client supports forms, otherwise a result that explains how to
continue.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

import anyio
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
    ToolAnnotations,
)
from mcp_types.version import is_version_at_least
from msgspec import Struct

from accord.a2a import A2A, Caller
from accord.engine.messages import text_of
from accord.errors import AccordError
from accord.http.mcp.conversion import (
    ANSWER_FIELD,
    InvalidArguments,
    ToolArguments,
    form_arguments,
    form_of,
    message_of,
    read_arguments,
    refusal_result,
    result_of,
)
from accord.model import (
    AgentSkill,
    ArtifactUpdate,
    CancelRequest,
    Event,
    EventBody,
    GetRequest,
    Message,
    SendRequest,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskState,
)
from accord.protocol import lifecycle

MAX_NAME = 64
"""Maximum characters of a tool's name: MCP allows 128, but many models and their APIs only 64."""

MAX_SKILLS = 20
"""Skills that a description lists. The model reads the description with every call."""

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to say to the agent, or the answer to what it asked."},
        "data": {"description": "Structured data to send along: any JSON value."},
        "files": {
            "type": "array",
            "description": "Files to send along.",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "media_type": {"type": "string"},
                    "content": {"type": "string", "description": "The bytes, as base64."},
                    "url": {"type": "string", "description": "Where the agent gets it, instead of its content."},
                },
            },
        },
        "task_id": {
            "type": "string",
            "description": "A task of this agent to go on with. Without a message, it is looked what became of it.",
        },
        "context_id": {"type": "string", "description": "A conversation with this agent to go on with."},
    },
}

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "state": {"type": "string", "description": "completed, or input-required: answer with the task's id."},
        "task_id": {"type": "string"},
        "context_id": {"type": "string"},
        "text": {"type": "string", "description": "What the agent said."},
        "data": {"description": "Structured data of the answer; a list if there is more than one."},
    },
    "required": ["state"],
}


class ExposedAgent(Struct, frozen=True, kw_only=True):
    """An agent to expose as a tool, and the caller it is called as; `unreachable` are its connection errors."""

    name: str
    agent: A2A
    description: str = ""
    skills: tuple[AgentSkill, ...] = ()
    caller: Caller = Caller()
    unreachable: tuple[type[Exception], ...] = ()


class OfferedTool(Struct, frozen=True, kw_only=True):
    """A tool and the agent it calls; `skill` is the id of the requested skill."""

    tool: Tool
    exposed: ExposedAgent
    skill: str | None = None


def offer_tools(agents: Iterable[ExposedAgent], *, by_skill: bool = False) -> dict[str, OfferedTool]:
    """Return the tools of agents by name."""
    found: dict[str, OfferedTool] = {}
    for one in agents:
        if by_skill and one.skills:
            for skill in one.skills:
                name = _unique_name(f"{one.name}_{skill.id}", found)
                tool = _tool(
                    name, skill.name, _tool_description(skill.description or one.description, (), skill.examples)
                )
                found[name] = OfferedTool(tool=tool, exposed=one, skill=skill.id)
        else:
            name = _unique_name(one.name, found)
            tool = _tool(name, one.name, _tool_description(one.description, one.skills, ()))
            found[name] = OfferedTool(tool=tool, exposed=one)
    return found


def _tool(name: str, title: str, description: str) -> Tool:
    return Tool(
        name=name,
        title=title,
        description=description,
        input_schema=INPUT_SCHEMA,
        output_schema=OUTPUT_SCHEMA,
        annotations=ToolAnnotations(title=title, open_world_hint=True),
    )


def _tool_description(description: str, skills: tuple[AgentSkill, ...], examples: Iterable[str]) -> str:
    lines = [description]
    lines += [f"- {skill.name}: {skill.description}" for skill in skills[:MAX_SKILLS] if skill.description]
    lines += [f"Example: {example}" for example in examples]
    return "\n".join(filter(None, lines))


def _unique_name(name: str, taken: dict[str, OfferedTool]) -> str:
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:MAX_NAME] or "agent"
    number, free = 1, safe
    while free in taken:
        number += 1
        free = f"{safe[: MAX_NAME - len(str(number)) - 1]}_{number}"
    return free


CANCEL_SECONDS = 5.0
"""Seconds for canceling a task after its client canceled the call."""

FORMS_AS_RESULTS = "2026-07-28"
"""The MCP version since which a server's question is a result, and the answer another call."""

TURN_END_STATES = lifecycle.ENDED | lifecycle.INTERRUPTED

log = logging.getLogger("accord.mcp")

Context = ServerRequestContext[Any, Any]


class ToolCalls:
    """Answers tool calls."""

    def __init__(self, wait_seconds: float | None = None) -> None:
        """Let a call wait at most `wait_seconds` for its agent."""
        self._wait_seconds = wait_seconds

    async def answer(
        self, called: OfferedTool, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Answer one call."""
        try:
            return await self._answer(called, ctx, params)
        except InvalidArguments as error:
            return refusal_result(str(error))
        except AccordError as error:
            log.info("mcp.refused", extra={"tool": called.tool.name, "reason": error.message})
            return refusal_result(error.message)
        except called.exposed.unreachable as error:
            log.warning("mcp.not_reached", extra={"tool": called.tool.name, "reason": str(error)})
            return refusal_result("The agent cannot be reached")

    async def _answer(
        self, called: OfferedTool, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        says = _resumed_arguments(params) or read_arguments(params.arguments)
        while True:
            said = await _ToolCall(called.exposed, ctx).within(self._wait_seconds, says, called.skill)
            if not isinstance(said, Task) or said.status.state is not TaskState.INPUT_REQUIRED or not _has_forms(ctx):
                return result_of(said)
            form = form_of(said)
            if is_version_at_least(ctx.protocol_version, FORMS_AS_RESULTS):
                if params.request_state == said.id and says.says_nothing:
                    return result_of(said)  # the form was not filled in, so it is not shown again
                return InputRequiredResult(input_requests={ANSWER_FIELD: form}, request_state=said.id)
            answer = form_arguments(said.id, await ctx.session.send_request(form, ElicitResult))
            if answer is None:
                return result_of(said)
            says = answer


def _resumed_arguments(params: CallToolRequestParams) -> ToolArguments | None:
    """Return the arguments in the answer to a form, or None without one; an empty form only reads its task."""
    form = (params.input_responses or {}).get(ANSWER_FIELD)
    if params.request_state is None or not isinstance(form, ElicitResult):
        return None
    return form_arguments(params.request_state, form) or ToolArguments(task_id=params.request_state)


def _has_forms(ctx: Context) -> bool:
    """Whether the client can show a form; a client that declares no modes can."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


class _ToolCall:
    """The messages and events of one turn."""

    def __init__(self, exposed: ExposedAgent, ctx: Context) -> None:
        self._agent = exposed.agent
        self._caller = exposed.caller
        self._refusals: tuple[type[Exception], ...] = (AccordError, *exposed.unreachable)
        self._ctx = ctx
        self._now: Task | Message | None = None
        self._events_seen = 0

    async def within(self, seconds: float | None, says: ToolArguments, skill: str | None) -> Task | Message:
        """Send a message, or only read the task, and return the result of the turn, or its state at the timeout."""
        events = self._events(says, skill)
        try:
            async with asyncio.timeout(seconds), aclosing(events):  # type: ignore[type-var]  # they are generators
                async for event in events:
                    await self._apply_event(event.body)
                    if self._is_turn_over():
                        break
        except TimeoutError:
            if not isinstance(self._now, Task):
                raise InvalidArguments("The agent did not answer in time") from None
        except asyncio.CancelledError:
            await self._give_up()
            raise
        if self._now is None:
            raise InvalidArguments("The agent did not answer")
        return self._now

    async def _events(self, says: ToolArguments, skill: str | None) -> AsyncIterator[Event]:
        if not says.says_nothing:
            source = self._agent.stream(SendRequest(message=message_of(says, skill)), self._caller)
        else:
            task = await self._agent.get(GetRequest(id=says.task_id or ""), self._caller)
            yield Event(seq=0, body=task)
            if task.status.state in TURN_END_STATES:
                return
            source = self._agent.subscribe(SubscribeRequest(id=task.id), self._caller)
        async with aclosing(source) as events:  # type: ignore[type-var]  # every stream is a generator
            async for event in events:
                yield event

    async def _apply_event(self, body: EventBody) -> None:
        """Apply an event, and report progress to the client."""
        if isinstance(body, Task | Message):
            self._now = body
        elif isinstance(self._now, Task):
            self._now = lifecycle.apply(self._now, body)
        if text := _progress_text(body):
            self._events_seen += 1
            await self._ctx.session.report_progress(self._events_seen, None, text)

    def _is_turn_over(self) -> bool:
        return isinstance(self._now, Message) or (self._now is not None and self._now.status.state in TURN_END_STATES)

    async def _give_up(self) -> None:
        """Cancel a task whose client canceled the call."""
        if not isinstance(self._now, Task):
            return
        about = {"task_id": self._now.id}
        with anyio.move_on_after(CANCEL_SECONDS, shield=True):
            try:
                await self._agent.cancel(CancelRequest(id=self._now.id), self._caller)
                log.info("mcp.task_cancelled", extra=about)
            except self._refusals as error:
                log.warning("mcp.task_not_cancelled", extra=about | {"reason": str(error)})


def _progress_text(body: EventBody) -> str:
    match body:
        case StatusUpdate(status=status) if status.message is not None and status.state is TaskState.WORKING:
            return text_of(status.message.parts)
        case ArtifactUpdate(artifact=artifact):
            return text_of(artifact.parts)
    return ""


SERVER_NAME = "accord"

INSTRUCTIONS = (
    "Each tool is an agent. It may take a while and say how far it is. One that asks something answers with a task_id:"
    " call the same tool again with the answer as message and that task_id. To talk on with an agent about the same"
    " thing, pass the context_id of its last answer."
)


def make_server(
    agents: Iterable[ExposedAgent], *, by_skill: bool = False, wait_seconds: float | None = None, version: str = ""
) -> Server[Any]:
    """Return a server whose tools are these agents; `version` is the server's stated version."""
    tools = offer_tools(agents, by_skill=by_skill)
    calls = ToolCalls(wait_seconds)

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[one.tool for one in tools.values()])

    async def call_tool(
        ctx: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        if params.name not in tools:
            raise MCPError(code=INVALID_PARAMS, message=f"There is no tool called {params.name!r}")
        return await calls.answer(tools[params.name], ctx, params)

    return Server(
        SERVER_NAME, version=version, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def serve_stdio(server: Server[Any]) -> None:
    """Serve over standard input and output until the client disconnects."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def http_app(server: Server[Any], *, host: str) -> Any:
    """Return the ASGI application of a server; on a local `host`, pages of other origins are refused."""
    return server.streamable_http_app(streamable_http_path="/mcp", host=host)
