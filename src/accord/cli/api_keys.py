"""Command `accord apikeys`: create, list and revoke the API keys of callers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.database import StoreOption, open_existing_store, run_and_exit, store_address
from accord.cli.tables import OutputFormat, cell_text, echo_json, print_rows, printable, time_of

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from accord.api.administration import NewApiKey
    from accord.api.queries import StoredApiKey


DONE, FAILED = 0, 1
NAME = "accord apikeys"
DAY_MS = 24 * 3600 * 1000

app = typer.Typer(no_args_is_help=True, help="Look after the keys of callers.")

OutputOption = Annotated[OutputFormat, typer.Option("-o", "--output", help="How it is printed.")]


@app.command()
def create(
    name: Annotated[str, typer.Option(help="What the key is for; shown in lists.")] = "",
    owner: Annotated[
        str | None, typer.Option(help="Whose tasks its holder sees and makes; by default nobody else's.")
    ] = None,
    tenant: Annotated[str, typer.Option(help="The tenant of its holder, or * for any.")] = "",
    role: Annotated[
        list[str] | None, typer.Option(metavar="ROLE", help="A role of its holder; may be repeated.")
    ] = None,
    expires_days: Annotated[
        float | None, typer.Option(min=0.001, help="How long it is good; by default for ever.")
    ] = None,
    output: OutputOption = OutputFormat.TEXT,
    store: StoreOption = None,
) -> None:
    """Create a key and print it once: only its hash is stored."""
    from accord.api import Grant
    from accord.api.access import new_key
    from accord.api.administration import NewApiKey

    made = new_key()
    try:
        holder = Grant(owner=owner or f"key-{made.id}", tenant=tenant, roles=tuple(role or ())).identity()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _check(holder.roles, store)
    new = NewApiKey(
        id=made.id,
        hash=made.hash,
        name=name,
        owner=holder.owner,
        tenant=holder.tenant,
        roles=sorted(holder.roles),
        lasts_ms=None if expires_days is None else round(expires_days * DAY_MS),
    )
    run_and_exit(NAME, _create(store, made.key, new, output))


@app.command("list")
def list_(output: OutputOption = OutputFormat.TEXT, store: StoreOption = None) -> None:
    """List keys without their secrets, newest first."""
    run_and_exit(NAME, _list(store, output))


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="The key's id: what is between the underscores.")],
    store: StoreOption = None,
) -> None:
    """Revoke a key; running servers refuse it within seconds."""
    run_and_exit(NAME, _revoke(store, id))


def _check(roles: "AbstractSet[str]", store: str | None) -> None:
    """Refuse unknown roles, which grant nothing. Only warn if the server's settings may define more."""
    known, is_all = _known_roles(store)
    unknown = sorted(roles - known)
    if not unknown:
        return
    listed = f"There is no role {', '.join(map(printable, unknown))}; there are {', '.join(sorted(known))}"
    if is_all:
        raise typer.BadParameter(f"{listed} (auth.roles of the settings makes more)", param_hint="--role")
    typer.echo(f"{NAME}: {listed}, and those that the server's own settings make; they were not found here", err=True)


def _known_roles(store: str | None) -> "tuple[AbstractSet[str], bool]":
    """Return the known roles, and whether these are all: whether these settings are those of the store's server."""
    import os

    from accord.api.access import BUILT_IN
    from accord.server.settings_loader import CONFIG_VARIABLE, BadSettings, find_file, load

    built_in = {role.name for role in BUILT_IN}
    named = os.environ.get(CONFIG_VARIABLE)
    file = Path(named) if named else None
    try:
        settings, is_there = load(file, os.environ).settings, find_file(file) is not None
    except BadSettings:  # such as a secret that only the server has; the store alone may be known
        return built_in, False
    is_its_own = store is None or settings.store in (None, store)
    return built_in | {role.name for role in settings.auth.roles}, is_there and is_its_own


async def _create(url: str | None, key: str, new: "NewApiKey", output: OutputFormat) -> int:
    from accord.api import administration
    from accord.api.administration import SqliteAddress, open_store

    address = store_address(url)
    async with open_store(address) as store:
        if isinstance(address, SqliteAddress):  # keys may be created before the first server starts
            await administration.upgrade_schema(store)
        else:
            await administration.check_schema(store)
        made = await administration.create_api_key(store, new)
    shown = {"key": key, **_shown(made)}
    if output is OutputFormat.JSON:
        echo_json(shown)
    else:
        for label, value in shown.items():
            typer.echo(f"{label:<8} {cell_text(value)}")
        typer.echo("Keep the key: it is not shown again.", err=True)
    return DONE


async def _list(url: str | None, output: OutputFormat) -> int:
    from accord.api import queries

    async with open_existing_store(url, read_only=True) as store:
        found = await queries.list_api_keys(store)
    print_rows(
        [_shown(key) for key in found], ("id", "state", "name", "owner", "tenant", "roles", "expires", "used"), output
    )
    return DONE


async def _revoke(url: str | None, id: str) -> int:
    from accord.api import administration

    async with open_existing_store(url) as store:
        is_known = await administration.revoke_api_key(store, id)
    if not is_known:
        typer.echo(f"{NAME}: there is no key {printable(id)}", err=True)
        return FAILED
    typer.echo(f"{printable(id)} is revoked")
    return DONE


def _shown(key: "StoredApiKey") -> dict[str, Any]:
    return {
        "id": key.id,
        "state": "live" if key.is_live else "revoked" if key.revoked_at is not None else "expired",
        "name": key.name,
        "owner": key.owner,
        "tenant": "*" if key.tenant is None else key.tenant,
        "roles": key.roles,
        "created": time_of(key.created_at),
        "expires": time_of(key.expires_at),
        "used": time_of(key.used_at),
    }
