"""`accord run`: a workflow, run here and watched.

It reads what it is told; what a file says is `cli.flow`, and how a run is begun, gone on with and watched `cli.going`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.db import StoreOption
from accord.cli.tables import Output

if TYPE_CHECKING:
    from accord.workflows.dry_run import DryRun


def run(  # size: one parameter for each flag
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A workflow file, or file.py:name of a builder; not needed with --resume."),
    ] = None,
    input: Annotated[str | None, typer.Option(metavar="TEXT", help="The run's input; - is standard input.")] = None,
    var: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="The value of an input or a variable; may be repeated."),
    ] = None,
    vars_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Values by their names, as YAML or JSON; --var comes over them.")
    ] = None,
    workflow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which workflow of the file; by default its first.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the steps as they would be done, and do nothing.")
    ] = False,
    check_agents: Annotated[
        bool, typer.Option("--check-agents", help="Do nothing unless every A2A agent of the run shows its card.")
    ] = False,
    start_from: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="Begin with this step; what is before it is taken over, or left out."),
    ] = None,
    previous_run: Annotated[
        str | None, typer.Option(metavar="RUN", help="An earlier run: what it has done is not done again.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with a run. One that has failed or was cancelled begins anew, without what it has done.",
        ),
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="text, or json: a line for each event.")] = (
        Output.TEXT
    ),
    store: StoreOption = None,
) -> None:
    """Run a workflow, and show how it goes.

    The output of the run is printed on standard output. Exit with 0 if it completed, with 1 if not, with 2 if it cannot
    be run, with 6 if it waits for somebody, and with 130 after Ctrl+C, which leaves it to be resumed.
    """
    from accord.cli import flow, going
    from accord.workflows.run_request import RunRequest

    if resume is not None and (previous_run is not None or dry_run):
        raise typer.BadParameter("A run that is resumed is neither new nor dry", param_hint="--resume")
    if file is None and resume is None:
        raise typer.BadParameter("Name a workflow file, or a run with --resume", param_hint="FILE")
    given = flow.vars_given(var or (), vars_file)
    opened = None if file is None else flow.opened(file, given)
    wish = RunRequest(
        input=flow.text_given(input),
        vars=given,
        workflow=workflow,
        start_from=start_from,
        previous_run=previous_run,
        check_agents=check_agents,
    )
    if opened is not None:
        flow.check_names(opened, var or ())
    if resume is not None:
        going.resume(resume, opened, wish, store=store, output=output)
        return
    assert opened is not None  # there is a file
    plan = flow.planned(opened, wish)
    if dry_run:
        from accord.workflows.dry_run import dry_run_report

        _print(dry_run_report(plan), output)
        return
    going.begin(opened, wish, store=store, output=output)


def _print(report: "DryRun", form: Output) -> None:
    """Print what a run would do."""
    from accord.cli import output

    if form is Output.JSON:
        output.write(output.compact(report) + "\n")
        return
    lines = [
        f"{report.name}: {report.workflow} ({report.pattern}), {report.total} steps, {report.peak} at once at most"
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
    output.lines(output.safe(line) for line in lines)
    for warning in report.warnings:
        output.tell(f"warning: {output.line(warning)}")
