"""What a command loads before it does anything, and how it says that it was misused."""

import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import typer
from typer.testing import CliRunner

from accord.cli import Commands, LazyGroup, app
from accord.cli.failures import Exit
from tests.cases import each
from tests.serve.running import accord

SLOW = {"accord.engine", "accord.model", "accord.storage", "aiohttp", "apsw", "asyncio", "asyncpg", "joserfc"}
"""What takes longer to load than a command may take to say how it is used."""


def loaded(*arguments: str) -> set[str]:
    """Return the modules that are there after a command has run."""
    script = (
        "import sys\nfrom accord.cli import app\n"
        f"app({list(arguments)!r}, standalone_mode=False)\n"
        "print('loaded', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split()[1:])


@each(
    "arguments",
    [("--version",), ("--help",), *((name, "--help") for name in Commands.table), ("task", "get", "--help")],
)
def test_help_imports_nothing_slow(arguments: tuple[str, ...]) -> None:
    there = loaded(*arguments)
    assert not there & SLOW
    assert {name for name in there if name.startswith("accord.client.")} == {"accord.client.resolver"}, "no more of it"


def test_a_command_loads_no_other() -> None:
    ours = {name for name in loaded("task", "--help") if name.startswith("accord.cli.")}
    assert "accord.cli.tasks" in ours
    assert not ours & {"accord.cli.serve", "accord.cli.database", "accord.cli.messages"}
    assert not {name for name in loaded("--version") if name.startswith("accord.cli.")} - {"accord.cli"}


@each("name", list(Commands.table))
def test_every_command_of_the_table_is_there(name: str) -> None:
    assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


def test_misspelled_commands_get_a_suggestion() -> None:
    done = CliRunner().invoke(app, ["sned"], env={"TERM": "dumb"})
    assert done.exit_code == Exit.MISUSED
    assert "Did you mean 'send'?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sevre"], ["accord: No such command 'sevre'. Did you mean 'serve'?", "Try 'accord --help'."]),
        (["task", "gte"], ["accord task: No such command 'gte'. Did you mean 'get'?", "Try 'accord task --help'."]),
        (["creds", "set"], ["accord creds set: Missing argument 'ID'.", "Try 'accord creds set --help'."]),
        (
            ["send", "--file", "/dev/zero", "http://localhost:1"],
            [
                "accord send: Invalid value for --file: /dev/zero is not a regular file. Use - for standard input",
                "Try 'accord send --help'.",
            ],
        ),
    ],
)
def test_errors_are_one_line_with_a_code_and_link(tmp_path: Path, arguments: list[str], said: list[str]) -> None:
    done = accord(tmp_path, *arguments)
    shown = done.stderr.replace("python -m accord", "accord")  # which is how tests call it
    assert (done.returncode, done.stdout, shown.splitlines()) == (2, "", said)


def test_no_arguments_show_the_overview() -> None:
    done = CliRunner().invoke(app, ["task"])
    assert (done.exit_code, done.stderr) == (2, "")
    assert "subscribe" in done.stdout


def test_an_aborted_prompt_ends_the_command() -> None:
    class Asked(LazyGroup):
        table: ClassVar = {}

    asking = typer.Typer(cls=Asked)

    @asking.callback(invoke_without_command=True)
    def ask() -> None:
        raise typer.Abort

    done = CliRunner().invoke(asking, [])
    assert (done.exit_code, done.stderr) == (1, "Aborted.\n")
