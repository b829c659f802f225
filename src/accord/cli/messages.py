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
        list[str] | None,
        typer.Option("--text", metavar="TEXT", help="Additional text, or - for standard input (repeatable)."),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="File to attach, - for standard input, or a URL for the agent to fetch (repeatable)."
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="JSON", help="JSON data, a JSON file, or - for standard input (repeatable)."),
    ] = None,
    media_type: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Media type of the preceding part (repeatable).")
    ] = None,
    task_id: Annotated[str | None, typer.Option(metavar="ID", help="Id of the task to answer.")] = None,
    context_id: Annotated[str | None, typer.Option(metavar="ID", help="Id of the context for a new task.")] = None,
    message_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Message id, used as idempotency key: resending it does not repeat the work."),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help="Metadata of the request: a JSON object.")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print output as it arrives. With -o json, one line per event.")
    ] = False,
    async_: Annotated[
        bool, typer.Option("--async", "--no-wait", help="Print the task without waiting for the result.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the task ends or requires input (default).")] = (
        False
    ),
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only the text of the reply.")] = False,
) -> None:
    """Send a message to an agent and wait for the reply.

    TEXT may be - for standard input. Texts, files and data are sent in the order of the options.
    """
    options.check(quiet=quiet)
    if async_ and (wait or stream or quiet):
        raise typer.BadParameter("--async excludes --wait, --stream and --quiet", param_hint="--async")
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
    context_id: Annotated[str | None, typer.Option(metavar="ID", help="Id of the context to continue.")] = None,
    task_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the task that the first line answers.")
    ] = None,
) -> None:
    """Chat with an agent. If the agent requires input, the next line is the answer."""
    from asyncio import Runner

    from accord.cli import replies

    is_typed = sys.stdin.isatty()
    if is_typed and (options.is_json or not sys.stdout.isatty()):
        raise typer.BadParameter(
            "An interactive chat requires text output on a terminal. Pipe standard input for other output"
        )
    warn(options)
    with Runner() as runner:
        raise typer.Exit(replies.ChatSession(options, runner, context_id, task_id, is_typed=is_typed).run())
