"""A streamed artifact says when it is whole, and neither waits for that nor grows by it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from accord import Context, Failed, agent
from accord.model import Artifact, ArtifactUpdate, Event, Message, Part, Role, StatusUpdate, Task, TaskState
from accord.protocol import lifecycle
from accord.service.host import Host
from tests.engine.conftest import ALICE, Hosting, all_of, saying, states, text

S = TaskState
DONE = Message(message_id="done", role=Role.AGENT, parts=(Part(text="That was all"),))


@agent
async def at_once(ctx: Context) -> AsyncIterator[str]:
    """Gives everything in one breath."""
    yield "a"
    yield "b"


@agent
async def lingering(ctx: Context) -> AsyncIterator[str]:
    """Is not done when its last chunk is out."""
    yield "a"
    yield "b"
    await ctx.flush()


@agent
async def silent(ctx: Context) -> AsyncIterator[str]:
    """Gives nothing."""
    for word in ctx.text.split()[1:]:
        yield word


@agent
async def concluding(ctx: Context) -> AsyncIterator[str | Message]:
    """Ends with a message of its own."""
    yield "a"
    if "linger" in ctx.text:
        await ctx.flush()
    yield DONE


@agent
async def failing(ctx: Context) -> AsyncIterator[str]:
    """Fails half way."""
    yield "a"
    raise Failed("no more")


@agent
async def by_hand(ctx: Context) -> None:
    """Makes two artifacts in turns, finishes one, and one that it never began."""
    await ctx.artifact("a1", id="a", append=True, last_chunk=False)
    await ctx.artifact("b1", id="b", append=True, last_chunk=False)
    await ctx.artifact("a2", id="a", append=True, last_chunk=False)
    await ctx.finish("a")
    await ctx.finish("c")


@pytest.fixture
async def host(hosting: Hosting) -> Host:
    return await hosting(at_once, lingering, silent, concluding, failing, by_hand)


async def streamed(host: Host, name: str, said: str = "go") -> tuple[list[Event], Task]:
    """What a stream brought, and the task that is kept of it, which folding the stream gives as well."""
    events = await all_of(host.services[name].stream(saying(said), ALICE))
    task = events[0].body
    assert isinstance(task, Task)
    found = await host.node.task_store.read(ALICE.tenant, task.id)
    assert found is not None
    folded = lifecycle.fold(task, events[1:])
    assert (folded.artifacts, folded.status) == (found[1].artifacts, found[1].status)
    return events, found[1]


def chunks(events: list[Event]) -> list[tuple[Any, ...]]:
    updates = [event.body for event in events if isinstance(event.body, ArtifactUpdate)]
    return [(text_of(update.artifact), update.append, update.last_chunk) for update in updates]


def text_of(artifact: Artifact) -> str:
    return "".join(part.text or "" for part in artifact.parts)


@pytest.mark.proves("4-13")
async def test_pending_last_chunks_are_marked(host: Host) -> None:
    events, task = await streamed(host, "at_once")
    assert chunks(events) == [("a", False, False), ("b", True, True)]
    assert text(task) == "ab"


@pytest.mark.proves("4-13")
async def test_an_empty_chunk_marks_the_end(host: Host) -> None:
    events, task = await streamed(host, "lingering")
    assert chunks(events) == [("a", False, False), ("b", True, False), ("", True, True)]
    assert task.artifacts[0].parts == (Part(text="a"), Part(text="b"))


async def test_unstarted_artifacts_are_not_finished(host: Host) -> None:
    events, task = await streamed(host, "silent")
    assert (chunks(events), task.artifacts) == ([], ())
    assert states(events)[-1] is S.COMPLETED


@pytest.mark.parametrize(
    ("said", "expected"),
    [("go", [("a", False, True)]), ("linger", [("a", False, False), ("", True, True)])],
)
async def test_an_artifact_is_whole_before_the_task_is_completed_by_hand(
    host: Host, said: str, expected: list[tuple[Any, ...]]
) -> None:
    events, task = await streamed(host, "concluding", said)
    assert chunks(events) == expected
    assert isinstance(events[-1].body, StatusUpdate)
    assert (task.status.state, task.status.message) == (S.COMPLETED, DONE)


async def test_interrupted_artifacts_are_incomplete(host: Host) -> None:
    events, task = await streamed(host, "failing")
    assert chunks(events) == [("a", False, False)]
    assert task.status.state is S.FAILED


async def test_one_artifact_among_others_is_finished(host: Host) -> None:
    events, _ = await streamed(host, "by_hand")
    assert chunks(events) == [("a1", False, False), ("b1", False, False), ("a2", True, True)]
