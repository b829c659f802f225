"""The `accord` command and the table of its subcommands.

A subcommand is imported when it is named, and imports its dependencies when it starts, so `--help` and `--version`
respond at once. Errors in arguments are one line.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from accord import __version__

CLICK_ERROR: Any = typer.BadParameter.mro()[2]
"""Base class of usage errors: `ClickException`, of click or of the copy that newer typers have."""

ORDER = "accord.order"
"""Key in a context's `meta` with the order of a command's flags."""

PLAIN = None
"""Help without boxes, because drawing them takes as long as all the rest of `--help`."""

NO_ARGUMENTS = "NoArgsIsHelpError"
"""Name of the error for missing arguments, of click or of typer's copy. Its message is the help."""

ABORTED = 1
"""Exit code of a command whose prompt the user aborted."""


class OrderedCommand(TyperCommand):
    """A command that keeps the order of its flags, across flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and keep the order of the flags."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            ctx.meta[ORDER] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


class LazyGroup(TyperGroup):
    """Commands as `module:name`, of a function or of a group. A subclass has the table."""

    table: ClassVar[Mapping[str, str]]

    contexts: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Context settings of commands that parse their arguments themselves."""

    def __init__(self, **settings: Any) -> None:
        """Register the names of the table."""
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(self.table)

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command. A usage error is printed as one line, and a second line names the help.

        Typer would draw a box around it, which can be neither searched nor copied.
        """
        is_alone = settings.pop("standalone_mode", True)
        try:
            code = super().main(*args, **(settings | {"standalone_mode": False}))
        except (typer.Abort, CLICK_ERROR) as error:
            if not is_alone:
                raise
            told, is_wrong = _error_text(error)
            typer.echo(told, err=is_wrong)
            code = getattr(error, "exit_code", ABORTED)
        return sys.exit(code) if is_alone else code

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None for an unknown name."""
        if self.commands.get(cmd_name) is None and cmd_name in self.table:
            self.commands[cmd_name] = _import_command(cmd_name, self.table[cmd_name], self.contexts.get(cmd_name))
        return self.commands.get(cmd_name)


def _error_text(error: Any) -> tuple[str, bool]:
    """Return the text to print, and whether it is an error: without arguments it is the help."""
    if isinstance(error, typer.Abort):
        return "Aborted.", True
    said = error.format_message()
    if type(error).__name__ == NO_ARGUMENTS:
        return said, False
    context = getattr(error, "ctx", None)
    command = "accord" if context is None else context.command_path
    return f"{command}: {said}\nTry '{command} --help'.", True


def _import_command(name: str, place: str, context: Mapping[str, Any] | None) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = PLAIN
        group = get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=PLAIN)
    alone.command(name, cls=OrderedCommand, context_settings=None if context is None else {**context})(found)
    return get_command(alone)


class Commands(LazyGroup):
    """The commands of `accord`. A function is one command, and an `app` a group."""

    table: ClassVar = {
        "serve": "accord.cli.serve:serve",
        "demo": "accord.cli.demo:demo",
        "send": "accord.cli.messages:send",
        "chat": "accord.cli.messages:chat",
        "a2a": "accord.cli.a2a:app",
        "card": "accord.cli.tasks:card_app",
        "task": "accord.cli.tasks:app",
        "agents": "accord.cli.agents:app",
        "run": "accord.cli.runs:run",
        "runs": "accord.cli.runs:app",
        "workflow": "accord.cli.workflow_files:app",
        "creds": "accord.cli.credentials:app",
        "config": "accord.cli.settings:app",
        "init": "accord.cli.settings:init",
        "doctor": "accord.cli.settings:doctor",
        "apikeys": "accord.cli.administration:keys_app",
        "audit": "accord.cli.administration:audit_app",
        "db": "accord.cli.database:app",
        "push": "accord.cli.administration:push_app",
        "remotes": "accord.cli.administration:remotes_app",
        "mcp": "accord.cli.mcp:mcp",
        "hash-password": "accord.cli.settings:hash_password",
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
    """Serve, call and orchestrate A2A agents with durable tasks."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command."""
    app()
