"""Command `accord creds`: credentials for agents, stored, listed, shown and tested.

A secret is typed or piped, so it is in no shell history or process list, and printed only with `--show`. The test
requests a task that does not exist, with and without credentials.
"""

import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from accord.cli.credential_places import CredentialPlace, FilePlace, KeyringPlace, key_file, store_place, user_keys
from accord.cli.database import StoreOption
from accord.cli.failures import Exit, async_command, command_error, run_and_exit
from accord.cli.tables import OutputFormat, OutputOption, print_rows, printable, time_of

if TYPE_CHECKING:
    from accord.client.auth import ClientAuth
    from accord.client.credentials import Credential
    from accord.model import AgentCard


async def _outcome(card: "AgentCard", auth: "ClientAuth") -> tuple[bool, str]:
    """Return whether an agent accepts credentials, and its response."""
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


def _required_schemes(card: "AgentCard") -> str:
    """Return the security requirements of a card as text."""
    ways = [" and ".join(one.schemes) or "nothing" for one in card.security_requirements]
    described = f"nothing (it describes {', '.join(card.security_schemes)})" if card.security_schemes else "nothing"
    return " or ".join(ways) or described


def _print_line(label: str, text: str) -> None:
    typer.echo(f"{label:<9} {printable(text)}")


NAME = "accord creds"
HIDDEN = "********"
PUBLIC = frozenset({"client_id", "username", "key_id", "file", "key", "ca", "hosts", "parameters"})
"""Parts of credentials that are not secret."""

app = typer.Typer(no_args_is_help=True, help="Look after what is sent to agents to be let in.")


class CredentialPlaceName(Enum):
    """The storage of credentials."""

    FILE = "file"
    KEYRING = "keyring"
    STORE = "store"


IdArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="The agent's host or URL, its own id (org/agent), or the service of a card."),
]
WhereOption = Annotated[
    CredentialPlaceName,
    typer.Option("--in", help="The user's key file, the system's keyring, or the store of a server."),
]
FileOption = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The key file, if not the user's own (ACCORD_KEYS).")
]
TenantOption = Annotated[str, typer.Option(help="Whose it is, in a store.")]


class CredentialType(NamedTuple):
    """A credential type: the label of its name, the label of its secret, and its encoding in a credential.

    A missing label means no name or no secret. A name in brackets is optional.
    """

    name: str | None
    secret: str | None
    parts: Callable[[str, str], Mapping[str, Any]]


def _oauth(name: str, secret: str) -> Mapping[str, Any]:
    from accord.client.credentials import OAuthClient

    return {"oauth": OAuthClient(client_id=name, client_secret=secret)}


def _basic(name: str, secret: str) -> Mapping[str, Any]:
    from accord.client.credentials import UserPassword

    return {"basic": UserPassword(username=name, password=secret)}


def _hmac(name: str, secret: str) -> Mapping[str, Any]:
    from accord.client.credentials import HmacKey

    return {"hmac": HmacKey(key_id=name, secret=secret)}


def _mtls(name: str, secret: str) -> Mapping[str, Any]:
    from accord.client.credentials import Certificate

    return {"certificate": Certificate(file=str(Path(name).expanduser().resolve()))}


CREDENTIAL_TYPES = {
    "api-key": CredentialType(None, "API key", lambda _, secret: {"api_key": secret}),
    "bearer": CredentialType(None, "Bearer token", lambda _, secret: {"bearer": secret}),
    "oauth": CredentialType("the client's id", "Client secret", _oauth),
    "basic": CredentialType("the user's name", "Password", _basic),
    "hmac": CredentialType("[the key's name]", "Secret to sign with", _hmac),
    "header": CredentialType(
        "the header's name", "Value of the header", lambda name, secret: {"headers": {name: secret}}
    ),
    "mtls": CredentialType("the file with the certificate", None, _mtls),
    "hosts": CredentialType(None, None, lambda *_: {}),
}


@app.command("set")
def set_(
    id: IdArgument,
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"One of {', '.join(CREDENTIAL_TYPES)}.")] = "api-key",
    name: Annotated[
        str | None, typer.Option(help="What is not secret: a client's id, a user, a header, a certificate's file.")
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The secret; better typed or piped in, because others may see commands."),
    ] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="The file with a certificate's key.")] = None,
    ca: Annotated[
        Path | None, typer.Option(help="The file with the authority of servers, beside a certificate.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Host or URL that the credential may be sent to; may be repeated."),
    ] = None,
    where: WhereOption = CredentialPlaceName.FILE,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> None:
    """Store a credential; other kinds under the same id remain. Kind `hosts` replaces the allowed hosts alone."""
    if kind not in CREDENTIAL_TYPES:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(CREDENTIAL_TYPES)}", param_hint="--kind")
    parts = _parts(CREDENTIAL_TYPES[kind], name, secret)
    if certificate_key is not None or ca is not None:
        parts = _with_files(parts, certificate_key, ca)
    if host:
        targets = [id, *host] if "://" in id else host
        parts = {**parts, "hosts": tuple(dict.fromkeys(map(_host_of, targets)))}
    elif kind == "hosts":
        raise typer.BadParameter("This kind needs at least one host", param_hint="--host")
    run_and_exit(NAME, _set(_host_of(id) if "://" in id else id, parts, _place(where, file, tenant, store)))


async def _set(id: str, parts: Mapping[str, Any], opened: AbstractAsyncContextManager[CredentialPlace]) -> int:
    from msgspec.structs import replace

    from accord.client.auth.choice import is_host
    from accord.client.credentials import Credential

    async with opened as place:
        before = await place.get(id) or Credential()
        headers = before.headers | parts.get("headers", {})
        await place.put(id, replace(before, **{**parts, "headers": headers}))
        typer.echo(f"{printable(id)} is kept in {place.name}", err=True)
        if not (before.hosts or "hosts" in parts or is_host(id)):
            typer.echo(f"It is used with `--service {printable(id)}` alone; --host allows cards to name it", err=True)
    return Exit.DONE


@app.command()
@async_command(NAME)
async def get(
    id: IdArgument,
    reveal: Annotated[bool, typer.Option("--show", help="Print the secrets themselves.")] = False,
    output: OutputOption = OutputFormat.TEXT,
    where: Annotated[
        CredentialPlaceName | None,
        typer.Option("--in", help="Only there; by default wherever a command would find it."),
    ] = None,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> int:
    """Show a credential and its sources; exit with 1 if it does not exist."""
    if reveal and where is CredentialPlaceName.STORE:
        raise typer.BadParameter("What a store keeps is sealed for its server and is not shown", param_hint="--show")
    if where is None:
        keys = user_keys(file)
        found, sources = keys.find(id), keys.sources(id)
    else:
        async with _place(where, file, tenant, store) as place:
            found = await place.get(id)
        sources = dict.fromkeys(found.__struct_fields__, where.value) if found else {}
    if found is None:
        typer.echo(f"{NAME}: nothing is kept under {printable(id)}", err=True)
        return Exit.FAILED
    rows = [
        {"part": part, "source": sources[part.partition(".")[0]], "value": value if reveal or is_public else HIDDEN}
        for part, value, is_public in _values_of(found)
    ]
    print_rows(rows, ("part", "source", "value"), output)
    return Exit.DONE


@app.command("list")
@async_command(NAME)
async def list_(
    output: OutputOption = OutputFormat.TEXT,
    where: Annotated[
        CredentialPlaceName | None, typer.Option("--in", help="A store; by default the user's own credentials.")
    ] = None,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> int:
    """List stored credentials without secrets; a keyring cannot be listed."""
    if where is CredentialPlaceName.STORE:
        async with store_place(store, tenant) as place:
            held = await place.keys.listed(tenant)
        rows: list[dict[str, Any]] = [
            {"id": one.id, "kinds": one.kinds, "sealed with": one.key_id, "updated": time_of(one.updated_at)}
            for one in held
        ]
        print_rows(rows, ("id", "kinds", "sealed with", "updated"), output)
        return Exit.DONE
    if where is CredentialPlaceName.KEYRING:
        raise command_error("A keyring cannot be listed, only asked: `accord creds get ID`")
    keys = user_keys(file)
    sources = {id: keys.sources(id) for id in keys.ids()}
    rows = [
        {"id": id, "kinds": list(found), "source": list(dict.fromkeys(found.values()))} for id, found in sources.items()
    ]
    print_rows(rows, ("id", "kinds", "source"), output)
    return Exit.DONE


@app.command()
@async_command(NAME)
async def remove(
    id: IdArgument,
    where: WhereOption = CredentialPlaceName.FILE,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> int:
    """Remove a credential; exit with 1 if it does not exist."""
    async with _place(where, file, tenant, store) as place:
        is_there = await place.remove(id)
        said = (
            f"{printable(id)} is gone from {place.name}"
            if is_there
            else f"{NAME}: there is no {printable(id)} in {place.name}"
        )
        typer.echo(said, err=True)
    return Exit.DONE if is_there else Exit.FAILED


@app.command()
@async_command(NAME)
async def rotate(store: StoreOption = None) -> int:
    """Seal all credentials and webhook secrets in a store with the first key of its settings.

    The other keys are no longer needed then. Webhook secrets in plain text are sealed as well.
    """
    from accord.cli.database import open_existing_store
    from accord.server import credentials
    from accord.server.settings_loader import credentials_of

    settings = credentials_of(os.environ)
    async with open_existing_store(store) as found:
        count = await credentials.rotate_keys(found, settings)
    typer.echo(f"{count} sealed anew", err=True)
    return Exit.DONE


@app.command("test")
@async_command(NAME)
async def try_(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its address, its card's file, or its name.")],
    service: Annotated[str | None, typer.Option(metavar="ID", help="Use what is kept under this id.")] = None,
    file: FileOption = None,
) -> int:
    """Test credentials against an agent: read its card, select credentials, and request a task that does not exist.

    Exit with 0 if the agent accepts them, with 3 if it is unreachable, and with 4 if it refuses them or none match its
    card.
    """
    from accord.cli.connection import ConnectionOptions, connect_client
    from accord.client.auth import Anonymous, choose_auth_with_ids

    keys = user_keys(file)
    async with connect_client(ConnectionOptions(agent=agent), is_anonymous=True) as client:
        card, origin = client.card, client.discovered.url
        _print_line("card", f"{card.name}, {origin or agent}")
    _print_line("asks for", _required_schemes(card))
    auth, schemes, ids = choose_auth_with_ids(card, keys, service=service, origin=origin)
    _print_line("sends", "nothing" if isinstance(auth, Anonymous) else repr(auth))
    for label, names in (("scheme", schemes), ("kept as", ids)):
        if names:
            _print_line(label, ", ".join(names))
    is_open, how = await _outcome(card, Anonymous())
    _print_line("without", how)
    if isinstance(auth, Anonymous):
        return Exit.DONE if is_open else Exit.UNAUTHENTICATED
    is_in, how = await _outcome(card, auth)
    _print_line("with it", how)
    if is_in and is_open:
        _print_line("note", "it answers everybody, so this says nothing about the credentials")
    return Exit.DONE if is_in else Exit.UNAUTHENTICATED


# --- implementation of commands ---------------------------------------------------------------------------------------


@asynccontextmanager
async def _place(
    where: CredentialPlaceName, file: Path | None, tenant: str, store: str | None
) -> AsyncIterator[CredentialPlace]:
    if where is CredentialPlaceName.STORE:
        async with store_place(store, tenant) as place:
            yield place
    elif where is CredentialPlaceName.KEYRING:
        yield KeyringPlace()
    else:
        yield FilePlace(key_file(file, os.environ))


# --- reading and printing ---------------------------------------------------------------------------------------------


def _parts(kind: CredentialType, name: str | None, secret: str | None) -> Mapping[str, Any]:
    if name is None and kind.name is not None and not kind.name.startswith("["):
        raise typer.BadParameter(f"It needs {kind.name}", param_hint="--name")
    if name is not None and kind.name is None:
        raise typer.BadParameter("This kind has no name", param_hint="--name")
    given = "" if kind.secret is None else secret if secret is not None else _read_secret(kind.secret)
    if kind.secret is not None and not given:
        raise typer.BadParameter("The secret is empty")
    return kind.parts(name or "", given)


def _host_of(target: str) -> str:
    """Return the host of a URL, with its port, or of `host` or `host:port`."""
    from accord.client.credentials.credential import host_ids

    names = host_ids(f"[{target}]" if target.count(":") > 1 and "://" not in target and "[" not in target else target)
    if not names:
        raise typer.BadParameter(f"{target!r} is not a valid host or URL", param_hint="--host")
    return names[0]


def _read_secret(what: str) -> str:
    """Read a secret from the terminal without echo, or as one piped line."""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")


def _with_files(parts: Mapping[str, Any], key: Path | None, ca: Path | None) -> Mapping[str, Any]:
    from msgspec.structs import replace

    if "certificate" not in parts:
        raise typer.BadParameter("Only a certificate has files: --kind mtls")
    files = {name: str(path.expanduser().resolve()) for name, path in (("key", key), ("ca", ca)) if path is not None}
    return {"certificate": replace(parts["certificate"], **files)}


def _values_of(credential: "Credential") -> list[tuple[str, Any, bool]]:
    """Return every value of a credential by its dotted name, and whether it may be shown."""
    from msgspec import Struct

    found: list[tuple[str, Any, bool]] = []
    for name in credential.__struct_fields__:
        value = getattr(credential, name)
        if isinstance(value, Struct):
            inner = [(part, getattr(value, part)) for part in value.__struct_fields__]
        else:
            inner = list(value.items()) if isinstance(value, dict) else [("", value)]
        found += [
            (f"{name}.{part}" if part else name, text, (part or name) in PUBLIC and name != "headers")
            for part, text in inner
            if text
        ]
    return found
