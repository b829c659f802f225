"""The formats in which coding agents print what they do, one JSON event in each line.

One table for each: the type of an event, and a function from the event to what was seen. Which command prints which
format is in `presets`; how an event is looked into is in `seen`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from accord.agents.process.seen import (
    Asked,
    Broke,
    Doing,
    Event,
    Format,
    Made,
    Memory,
    Seen,
    Session,
    Used,
    amount,
    at,
    brief,
    count,
    items,
    text,
    tool,
)

_TOOL = re.compile(r"[A-Za-z_][\w.:-]*")
"""The name of a tool, which becomes an argument and must be no flag."""


def _session(event: Event) -> Iterator[Seen]:
    if found := text(event, "session_id") or text(event, "sessionID") or text(event, "thread_id"):
        yield Session(found)


# --- claude, and cursor and droid, which are like it --------------------------------------------------------------


def _claude_system(event: Event, memory: Memory) -> Iterator[Seen]:
    memory.model = text(event, "model") or memory.model
    yield from _session(event)


def _claude_partial(event: Event, memory: Memory) -> Iterator[Seen]:
    if event.get("parent_tool_use_id"):
        return  # a helper's words are not the answer
    memory.streams = True
    if text(event, "event", "type") == "content_block_start":
        memory.begin()
    yield from memory.piece(text(event, "event", "delta", "text"))


def _claude_assistant(event: Event, memory: Memory) -> Iterator[Seen]:
    is_helper = bool(event.get("parent_tool_use_id"))
    for block in items(event, "message", "content"):
        if text(block, "type") == "text" and not memory.streams and not is_helper:
            yield from memory.whole(text(block, "text"))
        elif text(block, "type") == "tool_use":
            yield from tool(text(block, "name"), at(block, "input"))
    name = text(event, "message", "id")
    if name and name != memory.message and isinstance(at(event, "message", "usage"), dict):
        memory.message = name
        yield _claude_used(at(event, "message", "usage"), memory, key=name)


def _claude_used(usage: Any, memory: Memory, *, key: str | None = None, cost: float = 0.0) -> Used:
    """Return what was used; the sum at the end adds only what was not told with the single messages."""
    read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    taken, given = sum(count(usage, name) for name in read), count(usage, "output_tokens")
    if key is None:
        taken, given = max(0, taken - memory.input_tokens), max(0, given - memory.output_tokens)
    memory.input_tokens += taken
    memory.output_tokens += given
    return Used(input_tokens=taken, output_tokens=given, cost=cost, model=memory.model, key=key)


def _claude_result(event: Event, memory: Memory) -> Iterator[Seen]:
    yield from _session(event)
    if "usage" in event or "total_cost_usd" in event:
        yield _claude_used(event.get("usage"), memory, cost=amount(event, "total_cost_usd"))
    if event.get("is_error"):
        yield Broke(text(event, "result") or text(event, "subtype").replace("_", " "))
        return
    if not memory.has_said:
        yield from memory.whole(text(event, "result"))
    if event.get("structured_output") is not None:
        yield Made(event["structured_output"])
    if denials := [one for one in items(event, "permission_denials") if _TOOL.fullmatch(text(one, "tool_name"))]:
        yield _denied(denials)


def _denied(denials: list[Any]) -> Asked:
    grants = tuple(dict.fromkeys(_grant(one) for one in denials))
    wanted = "\n".join(f"- {text(one, 'tool_name')}: {brief(at(one, 'tool_input') or {})}" for one in denials)
    return Asked(f"It was not allowed to do this:\n{wanted}\nAllow {', '.join(grants)}?", grants)


def _grant(denial: Any) -> str:
    """Return the rule that allows what was denied: one command and no other, or a tool."""
    name, command = text(denial, "tool_name"), text(denial, "tool_input", "command")
    return f"{name}({command})" if name == "Bash" and command else name


def _cursor_tool(event: Event, memory: Memory) -> Iterator[Seen]:
    calls = at(event, "tool_call")
    if event.get("subtype") == "started" and isinstance(calls, dict):
        for name, call in calls.items():
            yield from tool(name.removesuffix("ToolCall"), at(call, "args"))


def _droid_message(event: Event, memory: Memory) -> Iterator[Seen]:
    if event.get("role", "assistant") == "assistant":
        yield from memory.whole(text(event, "text"))


def _droid_tool(event: Event, memory: Memory) -> Iterator[Seen]:
    yield from tool(text(event, "toolName") or text(event, "toolId"), event.get("parameters"))


def _droid_completion(event: Event, memory: Memory) -> Iterator[Seen]:
    yield from _session(event)
    if not memory.has_said:
        yield from memory.whole(text(event, "finalText"))


def _error(event: Event, memory: Memory) -> Iterator[Seen]:
    told = (text(event, "message"), text(event, "error"), text(event, "error", "message"), "unknown error")
    yield Broke(next(text for text in told if text))


# --- codex --------------------------------------------------------------------------------------------------------


def _codex_started(event: Event, memory: Memory) -> Iterator[Seen]:
    yield from _session(event)


def _codex_begins(event: Event, memory: Memory) -> Iterator[Seen]:
    if text(event, "item", "type") == "command_execution":
        yield from tool("command", at(event, "item", "command"))


def _codex_item(event: Event, memory: Memory) -> Iterator[Seen]:
    item = at(event, "item")
    match text(item, "type"):
        case "agent_message":
            yield from memory.whole(text(item, "text"))
        case "file_change":
            paths = [text(change, "path") for change in items(item, "changes")]
            yield from tool("changed", ", ".join(paths))
        case "mcp_tool_call":
            yield from tool(text(item, "tool"), at(item, "arguments"))
        case "web_search":
            yield from tool("search", text(item, "query"))


def _codex_used(event: Event, memory: Memory) -> Iterator[Seen]:
    usage = at(event, "usage")
    yield Used(input_tokens=count(usage, "input_tokens"), output_tokens=count(usage, "output_tokens"))


def _codex_notice(event: Event, memory: Memory) -> Iterator[Seen]:
    yield Doing(text(event, "message") or "error")  # it may yet succeed: `turn.failed` says if not


# --- gemini -------------------------------------------------------------------------------------------------------


def _gemini_message(event: Event, memory: Memory) -> Iterator[Seen]:
    if event.get("role") == "assistant":
        say = memory.piece if event.get("delta") else memory.whole
        yield from say(text(event, "content"))


def _gemini_tool(event: Event, memory: Memory) -> Iterator[Seen]:
    memory.begin()
    yield from tool(text(event, "tool_name"), event.get("parameters"))


def _gemini_result(event: Event, memory: Memory) -> Iterator[Seen]:
    used, given = count(event, "stats", "input_tokens"), count(event, "stats", "output_tokens")
    if used or given:
        yield Used(input_tokens=used, output_tokens=given, model=memory.model)
    if event.get("status") == "error":
        yield from _error(event, memory)


# --- opencode -----------------------------------------------------------------------------------------------------


def _opencode_step(event: Event, memory: Memory) -> Iterator[Seen]:
    yield from _session(event)


def _opencode_text(event: Event, memory: Memory) -> Iterator[Seen]:
    yield from _session(event)
    yield from memory.whole(text(event, "part", "text"))


def _opencode_tool(event: Event, memory: Memory) -> Iterator[Seen]:
    state = at(event, "part", "state")
    yield from tool(text(event, "part", "tool"), text(state, "title") or at(state, "input"))


def _opencode_used(event: Event, memory: Memory) -> Iterator[Seen]:
    tokens = at(event, "part", "tokens")
    cache = at(tokens, "cache")
    yield Used(
        input_tokens=count(tokens, "input") + count(cache, "read") + count(cache, "write"),
        output_tokens=count(tokens, "output") + count(tokens, "reasoning"),
        cost=amount(event, "part", "cost"),
    )


def _opencode_error(event: Event, memory: Memory) -> Iterator[Seen]:
    yield Broke(text(event, "error", "data", "message") or text(event, "error", "name") or "unknown error")


# --- goose --------------------------------------------------------------------------------------------------------


def _goose_message(event: Event, memory: Memory) -> Iterator[Seen]:
    message = at(event, "message")
    if text(message, "role") != "assistant":
        return
    if (name := text(message, "id")) != memory.message or not name:
        memory.message = name
        memory.begin()
    for block in items(message, "content"):
        if text(block, "type") == "text":
            yield from memory.piece(text(block, "text"))
        elif text(block, "type") == "toolRequest":
            call = at(block, "toolCall", "value") or at(block, "toolCall")
            yield from tool(text(call, "name"), at(call, "arguments"))


def _goose_complete(event: Event, memory: Memory) -> Iterator[Seen]:
    used, given = count(event, "input_tokens"), count(event, "output_tokens")
    yield Used(input_tokens=used or max(0, count(event, "total_tokens") - given), output_tokens=given)


# --- our own: what a script prints that wants to say more than text -----------------------------------------------


def _line_text(event: Event, memory: Memory) -> Iterator[Seen]:
    yield from memory.piece(text(event, "text"))


def _line_status(event: Event, memory: Memory) -> Iterator[Seen]:
    yield Doing(text(event, "text"))


def _line_ask(event: Event, memory: Memory) -> Iterator[Seen]:
    yield Asked(text(event, "text"))


def _line_session(event: Event, memory: Memory) -> Iterator[Seen]:
    if found := text(event, "id"):
        yield Session(found)


def _line_data(event: Event, memory: Memory) -> Iterator[Seen]:
    yield Made(event.get("data"))


def _line_usage(event: Event, memory: Memory) -> Iterator[Seen]:
    yield Used(
        input_tokens=count(event, "input_tokens"),
        output_tokens=count(event, "output_tokens"),
        cost=amount(event, "cost"),
        model=text(event, "model") or None,
    )


CLAUDE: Format = {
    "system": _claude_system,
    "stream_event": _claude_partial,
    "assistant": _claude_assistant,
    "result": _claude_result,
}
CURSOR: Format = {**CLAUDE, "tool_call": _cursor_tool}
DROID: Format = {
    "system": _claude_system,
    "message": _droid_message,
    "tool_call": _droid_tool,
    "completion": _droid_completion,
    "result": _claude_result,
    "error": _error,
}
CODEX: Format = {
    "thread.started": _codex_started,
    "item.started": _codex_begins,
    "item.completed": _codex_item,
    "turn.completed": _codex_used,
    "turn.failed": _error,
    "error": _codex_notice,
}
GEMINI: Format = {
    "init": _claude_system,
    "message": _gemini_message,
    "tool_use": _gemini_tool,
    "error": _codex_notice,
    "result": _gemini_result,
}
OPENCODE: Format = {
    "step_start": _opencode_step,
    "text": _opencode_text,
    "tool_use": _opencode_tool,
    "step_finish": _opencode_used,
    "error": _opencode_error,
}
GOOSE: Format = {"message": _goose_message, "error": _error, "complete": _goose_complete}
LINES: Format = {
    "text": _line_text,
    "status": _line_status,
    "ask": _line_ask,
    "session": _line_session,
    "data": _line_data,
    "usage": _line_usage,
    "error": _error,
}

FORMATS: Mapping[str, Format] = {
    "claude": CLAUDE,
    "codex": CODEX,
    "cursor": CURSOR,
    "droid": DROID,
    "gemini": GEMINI,
    "goose": GOOSE,
    "lines": LINES,
    "opencode": OPENCODE,
}
"""Format -> its table."""
