"""`accord db backup`: a copy of a file that is in use, whole and usable, and what is not copied."""

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from tests.serve.running import accord, running, text_of


def test_a_copy_made_under_load_is_whole_and_can_be_served(tmp_path: Path) -> None:
    done, copy = Event(), tmp_path / "copy.db"
    with running(tmp_path) as server:
        first = server.send("first", "0")

        def work(caller: int) -> int:
            sent = 0
            while not done.is_set():
                sent += 1
                server.send("more", f"{caller}-{sent}")
            return sent

        with ThreadPoolExecutor(3) as callers:
            working = [callers.submit(work, caller) for caller in range(3)]
            said = accord(tmp_path, "db", "backup", str(copy))
            done.set()
        assert said.returncode == 0, said.stderr
        assert sum(one.result() for one in working) > 0
        assert f"{copy.stat().st_size:,} bytes" in said.stdout
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with sqlite3.connect(copy) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    store = ["--store", f"sqlite:///{copy}"]
    assert accord(tmp_path, "db", "status", *store).returncode == 0
    with running(tmp_path, *store) as restored:
        assert restored.get(first["id"]) == first
        assert text_of(restored.send("first", "0")) == "first", "it knows the message, and does not run it again"


def test_nothing_is_replaced_and_nothing_half_left(tmp_path: Path) -> None:
    assert accord(tmp_path, "db", "upgrade").returncode == 0
    there = tmp_path / "there.db"
    there.write_text("mine")
    refused = accord(tmp_path, "db", "backup", str(there))
    assert (refused.returncode, there.read_text()) == (1, "mine")
    assert "is there already" in refused.stderr
    missing = accord(tmp_path, "db", "backup", str(tmp_path / "a.db"), "--store", f"sqlite:///{tmp_path}/no.db")
    assert (missing.returncode, (tmp_path / "a.db").exists()) == (1, False)
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader, " * 1000)
    broken = accord(tmp_path, "db", "backup", str(tmp_path / "b.db"), "--store", f"sqlite:///{letter}")
    assert (broken.returncode, (tmp_path / "b.db").exists()) == (1, False)
    assert len(broken.stderr.splitlines()) == 1


def test_a_postgresql_has_its_own_tools(tmp_path: Path) -> None:
    said = accord(tmp_path, "db", "backup", "x.db", "--store", "postgresql://me@127.0.0.1:1/db")
    assert said.returncode == 1
    assert "pg_dump" in said.stderr
