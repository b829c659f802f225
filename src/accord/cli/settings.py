"""Commands about settings: `accord config`, `doctor`, `init` and `hash-password`.

Nothing is served or changed, except that `init` writes the files of a new project. `server` has the checks.
"""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from accord.cli.failures import Exit, shell_command
from accord.cli.tables import OutputFormat, echo_json, print_rows, printable

if TYPE_CHECKING:
    from accord.api.administration import Address
    from accord.server.doctor_checks import CheckFinding
    from accord.server.settings_loader import LoadedSettings, SettingsFile


NAME = "accord config"
CONTEXT = {"ignore_unknown_options": True}
"""Context settings that pass on the arguments of `accord serve`."""

app = typer.Typer(no_args_is_help=True, help="Show and check the settings.")

ServeArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="SERVE ARGUMENTS", help="Targets and options of `accord serve`."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("show", context_settings=CONTEXT)
def show_(
    arguments: ServeArguments = None,
    changed: Annotated[bool, typer.Option("--changed", help="Omit settings with their default value.")] = False,
    json: JsonOption = False,
) -> None:
    """Show every setting and its source: option, variable, line of the file or default.

    Secrets are not shown.
    """
    from accord.server.settings_report import DEFAULT_SOURCE, list_settings

    loaded, file = _load_settings(arguments or [])
    rows = [
        {
            "name": one.name,
            "value": one.value if json else _text(one.value),
            "source": _source_of(one.name, one.source, file),
        }
        for one in list_settings(loaded)
        if not changed or one.source != DEFAULT_SOURCE
    ]
    print_rows(rows, ("name", "value", "source"), OutputFormat.JSON if json else OutputFormat.TEXT)


@app.command(context_settings=CONTEXT)
def check(arguments: ServeArguments = None) -> None:
    """Check the settings and the agents, as `accord serve` does at startup. Exit with 0 if valid, otherwise with 1.

    Agents are imported but not started, and the store is not opened. To check those, use `accord doctor`.
    """
    import sys
    from contextlib import redirect_stdout

    from accord.agents.loader import NotAnAgent, traceback_of
    from accord.api.administration import BadAddress
    from accord.cli.serve import parse_serve_arguments
    from accord.server.settings_loader import BadSettings
    from accord.server.startup import configuration_problem, exposure_problem

    loaded, file = _load_settings(arguments or [], Exit.FAILED)
    try:
        address = _check_store_address(loaded)
    except BadAddress as error:
        _fail(str(loaded.bad("store", error)), Exit.FAILED)
    if said := configuration_problem(loaded.settings, address) or exposure_problem(loaded.settings):
        _fail(said, Exit.FAILED)
    try:
        with redirect_stdout(sys.stderr):  # agents are imported, which may print anything
            parse_serve_arguments(arguments or []).application()
    except (NotAnAgent, BadSettings) as error:
        _fail(f"{error}\n{traceback_of(error) or ''}".rstrip(), Exit.FAILED)
    where = "no file" if file is None else file.source
    typer.echo(f"The settings are valid ({where}, {len(loaded.sources)} not default)", err=True)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors, with the installed agent types."""
    from accord.server.settings_schema import all_agent_types, schema_document

    typer.echo(schema_document(all_agent_types()), nl=False)


def _load_settings(arguments: list[str], exit: Exit = Exit.MISUSED) -> "tuple[LoadedSettings, SettingsFile | None]":
    """Load the settings, and find their file."""
    from accord.cli.serve import parse_serve_arguments
    from accord.server.settings_loader import BadSettings, find_file

    served = parse_serve_arguments(arguments)
    try:
        file = find_file(Path(served.config) if served.config else None)
    except BadSettings as error:
        _fail(str(error), exit)
    try:
        loaded = served.load()
        _read_tables(loaded)
        return loaded, file
    except BadSettings as error:
        _fail("\n".join([str(error), *_other_mistakes(str(error), file)]), exit)


def _other_mistakes(first: str, file: "SettingsFile | None") -> list[str]:
    """Return the other mistakes in the file and in variables, so that users see all of them at once."""
    import os

    from accord.server.settings_report import find_mistakes

    return [one for one in find_mistakes(file, os.environ) if one != first]


def _read_tables(loaded: "LoadedSettings") -> None:
    """Read the tables of agents with a `type` as the options of that type."""
    from accord.api.agent_types import KINDS
    from accord.entries import NotRegistered, Unusable

    for name, said in loaded.settings.agents.items():
        if isinstance(said, dict) and "type" in said:
            try:
                kind = KINDS.load(str(said["type"]))
            except (NotRegistered, Unusable) as error:
                raise loaded.bad(f"agents.{name}", error) from None
            loaded.read(f"agents.{name}", kind.options)


def _check_store_address(loaded: "LoadedSettings") -> "Address":
    import os

    from accord.api.administration import default_address, parse_address

    return parse_address(loaded.settings.store) if loaded.settings.store else default_address(os.environ)


def _source_of(name: str, source: str, file: "SettingsFile | None") -> str:
    """Return the source of a value, with the line in a file."""
    if file is None or source != file.source:
        return source
    while (line := file.line(name)) is None and "." in name:
        name = name.rpartition(".")[0]
    return source if line is None else f"{file.path}:{line}"


def _text(value: Any) -> str:
    from msgspec.json import encode

    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value) or "[]"
    return value if isinstance(value, str) else "" if value is None else encode(value).decode()


def _fail(message: str, exit: Exit) -> NoReturn:
    typer.echo(f"{NAME}: {message}", err=True)
    raise typer.Exit(exit)


STATUS_WIDTH = 9
"""Width of the status column."""


def doctor(
    arguments: ServeArguments = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=600, help="Timeout of each check in seconds.")] = 10.0,
    json: JsonOption = False,
) -> None:
    """Check settings, store, clock, reachability, agents, keys, ports and limits. Print a remedy for each finding.

    Exit with 0 if no check fails (warnings are allowed), otherwise with 1.
    """
    import asyncio
    import os
    from contextlib import redirect_stdout

    from accord.cli.serve import parse_serve_arguments
    from accord.server.doctor import examine
    from accord.server.doctor_checks import CheckStatus, failed
    from accord.server.settings_loader import BadSettings

    served = parse_serve_arguments(arguments or [])
    try:
        loaded = served.load()
    except BadSettings as error:
        found = [failed(error, "correct the setting; `accord config schema` lists all settings", check="configuration")]
    else:
        with redirect_stdout(sys.stderr):  # agents are imported, which may print anything
            found = asyncio.run(examine(loaded, served.targets, os.environ, timeout))
    is_well = all(one.status is not CheckStatus.FAILED for one in found)
    if json:
        echo_json({"isWell": is_well, "checks": found})
    else:
        _print_checks(found)
    raise typer.Exit(Exit.DONE if is_well else Exit.FAILED)


def _print_checks(found: "list[CheckFinding]") -> None:
    for one in found:
        typer.echo(f"{one.status.value:<{STATUS_WIDTH}}{printable(one.check)}: {printable(one.detail)}")
        if one.remedy:
            typer.echo(f"{'':<{STATUS_WIDTH}}-> {printable(one.remedy)}")
    counts = {status: sum(one.status.value == status for one in found) for status in ("failed", "warning", "ok")}
    typer.echo(", ".join(f"{count} {status}" for status, count in counts.items() if count), err=True)


STARTER = ("accord.toml", "hello.py")
FOLDER = ".accord"
"""Folder of the schema: hidden, as only editors read it."""


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Project folder, created if missing.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Write a commented settings file and a first agent. Existing files are replaced only with --force."""
    from importlib import resources

    from accord.server.settings_schema import SCHEMA_FILE, all_agent_types, schema_document

    starter = resources.files("accord.cli") / "starter"
    files = {name: starter.joinpath(name).read_text(encoding="utf-8") for name in STARTER}
    files[f"{FOLDER}/{SCHEMA_FILE}"] = schema_document(all_agent_types())
    _refuse_second(folder)
    taken = [name for name in files if (folder / name).exists()]
    if taken and not force:
        _fail_init(f"{', '.join(str(folder / name) for name in taken)} already exists. Use --force to replace it")
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
            typer.echo(str(folder / name))
    except OSError as error:
        _fail_init(f"{error.filename} cannot be written: {error.strerror}")
    there = f"cd {shlex.quote(str(folder))} && " if folder != Path() else ""
    typer.echo(f"To serve the agent: {there}{shell_command('serve')}", err=True)


def _refuse_second(folder: Path) -> None:
    """Refuse a folder whose project already has settings: `accord serve` would find two files."""
    from accord.server.settings_loader import PROJECT_FILE, BadSettings, read_project_file

    project = folder / PROJECT_FILE
    try:
        if project.is_file() and read_project_file(project) is not None:
            _fail_init(f"{project} already has settings in its table [tool.accord]")
    except BadSettings as error:
        _fail_init(str(error))


def _fail_init(message: str) -> NoReturn:
    typer.echo(f"accord init: {message}", err=True)
    raise typer.Exit(Exit.FAILED)


def hash_password() -> None:
    """Print the hash of a password from the prompt or from standard input."""
    import sys

    from accord.api import access

    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise typer.BadParameter("The password is empty")
    typer.echo(access.hash_password(password))
