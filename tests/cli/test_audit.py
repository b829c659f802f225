"""`accord audit` as an operator runs it: what is listed, by which filters, in which form; mistakes as one line."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from accord.cli import app
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.commands import monitoring
from accord.storage.commands.monitoring import AuditEntry

NOW = round(time.time() * 1000)
HOUR = 3_600_000


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Accord = Callable[..., Said]


def entry(**fields: Any) -> AuditEntry:
    given: dict[str, Any] = {"tenant": "", "at": NOW, "owner": "alice", "agent": "echo", "operation": "SendMessage"}
    return AuditEntry(**(given | {"outcome": "ok"} | fields))


ENTRIES = [
    entry(at=NOW - 30 * HOUR, task_id="t-1", scheme="apikey", peer="192.0.2.1", dialect="v1"),
    entry(at=NOW - 2 * HOUR, owner="bob", operation="CancelTask", task_id="t-1", outcome="PERMISSION_DENIED"),
    entry(at=NOW - HOUR // 2, owner="", agent="", operation="Authenticate", outcome="UNAUTHENTICATED"),
    entry(task_id="evil\x1b[2J\n"),
    entry(tenant="globex", task_id="theirs"),
]


async def _fill(url: str) -> None:
    async with open_store(url) as store:
        await schema.upgrade_schema(store)
        await store.do(monitoring.append_audit, ENTRIES)


@pytest.fixture
def accord(tmp_path: Path) -> Accord:
    """Run `accord audit ...` on a store with some entries."""
    url = f"sqlite:///{tmp_path}/accord.db"
    asyncio.run(_fill(url))

    def run(*arguments: str, **env: str) -> Said:
        home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "ACCORD_STORE": url}
        done = CliRunner().invoke(app, ["audit", *arguments], env=home | env)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    return run


def operations(said: Said) -> list[str]:
    assert said.code == 0, said.err
    return [row["operation"] for row in json.loads(said.out)]


@pytest.mark.proves("4-32")
def test_entries_are_listed_newest_first_with_everything(accord: Accord) -> None:
    said = accord("list", "-o", "json")
    assert operations(said) == ["SendMessage", "Authenticate", "CancelTask", "SendMessage"]
    oldest = json.loads(said.out)[-1]
    assert {name: oldest[name] for name in ("owner", "scheme", "peer", "dialect", "agent", "task", "outcome")} == {
        "owner": "alice",
        "scheme": "apikey",
        "peer": "192.0.2.1",
        "dialect": "v1",
        "agent": "echo",
        "task": "t-1",
        "outcome": "ok",
    }


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--owner", "bob"], ["CancelTask"]),
        (["--operation", "sendmessage"], ["SendMessage", "SendMessage"]),
        (["--operation", "Authenticate"], ["Authenticate"]),
        (["--task", "t-1"], ["CancelTask", "SendMessage"]),
        (["--outcome", "permission_denied"], ["CancelTask"]),
        (["--outcome", "ok", "--task", "t-1"], ["SendMessage"]),
        (["--since", "90m"], ["SendMessage", "Authenticate"]),
        (["--since", "1d"], ["SendMessage", "Authenticate", "CancelTask"]),
        (["--since", "2001-02-03T04:05:06Z"], ["SendMessage", "Authenticate", "CancelTask", "SendMessage"]),
        (["--since", "2100-01-01"], []),
        (["--tenant", "globex"], ["SendMessage"]),
        (["--limit", "1"], ["SendMessage"]),
    ],
)
def test_options_narrow_it_down(accord: Accord, options: list[str], found: list[str]) -> None:
    assert operations(accord("list", "-o", "json", *options)) == found


def test_people_get_a_table_that_no_caller_can_disturb(accord: Accord) -> None:
    said = accord("list", "--limit", "2")
    assert said.code == 0
    head, first, second = said.out.splitlines()
    assert head.split() == ["AT", "OWNER", "OPERATION", "AGENT", "TASK", "OUTCOME", "PEER"]
    assert "evil?[2J?" in first
    assert second.split()[1:] == ["-", "Authenticate", "-", "-", "UNAUTHENTICATED", "-"]
    assert "There are more than 2" in said.err


@pytest.mark.parametrize(
    ("options", "named"),
    [(["--operation", "Dance"], "Dance"), (["--since", "yesterday"], "yesterday"), (["--limit", "0"], "limit")],
)
def test_a_mistake_is_named(accord: Accord, options: list[str], named: str) -> None:
    said = accord("list", *options)
    assert said.code == 2
    assert named in said.err


def test_looking_makes_no_database(accord: Accord, tmp_path: Path) -> None:
    said = accord("list", "--store", f"sqlite:///{tmp_path}/none.db")
    assert said.code == 1
    assert said.err.startswith("accord audit: There is no database at ")
    assert not (tmp_path / "none.db").exists()


def test_the_log_of_every_tenant_is_listed_with_their_names(accord: Accord) -> None:
    said = accord("list", "--all-tenants", "-o", "json")
    assert [row["tenant"] for row in json.loads(said.out)] == ["globex", "", "", "", ""]
    assert "TENANT" in accord("list", "--all-tenants").out
    assert "TENANT" not in accord("list").out
    assert accord("list", "--all-tenants", "--tenant", "globex").code == 2
