"""Which schemas a release accepts: its own, and a newer one whose migrations all say that they overlap with it."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from accord.storage import schema
from accord.storage.postgres.driver import PostgresStore
from accord.storage.store import StoreUnavailable, Tx
from tests.ports import free_port
from tests.serve.running import text_of
from tests.storage.conftest import AnyStore, heard, postgres_only, store
from tests.upgrade.conftest import CURRENT, EXPANDING, NEWEST, Release, following

__all__ = ["heard", "store"]


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_release_starts_again_on_the_schema_of_the_next(store_url: str, expanding: Release, tmp_path: Path) -> None:
    """Stop, upgrade, start; and back again, because the new release turned out to be a mistake."""
    url = ["--store", store_url]
    first = CURRENT.serve(tmp_path, store_url)
    task = first.send("3 0", "first")
    assert first.stop() == 0
    assert f"applied  {NEWEST + 1:04} next" in succeeded(expanding.accord(tmp_path, "db", "upgrade", *url))
    newer = expanding.serve(tmp_path, store_url)
    assert newer.get(task["id"]) == task
    second = newer.send("3 0", "second")
    assert newer.stop() == 0
    older = CURRENT.serve(tmp_path, store_url)
    assert older.get(second["id"]) == second
    assert text_of(older.send("3 0", "third")) == "0 1 2 "
    assert older.stop() == 0
    assert f"schema   {NEWEST + 1}, {NEWEST} is the newest" in succeeded(CURRENT.accord(tmp_path, "db", "status", *url))
    assert "up to date" in succeeded(CURRENT.accord(tmp_path, "db", "upgrade", *url))


def test_a_release_does_not_start_on_a_schema_that_broke_with_it(
    store_url: str, breaking: Release, tmp_path: Path
) -> None:
    url = ["--store", store_url]
    succeeded(breaking.accord(tmp_path, "db", "upgrade", *url))
    for command in (["serve", "--port", str(free_port())], ["db", "status"], ["db", "upgrade"]):
        refused = CURRENT.accord(tmp_path, *command, *url)
        assert refused.returncode == 1
        assert f"The database has schema {NEWEST + 1}, this version of accord knows {NEWEST}" in refused.stderr


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of migrations, in place of ours."""
    monkeypatch.setattr(schema, "MIGRATIONS", tmp_path)
    return tmp_path


def write(folder: Path, *overlaps: int | None) -> None:
    """Write a migration for each, which makes a table and says with what it overlaps."""
    for number, oldest in enumerate(overlaps, 1):
        mark = "" if oldest is None else f"-- overlaps: {oldest}\n"
        nodes = "CREATE TABLE node (expires_at {int}) {strict};" if number == 1 else ""
        (folder / f"{number:04}_a.sql").write_text(f"{mark}{nodes}CREATE TABLE t{number} (a {{int}}) {{strict}};")


@pytest.mark.parametrize(
    ("overlaps", "accepted"),
    [
        ((None, None), {2}),
        ((None, 1), {1, 2}),
        ((None, 1, 2), {2, 3}),
        ((None, 1, 1), {1, 2, 3}),
        ((None, None, 1), {2, 3}),  # who cannot use the second cannot use the third, whatever that says
        ((None, 1, None, 3), {3, 4}),
    ],
)
async def test_a_release_fits_if_every_later_migration_overlaps_with_it(
    overlaps: tuple[int | None, ...], accepted: set[int], store: AnyStore, migrations: Path
) -> None:
    write(migrations, *overlaps)
    await schema.upgrade_schema(store)
    fits = set()
    for newest in range(len(overlaps), 0, -1):
        try:
            assert await schema.check_schema(store) == len(overlaps)
            assert await schema.upgrade_schema(store) == []
            fits.add(newest)
        except schema.SchemaTooNew:
            pass
        (migrations / f"{newest:04}_a.sql").unlink()
    assert fits == accepted


async def test_unknown_schemas_are_refused(store: AnyStore, migrations: Path) -> None:
    write(migrations, None, 1)
    await schema.upgrade_schema(store)

    async def by_hand(tx: Tx) -> None:
        await tx.run("INSERT INTO schema_version (number, at) VALUES (3, {now})")

    await store.do(by_hand)
    with pytest.raises(schema.SchemaTooNew):
        await schema.check_schema(store)


@postgres_only
async def test_upgrades_wait_for_table_locks(store: AnyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup holds every table for as long as it takes; whoever waited for it would hold up all nodes."""
    await schema.upgrade_schema(store)
    assert isinstance(store, PostgresStore)
    monkeypatch.setattr(schema, "LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(schema, "MIGRATIONS", Path(following(tmp_path, EXPANDING).program[1]))

    async def back_up(tx: Tx) -> None:
        await tx.run("LOCK TABLE task IN ACCESS SHARE MODE")
        with pytest.raises(StoreUnavailable, match="in use, by a backup perhaps: try again"):
            await schema.upgrade_schema(store)

    await store.do(back_up)
    assert [migration.number for migration in await schema.upgrade_schema(store)] == [NEWEST + 1]


RELEASED = {1: "fdf6ec31aac95def", 2: "9cd7c2e4600b4456"}
"""What the migrations of earlier releases do, without their comments."""


@pytest.mark.parametrize("number", RELEASED)
def test_released_migrations_never_change(number: int) -> None:
    """A database that has applied a migration never sees what is written into it later."""
    statements = "\n".join(schema.known_migrations()[number - 1].statements())
    assert hashlib.sha256(statements.encode()).hexdigest()[:16] == RELEASED[number]
