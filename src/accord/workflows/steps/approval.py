"""Approval steps: a person decides, with a message, in the console or with the runs API."""

from msgspec.structs import replace

from accord.api import APPROVAL, Approval, Approvals, Context, IncomingMessage
from accord.model import Message, Part, Role
from accord.workflows.attempts import StepBehavior, signal_key
from accord.workflows.channel import METADATA, OpenQuestion
from accord.workflows.document import OnError, Step
from accord.workflows.executors import Result
from accord.workflows.state import PlanNode
from accord.workflows.values import Unresolved, Values

RULES = ("approvers", "notByStarter")
"""Metadata keys of an approval that no message decides."""


def with_approval_rules(step: Step, approvals: Approvals) -> Step:
    """Return a step with the server's rules for approvals. A step may be stricter, never less strict."""
    if step.step is not None:
        return replace(step, step=with_approval_rules(step.step, approvals))
    if not step.row.has_decision:
        return step
    return replace(
        step,
        approvers=step.approvers or approvals.approvers,
        not_by_starter=step.not_by_starter or approvals.not_by_starter,
    )


def signal(node: PlanNode) -> str:
    """Return the key of the decision."""
    return signal_key(node.name, node.attempt)


def question(ctx: Context, node: PlanNode, values: Values, unclear: int) -> OpenQuestion:
    """Return the question of an approval, worded differently after unclear answers."""
    step = node.step
    assert step is not None
    rules = dict(zip(RULES, (list(step.approvers), step.not_by_starter), strict=True))
    try:
        text = values.text(step.task or "") or f"Approve {node.name}?"
    except Unresolved as error:
        text = f"Approve {node.name}? ({error})"
    if step.is_ruled_approval:
        text = f"{text} ({_rule(step)})"
    elif unclear:
        text = f"Please begin with yes or no. {text}"
    return OpenQuestion(
        Message(
            message_id=f"{ctx.task_id}/{node.name}/{node.attempt}" + (f"/{unclear}" if unclear else ""),
            role=Role.AGENT,
            parts=(Part(text=text),),
            task_id=ctx.task_id,
            context_id=ctx.context_id,
            metadata={
                APPROVAL: True,
                METADATA: {"step": node.name, **{name: rule for name, rule in rules.items() if rule}},
            },
        )
    )


def _rule(step: Step) -> str:
    """Return who may decide an approval and where, for callers who cannot decide it with a message."""
    roles = f" with the role {' or '.join(step.approvers)}" if step.approvers else ""
    other = " other than the owner of the run" if step.not_by_starter else ""
    return f"decided by a caller{roles}{other}, in the console or with the runs API, not by a message"


def result_of_signal(step: Step, value: object) -> tuple[Result, OnError | None]:
    """Return the result of a decision. A rejected approval is not retried."""
    if not isinstance(value, Approval):
        part = Part(text=value) if isinstance(value, str) else Part(data=value)
        value = Approval.of(IncomingMessage(Message(message_id="", role=Role.USER, parts=(part,))))
    if value:
        return Result(ok=True, output=value.comment), None
    why = f": {value.comment}" if value.comment else ""
    return Result(ok=False, output=value.comment, error=f"It was not approved{why}"), step.on_reject or "fail"


BEHAVIOR = StepBehavior(signal=signal, question=question, result_of_signal=result_of_signal)
