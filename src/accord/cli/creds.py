"""`accord creds`: what is sent to agents to be let in: kept, listed, shown when asked for, and tried.

A secret is typed in or piped in, so that it is in no history and no list of processes, and it is printed only with
`--show`. Where credentials are kept is `cli.places`, trying them `cli.trying`.
"""

import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from accord.cli.db import StoreOption, exit_with
from accord.cli.exits import Exit, explained, failed
from accord.cli.places import FilePlace, KeyringPlace, Place, key_file, keys_of, store_place
from accord.cli.tables import Output, plain, show, time_of

if TYPE_CHECKING:
    from accord.client.credentials import Credential

NAME = "accord creds"
HIDDEN = "********"
PUBLIC = frozenset({"client_id", "username", "key_id", "file", "key", "ca", "hosts", "parameters"})
"""Parts of credentials that are no secrets."""

app = typer.Typer(no_args_is_help=True, help="Look after what is sent to agents to be let in.")


class Where(Enum):
    """Where credentials are kept."""

    FILE = "file"
    KEYRING = "keyring"
    STORE = "store"


IdArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="The agent's host or URL, its own id (org/agent), or the service of a card."),
]
WhereOption = Annotated[
    Where, typer.Option("--in", help="The user's key file, the system's keyring, or the store of a server.")
]
FileOption = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The key file, if not the user's own (ACCORD_KEYS).")
]
TenantOption = Annotated[str, typer.Option(help="Whose it is, in a store.")]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How it is printed.")]


class Kind(NamedTuple):
    """A kind of credential: what it is called by, what is secret about it, and how it is written into a credential.

    Without a word for it there is no name, or no secret; a name in brackets may be missing.
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
    "api-key": Kind(None, "API key", lambda _, secret: {"api_key": secret}),
    "bearer": Kind(None, "Bearer token", lambda _, secret: {"bearer": secret}),
    "oauth": Kind("the client's id", "Client secret", _oauth),
    "basic": Kind("the user's name", "Password", _basic),
    "hmac": Kind("[the key's name]", "Secret to sign with", _hmac),
    "header": Kind("the header's name", "Value of the header", lambda name, secret: {"headers": {name: secret}}),
    "mtls": Kind("the file with the certificate", None, _mtls),
    "hosts": Kind(None, None, lambda *_: {}),
}


@app.command("set")
def set_(
    id: IdArgument,
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"One of {', '.join(KINDS)}.")] = "api-key",
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
    where: WhereOption = Where.FILE,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> None:
    """Store a credential; another kind under the same id stays. Kind `hosts` replaces the allowed hosts alone."""
    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(KINDS)}", param_hint="--kind")
    parts = _parts(KINDS[kind], name, secret)
    if certificate_key is not None or ca is not None:
        parts = _with_files(parts, certificate_key, ca)
    if host:
        targets = [id, *host] if "://" in id else host
        parts = {**parts, "hosts": tuple(dict.fromkeys(map(_host_of, targets)))}
    elif kind == "hosts":
        raise typer.BadParameter("This kind needs at least one host", param_hint="--host")
    id = _host_of(id) if "://" in id else id
    _run(_set(id, parts, where, file, tenant, store))


@app.command()
def get(
    id: IdArgument,
    reveal: Annotated[bool, typer.Option("--show", help="Print the secrets themselves.")] = False,
    output: OutputOption = Output.TEXT,
    where: Annotated[
        Where | None, typer.Option("--in", help="Only there; by default wherever a command would find it.")
    ] = None,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> None:
    """Say what is kept under an id and where it is from; exit with 1 if there is nothing."""
    if reveal and where is Where.STORE:
        raise typer.BadParameter("What a store keeps is sealed for its server and is not shown", param_hint="--show")
    _run(_get(id, reveal, output, where, file, tenant, store))


@app.command("list")
def list_(
    output: OutputOption = Output.TEXT,
    where: Annotated[Where | None, typer.Option("--in", help="A store; by default the user's own credentials.")] = None,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> None:
    """List what is kept, without secrets; a keyring cannot be listed."""
    _run(_list(output, where, file, tenant, store))


@app.command()
def remove(
    id: IdArgument,
    where: WhereOption = Where.FILE,
    file: FileOption = None,
    tenant: TenantOption = "",
    store: StoreOption = None,
) -> None:
    """Forget everything under an id; exit with 1 if there is nothing."""
    _run(_remove(id, where, file, tenant, store))


@app.command()
def rotate(store: StoreOption = None) -> None:
    """Seal all credentials and webhook secrets in a store with the first key of its settings.

    The other keys are no longer needed then. Secrets of webhooks that are in plain text are sealed as well.
    """
    _run(_rotate(store))


@app.command("test")
def try_(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its address, its card's file, or its name.")],
    service: Annotated[str | None, typer.Option(metavar="ID", help="Use what is kept under this id.")] = None,
    file: FileOption = None,
) -> None:
    """Try to be let in by an agent: find its card, choose what it asks for, and ask for a task that is not there.

    Exits with 0 if it lets us in, 3 if it cannot be reached, and 4 if it does not or nothing that it asks for is kept.
    """
    from accord.cli.trying import tried

    _run(tried(agent, service, file))


# --- what commands do -------------------------------------------------------------------------------------------------


async def _set(
    id: str, parts: Mapping[str, Any], where: Where, file: Path | None, tenant: str, store: str | None
) -> int:
    from msgspec.structs import replace

    from accord.client.auth.choice import is_host
    from accord.client.credentials import Credential

    async with _place(where, file, tenant, store) as place:
        before = await place.get(id) or Credential()
        headers = before.headers | parts.get("headers", {})
        await place.put(id, replace(before, **{**parts, "headers": headers}))
        typer.echo(f"{plain(id)} is kept in {place.name}", err=True)
        if not (before.hosts or "hosts" in parts or is_host(id)):
            typer.echo(f"It is used with `--service {plain(id)}` alone; --host allows cards to name it", err=True)
    return Exit.DONE


async def _get(
    id: str, reveal: bool, output: Output, where: Where | None, file: Path | None, tenant: str, store: str | None
) -> int:
    if where is None:
        keys = keys_of(file)
        found, sources = keys.find(id), keys.sources(id)
    else:
        async with _place(where, file, tenant, store) as place:
            found = await place.get(id)
        sources = dict.fromkeys(found.__struct_fields__, where.value) if found else {}
    if found is None:
        typer.echo(f"{NAME}: nothing is kept under {plain(id)}", err=True)
        return Exit.FAILED
    rows = [
        {"part": part, "source": sources[part.partition(".")[0]], "value": value if reveal or is_public else HIDDEN}
        for part, value, is_public in _leaves(found)
    ]
    show(rows, ("part", "source", "value"), output)
    return Exit.DONE


async def _list(output: Output, where: Where | None, file: Path | None, tenant: str, store: str | None) -> int:
    if where is Where.STORE:
        async with store_place(store, tenant) as place:
            held = await place.keys.listed(tenant)
        rows: list[dict[str, Any]] = [
            {"id": one.id, "kinds": one.kinds, "sealed with": one.key_id, "updated": time_of(one.updated_at)}
            for one in held
        ]
        show(rows, ("id", "kinds", "sealed with", "updated"), output)
        return Exit.DONE
    if where is Where.KEYRING:
        raise failed("A keyring cannot be listed, only asked: `accord creds get ID`")
    keys = keys_of(file)
    sources = {id: keys.sources(id) for id in keys.ids()}
    rows = [
        {"id": id, "kinds": list(found), "source": list(dict.fromkeys(found.values()))} for id, found in sources.items()
    ]
    show(rows, ("id", "kinds", "source"), output)
    return Exit.DONE


async def _remove(id: str, where: Where, file: Path | None, tenant: str, store: str | None) -> int:
    async with _place(where, file, tenant, store) as place:
        is_there = await place.remove(id)
        said = (
            f"{plain(id)} is gone from {place.name}" if is_there else f"{NAME}: there is no {plain(id)} in {place.name}"
        )
        typer.echo(said, err=True)
    return Exit.DONE if is_there else Exit.FAILED


async def _rotate(store: str | None) -> int:
    from accord.app import credentials
    from accord.cli.db import opened
    from accord.config import credentials_of

    settings = credentials_of(os.environ)
    async with opened(store) as found:
        count = await credentials.rotate(found, settings)
    typer.echo(f"{count} sealed anew", err=True)
    return Exit.DONE


@asynccontextmanager
async def _place(where: Where, file: Path | None, tenant: str, store: str | None) -> AsyncIterator[Place]:
    if where is Where.STORE:
        async with store_place(store, tenant) as place:
            yield place
    elif where is Where.KEYRING:
        yield KeyringPlace()
    else:
        yield FilePlace(key_file(file, os.environ))


# --- reading and printing ---------------------------------------------------------------------------------------------


def _parts(kind: Kind, name: str | None, secret: str | None) -> Mapping[str, Any]:
    if name is None and kind.name is not None and not kind.name.startswith("["):
        raise typer.BadParameter(f"It needs {kind.name}", param_hint="--name")
    if name is not None and kind.name is None:
        raise typer.BadParameter("This kind has no name", param_hint="--name")
    given = "" if kind.secret is None else secret if secret is not None else _typed(kind.secret)
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


def _typed(what: str) -> str:
    """Read a secret from the terminal, unseen, or as one line that is piped in."""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")


def _with_files(parts: Mapping[str, Any], key: Path | None, ca: Path | None) -> Mapping[str, Any]:
    from msgspec.structs import replace

    if "certificate" not in parts:
        raise typer.BadParameter("Only a certificate has files: --kind mtls")
    files = {name: str(path.expanduser().resolve()) for name, path in (("key", key), ("ca", ca)) if path is not None}
    return {"certificate": replace(parts["certificate"], **files)}


def _leaves(credential: "Credential") -> list[tuple[str, Any, bool]]:
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


def _run(work: Coroutine[Any, Any, int]) -> None:
    """Do the work and exit; what a user can mend is one line."""
    from accord.client.credentials import KeyManagementError

    async def explaining() -> int:
        try:
            return await work
        except KeyManagementError as error:
            typer.echo(f"{NAME}: {plain(str(error))}", err=True)
            return Exit.FAILED
        except Exception as error:
            failure = explained(error)
            if failure is None:
                raise
            typer.echo(f"{NAME}: {plain(failure.message)}", err=True)
            if failure.hint:
                typer.echo(failure.hint, err=True)
            return failure.exit

    exit_with(NAME, explaining())
