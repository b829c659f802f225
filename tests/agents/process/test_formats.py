"""What is seen in the events of each coding agent; the events are formed as their documentation shows them."""

import re
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from accord.agents.process.formats import (
    FORMATS,
    CommandActivity,
    CommandFailure,
    Observation,
    ObservedQuestion,
    ResultValue,
    SessionName,
    TextOutput,
    UsageReport,
)
from accord.agents.process.options import FormatName
from accord.agents.process.output import EventReader, TextReader
from tests.cases import each

ROWS: list[tuple[str, list[dict[str, Any]], list[Observation]]] = [
    (
        "claude",
        [
            {"type": "system", "subtype": "init", "session_id": "s1", "model": "m"},
            {"type": "assistant", "message": {"id": "a", "content": [{"type": "text", "text": "one"}]}},
            {
                "type": "assistant",
                "message": {"id": "b", "content": [{"type": "tool_use", "name": "Read", "input": {"file_path": "x"}}]},
            },
            {"type": "assistant", "parent_tool_use_id": "t", "message": {"content": [{"type": "text", "text": "no"}]}},
            {"type": "assistant", "message": {"id": "c", "content": [{"type": "text", "text": "two"}]}},
            {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "session_id": "s2",
                "structured_output": {"a": 1},
                "total_cost_usd": 0.5,
                "usage": {"input_tokens": 1, "cache_creation_input_tokens": 2, "output_tokens": 3},
            },
        ],
        [
            SessionName("s1"),
            TextOutput("one"),
            CommandActivity("Read: x"),
            TextOutput("\n\ntwo"),
            SessionName("s2"),
            UsageReport(input_tokens=3, output_tokens=3, cost=0.5, model="m"),
            ResultValue({"a": 1}),
        ],
    ),
    (
        "claude",
        [{"type": "result", "subtype": "error_max_turns", "is_error": True}],
        [CommandFailure("error max turns")],
    ),
    (
        "claude",
        [
            {
                "type": "result",
                "is_error": False,
                "result": "no",
                "permission_denials": [
                    {"tool_name": "Write", "tool_input": {"file_path": "a"}},
                    {"tool_name": "Write", "tool_input": {"file_path": "b"}},
                    {"tool_name": "--dangerous", "tool_input": {}},
                ],
            }
        ],
        [
            TextOutput("no"),
            ObservedQuestion("It was not allowed to do this:\n- Write: a\n- Write: b\nAllow Write?", ("Write",)),
        ],
    ),
    (
        "codex",
        [
            {"type": "thread.started", "thread_id": "t"},
            {"type": "item.started", "item": {"type": "command_execution", "command": "bash -lc ls"}},
            {"type": "item.completed", "item": {"type": "command_execution", "command": "bash -lc ls"}},
            {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
            {"type": "item.completed", "item": {"type": "file_change", "changes": [{"path": "a"}, {"path": "b"}]}},
            {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
            {"type": "error", "message": "Reconnecting"},
            {"type": "turn.completed", "usage": {"input_tokens": 7, "output_tokens": 5}},
        ],
        [
            SessionName("t"),
            CommandActivity("command: bash -lc ls"),
            CommandActivity("changed: a, b"),
            TextOutput("done"),
            CommandActivity("Reconnecting"),
            UsageReport(input_tokens=7, output_tokens=5),
        ],
    ),
    ("codex", [{"type": "turn.failed", "error": {"message": "no quota"}}], [CommandFailure("no quota")]),
    (
        "gemini",
        [
            {"type": "init", "session_id": "g", "model": "flash"},
            {"type": "message", "role": "user", "content": "hi"},
            {"type": "message", "role": "assistant", "content": "one ", "delta": True},
            {"type": "message", "role": "assistant", "content": "two", "delta": True},
            {"type": "tool_use", "tool_name": "shell", "parameters": {"command": "ls"}},
            {"type": "tool_result", "status": "success"},
            {"type": "message", "role": "assistant", "content": "three", "delta": True},
            {"type": "result", "status": "success", "stats": {"input_tokens": 7, "output_tokens": 5}},
        ],
        [
            SessionName("g"),
            TextOutput("one "),
            TextOutput("two"),
            CommandActivity("shell: ls"),
            TextOutput("\n\nthree"),
            UsageReport(input_tokens=7, output_tokens=5, model="flash"),
        ],
    ),
    ("gemini", [{"type": "result", "status": "error", "error": {"message": "no key"}}], [CommandFailure("no key")]),
    (
        "opencode",
        [
            {"type": "step_start", "sessionID": "o"},
            {"type": "tool_use", "sessionID": "o", "part": {"tool": "bash", "state": {"input": {"command": "ls"}}}},
            {"type": "text", "sessionID": "o", "part": {"text": "one"}},
            {
                "type": "step_finish",
                "sessionID": "o",
                "part": {"cost": 0.1, "tokens": {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4}}},
            },
        ],
        [
            SessionName("o"),
            CommandActivity("bash: ls"),
            SessionName("o"),
            TextOutput("one"),
            UsageReport(input_tokens=5, output_tokens=5, cost=0.1),
        ],
    ),
    ("opencode", [{"type": "error", "error": {"name": "E", "data": {"message": "bad"}}}], [CommandFailure("bad")]),
    (
        "goose",
        [
            {
                "type": "message",
                "message": {"id": "1", "role": "assistant", "content": [{"type": "text", "text": "a"}]},
            },
            {
                "type": "message",
                "message": {"id": "1", "role": "assistant", "content": [{"type": "text", "text": "b"}]},
            },
            {
                "type": "message",
                "message": {
                    "id": "2",
                    "role": "assistant",
                    "content": [
                        {
                            "type": "toolRequest",
                            "toolCall": {"value": {"name": "shell", "arguments": {"command": "ls"}}},
                        }
                    ],
                },
            },
            {"type": "message", "message": {"id": "3", "role": "user", "content": [{"type": "text", "text": "no"}]}},
            {"type": "complete", "total_tokens": 12},
        ],
        [TextOutput("a"), TextOutput("b"), CommandActivity("shell: ls"), UsageReport(input_tokens=12)],
    ),
    ("goose", [{"type": "error", "error": "bad"}], [CommandFailure("bad")]),
    (
        "droid",
        [
            {"type": "system", "subtype": "init", "session_id": "d"},
            {"type": "message", "role": "user", "text": "hi"},
            {"type": "tool_call", "toolName": "Execute", "parameters": {"command": "ls"}},
            {"type": "message", "role": "assistant", "text": "done"},
            {"type": "completion", "finalText": "done", "session_id": "d"},
        ],
        [SessionName("d"), CommandActivity("Execute: ls"), TextOutput("done"), SessionName("d")],
    ),
    (
        "cursor",
        [
            {"type": "system", "subtype": "init", "session_id": "c"},
            {"type": "user", "message": {"content": [{"type": "text", "text": "hi"}]}},
            {"type": "tool_call", "subtype": "started", "tool_call": {"readToolCall": {"args": {"path": "x"}}}},
            {"type": "tool_call", "subtype": "completed", "tool_call": {"readToolCall": {}}},
            {"type": "assistant", "message": {"content": [{"type": "text", "text": "done"}]}},
            {"type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": "c"},
        ],
        [SessionName("c"), CommandActivity("read: x"), TextOutput("done"), SessionName("c")],
    ),
    (
        "lines",
        [
            {"type": "session", "id": "l"},
            {"type": "status", "text": "busy"},
            {"type": "text", "text": "one "},
            {"type": "text", "text": "two"},
            {"type": "data", "data": [1]},
            {"type": "usage", "input_tokens": 7, "output_tokens": 5, "cost": 0.5, "model": "m"},
            {"type": "ask", "text": "which?"},
            {"type": "error", "message": "bad"},
        ],
        [
            SessionName("l"),
            CommandActivity("busy"),
            TextOutput("one "),
            TextOutput("two"),
            ResultValue([1]),
            UsageReport(input_tokens=7, output_tokens=5, cost=0.5, model="m"),
            ObservedQuestion("which?"),
            CommandFailure("bad"),
        ],
    ),
]


@each(("name", "events", "seen"), ROWS)
@each("size", [1, 7, 100_000])
def test_it_sees(name: str, events: list[dict[str, Any]], seen: list[Observation], size: int) -> None:
    output = EventReader(FORMATS[name])
    raw = b"\n".join(msgspec.json.encode(event) for event in events)
    found = [one for at in range(0, len(raw), size) for one in output.feed(raw[at : at + size])]
    assert [*found, *output.end()] == seen


def test_every_format_has_a_row_and_a_name() -> None:
    assert set(FORMATS) == {name for name, _, _ in ROWS} == set(FormatName.__args__)  # type: ignore[attr-defined]


def test_other_lines_are_noise_and_nul_is_left_out() -> None:
    output = EventReader(FORMATS["lines"])
    seen = output.feed(b'warning: x\n[1]\n{"type":"text","text":"a\\u0000b"}\n{"type":"new"}\n\n{"type":')
    assert (seen, output.end()) == ([TextOutput("ab")], [])
    assert output.noise == 'warning: x\n[1]\n{"type":\n'


KEYS = re.findall(
    r"\w+",
    "message part item event usage stats error tool_call tokens session_id result role delta is_error text id cost "
    "model total_cost_usd permission_denials structured_output subtype status data content parameters toolName",
)
INNER = re.findall(
    r"\w+",
    "content text type id usage delta input command name tool state title toolCall value tool_name tool_input args",
)
WORDS = ["", "x", "text", "tool_use", "assistant", "started", "error", "agent_message", "file_change", "toolRequest"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1, 1) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_an_event_that_is_formed_otherwise_breaks_nothing(name: str, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(FORMATS[name])))
    event = {"type": kind, **data.draw(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6))}
    EventReader(FORMATS[name]).feed(msgspec.json.encode(event) + b"\n")


def test_text_is_without_line_breaks_at_its_ends() -> None:
    output = TextReader()
    seen = [*output.feed(b"\n\na\n\n"), *output.feed(b"b\n"), *output.feed(b"\n"), *output.end()]
    assert seen == [TextOutput("a"), TextOutput("\n\nb")]
