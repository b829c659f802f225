"""A group of commands that loads each when it is named, and says in a line what is wrong with how one was called.

Who runs one command waits for no other: building all of them takes as long as Python itself needs to start. Which
commands there are is the table of `accord.cli`.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

Refused: Any = typer.BadParameter.mro()[2]
"""Whatever is wrong with how a command was called: `ClickException`, of click or of the copy that newer typers have."""

ORDER = "accord.order"
"""Where a command keeps the order of its flags, in its context's `meta`."""

PLAIN = None
"""How help is written: without boxes, because drawing them takes as long as all the rest of `--help`."""

NO_ARGUMENTS = "NoArgsIsHelpError"
"""What is raised for who gives none where some are needed, of click or of typer's copy: its message is the help."""

ABORTED = 1
"""How a command ends whose user was asked something and wanted no more of it."""


class Ordered(TyperCommand):
    """A command that knows in which order its flags were given, across flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the order."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            ctx.meta[ORDER] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


class Loading(TyperGroup):
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
        except (typer.Abort, Refused) as error:
            if not is_alone:
                raise
            told, is_wrong = _told(error)
            typer.echo(told, err=is_wrong)
            code = getattr(error, "exit_code", ABORTED)
        return sys.exit(code) if is_alone else code

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none."""
        if self.commands.get(cmd_name) is None and cmd_name in self.table:
            self.commands[cmd_name] = _built(cmd_name, self.table[cmd_name], self.contexts.get(cmd_name))
        return self.commands.get(cmd_name)


def _told(error: Any) -> tuple[str, bool]:
    """Return what to say, and whether something is wrong: who gave no arguments is shown what there is."""
    if isinstance(error, typer.Abort):
        return "Aborted.", True
    said = error.format_message()
    if type(error).__name__ == NO_ARGUMENTS:
        return said, False
    context = getattr(error, "ctx", None)
    command = "accord" if context is None else context.command_path
    return f"{command}: {said}\nTry '{command} --help'.", True


def _built(name: str, place: str, context: Mapping[str, Any] | None) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = PLAIN
        group = get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=PLAIN)
    alone.command(name, cls=Ordered, context_settings=None if context is None else {**context})(found)
    return get_command(alone)
