"""Commands `accord run` and `accord runs`: workflow runs, started here or stored.

`accord runs` needs no server: signals and decisions are written to the store, and a node that hosts the workflow
resumes the run.
"""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.database import StoreOption, open_existing_store
from accord.cli.failures import Exit, async_command
from accord.cli.tables import OutputFormat, OutputOption, printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from accord.api import Store
    from accord.cli.stored_runs import RunControl
    from accord.model import TaskState
    from accord.workflows.dry_run import DryRun
    from accord.workflows.stored_run import StoredRun


def run(  # size: one parameter for each flag
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Workflow file, or file.py:name of a builder. Optional with --resume."),
    ] = None,
    input: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Input of the run, or - for standard input.")
    ] = None,
    var: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Value of an input or a variable (repeatable)."),
    ] = None,
    vars_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML or JSON file of values by name. --var overrides its values."),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Workflow of the file [default: the first].")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the planned steps without running them.")] = False,
    check_agents: Annotated[
        bool, typer.Option("--check-agents", help="Start only if the cards of all A2A agents are reachable.")
    ] = False,
    start_from: Annotated[
        str | None,
        typer.Option(
            metavar="STEP", help="First step to run. Earlier steps are reused from --previous-run, or skipped."
        ),
    ] = None,
    previous_run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Id of an earlier run, whose completed steps are skipped.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Resume a run. A failed or canceled run restarts and skips completed steps.",
        ),
    ] = None,
    output: Annotated[
        OutputFormat, typer.Option("-o", "--output", help="Output format: text, or json with one line per event.")
    ] = (OutputFormat.TEXT),
    store: StoreOption = None,
) -> None:
    """Run a workflow, and show its progress.

    The output of the run is printed on standard output. Exit with 0 if the run completed, with 1 if it did not, and
    with 2 if it cannot start. Exit with 6 if the run waits for input, and with 130 after Ctrl+C. An interrupted run
    can be resumed.
    """
    from accord.cli import run_host, workflow_files
    from accord.workflows.run_request import RunRequest

    if resume is not None and (previous_run is not None or dry_run):
        raise typer.BadParameter("--resume excludes --previous-run and --dry-run", param_hint="--resume")
    if file is None and resume is None:
        raise typer.BadParameter("Missing workflow file, or a run with --resume", param_hint="FILE")
    given = workflow_files.read_values(var or (), vars_file)
    opened = None if file is None else workflow_files.load_workflow(file, given)
    request = RunRequest(
        input=workflow_files.read_input(input),
        vars=given,
        workflow=workflow,
        start_from=start_from,
        previous_run=previous_run,
        check_agents=check_agents,
    )
    if opened is not None:
        workflow_files.check_names(opened, var or ())
    if resume is not None:
        run_host.resume_run(resume, opened, request, store=store, output=output)
        return
    assert opened is not None  # there is a file
    plan = workflow_files.plan_run(opened, request)
    if dry_run:
        from accord.workflows.dry_run import dry_run_report

        _print_dry_run(dry_run_report(plan), output)
        return
    run_host.start_run(opened, request, store=store, output=output)


def _print_dry_run(report: "DryRun", form: OutputFormat) -> None:
    """Print the plan of a run."""
    from accord.cli import agent_output

    if form is OutputFormat.JSON:
        agent_output.write(agent_output.compact(report) + "\n")
        return
    lines = [
        f"{report.name}: {report.workflow} ({report.pattern}), {report.total} steps, at most {report.peak} at once"
    ]
    for number, wave in enumerate(report.waves, start=1):
        lines += ["", f"Wave {number}"]
        for step in wave:
            after = f" after {', '.join(step.depends_on)}" if step.depends_on else ""
            only = f" if {step.condition}" if step.condition else ""
            who = f" by {step.agent}" if step.agent else ""
            lines.append(f"  {step.name} ({step.type}){who}{after}{only}")
            if step.does:
                lines.append(f"      {step.does}")
    if report.agents:
        lines += ["", "Agents"]
        for name, count in report.agents.items():
            allowed = report.permissions.get(name)
            may = f", may change {allowed}" if allowed else ""
            lines.append(f"  {name}: {count} step{'s' * (count != 1)}{may}")
    agent_output.lines(agent_output.safe(line) for line in lines)
    for warning in report.warnings:
        agent_output.notice(f"warning: {agent_output.line(warning)}")


NAME = "accord runs"

app = typer.Typer(no_args_is_help=True, help="Manage workflow runs.")

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.", show_default=False)]
StepArgument = Annotated[
    str | None, typer.Argument(metavar="STEP", help="Step to decide [default: the only pending one].")
]
CommentOption = Annotated[str, typer.Option(metavar="TEXT", help="Comment on the decision.")]


class RunFilter(Enum):
    """Filter of runs by state."""

    OPEN = "open"
    ENDED = "ended"
    ALL = "all"


# --- reading ----------------------------------------------------------------------------------------------------------


@app.command("list")
@async_command(NAME)
async def list_(
    state: Annotated[RunFilter, typer.Option(help="Filter by state: open (not ended), ended or all.")] = RunFilter.ALL,
    inner: Annotated[bool, typer.Option("--inner", help="Include runs started by other runs.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 50,
    output: OutputOption = OutputFormat.TEXT,
    store: StoreOption = None,
) -> int:
    """List runs and their pending signals and approvals, latest start first."""
    from accord.api import queries
    from accord.api.queries import RunListQuery
    from accord.cli import stored_runs

    async with open_existing_store(store, read_only=True) as opened:
        wanted = RunListQuery(states=_states(state), inner=inner, limit=limit + 1)
        found = await queries.list_runs(opened, wanted)
        rows = [await stored_runs.run_row(opened, run) for run in found[:limit]]
    stored_runs.show_list(rows, output)
    if len(found) > limit:
        typer.echo(f"There are more than {limit}: raise --limit", err=True)
    return Exit.DONE


@app.command()
@async_command(NAME)
async def show(run: RunArgument, output: OutputOption = OutputFormat.TEXT, store: StoreOption = None) -> int:
    """Show a run: its steps, their status, and pending signals and approvals."""
    from accord.cli import stored_runs

    async with open_existing_store(store, read_only=True) as opened:
        if (found := await _read_run(opened, run)) is None:
            return Exit.FAILED
        await stored_runs.show_run(opened, found, output)
    return Exit.DONE


@app.command()
@async_command(NAME)
async def logs(
    run: RunArgument,
    step: Annotated[str | None, typer.Option(metavar="STEP", help="Filter by step.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print new events until the run ends.")] = False,
    output: OutputOption = OutputFormat.TEXT,
    store: StoreOption = None,
) -> int:
    """Print the log of a run, with the time and step of each event."""
    from accord.cli import stored_runs

    async with open_existing_store(store, read_only=True) as opened:
        if (found := await _read_run(opened, run)) is None:
            return Exit.FAILED
        if not await stored_runs.show_log(opened, found, step, output, follow=follow):
            typer.echo(f"{NAME}: the log is empty or no longer stored", err=True)
    return Exit.DONE


# --- signals and answers ----------------------------------------------------------------------------------------------


@app.command()
@async_command(NAME)
async def approve(
    run: RunArgument, step: StepArgument = None, comment: CommentOption = "", store: StoreOption = None
) -> int:
    """Approve a step."""
    return await _control(store, run, lambda one: one.decide(step, is_approved=True, comment=comment))


@app.command()
@async_command(NAME)
async def reject(
    run: RunArgument, step: StepArgument = None, comment: CommentOption = "", store: StoreOption = None
) -> int:
    """Reject a step."""
    return await _control(store, run, lambda one: one.decide(step, is_approved=False, comment=comment))


@app.command()
@async_command(NAME)
async def answer(
    run: RunArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Answer to the run's question.")],
    store: StoreOption = None,
) -> int:
    """Answer the pending question of a run."""
    return await _control(store, run, lambda one: one.answer(text))


@app.command()
@async_command(NAME)
async def signal(
    run: RunArgument,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="Name of the signal.")],
    data: Annotated[str, typer.Option(metavar="JSON", help="Event data: JSON or text.")] = "",
    store: StoreOption = None,
) -> int:
    """Send a signal to a step that waits for it."""
    return await _control(store, run, lambda one: one.signal(event, data))


@app.command()
@async_command(NAME)
async def cancel(
    run: RunArgument,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason of the cancellation.")] = None,
    store: StoreOption = None,
) -> int:
    """Cancel a run and its child tasks."""
    return await _control(store, run, lambda one: one.cancel(reason))


@app.command()
def resume(run: RunArgument, output: OutputOption = OutputFormat.TEXT, store: StoreOption = None) -> None:
    """Resume a run. A failed or canceled run restarts and skips completed steps."""
    from accord.cli import run_host
    from accord.workflows.run_request import RunRequest

    run_host.resume_run(run, None, RunRequest(), store=store, output=output)


# --- implementation ---------------------------------------------------------------------------------------------------


def _states(which: RunFilter) -> "tuple[TaskState, ...]":
    from accord.model import TaskState
    from accord.protocol.lifecycle import ENDED

    if which is RunFilter.ALL:
        return ()
    return tuple(state for state in TaskState if (state in ENDED) == (which is RunFilter.ENDED))


async def _control(url: str | None, run: str, give: "Callable[[RunControl], Awaitable[Exit]]") -> int:
    from accord.cli.stored_runs import run_control

    async with open_existing_store(url) as store:
        found = await _read_run(store, run)
        return Exit.FAILED if found is None else await give(run_control(NAME, store, found, url))


async def _read_run(store: "Store", run: str) -> "StoredRun | None":
    from accord.workflows import stored_run

    found = await stored_run.load_stored_run(store, run)
    if found is None:
        typer.echo(f"{NAME}: unknown run {printable(run)}", err=True)
    return found
