"""OpenAI Agents SDK: streamed text, structured output, approvals as questions.

The agent has its own model, tools, handoffs and guardrails. The SDK's state is stored after every turn of the SDK. An
execution that was lost or suspended resumes from there. The SDK is imported when an agent is made.
"""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from accord.agents.loader import call_function, import_function
from accord.agents.messages import (
    StreamedAnswer,
    data_url,
    describe_part,
    finish_answer,
    is_linked,
    media_kind,
    readable_text,
)
from accord.agents.turns import TurnMemory
from accord.api import TEXT, AgentEnvironment, Context, Crash, Failed, Rejected, parts_of
from accord.api.agent_types import (
    ANY_MEDIA,
    JSON,
    AgentArguments,
    AgentType,
    Count,
    Options,
    is_instance_of,
    needs,
    profile,
)
from accord.model import Part

if TYPE_CHECKING:
    from agents.mcp import MCPServerManager


__all__ = ["AGENT_TYPE", "OpenAIAgent", "OpenAIAgentsOptions"]


def user_item(parts: Iterable[Part]) -> dict[str, Any]:
    """Return a caller's message as an item of a session."""
    return {"role": "user", "content": [_input_content(part) for part in parts]}


def _input_content(part: Part) -> dict[str, Any]:
    is_file = part.raw is not None or is_linked(part)
    if not is_file or readable_text(part) is not None:
        return {"type": "input_text", "text": describe_part(part) if part.text is None else part.text}
    if media_kind(part) == "image":
        return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
    if part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.filename or "file", "file_data": data_url(part)}


def output_parts(output: Any) -> tuple[Part, ...]:
    """Return a structured output as data."""
    import pydantic_core

    if output is None:
        return ()
    return parts_of(Part(data=pydantic_core.to_jsonable_python(output), media_type="application/json"))


def picture_part(item: Any) -> Part | None:
    """Return the picture in a response item, or None."""
    if getattr(item, "type", None) != "image_generation_call" or not item.result:
        return None
    kind = getattr(item, "output_format", None) or "png"
    return Part(raw=base64.b64decode(item.result), media_type=f"image/{kind}")


AGENT = "agents.agent:AgentBase"
"""Base class of agents; other packages called `agents` also have an `Agent`, but hardly this one."""

COMPLETED = frozenset({"response.completed", "response.incomplete"})
"""Events that end a response of a model; they contain its usage."""

log = logging.getLogger("accord.agents.openai_agents")


class OpenAIAgentsOptions(Options, frozen=True, kw_only=True):
    """Options of an agent; `context` is a `module:function` that makes the tools' context in place of Accord's own.

    A run includes the last `history` turns of the conversation. With `tracing`, runs are reported to OpenAI, which is
    the SDK's own default.
    """

    context: str | None = None
    max_turns: Count | None = 10
    history: Count = 50
    tracing: bool = False


class OpenAIMark(Struct, frozen=True, kw_only=True):
    """The progress of a turn: the SDK's state, the output so far, and the number of earlier items."""

    state: Raw
    said: tuple[Part, ...]
    before: int


class OpenAIAgent:
    """A hosted agent of the OpenAI Agents SDK."""

    def __init__(self, given: AgentArguments) -> None:
        with needs("openai-agents", "openai-agents"):
            from agents import Agent, RunState  # noqa: F401  # another package may be called agents
        self._options: OpenAIAgentsOptions = given.options
        self._agent: Agent[Any] = given.target
        self._servers: MCPServerManager | None = None
        named = self._options.context
        self._make_context = None if named is None else import_function(named, "context")
        self.profile = profile(
            given,
            crash=Crash.RESUME,
            name=self._agent.name,
            description=self._agent.handoff_description,
            input_modes=ANY_MEDIA,
            output_modes=(TEXT, JSON, "image/*"),
        )

    async def start(self, node: AgentEnvironment) -> None:
        """Connect to the MCP servers of the agent and its handoffs for as long as the node runs."""
        servers = _mcp_servers(self._agent)
        if not servers:
            return
        from agents.mcp import MCPServerManager

        self._servers = MCPServerManager(servers, strict=True, connect_in_parallel=True)
        try:
            await self._servers.connect_all()
        except Exception as error:
            raise ValueError(f"an MCP server cannot be reached: {error}") from error

    async def stop(self) -> None:
        """Disconnect from the MCP servers."""
        if self._servers is not None:
            await self._servers.cleanup_all()

    async def run(self, ctx: Context) -> None:
        """Execute one turn from its present state."""
        memory = TurnMemory(ctx, "openai_agents")
        mark, is_done = await memory.load(OpenAIMark)
        if is_done:
            return
        answer = StreamedAnswer(ctx, mark.said if mark else (), resumes=self.profile.crash is Crash.RESUME)
        await answer.restore()
        context = await self._context(ctx)
        before, sdk_input = await self._begin(ctx, memory, mark, context)
        result, done = await self._run_sdk_turn(ctx, sdk_input, context, answer), 0
        while result.interruptions or (result.final_output is None and len(result.new_items) > done):
            sdk_input, done = result.to_state(), len(result.new_items)
            state = Raw(msgspec.json.encode(sdk_input.to_json(context_serializer=lambda context: {})))
            await memory.save(OpenAIMark(state=state, said=tuple(answer.checkpoint()), before=before))
            await _decide(ctx, sdk_input)
            result = await self._run_sdk_turn(ctx, sdk_input, context, answer)
        await _write_output(answer, result.final_output)
        await finish_answer(ctx)
        items = Raw(msgspec.json.encode(result.to_input_list()[before:]))
        await memory.close(items, lambda turns: turns[-self._options.history :])

    async def _begin(self, ctx: Context, memory: TurnMemory, mark: OpenAIMark | None, context: Any) -> tuple[int, Any]:
        """Return the number of earlier items, and the input: all items, or a stored state."""
        from agents import RunState

        if mark is None:
            turns = (await memory.earlier_turns())[-self._options.history :]
            items = [item for turn in turns for item in msgspec.json.decode(turn.messages)]
            return len(items), [*items, user_item(ctx.message.parts)]
        state = await RunState.from_json(self._agent, msgspec.json.decode(mark.state), context_override=context)
        await _decide(ctx, state)
        return mark.before, state

    async def _run_sdk_turn(self, ctx: Context, sdk_input: Any, context: Any, answer: StreamedAnswer) -> Any:
        from agents import RunConfig, Runner

        options = self._options
        config = RunConfig(
            tracing_disabled=not options.tracing, workflow_name=self.profile.name, group_id=ctx.context_id
        )
        async with _translate_errors(answer, options.max_turns):
            result = Runner.run_streamed(
                self._agent, sdk_input, context=context, max_turns=options.max_turns, run_config=config
            )
            if not isinstance(sdk_input, list) and sdk_input.get_interruptions():
                result.cancel(mode="after_turn")  # approved calls are executed and stored before the model continues
            try:
                async with aclosing(result.stream_events()) as events:  # type: ignore[type-var]  # a generator
                    await self._handle_events(ctx, result, events, answer)
            except BaseException:
                await _stop(result)
                raise
            if result.run_loop_exception is not None:
                raise result.run_loop_exception  # which the stream does not always raise
        return result

    async def _handle_events(
        self, ctx: Context, result: Any, events: AsyncIterator[Any], answer: StreamedAnswer
    ) -> None:
        """Stream the model's text and report other events; end the run after this turn."""
        gives_text, has_text = _gives_text(self._agent), False
        async for event in events:
            if event.type == "agent_updated_stream_event":
                gives_text = _gives_text(event.new_agent)
            elif event.type == "run_item_stream_event":
                await _report(ctx, event.name, event.item, answer)
            elif event.data.type in COMPLETED:
                result.cancel(mode="after_turn")
                if (used := event.data.response.usage) is not None:
                    model = event.data.response.model
                    await ctx.usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens, model=model)
            elif event.data.type == "response.output_text.delta" and event.data.delta and gives_text:
                await answer.append(f"\n\n{event.data.delta}" if not has_text and answer.text else event.data.delta)
                has_text = True

    async def _context(self, ctx: Context) -> Any:
        """Make the context of tools and guardrails, by default Accord's own."""
        if self._make_context is None:
            return ctx
        return await call_function(self._make_context, ctx)


def _mcp_servers(agent: Any) -> list[Any]:
    agents_by_id, queue = {id(agent): agent}, [agent]
    while queue:
        for other in queue.pop().handoffs:
            if is_instance_of(other, AGENT) and id(other) not in agents_by_id:
                agents_by_id[id(other)] = other
                queue.append(other)
    return list(dict.fromkeys(server for member in agents_by_id.values() for server in member.mcp_servers))


async def _write_output(answer: StreamedAnswer, output: Any) -> None:
    if isinstance(output, str):
        await answer.conclude(output)
    else:
        for part in output_parts(output):
            await answer.append(part)


def _gives_text(agent: Any) -> bool:
    return agent.output_type in (None, str)


async def _decide(ctx: Context, state: Any) -> None:
    for item in state.get_interruptions():
        arguments = item.arguments or ""
        call = {"toolCallId": item.call_id, "tool": item.name, "args": arguments}
        question = Part(text=f"May {item.name}({arguments}) be called?"), Part(data=call, media_type=JSON)
        if decision := await ctx.approve(question, key=item.call_id):
            state.approve(item)
        else:
            state.reject(item, rejection_message=decision.comment or None)


async def _report(ctx: Context, name: str, item: Any, answer: StreamedAnswer) -> None:
    """Report events beside text: tools, handoffs, pictures."""
    if (picture := picture_part(item.raw_item)) is not None:
        await answer.append(picture)
    elif name == "tool_called":
        tool = getattr(item.raw_item, "name", None) or getattr(item.raw_item, "type", "a tool")
        await ctx.status(f"Calling {tool}", metadata={"tool": tool})
    elif name == "handoff_occured":
        agent = item.target_agent.name
        await ctx.status(f"Handed over to {agent}", metadata={"agent": agent})


async def _stop(result: Any) -> None:
    """Cancel a run that has not ended, and wait for its end."""
    task = result.run_loop_task
    if task is not None and not task.done():
        result.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def _translate_errors(answer: StreamedAnswer, max_turns: int | None) -> AsyncIterator[None]:
    """Translate errors into one sentence for the caller; the log has the details."""
    from agents import exceptions as errors
    from openai import APIConnectionError, APIStatusError

    try:
        yield
    except (errors.InputGuardrailTripwireTriggered, errors.OutputGuardrailTripwireTriggered) as error:
        await answer.clear()
        raise Rejected(f"The guardrail {error.guardrail_result.guardrail.get_name()} refuses this") from error
    except (errors.ToolInputGuardrailTripwireTriggered, errors.ToolOutputGuardrailTripwireTriggered) as error:
        raise Rejected(f"The guardrail {error.guardrail.get_name()} refuses this") from error
    except errors.ModelRefusalError as error:
        raise Rejected(error.refusal) from error
    except errors.UserError as error:
        if isinstance(error.__cause__, Failed | Rejected):
            raise error.__cause__ from error  # which a tool has raised for the caller
        raise
    except errors.MaxTurnsExceeded as error:
        raise Failed(f"The agent was not done after {max_turns} turns") from error
    except errors.ToolTimeoutError as error:
        raise Failed(f"{error.tool_name} was not done in time") from error
    except errors.ModelBehaviorError as error:
        log.warning("model.unusable", exc_info=error)
        raise Failed(f"The model gave no answer of use: {error.message}") from error
    except APIStatusError as error:
        log.warning("model.refused", exc_info=error, extra={"status": error.status_code})
        raise Failed(f"The model answered with HTTP {error.status_code}") from error
    except APIConnectionError as error:
        log.warning("model.unreachable", exc_info=error)
        raise Failed("The model cannot be reached") from error


AGENT_TYPE = AgentType(
    name="openai-agents",
    options=OpenAIAgentsOptions,
    make=OpenAIAgent,
    recognizes=lambda thing: is_instance_of(thing, AGENT),
)
