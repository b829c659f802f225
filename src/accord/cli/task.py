"""`accord task`: the tasks that an agent has, what became of them and what they made."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli import task_push
from accord.cli.asking import Seen, ask
from accord.cli.reaching import Reach, reaching

if TYPE_CHECKING:
    from accord.cli.progress import Progress
    from accord.client import Client
    from accord.model import Task, TaskState

app = typer.Typer(no_args_is_help=True, help="Look after the tasks of an agent.")
app.add_typer(task_push.webhooks_app, name="push")
app.add_typer(task_push.webhooks_app, name="push-config", hidden=True)  # what the official command line calls it


@app.command("get")
@reaching("ID")
def get(
    reach: Reach,
    id: str,
    history: Annotated[int | None, typer.Option(min=0, help="So many of its latest messages.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it ends or asks something.")] = False,
) -> None:
    """Show a task: its state, what is said about it and what it made."""
    seen = Seen(id)

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import following
        from accord.cli.streaming import Waiting
        from accord.model import GetRequest
        from accord.protocol.lifecycle import ENDED, INTERRUPTED
        from accord.protocol.operations import Operation

        wanted = GetRequest(id=id, history_length=history)
        task = await client.get(wanted)
        if wait and task.status.state not in ENDED | INTERRUPTED:
            async for event in client.task(id):
                progress.event(event)
            task = await client.get(wanted)
        Waiting(progress, is_json=reach.is_json, operation=Operation.GET, with_history=history is not None).end(task)
        following.remark(reach, task)

    ask(reach, work, seen)


@app.command("list")
@reaching()
def list_(
    reach: Reach,
    context_id: Annotated[str | None, typer.Option(metavar="ID", help="Only those of this conversation.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only those in this state, such as working.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only those whose state changed since this ISO time.")
    ] = None,
    page_size: Annotated[int | None, typer.Option(min=1, max=100, help="How many at most.")] = None,
    page_token: Annotated[str | None, typer.Option(metavar="TOKEN", help="The page that the last one named.")] = None,
    history: Annotated[int | None, typer.Option(min=0, help="So many of their latest messages.")] = None,
    artifacts: Annotated[bool, typer.Option("--artifacts", help="What they made, too.")] = False,
) -> None:
    """List tasks, those that changed last first."""
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
        from accord.cli import output
        from accord.protocol.operations import Operation

        page = await client.list(wanted)
        progress.stop()
        if reach.is_json:
            output.document(Operation.LIST, page)
            return
        output.lines(output.of_page(page, with_history=history is not None))
        if page.next_page_token:
            output.tell(f"There are more: --page-token {output.line(page.next_page_token)}")

    ask(reach, work)


@app.command()
@reaching("ID")
def cancel(
    reach: Reach,
    id: str,
    reason: Annotated[str | None, typer.Option(help="Why, for the agent.")] = None,
) -> None:
    """Cancel a task."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import following
        from accord.model import CancelRequest, metadata_keys
        from accord.protocol.operations import Operation

        request = CancelRequest(id=id, metadata=None if reason is None else {metadata_keys.REASON: reason})
        task = await client.cancel(request)
        following.shown_as(reach, progress, stream=False, operation=Operation.CANCEL).end(task)

    ask(reach, work)


@app.command()
@reaching("ID")
def subscribe(
    reach: Reach,
    id: str,
    stream: Annotated[
        bool, typer.Option("--stream", help="With -o json: a line for each event, not the task at its end.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print the text of the answer and nothing else.")
    ] = False,
) -> None:
    """Follow a task until it ends or asks something."""
    reach.check(quiet=quiet)
    seen = Seen(id)

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import following
        from accord.protocol.operations import Operation

        is_live = stream or not reach.is_json
        shown = following.shown_as(reach, progress, stream=is_live, quiet=quiet, operation=Operation.GET)
        answer = await following.follow(client, aiter(client.task(id)), shown, seen)
        following.remark(reach, answer)

    ask(reach, work, seen)


@app.command()
@reaching("ID")
def download(
    reach: Reach,
    id: str,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to save; made if it is not there.")] = Path(),
    artifact: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only the artifact with this id or name; may be repeated.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Fetch files from here even on a private network; may be repeated."),
    ] = None,
) -> None:
    """Save what a task made: files, texts and data, each as a file."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import downloading
        from accord.model import GetRequest

        task = await client.get(GetRequest(id=id, history_length=0))
        chosen = _chosen(task, artifact or [])
        await downloading.download(reach, client, progress, chosen, to, force=force, hosts=allow_host or ())

    ask(reach, work)


def _chosen(task: "Task", wanted: list[str]) -> "Task":
    """Return the task with only the artifacts that are wanted."""
    from msgspec.structs import replace

    from accord.cli.exits import failed

    for name in wanted:
        if not any(name in (artifact.artifact_id, artifact.name) for artifact in task.artifacts):
            known = ", ".join(artifact.name or artifact.artifact_id for artifact in task.artifacts)
            raise failed(f"The task has no artifact {name!r}, but: {known or 'none'}")
    chosen = [one for one in task.artifacts if not wanted or {one.artifact_id, one.name} & {*wanted}]
    return replace(task, artifacts=tuple(chosen))


def _state(text: str) -> "TaskState":
    from accord.model import TaskState
    from accord.protocol.states import LOWER

    found = TaskState.__members__.get(text.upper().replace("-", "_").removeprefix("TASK_STATE_"))
    if found is None:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(LOWER.values())}", param_hint="--status")
    return found
