"""`accord chat`: a conversation with an agent, one line at a time.

A line begins a task of the conversation, or answers the question of the one before. In a terminal people type and see
the answer as it comes; otherwise lines are read from standard input and only the answers are printed.
"""

import sys
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from accord.cli.asking import Seen, report, warn
from accord.cli.exits import Exit, explained, failed
from accord.cli.reaching import Reach, reaching

if TYPE_CHECKING:
    from asyncio import Runner

    from accord.client import Client
    from accord.model import Event

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


@reaching()
def chat(
    reach: Reach,
    context_id: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this conversation.")] = None,
    task_id: Annotated[str | None, typer.Option(metavar="ID", help="Answer the question of this task first.")] = None,
) -> None:
    """Talk with an agent. What it asks is answered by the next line."""
    from asyncio import Runner

    is_typed = sys.stdin.isatty()
    if is_typed and (reach.is_json or not sys.stdout.isatty()):
        raise typer.BadParameter("Somebody types, so the answers belong in a terminal; or pipe lines into it")
    warn(reach)
    with Runner() as runner:
        raise typer.Exit(Talk(reach, runner, context_id, task_id, is_typed=is_typed).run())


class Talk:
    """A conversation.

    Lines are read between runs of the loop, so that Ctrl+C finds either somebody who types or an answer that comes.
    """

    def __init__(
        self, reach: Reach, runner: "Runner", context_id: str | None, task_id: str | None, *, is_typed: bool
    ) -> None:
        """Begin a conversation, or go on with one."""
        self._reach, self._runner, self._is_typed = reach, runner, is_typed
        self._context_id = context_id
        self._asking = task_id  # the task that waits for the next line
        self._seen = Seen(task_id)
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
        """Talk until there are no more lines."""
        from accord.cli.connecting import connected

        stack = AsyncExitStack()
        try:
            client = self._done(stack.enter_async_context(connected(self._reach)))
            return client if isinstance(client, Exit) else self._talk(client)
        finally:
            self._runner.run(stack.aclose())

    def _talk(self, client: "Client") -> Exit:
        from accord.cli import output

        if self._is_typed:
            output.tell(f"{output.line(client.card.name)}: {output.line(client.card.description)}\n/help shows more")
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
        """Yield lines that say something."""
        if self._is_typed:
            with suppress(ImportError):  # not every Python has it
                import readline  # noqa: F401  # it makes `input` one that can be edited
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
        """Do something within its time, and say what went wrong with it."""
        from accord.cli import output

        try:
            return self._runner.run(self._bounded(work))
        except KeyboardInterrupt:
            output.tell("\nNo longer waiting. If the task goes on, /wait follows it and /cancel cancels it.")
            return Exit.INTERRUPTED
        except Exception as error:
            if isinstance(error, BrokenPipeError) or (failure := explained(error)) is None:
                raise
            report(self._reach, failure)
            return failure.exit

    async def _bounded(self, work: Coroutine[Any, Any, Result]) -> Result:
        from asyncio import timeout

        async with timeout(self._reach.seconds):
            return await work

    # --- what a line may be -------------------------------------------------------------------------------------------

    async def _say(self, client: "Client", line: str) -> None:
        from accord.cli import parts
        from accord.engine.ids import new_id
        from accord.model import Message, Role, SendRequest

        files, self._files = self._files, []  # forgotten even if one of them cannot be read
        message = Message(
            message_id=new_id(),
            role=Role.USER,
            parts=parts.parts_of(None, [parts.Given("line", line), *(parts.Given("file", path) for path in files)]),
            context_id=self._context_id,
            task_id=self._asking,
        )
        await self._follow(client, client.stream(SendRequest(message=message)), is_reply=self._asking is not None)

    async def _follow(self, client: "Client", events: "AsyncGenerator[Event, None]", *, is_reply: bool = False) -> None:
        from accord.cli import following
        from accord.cli.progress import Progress
        from accord.model import Task
        from accord.protocol.lifecycle import INTERRUPTED

        with Progress() as progress:
            shown = following.shown_as(self._reach, progress, stream=True, quiet=not self._reach.is_json)
            answer = await following.follow(client, events, shown, self._seen, is_reply=is_reply)
        self._context_id = answer.context_id or self._context_id
        self._asking = answer.id if isinstance(answer, Task) and answer.status.state in INTERRUPTED else None
        if self._asking is None:
            following.remark(self._reach, answer)
        if self._is_typed and isinstance(answer, Task):
            following.remark_files(self._reach, answer)

    async def _new(self, client: "Client", rest: str) -> None:
        self._context_id = self._asking = None
        self._seen = Seen()

    async def _file(self, client: "Client", rest: str) -> None:
        self._files.append(rest)

    async def _task(self, client: "Client", rest: str) -> None:
        from accord.cli import output

        output.tell(output.field("Task", self._seen.task_id or "-"))
        output.tell(output.field("Context", self._context_id or "-"))

    async def _wait(self, client: "Client", rest: str) -> None:
        await self._follow(client, aiter(client.task(self._known())))

    async def _cancel(self, client: "Client", rest: str) -> None:
        from accord.cli import output
        from accord.model import CancelRequest

        task = await client.cancel(CancelRequest(id=self._known()))
        self._asking = None
        output.tell(f"The task is {output.state_of(task)}")

    async def _help(self, client: "Client", rest: str) -> None:
        from accord.cli import output

        output.tell(HELP)

    def _known(self) -> str:
        if self._seen.task_id is None:
            raise failed("There is no task yet")
        return self._seen.task_id
