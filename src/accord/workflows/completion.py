"""Whether an agent that works in a terminal has done its step, by what it has said and done.

Such an agent does not end by itself, so it is told what to say (`asked`), and what it said is looked at in this order:
a verification, its own decision, evidence, the marker. It is pure: who runs the agent hands over what there is.
"""

import re
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from accord.workflows.steps.scene import Result

MARKER, OWNER, REVIEW = "STEP_COMPLETE", "OWNER_DECISION", "REVIEW_DECISION"

Decision = Literal["COMPLETE", "INCOMPLETE_RETRY", "INCOMPLETE_FAIL", "NEEDS_CLARIFICATION"]

# A terminal paints blanks and frames around what is written, hence what may stand around the words.
_GAP = r"[ \t*_`\"']*"
_DECIDED = re.compile(
    rf"{OWNER}{_GAP}:{_GAP}(COMPLETE|INCOMPLETE_RETRY|INCOMPLETE_FAIL|NEEDS_CLARIFICATION)\b", re.IGNORECASE
)
_BECAUSE = re.compile(rf"\bREASON{_GAP}:{_GAP}([^\n]+)", re.IGNORECASE)
_REVIEWED = re.compile(rf"{REVIEW}{_GAP}:{_GAP}(APPROVED?|REJECT(?:ED)?)\b", re.IGNORECASE)

DONE = rf"(?i){MARKER}{_GAP}:{_GAP}[\w.-]|{_DECIDED.pattern}|{_REVIEWED.pattern}"
"""What ends the work of an agent in its terminal, whatever it means."""


class Evidence(Struct, frozen=True, kw_only=True):
    """What an agent has left behind besides its words: how many files it changed and lines it posted, and whether its
    process has ended by itself."""

    files: int = 0
    posts: int = 0
    has_exited: bool = False


def decided(output: str) -> tuple[Decision | None, str | None]:
    """Return what the owner of a step has decided at last, and why."""
    found = list(_DECIDED.finditer(output))
    if not found:
        return None, None
    because = _BECAUSE.search(output, found[-1].end())
    word: Decision = found[-1][1].upper()  # type: ignore[assignment]  # the pattern has these words only
    return word, because[1].strip() if because else None


def is_marked(output: str, step: str) -> bool:
    """Whether a step's marker is there."""
    return re.search(rf"{MARKER}{_GAP}:{_GAP}{re.escape(step)}(?![\w-])", output) is not None


def completed(step: str, result: Result, evidence: Evidence) -> Result:
    """Return what came of a step whose agent has stopped; `result` has been verified, where there is a verification."""
    if not result.ok or result.reason == "completed_verified":
        return result
    decision, because = decided(result.output)
    if decision is not None:
        return _by_owner(result, decision, because)
    if evidence.files or evidence.posts or is_marked(result.output, step) or _REVIEWED.search(result.output):
        return replace(result, reason="completed_by_evidence")
    if evidence.has_exited:
        return replace(result, reason="completed_by_process_exit")
    missing = f"The agent stopped without {MARKER}:{step}, a decision, or anything changed"
    return replace(result, ok=False, reason="failed_no_evidence", error=missing)


def _by_owner(result: Result, decision: Decision, because: str | None) -> Result:
    if decision == "COMPLETE":
        return replace(result, reason="completed_by_owner_decision")
    said = because or "no reason was given"
    if decision == "INCOMPLETE_RETRY":
        return replace(result, ok=False, reason="retry_requested_by_owner", error=f"The agent asks for a retry: {said}")
    what = "wants to know more" if decision == "NEEDS_CLARIFICATION" else "says that it cannot be done"
    return replace(result, ok=False, reason="failed_owner_decision", error=f"The agent {what}: {said}")


# --- what an agent is told --------------------------------------------------------------------------------------------


def asked(step: str) -> str:
    """Return what an agent in a terminal is told about the end of its work.

    The marker itself is not in it: the terminal shows what is typed, and would end the work before it begins.
    """
    return (
        f'When the work is done, print one line that consists of the word {MARKER}, a colon and the name "{step}", '
        f"without blanks. If it cannot be done, print one line with the word {OWNER}, a colon, and INCOMPLETE_RETRY, "
        "INCOMPLETE_FAIL or NEEDS_CLARIFICATION, and one with the word REASON, a colon, and why."
    )


def unmarked(task: str) -> str:
    """Return a task without anything that would end the work as soon as a terminal shows it, but with its meaning."""
    return re.sub(rf"({MARKER}|{OWNER}|{REVIEW})({_GAP}):", r"\1\2 (then a colon)", task, flags=re.IGNORECASE)
