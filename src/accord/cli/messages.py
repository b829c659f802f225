"""Commands `accord send` and `accord chat`: messages to an agent.

In a chat, a line starts a task in the same context or answers the question of the last one. Without a terminal, lines
come from standard input and only the answers are printed.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.connection import (
    AwaitedTask,
    ConnectionOptions,
    run_with_client,
    warn,
    with_connection_options,
)

if TYPE_CHECKING:
    from accord.cli.agent_output import Progress
    from accord.client import Client
    from accord.model import SendRequest


@with_connection_options("[TEXT]")
def send(  # size: one parameter for each flag
    options: ConnectionOptions,
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
    options.check(quiet=quiet)
    if async_ and (wait or stream or quiet):
        raise typer.BadParameter("Whoever does not wait has nothing to wait for or to stream", param_hint="--async")
    values = {"texts": texts or [], "file": file or [], "data": data or [], "media_type": media_type or []}
    request = _request(text, options.order, values, task_id, context_id, message_id, metadata)
    awaited = AwaitedTask(task_id)

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import replies

        if async_:
            await _send_held(options, client, progress, request)
            return
        printer = replies.reply_printer(options, progress, stream=stream, quiet=quiet)
        answer = await replies.print_events(
            client, client.stream(request), printer, awaited, is_reply=task_id is not None
        )
        replies.print_remarks(options, answer)

    run_with_client(options, work, awaited)


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


async def _send_held(
    options: ConnectionOptions, client: "Client", progress: "Progress", request: "SendRequest"
) -> None:
    from msgspec.structs import replace

    from accord.cli import replies
    from accord.model import SendConfiguration

    at_once = replace(request, configuration=SendConfiguration(return_immediately=True))
    answer = await client.send(at_once)
    replies.reply_printer(options, progress, stream=False).end(answer)
    replies.print_remarks(options, answer)


@with_connection_options()
def chat(
    options: ConnectionOptions,
    context_id: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this conversation.")] = None,
    task_id: Annotated[str | None, typer.Option(metavar="ID", help="Answer the question of this task first.")] = None,
) -> None:
    """Chat with an agent. The next line answers its question."""
    from asyncio import Runner

    from accord.cli import replies

    is_typed = sys.stdin.isatty()
    if is_typed and (options.is_json or not sys.stdout.isatty()):
        raise typer.BadParameter("Somebody types, so the answers belong in a terminal; or pipe lines into it")
    warn(options)
    with Runner() as runner:
        raise typer.Exit(replies.ChatSession(options, runner, context_id, task_id, is_typed=is_typed).run())
