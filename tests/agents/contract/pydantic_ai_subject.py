"""Pydantic AI: a scripted model, and tools that do what a behaviour is called after."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import BinaryContent, CallDeferred, DeferredToolRequests, FilePart, ModelMessage

from accord.agents.pydantic_ai import AGENT_TYPE, PydanticAIOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from accord.engine.outcome import Failed
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject
from tests.agents.pydantic_ai.models import Scripted, calls, heard, returned


def scripts(scratch: Path) -> dict[str, Callable[[list[ModelMessage]], list[Any]]]:
    """Return what the model says to what it was told."""

    def ask(messages: list[ModelMessage]) -> list[Any]:
        return [f"to {city}" for city in returned(messages)] or [calls("city")]

    def file(messages: list[ModelMessage]) -> list[Any]:
        (given,) = _files(messages)
        return ["here", FilePart(content=BinaryContent(given + b"!", media_type="application/octet-stream"))]

    def steps(messages: list[ModelMessage]) -> list[Any]:
        done = sum(part.part_kind == "tool-return" for message in messages for part in message.parts)
        return [calls("step", f"call-{done}", number=done + 1)] if done < 3 else ["done"]

    return {
        "echo": lambda messages: ["you said ", heard(messages)[-1]],
        "stream": lambda messages: ["one ", "two ", "three "],
        "held": lambda messages: ["one ", lambda: marks.held(scratch), "two "],
        "remember": lambda messages: [" ".join(heard(messages))],
        "slow": lambda messages: [lambda: marks.work(scratch)],
        "fail": lambda messages: [calls("fail")],
        "ask": ask,
        "file": file,
        "usage": lambda messages: ["done"],
        "steps": steps,
    }


def _files(messages: list[ModelMessage]) -> list[bytes]:
    prompts = [part.content for part in messages[-1].parts if part.part_kind == "user-prompt"]
    return [item.data for content in prompts for item in content if isinstance(item, BinaryContent)]


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    say = scripts(scratch)[behaviour]
    agent: PydanticAgent[None, Any] = PydanticAgent(
        Scripted(lambda messages, time: say(messages)), output_type=[str, DeferredToolRequests]
    )

    @agent.tool_plain
    def fail() -> str:
        raise Failed("no such city")

    @agent.tool_plain
    def city() -> str:
        raise CallDeferred(metadata={"question": "Which city?"})

    @agent.tool_plain
    async def step(number: int) -> str:
        marks.step(scratch, number)
        if number == 2:
            await marks.held(scratch)
        return "ok"

    return AGENT_TYPE.make(AgentArguments(options=PydanticAIOptions(), name="subject", target=agent))


SUBJECT = Subject(kind="pydantic-ai", make=make, has=frozenset(scripts(Path())), crash=Crash.RESUME)
