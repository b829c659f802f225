"""JSON event formats of coding agents, and the observations read from them.

Each format has a table from the type of an event to a function that reads observations. Unknown or malformed events are
ignored, because these formats grow with every release.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

BRIEF = 200
"""Maximum number of characters shown of a tool's arguments."""


class TextOutput(Struct, frozen=True):
    """A piece of the answer."""

    text: str


class CommandActivity(Struct, frozen=True):
    """The present activity of a command."""

    text: str


class SessionName(Struct, frozen=True):
    """The command's own id of its session."""

    id: str


class UsageReport(Struct, frozen=True, kw_only=True):
    """Token usage and cost of a command; a report with a `key` may be repeated and counts once."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    model: str | None = None
    key: str | None = None


class ObservedQuestion(Struct, frozen=True):
    """A question of a command; with `grants`, a request for these permissions."""

    question: str
    grants: tuple[str, ...] = ()


class ResultValue(Struct, frozen=True):
    """A structured answer."""

    data: Any


class CommandFailure(Struct, frozen=True):
    """The reason why a command failed."""

    text: str


Observation = TextOutput | CommandActivity | SessionName | UsageReport | ObservedQuestion | ResultValue | CommandFailure
Event = Mapping[str, Any]


class FormatState:
    """State of one execution's output that later events depend on."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.input_tokens = self.output_tokens = 0
        self.streams = False
        self.message = ""
        self.has_said = False
        self._is_apart = False

    def whole(self, text: str) -> Iterator[Observation]:
        """Yield the text of a separate message."""
        self._is_apart = True
        return self.piece(text)

    def piece(self, text: str) -> Iterator[Observation]:
        """Yield more text of the current message."""
        if text:
            apart = "\n\n" if self._is_apart and self.has_said else ""
            self.has_said, self._is_apart = True, False
            yield TextOutput(apart + text)

    def begin(self) -> None:
        """Make the next piece start another message."""
        self._is_apart = True


ReadEvent = Callable[[Event, FormatState], Iterable[Observation]]
Format = Mapping[str, ReadEvent]


def read_line(line: bytes, form: Format, memory: FormatState) -> list[Observation] | None:
    """Return the observations in a line, or None if it is not an event."""
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(event, dict):
        return None
    read = form.get(text_at(event, "type"))
    return [] if read is None else list(read(event, memory))


# --- reading events ---------------------------------------------------------------------------------------------------


def value_at(event: Any, *path: str) -> Any:
    """Return the value at a path in an event, or None."""
    for name in path:
        event = event.get(name) if isinstance(event, dict) else None
    return event


def text_at(event: Any, *path: str) -> str:
    """Return the text at a path, or "", without NUL, which no store accepts."""
    value = value_at(event, *path)
    return value.replace("\0", "") if isinstance(value, str) else ""


def count_at(event: Any, *path: str) -> int:
    """Return the number at a path, or 0."""
    value = value_at(event, *path)
    return max(0, int(value)) if isinstance(value, int | float) else 0


def amount_at(event: Any, *path: str) -> float:
    """Return the amount of money at a path, or 0."""
    value = value_at(event, *path)
    return max(0.0, float(value)) if isinstance(value, int | float) else 0.0


def items_at(event: Any, *path: str) -> list[Any]:
    """Return the list at a path, or an empty one."""
    value = value_at(event, *path)
    return value if isinstance(value, list) else []


def summarize(value: Any) -> str:
    """Return a tool's arguments in one line: the most important one, or all as JSON."""
    if isinstance(value, dict):
        named = (value.get(name) for name in ("command", "file_path", "path", "pattern", "url", "query", "description"))
        value = next((text for text in named if isinstance(text, str)), value)
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    shown = " ".join(shown.replace("\0", "").split())
    return shown if len(shown) <= BRIEF else shown[:BRIEF] + "…"


def tool_activity(name: str, arguments: Any) -> Iterator[Observation]:
    """Yield the activity of a tool call."""
    summary = summarize(arguments) if arguments else ""
    yield CommandActivity(f"{name}: {summary}" if summary else name)


_TOOL = re.compile(r"[A-Za-z_][\w.:-]*")
"""The name of a tool, which becomes an argument and must not be a flag."""


def _session(event: Event, _: FormatState | None = None) -> Iterator[Observation]:
    if name := text_at(event, "session_id") or text_at(event, "sessionID") or text_at(event, "thread_id"):
        yield SessionName(name)


def _error(event: Event, _: FormatState) -> Iterator[Observation]:
    reasons = (text_at(event, "message"), text_at(event, "error"), text_at(event, "error", "message"), "unknown error")
    yield CommandFailure(next(reason for reason in reasons if reason))


def _notice(event: Event, _: FormatState) -> Iterator[Observation]:
    yield CommandActivity(text_at(event, "message") or "error")  # it may yet succeed, or report a failure


def _usage(usage: Any, **more: Any) -> UsageReport:
    return UsageReport(
        input_tokens=count_at(usage, "input_tokens"), output_tokens=count_at(usage, "output_tokens"), **more
    )


# --- claude, and cursor and droid, which are like it ------------------------------------------------------------------


def _claude_system(event: Event, memory: FormatState) -> Iterator[Observation]:
    memory.model = text_at(event, "model") or memory.model
    yield from _session(event)


def _claude_partial(event: Event, memory: FormatState) -> Iterator[Observation]:
    if event.get("parent_tool_use_id"):
        return  # a subagent's words are not the answer
    memory.streams = True
    if text_at(event, "event", "type") == "content_block_start":
        memory.begin()
    yield from memory.piece(text_at(event, "event", "delta", "text"))


def _claude_assistant(event: Event, memory: FormatState) -> Iterator[Observation]:
    is_helper = bool(event.get("parent_tool_use_id"))
    for block in items_at(event, "message", "content"):
        if text_at(block, "type") == "text" and not memory.streams and not is_helper:
            yield from memory.whole(text_at(block, "text"))
        elif text_at(block, "type") == "tool_use":
            yield from tool_activity(text_at(block, "name"), value_at(block, "input"))
    name = text_at(event, "message", "id")
    if name and name != memory.message and isinstance(value_at(event, "message", "usage"), dict):
        memory.message = name
        yield _claude_used(value_at(event, "message", "usage"), memory, key=name)


def _claude_used(usage: Any, memory: FormatState, *, key: str | None = None, cost: float = 0.0) -> UsageReport:
    """Return usage. The final sum adds only usage that was not reported with single messages."""
    read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    tokens, answered = sum(count_at(usage, name) for name in read), count_at(usage, "output_tokens")
    if key is None:
        tokens, answered = max(0, tokens - memory.input_tokens), max(0, answered - memory.output_tokens)
    memory.input_tokens += tokens
    memory.output_tokens += answered
    return UsageReport(input_tokens=tokens, output_tokens=answered, cost=cost, model=memory.model, key=key)


def _claude_result(event: Event, memory: FormatState) -> Iterator[Observation]:
    yield from _session(event)
    if "usage" in event or "total_cost_usd" in event:
        yield _claude_used(event.get("usage"), memory, cost=amount_at(event, "total_cost_usd"))
    if event.get("is_error"):
        yield CommandFailure(text_at(event, "result") or text_at(event, "subtype").replace("_", " "))
        return
    if not memory.has_said:
        yield from memory.whole(text_at(event, "result"))
    if event.get("structured_output") is not None:
        yield ResultValue(event["structured_output"])
    if denials := [
        denial for denial in items_at(event, "permission_denials") if _TOOL.fullmatch(text_at(denial, "tool_name"))
    ]:
        yield _denied(denials)


def _denied(denials: list[Any]) -> ObservedQuestion:
    grants = tuple(dict.fromkeys(_grant(denial) for denial in denials))
    actions = "\n".join(
        f"- {text_at(denial, 'tool_name')}: {summarize(value_at(denial, 'tool_input') or {})}" for denial in denials
    )
    return ObservedQuestion(f"It was not allowed to do this:\n{actions}\nAllow {', '.join(grants)}?", grants)


def _grant(denial: Any) -> str:
    name, command = text_at(denial, "tool_name"), text_at(denial, "tool_input", "command")
    return f"{name}({command})" if name == "Bash" and command else name


def _cursor_tool(event: Event, _: FormatState) -> Iterator[Observation]:
    calls = value_at(event, "tool_call")
    if event.get("subtype") == "started" and isinstance(calls, dict):
        for name, call in calls.items():
            yield from tool_activity(name.removesuffix("ToolCall"), value_at(call, "args"))


def _droid_message(event: Event, memory: FormatState) -> Iterable[Observation]:
    return memory.whole(text_at(event, "text")) if event.get("role", "assistant") == "assistant" else ()


def _droid_tool(event: Event, _: FormatState) -> Iterable[Observation]:
    return tool_activity(text_at(event, "toolName") or text_at(event, "toolId"), event.get("parameters"))


def _droid_completion(event: Event, memory: FormatState) -> Iterator[Observation]:
    yield from _session(event)
    if not memory.has_said:
        yield from memory.whole(text_at(event, "finalText"))


# --- codex ------------------------------------------------------------------------------------------------------------


def _codex_begins(event: Event, _: FormatState) -> Iterable[Observation]:
    is_command = text_at(event, "item", "type") == "command_execution"
    return tool_activity("command", value_at(event, "item", "command")) if is_command else ()


def _codex_item(event: Event, memory: FormatState) -> Iterable[Observation]:
    item = value_at(event, "item")
    match text_at(item, "type"):
        case "agent_message":
            return memory.whole(text_at(item, "text"))
        case "file_change":
            paths = [text_at(change, "path") for change in items_at(item, "changes")]
            return tool_activity("changed", ", ".join(paths))
        case "mcp_tool_call":
            return tool_activity(text_at(item, "tool"), value_at(item, "arguments"))
        case "web_search":
            return tool_activity("search", text_at(item, "query"))
    return ()


# --- gemini -----------------------------------------------------------------------------------------------------------


def _gemini_message(event: Event, memory: FormatState) -> Iterable[Observation]:
    if event.get("role") != "assistant":
        return ()
    return (memory.piece if event.get("delta") else memory.whole)(text_at(event, "content"))


def _gemini_tool(event: Event, memory: FormatState) -> Iterable[Observation]:
    memory.begin()
    return tool_activity(text_at(event, "tool_name"), event.get("parameters"))


def _gemini_result(event: Event, memory: FormatState) -> Iterator[Observation]:
    usage = _usage(event.get("stats"), model=memory.model)
    if usage.input_tokens or usage.output_tokens:
        yield usage
    if event.get("status") == "error":
        yield from _error(event, memory)


# --- opencode ---------------------------------------------------------------------------------------------------------


def _opencode_text(event: Event, memory: FormatState) -> Iterator[Observation]:
    yield from _session(event)
    yield from memory.whole(text_at(event, "part", "text"))


def _opencode_tool(event: Event, _: FormatState) -> Iterable[Observation]:
    state = value_at(event, "part", "state")
    return tool_activity(text_at(event, "part", "tool"), text_at(state, "title") or value_at(state, "input"))


def _opencode_used(event: Event, _: FormatState) -> Iterator[Observation]:
    tokens = value_at(event, "part", "tokens")
    cache = value_at(tokens, "cache")
    yield UsageReport(
        input_tokens=count_at(tokens, "input") + count_at(cache, "read") + count_at(cache, "write"),
        output_tokens=count_at(tokens, "output") + count_at(tokens, "reasoning"),
        cost=amount_at(event, "part", "cost"),
    )


def _opencode_error(event: Event, _: FormatState) -> Iterator[Observation]:
    reason = text_at(event, "error", "data", "message") or text_at(event, "error", "name")
    yield CommandFailure(reason or "unknown error")


# --- goose ------------------------------------------------------------------------------------------------------------


def _goose_message(event: Event, memory: FormatState) -> Iterator[Observation]:
    message = value_at(event, "message")
    if text_at(message, "role") != "assistant":
        return
    if (name := text_at(message, "id")) != memory.message or not name:
        memory.message = name
        memory.begin()
    for block in items_at(message, "content"):
        if text_at(block, "type") == "text":
            yield from memory.piece(text_at(block, "text"))
        elif text_at(block, "type") == "toolRequest":
            call = value_at(block, "toolCall", "value") or value_at(block, "toolCall")
            yield from tool_activity(text_at(call, "name"), value_at(call, "arguments"))


def _goose_complete(event: Event, _: FormatState) -> Iterator[Observation]:
    tokens, answered = count_at(event, "input_tokens"), count_at(event, "output_tokens")
    yield UsageReport(input_tokens=tokens or max(0, count_at(event, "total_tokens") - answered), output_tokens=answered)


# --- tables -----------------------------------------------------------------------------------------------------------

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
    "thread.started": _session,
    "item.started": _codex_begins,
    "item.completed": _codex_item,
    "turn.completed": lambda event, _: [_usage(event.get("usage"))],
    "turn.failed": _error,
    "error": _notice,
}
GEMINI: Format = {
    "init": _claude_system,
    "message": _gemini_message,
    "tool_use": _gemini_tool,
    "error": _notice,
    "result": _gemini_result,
}
OPENCODE: Format = {
    "step_start": _session,
    "text": _opencode_text,
    "tool_use": _opencode_tool,
    "step_finish": _opencode_used,
    "error": _opencode_error,
}
GOOSE: Format = {"message": _goose_message, "error": _error, "complete": _goose_complete}
LINES: Format = {
    "text": lambda event, memory: memory.piece(text_at(event, "text")),
    "status": lambda event, _: [CommandActivity(text_at(event, "text"))],
    "ask": lambda event, _: [ObservedQuestion(text_at(event, "text"))],
    "session": lambda event, _: [SessionName(name)] if (name := text_at(event, "id")) else [],
    "data": lambda event, _: [ResultValue(event.get("data"))],
    "usage": lambda event, _: [_usage(event, cost=amount_at(event, "cost"), model=text_at(event, "model") or None)],
    "error": _error,
}
"""Accord's own format, for scripts with more output than text."""

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
"""Format -> its table of events."""
