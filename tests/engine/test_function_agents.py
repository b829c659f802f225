"""Functions as agents: what they may be, take, give back and raise."""

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from accord import Context, agent
from accord.agents.function import FunctionAgent
from accord.engine.agent import Crash, Profile
from accord.engine.messages import parts_of
from accord.engine.outcome import Failed, Rejected
from accord.errors import InvalidParams
from accord.model import AgentSkill, Artifact, CancelRequest, Message, Part, Role, Task, TaskState
from accord.service.host import Host
from tests.cases import each
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, said, saying, state, text
from tests.engine.doubles import sent

if TYPE_CHECKING:
    from decimal import Decimal  # a name that cannot be looked up while the tests run

S = TaskState


async def answers(hosting: Hosting, *agents: FunctionAgent, word: str = "you") -> dict[str, Task]:
    """What each agent answers."""
    host = await hosting(*agents)
    return {name: await sent(service, saying(word), ALICE) for name, service in host.services.items()}


# --- what may be an agent -----------------------------------------------------------------------------------------


class Greeter:
    async def __call__(self, ctx: Context) -> str:
        return f"hello {ctx.text}"


class Slow:
    def __call__(self, ctx: Context) -> str:
        return f"hello {ctx.text}"


class Streamer:
    async def __call__(self, ctx: Context) -> AsyncIterator[str]:
        yield "hello "
        yield ctx.text


class Counter:
    def __call__(self, ctx: Context) -> Iterator[str]:
        yield "hello "
        yield ctx.text


async def streams(ctx: Context) -> AsyncIterator[str]:
    yield "hello "
    yield ctx.text


async def returns(ctx: Context) -> str:
    return f"hello {ctx.text}"


def blocks(ctx: Context) -> str:
    return f"hello {ctx.text}"


def walks(ctx: Context) -> Iterator[str]:
    yield "hello "
    yield ctx.text


async def greets(word: str, ctx: Context) -> str:
    return f"{word} {ctx.text}"


async def test_any_callable_is_an_agent(hosting: Hosting) -> None:
    kinds: list[Any] = [streams, returns, blocks, walks, Greeter(), Slow(), Streamer(), Counter()]
    agents = [agent(name=f"kind-{at}")(kind) for at, kind in enumerate(kinds)]
    agents.append(agent(name="partial")(functools.partial(greets, "hello")))
    found = await answers(hosting, *agents)
    assert {name: (state(task), text(task)) for name, task in found.items()} == {
        made.profile.name: (S.COMPLETED, "hello you") for made in agents
    }


@agent
async def from_context(ctx: Context) -> str:
    return ctx.text


@agent
async def from_anything(it) -> str:
    assert isinstance(it, Context)
    return it.text


@agent
async def from_text(text: str) -> str:
    return text


@agent
async def from_quoted_text(text: "str") -> "Decimal":
    return text  # type: ignore[return-value]


@agent
async def from_message(message: Message) -> str:
    return message.parts[0].text or ""


@agent
async def from_nothing() -> str:
    return "you"


async def test_functions_get_input_by_parameter_type(hosting: Hosting) -> None:
    agents = (from_context, from_anything, from_text, from_quoted_text, from_message, from_nothing)
    found = await answers(hosting, *agents)
    assert {name: text(task) for name, task in found.items()} == {made.profile.name: "you" for made in agents}


# --- what may be given back ---------------------------------------------------------------------------------------


class Point(msgspec.Struct):
    x: int
    y: int


class Modelled:
    """What pydantic's models look like from outside."""

    def model_dump(self, mode: str) -> dict[str, str]:
        return {"mode": mode}


PARTS = (Part(text="a"), Part(url="https://example.com/b"))

RETURNED: list[tuple[Any, tuple[Part, ...]]] = [
    ("text", (Part(text="text"),)),
    ("", (Part(text=""),)),
    (b"raw", (Part(raw=b"raw", media_type="application/octet-stream"),)),
    (bytearray(b"raw"), (Part(raw=b"raw", media_type="application/octet-stream"),)),
    ({"a": [1]}, (Part(data={"a": [1]}, media_type="application/json"),)),
    (["a", "b"], (Part(data=["a", "b"], media_type="application/json"),)),
    ([], (Part(data=[], media_type="application/json"),)),
    (0, (Part(data=0, media_type="application/json"),)),
    (False, (Part(data=False, media_type="application/json"),)),
    (Part(text="part"), (Part(text="part"),)),
    (list(PARTS), PARTS),
    (PARTS, PARTS),
    (Point(1, 2), (Part(data={"x": 1, "y": 2}, media_type="application/json"),)),
    (Modelled(), (Part(data={"mode": "json"}, media_type="application/json"),)),
]


@each(("value", "parts"), RETURNED)
def test_values_are_parts(value: Any, parts: tuple[Part, ...]) -> None:
    assert parts_of(value) == parts


async def test_return_values_are_artifacts(hosting: Hosting) -> None:
    def returning(value: Any) -> Any:
        return lambda _: value

    agents = [agent(name=f"value-{at}")(returning(value)) for at, (value, _) in enumerate(RETURNED)]
    found = await answers(hosting, *agents)
    for made, (_, parts) in zip(agents, RETURNED, strict=True):
        task = found[made.profile.name]
        assert state(task) is S.COMPLETED
        assert [artifact.parts for artifact in task.artifacts] == [parts]


@agent
async def nothing(ctx: Context) -> None:
    """Does its work without a word."""


@agent
async def a_message(ctx: Context) -> Message:
    return Message(message_id="m", role=Role.AGENT, parts=(Part(text="done"),))


@agent
async def an_artifact(ctx: Context) -> Artifact:
    return Artifact(
        artifact_id="a", name="n", description="d", parts=(Part(text="x"),), metadata={"k": 1}, extensions=("urn:e",)
    )


@agent
async def a_mixture(ctx: Context) -> AsyncIterator[Any]:
    yield "one"
    yield None
    yield {"two": 2}
    yield [Part(text="three"), Part(text="four")]
    yield Artifact(artifact_id="beside", parts=(Part(text="whole"),))
    yield b"five"
    yield Message(message_id="m", role=Role.AGENT, parts=(Part(text="bye"),))


async def test_messages_and_artifacts_pass_unchanged(hosting: Hosting) -> None:
    found = await answers(hosting, nothing, a_message, an_artifact, a_mixture)
    assert (state(found["nothing"]), found["nothing"].artifacts, found["nothing"].status.message) == (
        S.COMPLETED,
        (),
        None,
    )
    assert (said(found["a_message"]), found["a_message"].artifacts) == ("done", ())
    (artifact,) = found["an_artifact"].artifacts
    assert artifact == Artifact(
        artifact_id="a", name="n", description="d", parts=(Part(text="x"),), metadata={"k": 1}, extensions=("urn:e",)
    )
    mixture = found["a_mixture"]
    streamed, beside = mixture.artifacts
    assert (state(mixture), said(mixture), beside.artifact_id) == (S.COMPLETED, "bye", "beside")
    assert [part.text or part.raw or part.data for part in streamed.parts] == [
        "one",
        {"two": 2},
        "three",
        "four",
        b"five",
    ]


# --- what goes wrong ----------------------------------------------------------------------------------------------


@agent
async def unserialisable(ctx: Context) -> object:
    return object()


@agent
async def half_a_character(ctx: Context) -> AsyncIterator[str]:
    yield "good"
    await ctx.flush()
    yield "\ud800"
    yield "more"


@agent
async def half_a_reason(ctx: Context) -> None:
    raise Rejected("\ud800")


async def test_unstorable_return_values_fail(hosting: Hosting, caplog: pytest.LogCaptureFixture) -> None:
    found = await answers(hosting, unserialisable, half_a_character, half_a_reason)
    assert {(name, state(task)) for name, task in found.items()} == {(name, S.FAILED) for name in found}
    assert said(found["unserialisable"]) == "The agent failed"
    assert {said(found[name])[:35] for name in ("half_a_character", "half_a_reason")} == {
        "The agent's output cannot be stored"
    }
    assert "An agent cannot answer with object" in caplog.text
    assert text(found["half_a_character"]) == "good"


@agent
async def broken(ctx: Context) -> AsyncIterator[str]:
    yield "partial"
    raise RuntimeError("the password is hunter2")


@agent
def broken_in_a_thread(ctx: Context) -> str:
    raise RuntimeError("the password is hunter2")


async def test_an_exception_is_logged_and_not_shown(hosting: Hosting, caplog: pytest.LogCaptureFixture) -> None:
    found = await answers(hosting, broken, broken_in_a_thread)
    for task in found.values():
        assert (state(task), said(task)) == (S.FAILED, "The agent failed")
        assert b"hunter2" not in msgspec.json.encode(task)
    assert text(found["broken"]) == "partial"
    assert caplog.text.count("RuntimeError: the password is hunter2") == 2


@agent
async def rejects(ctx: Context) -> None:
    raise Rejected("Not on a Sunday")


@agent
async def fails(ctx: Context) -> None:
    raise Failed("The printer is on fire")


@agent
async def refuses(ctx: Context) -> None:
    raise InvalidParams("The colour is missing")


async def test_some_exceptions_are_meant_for_the_caller(hosting: Hosting) -> None:
    found = await answers(hosting, rejects, fails, refuses)
    assert {name: (state(task), said(task)) for name, task in found.items()} == {
        "rejects": (S.REJECTED, "Not on a Sunday"),
        "fails": (S.FAILED, "The printer is on fire"),
        "refuses": (S.FAILED, "The colour is missing"),
    }


@agent
async def rejects_in_a_group(ctx: Context) -> None:
    async with asyncio.TaskGroup() as outer:
        outer.create_task(_in_a_group(Rejected("Not on a Sunday")))


@agent
async def fails_in_a_group(ctx: Context) -> None:
    await _in_a_group(Failed("The printer is on fire"))


@agent
async def breaks_in_a_group(ctx: Context) -> None:
    await _in_a_group(RuntimeError("the password is hunter2"))


@agent
async def fails_twice(ctx: Context) -> None:
    raise ExceptionGroup("both", [Failed("The printer is on fire"), RuntimeError("the password is hunter2")])


async def _in_a_group(error: Exception) -> None:
    async def fail() -> None:
        raise error

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())


@agent
async def goes_on_after_a_group(ctx: Context) -> str:
    try:
        await _in_a_group(ValueError())
    except* ValueError:
        pass
    return "and on"


async def test_failed_task_groups_are_not_cancels(hosting: Hosting) -> None:
    found = await answers(hosting, goes_on_after_a_group)
    assert text(found["goes_on_after_a_group"]) == "and on"


async def test_one_alone_in_a_group_counts_as_itself(hosting: Hosting, caplog: pytest.LogCaptureFixture) -> None:
    found = await answers(hosting, rejects_in_a_group, fails_in_a_group, breaks_in_a_group, fails_twice)
    assert {name: (state(task), said(task)) for name, task in found.items()} == {
        "rejects_in_a_group": (S.REJECTED, "Not on a Sunday"),
        "fails_in_a_group": (S.FAILED, "The printer is on fire"),
        "breaks_in_a_group": (S.FAILED, "The agent failed"),
        "fails_twice": (S.FAILED, "The agent failed"),
    }
    assert caplog.text.count("RuntimeError: the password is hunter2") == 2


@agent
async def gives_up(ctx: Context) -> None:
    raise asyncio.CancelledError


async def test_an_agent_that_cancels_itself_has_failed(hosting: Hosting) -> None:
    found = await answers(hosting, gives_up)
    assert (state(found["gives_up"]), said(found["gives_up"])) == (S.FAILED, "The agent was interrupted")


# --- threads ------------------------------------------------------------------------------------------------------


async def test_blocking_functions_do_not_block_others(hosting: Hosting) -> None:
    gate = threading.Event()

    @agent
    def blocking(ctx: Context) -> str:
        assert gate.wait(10)
        return "blocked"

    @agent
    def generating(ctx: Context) -> Iterator[str]:
        yield "generated"
        assert gate.wait(10)

    host = await hosting(returns_at_once, blocking, generating)
    slow = [asyncio.create_task(sent(host.services[name], saying("x"), ALICE)) for name in ("blocking", "generating")]
    assert text(await sent(host.default, saying("x"), ALICE)) == "x"
    assert not any(task.done() for task in slow)
    gate.set()
    assert [text(task) for task in await asyncio.gather(*slow)] == ["blocked", "generated"]


@agent
async def returns_at_once(ctx: Context) -> str:
    return ctx.text


async def test_a_generator_in_a_thread_can_be_cancelled(hosting: Hosting, caplog: pytest.LogCaptureFixture) -> None:
    gate, inside, left = threading.Event(), threading.Event(), threading.Event()
    seen: list[bool] = []

    @agent
    def generating(ctx: Context) -> Iterator[str]:
        yield "first"
        inside.set()
        gate.wait(10)
        seen.append(ctx.cancelled)
        left.set()

    host = await hosting(generating)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await asyncio.to_thread(inside.wait, 10)
    cancelled = await host.default.cancel(CancelRequest(id=task.id), ALICE)
    gate.set()
    assert state(cancelled) is S.CANCELED
    await host.stop()
    assert await asyncio.to_thread(left.wait, 10)
    assert seen == [True]
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


# --- who an agent is ----------------------------------------------------------------------------------------------


@agent
async def plain(ctx: Context) -> None:
    """Says what it does."""


@agent
async def silent(ctx: Context) -> None: ...


@agent(
    name="Named",
    description="Described",
    version="2.0.0",
    skills=["Big Talk", AgentSkill(id="s", name="S", description="d", tags=("t",))],
    input_modes=["image/png"],
    output_modes=["*/*"],
    on_crash="fail",
    attempts=7,
    timeout=1.5,
    concurrency=2,
    answers_message=True,
)
async def stated(ctx: Context) -> None:
    """Not this."""


def test_profiles_default_to_the_function_s_docstring() -> None:
    skill = AgentSkill(id="plain", name="plain", description="Says what it does.", tags=("plain",))
    assert plain.profile == Profile(
        name="plain",
        description="Says what it does.",
        skills=(skill,),
        input_modes=("text/plain", "application/json"),
        output_modes=("text/plain", "application/json"),
    )
    assert (silent.profile.description, plain.profile.crash, plain.profile.max_attempts) == ("silent", Crash.RESTART, 3)
    assert agent(Greeter()).profile.name == "Greeter"


def test_the_profile_can_be_stated() -> None:
    assert stated.profile == Profile(
        name="Named",
        description="Described",
        version="2.0.0",
        skills=(
            AgentSkill(id="big-talk", name="Big Talk", description="Described", tags=("big talk",)),
            AgentSkill(id="s", name="S", description="d", tags=("t",)),
        ),
        input_modes=("image/png",),
        output_modes=("*/*",),
        crash=Crash.FAIL,
        attempts=7,
        timeout=1.5,
        concurrency=2,
        answers_message=True,
    )
    assert stated.profile.max_attempts == 1


async def test_two_agents_of_one_name_are_refused(hosting: Hosting) -> None:
    with pytest.raises(ValueError, match="same name"):
        await hosting(plain, agent(name="plain")(returns))


async def test_the_first_agent_is_the_default(hosting: Hosting) -> None:
    host: Host = await hosting(plain, silent)
    assert host.default is host.services["plain"]
