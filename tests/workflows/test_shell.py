"""Commands as steps: what they get, what is kept of what they say, and that nothing of them is left."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from accord.workflows.commands import KEPT_BYTES, VALUE_BYTES
from accord.workflows.executors import Result, Scene
from accord.workflows.steps.deterministic import run_step
from accord.workflows.values import StepValue, UnsafeCommand, Values
from tests.workflows.scenes import BOUND_SECONDS, appears, environment, gone, repository, scene

GONE_SECONDS = 30
"""How soon nothing may be left of a command that is ended from outside."""

STUBBORN = """
trap '' TERM HUP INT
( trap '' TERM HUP INT; setsid sh -c 'trap "" TERM; echo $$ > far; while :; do sleep 0.1; done' ) &
echo $$ > near
while :; do sleep 0.1; done
"""
"""A command that does not let itself be told, with a child that has left its process group and its session."""

HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "\n touch pwned \n",
    "&& touch pwned",
    "| touch pwned",
    "> pwned",
    "-rf --help",
    "${IFS}$HOME *",
    "\\",
    "a'b\"c`d$e\\f",
    "  blanks at both ends  ",
    "ends with lines\n\n\n",
    "üñï \U0001f600",
)

PLACES = (
    "printf %s {{steps.far.output}}",
    'printf %s "{{steps.far.output}}"',
    "printf %s '{{steps.far.output}}'",
    'printf %s "$STEP_FAR_OUTPUT"',
)
"""Where a value may stand in a command."""


async def ran(a_scene: Scene) -> Result:
    """What comes of a command, in time."""
    async with asyncio.timeout(BOUND_SECONDS):
        return await run_step(a_scene)


@pytest.mark.proves("1-41")
async def test_a_command_works_where_the_run_does_and_its_output_is_kept(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    result = await ran(scene(tmp_path, command="pwd; echo over >&2", cwd="sub"))
    assert result == Result(ok=True, output=str(tmp_path / "sub"), exit_code=0, reason="completed_by_process_exit")


async def test_directories_may_come_from_step_output(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    values = Values(steps={"tree": StepValue(output=str(made))})
    assert (await ran(scene(tmp_path, values=values, command="pwd", cwd="{{steps.tree.output}}"))).output == str(made)


async def test_missing_directories_are_reported(tmp_path: Path) -> None:
    result = await ran(scene(tmp_path, command="true", cwd="nowhere"))
    assert not result.ok
    assert result.error == f"{tmp_path / 'nowhere'} is not a directory"


async def test_failed_commands_have_a_reason(tmp_path: Path) -> None:
    result = await ran(scene(tmp_path, command="echo half; echo broken >&2; exit 3"))
    assert (result.ok, result.output, result.exit_code) == (False, "half", 3)
    assert result.error == "The command ended with exit code 3: broken"


async def test_signals_give_shell_exit_codes(tmp_path: Path) -> None:
    result = await ran(scene(tmp_path, command="kill -9 $$"))
    assert (result.exit_code, result.error) == (137, "The command ended with exit code 137 (SIGKILL)")


async def test_steps_may_expect_failure(tmp_path: Path) -> None:
    result = await ran(scene(tmp_path, command="echo half; exit 3", fail_on_error=False))
    assert (result.ok, result.output, result.exit_code, result.error) == (True, "half", 3, None)


async def test_an_output_need_not_be_kept(tmp_path: Path) -> None:
    result = await ran(scene(tmp_path, command="echo long", capture_output=False))
    assert result.output == "Command completed (exit code 0)"


async def test_the_environment_is_limited_to_run_and_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "secret")
    values = Values(vars={"who": "you"})
    env = environment(tmp_path, RUN="run", BOTH="run")
    said = {"STEP": "for {{vars.who}}", "BOTH": "step"}
    command = 'echo "$RUN $BOTH $STEP [$OF_THE_SERVER]"'
    a_scene = scene(tmp_path, values=values, env=env, command=command)
    result = await ran(replace(a_scene, step=replace(a_scene.step, env=said)))
    assert result.output == "run step for you []"


@pytest.mark.proves("C-17")
@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("place", PLACES)
async def test_a_hostile_value_stays_a_value(tmp_path: Path, place: str, value: str) -> None:
    values = Values(steps={"far": StepValue(output=value)})
    result = await ran(scene(tmp_path, values=values, command=f"{place}; printf '|end'"))
    assert result.output.endswith(f"{value}|end")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("first", ["", "#!/bin/sh\n", "#!/usr/bin/env bash\n"])
async def test_a_value_too_large_for_an_environment_gets_there_whole(tmp_path: Path, first: str) -> None:
    value = "x" * (3 * VALUE_BYTES) + "$(touch pwned)\n\n"
    values = Values(steps={"far": StepValue(output=value)})
    command = first + 'printf %s {{steps.far.output}} > copy; wc -c < "$STEP_FAR_OUTPUT_FILE"'
    result = await ran(scene(tmp_path, values=values, command=command))
    assert result.output.strip() == str(len(value)), result
    assert (tmp_path / "copy").read_text() == value
    assert not (tmp_path / "pwned").exists()


async def test_many_values_that_are_too_large_together_get_there(tmp_path: Path) -> None:
    values = Values(steps={f"s{n}": StepValue(output=str(n) * VALUE_BYTES) for n in range(9)})
    printed = " ".join(f"{{{{steps.s{n}.output}}}}" for n in range(9))
    result = await ran(scene(tmp_path, values=values, command=f"printf '%s\n' {printed} | wc -c"))
    assert result.output.strip() == str(9 * (VALUE_BYTES + 1)), result


async def test_shebang_lines_choose_the_interpreter(tmp_path: Path) -> None:
    script = "# $STEP_FAR_OUTPUT\nimport os, sys\nprint(os.environ['STEP_FAR_OUTPUT'], sys.flags.isolated)"
    command = f"#!{sys.executable} -I\n{script}"
    values = Values(steps={"far": StepValue(output="as it is")})
    assert (await ran(scene(tmp_path, values=values, command=command))).output == "as it is 1"


@pytest.mark.proves("C-17")
async def test_shell_quoting_is_only_for_shells(tmp_path: Path) -> None:
    values = Values(steps={"far": StepValue(output='"); import os #')})
    command = "#!/usr/bin/env python3\nprint({{steps.far.output}})"
    with pytest.raises(UnsafeCommand, match="templates are not read"):
        await ran(scene(tmp_path, values=values, command=command))


async def test_a_command_without_input_does_not_wait_for_any(tmp_path: Path) -> None:
    assert (await ran(scene(tmp_path, command="cat; echo read"))).output == "read"


async def test_of_a_flood_the_end_is_kept(tmp_path: Path) -> None:
    result = await ran(scene(tmp_path, command="head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end"))
    first, _, rest = result.output.partition("\n")
    assert first == f"[{5_000_005 - KEPT_BYTES} bytes left out]"
    assert rest.endswith("x\nend")
    assert len(rest) < KEPT_BYTES + 1


async def test_terminal_sequences_are_removed(tmp_path: Path) -> None:
    lines: list[str] = []
    command = r"printf '\033[31mred\033[0m\n'; printf '10%%\r99%%\n'"
    result = await ran(scene(tmp_path, lines=lines, command=command))
    assert result.output == "red\n99%"
    assert [line for line in "\n".join(lines).split("\n") if line != "10%"] == ["red", "99%"]


async def test_leftover_processes_end_with_the_command(tmp_path: Path) -> None:
    result = await ran(scene(tmp_path, command="setsid sleep 1000 > /dev/null 2>&1 & echo $!"))
    assert result.ok
    await gone(int(result.output))


@pytest.mark.proves("1-38")
async def test_after_its_time_nothing_of_a_command_is_left(tmp_path: Path) -> None:
    result = await ran(scene(tmp_path, command=f"echo begun; {STUBBORN}", timeout=2.0))
    assert (result.ok, result.exit_code, result.output) == (False, None, "begun")
    assert result.error == "The command did not end within 2 seconds: begun"
    for name in ("near", "far"):
        await gone(int((tmp_path / name).read_text()), GONE_SECONDS)


async def test_cancelled_nothing_of_a_command_is_left(tmp_path: Path) -> None:
    working = asyncio.create_task(run_step(scene(tmp_path, command=STUBBORN)))
    pids = [int(await appears(tmp_path / name)) for name in ("near", "far")]
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    for pid in pids:
        await gone(pid, GONE_SECONDS)


async def test_killed_ourselves_nothing_of_a_command_is_left(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom accord.workflows.commands import run_shell\n"
        "asyncio.run(run_shell(sys.argv[1], directory=Path(sys.argv[2]), env={'PATH': sys.argv[3]}))"
    )
    arguments = [sys.executable, "-c", script, STUBBORN, str(tmp_path), os.environ["PATH"]]
    server = await asyncio.to_thread(subprocess.Popen, arguments)
    try:
        pids = [int(await appears(tmp_path / name)) for name in ("near", "far")]
    finally:
        server.send_signal(signal.SIGKILL)
        await asyncio.to_thread(server.wait, BOUND_SECONDS)
    for pid in pids:
        await gone(pid, GONE_SECONDS)


async def test_files_with_values_are_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    values = Values(steps={"far": StepValue(output="x" * (2 * VALUE_BYTES))})
    result = await ran(scene(tmp_path, values=values, command=': "$STEP_FAR_OUTPUT"; echo "$STEP_FAR_OUTPUT_FILE"'))
    assert result.output.startswith(str(temporary))
    assert list(temporary.iterdir()) == []


# --- argv -------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("C-17")
@pytest.mark.parametrize("value", HOSTILE)
async def test_argv_runs_a_program_without_a_shell(tmp_path: Path, value: str) -> None:
    program = tmp_path / "said"
    program.write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")
    program.chmod(0o755)
    values = Values(steps={"far": StepValue(output=value)})
    argv = ("./said", "--", "{{steps.far.output}}", "$HOME", "a b", "x={{steps.far.output}}")
    result = await ran(scene(tmp_path, values=values, argv=argv))
    assert result.output == f"--|{value}|$HOME|a b|x={value}|"
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("given", [{"command": "git log {{input}}"}, {"argv": ("git", "log", "{{input}}")}])
async def test_a_value_that_is_an_option_needs_to_be_allowed(tmp_path: Path, given: dict[str, Any]) -> None:
    repository(tmp_path)
    values = Values(input="--format=%s!")
    with pytest.raises(UnsafeCommand, match=r"\{\{input\}\} begins with `-`.*allowOptions"):
        await ran(scene(tmp_path, values=values, **given))
    assert (await ran(scene(tmp_path, values=values, allow_options=True, **given))).output == "first!"


async def test_argv_has_the_environment_of_its_step_and_its_exit_code(tmp_path: Path) -> None:
    a_scene = scene(
        tmp_path, values=Values(input="it"), argv=("sh", "-c", 'echo "$GIVEN"; exit 3'), fail_on_error=False
    )
    result = await ran(replace(a_scene, step=replace(a_scene.step, env={"GIVEN": "{{input}}"})))
    assert (result.ok, result.output, result.exit_code) == (True, "it", 3)


async def test_a_program_that_is_missing_is_reported(tmp_path: Path) -> None:
    result = await ran(scene(tmp_path, argv=("./missing", "x")))
    assert not result.ok
    assert (result.error or "").startswith("./missing could not be started")


async def test_an_argument_that_no_program_can_be_given_is_reported(tmp_path: Path) -> None:
    values = Values(input="x" * 2 * VALUE_BYTES)
    result = await ran(scene(tmp_path, values=values, argv=("true", "{{input}}")))
    assert not result.ok
    assert "Argument list too long" in (result.error or "")
