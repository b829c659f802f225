"""Schema version of a database, and its migrations: numbered, forward only, under a lock.

Changes take two releases (add first, remove later), so that nodes of two versions can share a database. `-- overlaps:
N` in a migration lets nodes built for schema N run on the new schema. A node refuses an older schema, and a newer one
that does not overlap with its own.
"""

import re
from collections.abc import Callable, Iterator
from importlib import resources
from typing import NamedTuple

from accord.storage.store import Store, StoreRefused, Tx

MIGRATIONS = resources.files("accord.storage").joinpath("migrations")

LOCK = 4_711_001
"""Advisory lock that serializes migrations."""

LOCK_TIMEOUT = "2s"
"""How long a migration waits for a table in use.

Later statements queue behind it, and nodes cancel a statement after ten seconds.
"""

VERSION_TABLES = ("schema_version", "schema_overlap")
"""Tables that exist before the first migration."""

MAX_SHOWN = 3
"""Maximum number of foreign tables named in an error."""

_NAME = re.compile(r"(?P<number>\d{4})_(?P<title>\w+)\.sql")
_OVERLAPS = re.compile(r"^-- overlaps: (\d+)$", re.MULTILINE)


class Migration(NamedTuple):
    """One step of the schema."""

    number: int
    title: str
    sql: str

    def __str__(self) -> str:
        return f"{self.number:04} {self.title}"

    def statements(self) -> Iterator[str]:
        """Yield the statements without comments. No statement contains a semicolon."""
        text = "\n".join(line for line in self.sql.splitlines() if not line.lstrip().startswith("--"))
        yield from (statement.strip() for statement in text.split(";") if statement.strip())

    @property
    def overlaps(self) -> int:
        """The oldest schema whose nodes can run on this one. Default: its own number."""
        stated = _OVERLAPS.search(self.sql)
        return int(stated[1]) if stated else self.number


class SchemaTooNew(StoreRefused):
    """The database's schema is newer than this version of Accord."""


class SchemaTooOld(StoreRefused):
    """The database has not been migrated; run `accord db upgrade`."""


class ForeignDatabase(StoreRefused):
    """The database belongs to another program."""


def known_migrations() -> list[Migration]:
    """Return this version's migrations, in order."""
    found = []
    for file in MIGRATIONS.iterdir():
        if match := _NAME.fullmatch(file.name):
            found.append(Migration(int(match["number"]), match["title"], file.read_text(encoding="utf-8")))
    return sorted(found)


async def database_version(tx: Tx) -> str:
    """Return the name and version of the database."""
    row = await tx.one("SELECT {engine}")
    return str(row[0]) if row else ""


async def schema_version(tx: Tx) -> int:
    """Return the number of the database's last migration; 0 for an empty database.

    A database with tables but no Accord migration is refused: it belongs to another program.
    """
    if found := await _recorded(tx):
        return found
    names = [str(row[0]) for row in await tx.all("SELECT name FROM {own_tables} ORDER BY name")]
    own = VERSION_TABLES if await _has_own_versions(tx) else VERSION_TABLES[1:]
    if not (others := [name for name in names if name not in own]):
        return 0
    if found := await _recorded(tx):  # another node has migrated the database since the first query
        return found
    shown = ", ".join(others[:MAX_SHOWN]) + (", ..." if len(others) > MAX_SHOWN else "")
    raise ForeignDatabase(
        f"The database belongs to another program, as it has tables ({shown}) and no schema version of accord: name"
        " another database with --store"
    )


async def _recorded(tx: Tx) -> int:
    """Return the number of the last recorded migration, or 0."""
    if not await _has_own_versions(tx):
        return 0
    row = await tx.one("SELECT max(number) FROM schema_version")
    return int(row[0]) if row and row[0] is not None else 0


async def _has_own_versions(tx: Tx) -> bool:
    """Whether `schema_version` is Accord's: other programs have tables of that name."""
    return {"number", "at"} <= {str(row[0]) for row in await tx.all("SELECT name FROM {version_columns}")}


async def oldest_compatible_schema(tx: Tx, number: int) -> int:
    """Return the oldest schema whose nodes can run on schema `number`, as recorded in the database."""
    if await tx.one("SELECT name FROM {tables} WHERE name = 'schema_overlap'") is None:
        return number
    row = await tx.one("SELECT oldest FROM schema_overlap WHERE number = :number", number=number)
    return int(row[0]) if row else number


async def upgrade_schema(store: Store, tell: Callable[[Migration], None] = lambda _: None) -> list[Migration]:
    """Apply missing migrations and return them.

    Each migration commits as a whole; `tell` is called after each commit.
    """
    applied = []
    for migration in known_migrations():
        if await store.do(_apply_migration, migration):
            applied.append(migration)
            tell(migration)
    await check_schema(store)
    return applied


async def check_schema(store: Store) -> int:
    """Return the schema version; raises if this code does not support it."""
    found, newest = await store.read(schema_version), known_migrations()[-1].number
    if found > newest and await store.read(oldest_compatible_schema, found) > newest:
        raise SchemaTooNew(
            f"The database has schema {found}, this version of accord knows {newest}: install the version that"
            " upgraded it, or a newer one"
        )
    if found < newest:
        raise SchemaTooOld(f"The database has schema {found}, this version needs {newest}: run `accord db upgrade`")
    return found


async def _refuse_while_shared(tx: Tx, before: int) -> None:
    """Refuse an upgrade that does not overlap with the database's schema while nodes run on it.

    SQLite is exempt: its file has one version at a time, and a killed node must not block its own restart.
    """
    pending = [migration for migration in known_migrations() if migration.number > before]
    if not before or max(migration.overlaps for migration in pending) <= before:
        return
    if not (await database_version(tx)).startswith("PostgreSQL"):
        return
    row = await tx.one("SELECT count(*) FROM node WHERE expires_at >= {now}")
    if row and row[0]:
        raise StoreRefused(
            f"Schema {pending[-1].number} does not overlap with schema {before}, and {row[0]} nodes run on that: stop"
            " all nodes, upgrade, and start the new version (a node that was killed counts until its lease ends)"
        )


async def _apply_migration(tx: Tx, migration: Migration) -> bool:
    await tx.lock(LOCK)
    await tx.run("CREATE TABLE IF NOT EXISTS schema_version (number {int} NOT NULL, at {int} NOT NULL)")
    await tx.run("CREATE TABLE IF NOT EXISTS schema_overlap (number {int} NOT NULL, oldest {int} NOT NULL)")
    before = await schema_version(tx)
    if before >= migration.number:
        return False
    oldest = max(
        await oldest_compatible_schema(tx, before), migration.overlaps
    )  # compatibility with the previous schema is a precondition
    await _refuse_while_shared(tx, before)
    await tx.run(f"{{on_postgres}} SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
    for statement in migration.statements():
        await tx.run(statement)
    number = migration.number
    await tx.run("INSERT INTO schema_version (number, at) VALUES (:number, {now})", number=number)
    await tx.run("INSERT INTO schema_overlap (number, oldest) VALUES (:number, :oldest)", number=number, oldest=oldest)
    return True
