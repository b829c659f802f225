"""A package from outside adds one of each thing: a real server uses all five, and nothing of them before that."""

import hashlib
import hmac
import json
import shutil
import subprocess
import sys
import time
import tomllib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from tests.plugins.conftest import EXAMPLE
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, V1, Server, accord, running, said, text_of

SECRET = "a secret of the box office"
LARGE = b"a page of a long report. " * 8_000
"""More than what stays in the database."""


@pytest.fixture
async def place(tmp_path: Path, postgres: str, installed: Path) -> tuple[Path, dict[str, str]]:
    """A folder with the example's settings, and the environment that they refer to."""
    shutil.copy(EXAMPLE / "server.toml", tmp_path / "accord.toml")
    shutil.copy(EXAMPLE / "release.yaml", tmp_path)
    (tmp_path / "notes.txt").write_text("what is new\n")
    connection = await asyncpg.connect(postgres)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await connection.close()
    joined = "&" if "?" in postgres else "?"
    return tmp_path, {
        "STORE": f"{postgres}{joined}signals=sockets://{tmp_path}/hints",
        "PARTS": f"deflated://{tmp_path}/parts?level=9",
        "TICKET_SECRET": SECRET,
        "PYTHONPATH": str(installed),
    }


def ticket(owner: str, seconds: int = 600) -> dict[str, str]:
    """What a caller brings, made as the package's own documentation says."""
    sold = f"{owner}.{int(time.time()) + seconds}"
    return {"Authorization": f"Ticket {sold}.{_signed(sold)}"}


def _signed(text: str) -> str:
    return hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).hexdigest()


def sent(server: Server, path: str, text: str, message_id: str, *, at_once: bool = False, raw: bytes = b"") -> Any:
    message = said(text, message_id)
    if raw:
        message["parts"].append({"raw": b64encode(raw).decode(), "mediaType": "text/plain"})
    answer = server.post(
        "SendMessage",
        path=path,
        headers=ticket("alice"),
        message=message,
        configuration={"returnImmediately": at_once},
    )
    return answer.json()["result"]["task"]


@pytest.fixture
def server(place: tuple[Path, dict[str, str]]) -> Iterator[Server]:
    with running(place[0], **place[1]) as found:
        yield found


@pytest.mark.proves("1-61")
def test_a_server_uses_all_five(server: Server, tmp_path: Path) -> None:
    task = sent(server, "/agents/countdown/", "3", "m1", raw=LARGE)
    assert (task["status"]["state"], text_of(task)) == ("TASK_STATE_COMPLETED", "3 2 1 0 ")

    run = sent(server, "/agents/release/", "go", "m2")
    assert text_of(run).strip() == f"released {hashlib.sha256(b'what is new' + bytes([10])).hexdigest()}"

    (kept,) = [path for path in (tmp_path / "parts").rglob("*") if path.is_file()]
    assert kept.stat().st_size < len(LARGE) / 10
    read = server.post("GetTask", path="/agents/countdown/", headers=ticket("alice"), id=task["id"]).json()["result"]
    assert read["history"][0]["parts"][1]["raw"] == b64encode(LARGE).decode()

    card = httpx.get(f"{server.url}/.well-known/agent-card.json", headers=V1).json()
    assert card["securitySchemes"]["ticket"]["httpAuthSecurityScheme"] == {"scheme": "Ticket"}
    assert "tickets" in server.all_shown


@pytest.mark.parametrize(
    "brought",
    [
        {},
        {"Authorization": "Ticket alice.99999999999.00"},
        {"Authorization": "Ticket alice"},
        {"Authorization": "Ticket ..."},
    ],
)
def test_missing_tickets_get_a_challenge(server: Server, brought: dict[str, str]) -> None:
    refused = server.post("GetTask", headers=brought, id="x")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Ticket realm="accord"')
    assert server.post("GetTask", headers=ticket("alice", seconds=-1), id="x").status_code == 401
    assert server.post("GetTask", headers=ticket("alice"), id="x").status_code != 401


def test_processes_wake_each_other_through_the_carrier(place: tuple[Path, dict[str, str]]) -> None:
    """Nobody looks for work by itself within the test, and one of the two is full: only a hint brings the other."""
    folder, env = place
    slow = {"ACCORD_ENGINE__POLL_SECONDS": "3600", "ACCORD_ENGINE__SLOTS": "1"}
    with ExitStack() as stack:
        nodes = [stack.enter_context(running(folder, **env, **slow)) for _ in range(2)]
        _until(lambda: len(list((folder / "hints").glob("*.hints"))) == len(nodes))
        for number, (full, free) in enumerate([nodes, nodes[::-1]]):
            held = sent(full, "/agents/countdown/", "1000000", f"held-{number}", at_once=True)
            done = sent(full, "/agents/countdown/", "2", f"done-{number}")
            assert text_of(done) == "2 1 0 ", "the other one has done it"
            ended = free.post("CancelTask", path="/agents/countdown/", headers=ticket("alice"), id=held["id"])
            assert ended.json()["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert not list((folder / "hints").iterdir()), "who leaves takes its socket along"


def _until(look: Any) -> None:
    end = time.monotonic() + BOUND_SECONDS
    while not look():
        assert time.monotonic() < end, "it never came to that"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("pace = 0.01", "pcae = 0.01", "unknown setting agents.countdown.pcae; did you mean"),
        ("pace = 0.01", "pace = -1", "agents.countdown.pace: Expected `float` >= 0"),
        ("{ secret = ", "{ sercet = ", "auth: the options of tickets: Object contains unknown field `sercet`"),
        ('"tickets"', '"ticket"', "auth: unknown authentication scheme 'ticket'; did you mean 'tickets'?"),
        ('"tickets"', '"basic"', 'auth: basic is not a plugin: write `type = "basic"`'),
        ('blobs = "env:PARTS"', 'blobs = "deflated:///x?levl=9"', "large parts cannot be understood: Object contains"),
        ('blobs = "env:PARTS"', 'blobs = "inflated:///x"', "large parts cannot be understood; known are"),
        ('store = "env:STORE"', 'store = "postgresql://x/y?signals=socket:///x"', "names servers as nats://host:4222"),
    ],
)
def test_unregistered_names_are_refused(
    place: tuple[Path, dict[str, str]], before: str, after: str, reason: str
) -> None:
    folder, env = place
    settings = (folder / "accord.toml").read_text()
    assert before in settings
    (folder / "accord.toml").write_text(settings.replace(before, after))
    refused = accord(folder, "serve", "--port", str(free_port()), **env)
    assert refused.returncode != 0
    assert reason in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("type: digest", "type: digets", '`type` is "digets", none of'),
        ("{ file:", "{ flie:", "A step of the type digest is given nothing called `flie`"),
        ("{ file:", "{ algorithm:", "A step of the type digest is given no `file`"),
        ('"{{vars.artifact}}"', "[1]", "`file`: Expected `str`, got `array`"),
        ("vars.artifact", "vars.artefact", "vars.artefact"),
        ("timeout: 30s", "branch: x", "`branch` does nothing for a step of the type digest"),
    ],
)
def test_workflows_are_checked_against_the_step_s_fields(
    place: tuple[Path, dict[str, str]], before: str, after: str, reason: str
) -> None:
    folder, env = place
    text = (folder / "release.yaml").read_text()
    assert before in text
    (folder / "release.yaml").write_text(text.replace(before, after))
    checked = accord(folder, "workflow", "validate", "release.yaml", **env)
    assert reason in " ".join((checked.stdout + checked.stderr).split())


# --- what is loaded, and what is broken -------------------------------------------------------------------------------


def look(installed: Path, script: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=True,
    )
    return json.loads(done.stdout)


def test_nothing_of_a_package_is_imported_before_its_name_is_used(installed: Path) -> None:
    found = look(
        installed,
        """
import json, sys
from accord import entries
from accord.workflows.executors import STEPS, step_types
from accord.auth.schemes import SCHEMES

names = [one[:2] for one in entries.installed_plugins()]
types = step_types()
SCHEMES.load("header")
before = [name for name in sys.modules if name.startswith("accord_example_plugin")]
STEPS.load("digest")
after = [name for name in sys.modules if name.startswith("accord_example_plugin")]
problems = [one.problem for one in entries.installed_plugins(check=True)]
print(json.dumps([names, types, before, after, problems]))
""",
    )
    names, types, before, after, problems = found
    assert sorted(map(tuple, names)) == [
        ("accord.agents", "countdown"),
        ("accord.auth", "tickets"),
        ("accord.blobs", "deflated"),
        ("accord.signals", "sockets"),
        ("accord.steps", "digest"),
    ]
    assert types[-1] == "digest"
    assert before == []
    assert after == ["accord_example_plugin", "accord_example_plugin.digest"]
    assert problems == [None] * 5


def test_the_documentation_shows_the_example() -> None:
    registered = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    page = (EXAMPLE.parents[1] / "docs" / "how-to" / "plugins.md").read_text()
    for group, entries in registered.items():
        assert f"`{group}`" in page
        for name in entries:
            assert name in page, name
    for file in ("countdown.py", "digest.py", "tickets.py", "sockets.py", "deflated.py"):
        assert f"accord_example_plugin/{file}" in page
