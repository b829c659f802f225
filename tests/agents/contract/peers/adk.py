"""The agents of the subject `adk`, with a model that says what a test wants: served with its environment's Python."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools import LongRunningFunctionTool
from google.genai import types

from tests.agents.contract import scratch as marks

SCRATCH = Path(os.environ["SCRATCH"])
USED = types.GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=5, total_token_count=12)

Says = Callable[[list[types.Part]], AsyncIterator[types.Part]]


class Scripted(BaseLlm):
    """Says, part by part, what a function makes of what it is told."""

    says: Any

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        told = [part for content in request.contents for part in content.parts or ()]
        said = [part async for part in self.says(told)] if not stream else []
        if stream:
            async for part in self.says(told):
                said.append(part)
                if part.text:
                    yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)
        text = "".join(part.text or "" for part in said if not part.thought)
        whole = [types.Part(text=text)] if text else []
        whole += [part for part in said if part.thought or not part.text]
        yield LlmResponse(content=types.Content(role="model", parts=whole), usage_metadata=USED)


def agent(says: Says, *tools: Any) -> LlmAgent:
    return LlmAgent(name="subject", model=Scripted(model="scripted", says=says), tools=list(tools))


async def saying_back(told: list[types.Part]) -> AsyncIterator[types.Part]:
    yield types.Part(text=f"you said {told[-1].text}")


async def three(told: list[types.Part]) -> AsyncIterator[types.Part]:
    for word in ("one ", "two ", "three "):
        yield types.Part(text=word)


async def two(told: list[types.Part]) -> AsyncIterator[types.Part]:
    yield types.Part(text="one ")
    await marks.held(SCRATCH)
    yield types.Part(text="two ")


async def everything(told: list[types.Part]) -> AsyncIterator[types.Part]:
    yield types.Part(text=" ".join(part.text or "" for part in told))


async def working(told: list[types.Part]) -> AsyncIterator[types.Part]:
    await marks.work(SCRATCH)
    yield types.Part(text="never")


async def asking(told: list[types.Part]) -> AsyncIterator[types.Part]:
    answer = told[-1].function_response
    if answer is not None:
        yield types.Part(text=f"to {answer.response['result']}")
    else:
        call = types.FunctionCall(name="ask_person", args={"question": "Which city?"})
        yield types.Part(function_call=call)


async def adding(told: list[types.Part]) -> AsyncIterator[types.Part]:
    given = next(part.inline_data for part in told if part.inline_data is not None)
    yield types.Part(inline_data=types.Blob(data=given.data + b"!", mime_type=given.mime_type))


def ask_person(question: str) -> None:
    """Ask a person."""


class Failing(BaseLlm):
    """Has no answer."""

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        yield LlmResponse(error_code="NOT_FOUND", error_message="no such city")


echo = usage = agent(saying_back)
stream = agent(three)
held = agent(two)
remember = agent(everything)
slow = agent(working)
fail = LlmAgent(name="subject", model=Failing(model="failing"))
ask = agent(asking, LongRunningFunctionTool(ask_person))
file = agent(adding)
