"""LangChain: chat models, functions in sequences, and a model that talks."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableGenerator, RunnableLambda

from accord.agents.langchain import AGENT_TYPE, RunnableOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from accord.engine.outcome import Failed
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject
from tests.agents.langgraph.models import Talking


class Recalling(Talking):
    """Says back everything that it is told."""

    async def _astream(self, messages: Any, *args: Any, **more: Any) -> AsyncIterator[Any]:
        telling = Talking(words=[" ".join(str(one.text) for one in messages)])
        async for chunk in telling._astream(messages, *args, **more):
            yield chunk


def behaviours(scratch: Path) -> dict[str, Runnable]:
    """Return the runnables that behave so."""

    async def slow(text: str) -> str:
        await marks.work(scratch)
        return text

    def fail(text: str) -> str:
        raise Failed("no such city")

    async def file(given: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for said in given:
            block = next(one for one in said.to_messages()[-1].content if one["type"] == "file")
            raw = base64.b64decode(block["base64"])
            yield AIMessage([{**block, "base64": base64.b64encode(raw + b"!").decode()}])

    used = {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12}
    return {
        "echo": ChatPromptTemplate.from_template("you said {text}")
        | RunnableLambda(lambda said: said.to_messages()[0].text),
        "stream": Talking(words=["one ", "two ", "three "]),
        "held": Talking(words=["one ", "two "], between=lambda: marks.held(scratch)),
        "remember": Recalling(words=[]),
        "slow": RunnableLambda(slow),
        "fail": RunnableLambda(fail),
        "file": ChatPromptTemplate.from_messages([("placeholder", "{messages}")]) | RunnableGenerator(file),
        "usage": RunnableLambda(lambda text: AIMessage("done", id="m", usage_metadata=used)),
    }


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    return AGENT_TYPE.make(
        AgentArguments(options=RunnableOptions(), name="subject", target=behaviours(scratch)[behaviour])
    )


SUBJECT = Subject(kind="langchain", make=make, has=frozenset(behaviours(Path())), crash=Crash.RESTART)
