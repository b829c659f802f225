"""Verification of steps: decide whether a result is correct.

Each type of verification is one function. An agent in a terminal does not exit by itself. In order of precedence, its
step is completed by a verification, its own decision, evidence, or a marker.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from accord.agents.safe_regexes import BadRegex, compile_regex
from accord.workflows.commands import run_command
from accord.workflows.document import Step, Verification
from accord.workflows.executors import Result, Scene

MARKER, OWNER, REVIEW = "STEP_COMPLETE", "OWNER_DECISION", "REVIEW_DECISION"

OwnerDecision = Literal["COMPLETE", "INCOMPLETE_RETRY", "INCOMPLETE_FAIL", "NEEDS_CLARIFICATION"]

# A terminal adds blanks and frames around text, hence the characters allowed around the words.
_GAP = r"[ \t*_`\"']*"
_DECIDED = re.compile(
    rf"{OWNER}{_GAP}:{_GAP}(COMPLETE|INCOMPLETE_RETRY|INCOMPLETE_FAIL|NEEDS_CLARIFICATION)\b", re.IGNORECASE
)
_BECAUSE = re.compile(rf"\bREASON{_GAP}:{_GAP}([^\n]+)", re.IGNORECASE)
_REVIEWED = re.compile(rf"{REVIEW}{_GAP}:{_GAP}(APPROVED?|REJECT(?:ED)?)\b", re.IGNORECASE)

DONE = rf"(?i){MARKER}{_GAP}:{_GAP}[\w.-]|{_DECIDED.pattern}|{_REVIEWED.pattern}"
"""Ends the work of an agent in a terminal, with any outcome."""


class CompletionEvidence(Struct, frozen=True, kw_only=True):
    """Evidence of an agent's work besides its words.

    It has the number of changed files and posted lines, and whether its process exited by itself.
    """

    files: int = 0
    posts: int = 0
    has_exited: bool = False


def read_owner_decision(output: str) -> tuple[OwnerDecision | None, str | None]:
    """Return the last decision of a step's owner, and its reason."""
    decisions = list(_DECIDED.finditer(output))
    if not decisions:
        return None, None
    because = _BECAUSE.search(output, decisions[-1].end())
    word: OwnerDecision = decisions[-1][1].upper()  # type: ignore[assignment]  # the pattern has these words only
    return word, because[1].strip() if because else None


def is_marked(output: str, step: str) -> bool:
    """Whether an output contains the marker of a step."""
    return re.search(rf"{MARKER}{_GAP}:{_GAP}{re.escape(step)}(?![\w-])", output) is not None


def judge_completion(step: str, result: Result, evidence: CompletionEvidence) -> Result:
    """Return the result of a step whose agent has stopped. It has been verified, if it has a verification."""
    if not result.ok or result.reason == "completed_verified":
        return result
    decision, because = read_owner_decision(result.output)
    if decision is not None:
        return _by_owner(result, decision, because)
    if evidence.files or evidence.posts or is_marked(result.output, step) or _REVIEWED.search(result.output):
        return replace(result, reason="completed_by_evidence")
    if evidence.has_exited:
        return replace(result, reason="completed_by_process_exit")
    missing = f"The agent stopped without {MARKER}:{step}, a decision, or anything changed"
    return replace(result, ok=False, reason="failed_no_evidence", error=missing)


def _by_owner(result: Result, decision: OwnerDecision, because: str | None) -> Result:
    if decision == "COMPLETE":
        return replace(result, reason="completed_by_owner_decision")
    why = because or "no reason was given"
    if decision == "INCOMPLETE_RETRY":
        return replace(result, ok=False, reason="retry_requested_by_owner", error=f"The agent asks for a retry: {why}")
    what = "wants to know more" if decision == "NEEDS_CLARIFICATION" else "says that it cannot be done"
    return replace(result, ok=False, reason="failed_owner_decision", error=f"The agent {what}: {why}")


# --- prompts ----------------------------------------------------------------------------------------------------------


def completion_prompt(step: str) -> str:
    """Return the prompt about the end of the work, for an agent in a terminal.

    The marker itself is not in it: the terminal shows the prompt, and the marker would end the work before it starts.
    """
    return (
        f'When the work is done, print one line that consists of the word {MARKER}, a colon and the name "{step}", '
        f"without blanks. If it cannot be done, print one line with the word {OWNER}, a colon, and INCOMPLETE_RETRY, "
        "INCOMPLETE_FAIL or NEEDS_CLARIFICATION, and one with the word REASON, a colon, and why."
    )


def without_markers(task: str) -> str:
    """Return a task without text that would end the work when a terminal shows it. Its meaning stays the same."""
    return re.sub(rf"({MARKER}|{OWNER}|{REVIEW})({_GAP}):", r"\1\2 (then a colon)", task, flags=re.IGNORECASE)


OUTPUT = "STEP_OUTPUT"
"""The variable in which a custom check finds the output of the step."""

PATTERN = "regex:"
"""Prefix of a custom check that is a regular expression."""

SHOWN = 4000
"""Characters of an output in the prompt of a diagnostic agent."""

_PULL_REQUEST = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/pull/\d+")
_PAINT = re.compile(r"[\s\u2500-\u259f>|]+")
"""Characters that a terminal puts between words: line breaks, frames, the marks of a prompt."""


async def verify(scene: Scene, result: Result, task: str = "") -> Result:
    """Return the result after the verification of its step. `task` is the prompt, which the output may repeat."""
    wanted = scene.step.verification
    if wanted is None or (not result.ok and wanted.type != "exit_code"):
        return result
    missing = await _CHECKS[wanted.type](scene, result, wanted, task)
    if missing is None:
        return replace(result, ok=True, reason="completed_verified", error=None)
    problem = f"{wanted.description}: {missing}" if wanted.description else missing
    return replace(result, ok=False, reason="failed_verification", error=f"Verification failed: {problem}")


async def _contains(scene: Scene, result: Result, wanted: Verification, task: str) -> str | None:
    token = scene.values.text(wanted.value)
    text = without_lines(without_echo(result.output, task, token), task, token)
    return None if token in text else f"the output does not contain {token!r}"


async def _matches(scene: Scene, result: Result, wanted: Verification, task: str) -> str | None:
    pattern = scene.values.pattern(wanted.value).removeprefix(PATTERN if wanted.type == "custom" else "")
    try:
        is_match = await asyncio.to_thread(lambda: compile_regex(pattern).search(without_echo(result.output, task)))
    except BadRegex as error:
        return str(error)
    return None if is_match else f"the output does not match {pattern!r}"


async def _exits(scene: Scene, result: Result, wanted: Verification, task: str) -> str | None:
    value = scene.values.text(wanted.value).strip() or "0"
    if not re.fullmatch(r"-?\d+", value):
        return f"{value!r} is not a valid exit code"
    if result.exit_code is None:
        return result.error or "it has no exit code"
    return None if result.exit_code == int(value) else f"the exit code is {result.exit_code}, not {value}"


async def _exists(scene: Scene, result: Result, wanted: Verification, task: str) -> str | None:
    value, place = scene.values.text(wanted.value).strip(), scene.place
    is_inside, is_there = await asyncio.to_thread(_find_file, place, value)
    if not value or not (is_inside or wanted.value.strip().startswith("/")):  # only the document may choose one
        return f"{value!r} is not a file below {place}: say a path inside of where the step works"
    return None if is_there else f"there is no file {value}"


def _find_file(place: Path, value: str) -> tuple[bool, bool]:
    path = (place / value).resolve()
    return path.is_relative_to(place.resolve()), path.exists()


async def _custom(scene: Scene, result: Result, wanted: Verification, task: str) -> str | None:
    if not wanted.value.strip() and wanted.argv is None:
        return "its command is empty: a check that checks nothing proves nothing"
    if wanted.value.startswith(PATTERN):
        return await _matches(scene, result, wanted, task)
    env = {OUTPUT: result.output}
    return (await run_command(scene, wanted, wanted.value, seconds=wanted.timeout, env=env)).error


async def _pull_request(scene: Scene, result: Result, wanted: Verification, task: str) -> str | None:
    repository = scene.values.text(wanted.value).strip().lower()
    repositories = [url[1].lower() for url in _PULL_REQUEST.finditer(without_echo(result.output, task))]
    if repository in repositories or (repositories and not repository):
        return None
    return f"the output has no address of a pull request{f' of {repository}' if repository else ''}"


_CHECKS: Mapping[str, Callable[[Scene, Result, Verification, str], Awaitable[str | None]]] = {
    "output_contains": _contains,
    "exit_code": _exits,
    "file_exists": _exists,
    "custom": _custom,
    "regex": _matches,
    "pr_url": _pull_request,
}
"""Type of a verification -> its check, which returns the error or None."""


# --- repeated prompts -------------------------------------------------------------------------------------------------


def without_echo(output: str, task: str, token: str = "") -> str:
    """Return an output without the prompt, which terminals show and agents like to repeat.

    A word in the prompt is not an answer yet. Line breaks and frames of a terminal are ignored. A prompt that consists
    only of the token is the answer and no echo.
    """
    echo = _PAINT.sub("", task)
    if not echo or echo == _PAINT.sub("", token):
        return output
    visible, places = _unpainted(output)
    left: list[str] = []
    begin, at = 0, visible.find(echo)
    while at >= 0:
        left.append(output[begin : places[at]])
        begin = places[at + len(echo) - 1] + 1
        at = visible.find(echo, at + len(echo))
    return "".join((*left, output[begin:]))


def without_lines(output: str, task: str, token: str) -> str:
    """Return an output without the lines of the prompt that are more than the token. A terminal may show only some."""
    lines = {_PAINT.sub("", line) for line in task.splitlines()} - {"", _PAINT.sub("", token)}
    return "\n".join(line for line in output.splitlines() if _PAINT.sub("", line) not in lines)


def _unpainted(output: str) -> tuple[str, list[int]]:
    """Return the text of an output without frames, and the position of each character."""
    kept: list[str] = []
    places: list[int] = []
    at = 0
    for gap in (*_PAINT.finditer(output), None):
        end = len(output) if gap is None else gap.start()
        kept.append(output[at:end])
        places.extend(range(at, end))
        at = end if gap is None else gap.end()
    return "".join(kept), places


# --- diagnosis --------------------------------------------------------------------------------------------------------


def diagnostic_prompt(step: Step, result: Result, task: str) -> str:
    """Return the prompt of a diagnostic agent for a step that failed its verification."""
    wanted = step.verification
    assert wanted is not None
    return "\n\n".join(
        (
            f"The step {step.name!r} of a workflow has failed its verification, and will be tried again. "
            "Say briefly why it failed and what to do differently; change nothing yourself.",
            f"Its task:\n{task or step.command_line or ''}",
            f"Its verification: {wanted.type} {wanted.value}",
            f"What is wrong: {result.error}",
            f"The end of its output:\n{result.output[-SHOWN:]}",
        )
    )
