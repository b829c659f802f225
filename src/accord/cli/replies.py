"""Replies of an agent, printed while they arrive, and the chat session.

A reply is printed as JSON lines, as text, or as its result only. The client guarantees that events are complete and in
order.
"""

import asyncio
import sys
from asyncio import Runner
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET

from accord.api import new_id
from accord.cli import agent_output, message_parts
from accord.cli.agent_output import Progress
from accord.cli.connection import AwaitedTask, ConnectionOptions, connect_client, report_failure
from accord.cli.failures import Exit, command_error, explain_failure
from accord.cli.tables import escape_json
from accord.client.text import StreamedText
from accord.model import (
    Artifact,
    ArtifactUpdate,
    CancelRequest,
    Event,
    GetRequest,
    Message,
    MessageUpdate,
    Role,
    SendRequest,
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

RESTARTED = "The agent restarted: ignore the output above"
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
                self._status(task.status)
                for artifact in task.artifacts:
                    self._artifact(artifact, self._texts.after(artifact))
            case StatusUpdate(status=status):
                if status.state is not self._state:
                    self._state = status.state
                    self._lines([agent_output.field("State", LOWER[status.state])])
                self._status(status)
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

    def _status(self, status: TaskStatus) -> None:
        if status.message is not None:
            self._lines(agent_output.of_parts(status.message.parts, "Status"))

    def _artifact(self, artifact: Artifact, text: str) -> None:
        if text:
            self._progress.stop()
            if self._texts.begins_anew(artifact):
                self.pause()
                agent_output.notice(RESTARTED)
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
        printed = "".join(self._shown.get(artifact.artifact_id, ()))
        self._shown[artifact.artifact_id] = [text]
        if not text.startswith(printed):
            self._replaced.add(artifact.artifact_id)
        return text.removeprefix(printed)

    def begins_anew(self, artifact: Artifact) -> bool:
        """Whether this artifact replaced printed text. Returns True once per replacement."""
        if artifact.artifact_id not in self._replaced:
            return False
        self._replaced.remove(artifact.artifact_id)
        return True


def reply_printer(
    options: ConnectionOptions,
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
        return ResultPrinter(progress, is_json=options.is_json, operation=operation)
    return JsonReplyPrinter(progress) if options.is_json else LiveTextPrinter(progress)


async def print_events(
    client: "Client",
    events: AsyncGenerator[Event, None],
    printer: ReplyPrinter,
    awaited: AwaitedTask,
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
                awaited.event(event)
                printer.event(event)
                body, is_old = event.body, is_reply and answer is None
                if isinstance(body, Task | Message):
                    answer, later = body, []
                else:
                    later.append(event)
                # Credentials may arrive by other means, so the command does not wait for them.
                asks = isinstance(body, Task | StatusUpdate) and body.status.state is TaskState.AUTH_REQUIRED
                if asks and not is_old:
                    break
        answer = await _final_task(client, answer, later, awaited)
        printer.end(answer)
    finally:
        printer.pause()
    return answer


async def _final_task(client: "Client", answer: Answer | None, later: list[Event], awaited: AwaitedTask) -> Answer:
    """Return the task after all events. It is fetched again if the events of the agent are inconsistent."""
    if isinstance(answer, Message) or (answer is not None and not later):
        return answer
    try:
        if answer is not None:
            return fold(answer, later)
    except ValueError:
        pass
    if awaited.task_id is None:
        raise command_error("The agent returned no reply")
    return await client.get(GetRequest(id=awaited.task_id))


def print_file_remarks(options: ConnectionOptions, task: Task) -> None:
    """Print the files of a task if only its text was printed."""
    files = [part for artifact in task.artifacts for part in artifact.parts if part.text is None and part.data is UNSET]
    for part in files:
        agent_output.notice(agent_output.field("File", agent_output.of_file(part)))
    if files:
        agent_output.notice(f"To save the files: {options.shell_command('task download', task.id)}")


def print_remarks(options: ConnectionOptions, answer: Answer) -> None:
    """Print the next step, or that the task failed, since the exit code does not show it."""
    if isinstance(answer, Message):
        return
    state = answer.status.state
    if state in INTERRUPTED:
        what = "an answer" if state is TaskState.INPUT_REQUIRED else "credentials"
        agent_output.notice(
            f"The task waits for {what}: {options.shell_command('send', '--task-id', answer.id, 'TEXT')}"
        )
    elif state not in TERMINAL and state is not TaskState.UNKNOWN:
        agent_output.notice(f"The task is still running: {options.shell_command('task subscribe', answer.id)}")
    elif state is not TaskState.COMPLETED:
        agent_output.notice(f"The task is {agent_output.state_of(answer)}")


# --- chat -------------------------------------------------------------------------------------------------------------

Result = TypeVar("Result")

HELP = """\
Enter a message or a command:
  /new          start a new conversation
  /file FILE    attach a file or URL to the next message
  /task         show the ids of the task and the conversation
  /wait         wait for the last task, if it is still running
  /cancel       cancel the last task
  /quit         end; so does Ctrl+D"""

PROMPT = "> "


class ChatSession:
    """A chat session.

    Lines are read between runs of the event loop, so that Ctrl+C interrupts either the prompt or the reply.
    """

    def __init__(
        self, options: ConnectionOptions, runner: Runner, context_id: str | None, task_id: str | None, *, is_typed: bool
    ) -> None:
        """Start a chat, or continue one with `context_id`."""
        self._options, self._runner, self._is_typed = options, runner, is_typed
        self._context_id = context_id
        self._open_task = task_id  # the task that waits for the next line
        self._awaited = AwaitedTask(task_id)
        self._files: list[str] = []
        self._commands = {
            "/new": self._new,
            "/file": self._file,
            "/task": self._task,
            "/wait": self._wait,
            "/cancel": self._cancel,
            "/help": self._help,
        }

    def run(self) -> Exit:
        """Chat until there are no more lines."""
        stack = AsyncExitStack()
        try:
            client = self._run(stack.enter_async_context(connect_client(self._options)))
            return client if isinstance(client, Exit) else self._talk(client)
        finally:
            self._runner.run(stack.aclose())

    def _talk(self, client: "Client") -> Exit:
        if self._is_typed:
            agent_output.notice(
                f"{agent_output.line(client.card.name)}: {agent_output.line(client.card.description)}"
                "\n/help lists the commands"
            )
        for line in self._lines():
            word, _, rest = line.partition(" ")
            if self._is_typed and word == "/quit":
                break
            is_command = self._is_typed and word in self._commands
            ended = self._run(self._commands[word](client, rest.strip()) if is_command else self._send(client, line))
            if isinstance(ended, Exit) and not self._is_typed:
                return ended
        return Exit.DONE

    def _lines(self) -> Iterator[str]:
        """Yield non-empty lines."""
        if self._is_typed:
            with suppress(ImportError):  # not every Python has it
                import readline  # noqa: F401  # it adds line editing to `input`
        while True:
            try:
                line = input(PROMPT) if self._is_typed else sys.stdin.readline()
            except (EOFError, KeyboardInterrupt):
                if not self._is_typed:
                    raise
                print(file=sys.stderr)
                return
            if not line and not self._is_typed:
                return
            if line.strip():
                yield line.strip()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result | Exit:
        """Run work within the timeout, and report its failure."""
        try:
            return self._runner.run(self._bounded(work))
        except KeyboardInterrupt:
            agent_output.notice(
                "\nStopped waiting. If the task is still running, use /wait to wait for it or /cancel to cancel it."
            )
            return Exit.INTERRUPTED
        except Exception as error:
            if isinstance(error, BrokenPipeError) or (failure := explain_failure(error)) is None:
                raise
            report_failure(self._options, failure)
            return failure.exit

    async def _bounded(self, work: Coroutine[Any, Any, Result]) -> Result:
        async with asyncio.timeout(self._options.seconds):
            return await work

    # --- commands of a line ---------------------------------------------------------------------------------------

    async def _send(self, client: "Client", line: str) -> None:
        files, self._files = self._files, []  # cleared even if one of them cannot be read
        message = Message(
            message_id=new_id(),
            role=Role.USER,
            parts=message_parts.parts_of(
                None,
                [message_parts.GivenPart("line", line), *(message_parts.GivenPart("file", path) for path in files)],
            ),
            context_id=self._context_id,
            task_id=self._open_task,
        )
        await self._follow(client, client.stream(SendRequest(message=message)), is_reply=self._open_task is not None)

    async def _follow(self, client: "Client", events: AsyncGenerator[Event, None], *, is_reply: bool = False) -> None:
        with Progress() as progress:
            printer = reply_printer(self._options, progress, stream=True, quiet=not self._options.is_json)
            answer = await print_events(client, events, printer, self._awaited, is_reply=is_reply)
        self._context_id = answer.context_id or self._context_id
        self._open_task = answer.id if isinstance(answer, Task) and answer.status.state in INTERRUPTED else None
        if self._open_task is None:
            print_remarks(self._options, answer)
        if self._is_typed and isinstance(answer, Task):
            print_file_remarks(self._options, answer)

    async def _new(self, client: "Client", rest: str) -> None:
        self._context_id = self._open_task = None
        self._awaited = AwaitedTask()

    async def _file(self, client: "Client", rest: str) -> None:
        self._files.append(rest)

    async def _task(self, client: "Client", rest: str) -> None:
        agent_output.notice(agent_output.field("Task", self._awaited.task_id or "-"))
        agent_output.notice(agent_output.field("Context", self._context_id or "-"))

    async def _wait(self, client: "Client", rest: str) -> None:
        await self._follow(client, aiter(client.task(self._task_id())))

    async def _cancel(self, client: "Client", rest: str) -> None:
        task = await client.cancel(CancelRequest(id=self._task_id()))
        self._open_task = None
        agent_output.notice(f"The task is {agent_output.state_of(task)}")

    async def _help(self, client: "Client", rest: str) -> None:
        agent_output.notice(HELP)

    def _task_id(self) -> str:
        if self._awaited.task_id is None:
            raise command_error("No task has started")
        return self._awaited.task_id
