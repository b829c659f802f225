"""`accord workflow`: findings as lines or JSON, and the exit code that a script goes by."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from accord.cli import app
from accord.cli.failures import Exit
from accord.workflows.schema import schema
from tests.workflows.saying import DOCUMENTS

GOOD = """
version: "1"
name: good
swarm: {pattern: dag}
workflows: [{name: main, steps: [{name: a, type: deterministic, command: ls}]}]
"""


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Accord = Callable[..., Said]


@pytest.fixture
def accord(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Accord:
    """Run `accord workflow ...` in a directory of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Said:
        done = CliRunner().invoke(app, ["workflow", *arguments], env={"TERM": "dumb"})
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    return run


def test_a_good_file_is_good(accord: Accord, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    assert accord("validate", "good.yaml") == Said(Exit.DONE, "", "1 file: no findings\n")
    assert json.loads(accord("validate", "good.yaml", "-o", "json").out) == {"isValid": True, "findings": []}


def test_mistakes_are_lines_with_positions(accord: Accord, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "shape.yaml").write_text(GOOD.replace("command", "comand"), encoding="utf-8")
    (tmp_path / "sense.yaml").write_text(GOOD.replace("ls", "ls, dependsOn: [b]"), encoding="utf-8")
    told = accord("validate", "good.yaml", "shape.yaml", "sense.yaml", "none.yaml")
    assert told.code == Exit.FAILED
    assert told.out.splitlines() == [
        "shape.yaml:5:65: error UNKNOWN_KEY: There is no key `comand` here (did you mean `command`?)",
        "sense.yaml:5:90: error UNKNOWN_DEPENDENCY: a depends on b, which is not there "
        "(name a step or a barrier of the same workflow)",
        "none.yaml: error BAD_YAML: There is no such file (look at the path)",
    ]
    assert told.err == "4 files: 3 errors\n"


def test_json_for_programs(accord: Accord, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(GOOD.replace("deterministic", "determinstic"), encoding="utf-8")
    told = accord("validate", "bad.yaml", "--output", "json")
    assert (told.code, told.err) == (Exit.FAILED, "")
    (finding,) = json.loads(told.out)["findings"]
    assert {name: finding[name] for name in ("code", "file", "line", "column", "severity", "fix")} == {
        "code": "BAD_VALUE",
        "file": "bad.yaml",
        "line": 5,
        "column": 50,
        "severity": "error",
        "fix": "did you mean deterministic?",
    }


def test_warnings_are_no_errors_unless_they_are_to_be(accord: Accord, tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text(GOOD.replace("ls", "ls, timeout: 600000"), encoding="utf-8")
    told = accord("validate", "odd.yaml")
    assert (told.code, told.err) == (Exit.DONE, "1 file: 1 warning\n")
    assert "warning LONG_TIMEOUT" in told.out
    assert accord("validate", "odd.yaml", "--strict").code == Exit.FAILED


def test_file_content_cannot_control_the_terminal(accord: Accord, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(GOOD.replace("name: good", 'name: good\n"\\e[2J": 1'), encoding="utf-8")
    assert "\x1b" not in accord("validate", "bad.yaml").out


@pytest.mark.parametrize("name", ["hybrid.yaml", "a2a-pipeline.yaml"])
def test_the_examples_can_be_run(accord: Accord, name: str) -> None:
    assert accord("validate", str(DOCUMENTS / name)).code == Exit.DONE


def test_the_schema_is_printed(accord: Accord) -> None:
    told = accord("schema")
    assert (told.code, json.loads(told.out)) == (Exit.DONE, schema())


def test_no_file_is_a_mistake(accord: Accord) -> None:
    assert accord("validate").code == Exit.MISUSED
