"""Pydantic AI agents, hosted: what they are told, what they say, what they wait for, and where they go on."""

import asyncio
import sys
import threading
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryImage,
    CallDeferred,
    DeferredToolRequests,
    FilePart,
    ModelAPIError,
    ModelHTTPError,
    ModelRetry,
    RunContext,
)
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.models.test import TestModel

from accord import Context
from accord.agents.loader import as_agent
from accord.agents.pydantic_ai import AGENT_TYPE, PydanticAIAgent, PydanticAIOptions
from accord.api.agent_types import AgentArguments, agent_type_of
from accord.engine.outcome import Failed, Rejected
from accord.model import ArtifactUpdate, Part, StatusUpdate, TaskState
from accord.testing import running
from accord.testing.inprocess import text_in
from tests.agents.pydantic_ai.models import Scripted, calls, heard, returned
from tests.agents.talk import parts, reason, saying, sent
from tests.engine.conftest import bounded

S = TaskState


def hosted(agent: Agent[Any, Any], **options: Any) -> PydanticAIAgent:
    return PydanticAIAgent(AgentArguments(options=PydanticAIOptions(**options), name="subject", target=agent))


# --- what it says ---------------------------------------------------------------------------------------------------


@bounded
async def test_words_are_streamed() -> None:
    go_on = asyncio.Event()
    model = Scripted(lambda messages, time: ["one ", go_on.wait, "two"])
    said = []
    async with running(hosted(Agent(model))) as a2a, aclosing(a2a.stream_text("count")) as events:
        async for event in events:
            if isinstance(event.body, ArtifactUpdate):
                said.append(event.body.artifact.parts[0].text)
                go_on.set()
    assert (said[0], "".join(text or "" for text in said)) == ("one ", "one two")


@bounded
async def test_structured_output_is_data() -> None:
    class City(BaseModel):
        name: str
        people: int

    agent = Agent(TestModel(custom_output_args={"name": "Rome", "people": 3}), output_type=City)
    async with running(hosted(agent)) as a2a:
        (part,) = parts(await sent(a2a, "where?"))
    assert (part.data, part.media_type) == ({"name": "Rome", "people": 3}, "application/json")


@bounded
async def test_output_may_be_words_or_data() -> None:
    @dataclass
    class City:
        name: str

    model = Scripted(lambda messages, time: ["let me see", calls("final_result", name="Rome")])
    async with running(hosted(Agent(model, output_type=[str, City]))) as a2a:
        said, data = parts(await sent(a2a, "where?"))
    assert (said.text, data.data) == ("let me see", {"name": "Rome"})


@bounded
async def test_changed_output_replaces_streamed_text() -> None:
    agent: Agent[None, str] = Agent(Scripted(lambda messages, time: ["quiet"]))
    agent.output_validator(lambda text: text.upper())
    async with running(hosted(agent)) as a2a:
        assert text_in(await sent(a2a, "hi")) == "QUIET"


@bounded
async def test_rejected_output_is_withdrawn() -> None:
    agent: Agent[None, str] = Agent(Scripted(lambda messages, time: ["bad" if time == 1 else "good"]))

    @agent.output_validator
    def check(text: str) -> str:
        if text == "bad":
            raise ModelRetry("better, please")
        return text

    async with running(hosted(agent)) as a2a:
        assert text_in(await sent(a2a, "hi")) == "good"


@bounded
async def test_tools_are_progress() -> None:
    model = Scripted(lambda messages, time: returned(messages) or ["I look. ", calls("look")])
    agent: Agent[None, str] = Agent(model)
    threads: list[Any] = []

    @agent.tool_plain
    def look() -> str:
        threads.append(threading.current_thread())
        return "found"

    async with running(hosted(agent)) as a2a, aclosing(a2a.stream_text("go")) as events:
        bodies = [event.body async for event in events]
    updates = [body for body in bodies if isinstance(body, StatusUpdate) and body.status.message]
    (update,) = [body for body in updates if body.metadata and "tool" in body.metadata]
    assert update.status.message is not None
    assert update.status.message.parts[0].text == "Calling look"
    said = [part.text or "" for body in bodies if isinstance(body, ArtifactUpdate) for part in body.artifact.parts]
    assert "".join(said) == "I look. \n\nfound"
    assert threads[0] is not threading.main_thread(), "a plain function does not hold up the loop"


# --- files ----------------------------------------------------------------------------------------------------------


@bounded
async def test_files_keep_their_type() -> None:
    model = Scripted(lambda messages, time: ["ok"])
    given = (
        Part(text=" this"),
        Part(raw=b"\x89PNG", media_type="image/png"),
        Part(url="https://example.com/a.mp3", media_type="audio/mpeg"),
        Part(url="https://example.com/a.pdf", media_type="application/pdf"),
        Part(raw=b"hello", media_type="text/plain", filename="a.txt"),
        Part(data={"a": 1}),
        Part(url="file:///etc/passwd", media_type="image/png"),
    )
    async with running(hosted(Agent(model))) as a2a:
        await sent(a2a, saying("see", *given))
    content: Any
    (content,) = [part.content for part in model.told[0][0].parts if part.part_kind == "user-prompt"]
    assert [item if isinstance(item, str) else type(item).__name__ for item in content] == [
        "see this",
        "BinaryImage" if isinstance(content[1], BinaryImage) else "BinaryContent",
        "AudioUrl",
        "DocumentUrl",
        'File a.txt (text/plain):\nhello\n{"a":1}\nFile unnamed (image/png): file:///etc/passwd',
    ]
    assert (content[1].data, content[1].media_type) == (b"\x89PNG", "image/png")


@bounded
async def test_files_come_out_once() -> None:
    image = BinaryImage(data=b"\x89PNG", media_type="image/png")

    model = Scripted(lambda messages, time: [FilePart(content=image)])
    agent: Agent[None, Any] = Agent(model, output_type=BinaryImage)
    async with running(hosted(agent)) as a2a:
        (part,) = parts(await sent(a2a, "draw"))
    assert (part.raw, part.media_type) == (b"\x89PNG", "image/png")


# --- what is remembered ---------------------------------------------------------------------------------------------


@bounded
async def test_a_conversation_is_remembered_by_its_context() -> None:
    model = Scripted(lambda messages, time: [f"answer {time}"])
    async with running(hosted(Agent(model, system_prompt="Be brief"))) as a2a:
        for text, context in (("one", "c"), ("else", "d"), ("two", "c")):
            await sent(a2a, saying(text, context=context))
    assert heard(model.told[-1]) == ["Be brief", "one", "answer 1", "two"]
    assert heard(model.told[1]) == ["Be brief", "else"]


@bounded
async def test_it_is_reminded_of_the_latest_turns_and_its_system_prompt() -> None:
    model = Scripted(lambda messages, time: [f"answer {time}"])
    async with running(hosted(Agent(model, system_prompt="Be brief"), history=1)) as a2a:
        for text in ("one", "two", "three", "four"):
            await sent(a2a, saying(text, context="c"))
    assert heard(model.told[-1]) == ["Be brief", "three", "answer 3", "four"]


@bounded
async def test_a_history_that_the_agent_makes_shorter_stays_short() -> None:
    model = Scripted(lambda messages, time: [f"answer {time}"])
    agent = Agent(model, capabilities=[ProcessHistory(lambda messages: messages[-1:])])
    async with running(hosted(agent)) as a2a:
        for text in ("one", "two", "three"):
            await sent(a2a, saying(text, context="c"))
    assert [heard(told) for told in model.told] == [["one"], ["two"], ["three"]]


TWO_AND_THREE = [["two", "answer two"], ["three", "answer three"]]


@pytest.mark.parametrize("shortens", [False, True])
@bounded
async def test_of_two_tasks_that_end_at_the_same_time_both_are_remembered(shortens: bool) -> None:
    both = asyncio.Barrier(2)

    def say(messages: Any, time: int) -> list[Any]:
        return [f"answer {heard(messages)[-1]}", *([both.wait] if time in (2, 3) else [])]

    def shorter(messages: list[Any]) -> list[Any]:
        return messages[-1:] if shortens and len(model.told) in (1, 2) else messages

    model = Scripted(say)
    async with running(hosted(Agent(model, capabilities=[ProcessHistory(shorter)]))) as a2a:
        await sent(a2a, saying("one", context="c"))
        await asyncio.gather(*(sent(a2a, saying(text, context="c")) for text in ("two", "three")))
        await sent(a2a, saying("four", context="c"))
    said = heard(model.told[-1])
    turns = [said[at : at + 2] for at in range(0, len(said) - 1, 2)]
    assert said[-1] == "four"
    assert sorted(turns) == sorted([*([] if shortens else [["one", "answer one"]]), *TWO_AND_THREE])


@bounded
async def test_failed_turns_are_not_remembered() -> None:
    model = Scripted(lambda messages, time: [ModelHTTPError(500, "m")] if time == 1 else ["ok"])
    async with running(hosted(Agent(model))) as a2a:
        assert (await sent(a2a, saying("one", context="c"))).status.state is S.FAILED
        await sent(a2a, saying("two", context="c"))
    assert heard(model.told[-1]) == ["two"]


# --- what it waits for ----------------------------------------------------------------------------------------------


def deleting(tool_calls: Any = None) -> tuple[Agent[None, Any], Scripted, list[str]]:
    """An agent that deletes a file, if it may."""
    wanted = tool_calls or [calls("delete", path="a.txt")]
    model = Scripted(lambda messages, time: returned(messages) or ["I will delete it. ", *wanted])
    agent: Agent[None, Any] = Agent(model, output_type=[str, DeferredToolRequests])
    done: list[str] = []

    @agent.tool_plain(requires_approval=True)
    def delete(path: str) -> str:
        done.append(path)
        return f"deleted {path}"

    @agent.tool_plain
    def look() -> str:
        done.append("look")
        return "looked"

    return agent, model, done


@pytest.mark.parametrize(
    ("answer", "expected", "done"),
    [
        ("yes", "deleted a.txt", ["a.txt"]),
        (Part(data={"approved": True}), "deleted a.txt", ["a.txt"]),
        ("no", "The tool call was denied.", []),
        ("no not today", "not today", []),
        (Part(data={"approved": False, "comment": "never"}), "never", []),
    ],
)
@bounded
async def test_approvals_suspend_the_task(answer: str | Part, expected: str, done: list[str]) -> None:
    agent, model, did = deleting()
    async with running(hosted(agent)) as a2a:
        task = await sent(a2a, "clean up")
        assert (task.status.state, did) == (S.INPUT_REQUIRED, [])
        assert reason(task) == "May delete(path='a.txt') be called?"
        assert task.status.message is not None
        assert task.status.message.metadata == {"approval": True}
        assert task.status.message.parts[1].data == {
            "toolCallId": "call-1",
            "tool": "delete",
            "args": {"path": "a.txt"},
            "metadata": {},
        }
        task = await sent(a2a, answer, task=task)
    assert (task.status.state, did) == (S.COMPLETED, done)
    assert text_in(task) == f"I will delete it. \n\n{expected}"
    assert len(model.told) == 2


@bounded
async def test_several_approvals_are_requested_one_by_one() -> None:
    wanted = [calls("delete", "c-1", path="a"), calls("look", "c-2"), calls("delete", "c-3", path="b")]
    agent, _, did = deleting(wanted)
    async with running(hosted(agent)) as a2a:
        task = await sent(a2a, "clean up")
        assert did == ["look"]
        for answer in ("yes", "no"):
            assert task.status.state is S.INPUT_REQUIRED
            task = await sent(a2a, answer, task=task)
    assert (task.status.state, did) == (S.COMPLETED, ["look", "a"])
    assert text_in(task).count("I will delete it.") == 1


@pytest.mark.parametrize("answer", ["Rome", Part(data={"city": "Rome"})])
@bounded
async def test_deferred_results_are_requested(answer: str | Part) -> None:
    model = Scripted(lambda messages, time: [f"to {given}" for given in returned(messages)] or [calls("city")])
    agent: Agent[None, Any] = Agent(model, output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def city() -> str:
        raise CallDeferred(metadata={"question": "Which city?"})

    async with running(hosted(agent)) as a2a:
        task = await sent(a2a, "book")
        assert (task.status.state, reason(task)) == (S.INPUT_REQUIRED, "Which city?")
        task = await sent(a2a, answer, task=task)
    assert text_in(task) == f"to {'Rome' if answer == 'Rome' else {'city': 'Rome'}}"


@bounded
async def test_a_tool_may_ask_through_the_context() -> None:
    model = Scripted(lambda messages, time: returned(messages) or [calls("city")])
    agent = Agent(model, deps_type=Context)

    @agent.tool
    async def city(run: RunContext[Context]) -> str:
        return f"to {await run.deps.ask('Which city?', key='city')}"

    async with running(hosted(agent)) as a2a:
        task = await sent(a2a, "book")
        assert reason(task) == "Which city?"
        assert text_in(await sent(a2a, "Rome", task=task)) == "to Rome"
    assert len(model.told) == 2


# --- how it ends ----------------------------------------------------------------------------------------------------


def failing(error: Exception) -> Agent[None, str]:
    model = Scripted(lambda messages, time: [calls("tool")])
    agent: Agent[None, str] = Agent(model)

    @agent.tool_plain
    def tool() -> str:
        raise error

    return agent


@pytest.mark.parametrize(
    ("agent", "state", "expected"),
    [
        (failing(Failed("no such city")), S.FAILED, "no such city"),
        (failing(Rejected("not this")), S.REJECTED, "not this"),
        (failing(ValueError("secret")), S.FAILED, "The agent failed"),
        (
            Agent(Scripted(lambda messages, time: [ModelHTTPError(401, "m", {"key": "secret"})])),
            S.FAILED,
            "The model answered with HTTP 401",
        ),
        (
            Agent(Scripted(lambda messages, time: [ModelAPIError("m", "secret host")])),
            S.FAILED,
            "The model cannot be reached",
        ),
        (
            Agent(Scripted(lambda messages, time: [calls("unknown")])),
            S.FAILED,
            "The model gave no answer of use: ",
        ),
    ],
)
@bounded
async def test_errors_are_readable(agent: Agent[None, str], state: TaskState, expected: str) -> None:
    async with running(hosted(agent)) as a2a:
        task = await sent(a2a, "go")
    assert task.status.state is state
    assert reason(task).startswith(expected)
    assert "secret" not in reason(task)


@bounded
async def test_usage_is_counted_and_limited() -> None:
    def looping(messages: Any, time: int) -> list[Any]:
        return [calls("look", f"c-{time}")] if time < 3 else ["done"]

    def agent() -> Agent[None, str]:
        made: Agent[None, str] = Agent(Scripted(looping))

        @made.tool_plain
        def look() -> str:
            return "looked"

        return made

    async with running(hosted(agent())) as a2a:
        task = await sent(a2a, "go")
        assert (task.metadata or {})["usage"]["totalTokens"] == 36
        assert (task.metadata or {})["usage"]["models"]["scripted"]["inputTokens"] == 21
    async with running(hosted(agent(), max_tokens=20)) as a2a:
        task = await sent(a2a, "go")
        assert (task.status.state, (task.metadata or {})["usage"]["totalTokens"]) == (S.FAILED, 24)
    async with running(hosted(agent(), request_limit=2)) as a2a:
        task = await sent(a2a, "go")
        assert reason(task) == "The agent may not use more: The next request would exceed the request_limit of 2"


@bounded
async def test_cancelling_stops_the_model() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with running(hosted(Agent(Scripted(lambda messages, time: [hang])))) as a2a:
        task = await a2a.send_text("go", at_once=True)
        await begun.wait()
        task = await a2a.cancel(task)
        await stopped.wait()
    assert task.status.state is S.CANCELED


# --- what it is made of ---------------------------------------------------------------------------------------------


async def make_deps(ctx: Context) -> str:
    return f"deps of {ctx.text}"


@bounded
async def test_dependencies_are_made_for_each_run() -> None:
    model = Scripted(lambda messages, time: returned(messages) or [calls("look")])
    agent = Agent(model, deps_type=str)
    agent.tool(name="look")(_deps)
    async with running(hosted(agent, deps=f"{__name__}:make_deps")) as a2a:
        assert text_in(await sent(a2a, "this")) == "deps of this"


def _deps(run: RunContext[str]) -> str:
    return run.deps


@pytest.mark.parametrize("deps", ["nothing", "no.such.module:x", "accord:nothing", "accord:__version__"])
def test_dependencies_that_cannot_be_made_are_refused(deps: str) -> None:
    with pytest.raises(ValueError, match="deps: "):
        hosted(Agent(TestModel()), deps=deps)


def test_an_agent_is_recognized() -> None:
    agent = Agent(TestModel(), name="greeter")
    assert agent_type_of(agent) is AGENT_TYPE
    made = as_agent(agent, "x:agent")
    assert isinstance(made, PydanticAIAgent)
    assert made.profile.name == "greeter"
    assert not AGENT_TYPE.recognizes or not AGENT_TYPE.recognizes(TestModel())


def test_a_missing_framework_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(TestModel())
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ImportError, match=r"pip install 'accord\[pydantic-ai\]'"):
        hosted(agent)
