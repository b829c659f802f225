"""`accord config`: the settings that count and where each came from, whether they are right, and what there are.

Nothing is opened and no other host is asked; whether a server could work with them is `accord doctor`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from accord.cli.exits import Exit
from accord.cli.tables import Output, show

if TYPE_CHECKING:
    from accord.config import Loaded
    from accord.config.files import Found
    from accord.storage.address import Address

NAME = "accord config"
CONTEXT = {"ignore_unknown_options": True}
"""The arguments of `accord serve` are passed on to it."""

app = typer.Typer(no_args_is_help=True, help="Look at the settings.")

ServeArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="SERVE ARGUMENTS", help="What `accord serve` would be told: its targets and flags."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("show", context_settings=CONTEXT)
def show_(
    arguments: ServeArguments = None,
    changed: Annotated[bool, typer.Option("--changed", help="Leave out what has its default.")] = False,
    json: JsonOption = False,
) -> None:
    """Show every setting, and whether its value is that of a flag, a variable, a line of the file or the default.

    Secrets are not shown.
    """
    from accord.config.shown import DEFAULT, listed

    loaded, file = _loaded(arguments or [])
    rows = [
        {
            "name": one.name,
            "value": one.value if json else _text(one.value),
            "source": _place(one.name, one.source, file),
        }
        for one in listed(loaded)
        if not changed or one.source != DEFAULT
    ]
    show(rows, ("name", "value", "source"), Output.JSON if json else Output.TEXT)


@app.command(context_settings=CONTEXT)
def check(arguments: ServeArguments = None) -> None:
    """Check the settings and the agents, as `accord serve` does before it starts; exit with 0 or 1.

    Agents are imported, but neither they nor the store are started: that is `accord doctor`.
    """
    import sys
    from contextlib import redirect_stdout

    from accord.agents.loader import NotAnAgent, traceback_of
    from accord.app.serving import danger, mistake
    from accord.cli.serve import told
    from accord.config import BadSettings
    from accord.storage.address import BadAddress

    loaded, file = _loaded(arguments or [], Exit.FAILED)
    try:
        address = _address(loaded)
    except BadAddress as error:
        _fail(str(loaded.bad("store", error)), Exit.FAILED)
    if said := mistake(loaded.settings, address) or danger(loaded.settings):
        _fail(said, Exit.FAILED)
    try:
        with redirect_stdout(sys.stderr):  # agents are imported, which may print anything
            told(arguments or []).application()
    except (NotAnAgent, BadSettings) as error:
        _fail(f"{error}\n{traceback_of(error) or ''}".rstrip(), Exit.FAILED)
    where = "no file" if file is None else file.source
    typer.echo(f"Nothing is wrong ({where}, {len(loaded.sources)} settings that are no defaults)", err=True)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the file of settings, for editors; it knows the kinds of agents that are installed."""
    from accord.config.schema import document, every_kind

    typer.echo(document(every_kind()), nl=False)


def _loaded(arguments: list[str], exit: Exit = Exit.MISUSED) -> "tuple[Loaded, Found | None]":
    """Read the settings, and find the file that they are in."""
    from accord.cli.serve import told
    from accord.config import BadSettings
    from accord.config.files import find

    served = told(arguments)
    try:
        file = find(Path(served.config) if served.config else None)
    except BadSettings as error:
        _fail(str(error), exit)
    try:
        loaded = served.load()
        _read_tables(loaded)
        return loaded, file
    except BadSettings as error:
        _fail("\n".join([str(error), *_others(str(error), file)]), exit)


def _others(first: str, file: "Found | None") -> list[str]:
    """Return what else is wrong in the file and in variables, so that nobody mends them one mistake at a time."""
    import os

    from accord.config.mistakes import mistakes

    return [one for one in mistakes(file, os.environ) if one != first]


def _read_tables(loaded: "Loaded") -> None:
    """Read the tables of agents that say of which kind they are, each as its kind does."""
    from accord.agents.agent_types import KINDS
    from accord.entries import NotRegistered, Unusable

    for name, said in loaded.settings.agents.items():
        if isinstance(said, dict) and "type" in said:
            try:
                kind = KINDS.load(str(said["type"]))
            except (NotRegistered, Unusable) as error:
                raise loaded.bad(f"agents.{name}", error) from None
            loaded.read(f"agents.{name}", kind.options)


def _address(loaded: "Loaded") -> "Address":
    import os

    from accord.storage.address import default, parse

    return parse(loaded.settings.store) if loaded.settings.store else default(os.environ)


def _place(name: str, source: str, file: "Found | None") -> str:
    """Return where a value came from, with the line of a file."""
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
