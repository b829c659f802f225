"""Encodes the events of a task as an AI SDK UI message stream.

It is pure: the same event log gives the same chunks, so an answer resumes by encoding it again. It writes only chunks
of `ai` 5.0.0, and always ends with `finish` or `error`. Text that an agent repeats after a restart is shown once.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Struct

from accord.api import APPROVAL, text_of
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    Message,
    MessageUpdate,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.model.metadata_keys import SCHEMA
from accord.protocol import lifecycle
from accord.protocol.states import LOWER

Chunk = dict[str, Any]


class _StreamedText:
    """A text and its shown pieces. While it is repeated, `repeated` is the length that has come again."""

    def __init__(self) -> None:
        self.id = ""
        self.is_open = False
        self.shown: list[str] = []
        self.repeated: int | None = None


class StreamedTexts:
    """The texts of one answer, by artifact or message id."""

    def __init__(self) -> None:
        """Create an empty set of texts."""
        self._texts: dict[str, _StreamedText] = {}
        self._ids: set[str] = set()

    def has(self, text: str) -> bool:
        """Whether exactly this text is shown already."""
        return any(
            sum(map(len, shown.shown)) == len(text) and "".join(shown.shown) == text for shown in self._texts.values()
        )

    def whole(self, of: str, text: str) -> Iterator[Chunk]:
        """Show a text at once."""
        self.expect_repetition(of)
        yield from self.add(of, text)
        yield from self.end(of)

    def add(self, of: str, piece: str) -> Iterator[Chunk]:
        """Add to a text. A repetition of shown text yields nothing."""
        text = self._texts.setdefault(of, _StreamedText())
        if text.repeated is not None:
            shown = "".join(text.shown)
            remaining = shown[text.repeated :]
            if remaining.startswith(piece):
                text.repeated += len(piece)
                return
            if piece.startswith(remaining):
                piece, text.repeated = piece[len(remaining) :], None
            else:
                piece = shown[: text.repeated] + piece
                yield from self._restart(text)
        if not text.is_open:
            text.id, text.is_open = self._new_id(of), True
            yield {"type": "text-start", "id": text.id}
        text.shown.append(piece)
        yield {"type": "text-delta", "id": text.id, "delta": piece}

    def expect_repetition(self, of: str) -> None:
        """Expect a text to be repeated from its start."""
        text = self._texts.get(of)
        if text is not None and text.shown:
            text.repeated = 0

    def end(self, of: str) -> Iterator[Chunk]:
        """End a text. If its repetition is shorter than before, the text is shown again."""
        text = self._texts.get(of)
        if text is None:
            return
        if text.repeated is not None:
            shown, left = "".join(text.shown), text.repeated
            text.repeated = None
            if 0 < left < len(shown):
                yield from self._restart(text)
                yield from self.add(of, shown[:left])
        yield from self._closed(text)

    def end_all(self) -> Iterator[Chunk]:
        """End all open texts."""
        for of in list(self._texts):
            yield from self.end(of)

    def _restart(self, text: _StreamedText) -> Iterator[Chunk]:
        yield from self._closed(text)
        text.shown, text.repeated = [], None

    def _closed(self, text: _StreamedText) -> Iterator[Chunk]:
        if text.is_open:
            text.is_open = False
            yield {"type": "text-end", "id": text.id}

    def _new_id(self, of: str) -> str:
        """Return an id unused in this answer: a text that has ended cannot continue under its own."""
        number, id = 1, of
        while id in self._ids:
            number += 1
            id = f"{of}-{number}"
        self._ids.add(id)
        return id


TASK = "task"
"""`artifactType` of a message about a task."""

PLAN, CREATE, UPDATE = "planTasks", "createTask", "updateTask"
"""Tools that front ends know by name. Any other is a dynamic tool."""

TOOL = "tool"
"""Metadata key of a status: `{"name", "callId", "input", "output" | "error"}`, a tool call of the agent."""

DETAILS = "Details"
"""Name of the data in a message beside its text."""

REASONS = {
    TaskState.COMPLETED: "stop",
    TaskState.INPUT_REQUIRED: "other",
    TaskState.AUTH_REQUIRED: "other",
    TaskState.CANCELED: "other",
}
"""State that ends an answer -> finish reason, in the terms of language models."""

ERRORS = {
    TaskState.FAILED: "The task failed",
    TaskState.REJECTED: "The agent rejected the task",
    TaskState.UNKNOWN: "The agent has not reported for too long. Its task may still end",
}
"""State without an answer -> default error text."""

OCTETS = "application/octet-stream"


class AnswerInfo(Struct, frozen=True, kw_only=True):
    """An answer: its message and creation time, its task, and its agent with the name in paths.

    If the task existed before, `asked` is the message to it that is answered.
    """

    message_id: str
    task_id: str
    context_id: str
    agent: str
    slug: str
    created_at: str
    title: str = ""
    asked: str | None = None

    def start(self, **more: Any) -> Chunk:
        """Return the first chunk, with the metadata that clients need at once."""
        metadata = {
            "contextId": self.context_id,
            "taskId": self.task_id,
            "agent": self.slug,
            "createdAt": self.created_at,
            **more,
        }
        return {"type": "start", "messageId": self.message_id, "messageMetadata": metadata}

    def task(self, status: str, **more: Any) -> dict[str, Any]:
        """Return the task as a list row, as far as it is known."""
        return {
            "artifactType": TASK,
            "taskId": self.task_id,
            "id": self.task_id,
            "contextId": self.context_id,
            "agent": self.agent,
            "slug": self.slug,
            "title": self.title,
            "status": status,
            **more,
        }


class UiStreamEncoder:
    """Encodes one answer."""

    def __init__(self, about: AnswerInfo) -> None:
        """Create an encoder before its first event."""
        self.is_done = False
        self._about = about
        self._is_reached = about.asked is None
        self._texts = StreamedTexts()
        self._artifacts: dict[str, list[Part]] = {}
        self._names: dict[str, Artifact] = {}
        self._unshown: dict[str, None] = {}
        self._tools: set[str] = set()
        self._files: set[str] = set()
        self._shown: Chunk = {}

    def begin(self) -> list[Chunk]:
        """Return the first chunks of an answer."""
        state = TaskState.SUBMITTED if self._about.asked is None else TaskState.WORKING
        return [
            self._about.start(mode="stream"),
            {"type": "start-step"},
            *self._task(TaskStatus(state=state), 0, None),
        ]

    def feed(self, event: Event) -> list[Chunk]:
        """Return the chunks of an event. After the event that ends the answer there are none."""
        body = event.body
        if self.is_done:
            return []
        if self._is_reached or isinstance(body, Task):
            self._is_reached = True
            return list(self._event(event))
        self._is_reached = isinstance(body, MessageUpdate) and body.message.message_id == self._about.asked
        if isinstance(body, ArtifactUpdate):  # earlier parts are kept, so that later ones get the right index
            self._keep(body.artifact, append=body.append)
        return []

    def broken(self, reason: str) -> list[Chunk]:
        """Return the last chunks of an answer that cannot continue."""
        return [] if self.is_done else list(self._failed(reason, None))

    # --- events ---------------------------------------------------------------------------------------------------

    def _event(self, event: Event) -> Iterator[Chunk]:
        match event.body:
            case StatusUpdate(status=status, metadata=metadata):
                yield from self._tool((metadata or {}).get(TOOL))
                yield from self._status(status, event)
            case ArtifactUpdate(artifact=artifact, append=append, last_chunk=last_chunk):
                yield from self._artifact(artifact, append=append, last_chunk=last_chunk)
            case MessageUpdate(message=message) if message.role is Role.AGENT:
                yield from self._message(message)
            case Task() as task:  # a snapshot of a compacted log
                for artifact in task.artifacts:
                    yield from self._artifact(artifact, append=False, last_chunk=True)
                yield from self._status(task.status, event)

    def _status(self, status: TaskStatus, event: Event) -> Iterator[Chunk]:
        state = status.state
        if status.message is not None and state in REASONS:
            yield from self._message(status.message)
        yield from self._task(status, event.seq, event.at)
        text = text_of(status.message.parts) if status.message else ""
        if state in ERRORS:
            yield from self._failed(text or ERRORS[state], event.at)
        elif state in REASONS:
            aborted = [{"type": "abort"}] if state is TaskState.CANCELED else []
            why = "abort" if aborted else REASONS[state]
            finish = {
                "type": "finish",
                "finishReason": REASONS[state],
                "messageMetadata": _finish_metadata(why, event.at),
            }
            yield from self._ended(*aborted, {"type": "finish-step"}, finish)

    def _failed(self, reason: str, at: str | None) -> Iterator[Chunk]:
        about = {"type": "message-metadata", "messageMetadata": _finish_metadata("error", at)}
        yield from self._ended(about, {"type": "error", "errorText": reason})

    def _ended(self, *last: Chunk) -> Iterator[Chunk]:
        self.is_done = True
        yield from self._texts.end_all()
        for identifier in list(self._unshown):
            yield from self._card(identifier)
        yield from last

    def _task(self, status: TaskStatus, seq: int, at: str | None) -> Iterator[Chunk]:
        """Yield the state of the task if it changed. The same id replaces the earlier state."""
        text = text_of(status.message.parts) if status.message else ""
        asks = status.state in lifecycle.INTERRUPTED
        data = self._about.task(
            LOWER[status.state],
            **({"statusMessage": text} if text else {}),
            **(_question(status.message, text) if asks else {}),
        )
        if data == self._shown:
            return
        self._shown = data
        dated = {} if at is None else {"updatedAt": at}
        yield {"type": "data-task", "id": self._about.task_id, "data": {**data, **dated, "seq": seq}}

    def _message(self, message: Message) -> Iterator[Chunk]:
        """Yield an agent's message, unless an artifact has the same text."""
        text = text_of(message.parts)
        if text and not self._texts.has(text):
            yield from self._texts.whole(message.message_id, text)
        place = f"message/{quote(message.message_id, safe='')}"
        for at, part in enumerate(message.parts):
            yield from self._file(part, place, at)
        if data := [part for part in message.parts if part.data is not UNSET and not _is_repetition(part.data, text)]:
            yield self._shown_parts(message.message_id, data, place, {"name": DETAILS})

    # --- artifacts ------------------------------------------------------------------------------------------------

    def _artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> Iterator[Chunk]:
        identifier = artifact.artifact_id
        if not append:
            self._texts.expect_repetition(identifier)
        for at, part in self._keep(artifact, append=append):
            yield from self._file(part, quote(identifier, safe=""), at)
            if part.text is None:
                self._unshown[identifier] = None
            elif part.text:
                yield from self._texts.add(identifier, part.text)
        if (last_chunk or not append) and identifier in self._unshown:
            yield from self._card(identifier)
        if last_chunk:
            yield from self._texts.end(identifier)

    def _keep(self, artifact: Artifact, *, append: bool) -> list[tuple[int, Part]]:
        """Append to an artifact or replace it, and return its new parts by index."""
        identifier = artifact.artifact_id
        parts = self._artifacts.setdefault(identifier, [])
        if not append:
            parts.clear()
        self._names[identifier] = artifact if not append or artifact.name else self._names.get(identifier, artifact)
        new = [part for part in artifact.parts if not (append and part == lifecycle.NOTHING)]
        parts += new
        return list(enumerate(new, len(parts) - len(new)))

    def _card(self, identifier: str) -> Iterator[Chunk]:
        """Yield an artifact that is not only text."""
        self._unshown.pop(identifier, None)
        named = self._names[identifier]
        members = {"name": named.name, "description": named.description, "metadata": named.metadata}
        yield self._shown_parts(identifier, self._artifacts[identifier], quote(identifier, safe=""), members)

    def _shown_parts(self, identifier: str, parts: Iterable[Part], place: str, members: dict[str, Any]) -> Chunk:
        data = {
            "artifactId": identifier,
            "taskId": self._about.task_id,
            **{name: value for name, value in members.items() if value},
            "parts": [self._part(part, place, at) for at, part in enumerate(parts)],
        }
        return {"type": "data-artifact", "id": identifier, "data": data}

    def _part(self, part: Part, place: str, at: int) -> dict[str, Any]:
        members: dict[str, Any] = {"mediaType": part.media_type, "filename": part.filename}
        if part.text is not None:
            members["text"] = part.text
        elif part.data is not UNSET:
            return {"data": part.data, **{name: value for name, value in members.items() if value is not None}}
        else:
            members["url"] = self._address(part, place, at)
        return {name: value for name, value in members.items() if value is not None}

    def _file(self, part: Part, place: str, at: int) -> Iterator[Chunk]:
        address = self._address(part, place, at)
        if address is not None and address not in self._files:  # an agent that is restarted creates it again
            self._files.add(address)
            yield {"type": "file", "url": address, "mediaType": part.media_type or OCTETS}

    def _address(self, part: Part, place: str, at: int) -> str | None:
        """Return the URL of a file: below the task if it contains the bytes, else its own web URL, else None.

        Pages make links of URLs, and agents may name any, such as `javascript:` ones.
        """
        if part.raw is not None:
            return f"/api/tasks/{quote(self._about.task_id, safe='')}/files/{place}/{at}"
        is_web = part.url is not None and part.url.lower().startswith(("https://", "http://"))
        return part.url if is_web else None

    # --- tools ----------------------------------------------------------------------------------------------------

    def _tool(self, tool: Any) -> Iterator[Chunk]:
        """Yield a tool call of an agent and its result. A malformed call yields nothing."""
        if not isinstance(tool, dict):
            return
        name, call = tool.get("name"), tool.get("callId")
        if not (isinstance(name, str) and name and isinstance(call, str) and call):
            return
        kind: dict[str, Any] = {} if name in (PLAN, CREATE, UPDATE) else {"dynamic": True}
        if call not in self._tools:
            self._tools.add(call)
            arguments = tool.get("input")
            yield {
                "type": "tool-input-available",
                "toolCallId": call,
                "toolName": name,
                "input": {} if arguments is None else arguments,
                **kind,
            }
        if "error" in tool:
            yield {"type": "tool-output-error", "toolCallId": call, "errorText": str(tool["error"]), **kind}
        elif "output" in tool:
            output = {} if tool["output"] is None else tool["output"]
            yield {"type": "tool-output-available", "toolCallId": call, "output": output, **kind}
            if name in (CREATE, UPDATE) and isinstance(output, dict) and isinstance(output.get("taskId"), str):
                data = {"artifactType": TASK, "id": output["taskId"], "contextId": self._about.context_id, **output}
                yield {"type": "data-task", "id": output["taskId"], "data": data}


def _is_repetition(data: Any, text: str) -> bool:
    """Whether data only repeats the text beside it and the request for approval."""
    return isinstance(data, dict) and all(key == APPROVAL or value == text for key, value in data.items())


def _question(message: Message | None, text: str) -> dict[str, Any]:
    """Return the question, and the `schema` of its answer if the agent stated one."""
    metadata = (message.metadata if message else None) or {}
    return {"question": text, **{key: metadata[key] for key in (SCHEMA, APPROVAL) if metadata.get(key)}}


def _finish_metadata(reason: str, at: str | None) -> dict[str, Any]:
    """Return the metadata of a message that is complete."""
    return {"finishReason": reason, **({} if at is None else {"endedAt": at})}


# --- an acknowledgement -----------------------------------------------------------------------------------------------

ACCEPTED = "The task is accepted. You can continue: its progress is shown here."
PASSED_ON = "Your answer is passed on to the task."


def acknowledgement(about: AnswerInfo, status: str) -> list[Chunk]:
    """Return an answer that ends before its task: the task was created, or received a message."""
    is_new = about.asked is None
    given = {"agent": about.slug, "title": about.title} if is_new else {"taskId": about.task_id}
    call, text = f"task-{about.message_id}", f"text-{about.message_id}"
    end = {"finishReason": "stop", "messageMetadata": _finish_metadata("stop", about.created_at)}
    return [
        about.start(mode="task", artifactType=TASK),
        {"type": "start-step"},
        {"type": "tool-input-available", "toolCallId": call, "toolName": CREATE if is_new else UPDATE, "input": given},
        {"type": "tool-output-available", "toolCallId": call, "output": {"taskId": about.task_id, "status": status}},
        {"type": "data-task", "id": about.task_id, "data": about.task(status, seq=0)},
        {"type": "text-start", "id": text},
        {"type": "text-delta", "id": text, "delta": ACCEPTED if is_new else PASSED_ON},
        {"type": "text-end", "id": text},
        {"type": "finish-step"},
        {"type": "finish", **end},
    ]


def message_answer(about: AnswerInfo, message: Message) -> list[Chunk]:
    """Return the answer of an agent that sends a message without a task."""
    encoder = UiStreamEncoder(about)
    begun = [chunk for chunk in encoder.begin() if chunk["type"] != "data-task"]
    status = TaskStatus(state=TaskState.COMPLETED, message=message, timestamp=about.created_at)
    update = StatusUpdate(task_id=about.task_id, context_id=about.context_id, status=status)
    chunks = [*begun, *encoder.feed(Event(seq=1, body=update, at=about.created_at))]
    return [chunk for chunk in chunks if chunk["type"] != "data-task"]


# --- on the wire ------------------------------------------------------------------------------------------------------

NEWER_MEMBERS = {"finish": frozenset({"finishReason"})}
"""Type of a chunk -> members that `ai` 5.0.0 refuses and version 6 accepts."""

DONE = b"data: [DONE]\n\n"

_encoder = msgspec.json.Encoder()


def frame(chunk: Chunk, version: int = 5) -> bytes:
    """Return a chunk as a server-sent event, for a client of that major version of the SDK."""
    left_out = NEWER_MEMBERS.get(chunk["type"], frozenset()) if version < 6 else frozenset()
    members = {name: value for name, value in chunk.items() if name not in left_out} if left_out else chunk
    return b"data: " + _encoder.encode(members) + b"\n\n"
