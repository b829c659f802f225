"""Verification: each type holds, fails, and cannot be had by repeating the task."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from accord.workflows.commands import VALUE_BYTES
from accord.workflows.document import Verification
from accord.workflows.executors import Result
from accord.workflows.values import UnsafeCommand, Values
from accord.workflows.verification import diagnostic_prompt, verify
from tests.workflows.scenes import BOUND_SECONDS, scene

TASK = "Build the parser.\nRun the tests, and when all of them pass, print TESTS_PASSED on a line."

FRAMED = """
╭──────────────────────────────╮
│ > Build the parser.          │
│   Run the tests, and when    │
│   all of them pass, print TE │
│   STS_PASSED on a line.      │
╰──────────────────────────────╯
"""
"""What a terminal makes of it."""


async def verified(
    directory: Path, output: str, *, task: str = "", exit_code: int | None = 0, ok: bool = True, **said: Any
) -> Result:
    a_scene = scene(directory, values=Values(vars={"word": "DONE"}), verification=Verification(**said))
    async with asyncio.timeout(BOUND_SECONDS):
        return await verify(
            a_scene, Result(ok=ok, output=output, exit_code=exit_code, error=None if ok else "broken"), task
        )


async def test_without_a_verification_a_result_is_as_it_is(tmp_path: Path) -> None:
    result = Result(ok=True, output="x", reason="completed_by_process_exit")
    assert await verify(scene(tmp_path), result) is result


@pytest.mark.proves("1-36")
async def test_a_missing_word_fails_a_step(tmp_path: Path) -> None:
    found = await verified(tmp_path, "all DONE here", type="output_contains", value="{{vars.word}}")
    assert found == Result(ok=True, output="all DONE here", exit_code=0, reason="completed_verified")
    missing = await verified(tmp_path, "not yet", type="output_contains", value="DONE", description="It is finished")
    expected = "Verification failed: It is finished: the output does not contain 'DONE'"
    assert (missing.ok, missing.reason, missing.error) == (False, "failed_verification", expected)


async def test_a_step_that_has_failed_is_not_verified(tmp_path: Path) -> None:
    result = await verified(tmp_path, "DONE", ok=False, type="output_contains", value="DONE")
    assert (result.ok, result.error, result.reason) == (False, "broken", None)


@pytest.mark.parametrize(
    "echo",
    [
        TASK,
        f"> {TASK}\n",
        FRAMED,
        f"{TASK}\n{TASK}",
        "Run the tests, and when all of them pass, print TESTS_PASSED on a line.",
    ],
)
async def test_a_task_that_is_repeated_proves_nothing(tmp_path: Path, echo: str) -> None:
    said: dict[str, Any] = {"type": "output_contains", "value": "TESTS_PASSED"}
    assert not (await verified(tmp_path, f"{echo}\nI could not.", task=TASK, **said)).ok
    assert (await verified(tmp_path, f"{echo}\nok\nTESTS_PASSED", task=TASK, **said)).ok
    assert (await verified(tmp_path, f"{echo} ok TESTS_PASSED\n", task=TASK, **said)).ok


async def test_a_word_that_is_the_whole_task_may_be_the_answer(tmp_path: Path) -> None:
    assert (await verified(tmp_path, "PONG", task="PONG", type="output_contains", value="PONG")).ok


@pytest.mark.parametrize(
    ("code", "value", "ok"),
    [
        (0, "", True),
        (0, "0", True),
        (2, "0", False),
        (2, "2", True),
        (0, "2", False),
        (None, "0", False),
        (0, "x", False),
    ],
)
async def test_an_exit_code_is_enforced(tmp_path: Path, code: int | None, value: str, ok: bool) -> None:
    result = await verified(tmp_path, "", exit_code=code, ok=code == 0, type="exit_code", value=value)
    assert result.ok is ok
    assert result.reason == ("completed_verified" if ok else "failed_verification")


async def test_a_file_is_looked_for_where_the_step_works(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "made").touch()
    assert (await verified(tmp_path, "", type="file_exists", value="in/made")).ok
    assert (await verified(tmp_path, "", type="file_exists", value=str(tmp_path / "in" / "made"))).ok
    assert "there is no file in/other" in (
        (await verified(tmp_path, "", type="file_exists", value="in/other")).error or ""
    )


@pytest.mark.parametrize("value", ["../outside", "link/outside", ""])
async def test_files_outside_the_directory_do_not_count(tmp_path: Path, value: str) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "outside").touch()
    (here / "link").symlink_to(tmp_path)
    result = await verified(here, "", type="file_exists", value=value)
    assert (result.ok, "say a path inside" in (result.error or "")) == (False, True)


@pytest.mark.parametrize("output", ["fine", "$(touch pwned)'; touch pwned; '", "x" * (2 * VALUE_BYTES) + "fine"])
async def test_a_check_of_ones_own_sees_the_output(tmp_path: Path, output: str) -> None:
    (tmp_path / "expected").write_text(output)
    check = 'printf %s "$STEP_OUTPUT" | cmp - expected'
    assert (await verified(tmp_path, output, type="custom", value=check)).ok
    result = await verified(tmp_path, output + "!", type="custom", value=check)
    assert not result.ok
    assert "exit code 1" in (result.error or "")
    assert not (tmp_path / "pwned").exists()


async def test_a_check_of_ones_own_may_be_a_program(tmp_path: Path) -> None:
    program = tmp_path / "check"
    program.write_text('#!/bin/sh\ntest "$1" = DONE\n')
    program.chmod(0o755)
    assert (await verified(tmp_path, "", type="custom", argv=("./check", "{{word}}"))).ok
    assert not (await verified(tmp_path, "", type="custom", argv=("./check", "{{word}}!"))).ok
    option = scene(
        tmp_path, values=Values(input="-n"), verification=Verification(type="custom", argv=("test", "{{input}}", "x"))
    )
    with pytest.raises(UnsafeCommand, match="allowOptions"):
        await verify(option, Result(ok=True))
    allowed = Verification(type="custom", argv=("test", "{{input}}", "x"), allow_options=True)
    assert (await verify(replace(option, step=replace(option.step, verification=allowed)), Result(ok=True))).ok


async def test_an_output_with_half_a_character_can_be_checked(tmp_path: Path) -> None:
    assert (await verified(tmp_path, "a\ud800\0b", type="custom", value='test "$STEP_OUTPUT" = "a?b"')).ok


async def test_a_check_of_ones_own_may_be_a_pattern(tmp_path: Path) -> None:
    assert (await verified(tmp_path, "a\nb7", type="custom", value=r"regex:^b\d$")).ok
    assert not (await verified(tmp_path, "a\nb", type="custom", value=r"regex:^b\d$")).ok


async def test_a_check_of_ones_own_has_so_much_time(tmp_path: Path) -> None:
    result = await verified(tmp_path, "", type="custom", value="sleep 1000", timeout=0.5)
    assert "did not end within 0.5 seconds" in (result.error or "")


@pytest.mark.parametrize("value", ["", "  \n"])
async def test_a_check_that_is_empty_fails(tmp_path: Path, value: str) -> None:
    assert "is empty" in ((await verified(tmp_path, "x", type="custom", value=value)).error or "")


async def test_a_pattern_must_match(tmp_path: Path) -> None:
    assert (await verified(tmp_path, "v1\nv2.0", type="regex", value=r"^v\d\.\d$")).ok
    assert not (await verified(tmp_path, "v1", type="regex", value=r"^v\d\.\d$")).ok
    assert "is not a valid regular expression" in ((await verified(tmp_path, "", type="regex", value="(")).error or "")


async def test_patterns_may_match_prompt_lines(tmp_path: Path) -> None:
    task = "The last run said:\nPASS 3\nRun it again."
    assert (await verified(tmp_path, "PASS 3", task=task, type="regex", value=r"^PASS \d$")).ok
    assert not (await verified(tmp_path, f"{task}\nno", task=task, type="regex", value=r"^PASS \d$")).ok


@pytest.mark.parametrize(
    ("output", "value", "ok"),
    [
        ("see https://github.com/o/r/pull/7.", "", True),
        ("see https://github.com/o/r/pull/7", "O/R", True),
        ("see https://github.com/o/other/pull/7", "o/r", False),
        ("see https://github.com/o/r/issues/7", "", False),
        ("see https://github.com.evil.example/o/r/pull/7", "", False),
    ],
)
async def test_a_pull_request_must_be_there(tmp_path: Path, output: str, value: str, ok: bool) -> None:
    assert (await verified(tmp_path, output, type="pr_url", value=value)).ok is ok


async def test_pull_requests_of_the_prompt_are_not_new(tmp_path: Path) -> None:
    task = "Redo https://github.com/o/r/pull/1 as a pull request of its own"
    assert not (await verified(tmp_path, f"> {task}\nno", task=task, type="pr_url")).ok
    assert (await verified(tmp_path, f"> {task}\nhttps://github.com/o/r/pull/2", task=task, type="pr_url")).ok


async def test_diagnosis_gets_the_full_output(tmp_path: Path) -> None:
    a_scene = scene(tmp_path, verification=Verification(type="output_contains", value="DONE"))
    failed = await verify(a_scene, Result(ok=True, output="o" * 9000 + "the end"), TASK)
    asked = diagnostic_prompt(a_scene.step, failed, TASK)
    for text in ("'work'", TASK, "output_contains DONE", "does not contain 'DONE'", "the end"):
        assert text in asked
    assert len(asked) < 6000
