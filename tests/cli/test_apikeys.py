"""`accord apikeys` and `accord hash-password`: a key is shown once, works, is listed, and is revoked."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from accord.auth import passwords
from accord.auth.api_keys import ApiKeyAccess
from accord.auth.authentication import Identity, Presented
from accord.auth.scheme_settings import ApiKeys
from accord.cli import app
from accord.errors import AuthenticationFailed
from accord.storage.sqlite.driver import SqliteStore
from tests.auth.conftest import whom

pytestmark = pytest.mark.proves("4-27", "4-29", "4-33")


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Accord = Callable[..., Said]


@pytest.fixture
def accord(tmp_path: Path) -> Accord:
    """Run `accord apikeys ...` over a store of its own."""

    def run(*arguments: str, store: str = f"sqlite:///{tmp_path}/accord.db") -> Said:
        done = CliRunner().invoke(app, ["apikeys", *arguments, "--store", store])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    return run


def identify(tmp_path: Path, key: str) -> Identity | None:
    """Whom a server over this store takes the holder of a key for."""

    async def ask() -> Identity | None:
        store = SqliteStore(tmp_path / "accord.db")
        try:
            return await whom(ApiKeyAccess(ApiKeys(), store), Presented(headers=[(b"x-api-key", key.encode())]))
        finally:
            await store.close()

    return asyncio.run(ask())


def test_a_key_is_made_used_listed_and_revoked(accord: Accord, tmp_path: Path) -> None:
    made = accord(
        "create", "--name", "ci", "--owner", "alice", "--tenant", "acme", "--role", "user", "--role", "reader"
    )
    assert made.code == 0
    shown = dict(line.split(maxsplit=1) for line in made.out.splitlines())
    assert made.err == "Save the key now. It is not shown again.\n"
    assert shown["roles"] == "reader user"
    assert identify(tmp_path, shown["key"]) == Identity(
        owner="alice", tenant="acme", roles=frozenset({"user", "reader"})
    )
    listed = accord("list")
    assert listed.code == 0
    head, row = listed.out.splitlines()
    assert head.split() == ["ID", "STATE", "NAME", "OWNER", "TENANT", "ROLES", "EXPIRES", "USED"]
    assert row.split()[:5] == [shown["id"], "live", "ci", "alice", "acme"]
    assert shown["key"][-43:] not in listed.out
    assert accord("revoke", shown["id"]) == Said(0, f"{shown['id']} is revoked\n", "")
    assert json.loads(accord("list", "-o", "json").out)[0]["state"] == "revoked"
    with pytest.raises(AuthenticationFailed):
        identify(tmp_path, shown["key"])
    database = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert shown["id"].encode() in database
    assert shown["key"][-43:].encode() not in database


def test_json_for_programs(accord: Accord, tmp_path: Path) -> None:
    made = accord("create", "-o", "json", "--tenant", "*", "--expires-days", "2")
    shown = json.loads(made.out)
    assert (made.err, shown["tenant"], shown["roles"], shown["used"]) == ("", "*", [], None)
    assert shown["owner"] == f"key-{shown['id']}"
    assert shown["expires"] > shown["created"]
    assert identify(tmp_path, shown["key"]) == Identity(owner=shown["owner"], tenant=None)
    (row,) = json.loads(accord("list", "--output", "json").out)
    assert row == {name: value for name, value in shown.items() if name != "key"} | {"used": row["used"]}
    assert row["used"] is not None


def test_keys_without_an_owner_see_nothing_of_each_other(accord: Accord) -> None:
    owners = {json.loads(accord("create", "-o", "json").out)["owner"] for _ in range(2)}
    assert len(owners) == 2


def test_mistakes_are_one_line(accord: Accord, tmp_path: Path) -> None:
    missing = accord("list")
    assert (missing.code, missing.out, len(missing.err.splitlines())) == (1, "", 1)
    assert "no database" in missing.err
    assert list(tmp_path.iterdir()) == []
    accord("create")
    unknown = accord("revoke", "0" * 16)
    assert (unknown.code, unknown.err) == (1, f"accord apikeys: unknown key {'0' * 16}\n")
    assert accord("create", "--owner", "a" * 300).code == 2
    assert accord("create", "--expires-days", "0").code == 2
    assert accord("list", store="mysql://me:s3cret@host/db").code == 2
    assert "s3cret" not in accord("create", store="postgresql://me:s3cret@127.0.0.1:1/db").err


def test_a_role_that_there_is_not_makes_no_key(accord: Accord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    unsure = accord("create", "--role", "king")
    assert unsure.code == 0, "a server with settings of its own may know it"
    assert "Unknown role king (expected one of admin, caller, operator, reader, user)" in unsure.err
    Path("accord.toml").write_text('[[auth.roles]]\nname = "clerk"\n')
    refused = accord("create", "--role", "king")
    assert (refused.code, refused.out) == (2, "")
    assert "Unknown role king (expected one of admin, caller, clerk, operator, reader, user)" in refused.err
    assert accord("create", "--role", "clerk").err == "Save the key now. It is not shown again.\n"
    Path("accord.toml").write_text('store = "sqlite:///other.db"\n')
    assert accord("create", "--role", "king").code == 0, "these settings are those of another server"
    assert len(json.loads(accord("list", "-o", "json").out)) == 3


def test_stored_text_cannot_control_the_terminal(accord: Accord) -> None:
    accord("create", "--name", "\x1b[2Jgone")
    assert "\x1b" not in accord("list").out


def test_a_password_is_hashed_as_settings_keep_it() -> None:
    done = CliRunner().invoke(app, ["hash-password"], input="correct horse\n")
    assert done.exit_code == 0
    assert passwords.read_hash(done.stdout.strip()).fits("correct horse")
    assert "correct horse" not in done.stdout + done.stderr
    assert CliRunner().invoke(app, ["hash-password"], input="\n").exit_code == 2
