"""The systemd units: read by systemd itself, and their command lines run with their settings."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from accord.server.http_server import GRANIAN_KILL_SECONDS
from accord.server.settings_loader import load
from accord.server.startup import exposure_problem
from tests.deploy.nodes import ACCORD, served
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, ROOT, V1, rpc, said

UNITS = ROOT / "deploy" / "systemd"
ONE, MANY = UNITS / "accord.service", UNITS / "accord@.service"
ANALYZE = shutil.which("systemd-analyze")
EXPOSED = 2.0
"""How exposed a unit may be, of 10; systemd calls it OK."""

units = pytest.mark.parametrize("file", [ONE, MANY], ids=["one", "many"])
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze on this machine")


def says(file: Path) -> dict[str, list[str]]:
    """The settings of a unit."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", file.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def analyze(*arguments: str) -> str:
    assert ANALYZE is not None
    done = subprocess.run(
        [ANALYZE, *arguments], capture_output=True, text=True, check=False, timeout=BOUND_SECONDS, env={"LC_ALL": "C"}
    )
    return done.stdout + done.stderr


@needs_systemd
@units
def test_systemd_understands_the_unit(file: Path, tmp_path: Path) -> None:
    """In a tree where its program is; that other units are missing there is all there may be to say."""
    program = tmp_path / "opt" / "accord" / "bin" / "accord"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    there = tmp_path / "etc" / "systemd" / "system"
    there.mkdir(parents=True)
    shutil.copy(file, there)
    complaints = analyze("verify", "--man=no", f"--root={tmp_path}", file.name.replace("@", "@8001")).splitlines()
    assert [line for line in complaints if "not found" not in line or "Unit " not in line] == []
    (there / file.name).write_text(file.read_text() + "\n[Service]\nRestrt=always\n")
    assert "Restrt" in analyze("verify", "--man=no", f"--root={tmp_path}", file.name.replace("@", "@8001"))


@needs_systemd
@units
def test_systemd_finds_it_little_exposed(file: Path, tmp_path: Path) -> None:
    said_of_it = analyze("security", "--offline=true", str(shutil.copy(file, tmp_path)))
    if "Overall exposure level" not in said_of_it:
        pytest.skip("this systemd cannot say it of a file")
    level = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", said_of_it)
    assert level is not None
    assert float(level[1]) <= EXPOSED, said_of_it


def test_the_two_differ_in_the_port_only() -> None:
    one, many = says(ONE), says(MANY)
    assert {name for name in one if one[name] != many[name]} == {"Description", "ExecStart"}
    assert many["ExecStart"] == [f"{one['ExecStart'][0]} --port %i"]


@units
def test_it_has_the_time_to_stop_and_is_started_again(file: Path) -> None:
    unit, server = says(file), load(UNITS / "accord.toml", {}).settings.server
    longest = server.drain_seconds + server.grace_seconds + GRANIAN_KILL_SECONDS
    assert int(unit["TimeoutStopSec"][0]) > longest
    assert (unit["Restart"], unit["KillSignal"], unit["Type"]) == (["always"], ["SIGTERM"], ["notify"])
    assert unit["KillMode"] == ["mixed"], "worker processes are told by the one that started them"


def test_settings_match_the_unit() -> None:
    settings = load(UNITS / "accord.toml", {}).settings
    (state,) = says(ONE)["StateDirectory"]
    assert settings.store == f"sqlite:////var/lib/{state}/accord.db"
    assert says(ONE)["WorkingDirectory"] == [f"/var/lib/{state}"]
    assert exposure_problem(settings) is None
    assert settings.auth.schemes
    user = (UNITS / "accord.sysusers").read_text().splitlines()[-1]
    assert shlex.split(user) == ["u", says(ONE)["User"][0], "-", "Accord", f"/var/lib/{state}"]


@units
def test_its_command_serves_and_ends_well(file: Path, tmp_path: Path) -> None:
    """With the settings of the unit, but for where the store is."""
    unit, port = says(file), free_port()
    (command,) = unit["ExecStart"]
    assert command.startswith("/opt/accord/bin/accord ")
    words = [ACCORD, *shlex.split(command.replace("%i", str(port)))[1:]]
    settings = (UNITS / "accord.toml").read_text().replace("////var/lib/accord/", f"///{tmp_path}/")
    (tmp_path / "accord.toml").write_text(settings)
    variables = dict(word.split("=", 1) for word in shlex.split(unit["Environment"][0]))
    assert variables.pop("ACCORD_CONFIG") == "/etc/accord/accord.toml"
    env = variables | {"ACCORD_CONFIG": str(tmp_path / "accord.toml"), "ACCORD_SERVER__DRAIN_SECONDS": "0.2"}
    own_port = port if "%i" in command else None
    with served(tmp_path, [words], env, [own_port]) as (node,):
        body = rpc("SendMessage", message=said("hello"))
        assert httpx.post(f"{node.url}/", json=body, headers=V1, timeout=BOUND_SECONDS).status_code == 401
        assert (tmp_path / "accord.db").exists()
