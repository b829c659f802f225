"""Workflow steps: a child task runs another workflow, of the same document or of another file."""

from typing import Any

from accord.api import ChildCall
from accord.model import Message, Part, Role, Task, TaskState
from accord.workflows import members
from accord.workflows.attempts import INNER, AttemptStart, RunSetup, StepAttempt, StepBehavior
from accord.workflows.document import Step
from accord.workflows.executors import Result


def start(attempt: StepAttempt) -> AttemptStart:
    """Start the run of another workflow."""
    step, values = attempt.step, attempt.values
    request: dict[str, Any] = {"input": values.text(step.input or "")}
    if step.workflow is not None:
        request["workflow"] = step.workflow
    if step.vars:
        request["vars"] = {
            name: values.value(value) if isinstance(value, str) else value for name, value in step.vars.items()
        }
    message = Message(
        message_id=f"{attempt.run_id}/{attempt.key}",
        role=Role.USER,
        parts=(Part(data=request),),
        metadata={INNER: True},
    )
    limit = None if step.timeout is None else round(step.timeout * 1000)
    call = ChildCall(agent=runner_name(attempt.setup, step), message=message, key=attempt.key, timeout_ms=limit)
    return AttemptStart(begun=attempt.begun(), call=call)


def runner_name(setup: RunSetup, step: Step) -> str:
    """Return the agent that runs the workflow: that of this run, or that of the other file."""
    return setup.flow if step.file is None else f"{setup.plan.name}/{step.file}"


def conclude(task: Task) -> Result:
    """Return the result of the other run."""
    output = members.workflow_output(task)
    if task.status.state is TaskState.COMPLETED:
        return Result(ok=True, output=output, exit_code=0)
    error = members.workflow_failure(task) or f"The workflow is {task.status.state.name.lower()}"
    return Result(ok=False, output=output or error, error=error)


BEHAVIOR = StepBehavior(start=start, agent=runner_name, conclude=conclude)
