"""Agents with histories of their own go on where they were: on another node, on either kind of store."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pydantic_ai
import pytest
from agents import Agent as SdkAgent
from agents import function_tool

from accord.agents.openai_agents import OpenAIAgent, OpenAIAgentsOptions
from accord.agents.pydantic_ai import PydanticAIAgent, PydanticAIOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent
from accord.engine.context import Context
from accord.model import GetRequest, TaskState
from tests.agents.openai_agents import models as openai
from tests.agents.pydantic_ai import models as pydantic
from tests.engine.conftest import ALICE, AT_ONCE, BOB, Hosting, bounded, hosting, postgres, saying, state, text
from tests.engine.doubles import reaches, sent, until

__all__ = ["hosting", "postgres"]

Say = Callable[[Any, int, Any], Sequence[Any]]
"""What was told, how often it was asked, the helpers of its framework -> what a model says."""

Make = Callable[[Say, list[str]], Agent]


def with_pydantic_ai(say: Say, done: list[str]) -> Agent:
    """An agent of Pydantic AI that looks, and deletes if it may."""
    model = pydantic.Scripted(lambda messages, time: say(messages, time, pydantic))
    agent: pydantic_ai.Agent[None, Any] = pydantic_ai.Agent(model, output_type=[str, pydantic_ai.DeferredToolRequests])
    agent.tool_plain(name="look")(looking(done))
    agent.tool_plain(name="delete", requires_approval=True)(deleting(done))
    return PydanticAIAgent(AgentArguments(options=PydanticAIOptions(), name="subject", target=agent))


def with_openai_agents(say: Say, done: list[str]) -> Agent:
    """The same for the OpenAI Agents SDK."""
    model = openai.Scripted(lambda items, time: say(items, time, openai))
    tools: list[Any] = [
        function_tool(looking(done), name_override="look"),
        function_tool(deleting(done), name_override="delete", needs_approval=True),
    ]
    agent: SdkAgent[Any] = SdkAgent("subject", model=model, tools=tools)
    return OpenAIAgent(AgentArguments(options=OpenAIAgentsOptions(), name="subject", target=agent))


def looking(done: list[str]) -> Callable[[], str]:
    def look() -> str:
        done.append("look")
        return "looked"

    return look


def deleting(done: list[str]) -> Callable[[], str]:
    def delete() -> str:
        done.append("delete")
        return "deleted"

    return delete


each = pytest.mark.parametrize("make", [with_pydantic_ai, with_openai_agents])


def remembering(told: Any, time: int, with_: Any) -> list[Any]:
    return [" | ".join(with_.heard(told))]


@each
@bounded
async def test_a_conversation_is_remembered_on_another_node(make: Make, hosting: Hosting) -> None:
    first, second = await hosting(make(remembering, [])), await hosting(make(remembering, []))
    await sent(first.default, saying("one", context_id="c"), ALICE)
    assert text(await sent(second.default, saying("two", context_id="c"), ALICE)) == "one | one | two"
    assert text(await sent(second.default, saying("hi", context_id="c"), BOB)) == "hi", "it is the caller's own"


def cleaning(told: Any, time: int, with_: Any) -> Sequence[Any]:
    given = with_.returned(told)
    return given or ["I look. ", with_.calls("look", "c-1"), with_.calls("delete", "c-2")]


@each
@bounded
async def test_an_approval_is_given_on_another_node(make: Make, hosting: Hosting) -> None:
    did: list[str] = []
    first = await hosting(make(cleaning, did))
    task = await sent(first.default, saying("clean up"), ALICE)
    assert (state(task), did) == (TaskState.INPUT_REQUIRED, ["look"])
    await first.stop(0)
    again: list[str] = []
    second = await hosting(make(cleaning, again))
    task = await sent(second.default, saying("yes", task_id=task.id), ALICE)
    assert (state(task), again) == (TaskState.COMPLETED, ["delete"])
    assert text(task).startswith("I look. \n\n")
    assert text(task).endswith("deleted")


@each
@bounded
async def test_lost_executions_resume_after_their_tools(make: Make, hosting: Hosting) -> None:
    hangs, did = asyncio.Event(), list[str]()

    async def hang() -> None:
        hangs.set()
        await asyncio.Event().wait()

    def half(told: Any, time: int, with_: Any) -> Sequence[Any]:
        return ["half a ", hang] if with_.returned(told) else ["I look. ", with_.calls("look")]

    def whole(told: Any, time: int, with_: Any) -> Sequence[Any]:
        return ["a whole sentence"] if with_.returned(told) else ["from the start"]

    first = await hosting(make(half, did))
    task = await sent(first.default, saying("go", configuration=AT_ONCE), ALICE)
    await hangs.wait()

    async def is_said() -> bool:
        return text(await first.default.get(GetRequest(id=task.id), ALICE)) == "I look. \n\nhalf a "

    await until(is_said)
    second = await hosting(make(whole, did))
    await first.stop(0)
    done = await reaches(second.default, task.id, TaskState.COMPLETED, ALICE)
    assert (text(done), did) == ("I look. \n\na whole sentence", ["look"])


class Repeated:
    """An agent whose run is lost when it has done everything but end: it is run once more."""

    def __init__(self, agent: Agent) -> None:
        self.profile = agent.profile
        self._agent = agent

    async def run(self, ctx: Context) -> None:
        await self._agent.run(ctx)
        await self._agent.run(ctx)


@each
@bounded
async def test_a_turn_that_is_done_is_not_done_again(make: Make, hosting: Hosting) -> None:
    asked: list[int] = []

    def say(told: Any, time: int, with_: Any) -> list[str]:
        asked.append(time)
        return [" | ".join(with_.heard(told))]

    host = await hosting(Repeated(make(say, [])))
    assert text(await sent(host.default, saying("one", context_id="c"), ALICE)) == "one"
    assert text(await sent(host.default, saying("two", context_id="c"), ALICE)) == "one | one | two"
    assert asked == [1, 2]
