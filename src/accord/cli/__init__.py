"""The `accord` command and the table of its subcommands.

A subcommand is imported when it is named, and imports what its work needs when that starts, so `--help` and `--version`
answer at once. Errors in arguments are one line.
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
"""Whatever is wrong with how a command was called: `ClickException`, of click or of the copy that newer typers have."""

ORDER = "accord.order"
"""Where a command keeps the order of its flags, in its context's `meta`."""

PLAIN = None
"""How help is written: without boxes, because drawing them takes as long as all the rest of `--help`."""

NO_ARGUMENTS = "NoArgsIsHelpError"
"""What is raised for who gives none where some are needed, of click or of typer's copy: its message is the help."""

ABORTED = 1
"""How a command ends whose user was asked something and wanted no more of it."""


class OrderedCommand(TyperCommand):
    """A command that knows in which order its flags were given, across flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the order."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            ctx.meta[ORDER] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


class LazyGroup(TyperGroup):
    """Commands as `module:name`, of a function or of a family; a subclass has the table."""

    table: ClassVar[Mapping[str, str]]

    contexts: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Context settings of commands that read their arguments in a way of their own."""

    def __init__(self, **settings: Any) -> None:
        """Know the names."""
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(self.table)

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command; what is wrong with how it was called is a line, and the next one says where to read more.

        Typer would draw a box around it, which can neither be searched nor be copied.
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
        """Return the names."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none."""
        if self.commands.get(cmd_name) is None and cmd_name in self.table:
            self.commands[cmd_name] = _import_command(cmd_name, self.table[cmd_name], self.contexts.get(cmd_name))
        return self.commands.get(cmd_name)


def _error_text(error: Any) -> tuple[str, bool]:
    """Return what to say, and whether something is wrong: who gave no arguments is shown what there is."""
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
    """What `accord` can do; a function is one command, an `app` a family of them."""

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
        "apikeys": "accord.cli.api_keys:app",
        "audit": "accord.cli.audit:app",
        "db": "accord.cli.database:app",
        "push": "accord.cli.deliveries:push_app",
        "remotes": "accord.cli.deliveries:remotes_app",
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
    """A durable home for agents that talk to each other over A2A."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command."""
    app()
