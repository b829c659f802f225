"""Conversion of tool arguments to messages, and of tasks to tool results and forms.

Text, images and audio have their own content types, other files are embedded resources, and data is structured content.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from msgspec import UNSET, Struct, UnsetType

from accord.engine.context import APPROVAL
from accord.engine.messages import text_of
from accord.model import Message, Part, Role, Task, TaskState
from accord.protocol import lifecycle

OCTETS = "application/octet-stream"

SKILL_METADATA = "skill"
"""Message metadata key of the requested skill."""


class InvalidArguments(ValueError):
    """The arguments are not valid; the message gives the reason."""


class ToolFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file, by content or by URL."""

    name: str | None = None
    media_type: str | None = None
    content: bytes | None = None
    url: str | None = None


class ToolArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of a tool call."""

    message: str | None = None
    data: Any | UnsetType = UNSET
    files: tuple[ToolFile, ...] = ()
    task_id: str | None = None
    context_id: str | None = None

    @property
    def says_nothing(self) -> bool:
        """Whether there is nothing to send."""
        return not self.message and self.data is UNSET and not self.files


def read_arguments(given: dict[str, Any] | None) -> ToolArguments:
    """Return the arguments of a call."""
    try:
        found = msgspec.convert(given or {}, ToolArguments)
    except msgspec.ValidationError as error:
        raise InvalidArguments(f"These arguments are not understood: {error}") from None
    if found.says_nothing and not found.task_id:
        raise InvalidArguments("Say something: a message, data or files; or name the task_id of a task to look at")
    return found


def message_of(arguments: ToolArguments, skill: str | None = None) -> Message:
    """Return the message of a call."""
    parts: list[Part] = []
    if arguments.message:
        parts.append(Part(text=arguments.message))
    if arguments.data is not UNSET:
        parts.append(Part(data=arguments.data, media_type="application/json"))
    parts += [_part(file) for file in arguments.files]
    return Message(
        message_id=uuid4().hex,
        role=Role.USER,
        parts=tuple(parts),
        task_id=arguments.task_id or None,
        context_id=arguments.context_id or None,
        metadata=None if skill is None else {SKILL_METADATA: skill},
    )


def _part(file: ToolFile) -> Part:
    if (file.content is None) is (file.url is None):
        raise InvalidArguments("A file needs its content, as base64, or else its url")
    media_type = file.media_type or (None if file.content is None else OCTETS)
    return Part(raw=file.content, url=file.url, filename=file.name, media_type=media_type)


ANSWER_FIELD = "answer"
"""Name of the form for questions, and of its text field."""

FAILED_STATES = frozenset({TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED, TaskState.UNKNOWN})

_ANSWER_SCHEMA = {
    "type": "object",
    "properties": {ANSWER_FIELD: {"type": "string", "title": "Answer"}},
    "required": [ANSWER_FIELD],
}
_APPROVAL_SCHEMA = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "title": "Approve"},
        "comment": {"type": "string", "title": "Comment"},
    },
    "required": ["approved"],
}


def result_of(answer: Task | Message) -> CallToolResult:
    """Return the tool result of a task or message, complete or not."""
    if isinstance(answer, Message):
        about = {"state": _state(TaskState.COMPLETED), "context_id": answer.context_id}
        return _result([answer.parts], answer.message_id, about)
    state = answer.status.state
    about = {"state": _state(state), "task_id": answer.id, "context_id": answer.context_id}
    made = [artifact.parts for artifact in answer.artifacts]
    said = [answer.status.message.parts] if answer.status.message else []
    told = [*made, *said] if state in lifecycle.INTERRUPTED | FAILED_STATES else made or said
    return _result(told, answer.id, about, hint=_hint(answer), is_error=state in FAILED_STATES)


def refusal_result(text: str) -> CallToolResult:
    """Return an error result that explains a refusal to the model."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def form_of(task: Task) -> ElicitRequest:
    """Return an agent's question as a form."""
    asked = task.status.message
    text = (text_of(asked.parts) if asked else "") or "The agent asks for more"
    schema = _APPROVAL_SCHEMA if _wants_yes_or_no(task) else _ANSWER_SCHEMA
    return ElicitRequest(params=ElicitRequestFormParams(message=text, requested_schema=schema))


def form_arguments(task_id: str, form: ElicitResult) -> ToolArguments | None:
    """Return a form's answer as arguments, or None if it was not filled in."""
    if form.action != "accept" or not form.content:
        return None
    if ANSWER_FIELD in form.content:
        return ToolArguments(message=str(form.content[ANSWER_FIELD]), task_id=task_id)
    return ToolArguments(data=form.content, task_id=task_id)


def _wants_yes_or_no(task: Task) -> bool:
    asked = task.status.message
    return asked is not None and bool((asked.metadata or {}).get(APPROVAL))


def _state(state: TaskState) -> str:
    return state.name.lower().replace("_", "-")


def _hint(task: Task) -> str | None:
    match task.status.state:
        case TaskState.INPUT_REQUIRED:
            return f"The agent waits for an answer: call this tool again with it as message and task_id {task.id}"
        case TaskState.AUTH_REQUIRED:
            return f"The agent waits for credentials; then call this tool again with task_id {task.id}"
        case TaskState.SUBMITTED | TaskState.WORKING:
            return f"The agent still works on it: call this tool again with task_id {task.id} and no message"
    return None


def _result(
    told: Sequence[Sequence[Part]], of: str, about: dict[str, Any], *, hint: str | None = None, is_error: bool = False
) -> CallToolResult:
    """Return a result in which each artifact and each message is a separate text."""
    parts = [part for one in told for part in one]
    data = [part.data for part in parts if part.data is not msgspec.UNSET]
    structured: dict[str, Any] = {name: value for name, value in about.items() if value is not None}
    if text := "\n".join(filter(None, map(text_of, told))):
        structured["text"] = text
    if data:
        structured["data"] = data[0] if len(data) == 1 else data
    numbers = count()
    content = [block for one in told for block in _blocks(one, of, numbers)]
    if hint is not None:
        content.append(TextContent(text=hint))
    return CallToolResult(content=content, structured_content=structured, is_error=is_error)


def _blocks(parts: Iterable[Part], of: str, numbers: Iterator[int]) -> list[ContentBlock]:
    """Return content blocks; consecutive texts are joined, as they were streamed."""
    found: list[ContentBlock] = []
    for part, number in zip(parts, numbers, strict=False):
        if part.text is not None and found and isinstance(found[-1], TextContent):
            found[-1] = TextContent(text=found[-1].text + part.text)
        else:
            found.append(
                _block(part, f"a2a://{quote(of, safe='')}/{quote(part.filename or f'file-{number}', safe='')}")
            )
    return found


def _block(part: Part, uri: str) -> ContentBlock:
    kind = (part.media_type or OCTETS).partition(";")[0].strip().lower()
    if part.text is not None:
        return TextContent(text=part.text)
    if part.url is not None:
        return ResourceLink(name=part.filename or part.url, uri=part.url, mime_type=part.media_type)
    if part.raw is None:
        return TextContent(text=msgspec.json.encode(part.data).decode())
    if kind.startswith("text/"):
        try:
            text = TextResourceContents(uri=uri, mime_type=kind, text=part.raw.decode())
        except UnicodeDecodeError:
            kind = OCTETS
        else:
            return EmbeddedResource(resource=text)
    encoded = base64.b64encode(part.raw).decode()
    if kind.startswith("image/"):
        return ImageContent(data=encoded, mime_type=kind)
    if kind.startswith("audio/"):
        return AudioContent(data=encoded, mime_type=kind)
    return EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=kind, blob=encoded))
