"""Agents of the OpenAI Agents SDK, hosted: what they are told, what they say, what they wait for, and how they end."""

import asyncio
import base64
import sys
from contextlib import aclosing
from typing import Any

import httpx2
import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    RunContextWrapper,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from openai import APIConnectionError, InternalServerError
from openai.types.responses.response_output_item import ImageGenerationCall
from pydantic import BaseModel

from accord import Context
from accord.agents.loader import as_agent
from accord.agents.openai_agents import AGENT_TYPE, OpenAIAgent, OpenAIAgentsOptions
from accord.api.agent_types import AgentArguments, agent_type_of
from accord.engine.messages import text_of
from accord.engine.outcome import Failed
from accord.model import ArtifactUpdate, Part, StatusUpdate, TaskState
from accord.testing import running
from accord.testing.inprocess import text_in
from tests.agents.openai_agents.models import Scripted, calls, heard, returned
from tests.agents.talk import parts, reason, saying, sent
from tests.engine.conftest import bounded

S = TaskState


def hosted(agent: Agent[Any], **options: Any) -> OpenAIAgent:
    return OpenAIAgent(AgentArguments(options=OpenAIAgentsOptions(**options), name="subject", target=agent))


def speaking(*words: Any, **more: Any) -> Agent[Any]:
    """An agent that says this."""
    return Agent("speaker", model=Scripted(lambda items, time: words), **more)


# --- what it says ---------------------------------------------------------------------------------------------------


@bounded
async def test_words_are_streamed() -> None:
    go_on = asyncio.Event()
    said = []
    agent = hosted(speaking("one ", go_on.wait, "two"))
    async with running(agent) as a2a, aclosing(a2a.stream_text("count")) as events:
        async for event in events:
            if isinstance(event.body, ArtifactUpdate):
                said.append(event.body.artifact.parts[0].text)
                go_on.set()
    assert (said[0], "".join(text or "" for text in said)) == ("one ", "one two")


@bounded
async def test_structured_output_is_data() -> None:
    class City(BaseModel):
        name: str

    async with running(hosted(speaking('{"name": ', '"Rome"}', output_type=City))) as a2a:
        (part,) = parts(await sent(a2a, "where?"))
    assert (part.data, part.media_type) == ({"name": "Rome"}, "application/json")


@bounded
async def test_tools_and_handoffs_are_progress() -> None:
    @function_tool
    def look() -> str:
        return "found"

    second = Agent("second", model=Scripted(lambda items, time: ["I am second"]))
    first = Agent(
        "first",
        model=Scripted(
            lambda items, time: ["I look. ", calls("look")] if time == 1 else [calls("transfer_to_second", "c-2")]
        ),
        tools=[look],
        handoffs=[second],
    )
    async with running(hosted(first)) as a2a, aclosing(a2a.stream_text("go")) as events:
        bodies = [event.body async for event in events]
    updates = [body.status.message for body in bodies if isinstance(body, StatusUpdate) and body.status.message]
    assert [message.parts[0].text for message in updates] == ["Calling look", "Handed over to second"]
    said = [part.text or "" for body in bodies if isinstance(body, ArtifactUpdate) for part in body.artifact.parts]
    assert "".join(said) == "I look. \n\nI am second"


# --- files ----------------------------------------------------------------------------------------------------------


@bounded
async def test_files_keep_their_type() -> None:
    model = Scripted(lambda items, time: ["ok"])
    given = (
        Part(raw=b"\x89PNG", media_type="image/png"),
        Part(url="https://example.com/a.pdf", media_type="application/pdf"),
        Part(raw=b"%PDF", media_type="application/pdf", filename="a.pdf"),
        Part(raw=b"hello", media_type="text/plain", filename="a.txt"),
        Part(data={"a": 1}),
        Part(url="file:///etc/passwd", media_type="image/png"),
    )
    async with running(hosted(Agent("a", model=model))) as a2a:
        await sent(a2a, saying("see", *given))
    assert model.told[0][0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", "detail": "auto"},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_text", "text": "File a.txt (text/plain):\nhello"},
        {"type": "input_text", "text": '{"a":1}'},
        {"type": "input_text", "text": "File unnamed (image/png): file:///etc/passwd"},
    ]


@bounded
async def test_pictures_come_out() -> None:
    drawn = ImageGenerationCall(
        id="i", type="image_generation_call", status="completed", result=base64.b64encode(b"png").decode()
    )
    async with running(hosted(speaking(drawn, "there"))) as a2a:
        text, picture = parts(await sent(a2a, "draw"))
    assert (picture.raw, picture.media_type, text.text) == (b"png", "image/png", "there")


# --- what is remembered ---------------------------------------------------------------------------------------------


@bounded
async def test_a_conversation_is_remembered_by_its_context() -> None:
    model = Scripted(lambda items, time: [f"answer {time}"])
    async with running(hosted(Agent("a", model=model, instructions="Be brief"))) as a2a:
        for text, context in (("one", "c"), ("else", "d"), ("two", "c")):
            await sent(a2a, saying(text, context=context))
    assert heard(model.told[-1]) == ["one", "answer 1", "two"]
    assert (heard(model.told[1]), model.instructions[-1]) == (["else"], "Be brief")


@bounded
async def test_it_is_reminded_of_the_latest_turns() -> None:
    model = Scripted(lambda items, time: [f"answer {time}"])
    async with running(hosted(Agent("a", model=model), history=1)) as a2a:
        for text in ("one", "two", "three"):
            await sent(a2a, saying(text, context="c"))
    assert heard(model.told[-1]) == ["two", "answer 2", "three"]


@bounded
async def test_of_two_tasks_that_end_at_the_same_time_both_are_remembered() -> None:
    both = asyncio.Barrier(2)
    model = Scripted(lambda items, time: [f"answer {heard(items)[-1]}", *([both.wait] if time < 3 else [])])
    async with running(hosted(Agent("a", model=model))) as a2a:
        await asyncio.gather(*(sent(a2a, saying(text, context="c")) for text in ("one", "two")))
        await sent(a2a, saying("three", context="c"))
    *before, last = heard(model.told[-1])
    assert last == "three"
    assert sorted([before[:2], before[2:]]) == [["one", "answer one"], ["two", "answer two"]]


# --- what it waits for ----------------------------------------------------------------------------------------------


def deleting(*wanted: Any) -> tuple[Agent[Any], Scripted, list[str]]:
    """An agent that deletes a file, if it may."""
    model = Scripted(lambda items, time: [" ".join(returned(items))] if time > 1 else ["I will. ", *wanted])
    done: list[str] = []

    @function_tool(needs_approval=True)
    def delete(path: str) -> str:
        done.append(path)
        return f"deleted {path}"

    @function_tool
    def look() -> str:
        done.append("look")
        return "looked"

    return Agent("cleaner", model=model, tools=[delete, look]), model, done


@pytest.mark.parametrize(
    ("answer", "expected", "done"),
    [
        ("yes", "deleted a.txt", ["a.txt"]),
        (Part(data={"approved": True}), "deleted a.txt", ["a.txt"]),
        ("no not today", "not today", []),
        (Part(data={"approved": False, "comment": "never"}), "never", []),
        ("no", "Tool execution was not approved.", []),
    ],
)
@bounded
async def test_approvals_suspend_the_task(answer: str | Part, expected: str, done: list[str]) -> None:
    agent, model, did = deleting(calls("delete", path="a.txt"))
    async with running(hosted(agent)) as a2a:
        task = await sent(a2a, "clean up")
        assert (task.status.state, did) == (S.INPUT_REQUIRED, [])
        assert reason(task) == 'May delete({"path": "a.txt"}) be called?'
        assert task.status.message is not None
        assert task.status.message.metadata == {"approval": True}
        task = await sent(a2a, answer, task=task)
    assert (task.status.state, did) == (S.COMPLETED, done)
    assert text_in(task) == f"I will. \n\n{expected}"
    assert len(model.told) == 2


@bounded
async def test_several_approvals_are_requested_one_by_one() -> None:
    agent, _, did = deleting(calls("delete", "c-1", path="a"), calls("look", "c-2"), calls("delete", "c-3", path="b"))
    async with running(hosted(agent)) as a2a:
        task = await sent(a2a, "clean up")
        assert did == ["look"]
        for answer in ("yes", "no"):
            assert task.status.state is S.INPUT_REQUIRED
            task = await sent(a2a, answer, task=task)
    assert (task.status.state, did) == (S.COMPLETED, ["look", "a"])
    assert text_in(task).count("I will.") == 1


@bounded
async def test_a_tool_may_ask_through_the_context() -> None:
    @function_tool
    async def city(run: RunContextWrapper[Context]) -> str:
        return f"to {await run.context.ask('Which city?', key='city')}"

    model = Scripted(lambda items, time: returned(items) or [calls("city")])
    async with running(hosted(Agent("a", model=model, tools=[city]))) as a2a:
        task = await sent(a2a, "book")
        assert (task.status.state, reason(task)) == (S.INPUT_REQUIRED, "Which city?")
        assert text_in(await sent(a2a, "Rome", task=task)) == "to Rome"


# --- how it ends ----------------------------------------------------------------------------------------------------


@input_guardrail(name="no-politics")
async def no_politics(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="politics" in str(given))


@output_guardrail(name="no-secrets")
async def no_secrets(context: Any, agent: Any, output: str) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="secret" in output)


@bounded
async def test_a_guardrail_refuses() -> None:
    guarded = {"input_guardrails": [no_politics], "output_guardrails": [no_secrets]}
    async with running(hosted(speaking("the secret", **guarded))) as a2a:
        given, made = await sent(a2a, "politics"), await sent(a2a, "hello")
    assert (given.status.state, reason(given)) == (S.REJECTED, "The guardrail no-politics refuses this")
    assert (made.status.state, reason(made)) == (S.REJECTED, "The guardrail no-secrets refuses this")
    assert text_of(parts(made)) == "", "what was said is taken back"


def failing() -> Agent[Any]:
    @function_tool(failure_error_function=None)
    def tool() -> str:
        raise Failed("no such city")

    return Agent("a", model=Scripted(lambda items, time: [calls("tool", f"c-{time}")]), tools=[tool])


REQUEST = httpx2.Request("POST", "http://secret.example")


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (failing(), "no such city"),
        (speaking(calls("unknown")), "The model gave no answer of use: "),
        (speaking(APIConnectionError(request=REQUEST)), "The model cannot be reached"),
        (
            speaking(InternalServerError("secret", response=httpx2.Response(503, request=REQUEST), body=None)),
            "The model answered with HTTP 503",
        ),
        (speaking(ValueError("secret")), "The agent failed"),
    ],
)
@bounded
async def test_errors_are_readable(agent: Agent[Any], expected: str) -> None:
    async with running(hosted(agent)) as a2a:
        task = await sent(a2a, "go")
    assert task.status.state is S.FAILED
    assert reason(task).startswith(expected)
    assert "secret" not in reason(task)


def looping() -> Agent[Any]:
    @function_tool
    def look() -> str:
        return "looked"

    model = Scripted(lambda items, time: [calls("look", f"c-{time}")] if time < 3 else ["done"])
    return Agent("looper", model=model, tools=[look])


@bounded
async def test_usage_is_counted_and_limited() -> None:
    async with running(hosted(looping())) as a2a:
        task = await sent(a2a, "go")
        assert (task.status.state, text_in(task)) == (S.COMPLETED, "done")
        assert (task.metadata or {})["usage"]["totalTokens"] == 36
        assert (task.metadata or {})["usage"]["models"]["scripted"]["inputTokens"] == 21
    async with running(hosted(looping(), max_tokens=20)) as a2a:
        task = await sent(a2a, "go")
        assert (task.status.state, (task.metadata or {})["usage"]["totalTokens"]) == (S.FAILED, 24)
    async with running(hosted(looping(), max_turns=2)) as a2a:
        assert reason(await sent(a2a, "go")) == "The agent was not done after 2 turns"


@bounded
async def test_cancelling_stops_the_model() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with running(hosted(speaking(hang))) as a2a:
        task = await a2a.send_text("go", at_once=True)
        await begun.wait()
        task = await a2a.cancel(task)
        await stopped.wait()
    assert task.status.state is S.CANCELED


# --- what it is made of ---------------------------------------------------------------------------------------------


def make_context(ctx: Context) -> dict[str, str]:
    return {"text": ctx.text}


@bounded
async def test_a_context_of_its_own_is_made_for_each_run() -> None:
    @function_tool
    def look(run: RunContextWrapper[dict[str, str]]) -> str:
        return run.context["text"]

    model = Scripted(lambda items, time: returned(items) or [calls("look")])
    async with running(hosted(Agent("a", model=model, tools=[look]), context=f"{__name__}:make_context")) as a2a:
        assert text_in(await sent(a2a, "this")) == "this"


def test_a_context_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(ValueError, match="context: "):
        hosted(speaking("x"), context="no.such:x")


def test_an_agent_is_recognized() -> None:
    agent = Agent("greeter", handoff_description="Greets")
    assert agent_type_of(agent) is AGENT_TYPE
    made = as_agent(agent, "x:agent")
    assert isinstance(made, OpenAIAgent)
    assert (made.profile.name, made.profile.description) == ("greeter", "Greets")


def test_a_missing_framework_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("a")
    monkeypatch.setitem(sys.modules, "agents", None)
    with pytest.raises(ImportError, match=r"pip install 'accord\[openai-agents\]'"):
        hosted(agent)
