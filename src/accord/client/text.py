"""The text of an agent's answer, whole or as it is streamed.

Every part of every artifact counts (C-07), data as JSON. Files are left to the caller, who has `Said.raw`.
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
"""Ends that are not what the caller wanted, nor what it asked for by cancelling."""

_STATES_WITH_TEXT = INTERRUPTED | FAILED_STATES
"""States whose message says something that the artifacts do not: a question, or a reason. That of a finished task often
only repeats them."""


class Said(Struct, frozen=True, kw_only=True):
    """An agent's answer: its text, and `raw` with everything. A message without a task counts as completed."""

    task_id: str | None
    context_id: str | None
    status: TaskState
    text: str
    raw: Task | Message

    @classmethod
    def of(cls, answer: Task | Message) -> "Said":
        """Read an answer."""
        if isinstance(answer, Task):
            found = (answer.id, answer.status.state)
        else:
            found = (answer.task_id or "", TaskState.COMPLETED)
        text = text_of(answer)
        return cls(task_id=found[0] or None, context_id=answer.context_id, status=found[1], text=text, raw=answer)

    @property
    def has_failed(self) -> bool:
        """Whether the agent could not, or would not, do it; `text` ends with its reason."""
        return self.status in FAILED_STATES

    @property
    def is_question(self) -> bool:
        """Whether the task waits for its caller; `text` ends with what it asks."""
        return self.status in INTERRUPTED


def text_of(answer: Task | Message) -> str:
    """Return what an answer says: its artifacts, then what its status adds to them; else its last message."""
    if isinstance(answer, Message):
        return _text(answer.parts)
    made = [text for artifact in answer.artifacts if (text := _text(artifact.parts))]
    spoken = _status_text(answer.status, is_alone=not made)
    if not made and not spoken:
        spoken = _last_message_text(answer.history)
    return "\n".join([*made, spoken] if spoken else made)


def _status_text(status: TaskStatus, *, is_alone: bool) -> str:
    if status.message is None or not (is_alone or status.state in _STATES_WITH_TEXT):
        return ""
    return _text(status.message.parts)


def _last_message_text(history: tuple[Message, ...]) -> str:
    """Return the last message of the agent: some servers keep the answer nowhere else."""
    return _text(history[-1].parts) if history and history[-1].role is Role.AGENT else ""


def _text(parts: Iterable[Part]) -> str:
    found = _ArtifactText()
    return "".join(found.add(part) for part in parts)


class _ArtifactText:
    """One artifact's text as it grows: chunks of text follow each other, data stands on lines of its own.

    `ahead` is what was already told of an artifact that is being made anew, until it says something new.
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
        """Everything so far."""
        if len(self._said) > 1:
            self._said = ["".join(self._said)]
        return self._said[0] if self._said else ""


class StreamedText:
    """The text of a stream: what each event adds to what was already said.

    Where nothing was cut or replaced, all pieces together are `text_of` the task at its end. What was said cannot be
    taken back: an artifact that is made anew, whole or in chunks, adds what goes beyond what was said of it, unless it
    says something else; then it is said from its beginning.
    """

    def __init__(self) -> None:
        self._artifacts: dict[str, _ArtifactText] = {}
        self._last: str | None = None

    @property
    def is_silent(self) -> bool:
        """Whether nothing has been said yet."""
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
        """Yield what a task says that has ended in silence: its message, perhaps, or what it said before."""
        if self.is_silent:
            yield from self._alone(text_of(task))

    def _more(self, artifact: Artifact) -> Iterator[str]:
        known = self._artifacts.setdefault(artifact.artifact_id, _ArtifactText())
        for part in artifact.parts:
            piece = known.add(part)
            if known.ahead is not None:
                piece = self._beyond(known)
            if piece:
                yield self._placed(artifact.artifact_id, piece)

    def _whole(self, artifact: Artifact) -> Iterator[str]:
        before = self._artifacts.get(artifact.artifact_id)
        told = "" if before is None else before.text if before.ahead is None else before.ahead
        now = self._artifacts[artifact.artifact_id] = _ArtifactText(ahead=told)
        for part in artifact.parts:
            now.add(part)
        if piece := self._beyond(now):
            yield self._placed(artifact.artifact_id, piece)

    def _beyond(self, lines: _ArtifactText) -> str:
        """Return what an artifact says that was not told of it before."""
        told, text = lines.ahead or "", lines.text
        if told.startswith(text) and told != text:
            return ""
        lines.ahead = None
        if text.startswith(told):
            return text[len(told) :]
        self._last = ""  # something else, so on a line of its own
        return text

    def _status(self, status: TaskStatus) -> Iterator[str]:
        if status.state in _STATES_WITH_TEXT and (piece := _status_text(status, is_alone=False)):
            yield self._placed("", piece)

    def _alone(self, text: str) -> Iterator[str]:
        if text:
            yield self._placed("", text)

    def _placed(self, source: str, piece: str) -> str:
        """Return a piece, on a new line if the last one came from elsewhere."""
        last, self._last = self._last, source
        return piece if last in (None, source) else f"\n{piece}"
