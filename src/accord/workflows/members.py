"""Members of a workflow: the agents that execute its steps as child tasks, their prompts and results.

The server hosts them with the workflow and does not serve them. Only a run can give them tasks, so a task may name the
directory of its member. A remote agent gets only the task. The prompt of a command line agent also contains its role,
its permissions and how to finish.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from accord.agents.command_environment import document_variables
from accord.agents.process import SILENCE_KEY
from accord.agents.process.workspace import Placement
from accord.agents.remote import RemoteTerms, ReportMode
from accord.api import Agent, Context
from accord.api.agent_types import AgentArguments
from accord.client.credentials import KeyManager, Keys
from accord.client.text import text_of
from accord.model import Message, Part, Role, Task, TaskState
from accord.workflows import permissions, verification
from accord.workflows.agent_access import (
    ROWS,
    cli_arguments,
    cli_variables,
    connector_for,
    credential_for,
    fill_secrets,
)
from accord.workflows.agent_definition import A2A_SECONDS, AgentDef, Permissions
from accord.workflows.document import IdleNudge, Step
from accord.workflows.executors import Result
from accord.workflows.plan import Plan

PLACE = "workflow"
"""Metadata key of the directory and the variables that a run sends to a member with the task."""

HEADLESS = frozenset({"worker", "reviewer", "analyst"})
"""Presets that never use a terminal."""

MAX_GRACE = 60.0

_MODES: Mapping[str, ReportMode] = {
    "auto": ReportMode.AUTO,
    "stream": ReportMode.SUBSCRIBE,
    "poll": ReportMode.POLL,
    "push": ReportMode.PUSH,
}

PROVIDERS: tuple[tuple[str, str, str], ...] = (
    ("claude", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1"),
    ("gemini", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/openai"),
    ("", "OPENAI_API_KEY", "https://api.openai.com/v1"),
)
"""Prefix of a model's name, variable with the API key, and base URL, for `cli: api`."""

BASE_URL = "OPENAI_BASE_URL"


class Member(Struct, frozen=True, kw_only=True):
    """A member: its agent with the overrides of a step, and the document's settings for all agents."""

    agent: AgentDef
    permissions: Permissions = Permissions()
    idle_nudge: IdleNudge | None = None
    grace: float = 5.0
    on_crash: str | None = None

    @property
    def is_interactive(self) -> bool:
        """Whether it works in a terminal and does not exit by itself."""
        return is_interactive(self.agent)


def is_interactive(agent: AgentDef) -> bool:
    """Whether an agent works in a terminal. By default a coding agent does, and any other command does not."""
    if agent.is_a2a or agent.cli == "api" or agent.preset in HEADLESS:
        return False
    if agent.interactive is not None:
        return agent.interactive
    return agent.command is None or agent.preset == "lead"


# --- definitions ------------------------------------------------------------------------------------------------------


def define_members(plan: Plan) -> dict[str, Member]:
    """Return all members of a plan by name."""
    defined = {f"{plan.name}/{agent.name}": _member(plan, agent) for agent in plan.agents}
    for step in steps_of(plan.steps):
        if (member := member_for(plan, step)) is not None:
            defined[member_of(plan, step)] = member
    return defined


def member_of(plan: Plan, step: Step) -> str:
    """Return the name of the member that executes a step. A step with overrides has a member of its own."""
    agent, member = plan.agent(step.agent), member_for(plan, step)
    if agent is not None and member == _member(plan, agent):
        return f"{plan.name}/{agent.name}"
    return f"{plan.name}/{step.agent or ''}.{plan.workflow}.{_own_name(step)}"


def member_for(plan: Plan, step: Step) -> Member | None:
    """Return the member that executes a step; None for a step without an agent."""
    agent = plan.agent(step.agent)
    if step.row.is_remote or (agent is not None and agent.is_a2a):
        return _member(plan, _with_overrides(agent or AgentDef(name=_own_name(step), runtime="a2a"), step))
    if not step.row.has_prompt or agent is None:
        return None
    if step.permissions is not None:
        agent = replace(agent, permissions=step.permissions)
    return replace(_member(plan, agent), on_crash=step.on_crash)


def steps_of(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Yield steps and the inner steps of maps. As in a run, an inner step has the name of its map."""
    for step in steps:
        yield step
        if step.step is not None:
            yield from steps_of((replace(step.step, name=step.name),))


def _own_name(step: Step) -> str:
    """Return a step's name without the index of a map item."""
    return step.name.partition("[")[0]


def _with_overrides(agent: AgentDef, step: Step) -> AgentDef:
    """Return an agent with the overrides of a step (C-16)."""
    return replace(
        agent,
        url=step.url or agent.url,
        headers={**agent.headers, **step.headers},
        credentials=step.credentials or agent.credentials,
        timeout=step.timeout or agent.timeout,
        streaming=agent.streaming if step.streaming is None else step.streaming,
        mode=step.mode or agent.mode,
    )


def _member(plan: Plan, agent: AgentDef) -> Member:
    if agent.is_a2a:
        return Member(agent=replace(agent, timeout=agent.timeout or A2A_SECONDS))
    return Member(
        agent=replace(agent, env={**plan.env, **agent.env}) if plan.env else agent,
        permissions=permissions.resolve_permissions(agent.permissions, plan.permission_profiles),
        idle_nudge=plan.idle_nudge,
        grace=min(plan.completion_grace_period, MAX_GRACE),
    )


# --- agents -----------------------------------------------------------------------------------------------------------


def make_member_agent(name: str, member: Member, env: Mapping[str, str], keys: Keys | None = None) -> Agent:
    """Return the agent of a member. `env` is the server's environment; the agent gets the variables it names.

    Raises ValueError if the member is not valid, and KeyManagementError.
    """
    keys = keys or KeyManager(env=env)
    if member.agent.is_a2a:
        return _remote(name, member.agent, document_variables(env), keys)
    if member.agent.cli == "api":
        return _model(name, member.agent, env, keys)
    return _process(name, member, document_variables(env), keys)


def _process(name: str, member: Member, env: Mapping[str, str], keys: Keys) -> Agent:
    from accord.agents.process import ProcessAgent, ProcessOptions

    agent, limits = member.agent, member.agent.constraints
    if agent.command is None and agent.cli is None:
        raise ValueError(f"the agent {agent.name} has neither a cli nor a command")
    row = None if agent.command is not None else ROWS[agent.cli or ""]
    what: dict[str, Any] = {"command": agent.command, "allow_interpreter": agent.allow_interpreter}
    if row is not None:
        access, directories = member.permissions.access, agent.additional_paths
        args = cli_arguments(row, model=limits.model, access=access, directories=directories)
        what = {"preset": row.preset, "path": row.path, "args": args}
    options = ProcessOptions(
        **what,
        **(_idle_options(member) if member.is_interactive else {}),
        done=agent.done or (verification.DONE if member.is_interactive else None),
        grace=member.grace,
        env={
            **cli_variables(row, limits.model),
            **{key: fill_secrets(value, env, keys) for key, value in agent.env.items()},
        },
        pass_env=() if row is None else tuple(row.own),
        max_tokens=limits.max_tokens,
        max_cost=limits.max_cost,
        on_crash=member.on_crash,  # type: ignore[arg-type]  # one of its words
        description=agent.role,
    )
    return ProcessAgent(AgentArguments(options=options, name=name, env=env), placing=placing)


def _idle_options(member: Member) -> dict[str, Any]:
    """Return the settings for silence in a terminal: reminders if the document has them, otherwise the end."""
    nudge, idle = member.idle_nudge, member.agent.constraints.idle_threshold
    common = {"mode": "pty", "on_idle": "finish"}
    if nudge is None:
        return {**common, "nudge_after": idle or None, "nudges": 0}
    return {
        **common,
        "nudge_after": nudge.nudge_after or None,
        "escalate_after": nudge.escalate_after or None,
        "nudges": nudge.max_nudges,
    }


def placing(ctx: Context) -> Placement | None:
    """Return the directory and variables that the run sent with the task."""
    place = (ctx.history[0].metadata or {}).get(PLACE) if ctx.history else None
    if not isinstance(place, dict) or "directory" not in place:
        return None
    return Placement(directory=Path(place["directory"]), env=place.get("env") or {})


def _model(name: str, agent: AgentDef, env: Mapping[str, str], keys: Keys) -> Agent:
    from accord.agents.chat import ChatAgent
    from accord.agents.chat_apis import ChatOptions

    model = agent.constraints.model
    if model is None:
        raise ValueError(f"the agent {agent.name} is a model behind an API: say which, as constraints.model")
    begins = ((variable, url) for start, variable, url in PROVIDERS if model.startswith(start))
    variable, url = next(((one, at) for one, at in begins if one in env), (None, None))
    named = document_variables(env)
    stated = fill_secrets(agent.url, named, keys) if agent.url else env.get(BASE_URL)
    base_url = stated or url or ChatOptions(model=model).base_url
    credential = None if agent.credentials is None else credential_for(agent.credentials, keys, base_url)
    key = (credential.bearer or credential.api_key) if credential else env.get(variable or "")
    options = ChatOptions(
        model=model,
        base_url=base_url,
        api_key=key,
        headers={header: fill_secrets(value, named, keys, base_url) for header, value in agent.headers.items()},
        system_prompt="\n\n".join(filter(None, (agent.role and f"You are: {agent.role}", agent.skills))) or None,
        max_tokens=agent.constraints.max_tokens,
        max_cost=agent.constraints.max_cost,
        description=agent.role,
    )
    return ChatAgent(AgentArguments(options=options, name=name, env=env))


def _remote(name: str, agent: AgentDef, env: Mapping[str, str], keys: Keys) -> Agent:
    from accord.agents.remote.agent import RemoteAgent

    seconds = agent.timeout or A2A_SECONDS
    sends = max(
        1, min(RemoteTerms().sends, int(seconds + 1).bit_length() - 1)
    )  # so that it fails in time, with the reason
    terms = RemoteTerms(mode=mode_of(agent), sla_seconds=seconds, answer_seconds=seconds, sends=sends)
    return RemoteAgent(agent.url or "", name=name, terms=terms, connect=connector_for(agent, env, keys))


def mode_of(agent: AgentDef) -> ReportMode:
    """Return how results of a remote agent arrive: by default as it offers, otherwise as the document says."""
    if agent.mode is not None:
        return _MODES[agent.mode]
    if agent.streaming is None:
        return ReportMode.FOLLOW
    return ReportMode.SUBSCRIBE if agent.streaming else ReportMode.POLL


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
    return text_of(
        replace(run, artifacts=tuple(artifact for artifact in run.artifacts if artifact.artifact_id == RESULT))
    )


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
    parts = [
        *(artifact.parts for artifact in task.artifacts),
        *(message.parts for message in messages if message is not None),
    ]
    return any(part.text is None for one in parts for part in one)


def has_exited(task: Task) -> bool:
    """Whether the process of a task exited by itself, and was not ended for its silence."""
    message = task.status.message
    was_silenced = message is not None and SILENCE_KEY in (message.metadata or {})
    return task.status.state is TaskState.COMPLETED and not was_silenced


def _without_last_word(task: Task) -> Task:
    return (
        task
        if has_exited(task) or task.status.state is not TaskState.COMPLETED
        else replace(task, status=replace(task.status, message=None))
    )
