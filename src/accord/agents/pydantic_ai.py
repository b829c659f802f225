"""Pydantic AI agents: streamed text, structured output, deferred calls as questions.

The agent has its own model, tools and settings. A turn is stored after every call of the model and after its tools. An
execution that was lost or suspended resumes from there on any node. The framework is imported when an agent is made.
"""

import dataclasses
import logging
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Raw, Struct

from accord.agents.loader import call_function, import_function
from accord.agents.messages import OCTETS, StreamedAnswer, describe_part, finish_answer, is_linked, readable_text
from accord.agents.turns import StoredTurn, TurnMemory
from accord.api import Context, Crash, Failed, parts_of
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

__all__ = ["AGENT_TYPE", "PydanticAIAgent", "PydanticAIOptions"]


def user_content(parts: Iterable[Part]) -> str | Sequence[Any]:
    """Return a caller's message as the prompt of an agent."""
    content: list[Any] = []
    for part in parts:
        piece = _content(part)
        if isinstance(piece, str) and content and isinstance(content[-1], str):
            content[-1] += piece if part.text is not None else f"\n{piece}"
        else:
            content.append(piece)
    return content[0] if len(content) == 1 and isinstance(content[0], str) else content


def _content(part: Part) -> Any:
    from pydantic_ai import AudioUrl, BinaryContent, DocumentUrl, ImageUrl, VideoUrl

    urls = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}
    if part.text is not None:
        return part.text
    if part.url is not None and is_linked(part):
        family = (part.media_type or "").partition("/")[0].lower()
        return urls.get(family, DocumentUrl)(part.url, media_type=part.media_type)
    if part.raw is not None and readable_text(part) is None:
        return BinaryContent(part.raw, media_type=part.media_type or OCTETS)
    return describe_part(part)


def output_parts(output: Any) -> tuple[Part, ...]:
    """Return an agent's output as text, a file, or data."""
    import pydantic_core

    if output is None or isinstance(output, str):
        return parts_of(output)
    if is_file(output):
        return (file_part(output),)
    return (Part(data=pydantic_core.to_jsonable_python(output), media_type="application/json"),)


def is_file(value: Any) -> bool:
    """Whether a value is one of the framework's files."""
    from pydantic_ai import BinaryContent

    return isinstance(value, BinaryContent)


def file_part(content: Any) -> Part:
    """Return one of the framework's files as a part."""
    return Part(raw=content.data, media_type=content.media_type)


NOTHING = Raw(b"[]")


class DeferredCall(Struct, frozen=True, kw_only=True):
    """A tool call that waits for a person's approval, or for a result from the caller."""

    id: str
    tool: str
    args: dict[str, Any]
    is_approval: bool
    metadata: dict[str, Any]


class PydanticAIMark(Struct, frozen=True, kw_only=True):
    """The progress of a turn; `replaces` are earlier turns whose messages were compacted into its own."""

    messages: Raw = NOTHING
    said: tuple[Part, ...] = ()
    wanted: tuple[DeferredCall, ...] = ()
    replaces: tuple[str, ...] = ()


class TurnProgress:
    """The messages of the current turn, and those before it."""

    def __init__(
        self, memory: TurnMemory, mark: PydanticAIMark, turns: Sequence[StoredTurn], *, is_done: bool, most: int
    ) -> None:
        """Use `load` instead."""
        self.mark = mark
        self.is_done = is_done
        self.earlier = [message for turn in turns for message in _decoded(turn.messages)]
        self.messages = _decoded(mark.messages)
        self._memory = memory
        self._known = tuple(turn.id for turn in turns)
        self._replaces = mark.replaces
        self._most = most

    @classmethod
    async def load(cls, ctx: Context, most: int) -> "TurnProgress":
        """Load the progress of this turn, and up to `most` turns before it."""
        memory = TurnMemory(ctx, "pydantic_ai")
        stored, is_done = await memory.load(PydanticAIMark)
        mark = stored or PydanticAIMark()
        turns = [] if mark.replaces else _latest(await memory.earlier_turns(), most)
        return cls(memory, mark, turns, is_done=is_done, most=most)

    def reached(self, messages: Sequence[Any]) -> None:
        """Record all messages of a run. They start with the messages it was given, unless it compacted them."""
        before = len(self.earlier)
        if len(messages) < before or any(new is not old for new, old in zip(messages, self.earlier, strict=False)):
            self.earlier, before, self._replaces = [], 0, self._known
        self.messages = list(messages[before:])

    async def note(self, said: Sequence[Part], wanted: Sequence[DeferredCall] = ()) -> None:
        """Store the progress."""
        self.mark = PydanticAIMark(
            messages=_encoded(self.messages), said=tuple(said), wanted=tuple(wanted), replaces=self._replaces
        )
        await self._memory.save(self.mark)

    async def done(self) -> None:
        """Add the turn to the conversation."""

        def keep(turns: list[StoredTurn]) -> list[StoredTurn]:
            if self._replaces:  # its messages include theirs; turns of other tasks meanwhile come after it
                *others, own = turns
                turns = [own, *(turn for turn in others if turn.id not in self._replaces)]
            return _latest(turns, self._most)

        await self._memory.close(_encoded(self.messages), keep)


def _latest(turns: list[StoredTurn], most: int) -> list[StoredTurn]:
    """Return the latest turns, with the system prompt of the first turn."""
    if len(turns) <= most:
        return turns
    latest_turns = turns[len(turns) - most :]
    first, *others = _decoded(latest_turns[0].messages)
    prompts = [part for part in _decoded(turns[0].messages)[0].parts if part.part_kind == "system-prompt"]
    first_with_prompts = dataclasses.replace(first, parts=[*prompts, *first.parts])
    return [StoredTurn(latest_turns[0].id, _encoded([first_with_prompts, *others])), *latest_turns[1:]]


def _decoded(messages: Raw) -> list[Any]:
    from pydantic_ai import ModelMessagesTypeAdapter

    return ModelMessagesTypeAdapter.validate_json(bytes(messages))


def _encoded(messages: Sequence[Any]) -> Raw:
    from pydantic_ai import ModelMessagesTypeAdapter

    return Raw(ModelMessagesTypeAdapter.dump_json(list(messages)))


RETRIES = frozenset({"retry-feedback", "retry-prompt"})
"""Parts that ask the model to try again."""

log = logging.getLogger("accord.agents.pydantic_ai")


class PydanticAIOptions(Options, frozen=True, kw_only=True):
    """Options of an agent; `deps` is a `module:function` that makes its dependencies, from the context if it takes one.

    A run includes the last `history` turns of the conversation.
    """

    deps: str | None = None
    history: Count = 50
    request_limit: Count | None = 50
    tool_calls_limit: Count | None = None


class CountedUsage(Struct):
    """Usage of a run that is already reported."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class PydanticAIAgent:
    """A hosted Pydantic AI agent."""

    def __init__(self, given: AgentArguments) -> None:
        with needs("pydantic-ai", "pydantic-ai"):
            import pydantic_ai
        self._options: PydanticAIOptions = given.options
        self._agent: pydantic_ai.Agent[Any, Any] = given.target
        self._make_deps = None if self._options.deps is None else import_function(self._options.deps, "deps")
        self._gives_text = _gives_text(self._agent.output_type)
        description = getattr(self._agent, "description", None)
        self.profile = profile(
            given,
            crash=Crash.RESUME,
            name=self._agent.name,
            description=description if isinstance(description, str) else None,
            input_modes=ANY_MEDIA,
            output_modes=ANY_MEDIA,
        )

    async def run(self, ctx: Context) -> None:
        """Execute one turn from its present state."""
        progress = await TurnProgress.load(ctx, self._options.history)
        if progress.is_done:
            return
        answer = StreamedAnswer(ctx, progress.mark.said, resumes=self.profile.crash is Crash.RESUME)
        await answer.restore()
        output = await self._output(ctx, progress, answer)
        while (calls := _deferred_calls(output)) is not None:
            await progress.note(answer.checkpoint(), calls)
            output = await self._output(ctx, progress, answer)
        await self._write_output(answer, output, progress.messages)
        await finish_answer(ctx)
        await progress.done()

    async def _output(self, ctx: Context, progress: TurnProgress, answer: StreamedAnswer) -> Any:
        """Run the agent until it has an output or deferred tool calls."""
        results = await _results(ctx, progress.mark.wanted) if progress.mark.wanted else None
        agent, used = self._agent, CountedUsage()
        prompt = None if progress.messages else user_content(ctx.message.parts)
        agent_run = agent.iter(
            prompt,
            message_history=[*progress.earlier, *progress.messages] or None,
            deferred_tool_results=results,
            deps=await self._deps(ctx),
            usage_limits=self._limits(),
        )
        async with _translate_errors(), agent_run as run:
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
                requests = [node.request] if agent.is_model_request_node(node) else []
                progress.reached([*run.all_messages(), *requests])
                if len(progress.messages) > 1 and not agent.is_end_node(node):  # the prompt alone need not be stored
                    await progress.note(answer.checkpoint())
        assert run.result is not None
        return run.result.output

    async def _show_response(self, events: AsyncIterable[Any], answer: StreamedAnswer) -> None:
        """Stream the model's text, unless the output type excludes text."""
        has_text = False
        async for event in events:
            if event.event_kind == "part_start" and event.part.part_kind == "file":
                await answer.append(file_part(event.part.content))
            text = _text(event)
            if text and self._gives_text:
                await answer.append(f"\n\n{text}" if not has_text and answer.text else text)
                has_text = True

    async def _write_output(self, answer: StreamedAnswer, output: Any, messages: list[Any]) -> None:
        if not isinstance(output, str):
            is_said = is_file(output) and any(part.raw == output.data for part in answer.parts)
            for part in () if is_said else output_parts(output):
                await answer.append(part)
            return
        was_retried = any(part.part_kind in RETRIES for message in messages for part in message.parts)
        await answer.conclude(output, exactly=was_retried)

    async def _deps(self, ctx: Context) -> Any:
        """Make the dependencies of a run, or return the context if the agent's dependencies are Accord's context."""
        if self._make_deps is None:
            return ctx if self._agent.deps_type is Context else None
        return await call_function(self._make_deps, ctx)

    def _limits(self) -> Any:
        from pydantic_ai import UsageLimits

        options = self._options
        return UsageLimits(
            request_limit=options.request_limit,
            tool_calls_limit=options.tool_calls_limit,
            total_tokens_limit=self.profile.budget.max_tokens,
        )


# --- deferred tool calls ----------------------------------------------------------------------------------------------


def _deferred_calls(output: Any) -> list[DeferredCall] | None:
    """Return the tool calls that an agent waits for, or None if its output is final."""
    from pydantic_ai import DeferredToolRequests

    if not isinstance(output, DeferredToolRequests):
        return None
    return [
        DeferredCall(
            id=call.tool_call_id,
            tool=call.tool_name,
            args=call.args_as_dict(),
            is_approval=is_approval,
            metadata=output.metadata.get(call.tool_call_id, {}),
        )
        for calls, is_approval in ((output.approvals, True), (output.calls, False))
        for call in calls
    ]


async def _results(ctx: Context, calls: Sequence[DeferredCall]) -> Any:
    """Ask about each tool call: for approval, or for its result as data or text."""
    from pydantic_ai import DeferredToolResults, ToolApproved, ToolDenied, ToolReturn

    results = DeferredToolResults()
    for call in calls:
        if not call.is_approval:
            reply = await ctx.ask(_question(call), key=call.id)
            results.calls[call.id] = ToolReturn(reply.text if reply.data is None else reply.data)
        elif decision := await ctx.approve(_question(call), key=call.id):
            results.approvals[call.id] = ToolApproved()
        else:
            results.approvals[call.id] = ToolDenied(decision.comment) if decision.comment else ToolDenied()
    return results


def _question(call: DeferredCall) -> tuple[Part, ...]:
    """Return the question about a tool call as text, and as data for clients that are programs."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.args.items())
    default_text = "May {} be called?" if call.is_approval else "What is the result of {}?"
    text = call.metadata.get("question") or default_text.format(f"{call.tool}({arguments})")
    call_data = {"toolCallId": call.id, "tool": call.tool, "args": call.args, "metadata": call.metadata}
    return Part(text=str(text)), Part(data=call_data, media_type=JSON)


# --- progress ---------------------------------------------------------------------------------------------------------


def _text(event: Any) -> str:
    """Return the text that an event of a model's response adds."""
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


async def _count(ctx: Context, run: Any, used: CountedUsage) -> None:
    """Report the usage since the last report, also for answers that could not be used."""
    usage = run.usage
    tokens, answers = usage.input_tokens - used.input_tokens, usage.output_tokens - used.output_tokens
    cost = float(usage.cost or 0) - used.cost
    if tokens or answers or cost:
        used.input_tokens, used.output_tokens, used.cost = (
            usage.input_tokens,
            usage.output_tokens,
            float(usage.cost or 0),
        )
        responses = [message for message in run.all_messages() if message.kind == "response"]
        model = responses[-1].model_name if responses else None
        await ctx.usage(input_tokens=tokens, output_tokens=answers, cost=cost, model=model)


@asynccontextmanager
async def _translate_errors() -> AsyncIterator[None]:
    """Translate errors into one sentence for the caller; the log has the details."""
    from pydantic_ai import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UsageLimitExceeded

    try:
        yield
    except ModelHTTPError as error:
        log.warning("model.refused", exc_info=error, extra={"model": error.model_name, "status": error.status_code})
        raise Failed(f"The model answered with HTTP {error.status_code}") from error
    except ModelAPIError as error:
        log.warning("model.unreachable", exc_info=error, extra={"model": error.model_name})
        raise Failed("The model cannot be reached") from error
    except UsageLimitExceeded as error:
        raise Failed(f"The agent may not use more: {str(error).partition('. ')[0]}") from error
    except UnexpectedModelBehavior as error:
        log.warning("model.unusable", exc_info=error)
        raise Failed(f"The model gave no answer of use: {error.message}") from error


# --- inspection of an agent -------------------------------------------------------------------------------------------


def _gives_text(output_type: Any) -> bool:
    """Whether the model's text may be the output."""
    output_types = output_type if isinstance(output_type, list | tuple) else (output_type,)
    return any(kind is str for kind in output_types) or str in getattr(output_type, "__args__", ())


AGENT_TYPE = AgentType(
    name="pydantic-ai",
    options=PydanticAIOptions,
    make=PydanticAIAgent,
    recognizes=lambda thing: is_instance_of(
        thing, "pydantic_ai.agent:Agent", "pydantic_ai.agent.abstract:AbstractAgent"
    ),
)
