"""A chat model that needs no endpoint: it says the words that it is told to, one after the other."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field

Between = Callable[[], Awaitable[None]]


class Talking(BaseChatModel):
    """Says words, waits `between` two of them, and has used as many tokens as it read messages and said words."""

    words: list[str]
    between: Between | None = None
    heard: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "talking"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> ChatResult:
        self.heard.append(messages)
        said = AIMessage("".join(self.words), usage_metadata=self._used(messages))
        return ChatResult(generations=[ChatGeneration(message=said)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> Iterator[ChatGenerationChunk]:
        self.heard.append(messages)
        for chunk in self._chunks(messages):
            if run_manager is not None:
                run_manager.on_llm_new_token(str(chunk.text), chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        self.heard.append(messages)
        for number, chunk in enumerate(self._chunks(messages)):
            if number and self.between is not None:
                await self.between()
            if run_manager is not None:
                await run_manager.on_llm_new_token(str(chunk.text), chunk=chunk)
            yield chunk

    def _chunks(self, messages: list[BaseMessage]) -> Iterator[ChatGenerationChunk]:
        for number, word in enumerate(self.words, 1):
            used = self._used(messages) if number == len(self.words) else None
            about = {"model_name": "talking-1"}
            yield ChatGenerationChunk(
                message=AIMessageChunk(content=word, usage_metadata=used, response_metadata=about if used else {})
            )

    def _used(self, messages: list[BaseMessage]) -> Any:
        read, said = len(messages), len(self.words)
        return {"input_tokens": read, "output_tokens": said, "total_tokens": read + said}
