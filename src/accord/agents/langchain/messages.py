"""LangChain messages and A2A parts, and the token usage of model calls.

This module has no knowledge of graphs and runnables. It imports LangChain, so modules that must load without it import
this module lazily.
"""

import base64
import binascii
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from accord.agents.messages import OCTETS, base64_of, describe_part, media_kind, prompt, readable_text
from accord.api import Context, parts_of
from accord.model import Artifact, Message, Part, Role

MEDIA = frozenset({"image", "audio", "video", "file"})
"""Blocks of LangChain's messages that carry or link to a file."""

Content = str | list[str | dict[str, Any]]


# --- input of a caller ----------------------------------------------------------------------------------------------


def human_message(message: Message) -> HumanMessage:
    """Return a caller's message under its id, so that a graph that receives it twice stores it once."""
    return HumanMessage(content=message_content(message.parts), id=message.message_id)


def langchain_messages(messages: Iterable[Message]) -> list[BaseMessage]:
    """Return a conversation as LangChain messages."""
    return [
        human_message(said)
        if said.role is Role.USER
        else AIMessage(content=message_content(said.parts), id=said.message_id)
        for said in messages
    ]


def message_content(parts: Iterable[Part]) -> Content:
    """Return parts as the content of a message: a text, or blocks if there are files that are not text."""
    said = list(parts)
    blocks = [content_block(part) for part in said]
    return prompt(said) if all(block["type"] == "text" for block in blocks) else [*blocks]


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


# --- output of a framework ------------------------------------------------------------------------------------------


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
    is_said = value is None or isinstance(value, bytes | bytearray | Part | Artifact | Message)
    is_said = is_said or (isinstance(value, list | tuple) and all(isinstance(item, Part) for item in value))
    return None, [*parts_of(value if is_said else json_value(value))]


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


# --- usage ----------------------------------------------------------------------------------------------------------


class UsageCollector(BaseCallbackHandler):
    """Collects the usage of each model call in a run until it is reported."""

    run_inline = True
    """Runs in the event loop.

    Otherwise LangChain passes each event, even each token, to a thread, which takes longer than the handler.
    """

    def __init__(self, ctx: Context) -> None:
        """Report usage to the task of `ctx`."""
        self._ctx = ctx
        self._seen: set[str] = set()
        self._calls: deque[tuple[str, AIMessage, str | None]] = deque()

    def on_llm_end(self, response: LLMResult, *, run_id: Any, **about: Any) -> None:
        """Record a finished call; it may have run in a thread."""
        model = (response.llm_output or {}).get("model_name")
        for generations in response.generations:
            for one in generations:
                if isinstance(one, ChatGeneration) and isinstance(one.message, AIMessage):
                    self._calls.append((one.message.id or str(run_id), one.message, model))

    def note(self, message: AIMessage) -> None:
        """Record a whole message, whose call may not have been observed."""
        if message.id is not None:
            self._calls.append((message.id, message, None))

    async def count(self) -> None:
        """Report the collected usage; raises OverBudget if the budget is exceeded."""
        while self._calls:
            key, message, model = self._calls.popleft()
            used, about = message.usage_metadata, message.response_metadata
            if used is None or key in self._seen:
                continue
            self._seen.add(key)
            await self._ctx.usage(
                input_tokens=used["input_tokens"],
                output_tokens=used["output_tokens"],
                model=about.get("model_name") or about.get("model") or model,
                key=key,
            )
