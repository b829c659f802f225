"""The `accord` command, a module per family of commands.

It parses arguments and prints; everything else is below. A command is loaded when it is named, and what only its work
needs is imported when that begins, so that `--help` and `--version` answer at once.
"""

from typing import Annotated, ClassVar

import typer

from accord import __version__
from accord.cli.loading import PLAIN, Loading


class Commands(Loading):
    """What `accord` can do; a function is one command, an `app` a family of them."""

    table: ClassVar = {
        "serve": "accord.cli.serve:serve",
        "demo": "accord.cli.demo:demo",
        "send": "accord.cli.send:send",
        "chat": "accord.cli.chat:chat",
        "a2a": "accord.cli.a2a:app",
        "card": "accord.cli.card:card_app",
        "task": "accord.cli.task:app",
        "agents": "accord.cli.agents:app",
        "run": "accord.cli.run:run",
        "runs": "accord.cli.runs:app",
        "workflow": "accord.cli.workflow:app",
        "creds": "accord.cli.creds:app",
        "config": "accord.cli.config:app",
        "init": "accord.cli.init:init",
        "doctor": "accord.cli.doctor:doctor",
        "apikeys": "accord.cli.apikeys:app",
        "audit": "accord.cli.audit:app",
        "db": "accord.cli.db:app",
        "push": "accord.cli.push:push_app",
        "remotes": "accord.cli.remotes:remotes_app",
        "mcp": "accord.cli.mcp:mcp",
        "hash-password": "accord.cli.passwords:hash_password",
    }
    contexts: ClassVar = {"doctor": {"ignore_unknown_options": True}}


app = typer.Typer(
    name="accord",
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=PLAIN,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def accord(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """A durable home for agents that talk to each other over A2A."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command."""
    app()
