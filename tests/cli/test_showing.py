"""Answers as text: the same labels always, nothing that a terminal obeys, and streams that say everything once."""

import io
import json
from collections.abc import Iterable
from typing import Any

import pytest

from accord.cli import agent_output
from accord.cli.agent_output import Progress
from accord.cli.replies import (
    RESTARTED,
    JsonReplyPrinter,
    LiveTextPrinter,
    PlainTextPrinter,
    ReplyPrinter,
    ResultPrinter,
)
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    ArtifactUpdate,
    Authentication,
    Event,
    EventBody,
    HttpAuthScheme,
    Message,
    MessageUpdate,
    Part,
    PushConfig,
    Role,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.protocol.lifecycle import fold

EVIL = "a\x1b[31mred\x07\x9b2J\r\nb\u202ec\u2028d\u200f"


def message(*texts: str) -> Message:
    return Message(message_id="m", role=Role.AGENT, parts=tuple(Part(text=text) for text in texts), context_id="c-1")


def task(state: TaskState = TaskState.WORKING, *artifacts: Artifact, said: str | None = None) -> Task:
    status = TaskStatus(state=state, message=None if said is None else message(said))
    return Task(id="t-1", context_id="c-1", status=status, artifacts=artifacts)


def artifact(*texts: str, id: str = "a-1", name: str | None = None) -> Artifact:
    return Artifact(artifact_id=id, name=name, parts=tuple(Part(text=text) for text in texts))


def chunk(text: str, *, append: bool = True, id: str = "a-1") -> ArtifactUpdate:
    return ArtifactUpdate(task_id="t-1", context_id="c-1", artifact=artifact(text, id=id), append=append)


def state(state: TaskState, said: str | None = None) -> StatusUpdate:
    return StatusUpdate(task_id="t-1", context_id="c-1", status=task(state, said=said).status)


def show(shown: ReplyPrinter, bodies: Iterable[EventBody]) -> None:
    """Have events shown as commands do."""
    events = [Event(seq=number, body=body) for number, body in enumerate(bodies)]
    for event in events:
        shown.event(event)
    first = events[0].body
    shown.end(fold(first, events[1:]) if isinstance(first, Task) else first)  # type: ignore[arg-type]  # or a message


def test_control_characters_are_neutralized() -> None:
    assert agent_output.safe(EVIL) == "a?[31mred??2J\nbc\nd"
    assert agent_output.field("Name", EVIL) == "Name: a?[31mred??2J bc d"
    assert agent_output.safe("tab\tnewline\nnbsp\u00a0 emoji \U0001f469\u200d\U0001f680") == (
        "tab\tnewline\nnbsp\u00a0 emoji \U0001f469\u200d\U0001f680"
    )


def test_a_task_is_fields_and_blocks() -> None:
    made = Artifact(
        artifact_id="a-1",
        name="report",
        description="all of it",
        parts=(
            Part(text="one "),
            Part(text="two\n"),
            Part(data={"n": 1}),
            Part(raw=b"abc", filename="x.bin", media_type="application/x"),
            Part(url="https://x.example/y"),
        ),
    )
    assert list(agent_output.of_task(task(TaskState.COMPLETED, made, said="done"))) == [
        "Task: t-1",
        "Context: c-1",
        "State: completed",
        "Status:",
        "done",
        "",
        "Artifact: report",
        "Description: all of it",
        "Text:",
        "one two",
        "",
        "Data:",
        "{",
        '  "n": 1',
        "}",
        "",
        "File: x.bin (application/x, 3 bytes)",
        "File: https://x.example/y",
    ]


def test_answers_are_taken_from_the_history_if_needed() -> None:
    quiet = Task(id="t-1", status=TaskStatus(state=TaskState.INPUT_REQUIRED), history=(message("Which day?"),))
    assert list(agent_output.of_task(quiet))[2:] == ["Message:", "Which day?", ""]
    assert list(agent_output.of_task(quiet, with_history=True))[2:] == ["Agent:", "Which day?", ""]
    assert "Which day?" not in list(agent_output.of_task(task(TaskState.COMPLETED, artifact("made"))))


def test_a_webhook_is_shown_without_its_secrets() -> None:
    config = PushConfig(
        url="https://x.example/hook?key=s3cret",
        id="w-1",
        task_id="t-1",
        token="s3cret",
        authentication=Authentication(scheme="Bearer", credentials="s3cret"),
    )
    lines = list(agent_output.of_push(config))
    assert lines == [
        "Webhook: w-1",
        "Task: t-1",
        "URL: https://x.example/hook?...",
        "Token: yes",
        "Authentication: Bearer",
    ]


@pytest.mark.parametrize("url", ["http://[", "https://x.example:none/", "", "https://x.example/hook"])
def test_webhooks_with_any_address_are_shown(url: str) -> None:
    assert f"URL: {url}" in list(agent_output.of_push(PushConfig(url=url)))


def test_cards_are_shown_with_skills_and_security() -> None:
    card = AgentCard(
        name="Booker",
        description="Books\ntables",
        version="1",
        supported_interfaces=(AgentInterface(url="https://x/", protocol_binding="JSONRPC", protocol_version="1.0"),),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=("text/plain",),
        default_output_modes=(),
        skills=(AgentSkill(id="s", name="Book", description="a table", tags=("food",)),),
        security_schemes={"b": SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="Bearer"))},
        security_requirements=(SecurityRequirement(schemes={"b": Scopes()}),),
    )
    assert list(agent_output.of_card(card)) == [
        "Name: Booker",
        "Description: Books tables",
        "Version: 1",
        "Interface: JSONRPC 1.0 https://x/",
        "Streaming: yes",
        "Push notifications: no",
        "Extended card: no",
        "Input: text/plain",
        "Output: -",
        "Security scheme: b: http auth Bearer",
        "Security: b",
        "Skill: s: Book [food]",
        "Skill description: a table",
    ]


STREAM: list[EventBody] = [
    task(TaskState.SUBMITTED),
    state(TaskState.WORKING, "looking"),
    chunk("Hel", append=False),
    chunk("lo\n"),
    chunk("you"),
    chunk("other", append=False, id="a-2"),
    state(TaskState.COMPLETED),
]


def test_a_stream_is_fields_and_blocks_that_grow(capsys: pytest.CaptureFixture[str]) -> None:
    show(LiveTextPrinter(Progress()), STREAM)
    assert capsys.readouterr().out.splitlines() == [
        "Task: t-1",
        "Context: c-1",
        "State: submitted",
        "State: working",
        "Status:",
        "looking",
        "",
        "Artifact: a-1",
        "Text:",
        "Hello",
        "you",
        "",
        "Artifact: a-2",
        "Text:",
        "other",
        "",
        "State: completed",
        "Task: t-1",
        "Context: c-1",
        "State: completed",
    ]


def test_repeated_state_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    """An acknowledgement, or a node of a graph that ended, repeats the state and leaves the block of the text open."""
    submitted, working = state(TaskState.SUBMITTED), state(TaskState.WORKING)
    again = state(TaskState.WORKING, "looking")
    pieces: list[EventBody] = [chunk("Hel", append=False), working, chunk("lo"), again, state(TaskState.COMPLETED)]
    show(LiveTextPrinter(Progress()), [task(TaskState.SUBMITTED), submitted, working, *pieces])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "State: submitted",
        "State: working",
        "Artifact: a-1",
        "Text:",
        "Hello",
        "",
        "Status:",
        "looking",
        "",
        "State: completed",
        "Task: t-1",
        "Context: c-1",
        "State: completed",
    ]


def test_restarted_streams_repeat_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    whole = task(TaskState.WORKING, artifact("Hello", " you"))
    show(
        LiveTextPrinter(Progress()),
        [task(), chunk("Hello", append=False), whole, chunk("!"), state(TaskState.COMPLETED)],
    )
    assert capsys.readouterr().out.count("Hello") == 1
    show(
        PlainTextPrinter(Progress()),
        [task(), chunk("Hello", append=False), whole, chunk("!"), state(TaskState.COMPLETED)],
    )
    assert capsys.readouterr().out == "Hello you!\n"


@pytest.mark.parametrize("first", ["0 ", ""])
def test_replaced_answers_are_marked(capsys: pytest.CaptureFixture[str], first: str) -> None:
    again: list[EventBody] = [chunk(first, append=False), chunk("1 "), chunk("2 "), state(TaskState.COMPLETED)]
    show(LiveTextPrinter(Progress()), [task(), chunk("0 ", append=False), chunk("1 "), *again])
    shown = capsys.readouterr()
    block = ["Artifact: a-1", "Text:"]
    assert shown.out.splitlines()[3:10] == [*block, "0 1 ", "", *block, f"{first}1 2 "]
    assert shown.err == f"{RESTARTED}\n"


def test_only_the_text_of_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    show(PlainTextPrinter(Progress()), STREAM)
    assert capsys.readouterr().out == "Hello\nyou\nother\n"
    show(PlainTextPrinter(Progress()), [task(), state(TaskState.INPUT_REQUIRED, "Which day?")])
    assert capsys.readouterr().out == "Which day?\n"
    show(PlainTextPrinter(Progress()), [message("just", " this")])
    assert capsys.readouterr().out == "just this\n"


@pytest.mark.parametrize(
    ("is_terminal", "printed"), [(False, "a\r\n\x1b[31mred\x00\u202e\r\nb\rc\n"), (True, "a\n?[31mred?\nb?c\n")]
)
def test_text_is_escaped_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, is_terminal: bool, printed: str) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
    monkeypatch.setattr(stdout, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stdout", stdout)
    show(PlainTextPrinter(Progress()), [message("a\r\n\x1b[31mred\x00\u202e\r\n", "b\rc")])
    assert stdout.buffer.getvalue().decode() == printed


def test_a_line_of_json_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    joined = MessageUpdate(task_id="t-1", context_id="c-1", message=message("joined"))
    show(JsonReplyPrinter(), [*STREAM[:3], joined, STREAM[-1]])
    found: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(one) for one in found] == [["task"], ["statusUpdate"], ["artifactUpdate"], ["statusUpdate"]]
    assert found[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_waiting_prints_one_answer(capsys: pytest.CaptureFixture[str]) -> None:
    show(ResultPrinter(Progress(), is_json=True), STREAM)
    found = json.loads(capsys.readouterr().out)
    assert [part["text"] for part in found["task"]["artifacts"][0]["parts"]] == ["Hel", "lo\n", "you"]
    show(ResultPrinter(Progress(), is_json=True), [message("hi")])
    assert json.loads(capsys.readouterr().out)["message"]["parts"] == [{"text": "hi"}]
    show(ResultPrinter(Progress(), is_json=False), STREAM)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["Task: t-1", "Context: c-1", "State: completed"]
    assert "Hello" in lines


def test_an_encoding_that_lacks_characters_still_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    agent_output.write("né\n")
    narrow.seek(0)
    assert narrow.read() == "n?\n"
