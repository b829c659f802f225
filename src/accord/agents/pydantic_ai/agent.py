"""Runs Pydantic AI agents: text is streamed, structured output is data, deferred tool calls are questions.

The agent is used as it is, with its own model, tools and settings. A run that was lost goes on after the last call of
the model, or of its tools; `progress` stands below.
"""

import inspect
import logging
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from accord.agents.content import Answer, said_all
from accord.agents.kinds import JSON, Count, Given, Kind, Options, comes_from, profile
from accord.agents.naming import function_named
from accord.agents.pydantic_ai.parts import file_part, is_file, output_parts, user_content
from accord.agents.pydantic_ai.progress import Progress, Wanted
from accord.engine.agent import TEXT, Crash
from accord.engine.context import Context, Failed
from accord.model import Part

NEEDED = "Pydantic AI agents need pydantic-ai: pip install 'accord[pydantic-ai]'"

RETRIES = frozenset({"retry-feedback", "retry-prompt"})
"""Parts with which the model is told that its answer will not do."""

log = logging.getLogger("accord.agents.pydantic_ai")


class PydanticAIOptions(Options, frozen=True, kw_only=True):
    """How an agent is run: `deps` is a `module:function` that makes its dependencies, from the context if it takes one.

    Of a conversation the agent is reminded of `history` turns.
    """

    deps: str | None = None
    history: Count = 50
    request_limit: Count | None = 50
    tool_calls_limit: Count | None = None


class Used(Struct):
    """What of a run's usage has been counted."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class PydanticAIAgent:
    """A Pydantic AI agent, hosted."""

    def __init__(self, given: Given) -> None:
        """Host the agent that is given."""
        try:
            import pydantic_ai
        except ImportError as error:
            raise ImportError(NEEDED) from error
        self._options: PydanticAIOptions = given.options
        self._agent: pydantic_ai.Agent[Any, Any] = given.target
        self._make_deps = None if self._options.deps is None else function_named(self._options.deps, "deps")
        self._gives_text = _gives_text(self._agent.output_type)
        description = getattr(self._agent, "description", None)
        self.profile = profile(
            given,
            crash=Crash.RESUME,
            name=self._agent.name,
            description=description if isinstance(description, str) else None,
            input_modes=(TEXT, JSON, "*/*"),
            output_modes=(TEXT, JSON, "*/*"),
        )

    async def run(self, ctx: Context) -> None:
        """Do the work of one turn, from where it is."""
        progress = await Progress.load(ctx, self._options.history)
        if progress.is_done:
            return
        answer = Answer(ctx, progress.mark.said, resumes=self.profile.crash is Crash.RESUME)
        await answer.restore()
        output = await self._output(ctx, progress, answer)
        while (wanted := _wanted(output)) is not None:
            await progress.note(answer.noted(), wanted)
            output = await self._output(ctx, progress, answer)
        await self._give(answer, output, progress.messages)
        await said_all(ctx)
        await progress.done()

    async def _output(self, ctx: Context, progress: Progress, answer: Answer) -> Any:
        """Let the agent go on until it has an output, or tool calls that wait for somebody."""
        results = await _results(ctx, progress.mark.wanted) if progress.mark.wanted else None
        agent, used = self._agent, Used()
        prompt = None if progress.messages else user_content(ctx.message.parts)
        given = agent.iter(
            prompt,
            message_history=[*progress.earlier, *progress.messages] or None,
            deferred_tool_results=results,
            deps=await self._deps(ctx),
            usage_limits=self._limits(),
        )
        async with _readable(), given as run:
            node = run.next_node
            while not agent.is_end_node(node):
                try:
                    if agent.is_model_request_node(node):
                        async with node.stream(run.ctx) as events:
                            await self._show_response(events, answer)
                    elif agent.is_call_tools_node(node):
                        async with node.stream(run.ctx) as events:
                            await _show_tools(ctx, events)
                    node = await run.next(node)
                except Exception:
                    await _count(ctx, run, used)
                    raise
                await _count(ctx, run, used)
                asked = [node.request] if agent.is_model_request_node(node) else []
                progress.reached([*run.all_messages(), *asked])
                if len(progress.messages) > 1 and not agent.is_end_node(node):  # the prompt alone is nothing to lose
                    await progress.note(answer.noted())
        assert run.result is not None
        return run.result.output

    async def _show_response(self, events: AsyncIterable[Any], answer: Answer) -> None:
        """Say what the model says, as it comes; words that are no answer yet are only shown if words may be one."""
        has_text = False
        async for event in events:
            if event.event_kind == "part_start" and event.part.part_kind == "file":
                await answer.say(file_part(event.part.content))
            text = _text(event)
            if text and self._gives_text:
                await answer.say(f"\n\n{text}" if not has_text and answer.text else text)
                has_text = True

    async def _give(self, answer: Answer, output: Any, messages: list[Any]) -> None:
        """Say what the output is, unless it has been said."""
        if not isinstance(output, str):
            is_said = is_file(output) and any(part.raw == output.data for part in answer.said)
            for part in () if is_said else output_parts(output):
                await answer.say(part)
            return
        was_retried = any(part.part_kind in RETRIES for message in messages for part in message.parts)
        await answer.conclude(output, exactly=was_retried)

    async def _deps(self, ctx: Context) -> Any:
        """Make the dependencies of a run; an agent whose dependencies are our context gets that."""
        if self._make_deps is None:
            return ctx if self._agent.deps_type is Context else None
        made = self._make_deps(ctx) if inspect.signature(self._make_deps).parameters else self._make_deps()
        return await made if inspect.isawaitable(made) else made

    def _limits(self) -> Any:
        from pydantic_ai import UsageLimits

        options = self._options
        return UsageLimits(
            request_limit=options.request_limit,
            tool_calls_limit=options.tool_calls_limit,
            total_tokens_limit=self.profile.budget.max_tokens,
        )


# --- tool calls that wait -------------------------------------------------------------------------------------------


def _wanted(output: Any) -> list[Wanted] | None:
    """Return the tool calls that an agent waits for, if that is its output."""
    from pydantic_ai import DeferredToolRequests

    if not isinstance(output, DeferredToolRequests):
        return None
    return [
        Wanted(
            id=call.tool_call_id,
            tool=call.tool_name,
            args=call.args_as_dict(),
            is_approval=is_approval,
            metadata=output.metadata.get(call.tool_call_id, {}),
        )
        for calls, is_approval in ((output.approvals, True), (output.calls, False))
        for call in calls
    ]


async def _results(ctx: Context, wanted: Sequence[Wanted]) -> Any:
    """Ask for each tool call: yes or no, or its result as data or in words."""
    from pydantic_ai import DeferredToolResults, ToolApproved, ToolDenied, ToolReturn

    results = DeferredToolResults()
    for call in wanted:
        if not call.is_approval:
            said = await ctx.ask(_question(call), key=call.id)
            results.calls[call.id] = ToolReturn(said.text if said.data is None else said.data)
        elif decision := await ctx.approve(_question(call), key=call.id):
            results.approvals[call.id] = ToolApproved()
        else:
            results.approvals[call.id] = ToolDenied(decision.comment) if decision.comment else ToolDenied()
    return results


def _question(call: Wanted) -> tuple[Part, ...]:
    """Return what is asked about a tool call: in words, and as data for those who answer by program."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.args.items())
    usual = "May {} be called?" if call.is_approval else "What is the result of {}?"
    text = call.metadata.get("question") or usual.format(f"{call.tool}({arguments})")
    about = {"toolCallId": call.id, "tool": call.tool, "args": call.args, "metadata": call.metadata}
    return Part(text=str(text)), Part(data=about, media_type=JSON)


# --- what happens meanwhile -----------------------------------------------------------------------------------------


def _text(event: Any) -> str:
    """Return the words that an event of a model's response adds."""
    if event.event_kind == "part_start" and event.part.part_kind == "text":
        return str(event.part.content)
    if event.event_kind == "part_delta" and event.delta.part_delta_kind == "text":
        return str(event.delta.content_delta)
    return ""


async def _show_tools(ctx: Context, events: AsyncIterable[Any]) -> None:
    async for event in events:
        if event.event_kind == "function_tool_call":
            name, call = event.part.tool_name, event.part.tool_call_id
            await ctx.status(f"Calling {name}", metadata={"tool": name, "toolCallId": call})


async def _count(ctx: Context, run: Any, used: Used) -> None:
    """Count what the model has used since the last time, also if its answer was of no use."""
    now = run.usage
    tokens, answers = now.input_tokens - used.input_tokens, now.output_tokens - used.output_tokens
    cost = float(now.cost or 0) - used.cost
    if tokens or answers or cost:
        used.input_tokens, used.output_tokens, used.cost = now.input_tokens, now.output_tokens, float(now.cost or 0)
        responses = [message for message in run.all_messages() if message.kind == "response"]
        model = responses[-1].model_name if responses else None
        await ctx.usage(input_tokens=tokens, output_tokens=answers, cost=cost, model=model)


@asynccontextmanager
async def _readable() -> AsyncIterator[None]:
    """Say what went wrong in a sentence for the caller; the log has all of it."""
    from pydantic_ai import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UsageLimitExceeded

    try:
        yield
    except ModelHTTPError as error:
        log.warning("model refused", exc_info=error, extra={"model": error.model_name, "status": error.status_code})
        raise Failed(f"The model answered with HTTP {error.status_code}") from error
    except ModelAPIError as error:
        log.warning("model unreachable", exc_info=error, extra={"model": error.model_name})
        raise Failed("The model cannot be reached") from error
    except UsageLimitExceeded as error:
        raise Failed(f"The agent may not use more: {str(error).partition('. ')[0]}") from error
    except UnexpectedModelBehavior as error:
        log.warning("model of no use", exc_info=error)
        raise Failed(f"The model gave no answer of use: {error.message}") from error


# --- what an agent is made of ---------------------------------------------------------------------------------------


def _gives_text(output_type: Any) -> bool:
    """Whether words of the model may be the output as they are."""
    given = output_type if isinstance(output_type, list | tuple) else (output_type,)
    return any(one is str for one in given) or str in getattr(output_type, "__args__", ())


def _recognises(thing: Any) -> bool:
    return comes_from(thing, "pydantic_ai.agent:Agent", "pydantic_ai.agent.abstract:AbstractAgent")


KIND = Kind(name="pydantic-ai", options=PydanticAIOptions, make=PydanticAIAgent, recognises=_recognises)
