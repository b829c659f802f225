"""`accord workflow`: whether workflow files are right, and what they may say.

Nothing is run, and nobody elsewhere is asked. Running files is `accord run`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.exits import Exit
from accord.cli.tables import Output, echo_json, plain

if TYPE_CHECKING:
    from accord.workflows.findings import DocumentFinding

app = typer.Typer(no_args_is_help=True, help="Check workflow files, and print what they may say.")

OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How it is printed.")]


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Workflow files.", show_default=False)],
    var: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Value of a variable, as for `accord run`; may be repeated."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors too.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say what is wrong with workflow files, a line each: where, which, what, and how it is mended.

    Exit with 0 if they can be run, with 1 if not.
    """
    from accord.cli.flow import vars_given

    given = vars_given(var or (), None)
    found = [finding for file in files for finding in _found(file, given)]
    errors = sum(finding.severity == "error" for finding in found)
    warnings = sum(finding.severity == "warning" for finding in found)
    if output is Output.JSON:
        echo_json({"isValid": not errors, "findings": found})
    else:
        for finding in found:
            typer.echo(plain(str(finding)))
        typer.echo(_summed(len(files), errors, warnings), err=True)
    raise typer.Exit(Exit.FAILED if errors or (strict and warnings) else Exit.DONE)


@app.command()
def schema() -> None:
    """Print the JSON Schema of workflow files, for editors."""
    from accord.workflows.schema import schema as made

    echo_json(made(), indent=2)


def _found(file: Path, given: Mapping[str, Any]) -> "list[DocumentFinding]":
    """Return the findings of a file, the same as `accord run` and `accord serve` have."""
    from accord.cli.places import keys_of
    from accord.workflows.findings import BadDocument
    from accord.workflows.source import load_source
    from accord.workflows.validation import validate as findings_of

    try:
        return findings_of(load_source(file), vars=given, keys=keys_of())
    except BadDocument as error:
        return list(error.findings)


def _summed(files: int, errors: int, warnings: int) -> str:
    told = [
        f"{count} {word}{'s' * (count != 1)}" for count, word in ((errors, "error"), (warnings, "warning")) if count
    ]
    return f"{files} file{'s' * (files != 1)}: {' and '.join(told) or 'nothing is wrong'}"
