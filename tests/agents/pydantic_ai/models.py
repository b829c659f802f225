"""A model that says what a test scripts, and remembers what it was told."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import FilePart, ModelMessage, ModelProfile, RequestUsage, ToolCallPart
from pydantic_ai.models import Model, StreamedResponse

Say = Callable[[list[ModelMessage], int], Sequence[Any]]
"""What was told, and how often it was asked -> texts, tool calls, files, errors, and what to wait for."""


class Scripted(Model):
    """A model whose answers are made from what it was told and how often it was asked; each uses 7 and 5 tokens."""

    def __init__(self, say: Say) -> None:
        super().__init__(profile=ModelProfile(supports_image_output=True))
        self.told: list[list[ModelMessage]] = []
        self._say = say

    @property
    def model_name(self) -> str:
        return "scripted"

    @property
    def system(self) -> str:
        return "test"

    async def request(self, *args: Any) -> Any:
        raise NotImplementedError("Agents are streamed")

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[StreamedResponse]:
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        self.told.append(list(messages))
        yield _Saying(parameters, self._say(messages, len(self.told)))


@dataclass
class _Saying(StreamedResponse):
    pieces: Sequence[Any] = field(default=())

    def __post_init__(self) -> None:
        self._usage = RequestUsage(input_tokens=7, output_tokens=5)

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        for at, piece in enumerate(self.pieces):
            if isinstance(piece, str):
                for event in self._parts_manager.handle_text_delta(vendor_part_id="text", content=piece):
                    yield event
            elif isinstance(piece, ToolCallPart | FilePart):
                yield self._parts_manager.handle_part(vendor_part_id=at, part=piece)
            elif isinstance(piece, Exception):
                raise piece
            else:
                await piece()

    async def close_stream(self) -> None:
        pass

    @property
    def model_name(self) -> str:
        return "scripted"

    @property
    def provider_name(self) -> str | None:
        return None

    @property
    def provider_url(self) -> str | None:
        return None

    @property
    def timestamp(self) -> datetime:
        return datetime.now(UTC)


def calls(tool: str, id: str = "call-1", **args: Any) -> ToolCallPart:
    return ToolCallPart(tool_name=tool, args=args, tool_call_id=id)


def returned(messages: list[ModelMessage]) -> list[Any]:
    """What the tools gave last, if they gave something."""
    return [part.content for part in messages[-1].parts if part.part_kind == "tool-return"]


def heard(messages: list[ModelMessage]) -> list[str]:
    """Everything that was said, by anybody; a second system prompt is the framework's own."""
    kinds = ("user-prompt", "text", "system-prompt")
    found: list[Any] = [part for message in messages for part in message.parts if part.part_kind in kinds]
    system = [part for part in found if part.part_kind == "system-prompt"]
    return [str(part.content) for part in found if part not in system[1:]]
