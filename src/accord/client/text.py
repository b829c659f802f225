"""The text of an agent's answer, whole or streamed.

Every part of every artifact counts (C-07), data as JSON. Files are not included: the caller reads them from
`Reply.raw`.
"""

from collections.abc import Iterable, Iterator

from msgspec import UNSET, Struct

from accord.model import (
    Artifact,
    ArtifactUpdate,
    EventBody,
    Message,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.protocol import codec
from accord.protocol.lifecycle import INTERRUPTED

FAILED_STATES = frozenset({TaskState.FAILED, TaskState.REJECTED})
"""States of tasks that ended without success, except canceled ones."""

_STATES_WITH_TEXT = INTERRUPTED | FAILED_STATES
"""States whose message adds a question or a reason to the artifacts.

The message of a completed task often only repeats them.
"""


class Reply(Struct, frozen=True, kw_only=True):
    """An agent's answer: its text, and the task or message in `raw`.

    A message without a task counts as completed.
    """

    task_id: str | None
    context_id: str | None
    status: TaskState
    text: str
    raw: Task | Message

    @classmethod
    def of(cls, answer: Task | Message) -> "Reply":
        """Create it from a task or message."""
        if isinstance(answer, Task):
            found = (answer.id, answer.status.state)
        else:
            found = (answer.task_id or "", TaskState.COMPLETED)
        text = text_of(answer)
        return cls(task_id=found[0] or None, context_id=answer.context_id, status=found[1], text=text, raw=answer)

    @property
    def has_failed(self) -> bool:
        """Whether the task failed or was rejected. `text` ends with the reason."""
        return self.status in FAILED_STATES

    @property
    def is_question(self) -> bool:
        """Whether the task waits for its caller. `text` ends with the question."""
        return self.status in INTERRUPTED


def text_of(answer: Task | Message) -> str:
    """Return the text of an answer: its artifacts and its status message, else its last message."""
    if isinstance(answer, Message):
        return _text(answer.parts)
    texts = [text for artifact in answer.artifacts if (text := _text(artifact.parts))]
    spoken = _status_text(answer.status, is_alone=not texts)
    if not texts and not spoken and answer.history and answer.history[-1].role is Role.AGENT:
        spoken = _text(answer.history[-1].parts)  # some servers store the answer only there
    return "\n".join([*texts, spoken] if spoken else texts)


def _status_text(status: TaskStatus, *, is_alone: bool) -> str:
    if status.message is None or not (is_alone or status.state in _STATES_WITH_TEXT):
        return ""
    return _text(status.message.parts)


def _text(parts: Iterable[Part]) -> str:
    artifact = _ArtifactText()
    return "".join(artifact.add(part) for part in parts)


class _ArtifactText:
    """The growing text of one artifact: text chunks are joined, data is on separate lines.

    `ahead` is the already reported text of an artifact that is being replaced, until the new text differs.
    """

    def __init__(self, ahead: str | None = None) -> None:
        self.ahead = ahead
        self._said: list[str] = []
        self._breaks = False

    def add(self, part: Part) -> str:
        """Add a part and return the text that it adds."""
        if part.text is not None:
            piece = f"\n{part.text}" if self._breaks and part.text else part.text
            self._breaks = self._breaks and not part.text
        elif part.data is not UNSET:
            piece = ("\n" if self._said else "") + codec.encode(part.data).decode()
            self._breaks = True
        else:
            piece = ""
        if piece:
            self._said.append(piece)
        return piece

    @property
    def text(self) -> str:
        """The text so far."""
        if len(self._said) > 1:
            self._said = ["".join(self._said)]
        return self._said[0] if self._said else ""


class StreamedText:
    """The text of a stream: the text that each event adds.

    If nothing was cut or replaced, the pieces together equal `text_of` the task at its end. Reported text cannot be
    withdrawn. An artifact that is replaced, whole or in chunks, adds only the text beyond the reported text. If its
    text differs, it is reported from its beginning.
    """

    def __init__(self) -> None:
        self._artifacts: dict[str, _ArtifactText] = {}
        self._last: str | None = None

    @property
    def is_silent(self) -> bool:
        """Whether no text has been reported yet."""
        return self._last is None

    def add(self, body: EventBody) -> Iterator[str]:
        """Yield the text that an event adds."""
        match body:
            case ArtifactUpdate(append=True, artifact=artifact):
                yield from self._more(artifact)
            case ArtifactUpdate(artifact=artifact):
                yield from self._whole(artifact)
            case StatusUpdate(status=status):
                yield from self._status(status)
            case Task():
                for artifact in body.artifacts:
                    yield from self._whole(artifact)
                yield from self._status(body.status)
            case Message():
                yield from self._alone(_text(body.parts))

    def end(self, task: Task) -> Iterator[str]:
        """Yield the text of an ended task if its stream had none."""
        if self.is_silent:
            yield from self._alone(text_of(task))

    def _more(self, artifact: Artifact) -> Iterator[str]:
        text = self._artifacts.setdefault(artifact.artifact_id, _ArtifactText())
        for part in artifact.parts:
            piece = text.add(part)
            if text.ahead is not None:
                piece = self._beyond(text)
            if piece:
                yield self._placed(artifact.artifact_id, piece)

    def _whole(self, artifact: Artifact) -> Iterator[str]:
        before = self._artifacts.get(artifact.artifact_id)
        reported = "" if before is None else before.text if before.ahead is None else before.ahead
        now = self._artifacts[artifact.artifact_id] = _ArtifactText(ahead=reported)
        for part in artifact.parts:
            now.add(part)
        if piece := self._beyond(now):
            yield self._placed(artifact.artifact_id, piece)

    def _beyond(self, lines: _ArtifactText) -> str:
        """Return the part of an artifact's text that was not reported yet."""
        reported, text = lines.ahead or "", lines.text
        if reported.startswith(text) and reported != text:
            return ""
        lines.ahead = None
        if text.startswith(reported):
            return text[len(reported) :]
        self._last = ""  # different text, so on a separate line
        return text

    def _status(self, status: TaskStatus) -> Iterator[str]:
        if status.state in _STATES_WITH_TEXT and (piece := _status_text(status, is_alone=False)):
            yield self._placed("", piece)

    def _alone(self, text: str) -> Iterator[str]:
        if text:
            yield self._placed("", text)

    def _placed(self, source: str, piece: str) -> str:
        """Return a piece, on a new line if the last piece had another source."""
        last, self._last = self._last, source
        return piece if last in (None, source) else f"\n{piece}"
