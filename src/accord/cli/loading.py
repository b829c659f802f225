"""A group of commands that loads each when it is named.

Who runs one command waits for no other: building all of them takes as long as Python itself needs to start. Which
commands there are is the table of `accord.cli`.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

ORDER = "accord.order"
"""Where a command keeps the order of its flags, in its context's `meta`."""


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

    def __init__(self, **settings: Any) -> None:
        """Know the names."""
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(self.table)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none."""
        if self.commands.get(cmd_name) is None and cmd_name in self.table:
            self.commands[cmd_name] = _built(cmd_name, self.table[cmd_name])
        return self.commands.get(cmd_name)


def _built(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=Ordered)(found)
    return get_command(alone)
