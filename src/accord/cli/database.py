"""Command `accord db`, and access to a store for other commands."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.failures import async_command

if TYPE_CHECKING:
    from accord.api import Store
    from accord.api.administration import Address


NAME = "accord db"
UP_TO_DATE, NOT_UP_TO_DATE = 0, 1

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar="ACCORD_STORE",
        help="URL of the store: sqlite:///file.db or postgresql://user:password@host/database"
        " [default: from accord.toml, else a file in the user's data directory].",
    ),
]

app = typer.Typer(no_args_is_help=True, help="Manage the database.")


@app.command()
@async_command(NAME)
async def status(store: StoreOption = None) -> int:
    """Show the database and its schema. Exit with 0 if this version can use it, otherwise with 1."""
    from accord.api import administration
    from accord.api.administration import SqliteAddress, open_store

    address, newest = store_address(store), administration.known_migrations()[-1].number
    _show("store", address)
    if isinstance(address, SqliteAddress) and not (address.path and address.path.exists()):
        _show("schema", f"no database yet, {newest} is the newest: run `accord db upgrade`")
        return NOT_UP_TO_DATE
    async with open_store(address, read_only=True) as opened:
        _show("engine", await administration.database_version(opened))
        found = await administration.schema_version(opened)
        _show("schema", f"{found}, {newest} is the newest of this version")
        for migration in administration.known_migrations():
            if migration.number > found:
                _show("pending", migration)
        if found > newest:
            await administration.check_schema(opened)  # raises with a remedy, if this version cannot be used with it
            _show("overlap", "this version can still use the database: install the newer version soon")
    return UP_TO_DATE if found >= newest else NOT_UP_TO_DATE


@app.command()
@async_command(NAME)
async def upgrade(store: StoreOption = None) -> int:
    """Upgrade the database to this version's schema, creating it if it does not exist."""
    from accord.api import administration
    from accord.api.administration import open_store

    address = store_address(store)
    _show("store", address)
    async with open_store(address) as opened:
        if not await administration.upgrade_schema(opened, partial(_show, "applied")):
            _show("schema", "up to date")
    return UP_TO_DATE


@app.command()
@async_command(NAME)
async def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="File of the copy. It must not exist.")],
    store: StoreOption = None,
) -> int:
    """Copy a SQLite database, even while it is in use. For PostgreSQL, print the tool to use."""
    import asyncio

    from accord.api import StoreRefused
    from accord.api.administration import SqliteAddress, back_up

    address = store_address(store)
    if not isinstance(address, SqliteAddress):
        raise StoreRefused("Copy a PostgreSQL database with: pg_dump --format=custom")
    if not (address.path and address.path.exists()):
        raise StoreRefused(f"There is no database at {address}")
    size = await asyncio.to_thread(back_up, address.path, target)
    _show("store", address)
    _show("copy", f"{target}, {size:,} bytes")
    return UP_TO_DATE


def store_address(url: str | None) -> "Address":
    """Return the store's address without notifications: commands do not subscribe to tasks."""
    from dataclasses import replace

    from accord.api.administration import PostgresAddress, default_address, parse_address
    from accord.server.settings_loader import store_of

    url = url or store_of(os.environ)
    found = parse_address(url) if url else default_address(os.environ)
    return replace(found, listen=False, signals=()) if isinstance(found, PostgresAddress) else found


@asynccontextmanager
async def open_existing_store(url: str | None, *, read_only: bool = False) -> AsyncIterator["Store"]:
    """Open an existing store with this version's schema. A read must not create one."""
    from accord.api import StoreRefused, administration
    from accord.api.administration import SqliteAddress, open_store

    address = store_address(url)
    if isinstance(address, SqliteAddress) and not (address.path and address.path.exists()):
        raise StoreRefused(f"There is no database at {address}: set --store, or create it with `accord db upgrade`")
    async with open_store(address, read_only=read_only) as store:
        await administration.check_schema(store)
        yield store


def _show(label: str, value: object) -> None:
    typer.echo(f"{label:<8} {value}")
