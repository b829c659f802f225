"""When an agent that works in a terminal has done its step."""

import re

import pytest

from accord.workflows.executors import Reason, Result
from accord.workflows.verification import (
    DONE,
    CompletionEvidence,
    completion_prompt,
    is_marked,
    judge_completion,
    read_owner_decision,
    without_markers,
)
from tests.cases import each

NOTHING, SOMETHING = CompletionEvidence(), CompletionEvidence(files=1)


def came(output: str, evidence: CompletionEvidence = NOTHING, **members: object) -> Result:
    return judge_completion("build", Result(**{"ok": True, "output": output, **members}), evidence)  # type: ignore[arg-type]


@each(
    ("output", "evidence", "ok", "reason"),
    [
        ("OWNER_DECISION: COMPLETE\nREASON: all there", NOTHING, True, "completed_by_owner_decision"),
        ("OWNER_DECISION: INCOMPLETE_RETRY\nREASON: flaky", SOMETHING, False, "retry_requested_by_owner"),
        ("OWNER_DECISION: INCOMPLETE_FAIL", SOMETHING, False, "failed_owner_decision"),
        ("OWNER_DECISION: NEEDS_CLARIFICATION", SOMETHING, False, "failed_owner_decision"),
        (
            "OWNER_DECISION: INCOMPLETE_RETRY\n...\nOWNER_DECISION: COMPLETE",
            NOTHING,
            True,
            "completed_by_owner_decision",
        ),
        ("done", SOMETHING, True, "completed_by_evidence"),
        ("done", CompletionEvidence(posts=2), True, "completed_by_evidence"),
        ("STEP_COMPLETE:build", NOTHING, True, "completed_by_evidence"),
        ("done", CompletionEvidence(has_exited=True), True, "completed_by_process_exit"),
        ("done", NOTHING, False, "failed_no_evidence"),
        ("REVIEW_DECISION: REJECT", NOTHING, True, "completed_by_evidence"),
        ("STEP_COMPLETE:builder", NOTHING, False, "failed_no_evidence"),
    ],
)
def test_words_and_deeds_decide_in_their_order(
    output: str, evidence: CompletionEvidence, ok: bool, reason: Reason
) -> None:
    result = came(output, evidence)
    assert (result.ok, result.reason, result.error is None) == (ok, reason, ok)


def test_a_verification_counts_before_everything_else() -> None:
    verified = came("OWNER_DECISION: INCOMPLETE_FAIL", reason="completed_verified")
    assert (verified.ok, verified.reason) == (True, "completed_verified")
    failed = came("OWNER_DECISION: COMPLETE", SOMETHING, ok=False, reason="failed_verification", error="no")
    assert (failed.ok, failed.reason, failed.error) == (False, "failed_verification", "no")


def test_an_agent_that_has_failed_has_failed() -> None:
    result = came("STEP_COMPLETE:build", SOMETHING, ok=False, error="it broke")
    assert (result.ok, result.error) == (False, "it broke")


def test_a_reason_is_passed_on() -> None:
    assert read_owner_decision("OWNER_DECISION: INCOMPLETE_RETRY\nREASON: the disk was full\n") == (
        "INCOMPLETE_RETRY",
        "the disk was full",
    )
    assert "the disk was full" in (came("OWNER_DECISION: INCOMPLETE_RETRY\nREASON: the disk was full").error or "")
    assert read_owner_decision("nothing of that") == (None, None)


@pytest.mark.parametrize(
    "output",
    ["STEP_COMPLETE:build", "  STEP_COMPLETE: build  ", "│ **STEP_COMPLETE:build** │", "`STEP_COMPLETE:build`."],
)
def test_completion_markers_survive_terminal_formatting(output: str) -> None:
    assert is_marked(output, "build")
    assert re.search(DONE, output)


def test_prompts_do_not_complete_the_agent() -> None:
    markers = (
        "STEP_COMPLETE:build",
        "**STEP_COMPLETE**: build",
        "OWNER_DECISION: COMPLETE",
        "REVIEW_DECISION: APPROVE",
    )
    assert all(re.search(DONE, marker) for marker in markers)
    task = f"Build it, then print {', '.join(markers)}"
    told = f"{without_markers(task)}\n\n{completion_prompt('build')}"
    assert not re.search(DONE, told)
    assert not is_marked(told, "build")
    assert read_owner_decision(told) == (None, None)
    for word in ("STEP_COMPLETE", '"build"', "OWNER_DECISION", "INCOMPLETE_RETRY", "REASON"):
        assert word in told
