"""Crews of CrewAI: their variables, what their tasks give, a person's feedback."""

from collections.abc import Callable

import pytest

from accord.agents.crewai import AGENT_TYPE
from accord.api.agent_types import AgentArguments
from accord.model import Part, StatusUpdate, Task, TaskState
from tests.agents.contract.talking import chunk, made, status, text
from tests.agents.elsewhere import Talking

S = TaskState

pytestmark = pytest.mark.xdist_group("crewai")


@pytest.fixture
def talk(talking_in: Callable[[str], Talking]) -> Talking:
    """A function that lets a test talk to a crew."""
    return talking_in("crews")


def ended(task: Task) -> tuple[TaskState, str]:
    return task.status.state, text(task) or status(task)


def test_missing_frameworks_are_reported_in_one_line() -> None:
    with pytest.raises(ImportError, match=r"pip install 'accord\[crewai\]'"):
        AGENT_TYPE.make(AgentArguments(target=object(), options=AGENT_TYPE.options()))


# --- what a crew is told ----------------------------------------------------------------------------------------------


async def test_data_fills_variables_and_text_the_remaining_one(talk: Talking) -> None:
    async with talk("variables") as crew:
        assert ended(await crew.send({"topic": "tea", "year": 1990})) == (S.COMPLETED, "tea in 1990")
        assert ended(await crew.send("tea", Part(data={"year": 1990}))) == (S.COMPLETED, "tea in 1990")
        refused = await crew.send("tea")
        assert refused.status.state is S.REJECTED
        assert "topic, year" in status(refused)


async def test_the_text_may_have_a_variable_of_its_own(talk: Talking) -> None:
    async with talk("keyed") as crew:
        assert ended(await crew.send("tea", Part(data={"year": 1990}))) == (S.COMPLETED, "tea in 1990")
        refused = await crew.send("tea")
        assert (refused.status.state, "needs year" in status(refused)) == (S.REJECTED, True)


# --- what it gives ----------------------------------------------------------------------------------------------------


async def test_the_last_task_is_the_answer_and_the_others_are_progress(talk: Talking) -> None:
    async with talk("two") as crew:
        events = [event async for event in crew.stream("go")]
        said = [
            part.text
            for event in events
            if isinstance(event.body, StatusUpdate) and event.body.status.message
            for part in event.body.status.message.parts
        ]
        assert said == ["Worker has finished task 1 of 2"]
        assert "".join(map(chunk, events)) == "second go"
        assert isinstance(events[0].body, Task)
        task = await crew.get(events[0].body)
        assert [artifact.artifact_id for artifact in task.artifacts] == ["answer-1"]
    async with talk("every") as crew:
        task = await crew.send("go")
        given = {artifact.artifact_id: artifact.parts[0].text for artifact in task.artifacts}
        assert given == {"task-1": "first go", "answer-1": "second go"}


@pytest.mark.parametrize("name", ["typed", "plain"])
async def test_structured_output_is_data(talk: Talking, name: str) -> None:
    async with talk(name) as crew:
        task = await crew.send("which?")
        assert task.status.state is S.COMPLETED
        assert [part.data for part in made(task)] == [{"name": "Rome", "people": 2750000}]


async def test_intermediate_text_is_not_the_answer(talk: Talking) -> None:
    async with talk("tooled") as crew:
        assert ended(await crew.send("go")) == (S.COMPLETED, "it beats")


async def test_an_agent_alone_is_a_crew(talk: Talking) -> None:
    async with talk("alone") as agent:
        assert ended(await agent.send("which city?")) == (S.COMPLETED, "which city?")


async def test_failures_leak_nothing_to_callers(talk: Talking) -> None:
    async with talk("broken") as crew:
        task = await crew.send("go")
        assert (task.status.state, "hunter2" in status(task)) == (S.FAILED, False)


async def test_a_budget_ends_a_crew_between_two_calls_of_its_model(talk: Talking) -> None:
    async with talk("capped") as crew:
        task = await crew.send("go")
        assert task.status.state is S.FAILED
        assert "50" in status(task)
        used = (task.metadata or {})["usage"]["totalTokens"]
        assert 50 <= used <= 84, "12 for each call, and not many more than it may"


# --- what a person says to it -----------------------------------------------------------------------------------------


async def test_human_feedback_suspends_without_repeated_work(talk: Talking) -> None:
    async with talk("reviewed") as crew:
        task = await crew.send("go")
        assert (task.status.state, status(task)) == (S.INPUT_REQUIRED, "draft 2")
        task = await crew.send("make it shorter", task_id=task.id)
        assert (task.status.state, status(task)) == (S.INPUT_REQUIRED, "short draft")
        task = await crew.send("OK!", task_id=task.id)
        assert ended(task) == (S.COMPLETED, "short draft")
        calls = (crew.scratch / "steps").read_text().split()
        assert calls == ["1", "2", "2"], "the first task, the second one, and that again with the feedback"


async def test_feedback_may_be_a_decision(talk: Talking) -> None:
    async with talk("reviewed") as crew:
        asked = await crew.send("go")
        task = await crew.send({"approved": True}, task_id=asked.id)
        assert ended(task) == (S.COMPLETED, "draft 2")


async def test_the_example_answers(talk: Talking) -> None:
    async with talk("example") as crew:
        task = await crew.send("bridges")
        assert task.status.state is S.COMPLETED, status(task)
        assert "bridges" in text(task)
