"""Message parts as model input, and agent output as one streamed answer.

It converts values and keeps nothing. What an agent may do is `engine.context`; the agent types stand above.
"""

import base64
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from accord.engine.context import Context
from accord.engine.messages import parts_of, text_of
from accord.model import Message, Part, Role, Task, TaskState

CONVERSATION_MESSAGES = 100
"""Messages of a conversation that a model is reminded of; its window is the user's to know."""

READABLE = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})
"""Media types beside text/* that a model reads as text."""

AUDIO = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav"}
"""Media type -> the name that OpenAI's API has for a sound."""

OCTETS = "application/octet-stream"

MediaKind = Literal["image", "audio", "text", "other"]


# --- what an agent says ---------------------------------------------------------------------------------------------


def answer_id(ctx: Context) -> str:
    """Return the id of the artifact that answers this turn: the same in every run of the turn, another in the next."""
    return f"answer-{ctx.place}"


async def say(ctx: Context, chunk: Any) -> None:
    """Add a chunk to the answer of this turn; an empty text says nothing."""
    if chunk != "":
        await ctx.artifact(chunk, id=answer_id(ctx), append=True, last_chunk=False)


async def finish_answer(ctx: Context) -> None:
    """Say that the answer of this turn is whole."""
    await ctx.finish(answer_id(ctx))


class StreamedAnswer:
    """The answer of a turn that is made in several runs: what was said before is there, and nothing is said twice.

    It is for agents that keep checkpoints of their own, with `said` in each of them.
    """

    def __init__(self, ctx: Context, said: Sequence[Part] = (), *, resumes: bool = True) -> None:
        """Go on after `said`; an agent that does not resume after a crash says it again."""
        self.said = list(said)
        self._ctx = ctx
        self._resumes = resumes

    @property
    def text(self) -> str:
        """What was said in words."""
        return text_of(self.said)

    async def restore(self) -> None:
        """Take back what a lost run said after its last checkpoint."""
        now = next((one.parts for one in self._ctx.task.artifacts if one.artifact_id == answer_id(self._ctx)), ())
        if self.said and (not self._resumes or _merge_texts(now) != _merge_texts(self.said)):
            await self.replace(*self.said)
        elif now and not self.said:
            await self.replace(Part(text=""))

    async def say(self, chunk: Any) -> None:
        """Add a chunk."""
        if chunk != "":
            self.said += parts_of(chunk)
            await say(self._ctx, chunk)

    async def replace(self, *parts: Part) -> None:
        """Say this in place of everything."""
        self.said = list(parts)
        await self._ctx.artifact(parts, id=answer_id(self._ctx), last_chunk=False)

    async def conclude(self, text: str, *, exactly: bool = False) -> None:
        """Let the answer end with a text, of which most has been said as it came, or be just that."""
        if self.text == text or (self.text.endswith(text) and not exactly):
            return
        await self.replace(*(part for part in self.said if part.text is None), Part(text=text))

    async def take_back(self) -> None:
        """Leave nothing of what was said."""
        if self.said:
            await self.replace(Part(text=""))

    def noted(self) -> list[Part]:
        """Return what was said, as a checkpoint keeps it."""
        self.said = _merge_texts(self.said)
        return self.said


def _merge_texts(parts: Sequence[Part]) -> list[Part]:
    """Return parts in which texts that follow each other are one."""
    found: list[Part] = []
    for is_text, group in groupby(parts, key=lambda part: part.text is not None):
        same = list(group)
        found += [Part(text=text)] if is_text and (text := text_of(same)) else [] if is_text else same
    return found


# --- what a caller says ---------------------------------------------------------------------------------------------


def prompt(parts: Iterable[Part]) -> str:
    """Return parts as one text: data as JSON, files that are text with what is in them, other files by name."""
    lines: list[str] = []
    is_text = False
    for part in parts:
        if part.text is not None and is_text:
            lines[-1] += part.text
        else:
            lines.append(part.text if part.text is not None else describe_part(part))
        is_text = part.text is not None
    return "\n".join(lines)


def describe_part(part: Part) -> str:
    """Return a part that is no text in words."""
    if part.data is not msgspec.UNSET:
        return msgspec.json.encode(part.data).decode()
    name = part.filename or "unnamed"
    kind = f" ({part.media_type})" if part.media_type else ""
    if part.url is not None:
        return f"File {name}{kind}: {part.url}"
    text = readable_text(part)
    return f"File {name}{kind}" if text is None else f"File {name}{kind}:\n{text}"


def readable_text(part: Part) -> str | None:
    """Return the text of a file that is one."""
    if part.raw is None or media_kind(part) != "text":
        return None
    try:
        return part.raw.decode()
    except UnicodeDecodeError:
        return None


def file_parts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts that carry or link to a file."""
    return tuple(part for part in parts if part.raw is not None or part.url is not None)


def is_linked(part: Part) -> bool:
    """Whether a part links to a file on the web; whoever fetches others, such as file:, may show what is their own."""
    return part.url is not None and not part.is_reference and part.url.lower().startswith(("https://", "http://"))


def media_kind(part: Part) -> MediaKind:
    """Return what a model makes of a file, by its media type."""
    kind = (part.media_type or "").partition(";")[0].strip().lower()
    if kind.startswith("image/"):
        return "image"
    if kind.startswith("audio/"):
        return "audio"
    if kind.startswith("text/") or kind in READABLE or kind.endswith(("+json", "+xml")):
        return "text"
    return "other"


def data_url(part: Part) -> str:
    """Return a file's address: its own, or one that carries its bytes."""
    if part.url is not None:
        return part.url
    return f"data:{part.media_type or OCTETS};base64,{base64_of(part)}"


def base64_of(part: Part) -> str:
    """Return a file's bytes as base64."""
    return base64.b64encode(part.raw or b"").decode()


def openai_content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    """Return parts as the content of a message of OpenAI's chat API, which many others speak: a text if it is one."""
    pieces: list[dict[str, Any]] = []
    for part in parts:
        piece = _openai_piece(part)
        if piece["type"] == "text" and pieces and pieces[-1]["type"] == "text":
            glue = "" if part.text is not None else "\n"
            pieces[-1] = {"type": "text", "text": pieces[-1]["text"] + glue + piece["text"]}
        else:
            pieces.append(piece)
    if all(piece["type"] == "text" for piece in pieces):
        return "".join(piece["text"] for piece in pieces)
    return pieces


def _openai_piece(part: Part) -> dict[str, Any]:
    sort = media_kind(part)
    kind = (part.media_type or "").partition(";")[0].lower()
    if sort == "image" and (part.raw is not None or is_linked(part)):
        return {"type": "image_url", "image_url": {"url": data_url(part)}}
    if part.raw is not None and sort == "audio" and kind in AUDIO:
        return {"type": "input_audio", "input_audio": {"data": base64_of(part), "format": AUDIO[kind]}}
    if part.raw is not None and readable_text(part) is None:
        return {"type": "file", "file": {"filename": part.filename or "file", "file_data": data_url(part)}}
    return {"type": "text", "text": part.text if part.text is not None else describe_part(part)}


# --- what was said before -------------------------------------------------------------------------------------------


async def conversation_history(ctx: Context, limit: int = CONVERSATION_MESSAGES) -> list[Message]:
    """Return what was said in this conversation, oldest first, ending with this task's own messages.

    Earlier tasks count if they have ended and were not refused: what their callers said, what they asked, and their
    answers. Progress reports are no part of it.
    """
    said = [message for task in await ctx.conversation() for message in _ended_task_messages(task)]
    said = [*said, *_questions_and_answers(ctx.history)][-limit:]
    first = next((at for at, message in enumerate(said) if message.role is Role.USER), 0)
    return said[first:]  # many models want their caller to begin


def _ended_task_messages(task: Task) -> list[Message]:
    """Return what was said in a task that has ended."""
    if task.status.state is TaskState.REJECTED:
        return []
    parts = tuple(part for artifact in task.artifacts for part in artifact.parts)
    if not parts and task.status.state is TaskState.COMPLETED and task.status.message is not None:
        parts = task.status.message.parts
    talk = _questions_and_answers(task.history)
    if not parts:
        return talk
    return [*talk, Message(message_id=f"{task.id}/answer", role=Role.AGENT, parts=parts, task_id=task.id)]


def _questions_and_answers(history: tuple[Message, ...]) -> list[Message]:
    """Return the caller's messages and the questions that they answer; whatever else an agent says is progress."""
    following = (*history[1:], None)
    return [
        said
        for said, after in zip(history, following, strict=True)
        if said.role is Role.USER or (after is not None and after.role is Role.USER and text_of(said.parts))
    ]
