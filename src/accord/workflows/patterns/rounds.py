"""Patterns with rounds: something is made, judged and made again, or said in turn by those who hear each other.

Rounds that end early are `loops`; those of a fixed number are written out here. Votes are counted by expressions.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from accord.workflows.document import Step
from accord.workflows.patterns.cast import (
    Cast,
    Misfit,
    after,
    hears,
    listed,
    names_of,
    needed,
    result,
    staged,
    turn,
    votes,
)
from accord.workflows.patterns.loops import looped, most_rounds, round_name

REVIEWERS = ("reviewer", "review")
CRITICS = ("critic", "reflector", "critique")
ATTACKERS = ("attacker", "red-team", "attack")
DEFENDERS = ("defender", "blue-team", "defend")
JUDGES = ("judge", "moderator", "arbiter")
SUPERVISORS = ("supervisor",)
BOARDS = ("moderator", "blackboard")


def review_loop(cast: Cast) -> list[Step]:
    """It is made, all reviewers review it, and it is made again until they all approve."""
    return _judged(cast, cast.of(*REVIEWERS), "an agent with the role reviewer")


def reflection(cast: Cast) -> list[Step]:
    """It is made, the critic looks at it, and it is made again until the critic approves."""
    return _judged(cast, cast.of(*CRITICS), "an agent with the role critic")


def red_team(cast: Cast) -> list[Step]:
    """The defender makes it, attackers look for a way in, and it is made again until they find none and approve."""
    needed(cast.of(*DEFENDERS), "it needs an agent with the role defender")
    return _judged(cast, cast.of(*ATTACKERS), "an agent with the role attacker", cast.of(*DEFENDERS))


def _judged(cast: Cast, judges: list[Step], who: str, makers: list[Step] | None = None) -> list[Step]:
    needed(judges, f"it needs {who}")
    made = makers if makers is not None else _makers(cast, judges)
    needed(made, f"it needs a step that makes what is looked at, besides {who}")

    def arranged(before: tuple[str, ...]) -> list[Step]:
        making = [after(step, before) for step in made]
        judging = [votes(hears(step, names_of(making)), "APPROVE", "REJECT") for step in judges]
        names = names_of(judging)
        until = f"votes('APPROVE', {listed(names)}) == {len(names)}"
        return looped([*making, *judging], until, most_rounds([*made, *judges]), names)

    return staged(cast, [*made, *judges], arranged)


def _makers(cast: Cast, judges: Sequence[Step]) -> list[Step]:
    """Return whom the judges judge: those they say they wait for, else the step above the first of them."""
    waited_for = {name for judge in judges for name in judge.depends_on or ()}
    named = [step for step in cast.steps if step.name in waited_for and step not in judges]
    others = [step for step in cast.steps if step not in judges]
    above = [step for step in cast.steps[: cast.steps.index(judges[0])] if step not in judges]
    return named or above[-1:] or others[:1]


def supervisor(cast: Cast) -> list[Step]:
    """Each worker's step is checked by the supervisor, and done again until the supervisor approves."""
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
    """All say what they think, then what they think of what the others said; a judge, or a vote, decides."""
    judges = cast.of(*JUDGES)
    debaters = [step for step in cast.above(judges) if step in cast.speakers()]
    needed(debaters, "it needs two steps at least of those who debate", 2)
    strategy = cast.coordination.consensus_strategy
    if not judges and strategy is None:
        raise Misfit("it needs an agent with the role judge, or coordination.consensusStrategy for a vote")
    asked = debaters if judges else [votes(step, "YOUR-CHOICE") for step in debaters]
    names = names_of(debaters)

    def arranged(before: tuple[str, ...]) -> list[Step]:
        steps = _in_turns(asked, most_rounds(debaters, 2), before)
        if judges:
            return [*steps, *(hears(step, names) for step in judges)]
        return [*steps, agreed(cast, "debate-result", names)]

    return staged(cast, [*debaters, *judges], arranged)


def mesh(cast: Cast) -> list[Step]:
    """All say what they think, then again knowing what all the others said."""
    members = cast.speakers()
    needed(members, "it needs two steps of agents at least", 2)
    return staged(cast, members, lambda before: _in_turns(members, most_rounds(members, 2), before))


def blackboard(cast: Cast) -> list[Step]:
    """One after the other adds to what is known, hearing all that was said before; a moderator closes."""
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
    """Return rounds in which all speak at once, and know what the others said in the round before."""
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


def agreed(cast: Cast, name: str, voters: Sequence[str], wanted: str | None = None) -> Step:
    """Return the step that counts votes, says what was agreed on, and fails if nothing was, or not what is wanted."""
    strategy = cast.coordination.consensus_strategy or "majority"
    threshold = cast.coordination.voting_threshold
    call = f"consensus('{strategy}', {'null' if threshold is None else threshold}, {listed(voters)})"
    condition = f"{call} != ''" if wanted is None else f"{call} == '{wanted}'"
    what = strategy if wanted is None else f"{strategy} for {wanted}"
    return result(name, voters, call, condition, f"{name}: there is no {what} among {len(voters)} voters")
