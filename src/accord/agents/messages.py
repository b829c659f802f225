"""Message parts as model input, and agent output as one streamed answer.

It converts values and stores nothing. `engine.context` has the operations of an agent, and agent types use this module.
"""

import base64
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from accord.api import Context, parts_of, text_of
from accord.model import Message, Part, Role, Task, TaskState

CONVERSATION_MESSAGES = 100
"""Maximum number of earlier messages for a model; the user must choose a value that fits its context window."""

READABLE = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})
"""Media types beside text/* that a model reads as text."""

AUDIO = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav"}
"""Media type -> its name in OpenAI's API."""

OCTETS = "application/octet-stream"

MediaKind = Literal["image", "audio", "text", "other"]


# --- output of an agent -----------------------------------------------------------------------------------------------


def answer_id(ctx: Context) -> str:
    """Return the id of this turn's answer: the same in every execution of the turn, another in the next turn."""
    return f"answer-{ctx.place}"


async def append_answer(ctx: Context, chunk: Any) -> None:
    """Append a chunk to the answer of this turn; an empty text adds nothing."""
    if chunk != "":
        await ctx.artifact(chunk, id=answer_id(ctx), append=True, last_chunk=False)


async def finish_answer(ctx: Context) -> None:
    """Mark the answer of this turn as complete."""
    await ctx.finish(answer_id(ctx))


class StreamedAnswer:
    """The answer of a turn that takes several executions; earlier output is kept, and nothing is written twice.

    It is for agents with checkpoints of their own, which contain `parts`.
    """

    def __init__(self, ctx: Context, parts: Sequence[Part] = (), *, resumes: bool = True) -> None:
        """Resume after `parts`; an agent that does not resume after a crash writes it again."""
        self.parts = list(parts)
        self._ctx = ctx
        self._resumes = resumes

    @property
    def text(self) -> str:
        """Text of the answer."""
        return text_of(self.parts)

    async def restore(self) -> None:
        """Remove the output of a lost execution after its last checkpoint."""
        written = next(
            (artifact.parts for artifact in self._ctx.task.artifacts if artifact.artifact_id == answer_id(self._ctx)),
            (),
        )
        if self.parts and (not self._resumes or _merge_texts(written) != _merge_texts(self.parts)):
            await self.replace(*self.parts)
        elif written and not self.parts:
            await self.replace(Part(text=""))

    async def append(self, chunk: Any) -> None:
        """Append a chunk."""
        if chunk != "":
            self.parts += parts_of(chunk)
            await append_answer(self._ctx, chunk)

    async def replace(self, *parts: Part) -> None:
        """Replace the whole answer."""
        self.parts = list(parts)
        await self._ctx.artifact(parts, id=answer_id(self._ctx), last_chunk=False)

    async def conclude(self, text: str, *, exactly: bool = False) -> None:
        """End the answer with a text that is mostly streamed already; with `exactly`, the answer is only that text."""
        if self.text == text or (self.text.endswith(text) and not exactly):
            return
        await self.replace(*(part for part in self.parts if part.text is None), Part(text=text))

    async def clear(self) -> None:
        """Remove the whole answer."""
        if self.parts:
            await self.replace(Part(text=""))

    def checkpoint(self) -> list[Part]:
        """Return the answer in the form for a checkpoint."""
        self.parts = _merge_texts(self.parts)
        return self.parts


def _merge_texts(parts: Sequence[Part]) -> list[Part]:
    merged: list[Part] = []
    for is_text, group in groupby(parts, key=lambda part: part.text is not None):
        group_parts = list(group)
        merged += [Part(text=text)] if is_text and (text := text_of(group_parts)) else [] if is_text else group_parts
    return merged


# --- input from a caller ----------------------------------------------------------------------------------------------


def prompt(parts: Iterable[Part]) -> str:
    """Return parts as one text: data as JSON, text files with their content, other files by name."""
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
    """Return a part that is not text as text."""
    if part.data is not msgspec.UNSET:
        return msgspec.json.encode(part.data).decode()
    name = part.filename or "unnamed"
    kind = f" ({part.media_type})" if part.media_type else ""
    if part.url is not None:
        return f"File {name}{kind}: {part.url}"
    text = readable_text(part)
    return f"File {name}{kind}" if text is None else f"File {name}{kind}:\n{text}"


def readable_text(part: Part) -> str | None:
    """Return the text of a text file, or None."""
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
    """Whether a part links to a file on the web.

    A client that fetched other URLs, such as file:, could reveal its own files.
    """
    return part.url is not None and not part.is_reference and part.url.lower().startswith(("https://", "http://"))


def media_kind(part: Part) -> MediaKind:
    """Return the kind of input that a file is for a model, by its media type."""
    kind = (part.media_type or "").partition(";")[0].strip().lower()
    if kind.startswith("image/"):
        return "image"
    if kind.startswith("audio/"):
        return "audio"
    if kind.startswith("text/") or kind in READABLE or kind.endswith(("+json", "+xml")):
        return "text"
    return "other"


def data_url(part: Part) -> str:
    """Return a file's URL, or a data URL with its bytes."""
    if part.url is not None:
        return part.url
    return f"data:{part.media_type or OCTETS};base64,{base64_of(part)}"


def base64_of(part: Part) -> str:
    """Return a file's bytes as base64."""
    return base64.b64encode(part.raw or b"").decode()


def openai_content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    """Return parts as message content of OpenAI's chat API, which many servers use: a text if all parts are text."""
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


class LineBuffer:
    """Splits a stream of bytes into lines; `rest` is the last line, which is not complete yet."""

    def __init__(self) -> None:
        self.rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes, without blank ones."""
        self.rest += chunk
        if b"\n" not in chunk:
            return []
        *lines, self.rest = self.rest.split(b"\n")
        return [bytes(line) for line in lines if line.strip()]


# --- history ----------------------------------------------------------------------------------------------------------


async def conversation_history(ctx: Context, limit: int = CONVERSATION_MESSAGES) -> list[Message]:
    """Return the messages of this conversation, oldest first, ending with this task's own.

    Earlier tasks are included if they ended and were not rejected: their callers' messages, their questions and their
    answers. Progress reports are left out.
    """
    messages = [message for task in await ctx.conversation() for message in _ended_task_messages(task)]
    messages = [*messages, *_questions_and_answers(ctx.history)][-limit:]
    start = next((at for at, message in enumerate(messages) if message.role is Role.USER), 0)
    return messages[start:]  # many models require the user's message first


def _ended_task_messages(task: Task) -> list[Message]:
    """Return the messages of a task that has ended, with its answer."""
    if task.status.state is TaskState.REJECTED:
        return []
    parts = tuple(part for artifact in task.artifacts for part in artifact.parts)
    if not parts and task.status.state is TaskState.COMPLETED and task.status.message is not None:
        parts = task.status.message.parts
    messages = _questions_and_answers(task.history)
    if not parts:
        return messages
    return [*messages, Message(message_id=f"{task.id}/answer", role=Role.AGENT, parts=parts, task_id=task.id)]


def _questions_and_answers(history: tuple[Message, ...]) -> list[Message]:
    """Return the caller's messages and the questions that they answer; other messages of an agent are progress."""
    following = (*history[1:], None)
    return [
        message
        for message, reply in zip(history, following, strict=True)
        if message.role is Role.USER or (reply is not None and reply.role is Role.USER and text_of(message.parts))
    ]
