"""The OpenAI Agents SDK: a scripted model, and tools that do what a behaviour is called after."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import Agent as SdkAgent
from agents import RunContextWrapper, function_tool
from openai.types.responses.response_output_item import ImageGenerationCall

from accord.agents.openai_agents import AGENT_TYPE, OpenAIAgentsOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from accord.engine.context import Context
from accord.engine.outcome import Failed
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject
from tests.agents.openai_agents.models import Items, Scripted, calls, heard, returned


def scripts(scratch: Path) -> dict[str, Callable[[Items], list[Any]]]:
    """Return what the model says to what it was told."""

    def ask(items: Items) -> list[Any]:
        return returned(items) or [calls("city")]

    def file(items: Items) -> list[Any]:
        given = next(piece for piece in items[-1]["content"] if piece["type"] == "input_file")
        raw = base64.b64decode(given["file_data"].partition(",")[2]) + b"!"
        result = base64.b64encode(raw).decode()
        return ["here", ImageGenerationCall(id="i", type="image_generation_call", status="completed", result=result)]

    def steps(items: Items) -> list[Any]:
        done = sum(item.get("type") == "function_call_output" for item in items)
        return [calls("step", f"call-{done}", number=done + 1)] if done < 3 else ["done"]

    return {
        "echo": lambda items: ["you said ", heard(items)[-1]],
        "stream": lambda items: ["one ", "two ", "three "],
        "held": lambda items: ["one ", lambda: marks.held(scratch), "two "],
        "remember": lambda items: [" ".join(heard(items))],
        "slow": lambda items: [lambda: marks.work(scratch)],
        "fail": lambda items: [calls("fail")],
        "ask": ask,
        "file": file,
        "usage": lambda items: ["done"],
        "steps": steps,
    }


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""

    @function_tool(failure_error_function=None)
    def fail() -> str:
        raise Failed("no such city")

    @function_tool
    async def city(run: RunContextWrapper[Context]) -> str:
        return f"to {await run.context.ask('Which city?', key='city')}"

    @function_tool
    async def step(number: int) -> str:
        marks.step(scratch, number)
        if number == 2:
            await marks.held(scratch)
        return "ok"

    say = scripts(scratch)[behaviour]
    agent: SdkAgent[Any] = SdkAgent("subject", model=Scripted(lambda items, time: say(items)), tools=[fail, city, step])
    return AGENT_TYPE.make(AgentArguments(options=OpenAIAgentsOptions(), name="subject", target=agent))


SUBJECT = Subject(kind="openai-agents", make=make, has=frozenset(scripts(Path())), crash=Crash.RESUME)
