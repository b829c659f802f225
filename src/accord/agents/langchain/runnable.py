"""A LangChain runnable as an agent: input, stream and answer.

It stores nothing. A lost execution restarts, and the conversation is read from its tasks.
"""

import inspect
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.prompts import BasePromptTemplate

from accord.agents.langchain import RunnableOptions
from accord.agents.langchain.messages import UsageCollector, langchain_messages, text_and_parts
from accord.agents.loader import import_function
from accord.agents.messages import answer_id, conversation_history, finish_answer, prompt, say
from accord.api import TEXT, Context, Crash, Failed
from accord.api.agent_types import JSON, Given, profile
from accord.model import Part

ANY = (TEXT, JSON, "*/*")
"""Media types that a runnable accepts; whether it can use a file is up to the runnable."""

NOTHING = object()


class RunnableAgent:
    """An agent made from a runnable."""

    def __init__(self, given: Given) -> None:
        """Wrap the runnable in `given`."""
        options: RunnableOptions = given.options
        name = (getattr(given.target, "config", None) or {}).get("run_name") or given.target.get_name().lower()
        self.profile = profile(given, crash=Crash.RESTART, name=name, input_modes=ANY)
        self._runnable = given.target
        self._options = options
        self._first = _first(given.target)
        self._mapper = None if options.input_mapper is None else import_function(options.input_mapper, "input_mapper")

    async def run(self, ctx: Context) -> None:
        """Execute one turn. LangChain runs synchronous functions in a thread."""
        usage = UsageCollector(ctx)
        given = await self._input(ctx)
        whole: Any = NOTHING
        is_said = False
        async with aclosing(self._runnable.astream(given, self._config(ctx, usage))) as chunks:
            async for chunk in chunks:
                text = self._text(chunk)
                await say(ctx, text)
                is_said = is_said or text != ""
                whole = _joined(whole, chunk)
                await usage.count()
        if isinstance(whole, AIMessage):
            usage.note(whole)
        await usage.count()
        await self._end(ctx, None if whole is NOTHING else whole, is_said=is_said)

    def _config(self, ctx: Context, usage: UsageCollector) -> dict[str, Any]:
        session = "/".join(quote(one, safe="") for one in (ctx.tenant, ctx.caller.owner, ctx.context_id))
        return {
            "callbacks": [usage],
            "configurable": {"session_id": session, **self._options.configurable},
            "metadata": {"task_id": ctx.task_id, "context_id": ctx.context_id},
        }

    # --- in -----------------------------------------------------------------------------------------------------------

    async def _input(self, ctx: Context) -> Any:
        """Return the runnable's input, which depends on its first element."""
        if self._mapper is not None:
            mapped = self._mapper(ctx)
            return await mapped if inspect.isawaitable(mapped) else mapped
        if self._options.input_key is not None:
            return {self._options.input_key: _value(ctx)}
        if isinstance(self._first, BaseLanguageModel):
            return await self._heard(ctx)
        if isinstance(self._first, BasePromptTemplate):
            return await self._variables(ctx, self._first)
        return _value(ctx)

    async def _variables(self, ctx: Context, template: Any) -> dict[str, Any]:
        """Return the variables of a prompt: data by name, or the text as its only variable, and the conversation."""
        known = (*template.input_variables, *template.optional_variables)
        places = [name for name in template.input_types if name in known]
        names = [name for name in template.input_variables if name not in places]
        values: dict[str, Any] = {}
        if isinstance(ctx.data, dict):
            values = dict(ctx.data)
        elif len(names) == 1:
            values = {names[0]: prompt(ctx.message.parts)}
        elif names:
            raise Failed(f"This agent takes a data part: an object with {', '.join(names)}")
        if missing := [name for name in names if name not in values]:
            raise Failed(f"This agent also needs {', '.join(missing)}")
        if places:
            said = await self._heard(ctx)
            values[places[0]] = said[:-1] if names else said
        return values

    async def _heard(self, ctx: Context) -> list[BaseMessage]:
        return langchain_messages(await conversation_history(ctx, self._options.messages))

    # --- out ----------------------------------------------------------------------------------------------------------

    def _text(self, chunk: Any) -> str:
        """Return the text in a chunk. Chunks without text are written when the answer is complete."""
        if self._options.output_key is not None:
            chunk = chunk.get(self._options.output_key) if isinstance(chunk, dict) else None
        if isinstance(chunk, BaseMessage):
            return str(chunk.text)
        return str(chunk) if isinstance(chunk, str) else ""

    async def _end(self, ctx: Context, whole: Any, *, is_said: bool) -> None:
        """Write the remaining content of the answer beside the streamed text."""
        key = self._options.output_key
        if key is not None:
            whole = whole.get(key) if isinstance(whole, dict) else None
        text, parts = text_and_parts(whole)
        if text and not is_said:
            await say(ctx, text)
        if parts:
            await ctx.artifact([*parts], id=answer_id(ctx), append=True, last_chunk=False)
        elif not text and isinstance(whole, AIMessage) and whole.tool_calls:
            calls = [{"name": call["name"], "args": call["args"]} for call in whole.tool_calls]
            await say(ctx, Part(data={"toolCalls": calls}, media_type=JSON))
        await finish_answer(ctx)


def _first(runnable: Any) -> Any:
    """Return the first element of a runnable, inside sequences, bindings and fallbacks."""
    for name in ("first", "bound", "runnable"):
        inner = getattr(runnable, name, None)
        if hasattr(inner, "astream"):
            return _first(inner)
    return runnable


def _value(ctx: Context) -> Any:
    """Return the message as one value: a text, or data if there is nothing else."""
    return ctx.data if ctx.data is not None and not ctx.text and not ctx.files else prompt(ctx.message.parts)


def _joined(whole: Any, chunk: Any) -> Any:
    """Return an answer with one more chunk. A chunk that cannot be added replaces the answer."""
    if whole is NOTHING:
        return chunk
    if type(whole) is dict or (isinstance(chunk, AIMessage) and not isinstance(chunk, AIMessageChunk)):
        return chunk
    try:
        return whole + chunk
    except TypeError:
        return chunk
