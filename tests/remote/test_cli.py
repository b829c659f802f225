"""`accord remotes` as an operator runs it: which tasks are done elsewhere, and trying one again."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from accord.cli import app
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.commands import remote_tasks, task_lifecycle
from accord.storage.commands.remote_tasks import GiveUpRequest
from tests.storage.conftest import AT, accepting
from tests.storage.test_remotes import expected


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with two tasks, one of which was given up."""
    address = f"sqlite:///{tmp_path}/accord.db"

    async def fill() -> None:
        async with open_store(address, lambda _: None) as store:
            await schema.upgrade_schema(store)
            links = {}
            for task_id, mode in (("t-1", "push"), ("t-2", "poll")):
                await store.do(task_lifecycle.accept_task, "acme", accepting(task_id))
                new = expected(task_id, token_hash=task_id, mode=mode)
                links[task_id] = await store.do(remote_tasks.create_link, "acme", new)
            lost = GiveUpRequest(link=links["t-2"], reason="gone", at=AT, again_ms=9_000_000)
            await store.do(remote_tasks.give_up_remote_task, "acme", lost)

    asyncio.run(fill())
    return address


def ran(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["remotes", *arguments])
    return done.exit_code, done.output


def test_remote_tasks_are_listed(url: str) -> None:
    code, out = ran("list", "-o", "json", "--store", url)
    found = {row["task"]: row for row in json.loads(out)}
    assert code == 0
    assert {task: (row["state"], row["by"]) for task, row in found.items()} == {
        "t-1": ("submitted", "push"),
        "t-2": ("unknown", "poll"),
    }
    assert [row["task"] for row in json.loads(ran("list", "--unknown", "-o", "json", "--store", url)[1])] == ["t-2"]
    assert "There are more than 1" in ran("list", "--limit", "1", "--store", url)[1]


@pytest.mark.proves("0-63")
def test_failed_remote_tasks_can_be_retried(url: str) -> None:
    assert ran("retry", "t-2", "--store", url) == (0, "t-2 is scheduled for retry\n")
    code, said = ran("retry", "t-9", "--store", url)
    assert (code, "is not a remote task" in said) == (1, True)
