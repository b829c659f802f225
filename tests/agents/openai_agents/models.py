"""A model that says what a test scripts, and remembers what it was told."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from agents import Model, ModelResponse
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

Items = list[dict[str, Any]]

Say = Callable[[Items, int], Sequence[Any]]
"""What was told, and how often it was asked -> texts, output items, errors, and what to wait for."""


class Scripted(Model):
    """A model whose answers are made from what it was told and how often it was asked; each uses 7 and 5 tokens."""

    def __init__(self, say: Say) -> None:
        self.told: list[Items] = []
        self.instructions: list[str | None] = []
        self._say = say

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError("Agents are streamed")

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        items = [dict(item) for item in input]
        self.told.append(items)
        self.instructions.append(system_instructions)
        number = len(self.told)
        yield ResponseCreatedEvent(type="response.created", response=_response([]), sequence_number=0)
        output: list[Any] = []
        for piece in self._say(items, number):
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, str):
                _say(output, piece, number)
                yield _delta(piece)
            elif callable(piece):
                await piece()
            else:
                output.append(piece)
        yield ResponseCompletedEvent(type="response.completed", response=_response(output), sequence_number=9)


def _say(output: list[Any], text: str, number: int) -> None:
    if not output or not isinstance(output[-1], ResponseOutputMessage):
        content = ResponseOutputText(text="", type="output_text", annotations=[])
        output.append(
            ResponseOutputMessage(
                id=f"m-{number}", type="message", role="assistant", status="completed", content=[content]
            )
        )
    output[-1].content[0].text += text


def _delta(text: str) -> ResponseTextDeltaEvent:
    return ResponseTextDeltaEvent(
        type="response.output_text.delta",
        delta=text,
        content_index=0,
        item_id="m",
        output_index=0,
        sequence_number=1,
        logprobs=[],
    )


def _response(output: list[Any]) -> Response:
    details = InputTokensDetails.model_validate({"cached_tokens": 0, "cache_write_tokens": 0})
    usage = ResponseUsage(
        input_tokens=7,
        output_tokens=5,
        total_tokens=12,
        input_tokens_details=details,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
    )
    return Response(
        id="r",
        created_at=0,
        model="scripted",
        object="response",
        output=output,
        tool_choice="none",
        tools=[],
        parallel_tool_calls=False,
        usage=usage,
    )


def calls(tool: str, id: str = "call-1", **args: Any) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", id=f"fc-{id}", call_id=id, name=tool, arguments=json.dumps(args)
    )


def returned(items: Items) -> list[Any]:
    """What the tools gave last, if they gave something."""
    found: list[Any] = []
    for item in reversed(items):
        if item.get("type") != "function_call_output":
            break
        found.append(item["output"])
    return found[::-1]


def heard(items: Items) -> list[str]:
    """Everything that was said, by anybody."""
    return [_words(item["content"]) for item in items if "content" in item]


def _words(content: Any) -> str:
    return content if isinstance(content, str) else "".join(piece.get("text", "") for piece in content)
