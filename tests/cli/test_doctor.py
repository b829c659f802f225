"""`accord doctor` as a process: what it prints, how it ends, and that it ends."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.serve.running import accord, running
from tests.server.elsewhere import elsewhere

ECHO = "accord.agents.echo:echo"


def examined(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What was found, by what was looked at; of several, the worst."""
    found: dict[str, Any] = {}
    for one in json.loads(done.stdout)["checks"]:
        worse = one["check"] not in found or one["status"] == "failed"
        found |= {one["check"]: one} if worse else {}
    return found


def test_a_server_that_is_well_ends_with_0(tmp_path: Path) -> None:
    done = accord(tmp_path, "doctor", ECHO, "--port", str(free_port()))
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "ok       configuration: no file of settings"
    assert all(line.startswith(("ok ", "warning ", " ")) for line in lines)
    assert done.stderr.endswith(" ok\n")
    assert not (tmp_path / "accord").exists()


def test_problems_have_a_fix_and_exit_with_1(tmp_path: Path) -> None:
    gone = free_port()
    arguments = ("--remote", f"weather=http://127.0.0.1:{gone}", "--store", "sqlite:///no/where.db")
    done = accord(tmp_path, "doctor", ECHO, "--port", str(free_port()), *arguments)
    assert done.returncode == 1
    assert (
        f"failed   store: The directory {tmp_path}/no does not exist\n         -> make it: mkdir -p {tmp_path}/no\n"
        in done.stdout
    )
    assert "failed   remote weather: " in done.stdout
    assert "2 failed" in done.stderr


def test_wrong_settings_are_a_finding(tmp_path: Path) -> None:
    (tmp_path / "accord.toml").write_text("[server]\nprot = 1\n", encoding="utf-8")
    done = accord(tmp_path, "doctor", "--json")
    assert done.returncode == 1
    (only,) = json.loads(done.stdout)["checks"]
    assert (only["check"], only["status"]) == ("configuration", "failed")
    assert "did you mean server.port?" in only["detail"]


def test_json_output_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("print('hello')\nasync def loud(ctx): return 'x'\n", encoding="utf-8")
    done = accord(tmp_path, "doctor", "--json", "loud.py:loud", "--port", str(free_port()))
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["isWell"] is True
    assert examined(done)["agent loud.py:loud"]["status"] == "ok"


def test_it_ends_though_an_agent_never_does(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text("import threading\nthreading.Event().wait(600)\n", encoding="utf-8")
    done = accord(tmp_path, "doctor", "--json", "--timeout", "2", "stuck.py:agent", "--port", str(free_port()))
    assert done.returncode == 1
    assert examined(done)["agent stuck.py:agent"]["detail"] == "No answer within 2 seconds"


def test_a_clock_that_is_off_ends_with_1(tmp_path: Path) -> None:
    with elsewhere(agent=True, ahead=7200) as server:
        done = accord(tmp_path, "doctor", "--json", "--remote", f"w={server.url}", "--port", str(free_port()))
    assert done.returncode == 1
    clock = examined(done)["clock"]
    assert (clock["status"], server.host in clock["detail"]) == ("failed", True)


def test_beside_a_server_that_runs(tmp_path: Path) -> None:
    with running(tmp_path, ECHO) as server:
        done = accord(tmp_path, "doctor", "--json", ECHO, "--port", str(server.port), "--url", server.url)
    assert done.returncode == 0, done.stdout
    found = examined(done)
    assert (found["port"]["status"], found["port"]["detail"].endswith("already")) == ("warning", True)
    assert found["public url"]["detail"] == f"{server.url} answers"
    assert "schema" in found["store"]["detail"]
