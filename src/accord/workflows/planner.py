"""Make the plan of a run from a document: custom steps, defaults, patterns.

Everything that can be refused before a run starts is refused here, including a file that includes itself. `validation`
reports problems that do not concern this run.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from accord.workflows.agent_definition import A2A_SECONDS, AgentDef
from accord.workflows.document import Barrier, CustomStep, Document, Step, Workflow
from accord.workflows.expressions import (
    BadExpression,
    Both,
    Constant,
    Expression,
    Filtered,
    FunctionCall,
    Name,
    Not,
    Placeholder,
    renamed_in,
    rendered,
    split_template,
)
from accord.workflows.findings import BadDocument, DocumentFinding, make_finding
from accord.workflows.functions import as_text, nearest
from accord.workflows.members import steps_of
from accord.workflows.pattern_roles import Cast, Misfit, turn
from accord.workflows.pattern_rounds import looped
from accord.workflows.patterns import PATTERNS, choose_pattern
from accord.workflows.plan import Plan, check_references, inputs_of, outlined, resolve_references, vars_of
from accord.workflows.source import load_document, read_step, read_steps, tree_of
from accord.workflows.yaml_nodes import read_text

FILES = (".relay/steps.yaml", ".accord/steps.yaml")
"""Files with custom steps, relative to a document. The last one overrides, and the document's own override all."""

MAX_DEPTH = 8
"""Maximum depth of custom steps that use each other."""


def load_custom_steps(base: Path) -> dict[str, CustomStep]:
    """Return the custom steps in the directory of a document; raises BadDocument."""
    steps: dict[str, CustomStep] = {}
    for name in FILES:
        if (path := base / name).is_file():
            steps |= read_steps(read_text(path), str(path))
    return steps


def expand_custom_step(step: Step, steps: Mapping[str, CustomStep], depth: int = 0) -> Step:
    """Return a step with its custom step expanded; raises BadDocument."""
    if step.use is None:
        return step
    if step.use not in steps:
        fix = f"there is none{nearest(step.use, steps)}" if steps else "write one below `steps`"
        raise bad_document("UNKNOWN_CUSTOM_STEP", f"step {step.name!r} uses {step.use!r}", fix)
    if depth == MAX_DEPTH:
        raise bad_document(
            "UNKNOWN_CUSTOM_STEP", f"step {step.name!r} uses {step.use!r}, which uses itself", "end the circle"
        )
    own = steps[step.use]
    given = _parameters(step, own)
    members = {key: value for key, value in tree_of(step).items() if key not in ("use", "with")}
    return expand_custom_step(read_step({**_with_parameters(own.step, given), **members}), steps, depth + 1)


def _parameters(step: Step, own: CustomStep) -> dict[str, Any]:
    names = [param.name for param in own.params]
    problems: list[DocumentFinding] = []
    for name in step.with_:
        if name not in names:
            fix = f"there is no such parameter{nearest(name, names)}" if names else "it has no parameters"
            problems.append(
                make_finding("BAD_PARAMS", f"step {step.name!r} gives {step.use!r} the parameter {name!r}", fix)
            )
    given = {param.name: step.with_.get(param.name, getattr(step, param.name, None)) for param in own.params}
    for param in own.params:
        if param.required and param.default is None and given[param.name] is None:
            what = f" ({param.description})" if param.description else ""
            message = f"step {step.name!r} does not give {step.use!r} its {param.name!r}{what}"
            problems.append(make_finding("BAD_PARAMS", message, "add it to `with`"))
    if problems:
        raise BadDocument(problems)
    return {param.name: param.default if given[param.name] is None else given[param.name] for param in own.params}


def bad_document(code: str, message: str, fix: str) -> BadDocument:
    """Return the error for one finding without a position."""
    return BadDocument([make_finding(code, message, fix)])


# --- parameters in texts ----------------------------------------------------------------------------------------------


def _with_parameters(tree: Any, given: Mapping[str, Any]) -> Any:
    if isinstance(tree, Mapping):
        return {key: _with_parameters(value, given) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_with_parameters(value, given) for value in tree]
    if not isinstance(tree, str) or "{{" not in tree:
        return tree
    pieces = split_template(tree)
    match pieces:
        case (Placeholder(node=Name((name,))),) if name in given:
            return "" if given[name] is None else given[name]
    return "".join(
        piece if isinstance(piece, str) else f"{{{{{rendered(_replaced(piece.node, given))}}}}}" for piece in pieces
    )


def _replaced(node: Expression, given: Mapping[str, Any]) -> Expression:
    match node:
        case Name((name, *rest)) if name in given:
            return _value(given[name], rest)
        case FunctionCall(function, arguments):
            return FunctionCall(function, tuple(_replaced(part, given) for part in arguments))
        case Filtered(inner, name, arguments):
            return Filtered(_replaced(inner, given), name, tuple(_replaced(part, given) for part in arguments))
        case Not(inner):
            return Not(_replaced(inner, given))
        case Both(sign, left, right):
            return Both(sign, _replaced(left, given), _replaced(right, given))
    return node


def _value(value: Any, rest: list[str]) -> Expression:
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        parts: list[Expression] = []
        for piece in split_template(value):
            parts += [piece.node] if isinstance(piece, Placeholder) else _constants(piece)
        return parts[0] if len(parts) == 1 else FunctionCall("text", tuple(parts)) if parts else Constant("")
    return Constant(value if isinstance(value, bool | int | float) or value is None else as_text(value))


def _constants(text: str) -> list[Expression]:
    """Return a text as constants. No constant can have both kinds of quotes, so the text is split at double quotes."""
    pieces = [piece for part in text.split('"') for piece in (part, '"')][:-1]
    return [Constant(piece) for piece in pieces if piece]


RETRIES = 2
RETRY_DELAY = 1.0
"""Number of retries and delay in seconds with the strategy `retry`, as in agent-relay."""

_OF_AGENT = ("credentials", "streaming", "mode", "task")
_OF_ITEMS = ("retries", "retry_delay", "backoff")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def with_type(step: Step, agent: AgentDef | None) -> Step:
    """Return a step with its type. A step with an A2A agent or a URL has the type a2a."""
    kind = step.type or ("a2a" if step.url or (agent is not None and agent.is_a2a) else "agent")
    return replace(step, type=kind)


def with_defaults(step: Step, document: Document, workflow: Workflow, base: Path, env: Mapping[str, str]) -> Step:
    """Return a step with all its defaults."""
    agent = document.agent(step.agent) if step.agent else None
    new: dict[str, Any] = {"depends_on": step.depends_on or ()}
    if agent is not None and step.row.has_prompt:
        new |= _of_agent(step, agent)
    timeout = new.get("timeout", step.timeout)
    if timeout is None and step.row.is_remote:
        new["timeout"] = A2A_SECONDS
    new |= _of_errors(step, document, workflow, agent)
    new |= _directory(step, agent, document, base, env)
    if step.step is not None:
        item = _map_item(step, new["on_error"], document)
        new["step"] = with_defaults(item, document, replace(workflow, on_error=None), base, env)
        new |= {name: None for name in _OF_ITEMS}
    return replace(step, **new)


def _of_agent(step: Step, agent: AgentDef) -> dict[str, Any]:
    new: dict[str, Any] = {name: getattr(agent, name) for name in _OF_AGENT if getattr(step, name) is None}
    if step.row.is_remote:
        new["url"] = step.url or agent.url
        new["share_context"] = agent.share_context if step.share_context is None else step.share_context
        new["headers"] = _headers(agent.headers, step.headers)
    if step.timeout is None:
        new["timeout"] = agent.constraints.timeout if agent.timeout is None else agent.timeout
    # variables and credentials are filled in when the command is called, and not stored with a run
    new["env"] = {**{name: value for name, value in agent.env.items() if "${" not in value}, **step.env}
    return new


def _headers(of_agent: Mapping[str, str], of_step: Mapping[str, str]) -> dict[str, str]:
    overridden = {name.lower() for name in of_step}
    return {**{name: value for name, value in of_agent.items() if name.lower() not in overridden}, **of_step}


def _of_errors(step: Step, document: Document, workflow: Workflow, agent: AgentDef | None) -> dict[str, Any]:
    handling = document.error_handling
    new: dict[str, Any] = {"on_error": step.on_error or workflow.on_error}
    if not step.row.is_retryable:
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


def _map_item(step: Step, on_error: str | None, document: Document) -> Step:
    """Return the step of a map's items with the retries of the map, because the items are retried and not the map."""
    assert step.step is not None
    inner = with_type(step.step, document.agent(step.step.agent or ""))
    inner = replace(inner, set={key: _renamed_self(text, inner.name, step.name) for key, text in inner.set.items()})
    inherited: dict[str, Any] = {name: getattr(step, name) for name in _OF_ITEMS if getattr(inner, name) is None}
    if on_error == "retry" and inner.on_error is None:
        inherited["on_error"] = on_error
    return replace(inner, name=step.name, **inherited)


def _renamed_self(text: str, name: str, known_as: str) -> str:
    """Return a text in which a step refers to itself by its name in the plan."""
    try:
        return renamed_in(text, {name: known_as})
    except BadExpression:
        return text  # `plan` reports it


# --- directories ------------------------------------------------------------------------------------------------------


def _directory(
    step: Step, agent: AgentDef | None, document: Document, base: Path, env: Mapping[str, str]
) -> dict[str, Any]:
    """Return the directory of a step, from the step or its agent. A named path is resolved."""
    for holder in (step, agent):
        if holder is None:
            continue
        if holder.cwd is not None:
            return {"cwd": holder.cwd, "workdir": None}
        if holder.workdir is not None:
            path = next((path for path in document.paths if path.name == holder.workdir), None)
            return {"cwd": str(resolve_path(path.path, base, env)) if path else holder.workdir, "workdir": None}
    return {}


def resolve_path(path: str, base: Path, env: Mapping[str, str]) -> Path:
    """Return a path of a document, relative to its file, with variables of the environment filled in."""
    text = _VARIABLE.sub(lambda found: env.get(found[1] or found[2], found[0]), path)
    return base / os.path.expanduser(text)


MAIN = "main"
"""The name of the workflow of a document that has only agents."""

REPAIRS = 2
"""Default number of repair attempts, as in agent-relay."""


def make_plan(
    document: Document,
    workflow: str | None = None,
    vars: Mapping[str, Any] | None = None,
    input: str | None = None,
    *,
    base: Path,
    env: Mapping[str, str] | None = None,
    is_outline: bool = False,
) -> Plan:
    """Return the plan for a workflow, by default the first of the document; raises BadDocument.

    `vars` are variables and inputs by name. `base` is the base of relative paths. `env` must contain the variables of
    `${NAME}` and `{{env.NAME}}`. An outline is planned without the inputs and variables that only a run has.
    """
    env = os.environ if env is None else env
    text = input or ""
    one = _workflow(document, workflow)
    given, pending = outlined(document, vars or {}) if is_outline else (vars or {}, None)
    inputs, problems = inputs_of(document, given, text)
    if problems:
        raise BadDocument(problems)
    variables, problems = vars_of(document, given, text, inputs, pending=pending or ())
    if problems:
        raise BadDocument(problems)
    pattern, steps = _expanded_steps(document, one, base)
    steps = _with_rounds([with_defaults(step, document, one, base, env) for step in steps])
    handling = document.error_handling
    plan = Plan(
        name=document.name,
        workflow=one.name,
        directory=str(base),
        pattern=pattern,
        steps=tuple(steps),
        barriers=_barriers(document, steps),
        agents=document.permitted,
        env=document.env,
        permission_profiles=document.profiles,
        max_concurrency=document.swarm.max_concurrency,
        timeout=document.swarm.timeout,
        token_budget=document.swarm.token_budget,
        cost_budget=document.swarm.cost_budget,
        strategy="fail-fast" if handling is None else handling.strategy,
        notify_channel=None if handling is None else handling.notify_channel,
        repair_agent=None if handling is None else handling.repair_agent,
        repair_retries=_repairs(document),
        channel=document.swarm.channel,
        idle_nudge=document.swarm.idle_nudge,
        completion_grace_period=document.swarm.completion_grace_period,
        preflight=one.preflight,
        output=one.output,
        input=text,
        inputs=inputs,
        vars=variables,
        state=document.state,
        trajectories=document.trajectories,
    )
    if wrong := check_references(plan, document, env, pending):
        raise BadDocument(wrong)
    return resolve_references(plan)


def _workflow(document: Document, name: str | None) -> Workflow:
    one = document.workflow(name)
    if one is not None:
        return one
    names = [workflow.name for workflow in document.workflows]
    if names:
        raise bad_document(
            "UNKNOWN_WORKFLOW", f"there is no workflow {name!r}", nearest(name or "", names).lstrip("; ")
        )
    if name not in (None, MAIN) or not document.agents:
        raise bad_document(
            "UNKNOWN_WORKFLOW", "the document has no workflow", "write one below `workflows`, or agents with tasks"
        )
    steps = tuple(turn(agent, agent.name, agent.task or "{{input}}") for agent in document.agents)
    return Workflow(name=MAIN, steps=steps)


def _expanded_steps(document: Document, one: Workflow, base: Path) -> tuple[str, list[Step]]:
    own = {**load_custom_steps(base), **document.steps}
    steps = [expand_custom_step(step, own) for step in one.steps]
    steps = [with_type(step, document.agent(step.agent or "")) for step in steps]
    cast = Cast(steps, document.agents, document.coordination)
    pattern = document.swarm.pattern or choose_pattern(cast)
    if pattern not in PATTERNS:
        fix = f"there is none of that name{nearest(pattern, PATTERNS)}"
        raise bad_document("UNKNOWN_PATTERN", f"the pattern is {pattern!r}", fix)
    try:
        return pattern, PATTERNS[pattern].expand(cast)
    except Misfit as error:
        raise bad_document(
            "WRONG_CAST", f"the pattern {pattern} does not fit: {error}", "add it, or choose another"
        ) from None
    except BadExpression as error:
        raise bad_document("BAD_TEMPLATE", str(error), "correct it") from None


def _with_rounds(steps: list[Step]) -> list[Step]:
    unrolled: list[Step] = []
    for step in steps:
        if step.max_iterations is None:
            unrolled.append(step)
            continue
        if step.until is None and step.verification is not None:  # as in agent-relay: until it is verified
            unrolled.append(replace(step, max_iterations=None, retries=max(step.retries or 0, step.max_iterations - 1)))
            continue
        if step.until is None:
            fix = f"add `verification`, or `until: vote({step.name}) == 'APPROVE'` or another condition on its output"
            raise bad_document(
                "MISSING_MEMBER", f"step {step.name!r} has maxIterations and does not say until when", fix
            )
        try:
            unrolled += looped([step], step.until, step.max_iterations, (step.name,))
        except BadExpression as error:
            raise bad_document("BAD_TEMPLATE", f"step {step.name!r}: {error}", "correct it") from None
    return unrolled


def _barriers(document: Document, steps: list[Step]) -> tuple[Barrier, ...]:
    """Return the barriers of a workflow. The document's coordination may contain barriers of other workflows."""
    names = {step.name for step in steps}
    return tuple(barrier for barrier in document.coordination.barriers if names & set(barrier.wait_for))


def _repairs(document: Document) -> int:
    handling = document.error_handling
    if handling is None or handling.repair_agent is None:
        return 0
    return REPAIRS if handling.repair_retries is None else handling.repair_retries


def includes_itself(file: Path) -> bool:
    """Whether a file includes itself, also indirectly. A file that cannot be read does not."""
    return _includes(file.resolve(), (), set())


def _includes(file: Path, above: tuple[Path, ...], clear: set[Path]) -> bool:
    if file in above:
        return True
    if file in clear:
        return False
    try:
        document = load_document(file)
    except (BadDocument, OSError):
        return False  # reported when the file is read
    is_cyclic = any(_includes((file.parent / inner).resolve(), (*above, file), clear) for inner in _files_of(document))
    clear.add(file)
    return is_cyclic


def _files_of(document: Document) -> list[str]:
    steps = (step for workflow in document.workflows for step in steps_of(workflow.steps))
    return [step.file for step in steps if step.kind == "workflow" and step.file is not None]
