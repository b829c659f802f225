"""Agents of Google's ADK: their sessions, what they wait for, what they say."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from accord.agents.adk import AGENT_TYPE
from accord.api.agent_types import AgentArguments
from accord.model import StatusUpdate, Task, TaskState
from tests.agents.contract.scratch import BEAT_SECONDS
from tests.agents.contract.talking import BOUND_SECONDS, chunk, made, status, text
from tests.agents.elsewhere import Served, Talking

S = TaskState
NAMES = ("confirmed", "twice", "private", "saved", "typed", "broken", "remembers", "meets", "blocks", "app", "runner")

AGENTS = {name: f'target = "tests.agents.adk.agents:{name}"' for name in NAMES}
AGENTS["example"] = 'target = "examples.agents.adk_agent:agent"'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The agents, and the example's."""
    found = Served(tmp_path_factory.mktemp("adk"), "google-adk", AGENTS)
    yield found
    found.stop()


@pytest.fixture
def talk(served: Served) -> Talking:
    """A function that lets a test talk to an agent."""
    return served.talking


def ended(task: Task) -> tuple[TaskState, str]:
    return task.status.state, text(task) or status(task)


def data_of(task: Task) -> Any:
    assert task.status.message is not None
    return task.status.message.parts[1].data


def test_missing_frameworks_are_reported_in_one_line() -> None:
    with pytest.raises(ImportError, match=r"pip install 'accord\[adk\]'"):
        AGENT_TYPE.make(AgentArguments(target=object(), options=AGENT_TYPE.options()))


# --- its session ------------------------------------------------------------------------------------------------------


async def test_a_session_survives_the_server(served: Served, talk: Talking) -> None:
    async with talk("remembers") as agent:
        first = await agent.send("my name is Ada")
        assert ended(first) == (S.COMPLETED, "my name is Ada")
    async with talk("twice") as agent:
        asked = await agent.send("book")
        assert asked.status.state is S.INPUT_REQUIRED
    await asyncio.to_thread(served.kill)
    async with talk("remembers") as agent:
        again = await agent.send("and now?", context_id=first.context_id)
        assert text(again) == "my name is Ada my name is Ada and now?"
    async with talk("twice") as agent:
        asked = await agent.send("Rome", task_id=asked.id)
        done = await agent.send("Oslo", task_id=asked.id)
        assert ended(done) == (S.COMPLETED, "Two things. Rome and Oslo")


@pytest.mark.parametrize("name", ["app", "runner"])
async def test_apps_and_runners_have_conversations_too(talk: Talking, name: str) -> None:
    async with talk(name) as agent:
        first = await agent.send("one")
        again = await agent.send("two", context_id=first.context_id)
        assert (text(first), text(again)) == ("one", "one one two")
        assert text(await agent.send("three")) == "three"


# --- at the same time -------------------------------------------------------------------------------------------------


async def test_concurrent_tasks_are_both_in_the_session(talk: Talking) -> None:
    async with talk("meets") as agent:
        first = await agent.send("one")
        same: dict[str, Any] = {"context_id": first.context_id}
        async with asyncio.timeout(BOUND_SECONDS):
            both = await asyncio.gather(agent.send("together a", **same), agent.send("together b", **same))
        assert sorted(map(text, both)) == ["one one together a", "one one together b"]
        last = text(await agent.send("last", **same))
    turns = [f"together {one} one one together {one}" for one in "ab"]
    assert last in [f"one one {first} {second} last" for first, second in (turns, turns[::-1])]


async def test_blocking_tools_do_not_block_other_tasks(talk: Talking) -> None:
    async with talk("blocks") as agent, talk("remembers") as other:
        task = await agent.send("go", at_once=True)
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                while not (agent.scratch / "steps").exists():  # noqa: ASYNC110  # it is said by another process
                    await asyncio.sleep(BEAT_SECONDS)
                events = [event async for event in other.stream("hello")]
                assert "".join(map(chunk, events)) == "hello", "while the tool of another task blocks"
                assert (await agent.get(task)).status.state is S.WORKING
        finally:
            (agent.scratch / "go").touch()
        assert ended(await agent.reaches(task, S.COMPLETED)) == (S.COMPLETED, "{'result': 'waited'}")


# --- what it waits for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("yes", "{'result': 'deleted /x'}"),
        ({"confirmed": True}, "{'result': 'deleted /x'}"),
        ("rather not", "{'error': 'This tool call is rejected.'}"),
    ],
)
async def test_approved_tools_are_called(talk: Talking, answer: Any, result: str) -> None:
    async with talk("confirmed") as agent:
        asked = await agent.send("tidy up")
        assert (asked.status.state, "delete" in status(asked)) == (S.INPUT_REQUIRED, True)
        assert data_of(asked)["args"]["originalFunctionCall"]["args"] == {"path": "/x"}
        assert ended(await agent.send(answer, task_id=asked.id)) == (S.COMPLETED, result)


async def test_pending_tool_calls_are_confirmed_one_by_one(talk: Talking) -> None:
    async with talk("twice") as agent:
        task = await agent.send("book")
        assert (task.status.state, status(task)) == (S.INPUT_REQUIRED, "From where?")
        task = await agent.send("Rome", task_id=task.id)
        assert (task.status.state, status(task)) == (S.INPUT_REQUIRED, "To where?")
        task = await agent.send({"result": "Oslo"}, task_id=task.id)
        assert ended(task) == (S.COMPLETED, "Two things. Rome and Oslo")


async def test_credential_requests_are_auth_required(talk: Talking) -> None:
    async with talk("private") as agent:
        asked = await agent.send("what is on?")
        assert asked.status.state is S.AUTH_REQUIRED
        call = data_of(asked)
        assert call["name"] == "adk_request_credential"
        assert "https://a.test/auth" in str(call["args"])


# --- what it says -----------------------------------------------------------------------------------------------------


async def test_saved_files_are_artifacts_and_thoughts_are_dropped(talk: Talking) -> None:
    async with talk("saved") as agent:
        events = [event.body async for event in agent.stream("draw a map")]
        assert isinstance(events[0], Task)
        task = await agent.get(events[0])
    progress = [
        part.text
        for body in events
        if isinstance(body, StatusUpdate) and body.status.message
        for part in body.status.message.parts
    ]
    assert progress == ["subject calls save"]
    files = {artifact.artifact_id: artifact.parts for artifact in task.artifacts}
    assert files["map.png"][0].raw == b"\x89PNG"
    assert (files["map.png"][0].media_type, text(task)) == ("image/png", "It is saved.")


async def test_an_answer_with_a_schema_is_data(talk: Talking) -> None:
    async with talk("typed") as agent:
        task = await agent.send("which?")
        assert task.status.state is S.COMPLETED
        assert [part.data for part in made(task)] == [{"name": "Rome"}]


async def test_failures_leak_nothing_to_callers(talk: Talking) -> None:
    async with talk("broken") as agent:
        task = await agent.send("go")
        assert (task.status.state, "hunter2" in status(task)) == (S.FAILED, False)


async def test_the_example_asks_and_answers(talk: Talking) -> None:
    async with talk("example") as agent:
        asked = await agent.send("a table for two")
        assert (asked.status.state, status(asked)) == (S.INPUT_REQUIRED, "Is Friday fine?")
        task = await agent.send("yes", task_id=asked.id)
        assert task.status.state is S.COMPLETED, status(task)
        assert "yes" in text(task)
