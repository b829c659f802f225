"""Loops: steps that are done again until something is so, written out as rounds, because a run only goes forward.

Each round is a copy of the steps with names of its own and an `if`; when the loop has ended, steps of the original
names say what the last round came to, so that others need not know of rounds. Patterns and `maxIterations` use it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from accord.workflows.document import Step, Verification
from accord.workflows.expressions import parse, renamed, rendered
from accord.workflows.patterns.cast import SPOKEN, listed, names_of, only_if, result, told
from accord.workflows.templates import references, renamed_in

ROUNDS = 3
"""How many rounds a loop of a pattern has at most, unless a step says `maxIterations`."""

TEXTS = ("task", "command", "cwd", "branch", "base_branch", "path", "url", "input", "over", "event")
TABLES = ("env", "set", "headers", "vars", "with_")
"""The members of a step that may have templates."""


def rewritten(step: Step, change: Callable[[str], str]) -> Step:
    """Return a step with all of its texts changed."""
    new: dict[str, Any] = {name: change(text) for name in TEXTS if isinstance(text := getattr(step, name), str)}
    if step.argv is not None:
        new["argv"] = tuple(map(change, step.argv))
    for name in TABLES:
        table: Mapping[str, Any] = getattr(step, name)
        new[name] = {key: change(value) if isinstance(value, str) else value for key, value in table.items()}
    if step.verification is not None:
        new["verification"] = _rewritten_check(step.verification, change)
    if step.step is not None:
        new["step"] = rewritten(step.step, change)
    return replace(step, **new)


def _rewritten_check(check: Verification, change: Callable[[str], str]) -> Verification:
    argv = None if check.argv is None else tuple(map(change, check.argv))
    return replace(check, value=change(check.value), argv=argv)


def round_name(name: str, number: int) -> str:
    """Return what a step is called in a round."""
    return f"{name}-round-{number}"


def most_rounds(steps: Iterable[Step], otherwise: int = ROUNDS) -> int:
    """Return how many rounds steps say that they have."""
    return max((step.max_iterations for step in steps if step.max_iterations), default=otherwise)


def looped(group: Sequence[Step], until: str, limit: int, feedback: Sequence[str] = ()) -> list[Step]:
    """Return steps that are done again, all of them, until a condition on their names holds; at most `limit` times.

    In a round, what a step says of others that it waits for is said of this round, and what it says of itself or of
    those after it, of the round before. Who waits for nobody of the group is also told what those of `feedback` said.
    """
    names = names_of(group)
    steps: list[Step] = []
    for number in range(1, limit + 1):
        steps += [_in_round(step, group, until, number, feedback) for step in group]
    return steps + _ends(names, until, limit)


def _in_round(step: Step, group: Sequence[Step], until: str, number: int, feedback: Sequence[str]) -> Step:
    names = names_of(group)
    here = {name: round_name(name, number) for name in names}
    past = {name: round_name(name, number - 1) if number > 1 else None for name in names}
    inner = [name for name in step.depends_on or () if name in names]
    before = _upstream(step, group)
    outer = [name for name in step.depends_on or () if name not in names]
    if number > 1 and not inner and step.type in SPOKEN:
        step = _fed(step, number, feedback)
    known = {**past, **{name: here[name] for name in before}}
    step = rewritten(step, lambda text: renamed_in(text, known))
    waits = [here[name] for name in inner] or [name for name in past.values() if name is not None]
    step = replace(
        step,
        name=here[step.name],
        depends_on=(*outer, *waits),
        max_iterations=None,
        until=None,
        if_=None if step.if_ is None else rendered(renamed(parse(step.if_), known)),
    )
    return only_if(step, _again(names, until, number - 1)) if number > 1 else step


def _fed(step: Step, number: int, feedback: Sequence[str]) -> Step:
    spoken_of = {reference.step for reference in references(step.task or "")}
    for name in feedback:
        if name not in spoken_of:
            step = told(
                step, f"This is round {number}. What {name} said of the round before:\n{{{{steps.{name}.output}}}}"
            )
    return step


def _upstream(step: Step, group: Sequence[Step]) -> set[str]:
    by_name = {member.name: member for member in group}
    found: set[str] = set()
    left = list(step.depends_on or ())
    while left:
        name = left.pop()
        if name in by_name and name not in found:
            found.add(name)
            left += by_name[name].depends_on or ()
    return found


def _holds(names: Sequence[str], until: str, number: int) -> str:
    """Return the condition that a round has been done, and was the last."""
    these = {name: round_name(name, number) for name in names}
    return f"succeeded({listed(these.values())}) and ({rendered(renamed(parse(until), these))})"


def _again(names: Sequence[str], until: str, number: int) -> str:
    these = {name: round_name(name, number) for name in names}
    return f"succeeded({listed(these.values())}) and not ({rendered(renamed(parse(until), these))})"


def _ends(names: Sequence[str], until: str, limit: int) -> list[Step]:
    """Return what has the names of the steps afterwards; the last of them fails if the loop has not come to its end."""
    rounds = range(1, limit + 1)
    last = [round_name(name, limit) for name in names]
    has_ended = " or ".join(f"({_holds(names, until, number)})" for number in rounds)
    steps: list[Step] = []
    for name in reversed(names):
        said = f"latest({listed(round_name(name, number) for number in rounds)})"
        if steps:
            steps.append(result(name, (names[-1],), said))
        else:
            steps.append(result(name, last, said, has_ended, f"{name}: it is not done after {limit} rounds"))
    return steps
