"""A LangChain runnable as an agent; LangChain messages and A2A parts, and the token usage of model calls.

A runnable stores nothing. A lost execution restarts, and the conversation is read from its tasks. Graphs use the same
messages. The module imports LangChain, so modules that must load without it import it lazily.
"""

import base64
import binascii
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import msgspec
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.prompts import BasePromptTemplate

from accord.agents.langchain import RunnableOptions
from accord.agents.loader import call_function, import_function
from accord.agents.messages import (
    OCTETS,
    answer_id,
    append_answer,
    base64_of,
    conversation_history,
    describe_part,
    finish_answer,
    media_kind,
    prompt,
    readable_text,
)
from accord.api import Context, Crash, Failed, parts_of
from accord.api.agent_types import ANY_MEDIA, JSON, AgentArguments, profile
from accord.model import Artifact, Message, Part, Role

MEDIA = frozenset({"image", "audio", "video", "file"})
"""Blocks of LangChain's messages that carry or link to a file."""

Content = str | list[str | dict[str, Any]]


# --- input of a caller ------------------------------------------------------------------------------------------------


def human_message(message: Message) -> HumanMessage:
    """Return a caller's message under its id, so that a graph that receives it twice stores it once."""
    return HumanMessage(content=message_content(message.parts), id=message.message_id)


def langchain_messages(messages: Iterable[Message]) -> list[BaseMessage]:
    """Return a conversation as LangChain messages."""
    return [
        human_message(message)
        if message.role is Role.USER
        else AIMessage(content=message_content(message.parts), id=message.message_id)
        for message in messages
    ]


def message_content(parts: Iterable[Part]) -> Content:
    """Return parts as the content of a message: a text, or blocks if there are files that are not text."""
    content = list(parts)
    blocks = [content_block(part) for part in content]
    return prompt(content) if all(block["type"] == "text" for block in blocks) else [*blocks]


def content_block(part: Part) -> dict[str, Any]:
    """Return a part as a block of a message: data and text files as text, other files as files."""
    if part.raw is None and part.url is None:
        return {"type": "text", "text": part.text if part.text is not None else describe_part(part)}
    if readable_text(part) is not None:
        return {"type": "text", "text": describe_part(part)}
    return file_block(part)


def file_block(part: Part) -> dict[str, Any]:
    """Return a file of any type as a block of a message."""
    kind = (part.media_type or "").partition("/")[0]
    sort = "video" if kind == "video" else media_kind(part)
    block: dict[str, Any] = {"type": sort if sort in MEDIA else "file", "mime_type": part.media_type or OCTETS}
    if part.url is not None:
        block["url"] = part.url
    else:
        block["base64"] = base64_of(part)
    return block | ({"extras": {"filename": part.filename}} if part.filename else {})


# --- output of a framework --------------------------------------------------------------------------------------------


def message_files(message: BaseMessage) -> list[Part]:
    """Return the files that a message carries or links to."""
    return [part for block in message.content_blocks if (part := _file_part(block)) is not None]


def text_and_parts(value: Any) -> tuple[str | None, list[Part]]:
    """Return a value's text, if it is or has one, and its other parts; values of other types become data."""
    if isinstance(value, list | tuple) and value and all(isinstance(item, BaseMessage) for item in value):
        value = value[-1]
    if isinstance(value, BaseMessage):
        return str(value.text), message_files(value)
    if isinstance(value, str):
        return str(value), []
    is_content = value is None or isinstance(value, bytes | bytearray | Part | Artifact | Message)
    is_content = is_content or (isinstance(value, list | tuple) and all(isinstance(item, Part) for item in value))
    return None, [*parts_of(value if is_content else json_value(value))]


def json_value(value: Any) -> Any:
    """Return any value as JSON; objects that JSON cannot represent become text."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_unknown)


def _encode_unknown(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's models, messages among them
    return dump(mode="json") if callable(dump) and not isinstance(value, type) else str(value)


def _file_part(block: Any) -> Part | None:
    if block.get("type") not in MEDIA:
        return None
    name = (block.get("extras") or {}).get("filename") or block.get("filename")
    kind = block.get("mime_type")
    if (url := block.get("url")) is not None:
        return Part(url=url, media_type=kind, filename=name)
    try:
        raw = base64.b64decode(block.get("base64") or "", validate=True)
    except (binascii.Error, ValueError):
        return None
    return Part(raw=raw, media_type=kind or OCTETS, filename=name) if raw else None


# --- usage ------------------------------------------------------------------------------------------------------------


class UsageCollector(BaseCallbackHandler):
    """Collects the usage of each model call in a run until it is reported."""

    run_inline = True
    """Runs in the event loop.

    Otherwise LangChain passes each event, even each token, to a thread, which takes longer than the handler.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._seen: set[str] = set()
        self._calls: deque[tuple[str, AIMessage, str | None]] = deque()

    def on_llm_end(self, response: LLMResult, *, run_id: Any, **about: Any) -> None:
        """Record a finished call; it may have run in a thread."""
        model = (response.llm_output or {}).get("model_name")
        for generations in response.generations:
            for generation in generations:
                if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
                    self._calls.append((generation.message.id or str(run_id), generation.message, model))

    def add(self, message: AIMessage) -> None:
        """Record a whole message, whose call may not have been observed."""
        if message.id is not None:
            self._calls.append((message.id, message, None))

    async def count(self) -> None:
        """Report the collected usage; raises OverBudget if the budget is exceeded."""
        while self._calls:
            key, message, model = self._calls.popleft()
            usage, metadata = message.usage_metadata, message.response_metadata
            if usage is None or key in self._seen:
                continue
            self._seen.add(key)
            await self._ctx.usage(
                input_tokens=usage["input_tokens"],
                output_tokens=usage["output_tokens"],
                model=metadata.get("model_name") or metadata.get("model") or model,
                key=key,
            )


# --- the agent --------------------------------------------------------------------------------------------------------

NOTHING = object()


class RunnableAgent:
    """An agent made from a runnable."""

    def __init__(self, given: AgentArguments) -> None:
        options: RunnableOptions = given.options
        name = (getattr(given.target, "config", None) or {}).get("run_name") or given.target.get_name().lower()
        self.profile = profile(given, crash=Crash.RESTART, name=name, input_modes=ANY_MEDIA)
        self._runnable = given.target
        self._options = options
        self._first = _first(given.target)
        self._mapper = None if options.input_mapper is None else import_function(options.input_mapper, "input_mapper")

    async def run(self, ctx: Context) -> None:
        """Execute one turn. LangChain runs synchronous functions in a thread."""
        usage = UsageCollector(ctx)
        runnable_input = await self._input(ctx)
        whole: Any = NOTHING
        is_said = False
        async with aclosing(self._runnable.astream(runnable_input, self._config(ctx, usage))) as chunks:
            async for chunk in chunks:
                text = self._text(chunk)
                await append_answer(ctx, text)
                is_said = is_said or text != ""
                whole = _add_chunk(whole, chunk)
                await usage.count()
        if isinstance(whole, AIMessage):
            usage.add(whole)
        await usage.count()
        await self._end(ctx, None if whole is NOTHING else whole, is_said=is_said)

    def _config(self, ctx: Context, usage: UsageCollector) -> dict[str, Any]:
        session = "/".join(quote(name, safe="") for name in (ctx.tenant, ctx.caller.owner, ctx.context_id))
        return {
            "callbacks": [usage],
            "configurable": {"session_id": session, **self._options.configurable},
            "metadata": {"task_id": ctx.task_id, "context_id": ctx.context_id},
        }

    # --- in -----------------------------------------------------------------------------------------------------------

    async def _input(self, ctx: Context) -> Any:
        """Return the runnable's input, which depends on its first element."""
        if self._mapper is not None:
            return await call_function(self._mapper, ctx)
        if self._options.input_key is not None:
            return {self._options.input_key: _value(ctx)}
        if isinstance(self._first, BaseLanguageModel):
            return await self._conversation(ctx)
        if isinstance(self._first, BasePromptTemplate):
            return await self._variables(ctx, self._first)
        return _value(ctx)

    async def _variables(self, ctx: Context, template: Any) -> dict[str, Any]:
        """Return the variables of a prompt: data by name, or the text as its only variable, and the conversation."""
        declared = (*template.input_variables, *template.optional_variables)
        places = [name for name in template.input_types if name in declared]
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
            conversation = await self._conversation(ctx)
            values[places[0]] = conversation[:-1] if names else conversation
        return values

    async def _conversation(self, ctx: Context) -> list[BaseMessage]:
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
            await append_answer(ctx, text)
        if parts:
            await ctx.artifact([*parts], id=answer_id(ctx), append=True, last_chunk=False)
        elif not text and isinstance(whole, AIMessage) and whole.tool_calls:
            calls = [{"name": call["name"], "args": call["args"]} for call in whole.tool_calls]
            await append_answer(ctx, Part(data={"toolCalls": calls}, media_type=JSON))
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


def _add_chunk(whole: Any, chunk: Any) -> Any:
    """Return an answer with one more chunk. A chunk that cannot be added replaces the answer."""
    if whole is NOTHING:
        return chunk
    if type(whole) is dict or (isinstance(chunk, AIMessage) and not isinstance(chunk, AIMessageChunk)):
        return chunk
    try:
        return whole + chunk
    except TypeError:
        return chunk
