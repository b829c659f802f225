"""Command `accord db`, and access to a store for other commands."""

import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from accord.api import Store
    from accord.api.administration import Address, Migration


UP_TO_DATE, NOT_UP_TO_DATE, MISUSED = 0, 1, 2

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar="ACCORD_STORE",
        help="The store, as sqlite:///file.db or postgresql://user:password@host/database."
        " By default the one in accord.toml, else a file in the user's data directory.",
    ),
]

app = typer.Typer(no_args_is_help=True, help="Look after the database.")


@app.command()
def status(store: StoreOption = None) -> None:
    """Show the database and its schema; exit with 0 if this version can use it and with 1 if not."""
    run_and_exit("accord db", _status(store))


@app.command()
def upgrade(store: StoreOption = None) -> None:
    """Upgrade the database to this version's schema, creating it if it does not exist."""
    run_and_exit("accord db", _upgrade(store))


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The copy, which must not be there yet.")],
    store: StoreOption = None,
) -> None:
    """Copy a SQLite database, which may be in use. For PostgreSQL, print which tool copies it."""
    run_and_exit("accord db", _backup(store, target))


async def _status(url: str | None) -> int:
    from accord.api import administration
    from accord.api.administration import SqliteAddress, open_store

    address, newest = store_address(url), administration.known_migrations()[-1].number
    _show("store", address)
    if isinstance(address, SqliteAddress) and not (address.path and address.path.exists()):
        _show("schema", f"no database yet, {newest} is the newest: run `accord db upgrade`")
        return NOT_UP_TO_DATE
    async with open_store(address, read_only=True) as store:
        _show("engine", await administration.database_version(store))
        found = await administration.schema_version(store)
        _show("schema", f"{found}, {newest} is the newest that this version of accord knows")
        for migration in administration.known_migrations():
            if migration.number > found:
                _show("pending", migration)
        if found > newest:
            await administration.check_schema(store)  # raises with a remedy, if this version cannot be used with it
            _show("overlap", "this version may still be used with it; install the newer one soon")
    return UP_TO_DATE if found >= newest else NOT_UP_TO_DATE


async def _upgrade(url: str | None) -> int:
    from accord.api import administration
    from accord.api.administration import open_store

    address = store_address(url)
    _show("store", address)

    def tell(migration: "Migration") -> None:
        _show("applied", migration)

    async with open_store(address) as store:
        if not await administration.upgrade_schema(store, tell):
            _show("schema", "up to date, nothing to do")
    return UP_TO_DATE


async def _backup(url: str | None, target: Path) -> int:
    import asyncio

    from accord.api import StoreRefused
    from accord.api.administration import SqliteAddress, back_up

    address = store_address(url)
    if not isinstance(address, SqliteAddress):
        raise StoreRefused("A PostgreSQL is copied with its own tools: pg_dump --format=custom")
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
        raise StoreRefused(
            f"There is no database at {address}: name another with --store, or make it with `accord db upgrade`"
        )
    async with open_store(address, read_only=read_only) as store:
        await administration.check_schema(store)
        yield store


def _show(label: str, value: object) -> None:
    typer.echo(f"{label:<8} {value}")


def run_and_exit(command: str, work: Coroutine[Any, Any, int]) -> None:
    """Run the work, and exit with its code. An operator's error is one line, not a traceback."""
    import asyncio

    from accord.api import StoreRefused, StoreUnavailable
    from accord.api.administration import BadAddress
    from accord.server.settings_loader import BadSettings

    try:
        code = asyncio.run(work)
    except (BadAddress, BadSettings) as error:
        code = _fail(command, error, MISUSED)
    except BrokenPipeError:
        raise  # the reader closed the pipe; typer exits quietly
    except (StoreRefused, StoreUnavailable, OSError) as error:
        code = _fail(command, error, NOT_UP_TO_DATE)
    raise typer.Exit(code)


def _fail(command: str, error: Exception, code: int) -> int:
    typer.echo(f"{command}: {' '.join(str(error).split())}", err=True)
    return code
