"""Events and contents of an ADK runner as artifacts and status updates.

Text is streamed, files are artifacts, tool calls are progress, and data is text to a model.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from google.genai import types

from accord.agents.adk import PendingCall
from accord.agents.messages import OCTETS, answer_id, describe_part
from accord.api import Context, Failed
from accord.model import Part


def user_content(parts: Iterable[Part]) -> types.Content:
    """Return the caller's message as content of the user."""
    return types.Content(role="user", parts=[_adk_part(part) for part in parts])


def function_responses(given: Iterable[tuple[PendingCall, dict[str, Any]]]) -> types.Content:
    """Return the responses to pending calls as content."""
    made = [types.FunctionResponse(id=call.id, name=call.name, response=response) for call, response in given]
    return types.Content(role="user", parts=[types.Part(function_response=one) for one in made])


def pending_call(made: types.FunctionCall) -> PendingCall:
    """Return a call in its stored form."""
    return PendingCall(id=made.id or "", name=made.name or "", args=msgspec.to_builtins(made.args or {}))


def file_part(part: types.Part) -> Part | None:
    """Return the file in a part, or None."""
    if part.inline_data is not None:
        blob = part.inline_data
        return Part(raw=blob.data or b"", media_type=blob.mime_type or OCTETS, filename=blob.display_name)
    if part.file_data is not None:
        link = part.file_data
        return Part(url=link.file_uri, media_type=link.mime_type, filename=link.display_name)
    return None


def _adk_part(part: Part) -> types.Part:
    if part.text is not None:
        return types.Part(text=part.text)
    kind = part.media_type or OCTETS
    if part.raw is not None:
        return types.Part(inline_data=types.Blob(data=part.raw, mime_type=kind, display_name=part.filename))
    if part.url is not None:
        return types.Part(file_data=types.FileData(file_uri=part.url, mime_type=kind, display_name=part.filename))
    return types.Part(text=describe_part(part))


LoadArtifact = Callable[[str, int], Awaitable[Any]]


class AdkEventHandler:
    """Handler for the events of one turn."""

    def __init__(self, ctx: Context, load: LoadArtifact, turn: int, *, is_structured: bool) -> None:
        """Write events to `ctx`. `load` returns saved files, and a structured answer becomes data.

        Each turn has its own artifact. An execution that resumes with a later turn keeps the artifacts of the earlier
        ones.
        """
        self._ctx = ctx
        self._id = f"{answer_id(ctx)}-{turn + 1}" if turn else answer_id(ctx)
        self._load = load
        self._is_structured = is_structured
        self._streamed = ""
        self._answer = ""
        self._error: str | None = None
        self.calls: list[PendingCall] = []

    async def hear(self, event: Any) -> None:
        """Write an event to the task."""
        if event.author == "user":
            return
        if not event.partial:
            await self._count(event)
        self._error = (event.error_message or event.error_code) if event.error_code else None
        for part in (event.content.parts or ()) if event.content else ():
            await self._part(event, part)
        if not event.partial:
            self._streamed = ""
        if event.output is not None and not event.content:
            await self._ctx.artifact(event.output, id=self._id)
        for name, version in (event.actions.artifact_delta or {}).items():
            saved = await self._load(name, version)
            if saved is not None and (made := file_part(saved) or saved.text) is not None:
                await self._ctx.artifact(made, id=name, name=name)

    async def end(self) -> None:
        """Finish the turn; raises Failed if it ended with an error of the model."""
        if self._error is not None:
            raise Failed(f"The model failed: {self._error}")
        if self._is_structured and self._answer:
            await self._ctx.artifact(_data(self._answer), id=self._id)
        await self._ctx.finish(self._id)

    async def _part(self, event: Any, part: Any) -> None:
        if part.thought:
            return
        if part.text:
            await self._text(part.text, is_partial=bool(event.partial))
        elif part.function_call is not None and not event.partial:
            made = pending_call(part.function_call)
            if made.id in (event.long_running_tool_ids or ()):
                self.calls.append(made)
            else:
                await self._ctx.status(f"{event.author} calls {made.name}")
        elif (given := file_part(part)) is not None:
            await self._say(given)

    async def _text(self, text: str, *, is_partial: bool) -> None:
        """Write a text once. The framework sends it again as a whole after its pieces."""
        if is_partial:
            self._streamed += text
        elif self._streamed.startswith(text):
            self._streamed = self._streamed[len(text) :]
            return
        if self._is_structured:
            self._answer = self._streamed if is_partial else text
        else:
            await self._say(text)

    async def _say(self, chunk: Any) -> None:
        await self._ctx.artifact(chunk, id=self._id, append=True, last_chunk=False)

    async def _count(self, event: Any) -> None:
        used = event.usage_metadata
        if used is not None:
            spoken = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
            await self._ctx.usage(
                input_tokens=used.prompt_token_count or 0, output_tokens=spoken, model=event.model_version
            )


def _data(text: str) -> Any:
    """Return a structured answer as data, or as text if the model did not return valid JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
