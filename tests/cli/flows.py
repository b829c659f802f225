"""Workflow files for commands, and commands that run them in a folder of their own."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.serve.running import BOUND_SECONDS, environment

T = TypeVar("T")

HEAD = 'version: "1"\nname: demo\nswarm: {pattern: dag}\n'

QUICK = f"""{HEAD}
workflows:
  - name: main
    output: "{{{{steps.join.output}}}}"
    steps:
      - {{name: hello, type: deterministic, command: "echo hello {{{{input}}}}"}}
      - {{name: each, type: map, over: [a, b], step: {{name: one, type: deterministic, command: "echo {{{{item}}}}"}}}}
      - name: join
        type: deterministic
        dependsOn: [hello, each]
        command: "echo {{{{steps.hello.output}}}} and more"
"""

ASKING = f"""{HEAD}
workflows:
  - name: main
    output: "{{{{steps.ship.output}}}}"
    steps:
      - {{name: build, type: deterministic, command: "echo built >> built.txt; echo built"}}
      - {{name: gate, type: approval, dependsOn: [build], task: "Ship it?"}}
      - {{name: ship, type: deterministic, dependsOn: [gate], command: "echo shipped"}}
"""

FAILING = f"""{HEAD}
workflows:
  - name: main
    output: "{{{{steps.last.output}}}}"
    steps:
      - {{name: first, type: deterministic, command: "echo first >> first.txt; echo one"}}
      - {{name: last, type: deterministic, dependsOn: [first], command: "test -f fixed && echo fine"}}
"""

SLOW = f"""{HEAD}
workflows:
  - name: main
    output: "{{{{steps.after.output}}}}"
    steps:
      - {{name: before, type: deterministic, command: "echo before >> before.txt"}}
      - name: slow
        type: deterministic
        dependsOn: [before]
        command: "echo begun >> begun.txt; while ! test -f go; do sleep 0.05; done; echo went"
      - {{name: after, type: deterministic, dependsOn: [slow], command: "echo after {{{{steps.slow.output}}}}"}}
"""

WAITING = f"""{HEAD}
workflows:
  - name: main
    output: "{{{{steps.note.output}}}}"
    steps:
      - {{name: hold, type: wait, event: payment}}
      - {{name: note, type: deterministic, dependsOn: [hold], command: "echo got {{{{steps.hold.json.amount}}}}"}}
"""

NESTED = f"""{HEAD}
workflows:
  - {{name: outer, output: "{{{{steps.call.output}}}}", steps: [{{name: call, type: workflow, workflow: inner}}]}}
  - name: inner
    output: "{{{{steps.say.output}}}}"
    steps:
      - {{name: gate, type: approval, task: "Go on?"}}
      - {{name: say, type: deterministic, dependsOn: [gate], command: "echo {{{{steps.gate.output}}}}"}}
"""

CALLING = """version: "1"
name: calling
swarm: {{pattern: dag}}
workflows:
  - {{name: main, steps: [{{name: call, type: a2a, url: "{url}", task: "{task}"}}]}}
"""

AGENT = f"{Path(__file__).parent / 'agents.py'}:obeying"

QUICKLY = {"ACCORD_ENGINE__LEASE_SECONDS": "1.5"}
"""How long a node that was killed is waited for."""


class Flows:
    """Commands about workflows, in one folder with one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []

    def close(self) -> None:
        """End what a test that failed has left."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def write(self, text: str, name: str = "flow.yaml") -> str:
        (self.folder / name).write_text(text)
        return name

    def __call__(self, *arguments: str, typed: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; nothing draws where there is no terminal, and nothing breaks."""
        done = subprocess.run(
            [sys.executable, "-m", "accord", *arguments],
            input=typed,
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=False,
            cwd=self.folder,
            env=environment(self.folder, **QUICKLY, **env),
        )
        assert "\x1b" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, *arguments: str) -> Any:
        done = self(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def started(self, *arguments: str, **env: str) -> "subprocess.Popen[str]":
        """Start a command that goes on for a while."""
        process = subprocess.Popen(
            [sys.executable, "-m", "accord", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment(self.folder, **QUICKLY, **env),
        )
        self._started.append(process)
        return process

    def lines(self, file: str) -> list[str]:
        """What steps have written."""
        path = self.folder / file
        return path.read_text().split() if path.exists() else []


def run_id(told: str) -> str:
    """The id of the run that a command began."""
    found = re.search(r"Run ([0-9a-f-]{36})", told)
    assert found is not None, told
    return found[1]


def said(process: "subprocess.Popen[str]", text: str) -> str:
    """Wait until a process has said something on standard error; return all up to there."""
    assert process.stderr is not None
    told = ""
    while text not in told:
        line = process.stderr.readline()
        assert line, f"it never said {text!r}, but: {told}"
        told += line
    return told


def until(found: Callable[[], T]) -> T:
    """Look again and again until something is there that another process makes."""
    end = time.monotonic() + BOUND_SECONDS
    while not (value := found()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return value


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Wait for the end: the code, and what it said since."""
    out, err = process.communicate(timeout=BOUND_SECONDS)
    return process.returncode, out, err
