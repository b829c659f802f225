"""`accord remotes`: how tasks stand that agents elsewhere do, and trying again those that were given up."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.db import StoreOption, exit_with, opened
from accord.cli.tables import Output, plain, show, time_of

if TYPE_CHECKING:
    from accord.storage.commands.remotes import Standing as RemoteStanding

DONE, FAILED = 0, 1
NAME = "accord remotes"

remotes_app = typer.Typer(no_args_is_help=True, help="Look after tasks that agents elsewhere do.")


@remotes_app.command("list")
def list_(
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="Only this task.")] = None,
    unknown: Annotated[bool, typer.Option("--unknown", help="Only tasks that were given up.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many are listed at most.")] = 100,
    output: Annotated[Output, typer.Option("-o", "--output", help="How they are printed.")] = Output.TEXT,
    store: StoreOption = None,
) -> None:
    """List tasks that agents elsewhere do, and when those were last heard of."""
    exit_with(NAME, _list(store, task, unknown, limit, output))


@remotes_app.command()
def retry(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The id that the task has here.")],
    store: StoreOption = None,
) -> None:
    """Ask the agent again what became of a task, and send again what it never got."""
    exit_with(NAME, _retry(store, task))


async def _list(url: str | None, task: str | None, unknown: bool, limit: int, output: Output) -> int:
    from accord.model import TaskState
    from accord.storage.commands import remotes

    async with opened(url, read_only=True) as store:
        state = TaskState.UNKNOWN if unknown else None
        found = await store.read(remotes.standings, task, state, limit + 1)
    columns = ("state", "agent", "tenant", "task", "remote_task", "remote_state", "by", "heard")
    show([_shown(standing) for standing in found[:limit]], columns, output)
    if len(found) > limit:
        typer.echo(f"There are more than {limit}: --limit shows more, --task and --unknown fewer", err=True)
    return DONE


async def _retry(url: str | None, task: str) -> int:
    from accord.engine.task_store import TaskStore
    from accord.remote.tasks import RemoteTasks
    from accord.storage.commands import remotes

    async with opened(url) as store:
        found = await store.read(remotes.standings, task, None, 2)
        links = RemoteTasks(TaskStore(store))
        tried = [await links.retry(standing.tenant, task) for standing in found]
    if not any(tried):
        why = "has ended" if tried else "is not done by an agent elsewhere"
        typer.echo(f"{NAME}: task {plain(task)} {why}", err=True)
        return FAILED
    typer.echo(f"{plain(task)} is tried again")
    return DONE


def _shown(standing: "RemoteStanding") -> dict[str, Any]:
    link = standing.link
    return {
        "state": standing.here.name.lower(),
        "agent": link.agent,
        "tenant": standing.tenant,
        "task": link.task_id,
        "remote_task": link.remote_id,
        "remote_state": None if link.state is None else link.state.name.lower(),
        "by": link.mode,
        "heard": time_of(link.heard_at),
    }
