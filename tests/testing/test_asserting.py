"""`assert_task`: what fits passes, and what does not is said all at once."""

import re
from typing import Any

import pytest

from accord.client import Reply
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    EventBody,
    Message,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.testing import assert_task


def message(text: str, role: Role = Role.AGENT) -> Message:
    return Message(message_id=text, role=role, parts=(Part(text=text),))


def artifact(id: str, text: str) -> Artifact:
    return Artifact(artifact_id=id, parts=(Part(text=text),))


TASK = Task(
    id="t1",
    context_id="c1",
    status=TaskStatus(state=TaskState.COMPLETED, message=message("bye")),
    artifacts=(artifact("a", "one"), artifact("b", "two")),
    history=(message("hello", Role.USER), message("hi")),
)
EVENTS: list[EventBody] = [
    Task(id="t1", context_id="c1", status=TaskStatus(state=TaskState.SUBMITTED)),
    StatusUpdate(task_id="t1", context_id="c1", status=TaskStatus(state=TaskState.WORKING)),
    ArtifactUpdate(task_id="t1", context_id="c1", artifact=artifact("a", "one")),
    StatusUpdate(task_id="t1", context_id="c1", status=TaskStatus(state=TaskState.COMPLETED)),
]


@pytest.mark.parametrize(
    "expected",
    [
        {},
        {"state": TaskState.COMPLETED},
        {"state": "completed", "text": "onetwo"},
        {"state": "COMPLETED", "text": re.compile("e.w")},
        {"artifacts": ["one", "two"]},
        {"artifacts": {"b": "two", "a": re.compile("^o")}},
        {"history": ["user: hello", "agent: hi"]},
        {"history": [re.compile("hel"), "agent: hi"]},
    ],
)
def test_matching_tasks_pass(expected: dict[str, Any]) -> None:
    assert assert_task(TASK, **expected) is TASK
    assert assert_task(Reply.of(TASK), **expected) is TASK


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({"state": "failed"}, "state: completed, not failed"),
        ({"state": "input-required"}, "state: completed, not input-required"),
        ({"text": "one"}, "text: 'onetwo', not 'one'"),
        ({"text": re.compile("three")}, "text: 'onetwo', not something with /three/"),
        ({"artifacts": ["one"]}, "artifacts[1]: 'two' was not expected"),
        ({"artifacts": ["one", "2"]}, "artifacts[1]: 'two', not '2'"),
        ({"artifacts": ["one", "two", "three"]}, "artifacts[2]: nothing, not 'three'"),
        ({"artifacts": {"a": "one"}}, "artifacts: 'b' was not expected"),
        ({"artifacts": {"a": "1", "b": "two"}}, "artifacts: 'a' is 'one', not '1'"),
        ({"artifacts": {"a": "one", "b": "two", "c": ""}}, "artifacts: there is no 'c', but a, b"),
        ({"history": []}, "history[0]: 'user: hello' was not expected"),
    ],
)
def test_differences_are_reported(expected: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_task(TASK, **expected)
    assert said in str(failed.value)


def test_all_differences_are_reported_with_the_task() -> None:
    with pytest.raises(AssertionError) as failed:
        assert_task(TASK, state="failed", text="x", artifacts=[], history=[])
    assert str(failed.value).splitlines() == [
        "The task t1 is not as expected:",
        "  state: completed, not failed",
        "  text: 'onetwo', not 'x'",
        "  artifacts[0]: 'one' was not expected",
        "  artifacts[1]: 'two' was not expected",
        "  history[0]: 'user: hello' was not expected",
        "  history[1]: 'agent: hi' was not expected",
        "It is:",
        "  state completed: 'bye'",
        "  artifact 'a': 'one'",
        "  artifact 'b': 'two'",
        "  user: 'hello'",
        "  agent: 'hi'",
    ]


def test_a_long_text_is_cut() -> None:
    long = Task(
        id="t", context_id="c", status=TaskStatus(state=TaskState.COMPLETED), artifacts=(artifact("a", "x" * 999),)
    )
    with pytest.raises(AssertionError) as failed:
        assert_task(long, text="y")
    assert max(map(len, str(failed.value).splitlines())) < 300


def test_events_add_up_to_a_task_and_have_an_outline() -> None:
    outline = ["submitted", "working", "artifact", "completed"]
    found = assert_task([Event(body=body, seq=seq) for seq, body in enumerate(EVENTS, 1)], events=outline, text="one")
    assert found.status.state is TaskState.COMPLETED
    with pytest.raises(AssertionError, match=re.escape("events[1]: 'working', not 'artifact'")):
        assert_task(EVENTS, events=["submitted", "artifact", "completed"])
    with pytest.raises(TypeError, match="pass the events of its stream"):
        assert_task(TASK, events=outline)


def test_non_tasks_are_reported() -> None:
    with pytest.raises(AssertionError, match="a message without a task: 'hi'"):
        assert_task(Reply.of(message("hi")), state="completed")
    with pytest.raises(AssertionError, match="a message without a task"):
        assert_task(message("hi"))  # type: ignore[arg-type]  # people try
    with pytest.raises(AssertionError, match="this is NoneType"):
        assert_task([])
    with pytest.raises(KeyError):
        assert_task(TASK, state="finished")
