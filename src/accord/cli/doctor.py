"""`accord doctor`: whether a server could work as it would be started, and what to do where it could not.

It prints what `app.doctor` finds. Nothing is changed and nothing is served.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.config import JsonOption, ServeArguments
from accord.cli.exits import Exit
from accord.cli.tables import echo_json, plain

if TYPE_CHECKING:
    from accord.app.doctor.findings import Finding

WIDTH = 9
"""Of the column that says how it is."""


def doctor(
    arguments: ServeArguments = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=600, help="Seconds that one check may take.")] = 10.0,
    json: JsonOption = False,
) -> None:
    """Check settings, store, clock, reachability, agents, keys, ports and limits, each with a remedy.

    Exit with 0 if nothing is in the way, warnings or not, and with 1 if something is.
    """
    import asyncio
    import os
    from contextlib import redirect_stdout

    from accord.app.doctor.examination import examine
    from accord.app.doctor.findings import Status, failed
    from accord.cli.serve import told
    from accord.config import BadSettings

    served = told(arguments or [])
    try:
        loaded = served.load()
    except BadSettings as error:
        found = [failed("configuration", error, "mend it; `accord config schema` lists what there is")]
    else:
        with redirect_stdout(sys.stderr):  # agents are imported, which may print anything
            found = asyncio.run(examine(loaded, served.targets, os.environ, timeout))
    is_well = all(one.status is not Status.FAILED for one in found)
    if json:
        echo_json({"isWell": is_well, "checks": found})
    else:
        _print(found)
    raise typer.Exit(Exit.DONE if is_well else Exit.FAILED)


def _print(found: "list[Finding]") -> None:
    for one in found:
        typer.echo(f"{one.status.value:<{WIDTH}}{plain(one.check)}: {plain(one.detail)}")
        if one.remedy:
            typer.echo(f"{'':<{WIDTH}}-> {plain(one.remedy)}")
    counts = {status: sum(one.status.value == status for one in found) for status in ("failed", "warning", "ok")}
    typer.echo(", ".join(f"{count} {status}" for status, count in counts.items() if count), err=True)
