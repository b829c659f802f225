"""Stores that earlier releases have left are brought to the newest schema, and what was begun there goes on."""

from pathlib import Path
from typing import Any

import pytest

from accord.storage import schema
from tests.ports import free_port
from tests.serve.flowing import until
from tests.serve.running import Server, text_of
from tests.upgrade.conftest import CURRENT, NEWEST, STORES, Kept

stores = pytest.mark.parametrize("file", STORES, ids=[file.stem for file in STORES])


def test_there_is_one_of_the_release_before() -> None:
    kept = {Kept.read(file).schema for file in STORES}
    assert kept >= {NEWEST - 1}, "run tests/upgrade/stores/write.py with the release before the last migration"


def ended(server: Server, task: str, agent: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = server.get(task, path=f"/agents/{agent}/")
        return found if found["status"]["state"] == "TASK_STATE_COMPLETED" else None

    found: dict[str, Any] = until(look)
    return found


@stores
@pytest.mark.proves("0-06")
def test_tasks_of_earlier_releases_continue(file: Path, store_url: str, tmp_path: Path) -> None:
    kept = Kept.read(file)
    kept.put(store_url)
    if store_url.startswith("postgresql"):  # nodes share it, so it is upgraded on purpose
        refused = CURRENT.accord(tmp_path, "serve", "--port", str(free_port()), "--store", store_url)
        assert refused.returncode == 1
        assert f"schema {kept.schema}, this version needs {NEWEST}: run `accord db upgrade`" in refused.stderr
        upgraded = CURRENT.accord(tmp_path, "db", "upgrade", "--store", store_url)
        applied = [f"applied  {migration}" for migration in schema.known_migrations() if migration.number > kept.schema]
        assert (upgraded.returncode, upgraded.stdout.splitlines()[1:]) == (0, applied)
    server = CURRENT.serve(tmp_path, store_url)
    try:
        counted, asked, halted = (kept.task(agent) for agent in ("counting", "asking", "halting"))
        assert text_of(ended(server, counted, "counting")) == "0 1 2 "
        repeated = server.send("3 0", "counted")
        assert repeated["id"] == counted, "a message that was sent before the upgrade is known after it"
        answer = {"messageId": "a", "taskId": asked, "role": "ROLE_USER", "parts": [{"text": "Ada"}]}
        server.post("SendMessage", path="/agents/asking/", message=answer)
        assert text_of(ended(server, asked, "asking")) == "hello Ada"
        (tmp_path / "go").touch()
        assert text_of(ended(server, halted, "halting")) == "before after", "the run that was killed is taken over"
        status = CURRENT.accord(tmp_path, "db", "status", "--store", store_url)
        assert (status.returncode, "pending" in status.stdout) == (0, False)
        keys = CURRENT.accord(tmp_path, "apikeys", "list", "--store", store_url)
        assert "laptop" in keys.stdout
    finally:
        assert server.stop() == 0
    assert "Traceback" not in server.all_shown
