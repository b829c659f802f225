"""A2A steps: like agent steps, for an agent at a URL."""

from collections.abc import Iterator

from accord.workflows.agent_definition import AgentDef
from accord.workflows.attempts import StepBehavior
from accord.workflows.document import Document, Step
from accord.workflows.findings import CheckProblem, Where
from accord.workflows.steps.agent import member_name, start


def check_url(step: Step, where: Where, agent: AgentDef | None, document: Document) -> Iterator[CheckProblem]:
    """Check that a step or its agent has a URL."""
    if step.use is None and not step.url and not (agent is not None and agent.url) and not (step.agent and not agent):
        message = f"The A2A step {step.name} has no `url`, nor has its agent"
        yield CheckProblem("MISSING_URL", where, message, "add `url` to the step, or to an agent that it names")


BEHAVIOR = StepBehavior(start=start, agent=member_name, checks=(check_url,))
