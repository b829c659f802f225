"""`accord card`: what an agent says about itself."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from accord.cli.asking import ask
from accord.cli.reaching import Reach, reaching

if TYPE_CHECKING:
    from accord.cli.progress import Progress
    from accord.client import Client


class _Family(TyperGroup):
    """One command so far, whose name may be left out before an address."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Take an address for an agent whose card is to be shown."""
        is_address = any(sign in args[0] for sign in ":/.")
        return super().resolve_command(ctx, ["get", *args] if is_address else args)


card_app = typer.Typer(cls=_Family, no_args_is_help=True, help="Look at an agent's card.")


@card_app.callback()
def _family() -> None:
    """Keep the name of the only command."""


@card_app.command("get")
@reaching()
def get(
    reach: Reach,
    extended: Annotated[bool, typer.Option("--extended", help="The card that only authenticated callers see.")] = False,
) -> None:
    """Show the card of an agent: who it is, where it listens, what it can do and what it asks for."""

    async def work(client: "Client", progress: "Progress") -> None:
        from accord.cli import output
        from accord.client.interfaces import describe_findings
        from accord.model import CardRequest
        from accord.protocol.operations import Operation

        card = await client.extended_card(CardRequest()) if extended else client.card
        progress.stop()
        if reach.is_json:
            output.document(Operation.EXTENDED_CARD, card)
        else:
            output.lines(output.of_card(card))
        for finding in describe_findings(client.discovered.findings):
            output.tell(f"accord: {output.line(finding)}")

    ask(reach, work, is_anonymous=not extended)
