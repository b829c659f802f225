"""`accord creds test`: whether an agent lets us in, and what happened on the way.

It asks for a task that is not there, which changes nothing: an agent that says so has let us in. The same is asked
without credentials as well, because an agent that answers everybody proves nothing about them.
"""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from accord.cli.exits import Exit
from accord.cli.places import keys_of
from accord.cli.tables import plain

if TYPE_CHECKING:
    from accord.client.auth import ClientAuth
    from accord.model import AgentCard


async def tried(agent: str, service: str | None, file: Path | None) -> int:
    """Try it, say what happens, and return the exit code."""
    from accord.cli.connecting import connected
    from accord.cli.reaching import Reach
    from accord.client.auth import Anonymous, choose_auth_with_ids

    keys = keys_of(file)
    async with connected(Reach(agent=agent), is_anonymous=True) as client:
        card, origin = client.card, client.discovered.url
        _say("card", f"{card.name}, {origin or agent}")
    _say("asks for", _asked(card))
    auth, schemes, ids = choose_auth_with_ids(card, keys, service=service, origin=origin)
    _say("sends", "nothing" if isinstance(auth, Anonymous) else repr(auth))
    for label, names in (("scheme", schemes), ("kept as", ids)):
        if names:
            _say(label, ", ".join(names))
    is_open, how = await _outcome(card, Anonymous())
    _say("without", how)
    if isinstance(auth, Anonymous):
        return Exit.DONE if is_open else Exit.UNAUTHENTICATED
    is_in, how = await _outcome(card, auth)
    _say("with it", how)
    if is_in and is_open:
        _say("note", "it answers everybody, so this says nothing about the credentials")
    return Exit.DONE if is_in else Exit.UNAUTHENTICATED


async def _outcome(card: "AgentCard", auth: "ClientAuth") -> tuple[bool, str]:
    """Return whether an agent lets somebody in, and how it said so."""
    from accord.client import Client
    from accord.errors import AccordError, AuthenticationFailed, PermissionDenied, TaskNotFound
    from accord.model import GetRequest

    try:
        async with Client.connect(card, auth=auth) as client:
            await client.get(GetRequest(id=str(uuid.uuid4())))
    except (AuthenticationFailed, PermissionDenied) as error:
        return False, f"refused: {error.message}"
    except TaskNotFound:
        return True, "let in"
    except AccordError as error:
        return True, f"let in, as far as one can tell: {error.message}"
    return True, "let in"


def _asked(card: "AgentCard") -> str:
    """Return what a card requires, as people say it."""
    ways = [" and ".join(one.schemes) or "nothing" for one in card.security_requirements]
    described = f"nothing (it describes {', '.join(card.security_schemes)})" if card.security_schemes else "nothing"
    return " or ".join(ways) or described


def _say(label: str, text: str) -> None:
    typer.echo(f"{label:<9} {plain(text)}")
