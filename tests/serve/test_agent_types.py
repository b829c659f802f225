"""Agents of any kind in real processes: another package's, several workers, files that change, frameworks that lack."""

import json
from pathlib import Path

import pytest

from tests.agents.test_agent_types import PARROT, install
from tests.ports import free_port
from tests.serve.running import accord, running, said, text_of
from tests.serve.test_reload import said_at_last

TABLES = """
[agents.polly]
target = "parrots:polly"
times = 2

[agents.greeter]
target = "mine.py:greet"
description = "Greets"
"""


def installed(tmp_path: Path) -> tuple[Path, str]:
    """Return a folder to serve from, and where a package of somebody else's is."""
    packages, here = tmp_path / "packages", tmp_path / "here"
    packages.mkdir()
    here.mkdir()
    install(packages, PARROT, "parrot = parrots:AGENT_TYPE")
    (here / "mine.py").write_text("def greet(text: str) -> str:\n    return f'hello {text}'\n")
    (here / "accord.toml").write_text(TABLES)
    return here, str(packages)


@pytest.mark.proves("1-05")
def test_several_processes_serve_kinds_of_other_packages(tmp_path: Path) -> None:
    here, packages = installed(tmp_path)
    with running(here, "parrots:polly", "--workers", "2", PYTHONPATH=packages) as server:
        assert text_of(server.send("x", "1")) == "hello "
        assert text_of(server.send("x", "2", path="/agents/polly/")) == "hello hello "
        assert text_of(server.send("you", "3", path="/agents/greeter/")) == "hello you"
        assert server.stop() == 0


def test_a_file_that_a_table_names_is_watched(tmp_path: Path) -> None:
    folder, here = tmp_path / "agents", tmp_path / "here"
    folder.mkdir()
    here.mkdir()
    file = folder / "mine.py"
    file.write_text("def greet(text: str) -> str:\n    return 'one'\n")
    (here / "accord.toml").write_text(f'[agents.x]\ntarget = "{file}:greet"\n')
    with running(here, "--reload", ACCORD_SERVER__GRACE_SECONDS="0.2") as server:
        said_at_last(server, "one")
        said_at_last(server, "another", lambda: file.write_text("def greet(text: str) -> str:\n    return 'another'\n"))


def test_frameworks_that_are_missing_are_reported_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "trip.py"
    file.write_text("from no_such_framework import Graph\n")
    for arguments in ((f"{file}:graph",), ("--config", str(tmp_path / "accord.toml"))):
        (tmp_path / "accord.toml").write_text(f'[agents.trip]\ntarget = "{file}:graph"\n' if arguments[1:] else "")
        done = accord(tmp_path, "serve", *arguments, "--port", str(free_port()), COLUMNS="400", TERM="dumb")
        assert done.returncode == 2, "as for everything that cannot be served"
        assert "trip.py cannot be imported: No module named 'no_such_framework'" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.proves("C-20")
def test_cli_agents_need_the_same_authentication(tmp_path: Path) -> None:
    (tmp_path / "accord.toml").write_text('[agents.tool]\ntype = "process"\ncommand = ["cat"]\n')
    done = accord(tmp_path, "serve", "--host", "0.0.0.0", "--port", str(free_port()))
    assert done.returncode == 1
    assert "Anybody could use this server" in done.stderr
    with running(tmp_path, "--auth", "api-keys") as server:
        refused = server.post("SendMessage", message=said("x"))
        assert refused.status_code == 401
        made = accord(tmp_path, "apikeys", "create", "--owner", "ada", "-o", "json")
        key = json.loads(made.stdout)["key"]
        taken = server.post("SendMessage", message=said("x"), headers={"X-API-Key": key})
        assert taken.status_code == 200, taken.text
