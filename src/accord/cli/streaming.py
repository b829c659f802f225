"""What an agent does while it does it: a line of JSON for each event, text as it comes, or a wait with its result.

A `Shown` is told every event and, at the end, what came of it. Where events come from, and that they are complete and
in order, is the client's business; how finished things look is `cli.output`.
"""

from collections.abc import Iterable
from typing import Protocol

from accord.cli import output
from accord.cli.progress import Progress
from accord.cli.tables import visible
from accord.client.text import StreamedText
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    Message,
    MessageUpdate,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.protocol.operations import Operation
from accord.protocol.states import LOWER

Answer = Task | Message

ANEW = "What was said so far does not count: the agent began anew"
"""As it does by default after a crash of its server; nothing that was printed can be taken back."""


class Shown(Protocol):
    """What prints an answer while it comes."""

    def event(self, event: Event) -> None:
        """Show what happened."""

    def end(self, answer: Answer) -> None:
        """Show what came of it: the task as it is now, or the message that answers."""

    def pause(self) -> None:
        """Leave the terminal as others expect it: there is something else to say."""


class JsonLines:
    """A line of JSON for each event."""

    def event(self, event: Event) -> None:
        """Print it; what A2A 1.0 has no event for is in the task."""
        if (frame := output.V1.encode_event(event)) is not None:
            output.write(visible(frame.data.decode()) + "\n")

    def end(self, answer: Answer) -> None:
        """There is nothing more: the last event says how it ended."""

    def pause(self) -> None:
        """Every line is whole."""


class Waiting:
    """Nothing but the result, as text or as one JSON document; people see meanwhile how it goes."""

    def __init__(
        self,
        progress: Progress,
        *,
        is_json: bool,
        operation: Operation = Operation.SEND,
        with_history: bool = False,
    ) -> None:
        """Print the answer of an operation."""
        self._progress, self._is_json, self._operation = progress, is_json, operation
        self._with_history = with_history

    def event(self, event: Event) -> None:
        """Show people how it goes."""
        self._progress.event(event)

    def end(self, answer: Answer) -> None:
        """Print the result."""
        self.pause()
        if self._is_json:
            output.document(self._operation, answer)
        elif isinstance(answer, Task):
            output.lines(output.of_task(answer, with_history=self._with_history))
        else:
            output.lines(output.of_message(answer))

    def pause(self) -> None:
        """Take the progress off the screen."""
        self._progress.stop()


class LiveText:
    """Fields and blocks, as they come; a text that grows is a block that grows."""

    def __init__(self, progress: Progress) -> None:
        """Begin with nothing shown."""
        self._progress = progress
        self._texts = _Texts()
        self._open: str | None = None
        self._last = "\n"
        self._has_message = False
        self._state: TaskState | None = None

    def event(self, event: Event) -> None:
        """Print what is new."""
        match event.body:
            case Task() as task:
                self._state = task.status.state
                self._lines(output.heading(task))
                self._said(task.status)
                for artifact in task.artifacts:
                    self._artifact(artifact, self._texts.after(artifact))
            case StatusUpdate(status=status):
                if status.state is not self._state:
                    self._state = status.state
                    self._lines([output.field("State", LOWER[status.state])])
                self._said(status)
            case ArtifactUpdate(artifact=artifact, append=append):
                self._artifact(artifact, self._texts.after(artifact, append=append))
            case Message() as message:
                self._lines(output.of_message(message))
            case MessageUpdate(message=message) if message.role is Role.AGENT:
                self._has_message = True
                self._lines(output.of_parts(message.parts, "Message"))
        if self._open is None:
            self._progress.event(event)

    def end(self, answer: Answer) -> None:
        """Say once more which task it is and how it stands: who watches only the end needs it."""
        self.pause()
        if isinstance(answer, Task):
            if not self._has_message:
                output.lines(output.of_last_message(answer))
            output.lines(output.heading(answer))

    def pause(self) -> None:
        """End the block that is open."""
        self._progress.stop()
        if self._open is not None:
            output.write("\n" if self._last == "\n" else "\n\n")
            self._open = None

    def _lines(self, lines: Iterable[str]) -> None:
        self.pause()
        output.lines(lines)

    def _said(self, status: TaskStatus) -> None:
        if status.message is not None:
            self._lines(output.of_parts(status.message.parts, "Status"))

    def _artifact(self, artifact: Artifact, text: str) -> None:
        if text:
            self._progress.stop()
            if self._texts.begins_anew(artifact):
                self.pause()
                output.tell(ANEW)
            if self._open != artifact.artifact_id:
                self._lines([output.field("Artifact", artifact.name or artifact.artifact_id), "Text:"])
                self._open = artifact.artifact_id
            output.write(output.safe(text))
            self._last = text[-1]
        others = [part for part in artifact.parts if part.text is None]
        if others:
            if self._open != artifact.artifact_id:
                self._lines([output.field("Artifact", artifact.name or artifact.artifact_id)])
            self._lines(output.of_parts(others, "Text"))


class OnlyText:
    """The answer's text and nothing else (C-07); files and what is said on the way are left out."""

    def __init__(self, progress: Progress) -> None:
        """Begin with nothing said."""
        self._progress = progress
        self._text = StreamedText()
        self._last = "\n"

    def event(self, event: Event) -> None:
        """Print the text that is new."""
        self._print(self._text.add(event.body))
        if self._last == "\n":
            self._progress.event(event)

    def end(self, answer: Answer) -> None:
        """Print what is still to be said."""
        if isinstance(answer, Task):
            self._print(self._text.end(answer))
        self.pause()

    def pause(self) -> None:
        """End the line."""
        self._progress.stop()
        if self._last != "\n":
            output.write("\n")
            self._last = "\n"

    def _print(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            self._progress.stop()
            output.write(output.safe(piece))
            self._last = piece[-1]


class _Texts:
    """How much of each artifact's text was shown: streams that begin anew say again what was said."""

    def __init__(self) -> None:
        self._shown: dict[str, list[str]] = {}
        self._replaced: set[str] = set()

    def after(self, artifact: Artifact, *, append: bool = False) -> str:
        """Return the text that is new: all of it, if it is not what was there with something added."""
        text = output.text_of(artifact.parts)
        if append:
            self._shown.setdefault(artifact.artifact_id, []).append(text)
            return text
        shown = "".join(self._shown.get(artifact.artifact_id, ()))
        self._shown[artifact.artifact_id] = [text]
        if not text.startswith(shown):
            self._replaced.add(artifact.artifact_id)
        return text.removeprefix(shown)

    def begins_anew(self, artifact: Artifact) -> bool:
        """Whether something else was shown in the place of what comes now; it is said once."""
        if artifact.artifact_id not in self._replaced:
            return False
        self._replaced.remove(artifact.artifact_id)
        return True
