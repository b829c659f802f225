"""What commands of a served workflow find of the server's secrets: nothing, neither given nor in `/proc`."""

import subprocess
import sys
from pathlib import Path
from secrets import token_hex
from typing import Any

import apsw
import httpx
import pytest

from tests.ports import free_port
from tests.serve.flowing import CLOSED, ask, result, until, written
from tests.serve.running import BOUND_SECONDS, V1, accord, environment, rpc, running, said, text_of

SECRET = f"very-secret-signing-key-{token_hex(8)}"
KEPT = f"kept-from-commands-{token_hex(8)}"
"""New in each process of the tests: a server that another one starts at the same time has others."""

SEARCH = """
import glob, os, sys
found = sorted(name for name, value in os.environ.items() if any(word in value for word in sys.argv[1:]))
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        continue
    if any(word.encode() in text for word in sys.argv[1:]):
        with open(path.replace("environ", "cmdline"), "rb") as file:
            line = file.read().replace(bytes(1), b" ").decode()
        found.append(line)
print("nothing" if not found else found)
"""
"""A program that looks for words in its own environment, and in that of every process it may read."""

FLOW = """
version: "1.0"
name: looking
swarm: {{pattern: dag}}
env: {{OTHER: "${{OTHER}}"}}
agents:
  - {{name: member, command: {search}, interactive: false}}
workflows:
  - name: main
    preflight:
      - {{command: {search}, successIf: nothing}}
    output: "{{{{steps.step.output}}}}, {{{{steps.asked.output}}}}, {{{{steps.other.output}}}}"
    steps:
      - name: step
        type: deterministic
        command: {search}
        verification: {{type: custom, value: '{search} | grep nothing'}}
      - {{name: asked, type: agent, agent: member, task: look, timeout: 1m}}
      - {{name: other, type: deterministic, command: 'echo "$OTHER"'}}
"""

UNPRIVILEGED = """#!{python}
import ctypes, os, sys
PR_CAPBSET_DROP, MOST = 24, 64
for capability in range(MOST):
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""A Python with no more rights than any other user's, also where tests are run by root."""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_command_finds_the_secrets_of_the_server(tmp_path: Path, workers: str) -> None:
    python = written(tmp_path, UNPRIVILEGED.format(python=sys.executable), "python")
    python.chmod(0o755)
    program = written(tmp_path, SEARCH, "search.py")
    written(tmp_path, FLOW.format(search=f"{sys.executable} {program} {SECRET} {KEPT}"))
    written(tmp_path, '[push]\nsigning_keys = ["env:WEBHOOK_KEY"]\n', "accord.toml")
    secrets = {"WEBHOOK_KEY": SECRET, "ACCORD_KEY_SHOP": KEPT, "TOKEN": KEPT, "OTHER": "passed on"}
    with running(tmp_path, "flow.yaml", "--workers", workers, python=str(python), **secrets) as server:
        until(lambda: nodes_of(tmp_path) == int(workers) or None)  # a process is closed once it has begun to import
        assert result(ask(server, {"text": "look"})) == "nothing, nothing, passed on"


def nodes_of(folder: Path) -> int:
    """Return how many processes have joined the store of a folder."""
    (file,) = folder.rglob("accord.db")
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute("SELECT count(*) FROM node").get)
    finally:
        connection.close()


AGENT = """
import os
from accord import agent

@agent
async def show(text: str) -> str:
    return ", ".join(name for name in ("WEBHOOK_KEY", "OTHER") if name in os.environ)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_secrets_are_dropped_from_the_environment_once_read(tmp_path: Path, workers: str) -> None:
    written(tmp_path, AGENT, "own.py")
    written(tmp_path, '[push]\nsigning_keys = ["env:WEBHOOK_KEY"]\n', "accord.toml")
    with running(tmp_path, "own.py:show", "--workers", workers, WEBHOOK_KEY=SECRET, OTHER="kept") as server:
        assert text_of(ask(server, {"text": "x"})) == "OTHER"


@pytest.mark.parametrize("name", ["WEBHOOK_KEY", "AGENTVAULT_KEY_SHOP", "AGENTVAULT_OAUTH_SHOP_CLIENT_SECRET"])
def test_a_variable_of_the_server_cannot_be_named(tmp_path: Path, name: str) -> None:
    """Neither one that settings refer to, nor a credential."""
    step = f'{{name: a, type: deterministic, command: env, env: {{K: "{{{{env.{name}}}}}"}}}}'
    text = f'version: "1"\nname: f\nswarm: {{pattern: dag}}\nworkflows: [{{name: main, steps: [{step}]}}]\n'
    written(tmp_path, text)
    written(tmp_path, '[push]\nsigning_keys = ["env:WEBHOOK_KEY"]\n', "accord.toml")
    refused = accord(tmp_path, "serve", "flow.yaml", **{"WEBHOOK_KEY": SECRET, name: SECRET})
    assert (refused.returncode, SECRET in refused.stderr) == (2, False)
    assert f"The variable {name} is not set" in refused.stderr
    assert "which no workflow sees if settings refer to it" in refused.stderr


def test_a_variable_of_a_setting_cannot_be_passed_to_a_command(tmp_path: Path) -> None:
    settings = '[push]\nsigning_keys = ["env:WEBHOOK_KEY"]\n[agents.show]\ntype = "process"\ncommand = "env"\n'
    written(tmp_path, settings + 'pass_env = ["WEBHOOK_KEY"]\n', "accord.toml")
    refused = accord(tmp_path, "serve", WEBHOOK_KEY=SECRET)
    assert (refused.returncode, SECRET in refused.stderr) == (2, False)
    assert "WEBHOOK_KEY is the server's own" in refused.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_a_program_that_serves_closes_its_process(tmp_path: Path) -> None:
    written(tmp_path, CLOSED, "own.py")
    written(tmp_path, '[push]\nsigning_keys = ["env:WEBHOOK_KEY"]\n', "accord.toml")
    port = free_port()
    code = f"from accord import serve_agent; from own import show; serve_agent(show, port={port}, store='sqlite://:memory:')"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path, WEBHOOK_KEY=SECRET)
    )
    body = rpc("SendMessage", message=said("x"))

    def answer() -> dict[str, Any] | None:
        try:
            done: dict[str, Any] = httpx.post(f"http://localhost:{port}/", json=body, headers=V1).json()
        except httpx.ConnectError:
            return None
        return done

    try:
        assert text_of(until(answer)["result"]["task"]) == "0 False"
    finally:
        process.terminate()
        process.wait(BOUND_SECONDS)
