"""Roles of agents in a pattern, and changes of its steps.

A role is the first word of an agent's `role`, or a word in the name of the agent or of the step.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from accord.workflows.agent_definition import AgentDef
from accord.workflows.document import Coordination, Step
from accord.workflows.expressions import references
from accord.workflows.references import reachable

TIER = re.compile(r"tier-?(\d+)", re.IGNORECASE)
"""The form of numbered roles for escalation."""

_WORDS = re.compile(r"[a-z]+")


class Misfit(Exception):
    """The agents and steps of a document do not fit its pattern."""


class Cast:
    """The steps, agents and coordination of a workflow."""

    def __init__(self, steps: Iterable[Step], agents: Iterable[AgentDef], coordination: Coordination) -> None:
        self.steps = list(steps)
        self.agents = {agent.name: agent for agent in agents}
        self.coordination = coordination

    def of(self, *roles: str) -> list[Step]:
        """Return the steps with one of these roles. Without any, an agent with the role and without a step gets one."""
        matching = [step for step in self.steps if self.plays(step, *roles)]
        idle = [agent for agent in self._idle() if _is_in(roles, agent.role or "", agent.name)]
        for agent in () if matching else idle:
            matching.append(turn(agent, agent.name, agent.task or agent.role or agent.name))
        self.steps += [step for step in matching if step not in self.steps]
        return matching

    def others(self, *roles: str) -> list[Step]:
        """Return the steps without any of these roles."""
        return [step for step in self.steps if not self.plays(step, *roles)]

    def speakers(self, *roles: str) -> list[Step]:
        """Return the agent steps without any of these roles. Commands have no opinion."""
        return [step for step in self.others(*roles) if step.row.has_prompt]

    def above(self, last: Sequence[Step]) -> list[Step]:
        """Return the steps above the last of the given steps, without these. Steps below it run after them."""
        if not last:
            return list(self.steps)
        place = max(self.steps.index(step) for step in last)
        return [step for step in self.steps[:place] if step not in last]

    def waits_for(self, name: str) -> set[str]:
        """Return all direct and indirect dependencies of a step, from the `dependsOn` and barriers of its author."""
        before = {step.name: step.depends_on or () for step in self.steps}
        return reachable(before | {barrier.name: barrier.wait_for for barrier in self.coordination.barriers}, name)

    def agent_of(self, *roles: str) -> AgentDef | None:
        """Return the first agent with one of these roles, with or without a step."""
        return next((agent for agent in self.agents.values() if _is_in(roles, agent.role or "", agent.name)), None)

    def plays(self, step: Step, *roles: str) -> bool:
        """Whether a step, its agent or the agent's role has one of these roles."""
        agent = self.agents.get(step.agent or "")
        return _is_in(roles, (agent.role or "") if agent else "", step.name, agent.name if agent else "")

    def _idle(self) -> list[AgentDef]:
        busy = {step.agent for step in self.steps}
        return [agent for agent in self.agents.values() if agent.name not in busy]


def needed(found: Sequence[Step], what: str, least: int = 1) -> None:
    """Raise Misfit if there are fewer steps than `least`."""
    if len(found) < least:
        raise Misfit(f"{what} (there are {len(found)})" if found or least > 1 else what)


def _is_in(roles: Iterable[str], role: str, *names: str) -> bool:
    words = role.lower().strip()
    for word in roles:
        begins = words.startswith(word) and not words[len(word) : len(word) + 1].isalpha()
        if begins or any(word in _parts(name) for name in names):
            return True
    return False


def _parts(name: str) -> set[str]:
    """Return the words of a name and all pairs of adjacent words: `hive-mind-2` has `hive-mind`."""
    words = _WORDS.findall(name.lower())
    return {*words, *("-".join(pair) for pair in pairwise(words))}


# --- changed steps ----------------------------------------------------------------------------------------------------


def turn(agent: AgentDef, name: str, task: str) -> Step:
    """Return a step for an agent."""
    return Step(name=name, type="a2a" if agent.is_a2a else "agent", agent=agent.name, task=task)


def like(step: Step, name: str, task: str) -> Step:
    """Return a copy of a step with another name and task, for the same agent."""
    return replace(
        step,
        name=name,
        task=task,
        depends_on=None,
        if_=None,
        verification=None,
        max_iterations=None,
        until=None,
        set={},
    )


def after(step: Step, names: Iterable[str]) -> Step:
    """Return a step that depends on others, unless its author gave it dependencies."""
    return step if step.depends_on is not None else replace(step, depends_on=tuple(names))


def told(step: Step, text: str) -> Step:
    """Return a step with more text in its prompt."""
    if not step.row.has_prompt:
        return step
    return replace(step, task=f"{(step.task or '').rstrip()}\n\n{text}".lstrip())


def hears(step: Step, names: Collection[str]) -> Step:
    """Return a step that depends on others, with their outputs in its prompt unless its task mentions them."""
    step = after(step, names)
    spoken_of = {reference.step for reference in references(step.task or "")}
    for name in step.depends_on or ():
        if name not in spoken_of and name in names:
            step = told(step, f"What {name} said:\n{{{{steps.{name}.output}}}}")
    return step


def votes(step: Step, *words: str) -> Step:
    """Return a step whose prompt asks for a vote, unless its task asks for one already."""
    if any(mark in (step.task or "") for mark in ("VOTE:", "DECISION:", "VERDICT:")):
        return step
    return told(step, "End your answer with one line: " + " or ".join(f"DECISION: {word}" for word in words))


def only_if(step: Step, condition: str) -> Step:
    """Return a step with an additional condition."""
    return replace(step, if_=f"({step.if_}) and ({condition})" if step.if_ else condition)


def result(name: str, after_: Iterable[str], output: str, condition: str | None = None, why: str = "") -> Step:
    """Return a step whose output is an expression. It fails unless a condition holds."""
    command = f"printf '%s' {{{{{output}}}}}"
    if condition is not None:
        command += f"\n[ {{{{{condition}}}}} = true ] || {{ echo '{why}' >&2; exit 1; }}"
    return Step(name=name, type="deterministic", command=command, depends_on=tuple(after_))


def names_of(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the names of steps."""
    return tuple(step.name for step in steps)


def listed(names: Iterable[str]) -> str:
    """Return names as arguments of a function in an expression."""
    return ", ".join(f'"{name}"' for name in names)


# --- order ------------------------------------------------------------------------------------------------------------


def chained(steps: Iterable[Step], before: Iterable[str] = ()) -> list[Step]:
    """Return steps of which each depends on the previous one."""
    steps_in_order: list[Step] = []
    last = tuple(before)
    for step in steps:
        steps_in_order.append(after(step, last))
        last = (step.name,)
    return steps_in_order


def staged(cast: Cast, members: Sequence[Step], arranged: Callable[[tuple[str, ...]], list[Step]]) -> list[Step]:
    """Return all steps, with `arranged` in place of the members.

    Steps before and after the members stay in the order of the file. `arranged` takes the dependencies of its first
    steps.
    """
    names = set(names_of(members))
    first = next(place for place, step in enumerate(cast.steps) if step.name in names)
    before = chained(step for step in cast.steps[:first] if step.name not in names)
    middle = arranged(names_of(before[-1:]))
    waited_for = {name for step in middle for name in step.depends_on or ()}
    ends = [step.name for step in middle if step.name not in waited_for]
    return [*before, *middle, *chained((step for step in cast.steps[first:] if step.name not in names), ends)]


def gathered(cast: Cast, many: Sequence[Step], last: Sequence[Step]) -> list[Step]:
    """Return all steps: `many` start at once, and `last` get all their outputs."""

    def arranged(before: tuple[str, ...]) -> list[Step]:
        return [*(after(step, before) for step in many), *(hears(step, names_of(many)) for step in last)]

    return staged(cast, [*many, *last], arranged)
