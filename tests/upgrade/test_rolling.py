"""A rolling upgrade under load: nodes of two releases on one PostgreSQL, and callers who notice nothing."""

import asyncio
import subprocess
from collections import Counter
from pathlib import Path

import asyncpg
import pytest

from accord.storage import schema
from tests.ports import free_port
from tests.serve.running import ROOT, Server
from tests.upgrade.conftest import CURRENT, NEWEST, Release
from tests.upgrade.load import COUNT, Load, checked, loaded

FIRST = 2
"""The first schema that was released."""

CALLERS = 6
SOME = CALLERS
"""Tasks that are done between two steps of an upgrade, so that each step meets some."""


def rolled(old: Release, new: Release, database: str, folder: Path, *, again: bool) -> tuple[Load, list[Server]]:
    """Upgrade two nodes of one release to another while callers are at work, as docs/how-to/upgrade.md says.

    With `again` an old node is started anew in between, as it is where one crashes or is moved.
    """
    made = old.accord(folder, "db", "upgrade", "--store", database)
    assert made.returncode == 0, made.stderr
    nodes: list[Server] = []
    urls: list[str] = []

    def join(release: Release) -> Server:
        nodes.append(release.serve(folder, database))
        urls.append(nodes[-1].url)
        return nodes[-1]

    def leave(node: Server) -> None:
        urls.remove(node.url)
        assert node.stop() == 0

    try:
        olds = [join(old), join(old)]
        with loaded(urls, CALLERS) as load:
            load.more(SOME)
            upgraded = new.accord(folder, "db", "upgrade", "--store", database)
            assert upgraded.returncode == 0, upgraded.stderr
            assert "applied" in upgraded.stdout
            load.more(SOME)
            if again:
                leave(olds.pop())
                olds.append(join(old))
                load.more(SOME)
            join(new)
            load.more(SOME)
            for node in olds:
                leave(node)
            join(new)
            load.more(SOME)
    finally:
        for node in nodes:
            node.stop()
    return load, nodes


def kept(database: str) -> tuple[Counter[str], list[int]]:
    """How many tasks there are in each state, and how many numbers were written into the log of each."""

    async def look() -> tuple[Counter[str], list[int]]:
        connection = await asyncpg.connect(database)
        states = await connection.fetch("SELECT state FROM task")
        said = await connection.fetch("SELECT count(*) FROM event WHERE kind = 'artifact' GROUP BY task_id")
        await connection.close()
        return Counter(row[0] for row in states), [row[0] for row in said]

    return asyncio.run(look())


def nothing_was_lost(load: Load, nodes: list[Server], database: str) -> None:
    checked(load)
    states, said = kept(database)
    assert states == {"completed": len(load.followed)}, "no task that nobody asked for, none that never ended"
    assert set(said) <= {COUNT, COUNT + 1}, "each number once, and maybe an end"
    for node in nodes:
        assert "Traceback" not in node.all_shown
    assert any(one.breaks for one in load.followed), "somebody followed a node that went away"


@pytest.mark.proves("0-06")
def test_nodes_of_two_schemas_share_a_database_under_load(database: str, expanding: Release, tmp_path: Path) -> None:
    load, nodes = rolled(CURRENT, expanding, database, tmp_path, again=True)
    nothing_was_lost(load, nodes, database)


# --- the release before, as it was ------------------------------------------------------------------------------------


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True, timeout=60).stdout


def released(schema: int, folder: Path) -> Release:
    """The last code with a schema, as it was before the next migration came, where its history is at hand."""
    (following,) = (ROOT / "src" / "accord" / "storage" / "migrations").glob(f"{schema + 1:04}_*.sql")
    try:
        came = git("log", "--diff-filter=A", "--format=%H", "--", str(following)).decode().split()
        code = git("archive", f"{came[-1]}^" if came else "HEAD", "src")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no history of the code here, as in an sdist or a shallow clone")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=code, check=True, timeout=60)
    assert not list(folder.rglob(following.name))
    return Release(("accord",), folder / "src")


OVERLAPS = max(migration.overlaps for migration in schema.known_migrations() if migration.number > FIRST)
"""The oldest schema whose nodes run on the newest one."""


@pytest.mark.proves("0-06")
@pytest.mark.parametrize("schema", range(OVERLAPS, NEWEST))
def test_a_release_that_overlaps_is_upgraded_under_load(schema: int, database: str, tmp_path: Path) -> None:
    old = released(schema, tmp_path)
    said = old.accord(tmp_path, "db", "status", "--store", database)
    assert f"{schema} is the newest" in said.stdout, "it is that release"
    load, nodes = rolled(old, CURRENT, database, tmp_path, again=False)
    nothing_was_lost(load, nodes, database)


@pytest.mark.proves("0-06")
@pytest.mark.parametrize("schema", range(FIRST, OVERLAPS))
def test_a_release_that_does_not_overlap_is_stopped_first(schema: int, database: str, tmp_path: Path) -> None:
    old = released(schema, tmp_path)
    assert old.accord(tmp_path, "db", "upgrade", "--store", database).returncode == 0
    node = old.serve(tmp_path, database)
    try:
        refused = CURRENT.accord(tmp_path, "db", "upgrade", "--store", database)
        assert refused.returncode == 1
        assert f"Schema {NEWEST} does not overlap with schema {schema}, and 1 nodes run on that" in refused.stderr
        task = node.send("3 0", "before")
    finally:
        assert node.stop() == 0
    upgraded = CURRENT.accord(tmp_path, "db", "upgrade", "--store", database)
    assert upgraded.returncode == 0, upgraded.stderr
    refused = old.accord(tmp_path, "serve", "--port", str(free_port()), "--store", database)
    assert (refused.returncode, f"The database has schema {NEWEST}" in refused.stderr) == (1, True)
    new = CURRENT.serve(tmp_path, database)
    try:
        assert new.send("3 0", "before")["id"] == task["id"]
    finally:
        new.stop()
