"""What a step does not say itself: its agent, its workflow and the document's error handling say it, field by field.

Only what is not said is filled in, and nothing is judged. `planning` calls it for every step, also for those that a
pattern has added.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from accord.engine.agent import Approvals
from accord.workflows.document import A2A_SECONDS, AgentDef, Document, Step, Workflow
from accord.workflows.expressions import BadExpression
from accord.workflows.templates import renamed_in

RETRIES = 2
RETRY_DELAY = 1.0
"""How often, and after how many seconds, steps are tried again with the strategy `retry`: as agent-relay does."""

WORKING = frozenset({"agent", "a2a", "deterministic", "worktree"})
"""Types of steps that can be tried again by themselves."""

_OF_AGENT = ("credentials", "streaming", "mode", "task")
_OF_ITEMS = ("retries", "retry_delay", "backoff")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def typed(step: Step, agent: AgentDef | None) -> Step:
    """Return a step that says its type: who names an agent elsewhere, or a URL, has one of the type a2a."""
    kind = step.type or ("a2a" if step.url or (agent is not None and agent.is_a2a) else "agent")
    return replace(step, type=kind)


def merged(step: Step, document: Document, workflow: Workflow, base: Path, env: Mapping[str, str]) -> Step:
    """Return a step with everything that applies to it."""
    agent = document.agent(step.agent) if step.agent else None
    new: dict[str, Any] = {"depends_on": step.depends_on or ()}
    if agent is not None and step.type in ("agent", "a2a"):
        new |= _of_agent(step, agent)
    timeout = new.get("timeout", step.timeout)
    if timeout is None and step.type == "a2a":
        new["timeout"] = A2A_SECONDS
    new |= _of_errors(step, document, workflow, agent)
    new |= _place(step, agent, document, base, env)
    if step.step is not None:
        item = _item(step, new["on_error"], document)
        new["step"] = merged(item, document, replace(workflow, on_error=None), base, env)
        new |= {name: None for name in _OF_ITEMS}
    return replace(step, **new)


def ruled(step: Step, approvals: Approvals) -> Step:
    """Return a step with what the server demands of approvals: a step may demand more, and never less."""
    if step.step is not None:
        return replace(step, step=ruled(step.step, approvals))
    if step.kind != "approval":
        return step
    return replace(
        step,
        approvers=step.approvers or approvals.approvers,
        not_by_starter=step.not_by_starter or approvals.not_by_starter,
    )


def _of_agent(step: Step, agent: AgentDef) -> dict[str, Any]:
    new: dict[str, Any] = {name: getattr(agent, name) for name in _OF_AGENT if getattr(step, name) is None}
    if step.type == "a2a":
        new["url"] = step.url or agent.url
        new["share_context"] = agent.share_context if step.share_context is None else step.share_context
        new["headers"] = _headers(agent.headers, step.headers)
    if step.timeout is None:
        new["timeout"] = agent.constraints.timeout if agent.timeout is None else agent.timeout
    # what names a variable or a credential is filled in where the command is called, and not written down with a run
    new["env"] = {**{name: value for name, value in agent.env.items() if "${" not in value}, **step.env}
    return new


def _headers(of_agent: Mapping[str, str], of_step: Mapping[str, str]) -> dict[str, str]:
    said = {name.lower() for name in of_step}
    return {**{name: value for name, value in of_agent.items() if name.lower() not in said}, **of_step}


def _of_errors(step: Step, document: Document, workflow: Workflow, agent: AgentDef | None) -> dict[str, Any]:
    handling = document.error_handling
    new: dict[str, Any] = {"on_error": step.on_error or workflow.on_error}
    if step.type not in WORKING and not step.is_added:
        return new
    retries, delay = step.retries, step.retry_delay
    if retries is None and agent is not None:
        retries = agent.constraints.retries
    if handling is not None and (handling.strategy == "retry" or new["on_error"] == "retry"):
        retries = (RETRIES if handling.max_retries is None else handling.max_retries) if retries is None else retries
        delay = (RETRY_DELAY if handling.retry_delay is None else handling.retry_delay) if delay is None else delay
    new |= {"retries": retries, "retry_delay": delay}
    if step.backoff is None and handling is not None:
        new["backoff"] = handling.backoff
    return new


def _item(step: Step, on_error: str | None, document: Document) -> Step:
    """Return the step of a map's items with what the map says of trying again: it is they who are tried again."""
    assert step.step is not None
    inner = typed(step.step, document.agent(step.step.agent or ""))
    inner = replace(inner, set={key: _of_itself(text, inner.name, step.name) for key, text in inner.set.items()})
    said: dict[str, Any] = {name: getattr(step, name) for name in _OF_ITEMS if getattr(inner, name) is None}
    if on_error == "retry" and inner.on_error is None:
        said["on_error"] = on_error
    return replace(inner, name=step.name, **said)


def _of_itself(text: str, name: str, known_as: str) -> str:
    """Return a text in which a step speaks of itself by the name that it has in a plan."""
    try:
        return renamed_in(text, {name: known_as})
    except BadExpression:
        return text  # `resolving` says it


# --- places -----------------------------------------------------------------------------------------------------------


def _place(
    step: Step, agent: AgentDef | None, document: Document, base: Path, env: Mapping[str, str]
) -> dict[str, Any]:
    """Return where a step works: where it or its agent says, a path of the document by its name."""
    for said in (step, agent):
        if said is None:
            continue
        if said.cwd is not None:
            return {"cwd": said.cwd, "workdir": None}
        if said.workdir is not None:
            path = next((path for path in document.paths if path.name == said.workdir), None)
            return {"cwd": str(placed(path.path, base, env)) if path else said.workdir, "workdir": None}
    return {}


def placed(path: str, base: Path, env: Mapping[str, str]) -> Path:
    """Return a path of a document: variables of the environment in it are replaced, and it begins beside the file."""
    text = _VARIABLE.sub(lambda found: env.get(found[1] or found[2], found[0]), path)
    return base / os.path.expanduser(text)
