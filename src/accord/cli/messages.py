"""Commands `accord send` and `accord chat`: messages to an agent.

In a chat, a line starts a task in the same context or answers the question of the last one. Without a terminal, lines
come from standard input and only the answers are printed.
"""

import sys
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from accord.cli.connection import (
    AwaitedTask,
    ConnectionOptions,
    report_failure,
    run_with_client,
    warn,
    with_connection_options,
)
from accord.cli.failures import Exit, command_error, explain_failure

if TYPE_CHECKING:
    from asyncio import Runner

    from accord.cli.agent_output import Progress
    from accord.client import Client
    from accord.model import Event, SendRequest


@with_connection_options("[TEXT]")
def send(  # size: one parameter for each flag
    reach: ConnectionOptions,
    text: str | None,
    texts: Annotated[
        list[str] | None, typer.Option("--text", metavar="TEXT", help="One more text; - is standard input.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="A file to attach, - for standard input, or an address that the agent is to fetch."
        ),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="JSON", help="Data: JSON, a file of it, or - for standard input.")
    ] = None,
    media_type: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="The media type of the part before it.")
    ] = None,
    task_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with this task: answer its question.")
    ] = None,
    context_id: Annotated[
        str | None, typer.Option(metavar="ID", help="A new task that belongs to this conversation.")
    ] = None,
    message_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The message's own id: who repeats it repeats no work.")
    ] = None,
    metadata: Annotated[str | None, typer.Option(metavar="JSON", help="An object to send along.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print what comes as it comes; JSON in lines.")] = False,
    async_: Annotated[
        bool, typer.Option("--async", "--no-wait", help="Do not wait: print the task and how to find it again.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the task ends or asks something; the default.")] = (
        False
    ),
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print the text of the answer and nothing else.")
    ] = False,
) -> None:
    """Send a message to an agent and wait for the reply.

    TEXT may be - for standard input. Texts, files and data are sent in their given order.
    """
    reach.check(quiet=quiet)
    if async_ and (wait or stream or quiet):
        raise typer.BadParameter("Whoever does not wait has nothing to wait for or to stream", param_hint="--async")
    values = {"texts": texts or [], "file": file or [], "data": data or [], "media_type": media_type or []}
    request = _request(text, reach.order, values, task_id, context_id, message_id, metadata)
    seen = AwaitedTask(task_id)

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import replies

        if async_:
            await _send_held(reach, client, progress, request)
            return
        shown = replies.reply_printer(reach, progress, stream=stream, quiet=quiet)
        answer = await replies.print_events(client, client.stream(request), shown, seen, is_reply=task_id is not None)
        replies.print_remarks(reach, answer)

    run_with_client(reach, work, seen)


def _request(
    text: str | None,
    order: Any,
    values: dict[str, list[str]],
    task_id: str | None,
    context_id: str | None,
    message_id: str | None,
    metadata: str | None,
) -> "SendRequest":
    from accord.api import new_id
    from accord.cli import message_parts
    from accord.model import Message, Role, SendRequest

    message = Message(
        message_id=message_id or new_id(),
        role=Role.USER,
        parts=message_parts.parts_of(text, message_parts.given_parts(order, values)),
        task_id=task_id,
        context_id=context_id,
    )
    return SendRequest(message=message, metadata=None if metadata is None else message_parts.parse_object(metadata))


async def _send_held(reach: ConnectionOptions, client: "Client", progress: "Progress", request: "SendRequest") -> None:
    from msgspec.structs import replace

    from accord.cli import replies
    from accord.model import SendConfiguration

    at_once = replace(request, configuration=SendConfiguration(return_immediately=True))
    answer = await client.send(at_once)
    replies.reply_printer(reach, progress, stream=False).end(answer)
    replies.print_remarks(reach, answer)


Result = TypeVar("Result")

HELP = """\
Type a message, or one of these:
  /new          begin another conversation
  /file FILE    attach a file, or an address, to the next message
  /task         show which task and conversation this is
  /wait         follow the last task, if it goes on
  /cancel       cancel the last task
  /quit         end; so does Ctrl+D"""

PROMPT = "> "


@with_connection_options()
def chat(
    reach: ConnectionOptions,
    context_id: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this conversation.")] = None,
    task_id: Annotated[str | None, typer.Option(metavar="ID", help="Answer the question of this task first.")] = None,
) -> None:
    """Chat with an agent. The next line answers its question."""
    from asyncio import Runner

    is_typed = sys.stdin.isatty()
    if is_typed and (reach.is_json or not sys.stdout.isatty()):
        raise typer.BadParameter("Somebody types, so the answers belong in a terminal; or pipe lines into it")
    warn(reach)
    with Runner() as runner:
        raise typer.Exit(ChatSession(reach, runner, context_id, task_id, is_typed=is_typed).run())


class ChatSession:
    """A chat session.

    Lines are read between runs of the event loop, so that Ctrl+C interrupts either the prompt or the reply.
    """

    def __init__(
        self, reach: ConnectionOptions, runner: "Runner", context_id: str | None, task_id: str | None, *, is_typed: bool
    ) -> None:
        """Start a chat, or continue one with `context_id`."""
        self._reach, self._runner, self._is_typed = reach, runner, is_typed
        self._context_id = context_id
        self._asking = task_id  # the task that waits for the next line
        self._seen = AwaitedTask(task_id)
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
        from accord.cli.connection import connect_client

        stack = AsyncExitStack()
        try:
            client = self._done(stack.enter_async_context(connect_client(self._reach)))
            return client if isinstance(client, Exit) else self._talk(client)
        finally:
            self._runner.run(stack.aclose())

    def _talk(self, client: "Client") -> Exit:
        from accord.cli import agent_output

        if self._is_typed:
            agent_output.tell(
                f"{agent_output.line(client.card.name)}: {agent_output.line(client.card.description)}\n/help shows more"
            )
        for line in self._lines():
            word, _, rest = line.partition(" ")
            if self._is_typed and word == "/quit":
                break
            is_command = self._is_typed and word in self._commands
            ended = self._done(self._commands[word](client, rest.strip()) if is_command else self._say(client, line))
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

    def _done(self, work: Coroutine[Any, Any, Result]) -> Result | Exit:
        """Run work within the timeout, and report its failure."""
        from accord.cli import agent_output

        try:
            return self._runner.run(self._bounded(work))
        except KeyboardInterrupt:
            agent_output.tell("\nNo longer waiting. If the task goes on, /wait follows it and /cancel cancels it.")
            return Exit.INTERRUPTED
        except Exception as error:
            if isinstance(error, BrokenPipeError) or (failure := explain_failure(error)) is None:
                raise
            report_failure(self._reach, failure)
            return failure.exit

    async def _bounded(self, work: Coroutine[Any, Any, Result]) -> Result:
        from asyncio import timeout

        async with timeout(self._reach.seconds):
            return await work

    # --- commands of a line ---------------------------------------------------------------------------------------

    async def _say(self, client: "Client", line: str) -> None:
        from accord.api import new_id
        from accord.cli import message_parts
        from accord.model import Message, Role, SendRequest

        files, self._files = self._files, []  # cleared even if one of them cannot be read
        message = Message(
            message_id=new_id(),
            role=Role.USER,
            parts=message_parts.parts_of(
                None,
                [message_parts.GivenPart("line", line), *(message_parts.GivenPart("file", path) for path in files)],
            ),
            context_id=self._context_id,
            task_id=self._asking,
        )
        await self._follow(client, client.stream(SendRequest(message=message)), is_reply=self._asking is not None)

    async def _follow(self, client: "Client", events: "AsyncGenerator[Event, None]", *, is_reply: bool = False) -> None:
        from accord.cli import replies
        from accord.cli.agent_output import Progress
        from accord.model import Task
        from accord.protocol.lifecycle import INTERRUPTED

        with Progress() as progress:
            shown = replies.reply_printer(self._reach, progress, stream=True, quiet=not self._reach.is_json)
            answer = await replies.print_events(client, events, shown, self._seen, is_reply=is_reply)
        self._context_id = answer.context_id or self._context_id
        self._asking = answer.id if isinstance(answer, Task) and answer.status.state in INTERRUPTED else None
        if self._asking is None:
            replies.print_remarks(self._reach, answer)
        if self._is_typed and isinstance(answer, Task):
            replies.print_file_remarks(self._reach, answer)

    async def _new(self, client: "Client", rest: str) -> None:
        self._context_id = self._asking = None
        self._seen = AwaitedTask()

    async def _file(self, client: "Client", rest: str) -> None:
        self._files.append(rest)

    async def _task(self, client: "Client", rest: str) -> None:
        from accord.cli import agent_output

        agent_output.tell(agent_output.field("Task", self._seen.task_id or "-"))
        agent_output.tell(agent_output.field("Context", self._context_id or "-"))

    async def _wait(self, client: "Client", rest: str) -> None:
        await self._follow(client, aiter(client.task(self._known())))

    async def _cancel(self, client: "Client", rest: str) -> None:
        from accord.cli import agent_output
        from accord.model import CancelRequest

        task = await client.cancel(CancelRequest(id=self._known()))
        self._asking = None
        agent_output.tell(f"The task is {agent_output.state_of(task)}")

    async def _help(self, client: "Client", rest: str) -> None:
        from accord.cli import agent_output

        agent_output.tell(HELP)

    def _known(self) -> str:
        if self._seen.task_id is None:
            raise command_error("There is no task yet")
        return self._seen.task_id
