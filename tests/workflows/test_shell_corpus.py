"""The corpus of commands with templates: what could run a value is refused, and what is accepted runs none."""

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from accord.workflows.values import (
    BadExpression,
    StepValue,
    UnsafeCommand,
    Values,
    check_argv,
    check_command,
)
from tests.cases import each
from tests.workflows.scenes import environment, repository

pytestmark = pytest.mark.proves("C-17")

TEMPLATE = "{{steps.a.output}}"
SHELLS = [shell for shell in ("sh", "dash", "bash") if shutil.which(shell)]
SHELLS = SHELLS[1:] if len(SHELLS) > 1 and Path("/bin/sh").resolve().name == SHELLS[1] else SHELLS

PAYLOADS = [
    "./hostile",
    "$(./hostile) `./hostile`",
    "\n./hostile\n",
    "';./hostile;'\";./hostile;\"",
    "a[$(./hostile)]",
    "); ./hostile; } ; ./hostile; (",
    "E\n./hostile\n",
    "ext::sh -c ./hostile",
    "--upload-pack=./hostile",
    "-c./hostile",
    "-v",
    "-upload-pack=./hostile",
    "5%n",
]

FUZZ_SEED = 20
FUZZED = 1500
"""How many commands are made; about one of 15 is accepted and run."""

HOLE = "\1"
"""Stands for the template while a command is made."""

TOKENS = [
    *"'\"\\;|&><(){}!=#$`[]~*",
    *("$(", "&&", "||", "x=", "${", "$((", "))", "((", "[[ ", " ]]", "$'", "<(", "<<<", "$[", ">&", "&>", "|&", ";;"),
    *(" ", "\n", "\\\n", " \\\n", "# ", "<<E\n", "\nE\n", "case x in ", "x) ", "if ", "then ", "fi ", "do ", "done "),
    *("echo ", "eval ", "sh ", "sh -c ", ". ", "env ", "alias ", "exec ", "export ", "test -v ", "printf -v ", "git "),
    *("for i do ", "set a; ", "let x; ", "{y[x]}>", "RANDOM=x ", "unset y[x]; ", '"$e"', "$e-"),
    *('"$x"', "$x", "| sh", "| cat ", "> f ", "./f", "-", "-- ", "-c ", "time ", "! "),
    *([HOLE] * 8),
]


def corpus(name: str) -> list[Any]:
    """Return commands of the corpus: texts for a shell, and lists."""
    read = yaml.safe_load(Path(__file__).with_name("shell_corpus.yaml").read_text(encoding="utf-8"))
    filled: list[Any] = []
    for one in read[name]:
        is_list = isinstance(one, list)
        texts = [str(text).replace("VALUE", TEMPLATE) for text in (one if is_list else [one])]
        filled.append(texts if is_list else texts[0])
    return filled


def check(command: str | Sequence[str]) -> None:
    if isinstance(command, str):
        check_command(command)
    else:
        check_argv(command)


def place(folder: Path) -> Path:
    """Make a repository with programs of its author's, and one that leaves a mark."""
    work = repository(folder / "work")
    for name in ("publish.sh", "build.sh"):
        (work / name).write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
        (work / name).chmod(0o755)
    (work / "publish.py").write_text("import sys\nprint(sys.argv)\n")
    return work


def is_marked(command: str | Sequence[str], value: str, shell: str, work: Path) -> bool:
    """Run a command with a value that wants to be code, and return whether it was."""
    mark = work / "mark"
    mark.unlink(missing_ok=True)
    hostile = work / "hostile"
    hostile.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    hostile.chmod(0o755)
    values, given = Values(steps={"a": StepValue(output=value)}), dict[str, str]()
    try:
        if isinstance(command, str):
            text, given = values.shell(command)
            argv = [shell, "-c", text]
        else:
            argv = list(values.argv(command))
    except UnsafeCommand:
        return False
    author = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**environment(work.parent), **author, "GIT_CONFIG_SYSTEM": os.devnull, **given}
    subprocess.run(argv, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    return mark.exists()


@each("command", corpus("refused"))
def test_a_command_that_could_run_a_value_is_refused(command: str | list[str]) -> None:
    with pytest.raises((UnsafeCommand, BadExpression)) as raised:
        check(command)
    if isinstance(raised.value, UnsafeCommand):
        assert raised.value.fix


@pytest.mark.parametrize("command", corpus("accepted"), ids=str)
def test_an_accepted_command_runs_no_value(tmp_path: Path, command: str | list[str]) -> None:
    check(command)
    work = place(tmp_path)
    for value in PAYLOADS:
        for shell in SHELLS if isinstance(command, str) else SHELLS[:1]:
            assert not is_marked(command, value, shell, work), (value, shell)


def test_a_payload_that_is_run_leaves_a_mark(tmp_path: Path) -> None:
    work = place(tmp_path)
    assert is_marked('eval "$STEP_A_OUTPUT"', "./hostile", SHELLS[0], work)
    assert is_marked('git fetch "$STEP_A_OUTPUT" .', "--upload-pack=./hostile", SHELLS[0], work)


def test_a_command_made_at_random_runs_no_value(tmp_path: Path) -> None:
    made, fresh, accepted = random.Random(FUZZ_SEED), place(tmp_path), 0
    known = [one for name in ("accepted", "refused") for one in corpus(name) if isinstance(one, str)]
    for _ in range(FUZZED):
        command = made.choice(known).replace(TEMPLATE, HOLE)
        for _ in range(made.randint(1, 4)):
            at = made.randrange(len(command) + 1)
            command = command[:at] + made.choice(TOKENS) + command[at + made.choice((0, 0, 1, 3)) :]
        command = command.replace(HOLE, TEMPLATE)
        try:
            check_command(command)
        except (UnsafeCommand, BadExpression):
            continue
        if "while" in command or "until" in command or TEMPLATE not in command:
            continue  # it may not end, or has no value
        accepted += 1
        value, shell = made.choice(PAYLOADS), made.choice(SHELLS)
        work = tmp_path / str(accepted)
        shutil.copytree(fresh, work)
        assert not is_marked(command, value, shell, work), (command, value, shell)
    assert accepted > 50


# --- options ----------------------------------------------------------------------------------------------------------

OPTION = "--upload-pack=./hostile"


@each(
    "command",
    [
        "git fetch . VALUE",
        "git fetch . 'VALUE'",
        'git fetch . "$empty"VALUE',
        'x="$empty"VALUE; git fetch . "$(printf \'\')$x"',
        'git commit -m "VALUE"',
        'x="VALUE"; git log "$x"',
        "cat VALUE-x",
        'ls "$HOME" VALUE',
        "echo a | grep VALUE",
        ["git", "fetch", ".", "VALUE"],
        ["./publish.sh", "--title", "VALUE"],
        ["./publish.sh", "VALUE.txt"],
    ],
)
def test_a_value_that_would_be_an_option_is_refused(command: str | list[str]) -> None:
    values = Values(steps={"a": StepValue(output=OPTION)})
    if isinstance(command, str):
        text = command.replace("VALUE", TEMPLATE)
        check_command(text)
        with pytest.raises(UnsafeCommand, match="allowOptions"):
            values.shell(text)
        assert values.shell(text, options=True)[1] == {"STEP_A_OUTPUT": OPTION}
    else:
        argv = [text.replace("VALUE", TEMPLATE) for text in command]
        check_argv(argv)
        with pytest.raises(UnsafeCommand, match="allowOptions"):
            values.argv(argv)
        assert any(text.startswith(OPTION) for text in values.argv(argv, options=True))


def test_empty_values_cannot_create_options() -> None:
    with pytest.raises(UnsafeCommand, match="allowOptions"):
        Values(steps={"a": StepValue(output="")}).shell(f"rm {TEMPLATE}-rf")


@each(
    "command",
    [
        "git log -- VALUE",
        "echo VALUE | grep -q -- VALUE",
        "printf '%s' VALUE",
        '[ "VALUE" = yes ] || test -n VALUE',
        'x="VALUE"; echo "$x"',
        ["git", "log", "--", "VALUE"],
        ["./publish.sh", "--title=VALUE"],
        ["echo", "VALUE"],
    ],
)
def test_a_value_may_begin_with_a_dash_where_no_option_is_read(command: str | list[str]) -> None:
    values = Values(steps={"a": StepValue(output="- one\n- two")})
    if isinstance(command, str):
        assert values.shell(command.replace("VALUE", TEMPLATE))[1] == {"STEP_A_OUTPUT": "- one\n- two"}
    else:
        assert values.argv([text.replace("VALUE", TEMPLATE) for text in command])[-1].endswith("- one\n- two")


def test_interpreters_get_values_only_if_allowed() -> None:
    values = Values(steps={"a": StepValue(output="x y")})
    argv = ["sh", "-c", 'printf "<%s>" "$1"', "_", TEMPLATE]
    with pytest.raises(UnsafeCommand, match="`sh` may run"):
        values.argv(argv)
    assert values.argv(argv, interpreter=True)[-1] == "x y"
    with pytest.raises(UnsafeCommand, match="which program"):
        values.argv([TEMPLATE, "x"], interpreter=True)
