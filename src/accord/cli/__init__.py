"""The `accord` command, a module per family of commands.

It parses arguments and prints; everything else is below. What only one command needs is imported when that runs, so
that `--help` and `--version` answer at once.
"""

from typing import Annotated

import typer

from accord import __version__
from accord.cli import apikeys, audit, db, passwords, push, serve

app = typer.Typer(name="accord", no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
app.command()(serve.serve)
app.add_typer(audit.app, name="audit")
app.add_typer(db.app, name="db")
app.add_typer(push.app, name="push")
app.add_typer(apikeys.app, name="apikeys")
app.command("hash-password")(passwords.hash_password)


@app.callback(invoke_without_command=True)
def accord(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """A durable home for agents that talk to each other over A2A."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command."""
    app()
