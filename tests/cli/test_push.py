"""`accord push` as an operator runs it: which webhooks there are, how they do, no secret of theirs; trying again."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from accord.cli import app
from accord.model import Authentication, PushConfig, TaskState
from accord.protocol import http_headers
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.commands import task_lifecycle, tasks, webhook_deliveries, webhooks
from accord.storage.store import Store
from tests.databases import emptied, postgres
from tests.storage.conftest import accepting, appending, status

__all__ = ["postgres"]

NODE = "n-1"
SECRETS = ("t0ken-s3cret", "cred-s3cret", "query-s3cret")


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def hook(id: str, **fields: Any) -> PushConfig:
    """A webhook that is full of secrets."""
    return PushConfig(
        id=id,
        url=f"https://example.com/{id.strip()}?key=query-s3cret",
        token="t0ken-s3cret",
        authentication=Authentication(scheme="Bearer", credentials="cred-s3cret"),
        **fields,
    )


async def fill(store: Store) -> None:
    """Put in three webhooks of two tenants: one that was given up, one to be delivered, one with nothing to do."""
    await schema.upgrade_schema(store)
    await store.do(task_lifecycle.accept_task, "acme", accepting("t-1"))
    await store.do(task_lifecycle.accept_task, "globex", accepting("t-2"))
    await store.do(webhooks.put, "acme", "t-1", hook("dead"), "v1")
    await store.do(tasks.append, "acme", appending("t-1", status(TaskState.WORKING)))
    (due,) = await store.do(webhook_deliveries.claim_webhooks, NODE, 10)
    await store.do(webhooks.fail, due, "The webhook answers 410", None)
    await store.do(webhooks.put, "acme", "t-1", hook("idle"), "v1")
    await store.do(webhooks.put, "globex", "t-2", hook("due"), "v03")
    await store.do(tasks.append, "globex", appending("t-2", status(TaskState.WORKING, "t-2")))


class Operated:
    """A store, and the command on it."""

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self._env = {"HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "ACCORD_STORE": ""}

    def __call__(self, *arguments: str) -> Said:
        done = CliRunner().invoke(app, ["push", *arguments, "--store", self.url], env=self._env)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert not any(secret in done.output for secret in SECRETS)
        return Said(done.exit_code, done.stdout, done.stderr)

    def do(self, work: Callable[[Store], Awaitable[Any]]) -> Any:
        """Do something to the store itself."""

        async def opened() -> Any:
            async with open_store(self.url) as store:
                return await work(store)

        return asyncio.run(opened())

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        """What a list shows to a program."""
        said = self("list", "-o", "json", *arguments)
        assert said.code == 0
        found: list[dict[str, Any]] = json.loads(said.out)
        return found

    def ids(self, *arguments: str) -> list[str]:
        return [webhook["config"] for webhook in self.listed(*arguments)]


@pytest.fixture(params=["sqlite", "postgres"])
def accord(request: pytest.FixtureRequest, tmp_path: Path) -> Operated:
    """The command on a store with three webhooks."""
    url = f"sqlite:///{tmp_path}/accord.db"
    if request.param == "postgres":
        url = f"{request.getfixturevalue('postgres')}&listen=off"
        asyncio.run(emptied(request.getfixturevalue("postgres")))
    operated = Operated(url, tmp_path)
    operated.do(fill)
    return operated


def test_a_receiver_is_given_its_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"ACCORD_PUSH__SIGNING_KEYS": "new-key,old-key", "XDG_CONFIG_HOME": str(tmp_path)}
    done = CliRunner().invoke(app, ["push", "key", "https://hooks.example/x", "--tenant", "acme"], env=env)
    keys = [http_headers.receiver_key(key, "https://hooks.example", "acme") for key in ("new-key", "old-key")]
    assert (done.exit_code, done.stdout.split()) == (0, keys)
    without = CliRunner().invoke(
        app, ["push", "key", "https://hooks.example/x"], env={"XDG_CONFIG_HOME": str(tmp_path)}
    )
    assert (without.exit_code, "missing setting push.signing_keys" in without.stderr) == (1, True)
    assert CliRunner().invoke(app, ["push", "key", "hooks"], env=env).exit_code == 2


@pytest.mark.proves("C-13")
def test_webhooks_are_listed_by_how_they_do(accord: Operated) -> None:
    assert accord.ids() == accord.ids("--state", "all") == ["dead", "idle", "due"]
    assert accord.ids("--state", "dead") == ["dead"]
    assert accord.ids("--state", "due") == ["due"]
    assert accord.ids("--task", "t-1") == ["dead", "idle"]
    assert accord.ids("--task", "t-1", "--state", "due") == []
    assert accord.ids("--task", "nothing") == []


def test_a_program_gets_everything_but_the_secrets(accord: Operated) -> None:
    dead, idle, due = accord.listed()
    assert dead.pop("dead_since").endswith("+00:00")
    assert dead == {
        "state": "dead",
        "tenant": "acme",
        "task": "t-1",
        "config": "dead",
        "delivered": "0/1",
        "attempts": 1,
        "next": None,
        "url": "https://example.com/dead",
        "error": "The webhook answers 410",
    }
    assert (idle["state"], idle["delivered"], idle["next"], idle["error"]) == ("idle", "1/1", None, None)
    assert (due["state"], due["tenant"], due["delivered"], due["attempts"]) == ("due", "globex", "0/1", 0)
    assert due["next"].endswith("+00:00")


def test_a_person_gets_a_line_for_each(accord: Operated) -> None:
    said = accord("list")
    head, dead, idle, due = said.out.splitlines()
    assert head.split() == ["STATE", "TENANT", "TASK", "CONFIG", "DELIVERED", "ATTEMPTS", "NEXT", "URL", "ERROR"]
    assert dead.split()[:4] == ["dead", "acme", "t-1", "dead"]
    assert dead.endswith("The webhook answers 410")
    assert idle.split()[0] == "idle"
    assert due.split()[:4] == ["due", "globex", "t-2", "due"]
    assert head.index("URL") == dead.index("https://") == due.index("https://")


def test_long_lists_are_truncated_with_a_note(accord: Operated) -> None:
    said = accord("list", "--limit", "2", "-o", "json")
    assert [webhook["config"] for webhook in json.loads(said.out)] == ["dead", "idle"]
    assert "more than 2" in said.err
    assert accord("list", "--limit", "3").err == ""


def test_foreign_text_cannot_control_the_terminal(accord: Operated) -> None:
    async def meddle(store: Store) -> None:
        await store.do(webhooks.put, "acme", "t-1", hook("\x1b[2J\nevil"), "v1")

    accord.do(meddle)
    said = accord("list", "--task", "t-1")
    assert "?[2J?evil" in said.out
    assert "\x1b" not in said.out
    assert len(said.out.splitlines()) == 4


@pytest.mark.proves("C-13")
def test_one_webhook_is_tried_again(accord: Operated) -> None:
    said = accord("redeliver", "--task", "t-1", "--config", "dead")
    assert (said.code, said.out) == (0, "dead of task t-1 is scheduled for redelivery\n")
    assert accord.ids("--state", "dead") == []

    async def claim(store: Store) -> list[webhooks.ClaimedWebhook]:
        return await store.do(webhook_deliveries.claim_webhooks, NODE, 10)

    assert {(due.task_id, due.id, due.cursor, due.attempts) for due in accord.do(claim)} == {
        ("t-1", "dead", 0, 0),
        ("t-2", "due", 0, 0),
    }


@pytest.mark.proves("C-13")
def test_all_that_were_given_up_are_tried_again_and_nothing_else(accord: Operated) -> None:
    assert accord("redeliver", "--all-dead").out == "1 scheduled for redelivery\n"
    assert accord.ids("--state", "due") == ["dead", "due"]
    assert accord("redeliver", "--all-dead").out == "0 scheduled for redelivery\n"


def test_a_webhook_that_is_not_there_cannot_be_tried_again(accord: Operated) -> None:
    for task, config in (("t-1", "due"), ("nothing", "dead"), ("", "")):
        said = accord("redeliver", "--task", task, "--config", config)
        assert said.code == 1
        assert len(said.err.splitlines()) == 1
    assert accord.ids("--state", "dead") == ["dead"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["redeliver"],
        ["redeliver", "--task", "t-1"],
        ["redeliver", "--config", "dead"],
        ["redeliver", "--all-dead", "--task", "t-1"],
        ["redeliver", "--all-dead", "--task", "t-1", "--config", "dead"],
        ["list", "--state", "alive"],
        ["list", "-o", "xml"],
        ["list", "--limit", "0"],
    ],
)
def test_misuse_changes_nothing(arguments: list[str], tmp_path: Path) -> None:
    accord = Operated(f"sqlite:///{tmp_path}/accord.db", tmp_path)
    accord.do(fill)
    assert accord(*arguments).code == 2
    assert accord.ids("--state", "dead") == ["dead"]


@pytest.mark.parametrize("arguments", [["list"], ["redeliver", "--all-dead"]])
def test_a_store_that_is_not_there_is_not_made(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "accord.db"
    said = Operated(f"sqlite:///{file}", tmp_path)(*arguments)
    assert said.code == 1
    assert said.err.startswith(f"accord push: There is no database at sqlite:///{file}: set --store")
    assert not file.exists()
    file.touch()
    assert "accord db upgrade" in Operated(f"sqlite:///{file}", tmp_path)(*arguments).err
    assert Operated("mysql://me:s3cret@host/db", tmp_path)(*arguments).code == 2
