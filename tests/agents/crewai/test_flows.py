"""Flows of CrewAI: what they begin with, what they say on the way, what they ask, what is not done twice."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accord.model import Event, StatusUpdate, Task, TaskState
from tests.agents.contract.talking import BOUND_SECONDS, made, status, text
from tests.agents.elsewhere import Talking
from tests.environments import interpreter
from tests.serve.running import environment

S = TaskState
FLOWS = "tests.agents.crewai.flows"

pytestmark = pytest.mark.xdist_group("crewai")


@pytest.fixture
def talk(talking_in: Callable[[str], Talking]) -> Talking:
    """A function that lets a test talk to a flow."""
    return talking_in("flows")


def ended(task: Task) -> tuple[TaskState, str]:
    return task.status.state, text(task) or status(task)


def data(task: Task) -> Any:
    assert task.status.state is S.COMPLETED, status(task)
    (part,) = made(task)
    return part.data


def progress(events: list[Event]) -> list[str]:
    return [
        part.text or ""
        for event in events
        if isinstance(event.body, StatusUpdate) and event.body.status.message
        for part in event.body.status.message.parts
    ]


# --- what it does -----------------------------------------------------------------------------------------------------


async def test_the_last_method_is_the_answer_and_each_is_progress(talk: Talking) -> None:
    async with talk("steps") as flow:
        events = [event async for event in flow.stream("go")]
        assert progress(events) == ["first is done", "second is done", "third is done"]
        assert isinstance(events[0].body, Task)
        task = await flow.get(events[0].body)
        assert ended(task) == (S.COMPLETED, "one 2 ['first', 'second'] go")


async def test_ways_that_part_and_methods_that_run_at_a_time(talk: Talking) -> None:
    async with talk("routed") as flow:
        assert text(await flow.send("far too long")) == "far t"
        assert text(await flow.send("short")) == "short"
    async with talk("both") as flow:
        assert text(await flow.send("go")) in ("one", "two")


async def test_a_flow_returns_the_output_of_its_crew_and_counts_tokens(talk: Talking) -> None:
    async with talk("crewed") as flow:
        task = await flow.send("tea")
        assert ended(task) == (S.COMPLETED, "you said tea")
        assert (task.metadata or {})["usage"]["totalTokens"] == 12


async def test_failures_leak_nothing_to_callers(talk: Talking) -> None:
    async with talk("broken") as flow:
        task = await flow.send("go")
        assert (task.status.state, "hunter2" in status(task)) == (S.FAILED, False)


# --- its state --------------------------------------------------------------------------------------------------------


async def test_a_text_is_the_field_that_is_left_and_data_names_fields(talk: Talking) -> None:
    async with talk("typed") as flow:
        assert data(await flow.send("tea")) == {"said": ["tea"], "lines": 2}
        assert data(await flow.send({"topic": "tea", "lines": 3})) == {"said": ["tea"], "lines": 3}
        refused = await flow.send({"lines": "many"})
        assert (refused.status.state, "lines" in status(refused)) == (S.REJECTED, True)
    async with talk("instance") as flow:
        assert data(await flow.send("tea")) == {"said": ["tea"], "lines": 7}


async def test_a_conversation_has_a_state(talk: Talking) -> None:
    async with talk("typed") as flow:
        first = await flow.send("one")
        again = await flow.send("two", context_id=first.context_id)
        assert data(again)["said"] == ["one", "two"]
        assert data(await flow.send("three"))["said"] == ["three"]
        theirs = await flow.send({"topic": "four", "id": first.context_id})
        assert data(theirs)["said"] == ["four"], "the id of a state is nothing that callers choose"
    async with talk("forgets") as flow:
        first = await flow.send("one")
        assert data(await flow.send("two", context_id=first.context_id))["said"] == ["two"]


# --- what it asks -----------------------------------------------------------------------------------------------------


async def test_flow_questions_are_answered_without_repeated_work(talk: Talking) -> None:
    async with talk("asks") as flow:
        task = await flow.send("go")
        for question, answer in (("When?", "May"), ("Who?", "Ada"), ("What?", "tea")):
            assert (task.status.state, status(task)) == (S.INPUT_REQUIRED, question)
            task = await flow.send(answer, task_id=task.id)
        assert ended(task) == (S.COMPLETED, "Ada likes tea in Rome May, 1")
        assert (flow.scratch / "steps").read_text().split() == ["1", "2", "2"], "the second was asked within"


async def test_human_feedback_is_requested(talk: Talking) -> None:
    async with talk("reviewed") as flow:
        task = await flow.send("go")
        assert (task.status.state, status(task)) == (S.INPUT_REQUIRED, "Is it good?\n\na draft")
        task = await flow.send("very", task_id=task.id)
        assert ended(task) == (S.COMPLETED, "a draft: very")
        assert (flow.scratch / "steps").read_text().split() == ["1"]


# --- which things are flows -------------------------------------------------------------------------------------------


def test_a_flow_that_cannot_be_made_again_is_refused(tmp_path: Path) -> None:
    python, env = str(interpreter("crewai")), environment(tmp_path, SCRATCH=str(tmp_path))
    command = [python, "-m", "accord", "serve", f"{FLOWS}:Needy"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False, env=env, cwd=tmp_path
    )
    assert (done.returncode, "Needy cannot be made again" in " ".join(done.stderr.split())) == (2, True), done.stderr
