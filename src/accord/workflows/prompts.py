"""Prompts for members, and the results of their answers.

A remote agent gets only the task. The prompt of a command line agent also contains its role, its permissions and how to
finish.
"""

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from accord.agents.process import SILENCE_KEY
from accord.client.text import text_of
from accord.model import Message, Part, Role, Task, TaskState
from accord.workflows import permissions, verification
from accord.workflows.document import Step
from accord.workflows.executors import Result
from accord.workflows.members import PLACE, Member

KEPT = 1024 * 1024
"""Characters of an answer that later steps get. The artifacts of its own task are complete."""

RESULT = "result"
"""The artifact with the output of a workflow run."""

GUARDS: Mapping[str, str] = {
    "lead": "You lead: you decide how the task is done, and answer for its result.",
    "worker": "You work alone and nobody is there to ask: do the task yourself, start no other agents, and print its "
    "result at the end.",
    "reviewer": "You review: change no files. Say what is wrong and where, and end with one line that consists of the "
    "word REVIEW_DECISION, a colon, and APPROVE or REJECT.",
    "analyst": "You analyse: change no files. Read what you need, and print what you found.",
}
"""Preset -> the first paragraph of its prompts."""


def member_prompt(member: Member, step: Step, task: str) -> str:
    """Return the prompt of a member."""
    agent = member.agent
    if agent.is_a2a:
        return task
    is_model = agent.cli == "api"
    parts = [
        f"You are: {agent.role}" if agent.role and not is_model else "",
        GUARDS.get(agent.preset or "", ""),
        agent.skills if agent.skills and not is_model else "",
        permissions.describe_permissions(member.permissions),
        f"You may also use these directories: {', '.join(agent.additional_paths)}" if agent.additional_paths else "",
        verification.without_markers(task) if member.is_interactive else task,
        verification.completion_prompt(step.name) if member.is_interactive else "",
    ]
    return "\n\n".join(part for part in parts if part)


def child_message(
    member: Member,
    step: Step,
    task: str,
    *,
    id: str,
    run_id: str,
    directory: Path,
    env: Mapping[str, str] | None = None,
) -> Message:
    """Return the message that starts the child task of a step.

    Steps that share a context are one conversation with that agent for the duration of the run.
    """
    shares = member.agent.share_context if step.share_context is None else step.share_context
    place = {PLACE: {"directory": str(directory), "env": dict(env or {})}}
    return Message(
        message_id=id,
        role=Role.USER,
        parts=(Part(text=member_prompt(member, step, task)),),
        context_id=f"{run_id}/{member.agent.name}" if shares else None,
        metadata=None if member.agent.is_a2a else place,
    )


def child_result(member: Member, task: Task) -> Result:
    """Return the result of an ended child task."""
    text = text_of(_without_last_word(task))
    if len(text) > KEPT:
        text = f"{text[:KEPT]}\n...(truncated)"
    if task.status.state is TaskState.COMPLETED:
        return Result(ok=True, output=text, exit_code=0)
    why = text or f"the task is {task.status.state.name.lower()}"
    error = f"A2A agent failed: {why}" if member.agent.is_a2a else why
    return Result(ok=False, output=text, error=error)


def workflow_output(run: Task) -> str:
    """Return the output of a workflow run. Its other artifacts, such as the trajectory, are not part of it."""
    return text_of(replace(run, artifacts=tuple(one for one in run.artifacts if one.artifact_id == RESULT)))


def workflow_failure(run: Task) -> str:
    """Return why a workflow run failed."""
    return "" if run.status.message is None else text_of(run.status.message)


def require_output(step: Step, result: Result, task: Task) -> Result:
    """Return a result; failed if the agent ended well and left no text, files or proof."""
    is_proven = result.reason not in (None, "completed_by_process_exit")
    if not result.ok or is_proven or step.allow_empty or result.output.strip() or _has_files(task):
        return result
    error = "The agent's answer is empty: if that is right, add `allowEmpty: true` to the step"
    return replace(result, ok=False, reason="failed_no_evidence", error=error)


def _has_files(task: Task) -> bool:
    """Whether a task has a file in an artifact, in its status or in the last message of its agent."""
    messages = [task.status.message, *(one for one in task.history[-1:] if one.role is Role.AGENT)]
    parts = [*(one.parts for one in task.artifacts), *(one.parts for one in messages if one is not None)]
    return any(part.text is None for one in parts for part in one)


def has_exited(task: Task) -> bool:
    """Whether the process of a task exited by itself, and was not ended for its silence."""
    said = task.status.message
    return task.status.state is TaskState.COMPLETED and not (said is not None and SILENCE_KEY in (said.metadata or {}))


def _without_last_word(task: Task) -> Task:
    return (
        task
        if has_exited(task) or task.status.state is not TaskState.COMPLETED
        else replace(task, status=replace(task.status, message=None))
    )
