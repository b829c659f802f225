"""From what an agent answered to the result of a tool call, and from what it asks to a form.

Text is text, images and sounds are such, other files are embedded resources, and everything that a program wants to
know is structured content. Pure conversion; `calls` stands above.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any
from urllib.parse import quote

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

from accord.bindings.mcp.arguments import OCTETS, Arguments
from accord.engine.context import APPROVAL
from accord.engine.messages import text_of
from accord.model import Message, Part, Task, TaskState
from accord.protocol import lifecycle

ANSWER = "answer"
"""The name of the form that asks, and of its field for words."""

FAILURES = frozenset({TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED, TaskState.UNKNOWN})

_WORDS = {
    "type": "object",
    "properties": {ANSWER: {"type": "string", "title": "Answer"}},
    "required": [ANSWER],
}
_YES_OR_NO = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "title": "Approve"},
        "comment": {"type": "string", "title": "Comment"},
    },
    "required": ["approved"],
}


def result_of(answer: Task | Message) -> CallToolResult:
    """Return the result that says what an agent answered, as far as it has."""
    if isinstance(answer, Message):
        about = {"state": _state(TaskState.COMPLETED), "context_id": answer.context_id}
        return _result([answer.parts], answer.message_id, about)
    state = answer.status.state
    about = {"state": _state(state), "task_id": answer.id, "context_id": answer.context_id}
    made = [artifact.parts for artifact in answer.artifacts]
    said = [answer.status.message.parts] if answer.status.message else []
    told = [*made, *said] if state in lifecycle.INTERRUPTED | FAILURES else made or said
    return _result(told, answer.id, about, hint=_hint(answer), is_error=state in FAILURES)


def refusal(text: str) -> CallToolResult:
    """Return the result that says why there is none, for the model to do better."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def form_of(task: Task) -> ElicitRequest:
    """Return what an agent asks as a form."""
    asked = task.status.message
    text = (text_of(asked.parts) if asked else "") or "The agent asks for more"
    schema = _YES_OR_NO if _wants_yes_or_no(task) else _WORDS
    return ElicitRequest(params=ElicitRequestFormParams(message=text, requested_schema=schema))


def filled(task_id: str, form: ElicitResult) -> Arguments | None:
    """Return the answer that a form has, or None if it was not filled in."""
    if form.action != "accept" or not form.content:
        return None
    if ANSWER in form.content:
        return Arguments(message=str(form.content[ANSWER]), task_id=task_id)
    return Arguments(data=form.content, task_id=task_id)


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
    """Return what was told: each artifact and each message is a text of its own."""
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
    """Return content; texts that follow each other are one, as they were streamed."""
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
