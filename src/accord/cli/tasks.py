"""Commands `accord task`, `accord task push` and `accord card`, for any agent.

`accord task push` configures the caller's own webhooks. `accord push` is about the deliveries of our server.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from accord.cli.connection import AwaitedTask, ConnectionOptions, run_with_client, with_connection_options

if TYPE_CHECKING:
    from accord.cli.agent_output import Progress
    from accord.client import Client
    from accord.model import PushConfig, Task, TaskState


webhooks_app = typer.Typer(no_args_is_help=True, help="Manage the webhooks of a task.")


@with_connection_options("TASK", "URL")
def set_webhook(
    options: ConnectionOptions,
    task: str,
    url: str,
    id: Annotated[
        str | None, typer.Option(help="Id of the webhook. An existing webhook with this id is replaced.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="ACCORD_PUSH_TOKEN", help="Token that the agent sends with each delivery.")
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEME CREDENTIALS",
            envvar="ACCORD_PUSH_AUTH",
            help="Authorization header for the webhook, e.g. 'Bearer xyz'.",
        ),
    ] = None,
) -> None:
    """Send updates of a task to a webhook URL."""
    from accord.model import Authentication, PushConfig

    scheme, _, credentials = (auth or "").strip().partition(" ")
    config = PushConfig(
        task_id=task,
        url=url,
        id=id,
        token=token,
        authentication=Authentication(scheme=scheme, credentials=credentials or None) if scheme else None,
    )

    async def work(client: "Client", progress: "Progress") -> None:
        made = await client.push_set(config)
        progress.stop()
        _show_webhook(options, made)

    run_with_client(options, work)


webhooks_app.command("set")(set_webhook)
webhooks_app.command("create", hidden=True)(set_webhook)  # the operation's name in A2A


@webhooks_app.command("get")
@with_connection_options("TASK", "ID")
def get_webhook(options: ConnectionOptions, task: str, id: str) -> None:
    """Show a webhook without secrets. With -o json, show the agent's complete response."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.model import PushGetRequest

        found = await client.push_get(PushGetRequest(task_id=task, id=id))
        progress.stop()
        _show_webhook(options, found)

    run_with_client(options, work)


@webhooks_app.command("list")
@with_connection_options("TASK")
def list_webhooks(
    options: ConnectionOptions,
    task: str,
    page_size: Annotated[int | None, typer.Option(min=1, help="Maximum number of webhooks.")] = None,
    page_token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Page token from the previous response.")
    ] = None,
) -> None:
    """List the webhooks of a task."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import agent_output
        from accord.model import PushListRequest
        from accord.protocol.operations import Operation

        page = await client.push_list(PushListRequest(task_id=task, page_size=page_size, page_token=page_token))
        progress.stop()
        text = (line for config in page.configs for line in (*agent_output.of_push(config), ""))
        agent_output.result(Operation.PUSH_LIST, page, text, page.next_page_token, is_json=options.is_json)

    run_with_client(options, work)


@webhooks_app.command()
@with_connection_options("TASK", "ID")
def delete(options: ConnectionOptions, task: str, id: str) -> None:
    """Delete a webhook."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import agent_output
        from accord.model import PushDeleteRequest
        from accord.protocol.operations import Operation

        count = await client.push_delete(PushDeleteRequest(task_id=task, id=id))
        progress.stop()
        text = [agent_output.field("Webhook", id), agent_output.field("Deleted", "yes")]
        agent_output.result(Operation.PUSH_DELETE, count, text, is_json=options.is_json)

    run_with_client(options, work)


def _show_webhook(options: ConnectionOptions, config: "PushConfig") -> None:
    from accord.cli import agent_output
    from accord.protocol.operations import Operation

    agent_output.result(Operation.PUSH_GET, config, agent_output.of_push(config), is_json=options.is_json)


app = typer.Typer(no_args_is_help=True, help="Manage tasks of an agent.")
app.add_typer(webhooks_app, name="push")
app.add_typer(webhooks_app, name="push-config", hidden=True)  # the name in the official command line


@app.command("get")
@with_connection_options("ID")
def get_task(
    options: ConnectionOptions,
    id: str,
    history: Annotated[int | None, typer.Option(min=0, help="Maximum number of history messages.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the task ends or requires input.")] = False,
) -> None:
    """Show a task: its state, status message and artifacts."""
    awaited = AwaitedTask(id)

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import replies
        from accord.cli.replies import ResultPrinter
        from accord.model import GetRequest
        from accord.protocol.lifecycle import ENDED, INTERRUPTED
        from accord.protocol.operations import Operation

        wanted = GetRequest(id=id, history_length=history)
        task = await client.get(wanted)
        if wait and task.status.state not in ENDED | INTERRUPTED:
            async for event in client.task(id):
                progress.event(event)
            task = await client.get(wanted)
        ResultPrinter(progress, is_json=options.is_json, operation=Operation.GET, with_history=history is not None).end(
            task
        )
        replies.print_remarks(options, task)

    run_with_client(options, work, awaited)


@app.command("list")
@with_connection_options()
def list_tasks(
    options: ConnectionOptions,
    context_id: Annotated[str | None, typer.Option(metavar="ID", help="Filter by context id.")] = None,
    status: Annotated[str | None, typer.Option(metavar="STATE", help="Filter by state, e.g. working.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Earliest state change, as an ISO 8601 time.")
    ] = None,
    page_size: Annotated[int | None, typer.Option(min=1, max=100, help="Maximum number of tasks.")] = None,
    page_token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Page token from the previous response.")
    ] = None,
    history: Annotated[int | None, typer.Option(min=0, help="Maximum number of history messages.")] = None,
    artifacts: Annotated[bool, typer.Option("--artifacts", help="Include artifacts.")] = False,
) -> None:
    """List tasks, latest change first."""
    from accord.model import TaskFilter

    try:
        wanted = TaskFilter(
            context_id=context_id,
            status=None if status is None else _state(status),
            status_timestamp_after=since,
            page_size=page_size,
            page_token=page_token,
            history_length=history,
            include_artifacts=artifacts,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import agent_output
        from accord.protocol.operations import Operation

        page = await client.list(wanted)
        progress.stop()
        text = agent_output.of_page(page, with_history=history is not None)
        agent_output.result(Operation.LIST, page, text, page.next_page_token, is_json=options.is_json)

    run_with_client(options, work)


@app.command()
@with_connection_options("ID")
def cancel(
    options: ConnectionOptions,
    id: str,
    reason: Annotated[str | None, typer.Option(help="Reason sent to the agent.")] = None,
) -> None:
    """Cancel a task."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import replies
        from accord.model import CancelRequest, metadata_keys
        from accord.protocol.operations import Operation

        request = CancelRequest(id=id, metadata=None if reason is None else {metadata_keys.REASON: reason})
        task = await client.cancel(request)
        replies.reply_printer(options, progress, stream=False, operation=Operation.CANCEL).end(task)

    run_with_client(options, work)


@app.command()
@with_connection_options("ID")
def subscribe(
    options: ConnectionOptions,
    id: str,
    stream: Annotated[
        bool, typer.Option("--stream", help="With -o json, print one line per event instead of the final task.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only the text of the reply.")] = False,
) -> None:
    """Subscribe to a task until it ends or requires input."""
    options.check(quiet=quiet)
    awaited = AwaitedTask(id)

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import replies
        from accord.protocol.operations import Operation

        is_live = stream or not options.is_json
        printer = replies.reply_printer(options, progress, stream=is_live, quiet=quiet, operation=Operation.GET)
        answer = await replies.print_events(client, aiter(client.task(id)), printer, awaited)
        replies.print_remarks(options, answer)

    run_with_client(options, work, awaited)


@app.command()
@with_connection_options("ID")
def download(
    options: ConnectionOptions,
    id: str,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Target folder, created if missing.")] = Path(),
    artifact: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Id or name of an artifact to save (repeatable) [default: all]."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Host that may serve files from a private network (repeatable)."),
    ] = None,
) -> None:
    """Save each file, text and data part of a task's artifacts as a file."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import message_parts
        from accord.model import GetRequest

        task = await client.get(GetRequest(id=id, history_length=0))
        chosen = _with_artifacts(task, artifact or [])
        await message_parts.download(options, client, progress, chosen, to, force=force, hosts=allow_host or ())

    run_with_client(options, work)


def _with_artifacts(task: "Task", wanted: list[str]) -> "Task":
    """Return the task with only the wanted artifacts."""
    from msgspec.structs import replace

    from accord.cli.failures import command_error

    for name in wanted:
        if not any(name in (artifact.artifact_id, artifact.name) for artifact in task.artifacts):
            known = ", ".join(artifact.name or artifact.artifact_id for artifact in task.artifacts)
            raise command_error(f"Unknown artifact {name!r} (the task has: {known or 'none'})")
    chosen = [one for one in task.artifacts if not wanted or {one.artifact_id, one.name} & {*wanted}]
    return replace(task, artifacts=tuple(chosen))


def _state(text: str) -> "TaskState":
    from accord.model import TaskState
    from accord.protocol.states import LOWER

    found = TaskState.__members__.get(text.upper().replace("-", "_").removeprefix("TASK_STATE_"))
    if found is None:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(LOWER.values())}", param_hint="--status")
    return found


class _CardGroup(TyperGroup):
    """A group with one command, whose name may be omitted before an address."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Insert `get` before an address."""
        is_address = any(sign in args[0] for sign in ":/.")
        return super().resolve_command(ctx, ["get", *args] if is_address else args)


card_app = typer.Typer(cls=_CardGroup, no_args_is_help=True, help="Show an agent's card.")


@card_app.callback()
def _card_group() -> None:
    """Keep the name of the only command."""


@card_app.command("get")
@with_connection_options()
def get_card(
    options: ConnectionOptions,
    extended: Annotated[
        bool, typer.Option("--extended", help="Show the extended card for authenticated callers.")
    ] = False,
) -> None:
    """Show an agent's card: its profile, interfaces, capabilities and security."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import agent_output
        from accord.client.interfaces import describe_findings
        from accord.model import CardRequest
        from accord.protocol.operations import Operation

        card = await client.extended_card(CardRequest()) if extended else client.card
        progress.stop()
        agent_output.result(Operation.EXTENDED_CARD, card, agent_output.of_card(card), is_json=options.is_json)
        for finding in describe_findings(client.discovered.findings):
            agent_output.notice(f"accord: {agent_output.line(finding)}")

    run_with_client(options, work, is_anonymous=not extended)
