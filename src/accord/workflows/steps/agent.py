"""Agent steps: a member of the workflow executes them as a child task."""

from collections.abc import Iterator

from accord.api import ChildCall
from accord.workflows import members
from accord.workflows.agent_definition import AgentDef
from accord.workflows.attempts import AttemptStart, CannotStart, RunSetup, StepAttempt, StepBehavior
from accord.workflows.document import Document, Step
from accord.workflows.findings import CheckProblem, Where


def start(attempt: StepAttempt) -> AttemptStart:
    """Start a step that a member executes."""
    step, setup = attempt.step, attempt.setup
    name, member = members.member_of(setup.plan, step), members.member_for(setup.plan, step)
    if member is None:
        raise CannotStart(f"There is no agent called {step.agent!r}")
    if setup.hosted.get(name) != member:
        raise CannotStart(f"The agent {name} is not what it was when this run began, or is not here")
    directory = setup.directory
    if step.cwd is not None or member.agent.cwd is not None:
        directory /= attempt.values.text(step.cwd or member.agent.cwd or ".")
    message = members.child_message(
        member,
        step,
        attempt.text(),
        id=f"{attempt.run_id}/{attempt.key}",
        run_id=attempt.run_id,
        directory=directory,
        env={key: attempt.values.text(value) for key, value in step.env.items()},
    )
    limit = step.timeout or member.agent.timeout
    call = ChildCall(
        agent=name, message=message, key=attempt.key, timeout_ms=None if limit is None else round(limit * 1000)
    )
    return AttemptStart(begun=attempt.begun(), call=call)


def member_name(setup: RunSetup, step: Step) -> str:
    """Return the member that executes a step."""
    return members.member_of(setup.plan, step)


def check_timeout(step: Step, where: Where, agent: AgentDef | None, document: Document) -> Iterator[CheckProblem]:
    """Check that a step of an agent has a timeout."""
    if step.use is not None or step.timeout is not None or document.swarm.timeout is not None:
        return
    if agent is None or (agent.timeout or agent.constraints.timeout) is None:
        message = f"Nothing bounds how long {step.name} may take"
        yield CheckProblem("NO_TIMEOUT", where, message, "add `timeout: 30m` to it, its agent or `swarm`")


BEHAVIOR = StepBehavior(start=start, agent=member_name, checks=(check_timeout,))
