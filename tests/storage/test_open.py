"""Opening stores by their address: what is made, what is refused, and that everything is closed again."""

import asyncio
import os
import socket
import sqlite3
import stat
from pathlib import Path

import asyncpg
import pytest

from accord.storage import address, schema
from accord.storage.address import SqliteAddress, default_address, file_system, open_store
from accord.storage.postgres import connections
from accord.storage.store import StoreRefused, StoreUnavailable, Tx
from tests.databases import dropped
from tests.storage.conftest import Heard

BOUND_SECONDS = 60


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def modes_in(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def make(tx: Tx) -> None:
    await tx.run("CREATE TABLE thing (name {text} PRIMARY KEY) {strict}")
    tx.signal("made")


async def names(tx: Tx) -> list[str]:
    return [row[0] for row in await tx.all("SELECT name FROM {tables} ORDER BY name")]


async def test_a_file_is_opened_by_its_url_and_closed_at_the_end(tmp_path: Path, heard: Heard) -> None:
    async with open_store(f"sqlite:///{tmp_path}/accord.db", heard) as store:
        await store.do(make)
    assert heard == ["made"]
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.do(make)
    async with open_store(f"sqlite:///{tmp_path}/accord.db", read_only=True) as store:
        assert await store.read(names) == ["thing"]


@pytest.mark.parametrize("url", ["sqlite://:memory:", "sqlite:///:memory:"])
async def test_memory_leaves_nothing(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store(url) as store:
        await store.do(make)
    async with open_store(url) as store:
        assert await store.read(names) == []
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["100%.db", "what?mode=ro.db", "a b#c.db", "ü.db"])
async def test_a_file_may_be_called_anything(name: str, tmp_path: Path) -> None:
    async with open_store(str(SqliteAddress(path=tmp_path / name))) as store:
        await store.do(make)
    assert files(tmp_path) == [name]


async def test_a_database_is_opened_by_its_url(postgres: str, heard: Heard) -> None:
    async with open_store(f"{postgres}&listen=off", heard) as store:
        assert (await store.read(schema.database_version)).startswith("PostgreSQL ")

        async def shout(tx: Tx) -> None:
            tx.signal("shouted")

        await store.do(shout)
    assert heard == ["shouted"]


async def test_the_default_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    address = default_address({"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")})
    async with open_store(address) as store:
        await store.do(make)
    assert address.path is not None
    assert address.path.exists()
    assert stat.S_IMODE(address.path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("umask", [0o022, 0o000])
async def test_every_file_is_made_for_its_owner_only(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        async with open_store(f"sqlite:///{tmp_path}/accord.db") as store:
            await store.do(make)
            modes = modes_in(tmp_path)
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("accord.db", "accord.db-wal", "accord.db-shm"), 0o600)


async def test_a_file_that_is_there_stays_as_its_owner_has_it(tmp_path: Path) -> None:
    file = tmp_path / "accord.db"
    file.touch(0o640)
    file.chmod(0o640)
    async with open_store(f"sqlite:///{file}") as store:
        await store.do(make)
        modes = modes_in(tmp_path)
    assert set(modes.values()) == {0o640}


async def test_missing_directories_explain_the_fix(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"typo/accord\.db: .* see that its directory is there"):
        async with open_store(f"sqlite:///{tmp_path}/typo/accord.db"):
            pass


async def test_unreachable_servers_explain_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    reason = rf"^postgresql://me@127\.0\.0\.1:{port}/x cannot be used: PostgreSQL: .*; see that the server runs"
    with pytest.raises(StoreUnavailable, match=reason) as refused:
        async with open_store(f"postgresql://me:secret@127.0.0.1:{port}/x"):
            pass
    assert "secret" not in str(refused.value)


async def test_no_other_directory_is_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        async with open_store(f"sqlite:///{tmp_path}/typo/accord.db"):
            pass
    assert files(tmp_path) == []


async def test_looking_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with pytest.raises(StoreUnavailable):
        async with open_store(f"sqlite:///{file}", read_only=True):
            pass
    file.touch()
    async with open_store(f"sqlite:///{file}", read_only=True) as store:
        assert await store.read(schema.schema_version) == 0
        with pytest.raises(StoreUnavailable, match=r"(?i)read.?only"):
            await store.do(make)
    assert file.stat().st_size == 0
    assert files(tmp_path) == [file.name]


async def test_files_of_other_formats_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear reader, " * 1000)
    with pytest.raises(StoreRefused, match=r"letter\.txt is no SQLite database"):
        async with open_store(f"sqlite:///{file}"):
            pass
    assert file.read_text() == "Dear reader, " * 1000


async def test_an_old_server_is_refused_and_no_connection_stays(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.storage.postgres.driver.OLDEST", 99)
    with pytest.raises(StoreRefused, match=r"is PostgreSQL \d+, accord needs 99 or newer"):
        async with open_store(postgres):
            pass


async def test_options_that_the_server_refuses_are_a_clear_error(postgres: str) -> None:
    with pytest.raises(StoreUnavailable, match="no_such_setting"):
        async with open_store(f"{postgres}&no_such_setting=1"):
            pass
    with pytest.raises(StoreRefused, match="sslmode"):
        async with open_store(f"{postgres}&sslmode=perhaps"):
            pass


async def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/x?sslmode=disable"
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            async with asyncio.timeout(BOUND_SECONDS), open_store(url):
                pass


# File systems of a network

MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/export /mnt/far nfs4 rw 0 0
tmpfs /mnt/far/near tmpfs rw 0 0
//server/share /mnt/with\\040space cifs rw 0 0
me@host: /mnt/ssh fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/accord.db", "ext4"),
        ("/mnt/far/accord.db", "nfs4"),
        ("/mnt/farther/accord.db", "ext4"),
        ("/mnt/far/near/accord.db", "tmpfs"),
        ("/mnt/with space/a/b/accord.db", "cifs"),
        ("/mnt/ssh/accord.db", "fuse.sshfs"),
    ],
)
def test_the_deepest_mount_holds_a_path(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind


def test_the_latest_mount_at_a_place_hides_the_others() -> None:
    assert file_system(Path("/a/b"), "x /a nfs rw 0 0\ny /a ext4 rw 0 0\n") == "ext4"
    assert file_system(Path("/a/b"), "") == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ceph"])
async def test_sqlite_on_a_network_is_refused_with_the_reason(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/export {tmp_path} {kind} rw 0 0\n")
    monkeypatch.setattr(address, "MOUNTS", mounts)
    with pytest.raises(StoreRefused, match=rf"network file system \({kind}\).*PostgreSQL"):
        async with open_store(f"sqlite:///{tmp_path}/accord.db"):
            pass
    assert not (tmp_path / "accord.db").exists()


@pytest.mark.parametrize("kind", ["ext4", "9p", "overlay", "tmpfs", "fuse"])
async def test_other_file_systems_are_fine(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk {tmp_path} {kind} rw 0 0\n")
    monkeypatch.setattr(address, "MOUNTS", mounts)
    async with open_store(f"sqlite:///{tmp_path}/accord.db") as store:
        await store.do(make)


async def test_where_mounts_are_unknown_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "MOUNTS", tmp_path / "nothing")
    async with open_store(f"sqlite:///{tmp_path}/accord.db") as store:
        await store.do(make)


FOREIGN = [
    "CREATE TABLE customer (id INTEGER PRIMARY KEY); INSERT INTO customer VALUES (1)",
    "CREATE TABLE task (id INTEGER PRIMARY KEY, title TEXT)",
    "CREATE TABLE schema_version (version TEXT)",
    "CREATE TABLE a (x INTEGER); CREATE TABLE b (x INTEGER); CREATE TABLE c (x INTEGER); CREATE TABLE d (x INTEGER)",
    "CREATE TABLE schema_version (number INTEGER, at INTEGER); CREATE TABLE customer (id INTEGER)",
]


def make_foreign(file: Path, statements: str) -> None:
    connection = sqlite3.connect(file)
    connection.executescript(statements)
    connection.close()


@pytest.mark.parametrize("statements", FOREIGN)
async def test_a_file_of_another_program_is_left_as_it_is(tmp_path: Path, statements: str) -> None:
    file = tmp_path / "other.db"
    make_foreign(file, statements)
    before = file.read_bytes()
    with pytest.raises(schema.ForeignDatabase, match=r"other\.db: The database belongs to another program"):
        async with open_store(f"sqlite:///{file}"):
            pass
    async with open_store(f"sqlite:///{file}", read_only=True) as store:
        with pytest.raises(schema.ForeignDatabase):
            await schema.check_schema(store)
    assert file.read_bytes() == before
    assert files(tmp_path) == ["other.db"]


@pytest.mark.parametrize("statements", FOREIGN)
async def test_a_schema_of_another_program_is_left_as_it_is(postgres: str, statements: str) -> None:
    connection = await asyncpg.connect(await dropped(postgres))
    tables = "SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'"
    try:
        await connection.execute(statements)
        before = await connection.fetchval(tables)
        async with open_store(f"{postgres}&listen=off") as store:
            for bring in (schema.upgrade_schema, schema.check_schema):
                with pytest.raises(schema.ForeignDatabase, match="belongs to another program") as refused:
                    await bring(store)
                assert "schema_overlap" not in str(refused.value), "the upgrade itself had just made it"
        await connection.execute("CREATE SCHEMA accord")
        try:
            async with open_store(f"{postgres}&listen=off&search_path=accord") as store:
                await schema.upgrade_schema(store)
        finally:
            await connection.execute("DROP SCHEMA accord CASCADE")
        assert await connection.fetchval(tables) == before
    finally:
        await connection.close()
        await dropped(postgres)


async def test_tables_of_an_extension_are_nobodys(postgres: str) -> None:
    connection = await asyncpg.connect(await dropped(postgres))
    try:
        await connection.execute(
            "CREATE TABLE spatial (id int); INSERT INTO pg_depend (classid, objid, objsubid, refclassid, refobjid,"
            " refobjsubid, deptype) SELECT 'pg_class'::regclass, 'spatial'::regclass, 0, 'pg_extension'::regclass,"
            " oid, 0, 'e' FROM pg_extension LIMIT 1"
        )
        async with open_store(f"{postgres}&listen=off") as store:
            assert await store.read(schema.schema_version) == 0
    finally:
        await connection.execute("DELETE FROM pg_depend WHERE objid = 'spatial'::regclass AND deptype = 'e'")
        await connection.close()
        await dropped(postgres)
