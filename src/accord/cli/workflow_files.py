"""Workflow files and their input values, and the command `accord workflow`.

It reads and validates files without running them.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from accord.cli.failures import Exit
from accord.cli.tables import OutputFormat, echo_json, printable

if TYPE_CHECKING:
    from accord.workflows.document import Document
    from accord.workflows.findings import DocumentFinding
    from accord.workflows.plan import Plan
    from accord.workflows.run_request import RunRequest


STDIN = "-"

NO_VALUES: Mapping[str, Any] = MappingProxyType({})


class WorkflowFile(NamedTuple):
    """A document, the base directory of its paths, and its name on the command line."""

    document: "Document"
    directory: Path
    file: str


def load_workflow(file: str, vars: Mapping[str, Any] = NO_VALUES) -> WorkflowFile:
    """Load a workflow file, or a document from the builder that `file.py:name` names. Exits with its findings if
    invalid.

    `vars` are the variables of the run.
    """
    from accord.agents.loader import FILE_SUFFIXES
    from accord.cli.credential_places import user_keys
    from accord.workflows.findings import BadDocument
    from accord.workflows.source import load_source
    from accord.workflows.validation import validate

    try:
        if Path(file).suffix in FILE_SUFFIXES:
            if not Path(file).exists():
                raise typer.BadParameter(f"There is no file {file}", param_hint="FILE")
            source = load_source(file)
            report_findings(validate(source, vars=vars, keys=user_keys()), file)
            return WorkflowFile(source.document, Path(file).absolute().parent, file)
        document = _import_workflow(file)
        report_findings(validate(document, vars=vars, keys=user_keys()), file)
        return WorkflowFile(document, Path.cwd(), file)
    except BadDocument as error:
        report_findings(error.findings, file)
        raise  # it always contains an error, so this is never reached


def _import_workflow(name: str) -> "Document":
    from accord.agents.loader import NotAnAgent, load_object, traceback_of
    from accord.workflows.builder import Builder
    from accord.workflows.document import Document

    try:
        found = load_object(name)
    except NotAnAgent as error:
        if (lines := traceback_of(error)) is not None:
            typer.echo(f"{error}\n{lines}".rstrip(), err=True)
            raise typer.Exit(Exit.MISUSED) from None
        raise typer.BadParameter(str(error), param_hint="FILE") from None
    document = found.to_config() if isinstance(found, Builder) else found
    if not isinstance(document, Document):
        what = f"{name} must be a workflow file or a workflow(...) builder, not {type(found).__name__}"
        raise typer.BadParameter(what, param_hint="FILE")
    return document


def plan_run(flow: WorkflowFile, request: "RunRequest") -> "Plan":
    """Return the plan of a run. Exits with the findings if it is invalid."""
    from accord.agents.command_environment import document_variables
    from accord.workflows.findings import BadDocument
    from accord.workflows.functions import nearest
    from accord.workflows.planner import make_plan

    try:
        made = make_plan(
            flow.document,
            request.workflow,
            {**request.inputs, **request.vars},
            request.input,
            base=flow.directory,
            env=document_variables(os.environ),
        )
    except BadDocument as error:
        report_findings(error.findings, flow.file)
        raise  # it always contains an error
    names = [step.name for step in made.steps]
    if request.start_from is not None and request.start_from not in names:
        what = f"Unknown step {request.start_from!r}{nearest(request.start_from, names)}"
        raise typer.BadParameter(what, param_hint="--start-from")
    return made


def report_findings(findings: "Iterable[DocumentFinding]", file: str) -> None:
    """Print findings on standard error. Exits if one of them prevents a run."""
    from msgspec.structs import replace

    from accord.cli.tables import printable

    told = [one for one in findings if one.severity != "info"]
    for one in told:
        typer.echo(printable(str(one if one.line else replace(one, file=file))), err=True)
    if any(one.severity == "error" for one in told):
        raise typer.Exit(Exit.MISUSED)


# --- input values -----------------------------------------------------------------------------------------------------


def read_input(given: str | None) -> str:
    """Return the input of a run. `-` is standard input."""
    return "" if given is None else sys.stdin.read() if given == STDIN else given


def read_values(pairs: Sequence[str], file: Path | None) -> dict[str, Any]:
    """Return values by name: those of a file, overridden by single ones."""
    found = {} if file is None else _table(file)
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--var")
        found[name.strip()] = value
    return found


def check_names(flow: WorkflowFile, pairs: Sequence[str]) -> None:
    """Refuse values whose name the document does not contain, as it must be mistyped.

    A file of values may be for several documents, but a single value is meant for this one.
    """
    from accord.workflows import planner
    from accord.workflows.expressions import texts_in
    from accord.workflows.functions import nearest
    from accord.workflows.members import steps_of

    document = flow.document
    own = {**planner.load_custom_steps(flow.directory), **document.steps} if pairs else {}
    files = [step.file for one in document.workflows for step in steps_of(one.steps)]
    if any(files) or any("file" in one.step for one in own.values()):
        return  # the workflows of other files have the same variables
    declared = {*document.inputs, *document.vars}
    texts = list(texts_in((document, own)))
    for name in (pair.partition("=")[0].strip() for pair in pairs):
        if name not in declared and not any(_mentions(text, name) for text in texts):
            said = nearest(name, declared) if declared else ", nor any other"
            raise typer.BadParameter(f"There is no input or variable {name!r}{said}", param_hint="--var")


def _mentions(text: str, name: str) -> bool:
    """Whether a text contains a name as a word, or as the variable of commands."""
    in_commands = re.sub(r"[^A-Za-z0-9]+", "_", f"VAR_{name}").upper()
    words = f"{re.escape(name)}|{in_commands}"
    return re.search(rf"(?<![\w-])(?:{words})(?![\w-])", text) is not None


def _table(file: Path) -> dict[str, Any]:
    """Return the table of a values file, in YAML or JSON."""
    from accord.workflows.findings import BadDocument
    from accord.workflows.yaml_nodes import parse_yaml, read_text

    try:
        tree = parse_yaml(read_text(file), str(file)).tree
    except BadDocument as error:
        raise typer.BadParameter(str(error), param_hint="--vars-file") from None
    if not isinstance(tree, dict):
        raise typer.BadParameter(f"{file} must contain names with values", param_hint="--vars-file")
    return dict(tree)


app = typer.Typer(no_args_is_help=True, help="Validate workflow files and print their schema.")

OutputOption = Annotated[OutputFormat, typer.Option("-o", "--output", help="Output format.")]


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Workflow files.", show_default=False)],
    var: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Value of a variable, as for `accord run` (repeatable)."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Validate workflow files: one line per finding with location, code and fix.

    Exit with 0 if all files are valid, otherwise with 1.
    """

    given = read_values(var or (), None)
    found = [finding for file in files for finding in _file_findings(file, given)]
    errors = sum(finding.severity == "error" for finding in found)
    warnings = sum(finding.severity == "warning" for finding in found)
    if output is OutputFormat.JSON:
        echo_json({"isValid": not errors, "findings": found})
    else:
        for finding in found:
            typer.echo(printable(str(finding)))
        typer.echo(_count_text(len(files), errors, warnings), err=True)
    raise typer.Exit(Exit.FAILED if errors or (strict and warnings) else Exit.DONE)


@app.command()
def schema() -> None:
    """Print the JSON Schema of workflow files, for editors."""
    from accord.workflows.schema import schema as made

    echo_json(made(), indent=2)


def _file_findings(file: Path, given: Mapping[str, Any]) -> "list[DocumentFinding]":
    """Return the findings of a file, the same as `accord run` and `accord serve` report."""
    from accord.cli.credential_places import user_keys
    from accord.workflows.findings import BadDocument
    from accord.workflows.source import load_source
    from accord.workflows.validation import validate as findings_of

    try:
        return findings_of(load_source(file), vars=given, keys=user_keys())
    except BadDocument as error:
        return list(error.findings)


def _count_text(files: int, errors: int, warnings: int) -> str:
    told = [
        f"{count} {word}{'s' * (count != 1)}" for count, word in ((errors, "error"), (warnings, "warning")) if count
    ]
    return f"{files} file{'s' * (files != 1)}: {' and '.join(told) or 'no findings'}"
