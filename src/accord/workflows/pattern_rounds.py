"""Loops and patterns with rounds: review, reflection, debate and others.

A run only moves forward, so each round is a copy of its steps with new names and an `if` of its own. After the loop,
steps with the original names have the results of the last round. `maxIterations` uses the same loops.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from accord.workflows.document import Step, Verification
from accord.workflows.expressions import parse_expression, references, renamed, renamed_in, rendered
from accord.workflows.pattern_roles import (
    Cast,
    Misfit,
    after,
    hears,
    listed,
    names_of,
    needed,
    only_if,
    result,
    staged,
    told,
    turn,
    votes,
)
from accord.workflows.references import TABLES, TEXTS, reachable

ROUNDS = 3
"""Default maximum number of rounds, unless a step has `maxIterations`."""


def rewritten(step: Step, change: Callable[[str], str]) -> Step:
    """Return a step with all its texts changed."""
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
    """Return the name of a step in a round."""
    return f"{name}-round-{number}"


def most_rounds(steps: Iterable[Step], otherwise: int = ROUNDS) -> int:
    """Return the highest `maxIterations` of steps, or a default."""
    return max((step.max_iterations for step in steps if step.max_iterations), default=otherwise)


def looped(group: Sequence[Step], until: str, limit: int, feedback: Sequence[str] = ()) -> list[Step]:
    """Return rounds of a group of steps, at most `limit`, until a condition on their names holds.

    In a round, a template reads the outputs of its dependencies from the same round. It reads its own output and those
    of later steps from the previous round. Steps without a dependency in the group also get the outputs of `feedback`.
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
    before = reachable({one.name: [name for name in one.depends_on or () if name in names] for one in group}, step.name)
    outer = [name for name in step.depends_on or () if name not in names]
    if number > 1 and not inner and step.row.has_prompt:
        step = _fed(step, number, feedback)
    new_names = {**past, **{name: here[name] for name in before}}
    step = rewritten(step, lambda text: renamed_in(text, new_names))
    waits = [here[name] for name in inner] or [name for name in past.values() if name is not None]
    step = replace(
        step,
        name=here[step.name],
        depends_on=(*outer, *waits),
        max_iterations=None,
        until=None,
        if_=None if step.if_ is None else rendered(renamed(parse_expression(step.if_), new_names)),
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


def _holds(names: Sequence[str], until: str, number: int) -> str:
    """Return the condition that a round was executed and fulfilled the end condition."""
    these = {name: round_name(name, number) for name in names}
    return f"succeeded({listed(these.values())}) and ({rendered(renamed(parse_expression(until), these))})"


def _again(names: Sequence[str], until: str, number: int) -> str:
    these = {name: round_name(name, number) for name in names}
    return f"succeeded({listed(these.values())}) and not ({rendered(renamed(parse_expression(until), these))})"


def _ends(names: Sequence[str], until: str, limit: int) -> list[Step]:
    """Return the steps with the original names. The last one fails if the loop did not reach its end condition."""
    rounds = range(1, limit + 1)
    last = [round_name(name, limit) for name in names]
    has_ended = " or ".join(f"({_holds(names, until, number)})" for number in rounds)
    steps: list[Step] = []
    for name in reversed(names):
        latest = f"latest({listed(round_name(name, number) for number in rounds)})"
        if steps:
            steps.append(result(name, (names[-1],), latest))
        else:
            steps.append(result(name, last, latest, has_ended, f"{name}: it is not done after {limit} rounds"))
    return steps


REVIEWERS = ("reviewer", "review")
CRITICS = ("critic", "reflector", "critique")
ATTACKERS = ("attacker", "red-team", "attack")
DEFENDERS = ("defender", "blue-team", "defend")
JUDGES = ("judge", "moderator", "arbiter")
SUPERVISORS = ("supervisor",)
BOARDS = ("moderator", "blackboard")


def review_loop(cast: Cast) -> list[Step]:
    """A step makes something, all reviewers review it, and it is repeated until all approve."""
    return _judged(cast, cast.of(*REVIEWERS), "an agent with the role reviewer")


def reflection(cast: Cast) -> list[Step]:
    """A step makes something, the critic reviews it, and it is repeated until the critic approves."""
    return _judged(cast, cast.of(*CRITICS), "an agent with the role critic")


def red_team(cast: Cast) -> list[Step]:
    """The defender makes something, attackers look for a way in, and it is repeated until all of them approve."""
    needed(cast.of(*DEFENDERS), "it needs an agent with the role defender")
    return _judged(cast, cast.of(*ATTACKERS), "an agent with the role attacker", cast.of(*DEFENDERS))


def _judged(cast: Cast, judges: list[Step], who: str, makers: list[Step] | None = None) -> list[Step]:
    needed(judges, f"it needs {who}")
    reviewed = makers if makers is not None else _makers(cast, judges)
    needed(reviewed, f"it needs a step that makes what is looked at, besides {who}")

    def arranged(before: tuple[str, ...]) -> list[Step]:
        making = [after(step, before) for step in reviewed]
        judging = [votes(hears(step, names_of(making)), "APPROVE", "REJECT") for step in judges]
        names = names_of(judging)
        until = f"votes('APPROVE', {listed(names)}) == {len(names)}"
        return looped([*making, *judging], until, most_rounds([*reviewed, *judges]), names)

    return staged(cast, [*reviewed, *judges], arranged)


def _makers(cast: Cast, judges: Sequence[Step]) -> list[Step]:
    """Return the steps that judges review: their dependencies, or the step above the first judge."""
    waited_for = {name for judge in judges for name in judge.depends_on or ()}
    named = [step for step in cast.steps if step.name in waited_for and step not in judges]
    others = [step for step in cast.steps if step not in judges]
    above = [step for step in cast.steps[: cast.steps.index(judges[0])] if step not in judges]
    return named or above[-1:] or others[:1]


def supervisor(cast: Cast) -> list[Step]:
    """The supervisor checks the step of each worker, and it is repeated until the supervisor approves."""
    boss = cast.agent_of(*SUPERVISORS, "lead")
    workers = cast.others(*SUPERVISORS, "lead")
    if boss is None:
        raise Misfit("it needs an agent with the role supervisor")
    needed(workers, "it needs steps of others than the supervisor")
    own = [step for step in cast.steps if step not in workers]

    def arranged(before: tuple[str, ...]) -> list[Step]:
        steps: list[Step] = []
        for worker in workers:
            task = f"Check whether this has been done as it should be: {worker.task or worker.name}"
            check = turn(boss, f"{worker.name}-check", task)
            group = [after(worker, before), votes(hears(check, (worker.name,)), "APPROVE", "REJECT")]
            until = f"vote({listed([check.name])}) == 'APPROVE'"
            steps += looped(group, until, most_rounds([worker, *own]), (check.name,))
        return steps

    return staged(cast, workers, arranged)


# --- a fixed number of rounds -----------------------------------------------------------------------------------------


def debate(cast: Cast) -> list[Step]:
    """All agents answer, then comment on the answers of the others. A judge or a vote decides."""
    judges = cast.of(*JUDGES)
    debaters = [step for step in cast.above(judges) if step in cast.speakers()]
    needed(debaters, "it needs two steps at least of those who debate", 2)
    strategy = cast.coordination.consensus_strategy
    if not judges and strategy is None:
        raise Misfit("it needs an agent with the role judge, or coordination.consensusStrategy for a vote")
    speakers = debaters if judges else [votes(step, "YOUR-CHOICE") for step in debaters]
    names = names_of(debaters)

    def arranged(before: tuple[str, ...]) -> list[Step]:
        steps = _in_turns(speakers, most_rounds(debaters, 2), before)
        if judges:
            return [*steps, *(hears(step, names) for step in judges)]
        return [*steps, agreed(cast, "debate-result", names)]

    return staged(cast, [*debaters, *judges], arranged)


def mesh(cast: Cast) -> list[Step]:
    """All agents answer, then answer again with all other answers in their prompts."""
    members = cast.speakers()
    needed(members, "it needs two steps of agents at least", 2)
    return staged(cast, members, lambda before: _in_turns(members, most_rounds(members, 2), before))


def blackboard(cast: Cast) -> list[Step]:
    """One agent after the other adds to a shared text, with all earlier outputs in its prompt.

    A moderator concludes.
    """
    last = cast.of(*BOARDS)
    writers = cast.above(last)
    needed(writers, "it needs two steps at least of those who write", 2)
    limit = most_rounds(writers, 1)

    def arranged(before: tuple[str, ...]) -> list[Step]:
        steps: list[Step] = []
        for number in range(1, limit + 1):
            for writer in writers:
                name = writer.name if number == limit else round_name(writer.name, number)
                copy = replace(writer, name=name, max_iterations=None, until=None)
                steps.append(hears(copy, names_of(steps[-len(writers) :]) or before))
        return [*steps, *(hears(step, names_of(steps[-len(writers) :])) for step in last)]

    return staged(cast, [*writers, *last], arranged)


def _in_turns(members: Sequence[Step], limit: int, first: tuple[str, ...]) -> list[Step]:
    """Return rounds in which all agents answer at once, with the answers of the previous round in their prompts."""
    steps: list[Step] = []
    for number in range(1, limit + 1):
        for member in members:
            name = member.name if number == limit else round_name(member.name, number)
            if number == 1:
                steps.append(replace(after(member, first), name=name, max_iterations=None, until=None))
            else:
                before = [round_name(other.name, number - 1) for other in members]
                again = replace(member, name=name, depends_on=None, max_iterations=None, until=None)
                steps.append(hears(again, before))
    return steps


def agreed(cast: Cast, name: str, voters: Sequence[str], word: str | None = None) -> Step:
    """Return the step that counts votes. It fails without an agreement, or if the agreement is not `wanted`."""
    strategy = cast.coordination.consensus_strategy or "majority"
    threshold = cast.coordination.voting_threshold
    call = f"consensus('{strategy}', {'null' if threshold is None else threshold}, {listed(voters)})"
    condition = f"{call} != ''" if word is None else f"{call} == '{word}'"
    what = strategy if word is None else f"{strategy} for {word}"
    return result(name, voters, call, condition, f"{name}: there is no {what} among {len(voters)} voters")
