"""UI messages of the AI SDK, and their conversion to A2A messages.

Stored messages keep all members that a client sent. An agent receives text, files and data. Reasoning, sources and
steps belong to the front end.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from accord.model import Message, Part, Role
from accord.protocol.codec import invalid_field

Chunk = Mapping[str, Any]
UIMessage = dict[str, Any]

DATA = "data-"
"""Prefix of the types of data parts."""

UI = "ui"
"""Metadata key of a part: its `type` and `id` in the UI message, which A2A has no member for."""

TITLE = 80
"""Maximum length of a title."""


# --- from people to agents --------------------------------------------------------------------------------------------


def to_agent_parts(message: UIMessage) -> tuple[Part, ...]:
    """Return the A2A parts of a message. Raises InvalidParams if it cannot be sent."""
    stated_parts = message.get("parts")
    if not isinstance(stated_parts, list):
        raise invalid_field("message.parts", "A message has a list of parts")
    parts = tuple(
        agent_part
        for at, part in enumerate(stated_parts)
        if (agent_part := _part(part, f"message.parts[{at}]")) is not None
    )
    if not parts:
        raise invalid_field("message.parts", "The message has no text, file or data for the agent")
    return parts


def _part(part: Any, at: str) -> Part | None:
    if not isinstance(part, dict) or not isinstance(kind := part.get("type"), str):
        raise invalid_field(at, "A part is an object with a type")
    if kind == "text":
        if not isinstance(part.get("text"), str):
            raise invalid_field(f"{at}.text", "Required field is missing")
        return Part(text=part["text"])
    if kind == "file":
        return _file(part, at)
    if kind.startswith(DATA):
        named = {name: part[name] for name in ("type", "id") if name in part}
        return Part(data=part.get("data"), metadata={UI: named})
    return None


def _file(part: Mapping[str, Any], at: str) -> Part:
    url, media_type, filename = part.get("url"), part.get("mediaType"), part.get("filename")
    if not isinstance(url, str) or not all(value is None or isinstance(value, str) for value in (media_type, filename)):
        raise invalid_field(at, "A file has a url, a mediaType and maybe a filename, which are texts")
    if not url.startswith("data:"):
        if not url.startswith(("http://", "https://")):
            raise invalid_field(f"{at}.url", "A file is a data: URL, or at an http or https address")
        return Part(url=url, media_type=media_type, filename=filename)
    head, comma, content = url[5:].partition(",")
    if not comma:
        raise invalid_field(f"{at}.url", "It is not a valid data: URL")
    media_types, is_base64 = head.removesuffix(";base64"), head.endswith(";base64")
    try:
        raw = b64decode(unquote_to_bytes(content), validate=True) if is_base64 else unquote_to_bytes(content)
    except binascii.Error:
        raise invalid_field(f"{at}.url", "The content of the data: URL is not valid base64") from None
    return Part(raw=raw, media_type=media_type or media_types.partition(";")[0] or "text/plain", filename=filename)


def is_decision(message: UIMessage) -> bool:
    """Whether a message decides an approval: it has data with a boolean `approved`."""
    contents = [part.get("data") for part in message.get("parts") or () if isinstance(part, dict)]
    return any(isinstance(data, dict) and isinstance(data.get("approved"), bool) for data in contents)


def answered_in(message: UIMessage) -> str | None:
    """Return the id of the question that a message answers: the `id` of its `data-reply`, if it has one."""
    parts = [part for part in message.get("parts") or () if isinstance(part, dict) and part.get("type") == "data-reply"]
    return next((part["id"] for part in parts if isinstance(part.get("id"), str)), None)


def to_agent_message(message: UIMessage, identifier: str, context_id: str, task_id: str | None) -> Message:
    """Return the A2A message for an agent, with this id, in a context and optionally for a task."""
    metadata = message.get("metadata")
    return Message(
        message_id=identifier,
        role=Role.USER,
        parts=to_agent_parts(message),
        context_id=context_id,
        task_id=task_id,
        metadata=metadata if isinstance(metadata, dict) and metadata else None,
    )


def title_from(message: UIMessage) -> str:
    """Return a title for the chat or task that a message starts."""
    for part in message.get("parts") or ():
        if isinstance(part, dict) and isinstance(text := part.get("text"), str) and (words := text.split()):
            line = " ".join(words)
            return line if len(line) <= TITLE else line[: TITLE - 1].rstrip() + "…"
    named = [part.get("filename") for part in message.get("parts") or () if isinstance(part, dict)]
    return next((name[:TITLE] for name in named if isinstance(name, str) and name), "New chat")


# --- from chunks to a message -----------------------------------------------------------------------------------------


def fold_chunks(chunks: Iterable[Chunk]) -> UIMessage:
    """Return the message that a client has after a whole stream, so that history and screen are the same."""
    message: UIMessage = {"id": "", "role": "assistant", "parts": []}
    parts: list[dict[str, Any]] = message["parts"]
    texts: dict[str, dict[str, Any]] = {}
    tools: dict[str, dict[str, Any]] = {}
    for chunk in chunks:
        kind = chunk["type"]
        if "messageMetadata" in chunk:
            message["metadata"] = {**message.get("metadata", {}), **chunk["messageMetadata"]}
        if kind == "start":
            message["id"] = chunk["messageId"]
        elif kind == "start-step":
            parts.append({"type": "step-start"})
        elif kind.startswith("text-"):
            _text(kind, chunk, parts, texts)
        elif kind.startswith("tool-"):
            _tool(kind, chunk, parts, tools)
        elif kind == "file":
            parts.append({"type": kind, "mediaType": chunk["mediaType"], "url": chunk["url"]})
        elif kind.startswith(DATA):
            _data(chunk, parts)
    return message


def _text(kind: str, chunk: Chunk, parts: list[dict[str, Any]], texts: dict[str, dict[str, Any]]) -> None:
    if kind == "text-start":
        texts[chunk["id"]] = {"type": "text", "text": "", "state": "streaming"}
        parts.append(texts[chunk["id"]])
    elif kind == "text-delta":
        texts[chunk["id"]]["text"] += chunk["delta"]
    else:
        texts.pop(chunk["id"])["state"] = "done"


def _tool(kind: str, chunk: Chunk, parts: list[dict[str, Any]], tools: dict[str, dict[str, Any]]) -> None:
    call = chunk["toolCallId"]
    if kind == "tool-input-available":
        name = chunk["toolName"]
        named = {"type": "dynamic-tool", "toolName": name} if chunk.get("dynamic") else {"type": f"tool-{name}"}
        tools[call] = {**named, "toolCallId": call, "state": "input-available", "input": chunk["input"]}
        parts.append(tools[call])
    elif kind == "tool-output-available":
        tools[call].update(state="output-available", output=chunk["output"])
    else:
        tools[call].update(state="output-error", errorText=chunk["errorText"])


def _data(chunk: Chunk, parts: list[dict[str, Any]]) -> None:
    """Append data, or replace data of the same type and id."""
    for part in parts:
        if part["type"] == chunk["type"] and part.get("id") == chunk["id"]:
            part["data"] = chunk["data"]
            return
    parts.append({"type": chunk["type"], "id": chunk["id"], "data": chunk["data"]})
