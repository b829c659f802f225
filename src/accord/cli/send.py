"""`accord send`: a message to an agent, to begin something or to go on with it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.asking import Seen, ask
from accord.cli.reaching import Reach, reaching

if TYPE_CHECKING:
    from accord.cli.progress import Progress
    from accord.client import Client
    from accord.model import SendRequest


@reaching("[TEXT]")
def send(  # size: one parameter for each flag
    reach: Reach,
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
    """Send a message to an agent and wait for what comes of it.

    The text may be - for standard input. Texts, files and data are sent in the order in which they are given.
    """
    reach.check(quiet=quiet)
    if async_ and (wait or stream or quiet):
        raise typer.BadParameter("Whoever does not wait has nothing to wait for or to stream", param_hint="--async")
    values = {"texts": texts or [], "file": file or [], "data": data or [], "media_type": media_type or []}
    request = _request(text, reach.order, values, task_id, context_id, message_id, metadata)
    seen = Seen(task_id)

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import following

        if async_:
            await _begin(reach, client, progress, request)
            return
        shown = following.shown_as(reach, progress, stream=stream, quiet=quiet)
        answer = await following.follow(client, client.stream(request), shown, seen, is_reply=task_id is not None)
        following.remark(reach, answer)

    ask(reach, work, seen)


def _request(
    text: str | None,
    order: Any,
    values: dict[str, list[str]],
    task_id: str | None,
    context_id: str | None,
    message_id: str | None,
    metadata: str | None,
) -> "SendRequest":
    from accord.cli import parts
    from accord.engine.ids import new_id
    from accord.model import Message, Role, SendRequest

    message = Message(
        message_id=message_id or new_id(),
        role=Role.USER,
        parts=parts.parts_of(text, parts.given_in(order, values)),
        task_id=task_id,
        context_id=context_id,
    )
    return SendRequest(message=message, metadata=None if metadata is None else parts.object_of(metadata))


async def _begin(reach: Reach, client: "Client", progress: "Progress", request: "SendRequest") -> None:
    from msgspec.structs import replace

    from accord.cli import following
    from accord.model import SendConfiguration

    at_once = replace(request, configuration=SendConfiguration(return_immediately=True))
    answer = await client.send(at_once)
    following.shown_as(reach, progress, stream=False).end(answer)
    following.remark(reach, answer)
