"""The registry of a real server: published to and searched by commands, looked after, and used by real clients."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from typer.testing import CliRunner, Result

from accord.cli import app
from tests.environments import interpreter
from tests.registry.conftest import VAULT
from tests.serve.conftest import postgres, store_url
from tests.serve.running import BOUND_SECONDS, Server, accord, running

__all__ = ["postgres", "store_url"]

FLOW = Path(__file__).parent / "agentvault_flow.py"


class Registry(NamedTuple):
    """A server with a key to it, and the folder that commands run in."""

    server: Server
    key: str
    folder: Path

    def run(self, *arguments: str, key: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command that asks this registry."""
        more = {"ACCORD_REGISTRY_URL": self.server.url, "ACCORD_REGISTRY_KEY": self.key if key is None else key}
        return accord(self.folder, *arguments, **(more | env))

    def agents(self, *arguments: str, **more: str) -> Any:
        """Run `accord agents` and return what it says."""
        done = self.run("agents", *arguments, "-o", "json", **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def get(self, path: str, **query: str) -> httpx.Response:
        """Ask the registry."""
        headers = {"X-API-Key": self.key}
        return httpx.get(f"{self.server.url}/api/v1{path}", params=query, headers=headers, timeout=BOUND_SECONDS)


def make_key(folder: Path, store: str, owner: str, role: str = "user") -> str:
    made = accord(folder, "apikeys", "create", "--owner", owner, "--role", role, "--store", store, "-o", "json")
    assert made.returncode == 0, made.stderr
    key: str = json.loads(made.stdout)["key"]
    return key


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A server that may look for agents on its own machine."""
    store_url = f"sqlite:///{tmp_path}/accord.db"
    settings = {"ACCORD_REGISTRY__ALLOW_HOSTS": "localhost", "ACCORD_REGISTRY__CHECK_SECONDS": "1"}
    with running(tmp_path, "--auth", "api-keys", "--store", store_url, **settings) as server:
        yield Registry(server, make_key(tmp_path, store_url, "alice", "admin"), tmp_path)


def write(folder: Path, **more: Any) -> str:
    file = folder / "card.json"
    file.write_text(json.dumps(VAULT | more))
    return str(file)


@pytest.mark.proves("2-28", "2-34")
def test_from_a_name_to_an_answer(registry: Registry) -> None:
    made = registry.agents("publish", registry.server.url, "--name", "Acme/Echo")
    assert (made["human_readable_id"], made["visibility"], made["is_own"]) == ("acme/echo", "tenant", True)
    again = registry.agents("publish", registry.server.url, "--name", "Acme/Echo")
    assert (again["id"], again["human_readable_id"]) == (made["id"], "acme/echo")  # and not what the card calls it
    own = {"ACCORD_KEY_ACME_ECHO": registry.key, "ACCORD_HOSTS_ACME_ECHO": "localhost"}
    said = registry.run("send", "acme/echo", "hello there", "-o", "json", **own)
    assert said.returncode == 0, said.stderr
    assert "hello" in said.stdout
    nobody = registry.run("send", "acme/nobody", "hello")
    assert nobody.returncode == 3
    assert "There is no agent 'acme/nobody'" in nobody.stderr


@pytest.mark.proves("2-28", "2-34")
def test_agentvault_goes_the_whole_way(registry: Registry, tmp_path: Path) -> None:
    for name in ("Rain", "Snow"):
        write(tmp_path, humanReadableId=f"acme/{name}", name=name, description=name)
        registry.agents("publish", str(tmp_path / "card.json"), "--visibility", "public")
    registry.agents("publish", registry.server.url, "--name", "acme/echo", "--visibility", "public")
    told = json.loads(
        subprocess.run(
            [
                interpreter("agentvault"),
                FLOW,
                json.dumps(
                    {"url": registry.server.url, "name": "acme/echo", "key": registry.key, "folder": str(tmp_path)}
                ),
            ],
            check=True,
            capture_output=True,
            timeout=BOUND_SECONDS,
        ).stdout
    )
    pages = {"total_items": 3, "limit": 2, "total_pages": 2}
    assert told == {
        "pages": [["Echo", "Snow"], ["Rain"]],
        "pagination": [pages | {"offset": 0, "current_page": 1}, pages | {"offset": 2, "current_page": 2}],
        "searched": ["Echo"],
        "same": True,
        "card": ["localhost/echo", ["echo"]],
        "missing": [404, "There is no agent 'no/body'"],
        "states": ["SUBMITTED", "WORKING", "COMPLETED"],
        "text": "hello there",
    }


def test_commands(registry: Registry) -> None:
    card = write(registry.folder)
    made = registry.agents("publish", card)
    again = registry.agents("publish", write(registry.folder, description="New"), "--visibility", "private")
    assert (again["id"], again["description"], again["visibility"]) == (made["id"], "New", "private")
    assert [item["id"] for item in registry.agents("search", "new", "weather", "--tag", "public", "--tee")] == [
        made["id"]
    ]
    assert registry.agents("search", "--no-tee") == []
    assert [item["id"] for item in registry.agents("search", "--owned", "--tee-type", "intel sgx")] == [made["id"]]
    bob = make_key(registry.folder, f"sqlite:///{registry.folder}/accord.db", "bob")
    assert registry.agents("search", key=bob) == []
    assert registry.run("agents", "show", "acme/weather", key=bob).returncode == 1
    assert registry.run("agents", "publish", card, key="").returncode == 4
    shown = registry.run("agents", "show", "acme/weather")
    assert "Name: acme/weather\n" in shown.stdout
    assert "Signature: unsigned (The card is not signed)\n" in shown.stdout
    only = registry.run("agents", "show", "acme/weather", "--card")
    assert json.loads(only.stdout) == VAULT | {"description": "New"}
    listed = registry.run("agents", "search")
    assert listed.stdout.splitlines()[0].split() == ["NAME", "TITLE", "HEALTH", "VISIBILITY", "DESCRIPTION"]


def test_an_agent_is_looked_for(registry: Registry) -> None:
    """The server itself is the agent; another is nowhere."""
    registry.agents("publish", registry.server.url, "--name", "acme/here")
    registry.agents("publish", write(registry.folder, humanReadableId="acme/gone"))
    here, gone = registry.run("agents", "check", "acme/here"), registry.run("agents", "check", "acme/gone")
    assert (here.returncode, gone.returncode) == (0, 1)
    assert "Health: up (Its card is there)\n" in here.stdout
    assert "Health: down (No connection" in gone.stdout
    states = {item["human_readable_id"]: item["health"] for item in registry.agents("search")}
    assert states == {"acme/here": "up", "acme/gone": "down"}


def test_published_agents_survive_a_restart(tmp_path: Path, store_url: str) -> None:
    arguments = ("--auth", "api-keys", "--store", store_url)
    with running(tmp_path, *arguments) as server:
        key = make_key(tmp_path, store_url, "alice")
        first = Registry(server, key, tmp_path)
        made = first.agents("publish", write(tmp_path))
        server.kill()
    with running(tmp_path, *arguments) as server:
        found = Registry(server, key, tmp_path).get("/agent-cards/id/acme/weather")
        assert (found.status_code, found.json()["id"]) == (200, made["id"])
        assert found.json()["card_data"] == VAULT


# --- without a server -------------------------------------------------------------------------------------------------


def agents(*arguments: str) -> Result:
    """Run `accord agents` in this process, which is faster."""
    done = CliRunner().invoke(app, ["agents", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run commands in, without settings."""
    for name in [name for name in os.environ if name.startswith(("ACCORD_", "AGENTVAULT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_registry_in_the_store_needs_no_server(elsewhere: Path, store_url: str) -> None:
    if store_url.startswith("postgres"):
        assert CliRunner().invoke(app, ["db", "upgrade", "--store", store_url]).exit_code == 0
    here, card = ("--store", store_url), write(elsewhere)
    assert agents("publish", card, "--owner", "alice", "-o", "json", *here).exit_code == 0
    (item,) = json.loads(agents("search", "forecasts", "-o", "json", *here).stdout)
    assert (item["human_readable_id"], item["health"]) == ("acme/weather", None)
    others = agents("publish", card, "--owner", "bob", *here)
    assert (others.exit_code, "another owner" in others.stderr) == (4, True)
    assert json.loads(agents("show", "acme/weather", "--card", *here).stdout) == VAULT
    unchecked = agents("check", "acme/weather", "--owner", "alice", *here)
    assert (unchecked.exit_code, "Health: unchecked" in unchecked.stdout) == (1, True)
    assert agents("show", "no/body", *here).exit_code == 1
    more = agents("search", "--limit", "1", *here, "--skip", "0")
    assert (len(more.stdout.splitlines()), more.stderr) == (2, "")
    assert agents("publish", write(elsewhere, humanReadableId="acme/two"), *here).exit_code == 0
    assert "1 more: --skip 1 shows the next" in agents("search", "--limit", "1", *here).stderr


def test_mistakes_are_one_line(elsewhere: Path) -> None:
    store = f"sqlite:///{elsewhere}/none.db"
    wrong = elsewhere / "wrong.json"
    wrong.write_text(json.dumps(VAULT | {"url": "http://plain.example/", "humanReadableId": "\x1b[2J"}))
    (elsewhere / "half.json").write_text('{"name": ')
    for arguments, code in (
        (("search", "--store", store), 1),
        (("show", "a/b", "--store", store), 1),
        (("search", "--store", "mysql://x"), 2),
        (("publish", "nothing.json", "--store", store), 1),
        (("publish", "half.json", "--store", store), 1),
        (("publish", str(wrong), "--store", store), 1),
        (("search", "--registry", "http://127.0.0.1:1"), 3),
        (("search", "--registry", "ftp://127.0.0.1"), 2),
        (("publish", "http://127.0.0.1:1", "--store", store), 3),
    ):
        done = agents(*arguments)
        assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (code, "", 1), arguments
        assert "\x1b" not in done.stderr


def test_a_card_is_judged_before_it_is_published(elsewhere: Path) -> None:
    good = agents("check", write(elsewhere))
    assert (good.exit_code, good.stdout) == (0, "The card can be published as acme/weather. The card is not signed.\n")
    bad = agents("check", write(elsewhere, humanReadableId="no", url="http://plain.example/"))
    assert bad.exit_code == 1
    assert [line.partition(":")[0] for line in bad.stdout.splitlines()] == ["humanReadableId", "url"]
    told = json.loads(agents("check", "card.json", "-o", "json").stdout)
    assert (told["is_valid"], [one["field"] for one in told["findings"]]) == (False, ["humanReadableId", "url"])
