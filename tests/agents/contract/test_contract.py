"""What every kind of agent keeps, whatever is behind it: one suite, one subject for each kind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from accord.agents.kinds import KINDS
from accord.core.agent import Crash
from accord.core.engine import LATE
from accord.model import Part, StatusUpdate, TaskState
from tests.agents.contract import subjects
from tests.agents.contract.scratch import BEAT_SECONDS
from tests.agents.contract.subjects import ALWAYS, SOMETIMES, Subject
from tests.agents.contract.talking import (
    BOUND_SECONDS,
    HURRIED,
    Talk,
    beats,
    chunk,
    goes_on,
    in_process,
    made,
    over_http,
    serve,
    silence,
    status,
    text,
)
from tests.serve.running import Server

BEATS_A_SECOND = round(1 / BEAT_SECONDS)

NAMES = subjects.names()
FOUND: dict[str, Subject] = {}
for _name in NAMES:
    try:
        FOUND[_name] = subjects.subject(_name)
    except Exception:  # one test says why, and the other subjects are tested all the same
        continue


def having(behaviour: str) -> pytest.MarkDecorator:
    """For each subject that has a behaviour; what is served once for all its tests is on one worker."""
    names = [name for name, found in FOUND.items() if behaviour in found.has]
    return pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in names])


Talking = Callable[[str, str], AbstractAsyncContextManager[Talk]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[Server, Path]]]:
    """A function that serves all behaviours of a subject which is elsewhere, once for all tests."""
    known: dict[str, tuple[Server, Path]] = {}
    with ExitStack() as stack:

        def start(name: str) -> tuple[Server, Path]:
            if name not in known:
                folder = tmp_path_factory.mktemp(name)
                server = serve(name, FOUND[name], folder, FOUND[name].has | {HURRIED})
                stack.callback(server.stop)
                known[name] = server, folder
            return known[name]

        yield start


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """A function that starts what a subject needs beside it, once."""
    known: set[str] = set()
    with ExitStack() as stack:

        def start(name: str) -> None:
            run = FOUND[name].beside
            if run is not None and name not in known:
                known.add(name)
                stack.enter_context(run(tmp_path))

        yield start


@pytest.fixture
def talking(served: Callable[[str], tuple[Server, Path]], beside: Callable[[str], None], tmp_path: Path) -> Talking:
    """A function that lets a test talk to a subject's agent."""

    def talk(name: str, behaviour: str) -> AbstractAsyncContextManager[Talk]:
        beside(name)
        if FOUND[name].make is not None:
            return in_process(FOUND[name], behaviour, tmp_path)
        server, folder = served(name)
        return over_http(server, FOUND[name], behaviour, folder)

    return talk


@pytest.mark.parametrize("name", NAMES)
def test_a_subject_says_what_it_can(name: str) -> None:
    subject = subjects.subject(name)
    assert ALWAYS <= subject.has <= ALWAYS | SOMETIMES
    assert (subject.make is None) is (subject.serve is not None), "it is made here or served elsewhere"
    assert subject.crash is not Crash.RESUME or "steps" in subject.has, "what resumes has something to resume"


def test_every_kind_of_ours_is_tried() -> None:
    assert set(KINDS.ours) <= {found.kind.replace("_", "-") for found in FOUND.values()}


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
async def test_it_says_what_it_used(name: str, talking: Talking) -> None:
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


@pytest.fixture
async def nodes(tmp_path: Path, beside: Callable[[str], None]) -> AsyncIterator[Callable[[str, str], Any]]:
    """A function that starts a node of a subject; what still runs in the end is killed."""
    started: list[Server] = []

    async def start(name: str, behaviour: str) -> Server:
        await asyncio.to_thread(beside, name)
        server = await asyncio.to_thread(serve, name, FOUND[name], tmp_path, frozenset({behaviour}))
        started.append(server)
        return server

    yield start
    for server in started:
        await asyncio.to_thread(server.kill)


Nodes = Callable[[str, str], Any]


@having("slow")
async def test_killed_it_is_run_again_or_fails_as_it_says(name: str, nodes: Nodes, tmp_path: Path) -> None:
    subject = FOUND[name]
    first: Server = await nodes(name, "slow")
    async with over_http(first, subject, "slow", tmp_path) as talk:
        task = await talk.send("work", at_once=True)
        await goes_on(tmp_path)
    await asyncio.to_thread(first.kill)
    if not subject.lives_on:
        await silence(tmp_path)
    before = beats(tmp_path)
    second: Server = await nodes(name, "slow")
    async with over_http(second, subject, "slow", tmp_path) as talk:
        if subject.crash is Crash.FAIL:
            failed = await talk.reaches(task, TaskState.FAILED)
            assert "once" in status(failed)
            assert beats(tmp_path) == before, "it is not done twice"
            return
        await goes_on(tmp_path)
        cancelled = await talk.cancel(task)
        assert cancelled.status.state is TaskState.CANCELED
        await silence(tmp_path)


@having("steps")
async def test_killed_it_goes_on_where_it_was(name: str, nodes: Nodes, tmp_path: Path) -> None:
    first: Server = await nodes(name, "steps")
    async with over_http(first, FOUND[name], "steps", tmp_path) as talk:
        task = await talk.send("go", at_once=True)
        await _did(tmp_path, "1", "2")
    await asyncio.to_thread(first.kill)
    again = [] if FOUND[name].lives_on else ["2"]
    second: Server = await nodes(name, "steps")
    async with over_http(second, FOUND[name], "steps", tmp_path) as talk:
        await _did(tmp_path, "1", "2", *again)  # only now, or else what the first had begun could still go on
        (tmp_path / "go").touch()
        done = await talk.reaches(task, TaskState.COMPLETED)
        assert text(done) == "done"
    assert _steps(tmp_path) == ["1", "2", *again, "3"], "what was done is not done again"


async def _did(scratch: Path, *done: str) -> None:
    """Wait until these steps are done."""
    async with asyncio.timeout(BOUND_SECONDS):
        while _steps(scratch) != list(done):  # noqa: ASYNC110  # it is done in another process
            await asyncio.sleep(0.02)


def _steps(scratch: Path) -> list[str]:
    file = scratch / "steps"
    return file.read_text().split() if file.exists() else []
