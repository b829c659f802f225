"""`accord init`: a folder in which `accord serve` works at once.

It writes the files of `starter` as they are, and the schema that the first line of the settings tells editors of.
"""

import shlex
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from accord.cli.exits import Exit, command

STARTER = ("accord.toml", "hello.py")
FOLDER = ".accord"
"""Where the schema is: out of sight, as only editors read it."""


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; it is made if there is none.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Write a file of settings with comments, and an agent to begin with; nothing is replaced without --force."""
    from accord.config.schema import FILE, document, every_kind

    files = {name: _starter(name) for name in STARTER}
    files[f"{FOLDER}/{FILE}"] = document(every_kind())
    _refuse_second(folder)
    taken = [name for name in files if (folder / name).exists()]
    if taken and not force:
        _fail(f"{', '.join(str(folder / name) for name in taken)}: already there; --force replaces it")
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
            typer.echo(str(folder / name))
    except OSError as error:
        _fail(f"{error.filename} cannot be written: {error.strerror}")
    there = f"cd {shlex.quote(str(folder))} && " if folder != Path() else ""
    typer.echo(f"Now serve it: {there}{command('serve')}", err=True)


def _starter(name: str) -> str:
    from importlib import resources

    return resources.files("accord.cli").joinpath("starter", name).read_text(encoding="utf-8")


def _refuse_second(folder: Path) -> None:
    """Refuse a folder whose project has settings already: `accord serve` would not know which to take."""
    from accord.config.files import PROJECT, BadSettings, in_project

    project = folder / PROJECT
    try:
        if project.is_file() and in_project(project) is not None:
            _fail(f"{project} has settings already, in its table [tool.accord]")
    except BadSettings as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    typer.echo(f"accord init: {message}", err=True)
    raise typer.Exit(Exit.FAILED)
