"""`accord runs`: the runs of workflows in a store, what they wait for, and giving it to them.

It needs no server: what is handed in is written down, and whichever node hosts the workflow goes on. Where none does,
`accord runs resume` is one. How runs look is `cli.runtables`, how they are given something `cli.giving`.
"""

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.db import StoreOption, exit_with, opened
from accord.cli.exits import Exit
from accord.cli.tables import Output, plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from accord.cli.giving import Giving
    from accord.model import TaskState
    from accord.storage.store import Store
    from accord.workflows.stored_run import StoredRun

NAME = "accord runs"

app = typer.Typer(no_args_is_help=True, help="Look after runs of workflows.")

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)]
StepArgument = Annotated[
    str | None, typer.Argument(metavar="STEP", help="The step that asks; not needed if only one does.")
]
CommentOption = Annotated[str, typer.Option(metavar="TEXT", help="What there is to say about it.")]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How it is printed.")]


class Which(Enum):
    """Which runs are listed."""

    OPEN = "open"
    ENDED = "ended"
    ALL = "all"


# --- looking ----------------------------------------------------------------------------------------------------------


@app.command("list")
def list_(
    state: Annotated[Which, typer.Option(help="open has not ended yet.")] = Which.ALL,
    inner: Annotated[bool, typer.Option("--inner", help="Also runs that are steps of others.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many are listed at most.")] = 50,
    output: OutputOption = Output.TEXT,
    store: StoreOption = None,
) -> None:
    """List runs, those that began last first, and what they wait for."""
    exit_with(NAME, _list(store, state, inner, limit, output))


@app.command()
def show(run: RunArgument, output: OutputOption = Output.TEXT, store: StoreOption = None) -> None:
    """Show a run: its steps, how each went, and what it waits for."""
    exit_with(NAME, _show(store, run, output))


@app.command()
def logs(
    run: RunArgument,
    step: Annotated[str | None, typer.Option(metavar="STEP", help="Only what is said about this step.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")] = False,
    output: OutputOption = Output.TEXT,
    store: StoreOption = None,
) -> None:
    """Print everything that was said in a run, with its time and step."""
    exit_with(NAME, _logs(store, run, step, follow, output))


# --- giving -----------------------------------------------------------------------------------------------------------


@app.command()
def approve(
    run: RunArgument, step: StepArgument = None, comment: CommentOption = "", store: StoreOption = None
) -> None:
    """Approve what a step asks."""
    exit_with(NAME, _given(store, run, lambda one: one.decide(step, is_approved=True, comment=comment)))


@app.command()
def reject(run: RunArgument, step: StepArgument = None, comment: CommentOption = "", store: StoreOption = None) -> None:
    """Refuse what a step asks."""
    exit_with(NAME, _given(store, run, lambda one: one.decide(step, is_approved=False, comment=comment)))


@app.command()
def answer(
    run: RunArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer to what the run asks.")],
    store: StoreOption = None,
) -> None:
    """Answer what an agent of a run asks."""
    exit_with(NAME, _given(store, run, lambda one: one.answer(text)))


@app.command()
def signal(
    run: RunArgument,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The event that a step waits for.")],
    data: Annotated[
        str, typer.Option(metavar="JSON", help="What comes with it: JSON, or else it is taken as text.")
    ] = "",
    store: StoreOption = None,
) -> None:
    """Hand in an event."""
    exit_with(NAME, _given(store, run, lambda one: one.signal(event, data)))


@app.command()
def cancel(
    run: RunArgument,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why.")] = None,
    store: StoreOption = None,
) -> None:
    """Cancel a run, and all that it has begun."""
    exit_with(NAME, _given(store, run, lambda one: one.cancel(reason)))


@app.command()
def resume(run: RunArgument, output: OutputOption = Output.TEXT, store: StoreOption = None) -> None:
    """Go on with a run here; one that failed or was cancelled begins anew, without what it has done."""
    from accord.cli import going
    from accord.workflows.run_request import RunRequest

    going.resume(run, None, RunRequest(), store=store, output=output)


# --- how it is done ---------------------------------------------------------------------------------------------------


async def _list(url: str | None, which: Which, inner: bool, limit: int, output: Output) -> int:
    from accord.cli import runtables
    from accord.storage.commands import journal
    from accord.storage.commands.journal import Runs

    async with opened(url, read_only=True) as store:
        wanted = Runs(states=_states(which), inner=inner, limit=limit + 1)
        found = await store.read(journal.begun, wanted)
        rows = [await runtables.row(store, run) for run in found[:limit]]
    runtables.show_list(rows, output)
    if len(found) > limit:
        typer.echo(f"There are more than {limit}: --limit shows more", err=True)
    return Exit.DONE


def _states(which: Which) -> "tuple[TaskState, ...]":
    from accord.model import TaskState
    from accord.protocol.lifecycle import ENDED

    if which is Which.ALL:
        return ()
    return tuple(state for state in TaskState if (state in ENDED) == (which is Which.ENDED))


async def _show(url: str | None, run: str, output: Output) -> int:
    from accord.cli import runtables

    async with opened(url, read_only=True) as store:
        if (found := await _found(store, run)) is None:
            return Exit.FAILED
        await runtables.show_run(store, found, output)
    return Exit.DONE


async def _logs(url: str | None, run: str, step: str | None, follow: bool, output: Output) -> int:
    from accord.cli import runtables

    async with opened(url, read_only=True) as store:
        if (found := await _found(store, run)) is None:
            return Exit.FAILED
        if not await runtables.show_log(store, found, step, output, follow=follow):
            typer.echo(f"{NAME}: there is nothing to show, or it is kept no longer", err=True)
    return Exit.DONE


async def _given(url: str | None, run: str, give: "Callable[[Giving], Awaitable[Exit]]") -> int:
    from accord.cli.giving import giving

    async with opened(url) as store:
        found = await _found(store, run)
        return Exit.FAILED if found is None else await give(giving(NAME, store, found, url))


async def _found(store: "Store", run: str) -> "StoredRun | None":
    from accord.workflows import stored_run

    found = await stored_run.load_stored_run(store, run)
    if found is None:
        typer.echo(f"{NAME}: there is no run {plain(run)}", err=True)
    return found
