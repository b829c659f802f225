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
        return True, "accepted"
    except AccordError as error:
        return True, f"accepted, but the request failed: {error.message}"
    return True, "accepted"


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

app = typer.Typer(no_args_is_help=True, help="Manage credentials for remote agents.")


class CredentialPlaceName(Enum):
    """The storage of credentials."""

    FILE = "file"
    KEYRING = "keyring"
    STORE = "store"


IdArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="Id of the credential: host, URL, agent name (org/agent) or service name."),
]
WhereOption = Annotated[
    CredentialPlaceName,
    typer.Option("--in", help="Location: the user's key file, the system's keyring or a server's store."),
]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="Key file [default: $ACCORD_KEYS, else the user's key file]."),
]
TenantOption = Annotated[str, typer.Option(help="Tenant of the credential (store only).")]


class CredentialKind(NamedTuple):
    """A kind of credential: the label of its name, the label of its secret, and its encoding in a credential.

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


KINDS = {
    "api-key": CredentialKind(None, "API key", lambda _, secret: {"api_key": secret}),
    "bearer": CredentialKind(None, "Bearer token", lambda _, secret: {"bearer": secret}),
    "oauth": CredentialKind("the client id", "Client secret", _oauth),
    "basic": CredentialKind("the username", "Password", _basic),
    "hmac": CredentialKind("[the key id]", "Signing secret", _hmac),
    "header": CredentialKind("the header name", "Header value", lambda name, secret: {"headers": {name: secret}}),
    "mtls": CredentialKind("the certificate file", None, _mtls),
    "hosts": CredentialKind(None, None, lambda *_: {}),
}


@app.command("set")
def set_(
    id: IdArgument,
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"Kind of credential: {', '.join(KINDS)}.")] = "api-key",
    name: Annotated[
        str | None, typer.Option(help="Non-secret part: client id, username, key id, header name or certificate file.")
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Secret. Prefer the prompt or a pipe: command lines are visible to other users."
        ),
    ] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="Private key file of the certificate.")] = None,
    ca: Annotated[Path | None, typer.Option(help="CA bundle that verifies the server (with --kind mtls).")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Host or URL that may receive the credential (repeatable)."),
    ] = None,
    where: WhereOption = CredentialPlaceName.FILE,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> None:
    """Store a credential. Other kinds under the same id remain. Kind `hosts` replaces only the allowed hosts."""
    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(KINDS)}", param_hint="--kind")
    parts = _parts(KINDS[kind], name, secret)
    if certificate_key is not None or ca is not None:
        parts = _with_files(parts, certificate_key, ca)
    if host:
        targets = [id, *host] if "://" in id else host
        parts = {**parts, "hosts": tuple(dict.fromkeys(map(_host_of, targets)))}
    elif kind == "hosts":
        raise typer.BadParameter("--kind hosts requires at least one host", param_hint="--host")
    run_and_exit(NAME, _set(_host_of(id) if "://" in id else id, parts, _place(where, file, tenant, store)))


async def _set(id: str, parts: Mapping[str, Any], opened: AbstractAsyncContextManager[CredentialPlace]) -> int:
    from msgspec.structs import replace

    from accord.client.auth.choice import is_host
    from accord.client.credentials import Credential

    async with opened as place:
        before = await place.get(id) or Credential()
        headers = before.headers | parts.get("headers", {})
        await place.put(id, replace(before, **{**parts, "headers": headers}))
        typer.echo(f"{printable(id)} is stored in {place.name}", err=True)
        if not (before.hosts or "hosts" in parts or is_host(id)):
            typer.echo(
                f"It is used only with `--service {printable(id)}`. To let cards refer to it, set --host", err=True
            )
    return Exit.DONE


@app.command()
@async_command(NAME)
async def get(
    id: IdArgument,
    reveal: Annotated[bool, typer.Option("--show", help="Print secrets.")] = False,
    output: OutputOption = OutputFormat.TEXT,
    where: Annotated[
        CredentialPlaceName | None,
        typer.Option("--in", help="Location [default: all locations]."),
    ] = None,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> int:
    """Show a credential and its sources. Exit with 1 if it does not exist."""
    if reveal and where is CredentialPlaceName.STORE:
        raise typer.BadParameter("Secrets in a store are sealed and cannot be shown", param_hint="--show")
    if where is None:
        keys = user_keys(file)
        found, sources = keys.find(id), keys.sources(id)
    else:
        async with _place(where, file, tenant, store) as place:
            found = await place.get(id)
        sources = dict.fromkeys(found.__struct_fields__, where.value) if found else {}
    if found is None:
        typer.echo(f"{NAME}: unknown credential {printable(id)}", err=True)
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
        CredentialPlaceName | None, typer.Option("--in", help="Location [default: the user's credentials].")
    ] = None,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> int:
    """List stored credentials without secrets. A keyring cannot be listed."""
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
        raise command_error("A keyring cannot be listed. Look up one credential: `accord creds get ID`")
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
    """Remove a credential. Exit with 1 if it does not exist."""
    async with _place(where, file, tenant, store) as place:
        is_there = await place.remove(id)
        said = (
            f"{printable(id)} is removed from {place.name}"
            if is_there
            else f"{NAME}: {printable(id)} is not in {place.name}"
        )
        typer.echo(said, err=True)
    return Exit.DONE if is_there else Exit.FAILED


@app.command()
@async_command(NAME)
async def rotate(store: StoreOption = None) -> int:
    """Seal all credentials and webhook secrets in a store with the first key of its settings.

    Afterwards the other keys can be removed. Webhook secrets in plain text are also sealed.
    """
    from accord.cli.database import open_existing_store
    from accord.server import credentials
    from accord.server.settings_loader import credentials_of

    settings = credentials_of(os.environ)
    async with open_existing_store(store) as found:
        count = await credentials.rotate_keys(found, settings)
    typer.echo(f"{count} resealed", err=True)
    return Exit.DONE


@app.command("test")
@async_command(NAME)
async def try_(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Agent: URL, card file or registry name.")],
    service: Annotated[str | None, typer.Option(metavar="ID", help="Id of the stored credential.")] = None,
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
    _print_line("requires", _required_schemes(card))
    auth, schemes, ids = choose_auth_with_ids(card, keys, service=service, origin=origin)
    _print_line("sends", "nothing" if isinstance(auth, Anonymous) else repr(auth))
    for label, names in (("scheme", schemes), ("stored as", ids)):
        if names:
            _print_line(label, ", ".join(names))
    is_open, how = await _outcome(card, Anonymous())
    _print_line("without", how)
    if isinstance(auth, Anonymous):
        return Exit.DONE if is_open else Exit.UNAUTHENTICATED
    is_in, how = await _outcome(card, auth)
    _print_line("with", how)
    if is_in and is_open:
        _print_line("note", "the agent accepts anonymous requests, so the credentials are not tested")
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


def _parts(kind: CredentialKind, name: str | None, secret: str | None) -> Mapping[str, Any]:
    if name is None and kind.name is not None and not kind.name.startswith("["):
        raise typer.BadParameter(f"--name is required: {kind.name}", param_hint="--name")
    if name is not None and kind.name is None:
        raise typer.BadParameter("This kind of credential has no name", param_hint="--name")
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
        raise typer.BadParameter("--certificate-key and --ca require --kind mtls")
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
