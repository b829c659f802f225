"""The reply of an agent, printed while it arrives.

It is printed as JSON lines, as text, or as its result only. The client guarantees that events are complete and in
order.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec import UNSET

from accord.cli import agent_output
from accord.cli.agent_output import Progress
from accord.cli.connection import AwaitedTask
from accord.cli.connection_options import ConnectionOptions
from accord.cli.failures import command_error
from accord.cli.tables import escape_json
from accord.client.text import StreamedText
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    GetRequest,
    Message,
    MessageUpdate,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.protocol.lifecycle import INTERRUPTED, TERMINAL, fold
from accord.protocol.operations import Operation
from accord.protocol.states import LOWER

if TYPE_CHECKING:
    from accord.client import Client


Answer = Task | Message

RESTARTED = "What was said so far does not count: the agent began anew"
"""Message after an agent's restart, its default after a crash of its server: printed text cannot be taken back."""


class ReplyPrinter:
    """Prints a reply while it arrives; progress is drawn on a terminal meanwhile."""

    def __init__(self, progress: Progress | None = None) -> None:
        """Create a printer without output."""
        self._progress = progress or Progress()

    def event(self, event: Event) -> None:
        """Print an event."""
        self._progress.event(event)

    def end(self, answer: Answer) -> None:
        """Print the result: the final task, or the message that answers."""

    def pause(self) -> None:
        """Clear the terminal for other output."""
        self._progress.stop()


class JsonReplyPrinter(ReplyPrinter):
    """Prints each event as a line of JSON. The last one has the final state."""

    def event(self, event: Event) -> None:
        """Print the event. Events that A2A 1.0 lacks are part of the task."""
        if (frame := agent_output.V1.encode_event(event)) is not None:
            agent_output.write(escape_json(frame.data.decode()) + "\n")


class ResultPrinter(ReplyPrinter):
    """Prints only the result, as text or as one JSON document, with progress on a terminal."""

    def __init__(
        self,
        progress: Progress,
        *,
        is_json: bool,
        operation: Operation = Operation.SEND,
        with_history: bool = False,
    ) -> None:
        """Print the result of an operation."""
        super().__init__(progress)
        self._is_json, self._operation, self._with_history = is_json, operation, with_history

    def end(self, answer: Answer) -> None:
        """Print the result."""
        self.pause()
        if self._is_json:
            agent_output.document(self._operation, answer)
        elif isinstance(answer, Task):
            agent_output.lines(agent_output.of_task(answer, with_history=self._with_history))
        else:
            agent_output.lines(agent_output.of_message(answer))


class LiveTextPrinter(ReplyPrinter):
    """Prints fields and blocks as they come. A streamed text extends its block."""

    def __init__(self, progress: Progress) -> None:
        """Create a printer without output."""
        super().__init__(progress)
        self._texts = _PrintedTexts()
        self._open: str | None = None
        self._last = "\n"
        self._has_message = False
        self._state: TaskState | None = None

    def event(self, event: Event) -> None:
        """Print the changes of an event."""
        match event.body:
            case Task() as task:
                self._state = task.status.state
                self._lines(agent_output.heading(task))
                self._said(task.status)
                for artifact in task.artifacts:
                    self._artifact(artifact, self._texts.after(artifact))
            case StatusUpdate(status=status):
                if status.state is not self._state:
                    self._state = status.state
                    self._lines([agent_output.field("State", LOWER[status.state])])
                self._said(status)
            case ArtifactUpdate(artifact=artifact, append=append):
                self._artifact(artifact, self._texts.after(artifact, append=append))
            case Message() as message:
                self._lines(agent_output.of_message(message))
            case MessageUpdate(message=message) if message.role is Role.AGENT:
                self._has_message = True
                self._lines(agent_output.of_parts(message.parts, "Message"))
        if self._open is None:
            self._progress.event(event)

    def end(self, answer: Answer) -> None:
        """Print the task's id and state again, for readers of the last lines."""
        self.pause()
        if isinstance(answer, Task):
            if not self._has_message:
                agent_output.lines(agent_output.of_last_message(answer))
            agent_output.lines(agent_output.heading(answer))

    def pause(self) -> None:
        """End the open block."""
        self._progress.stop()
        if self._open is not None:
            agent_output.write("\n" if self._last == "\n" else "\n\n")
            self._open = None

    def _lines(self, lines: Iterable[str]) -> None:
        self.pause()
        agent_output.lines(lines)

    def _said(self, status: TaskStatus) -> None:
        if status.message is not None:
            self._lines(agent_output.of_parts(status.message.parts, "Status"))

    def _artifact(self, artifact: Artifact, text: str) -> None:
        if text:
            self._progress.stop()
            if self._texts.begins_anew(artifact):
                self.pause()
                agent_output.tell(RESTARTED)
            if self._open != artifact.artifact_id:
                self._lines([agent_output.field("Artifact", artifact.name or artifact.artifact_id), "Text:"])
                self._open = artifact.artifact_id
            agent_output.write(agent_output.safe(text))
            self._last = text[-1]
        others = [part for part in artifact.parts if part.text is None]
        if others:
            if self._open != artifact.artifact_id:
                self._lines([agent_output.field("Artifact", artifact.name or artifact.artifact_id)])
            self._lines(agent_output.of_parts(others, "Text"))


class PlainTextPrinter(ReplyPrinter):
    """Prints only the text of the answer (C-07), without files and intermediate messages."""

    def __init__(self, progress: Progress) -> None:
        """Create a printer without output."""
        super().__init__(progress)
        self._text = StreamedText()
        self._last = "\n"

    def event(self, event: Event) -> None:
        """Print the new text."""
        self._print(self._text.add(event.body))
        if self._last == "\n":
            self._progress.event(event)

    def end(self, answer: Answer) -> None:
        """Print the remaining text."""
        if isinstance(answer, Task):
            self._print(self._text.end(answer))
        self.pause()

    def pause(self) -> None:
        """End the line."""
        self._progress.stop()
        if self._last != "\n":
            agent_output.write("\n")
            self._last = "\n"

    def _print(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            self._progress.stop()
            agent_output.write(agent_output.answer_text(piece))
            self._last = piece[-1]


class _PrintedTexts:
    """The printed text of each artifact: a stream that starts over repeats it."""

    def __init__(self) -> None:
        self._shown: dict[str, list[str]] = {}
        self._replaced: set[str] = set()

    def after(self, artifact: Artifact, *, append: bool = False) -> str:
        """Return the new text of an artifact: all of it unless it only extends the printed text."""
        text = agent_output.text_of(artifact.parts)
        if append:
            self._shown.setdefault(artifact.artifact_id, []).append(text)
            return text
        shown = "".join(self._shown.get(artifact.artifact_id, ()))
        self._shown[artifact.artifact_id] = [text]
        if not text.startswith(shown):
            self._replaced.add(artifact.artifact_id)
        return text.removeprefix(shown)

    def begins_anew(self, artifact: Artifact) -> bool:
        """Whether this artifact replaced printed text. Returns True once per replacement."""
        if artifact.artifact_id not in self._replaced:
            return False
        self._replaced.remove(artifact.artifact_id)
        return True


def reply_printer(
    reach: ConnectionOptions,
    progress: Progress,
    *,
    stream: bool,
    quiet: bool = False,
    operation: Operation = Operation.SEND,
) -> ReplyPrinter:
    """Return the printer for these flags."""
    if quiet:
        return PlainTextPrinter(progress)
    if not stream:
        return ResultPrinter(progress, is_json=reach.is_json, operation=operation)
    return JsonReplyPrinter(progress) if reach.is_json else LiveTextPrinter(progress)


async def print_events(
    client: "Client",
    events: AsyncGenerator[Event, None],
    shown: ReplyPrinter,
    seen: AwaitedTask,
    *,
    is_reply: bool = False,
) -> Answer:
    """Print events until the end or until credentials are required, and return the result.

    After a reply the first event is the task, possibly in its earlier state.
    """
    answer: Answer | None = None
    later: list[Event] = []
    try:
        async with aclosing(events):
            async for event in events:
                seen.event(event)
                shown.event(event)
                is_old = is_reply and answer is None
                if isinstance(event.body, Task | Message):
                    answer, later = event.body, []
                else:
                    later.append(event)
                if not is_old and _wants_credentials(event):
                    break
        answer = await _final_task(client, answer, later, seen)
        shown.end(answer)
    finally:
        shown.pause()
    return answer


def _wants_credentials(event: Event) -> bool:
    """Whether the task waits for credentials, which may arrive by other means, so the command does not wait."""
    body = event.body
    return isinstance(body, Task | StatusUpdate) and body.status.state is TaskState.AUTH_REQUIRED


async def _final_task(client: "Client", answer: Answer | None, later: list[Event], seen: AwaitedTask) -> Answer:
    """Return the task after all events. It is fetched again if the events of the agent are inconsistent."""
    if isinstance(answer, Message) or (answer is not None and not later):
        return answer
    try:
        if answer is not None:
            return fold(answer, later)
    except ValueError:
        pass
    if seen.task_id is None:
        raise command_error("The agent answered nothing")
    return await client.get(GetRequest(id=seen.task_id))


def print_file_remarks(reach: ConnectionOptions, task: Task) -> None:
    """Print the files of a task if only its text was printed."""
    files = [part for artifact in task.artifacts for part in artifact.parts if part.text is None and part.data is UNSET]
    for part in files:
        agent_output.tell(agent_output.field("File", agent_output.of_file(part)))
    if files:
        agent_output.tell(f"To save them: {reach.again('task download', task.id)}")


def print_remarks(reach: ConnectionOptions, answer: Answer) -> None:
    """Print the next step, or that the task failed, since the exit code does not show it."""
    if isinstance(answer, Message):
        return
    state = answer.status.state
    if state in INTERRUPTED:
        what = "an answer" if state is TaskState.INPUT_REQUIRED else "credentials"
        agent_output.tell(f"The task waits for {what}: {reach.again('send', '--task-id', answer.id, 'TEXT')}")
    elif state not in TERMINAL and state is not TaskState.UNKNOWN:
        agent_output.tell(f"The task goes on: {reach.again('task subscribe', answer.id)}")
    elif state is not TaskState.COMPLETED:
        agent_output.tell(f"The task is {agent_output.state_of(answer)}")
