"""From what a user calls an agent, and brings to it, to a client that is connected.

An agent is an address, a card in a file, a bare host, or a name in the registry. Discovering and choosing how to speak
is the client's work; the flags are read in `cli.reaching`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from accord.cli.exits import Exit, Failed, Failure
from accord.cli.reaching import Reach

if TYPE_CHECKING:
    import ssl

    from accord.client import Client
    from accord.client.credentials import Credential
    from accord.model import AgentCard


class OneKey:
    """The key that the user gave, whatever id it is looked up by."""

    def __init__(self, key: str) -> None:
        """Keep it."""
        self._key = key

    def find(self, id: str) -> "Credential | None":
        """Return it."""
        from accord.client.credentials import Credential

        return Credential(api_key=self._key)


@asynccontextmanager
async def connected(reach: Reach, *, is_anonymous: bool = False) -> AsyncIterator["Client"]:
    """Connect to the agent; anonymously, only its card may be read if it wants to know who asks."""
    path = _file_of(reach.agent)
    options = _options(reach, is_anonymous=is_anonymous)
    client = await _client(reach, reach.agent if path is None else _read(path), options)
    try:
        yield client
    finally:
        await client.close()


async def _client(reach: Reach, target: "str | AgentCard", options: dict[str, Any]) -> "Client":
    from accord.client import Client
    from accord.client.auth import NoCredentials

    try:
        return await Client.connect(target, **options)
    except NoCredentials:
        if not reach.headers:
            raise
    return await Client.connect(target, **{**options, "keys": None})  # the user's own headers may well do


def _options(reach: Reach, *, is_anonymous: bool) -> dict[str, Any]:
    from accord.cli.places import keys_of
    from accord.client.auth import Bearer

    options: dict[str, Any] = {
        "headers": dict(reach.headers),
        "dialect": reach.dialect,
        "binding": reach.binding,
        "service": reach.service,
        "allow_hosts": reach.trusted_hosts,
        "resolve": partial(_resolved, reach.registry),
    }
    if reach.seconds is not None:
        options["timeout"] = reach.seconds
    if reach.insecure:
        options["tls"] = _unverified()
    if reach.bearer is not None:
        options["auth"] = Bearer(reach.bearer)
    elif not is_anonymous:
        options["keys"] = keys_of(None) if reach.api_key is None else OneKey(reach.api_key)
    return options


async def _resolved(registry: str | None, name: str) -> "AgentCard":
    """Look a name up; a registry, and all that it stands on, is only loaded for one."""
    from accord.app.names import resolved

    return await resolved(name, registry=registry)


def _unverified() -> "ssl.SSLContext":
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _file_of(agent: str) -> Path | None:
    """Return the file that is meant: what begins like a path is one, and what is there."""
    path = Path(unquote(urlsplit(agent).path) if agent.startswith("file://") else agent).expanduser()
    return path if agent.startswith(("file://", "/", ".", "~")) or path.is_file() else None


def _read(path: Path) -> "AgentCard":
    from accord.errors import AccordError
    from accord.protocol.cards import decode_card

    try:
        return decode_card(path.read_bytes())
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror}"
        raise Failed(Failure(Exit.UNREACHABLE, "A2ACLI_ERR_CARD_NOT_FOUND", why)) from None
    except AccordError as error:
        why = f"{path} is not an agent card: {error.message}"
        raise Failed(Failure(Exit.FAILED, "A2ACLI_ERR_CARD_INVALID", why)) from None
