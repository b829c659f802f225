"""How an attempt at a step begins: what is written down of it, and who is called for it.

One function for each type, which says what should happen and does nothing: `driving` writes it down and begins it.
What cannot even begin, because a value is missing, ends at once.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from accord.engine.journal import ChildCall
from accord.model import Message, Part, Role
from accord.workflows import members, telling
from accord.workflows.decide import ended
from accord.workflows.document import Step
from accord.workflows.means import Means
from accord.workflows.records import Begun, Ended
from accord.workflows.state import Node
from accord.workflows.steps.scene import Result
from accord.workflows.values import Unresolved, UnsafeCommand, Values

CHILDREN = frozenset({"agent", "a2a", "workflow"})
"""Types that a child task does."""

MAX_ITEMS = 10_000
"""Items of a map: more than that is a mistake of whoever made the list."""

WITH_ADVICE = "failed_verification_with_diagnostic"

TOLD_WHY = frozenset({"failed_verification", WITH_ADVICE})
"""Reasons of a failed attempt, for the prompt of the next attempt."""


class CannotBegin(Exception):
    """A step cannot be done as it is."""


class Beginning(Struct, frozen=True, kw_only=True):
    """How an attempt begins: with a record, and perhaps a call; or it has ended with that."""

    begun: Begun | None = None
    call: ChildCall | None = None
    ended: Ended | None = None


class Attempt(Struct, frozen=True, kw_only=True):
    """An attempt that is to begin, and what its step may speak of."""

    node: Node
    number: int
    at: int
    values: Values
    run_id: str
    means: Means

    @property
    def step(self) -> Step:
        """Its step."""
        assert self.node.step is not None
        return self.node.step

    @property
    def key(self) -> str:
        """What its child task is noted under."""
        return child_key(self.node.name, self.number)

    def begun(self, **more: Any) -> Begun:
        """Return the record of it."""
        return Begun(step=self.node.name, attempt=self.number, at=self.at, **more)

    def text(self) -> str:
        """Return the task; after a failed verification, also why the last attempt failed."""
        said = self.values.text(self.step.task or "")
        before = self.node.ended
        if before is not None and before.reason in TOLD_WHY:
            said += f"\n\nThe last attempt failed. {before.error}"
        return said


def child_key(step: str, attempt: int) -> str:
    """Return what the child task of an attempt is noted under."""
    return f"flow:{step}:{attempt}:child"


def beginning(attempt: Attempt) -> Beginning:
    """Return how an attempt begins."""
    try:
        return _KINDS.get(attempt.step.kind, _plainly)(attempt)
    except (Unresolved, UnsafeCommand, CannotBegin) as error:
        result = Result(ok=False, error=str(error))
        return Beginning(ended=ended(attempt.step, attempt.number, result, attempt.at))


def _plainly(attempt: Attempt) -> Beginning:
    return Beginning(begun=attempt.begun())


def _wait(attempt: Attempt) -> Beginning:
    step = attempt.step
    if step.for_ is not None:
        return Beginning(begun=attempt.begun(until=attempt.at + round(step.for_ * 1000)))
    if step.until is None:
        return _plainly(attempt)
    said = attempt.values.text(step.until)
    try:
        until = datetime.fromisoformat(said)
    except ValueError:
        raise CannotBegin(f"{said!r} is no time: write one like 2030-01-31T18:00:00Z") from None
    aware = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return Beginning(begun=attempt.begun(until=round(aware.timestamp() * 1000)))


def _map(attempt: Attempt) -> Beginning:
    over = attempt.step.over
    found = attempt.values.value(over) if isinstance(over, str) else over
    items = _items(found)
    if len(items) > MAX_ITEMS:
        raise CannotBegin(f"It would go over {len(items)} items, and at most {MAX_ITEMS} are possible")
    return Beginning(begun=attempt.begun(items=items))


def _items(found: Any) -> tuple[Any, ...]:
    """Return a list as it is, or as a text says it: as a JSON array, or line by line."""
    if isinstance(found, str):
        try:
            found = msgspec.json.decode(found)
        except msgspec.DecodeError:
            return tuple(line for line in found.splitlines() if line.strip())
    if not isinstance(found, list | tuple):
        raise CannotBegin(f"It goes over a list, and this is none: {str(found)[:100]!r}")
    return tuple(found)


def _child(attempt: Attempt) -> Beginning:
    """Let a member do it."""
    step, means = attempt.step, attempt.means
    name, member = members.member_of(means.plan, step), members.member_for(means.plan, step)
    if member is None:
        raise CannotBegin(f"There is no agent called {step.agent!r}")
    if means.hosted.get(name) != member:
        raise CannotBegin(f"The agent {name} is not what it was when this run began, or is not here")
    directory = means.directory
    if step.cwd is not None or member.agent.cwd is not None:
        directory /= attempt.values.text(step.cwd or member.agent.cwd or ".")
    env = {key: attempt.values.text(value) for key, value in step.env.items()}
    message = telling.said_to(
        member,
        step,
        attempt.text(),
        id=f"{attempt.run_id}/{attempt.key}",
        run_id=attempt.run_id,
        directory=directory,
        env=env,
    )
    limit = step.timeout or member.agent.timeout
    call = ChildCall(
        agent=name, message=message, key=attempt.key, timeout_ms=None if limit is None else round(limit * 1000)
    )
    return Beginning(begun=attempt.begun(), call=call)


def _workflow(attempt: Attempt) -> Beginning:
    """Let another workflow do it: one of the same document, or one of another file."""
    step, means = attempt.step, attempt.means
    said: dict[str, Any] = {"input": attempt.values.text(step.input or "")}
    if step.workflow is not None:
        said["workflow"] = step.workflow
    if step.vars:
        said["vars"] = {
            name: attempt.values.value(value) if isinstance(value, str) else value for name, value in step.vars.items()
        }
    message = Message(
        message_id=f"{attempt.run_id}/{attempt.key}", role=Role.USER, parts=(Part(data=said),), metadata={INNER: True}
    )
    agent = means.flow if step.file is None else f"{means.plan.name}/{step.file}"
    limit = None if step.timeout is None else round(step.timeout * 1000)
    return Beginning(
        begun=attempt.begun(), call=ChildCall(agent=agent, message=message, key=attempt.key, timeout_ms=limit)
    )


INNER = "workflow"
"""Metadata key of a message by which a run begins another: its data says how."""

_KINDS: Mapping[str, Callable[[Attempt], Beginning]] = {
    "agent": _child,
    "a2a": _child,
    "wait": _wait,
    "workflow": _workflow,
    "map": _map,
}
"""Types with a beginning of their own; all others begin plainly."""
