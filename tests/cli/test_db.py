"""`accord db` as an operator runs it: what it shows, its exit codes, and mistakes as one line without a secret."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest
from typer.testing import CliRunner

from accord.cli import app
from accord.storage import schema
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import Tx
from tests.databases import served

BOUND_SECONDS = 60
NEWEST = schema.known_migrations()[-1].number


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Accord = Callable[..., Said]


@pytest.fixture
def accord(tmp_path: Path) -> Accord:
    """Run `accord db ...` with a home of its own."""

    def run(*arguments: str, **env: str) -> Said:
        home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "ACCORD_STORE": ""}
        done = CliRunner().invoke(app, ["db", *arguments], env=home | env)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    return run


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.proves("0-06")
def test_a_file_is_looked_at_made_and_found_up_to_date(accord: Accord, tmp_path: Path) -> None:
    store = ["--store", f"sqlite:///{tmp_path}/accord.db"]
    before = accord("status", *store)
    assert before.code == 1
    assert before.out.splitlines()[0] == f"store    sqlite:///{tmp_path}/accord.db"
    assert "no database yet" in before.out
    assert files(tmp_path) == []
    made = accord("upgrade", *store)
    assert made.code == 0
    assert [line for line in made.out.splitlines() if line.startswith("applied")] == [
        f"applied  {migration}" for migration in schema.known_migrations()
    ]
    after = accord("status", *store)
    assert after.code == 0
    assert after.out.splitlines()[1].startswith("engine   SQLite 3.")
    assert after.out.splitlines()[2].startswith(f"schema   {NEWEST}, ")
    assert "pending" not in after.out
    again = accord("upgrade", *store)
    assert (again.code, "up to date" in again.out, "applied" in again.out) == (0, True, False)


def test_a_file_of_another_program_is_refused_in_one_line(accord: Accord, tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE task (id INTEGER)")
    before = file.read_bytes()
    for command in ("upgrade", "status"):
        said = accord(command, "--store", f"sqlite:///{file}")
        assert (said.code, len(said.err.splitlines())) == (1, 1)
        assert "belongs to another program, as it has tables (task)" in said.err
    assert (file.read_bytes(), files(tmp_path)) == (before, ["other.db"])


def test_an_empty_file_is_shown_as_it_is(accord: Accord, tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    file.touch()
    said = accord("status", "--store", f"sqlite:///{file}")
    assert said.code == 1
    assert f"schema   0, {NEWEST} is the newest" in said.out
    assert [line for line in said.out.splitlines() if line.startswith("pending")] == [
        f"pending  {migration}" for migration in schema.known_migrations()
    ]
    assert (file.stat().st_size, files(tmp_path)) == (0, ["empty.db"])


def test_the_default_is_a_file_of_the_user_s(accord: Accord, tmp_path: Path) -> None:
    assert accord("status").code == 1
    assert files(tmp_path) == []
    assert accord("upgrade").code == 0
    assert "data/accord/accord.db" in files(tmp_path)
    assert accord("status").code == 0


def test_the_store_address_comes_from_the_environment(accord: Accord, tmp_path: Path) -> None:
    assert accord("upgrade", ACCORD_STORE=f"sqlite:///{tmp_path}/here.db").code == 0
    assert "here.db" in accord("status", ACCORD_STORE=f"sqlite:///{tmp_path}/here.db").out
    assert files(tmp_path) == ["here.db"]


def test_newer_schemas_are_refused_with_a_fix(accord: Accord, tmp_path: Path) -> None:
    store = ["--store", f"sqlite:///{tmp_path}/accord.db"]
    accord("upgrade", *store)

    async def from_the_future(tx: Tx) -> None:
        await tx.run("INSERT INTO schema_version (number, at) VALUES (9999, {now})")

    async def write() -> None:
        opened = SqliteStore(tmp_path / "accord.db")
        await opened.do(from_the_future)
        await opened.close()

    asyncio.run(write())
    for command in ("status", "upgrade"):
        said = accord(command, *store)
        assert said.code == 1
        assert "9999" in said.err
        assert "install" in said.err
        assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["status", "upgrade"])
@pytest.mark.parametrize(
    ("url", "code", "reason"),
    [
        ("mysql://me:s3cret@host/db", 2, "mysql"),
        ("accord.db", 2, "no scheme"),
        ("sqlite:///a.db?mode=ro", 2, "options"),
        ("postgresql://me:s3cret@127.0.0.1:1/db", 1, "PostgreSQL"),
        ("postgresql://me:s3cret@no-such-host.invalid/db", 1, "PostgreSQL"),
        ("postgresql://me:s3cret@127.0.0.1:1/db?sslmode=perhaps", 1, "sslmode"),
    ],
)
def test_a_mistake_is_one_line_without_the_password(
    command: str, url: str, code: int, reason: str, accord: Accord, tmp_path: Path
) -> None:
    said = accord(command, "--store", url)
    assert said.code == code
    assert reason in said.err
    assert len(said.err.splitlines()) == 1
    assert "s3cret" not in said.out + said.err
    assert files(tmp_path) == []


def test_invalid_databases_are_reported_in_one_line(accord: Accord, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear reader, " * 1000)
    (tmp_path / "folder").mkdir()
    for name in ("letter.txt", "folder", "folder/missing/accord.db"):
        said = accord("upgrade", "--store", f"sqlite:///{tmp_path / name}")
        assert said.code == 1, name
        assert len(said.err.splitlines()) == 1, name


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with served() as server:
        yield server.get_uri()


def test_a_server_is_looked_at_and_upgraded(accord: Accord, postgres: str) -> None:
    store = ["--store", f"{postgres}&listen=off"]

    def tables() -> int:
        async def count() -> int:
            connection = await asyncpg.connect(postgres)
            found: int = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
            await connection.close()
            return found

        return asyncio.run(count())

    before = accord("status", *store)
    assert before.code == 1
    assert "engine   PostgreSQL " in before.out
    assert f"schema   0, {NEWEST} is the newest" in before.out
    assert before.out.count("pending") == len(schema.known_migrations())
    assert tables() == 0
    assert accord("upgrade", *store).out.count("applied") == len(schema.known_migrations())
    assert tables() > 5
    after = accord("status", *store)
    assert (after.code, "pending" in after.out) == (0, False)
    missing = accord("status", "--store", postgres.replace("/postgres?", "/no_such_database?"))
    assert missing.code == 1
    assert 'database "no_such_database" does not exist' in missing.err


def test_missing_write_permission_is_reported(accord: Accord, postgres: str) -> None:
    async def make() -> None:
        connection = await asyncpg.connect(postgres)
        await connection.execute("CREATE ROLE guest LOGIN")
        await connection.execute("CREATE DATABASE theirs")
        await connection.close()

    asyncio.run(make())
    url = postgres.replace("postgres:@/postgres", "guest@/theirs")
    assert accord("status", "--store", url).code == 1
    said = accord("upgrade", "--store", url)
    assert said.code == 1
    assert "permission denied for schema public" in said.err
    assert len(said.err.splitlines()) == 1


def test_the_real_command_has_no_traceback(tmp_path: Path) -> None:
    def accord(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "accord", "db", *arguments]
        env = os.environ | {"XDG_DATA_HOME": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False, env=env)

    bad = accord("status", "--store", "postgresql://me:s3cret@127.0.0.1:1/db")
    assert bad.returncode == 1
    assert len(bad.stderr.splitlines()) == 1
    assert accord("upgrade", "--store", f"sqlite:///{tmp_path}/a.db").returncode == 0
    assert accord("status", "--store", f"sqlite:///{tmp_path}/a.db").returncode == 0
    assert "upgrade" in accord("--help").stdout
