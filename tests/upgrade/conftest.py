"""Releases with other schemas, and stores that were written by one."""

import asyncio
import base64
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from accord.storage import schema as migrate
from accord.storage.address import open_store
from accord.storage.schema import Migration
from accord.storage.store import Tx
from tests.databases import dropped, postgres
from tests.serve.running import BOUND_SECONDS, ROOT, Server, environment

__all__ = ["postgres"]

HERE = Path(__file__).parent
STORES = sorted((HERE / "stores").glob("*.json"))
"""What releases have left, by their schema."""

AGENTS = [f"{HERE / 'agents.py'}:{name}" for name in ("counting", "halting", "asking")]
NEWEST = migrate.known_migrations()[-1].number

QUICK = {
    "ACCORD_ENGINE__LEASE_SECONDS": "3",
    "ACCORD_ENGINE__POLL_SECONDS": "0.2",
    "ACCORD_SERVER__GRACE_SECONDS": "0.3",
}
"""Leases that end in time for a test."""

AGO_MS = 3_600_000
"""How long ago a store was left: past every lease, and before anything that it keeps for a while is forgotten."""

NUMBERED = {("audit", "id"), ("job", "id")}
"""What the database counts itself."""

EXPANDING = """
-- What a release to come might add to tables that are in use all the time.
-- overlaps: {before}
ALTER TABLE task ADD COLUMN colour TEXT;
ALTER TABLE event ADD COLUMN size {{int}} DEFAULT 0;
CREATE TABLE paint (tenant {{text}} NOT NULL, task_id {{text}} NOT NULL, PRIMARY KEY (tenant, task_id)) {{strict}};
CREATE INDEX task_by_colour ON task (tenant, colour) WHERE colour IS NOT NULL;
"""

BREAKING = """
ALTER TABLE task ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';
"""


class Release(NamedTuple):
    """A version of accord: how its command is called, and what its nodes are."""

    program: tuple[str, ...]
    path: Path = ROOT

    def serve(self, folder: Path, store: str, **more: Any) -> Server:
        """Start a node, which is ready."""
        program = self.program

        class Node(Server):
            pass

        Node.program = program
        return Node(folder, *AGENTS, "--store", store, **{"PYTHONPATH": str(self.path), **QUICK, **more})

    def accord(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        command = [sys.executable, "-m", *self.program, *arguments]
        env = environment(folder, **QUICK) | {"PYTHONPATH": str(self.path)}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False, cwd=folder, env=env
        )


CURRENT = Release(("accord",))


def following(folder: Path, sql: str) -> Release:
    """A release that has one migration more."""
    migrations = folder / "migrations"
    shutil.copytree(HERE.parent.parent / "src" / "accord" / "storage" / "migrations", migrations)
    (migrations / f"{NEWEST + 1:04}_next.sql").write_text(sql.format(before=NEWEST))
    return Release(("tests.upgrade.release", str(migrations)))


@pytest.fixture
def expanding(tmp_path: Path) -> Release:
    """A release to come that only adds to the schema."""
    return following(tmp_path, EXPANDING)


@pytest.fixture
def breaking(tmp_path: Path) -> Release:
    """A release to come that says nothing about overlapping."""
    return following(tmp_path, BREAKING)


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    return f"sqlite:///{tmp_path}/accord.db" if request.param == "sqlite" else request.getfixturevalue("database")


@pytest.fixture
def database(postgres: str) -> str:
    """The address of an empty PostgreSQL."""

    return asyncio.run(dropped(postgres))


class Kept(NamedTuple):
    """What a release has left in its store."""

    schema: int
    tables: dict[str, list[dict[str, Any]]]

    @classmethod
    def read(cls, file: Path) -> "Kept":
        return cls(**json.loads(file.read_text()))

    def task(self, agent: str) -> str:
        """The id of the one task of an agent."""
        (found,) = [row["id"] for row in self.tables["task"] if row["agent"] == agent]
        return str(found)

    def put(self, url: str) -> None:
        """Make a store that is as the release left its own."""
        asyncio.run(self._put(url))

    async def _put(self, url: str) -> None:
        async with open_store(url) as store:
            for migration in migrate.known_migrations()[: self.schema]:
                await store.do(_apply, migration)
            await store.do(self._fill)

    async def _fill(self, tx: Tx) -> None:
        later = round(time.time() * 1000) - AGO_MS - max(row["at"] for row in self.tables["event"])
        for table, rows in self.tables.items():
            for row in rows:
                values = {name: _bytes(value) for name, value in row.items() if (table, name) not in NUMBERED}
                values |= {name: at + later for name, at in values.items() if name[-3:] in ("at", "_at") and at}
                columns, parameters = ", ".join(values), ", ".join(f":{name}" for name in values)
                await tx.run(f"INSERT INTO {table} ({columns}) VALUES ({parameters})", **values)


async def _apply(tx: Tx, migration: Migration) -> None:
    """Do what the releases before overlaps were known did."""
    await tx.run("CREATE TABLE IF NOT EXISTS schema_version (number {int} NOT NULL, at {int} NOT NULL)")
    for statement in migration.statements():
        await tx.run(statement)
    await tx.run("INSERT INTO schema_version (number, at) VALUES (:number, {now})", number=migration.number)


def _bytes(value: Any) -> Any:
    return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value
