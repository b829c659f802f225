"""Functions as agents: async generators, coroutines and plain functions.

    @agent(description="Echoes", skills=["echo"])
    async def echo(ctx: Context):
        yield f"you said {ctx.text}"

Values that a generator yields are one streamed artifact. A function's return value is its result. Plain functions run
in threads.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, suppress
from typing import Any, overload

from accord.agents.messages import answer_id
from accord.api import TEXT, Context, Crash, Profile, in_thread
from accord.api.agent_types import JSON, AgentType, skills_of, with_options
from accord.model import AgentSkill, Artifact, Message
from accord.protocol.budgets import Budget

Function = Callable[..., Any]


class FunctionAgent:
    """An agent made of one function."""

    def __init__(self, do: Function, profile: Profile) -> None:
        """Run `do`, which takes the context, the text, or nothing."""
        self.profile = profile
        self._do = do
        self._argument = _argument_kind(do)
        self._is_stream = inspect.isasyncgenfunction(do)
        self._is_async = inspect.iscoroutinefunction(do)

    async def run(self, ctx: Context) -> None:
        """Do the work of one turn."""
        arguments = self._arguments(ctx)
        if self._is_stream:
            await self._stream(ctx, self._do(*arguments))
            return
        if self._is_async:
            value: Any = self._do(*arguments)
        else:
            value = await in_thread(self._do, *arguments)
        if inspect.isawaitable(value):
            value = await value
        if inspect.isgenerator(value):
            value = _iterate(value)
        await (self._stream(ctx, value) if inspect.isasyncgen(value) else _write_result(ctx, value))

    async def _stream(self, ctx: Context, values: AsyncGenerator[Any, Any]) -> None:
        """Stream yielded values as one artifact, and write whole artifacts separately."""
        artifact = answer_id(ctx)
        async with aclosing(values) as stream:
            async for value in stream:
                if isinstance(value, Message):
                    await ctx.finish(artifact)  # nothing can follow it
                if isinstance(value, Artifact | Message):
                    await _write_result(ctx, value)
                else:
                    await ctx.artifact(value, id=artifact, append=True, last_chunk=False)
        await ctx.finish(artifact)

    def _arguments(self, ctx: Context) -> tuple[Any, ...]:
        match self._argument:
            case "nothing":
                return ()
            case "text":
                return (ctx.text,)
            case "message":
                return (ctx.message,)
        return (ctx,)


@overload
def agent(do: Function, /) -> FunctionAgent: ...
@overload
def agent(
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
    skills: Sequence[str | AgentSkill] = (),
    extended_skills: Sequence[str | AgentSkill] = (),
    input_modes: Sequence[str] = (TEXT, JSON),
    output_modes: Sequence[str] = (TEXT, JSON),
    on_crash: str | Crash = Crash.RESTART,
    attempts: int = 3,
    timeout: float | None = None,
    concurrency: int | None = None,
    answers_message: bool | Callable[[Message], bool] = False,
    takes_repeats: bool = False,
    max_tokens: int | None = None,
    max_cost: float | None = None,
) -> Callable[[Function], FunctionAgent]: ...


def agent(do: Function | None = None, /, **options: Any) -> FunctionAgent | Callable[[Function], FunctionAgent]:
    """Make an agent from a function. Its name and docstring are the agent's unless stated otherwise."""
    if do is not None:
        return FunctionAgent(do, _profile(do, {}))
    return lambda function: FunctionAgent(function, _profile(function, options))


async def _write_result(ctx: Context, value: Any) -> None:
    if isinstance(value, Message):
        await ctx.complete(value)
    elif isinstance(value, Artifact):
        await ctx.artifact(value)
    else:
        await ctx.artifact(value, id=answer_id(ctx))


async def _iterate(values: Generator[Any, Any, Any]) -> AsyncGenerator[Any, None]:
    """Iterate over a plain generator without blocking the event loop."""
    end = object()
    try:
        while (value := await in_thread(next, values, end)) is not end:
            yield value
    finally:
        with suppress(ValueError):  # a thread still runs it, and cannot be stopped
            values.close()


def _profile(do: Function, options: dict[str, Any]) -> Profile:
    name = options.pop("name", None) or getattr(do, "__name__", type(do).__name__)
    description = options.pop("description", None) or inspect.getdoc(do) or name
    skills, extended = options.pop("skills", ()), options.pop("extended_skills", ())
    return Profile(
        name=name,
        description=description,
        skills=skills_of(skills or (name,), description),
        extended_skills=skills_of(extended, description),
        input_modes=tuple(options.pop("input_modes", (TEXT, JSON))),
        output_modes=tuple(options.pop("output_modes", (TEXT, JSON))),
        crash=Crash(options.pop("on_crash", Crash.RESTART)),
        budget=Budget(max_tokens=options.pop("max_tokens", None), max_cost=options.pop("max_cost", None)),
        **options,
    )


def _argument_kind(do: Function) -> str:
    """Return which argument a function takes, by the annotation of its first parameter."""
    try:
        parameters = list(_signature(do).parameters.values())
    except (TypeError, ValueError):
        return "context"  # built in, and without a signature
    if not parameters:
        return "nothing"
    annotation = parameters[0].annotation
    if annotation in (str, "str"):
        return "text"
    return "message" if annotation in (Message, "Message") else "context"


def _signature(do: Function) -> inspect.Signature:
    """Return a signature; annotations remain text if one of them cannot be resolved."""
    try:
        return inspect.signature(do, eval_str=True)
    except (NameError, AttributeError, SyntaxError):
        return inspect.signature(do)


# --- as an agent type -------------------------------------------------------------------------------------------------


AGENT_TYPE = AgentType(
    name="function",
    make=lambda given: FunctionAgent(given.target, with_options(_profile(given.target, {}), given)),
    recognizes=lambda thing: callable(thing) and not inspect.isclass(thing),
    precedence=-1,  # objects of other types may be callable, too
)
