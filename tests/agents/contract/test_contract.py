"""What every agent type keeps, whatever is behind it: one suite, one subject for each type."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from accord.api.agent_types import AGENT_TYPES
from accord.engine.agent import Crash
from accord.engine.node import LATE
from accord.model import Part, StatusUpdate, TaskState
from tests.agents.contract import subjects
from tests.agents.contract.homes import Homes
from tests.agents.contract.scratch import BEAT_SECONDS
from tests.agents.contract.subjects import ALWAYS, SOMETIMES, Subject
from tests.agents.contract.talking import (
    HURRIED,
    Talk,
    beats,
    chunk,
    goes_on,
    made,
    silence,
    status,
    steps,
    text,
)

BEATS_A_SECOND = round(1 / BEAT_SECONDS)

NAMES = subjects.names()
FOUND: dict[str, Subject] = {}
for _name in NAMES:
    try:
        FOUND[_name] = subjects.subject(_name)
    except Exception:  # one test says why, and the other subjects are tested all the same
        continue


def having(behaviour: str, *, is_served: bool = False) -> pytest.MarkDecorator:
    """For each subject that has a behaviour; those who share what is started once for all tests are on one worker."""
    found = {name: subject for name, subject in FOUND.items() if behaviour in subject.has}
    homes = {name: subject.serve or ("here" if is_served else name) for name, subject in found.items()}
    marks = {name: pytest.mark.xdist_group(f"contract-{home}") for name, home in homes.items()}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=mark) for name, mark in marks.items()])


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    """Where the subjects' agents are."""
    found = Homes(FOUND, tmp_path_factory.mktemp)
    yield found
    found.close()


Talking = Callable[[str, str], AbstractAsyncContextManager[Talk]]


@pytest.fixture
def talking(homes: Homes) -> Talking:
    """A function that lets a test talk to a subject's agent."""
    return homes.talking


@pytest.mark.parametrize("name", NAMES)
def test_subjects_declare_their_capabilities(name: str) -> None:
    subject = subjects.subject(name)
    assert ALWAYS <= subject.has <= ALWAYS | SOMETIMES
    assert (subject.make is None) is (subject.serve is not None), "it is made here or served elsewhere"
    assert subject.crash is not Crash.RESUME or "steps" in subject.has, "what resumes has something to resume"


def test_every_kind_of_ours_is_tried() -> None:
    assert set(AGENT_TYPES.ours) <= {found.kind.replace("_", "-") for found in FOUND.values()}


# --- what it says -----------------------------------------------------------------------------------------------------


@pytest.mark.proves("1-61")
@having("echo")
async def test_it_answers(name: str, talking: Talking) -> None:
    async with talking(name, "echo") as talk:
        task = await talk.send("hello")
        assert (task.status.state, text(task)) == (TaskState.COMPLETED, "you said hello")


@having("stream")
async def test_it_answers_in_chunks_of_one_artifact(name: str, talking: Talking) -> None:
    async with talking(name, "stream") as talk:
        events = [event async for event in talk.stream("go")]
    chunks = [event for event in events if chunk(event)]
    assert len(chunks) >= 3
    assert "".join(map(chunk, chunks)) == "one two three "
    assert len({event.body.artifact.artifact_id for event in chunks}) == 1  # type: ignore[union-attr]
    end = events[-1].body
    assert isinstance(end, StatusUpdate)
    assert end.status.state is TaskState.COMPLETED


@having("held")
async def test_a_chunk_is_there_before_the_next_is_made(name: str, talking: Talking) -> None:
    async with talking(name, "held") as talk:
        said = ""
        async for event in talk.stream("go"):
            said += chunk(event)
            if said == "one ":
                (talk.scratch / "go").touch()
        (talk.scratch / "go").unlink()
    assert said == "one two "


@having("remember")
async def test_a_conversation_is_remembered_by_its_context_alone(name: str, talking: Talking) -> None:
    async with talking(name, "remember") as talk:
        first = await talk.send("my name is Ada")
        again = await talk.send("and again", context_id=first.context_id)
        assert "Ada" in text(again)
        assert "Ada" not in text(await talk.send("and elsewhere"))


@having("ask")
async def test_it_asks_and_is_answered(name: str, talking: Talking) -> None:
    async with talking(name, "ask") as talk:
        asked = await talk.send("book a trip")
        assert asked.status.state is TaskState.INPUT_REQUIRED
        assert "Which city?" in status(asked)
        answered = await talk.send("Rome", task_id=asked.id)
        assert answered.status.state is TaskState.COMPLETED, status(answered)
        assert text(answered).count("to Rome") == 1


@having("file")
async def test_it_takes_a_file_and_gives_one(name: str, talking: Talking) -> None:
    content = bytes(range(256))
    given = Part(raw=content, filename="given.bin", media_type="application/octet-stream")
    async with talking(name, "file") as talk:
        task = await talk.send(Part(text="take this"), given)
        assert task.status.state is TaskState.COMPLETED, status(task)
        assert content + b"!" in [part.raw for part in made(task)]


@having("usage")
async def test_usage_is_reported(name: str, talking: Talking) -> None:
    async with talking(name, "usage") as talk:
        task = await talk.send("go")
        assert task.status.state is TaskState.COMPLETED, status(task)
        used: dict[str, Any] = (task.metadata or {})["usage"]
        assert (used["inputTokens"], used["outputTokens"], used["totalTokens"]) == (7, 5, 12)


# --- how it ends ------------------------------------------------------------------------------------------------------


@having("fail")
async def test_its_failure_is_explained_and_nothing_more(name: str, talking: Talking) -> None:
    async with talking(name, "fail") as talk:
        task = await talk.send("weather")
        assert task.status.state is TaskState.FAILED
        assert "no such city" in status(task)
        assert not any(word in status(task) for word in ("Traceback", 'File "', ".py", "0x"))


@having("slow")
async def test_cancelled_it_stops_within_a_second(name: str, talking: Talking) -> None:
    async with talking(name, "slow") as talk:
        task = await talk.send("work", at_once=True)
        await goes_on(talk.scratch)
        cancelled = await talk.cancel(task)
        before = beats(talk.scratch)
        assert cancelled.status.state is TaskState.CANCELED
        assert await silence(talk.scratch) - before <= BEATS_A_SECOND
        assert (await talk.get(task)).status.state is TaskState.CANCELED


@having("slow")
async def test_it_is_stopped_when_its_time_is_up(name: str, talking: Talking) -> None:
    async with talking(name, HURRIED) as talk:
        already = beats(talk.scratch)
        task = await talk.send("work")
        assert (task.status.state, status(task)) == (TaskState.FAILED, LATE)
        before = beats(talk.scratch)
        assert before > already, "it had begun"
        assert await silence(talk.scratch) - before <= BEATS_A_SECOND


# --- when its process is killed ---------------------------------------------------------------------------------------


@having("slow", is_served=True)
async def test_killed_agents_follow_their_crash_policy(name: str, homes: Homes) -> None:
    subject, scratch = FOUND[name], homes.scratch(name)
    killed = await homes.killed(name)
    task = killed.tasks["slow"]
    async with homes.over_http(name, "slow") as talk:
        if subject.crash is Crash.FAIL:
            failed = await talk.reaches(task, TaskState.FAILED)
            assert "once" in status(failed)
            assert beats(scratch) == killed.beats, "it is not done twice"
            return
        await goes_on(scratch)
        cancelled = await talk.cancel(task)
        assert cancelled.status.state is TaskState.CANCELED
        await silence(scratch)


@having("steps", is_served=True)
async def test_killed_agents_resume(name: str, homes: Homes) -> None:
    task = (await homes.killed(name)).tasks["steps"]
    async with homes.over_http(name, "steps") as talk:
        done = await talk.reaches(task, TaskState.COMPLETED)
        assert text(done) == "done"
    again = [] if FOUND[name].lives_on else ["2"]
    assert steps(homes.scratch(name)) == ["1", "2", *again, "3"], "what was done is not done again"
