"""The plan of a run: its inputs and variables, and the check that its references resolve.

A plan is plain data in which everything that can be resolved before a run is resolved. It is stored with its run and
contains names of secrets, never secrets. References are checked by name and order, because steps have no values yet. A
given value is never a template, only the document's own variables are.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from accord.workflows.agent_definition import AgentDef, Permissions
from accord.workflows.document import (
    Barrier,
    Document,
    IdleNudge,
    Input,
    Preflight,
    SharedState,
    Step,
    Trajectories,
    Verification,
)
from accord.workflows.expressions import ROOTS, BadExpression, references, texts_in
from accord.workflows.findings import DocumentFinding, make_finding
from accord.workflows.references import (
    Edges,
    Scope,
    TemplatedText,
    events_of,
    find_cycle,
    is_variable_reference,
    step_texts,
    unknown_name_fix,
)
from accord.workflows.values import Unresolved, UnsafeCommand, Values, check_argv, check_command, output_variable


class Plan(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The steps of a run, each with its type, dependencies and the defaults of its agent. Nothing is left to look up.

    `directory` is the base of relative paths. `steps` includes those that the pattern adds, in the order of the file.
    """

    name: str
    workflow: str
    directory: str
    steps: tuple[Step, ...]
    pattern: str = "dag"
    barriers: tuple[Barrier, ...] = ()
    agents: tuple[AgentDef, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    permission_profiles: dict[str, Permissions] = field(default_factory=dict)
    max_concurrency: int | None = None
    timeout: float | None = None
    token_budget: int | None = None
    cost_budget: float | None = None
    strategy: str = "fail-fast"
    notify_channel: str | None = None
    repair_agent: str | None = None
    repair_retries: int = 0
    channel: str | None = None
    idle_nudge: IdleNudge | None = None
    completion_grace_period: float = 5.0
    preflight: tuple[Preflight, ...] = ()
    check_agents: bool = False
    output: str | None = None
    input: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)
    vars: dict[str, Any] = field(default_factory=dict)
    state: SharedState | None = None
    trajectories: Trajectories | None = None

    def step(self, name: str) -> Step | None:
        """Return one of its steps, or None."""
        return next((step for step in self.steps if step.name == name), None)

    def agent(self, name: str | None) -> AgentDef | None:
        """Return one of its agents, or None."""
        return None if name is None else next((agent for agent in self.agents if agent.name == name), None)


VARIABLE = re.compile(r"\$\{(\w+)\}")
"""How headers and URLs name a variable of the environment, so that no secret is written down."""

_NAMED = re.compile(r"\$\{([^}]+)\}")
"""The same, or a credential."""

CODE_VARIABLE = re.compile(
    r"PATH|HOME|XDG_CONFIG_HOME|BASH_ENV|ENV|IFS|PS4|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|LD_.*|DYLD_.*|(.*_)?(EDITOR|PAGER)|VISUAL|"
    r"MANPAGER|LESSOPEN|LESSCLOSE|BROWSER|.*_ASKPASS|GIT_(SSH|SSH_COMMAND|PROXY_COMMAND|EXTERNAL_DIFF|CONFIG.*|EXEC_PATH|"
    r"TEMPLATE_DIR|DIR|COMMON_DIR|ALLOW_PROTOCOL)|NODE_(OPTIONS|PATH)|PERL5(LIB|OPT|DB)|RUBY(OPT|LIB|SHELL)|PYTHON(PATH|STARTUP|HOME|"
    r"BREAKPOINT|USERBASE|WARNINGS)|(JAVA_TOOL|JDK_JAVA|_JAVA)_OPTIONS|CLASSPATH|(GNU)?MAKE(FLAGS|FILES)|SHELL|LESS|ZDOTDIR|"
    r"(TAR|GREP)_OPTIONS|(RSYNC|CVS)_RSH|SVN_SSH|GOFLAGS|RUSTC(_WRAPPER)?|LUA_(INIT|C?PATH).*|PHPRC|WGETRC|PSQLRC|KUBECONFIG|"
    r"(JAVA|MAVEN|GRADLE|SBT|ANT)_OPTS|GH_CONFIG_DIR|GNUPGHOME|HGRCPATH|R_PROFILE.*|AWS_CONFIG_FILE|GCONV_PATH|OPENSSL_CONF|(VIM|EX)INIT|DOTNET_STARTUP_HOOKS|(?i:npm_config_.*)|BASH_FUNC_.*"
)
"""Variables that choose which programs run."""


def check_references(
    plan: Plan, document: Document, env: Mapping[str, str], pending: Collection[str] | None = None
) -> list[DocumentFinding]:
    """Return the findings for references without a value, and for an impossible order.

    `pending` has the values that only a run has, for an outline: a plan of no run yet. Variables that are given to a
    run count as known there. Addresses and headers are fixed before a run, so they read no pending value.
    """
    edges: dict[str, tuple[str, ...]] = {step.name: step.depends_on or () for step in plan.steps}
    edges |= {barrier.name: barrier.wait_for for barrier in plan.barriers}
    wrong = list(_name_findings(plan, edges))
    if not wrong and (circle := sorted(find_cycle(edges))):
        fix = "take one of them out of `dependsOn`"
        wrong.append(make_finding("CYCLE", f"these wait for each other: {', '.join(circle)}", fix))
    if wrong:
        return wrong
    known = {
        "inputs": plan.inputs,
        "vars": plan.vars,
        "env": env,
        "run": events_of(plan.steps),
        "state": {name for flow in document.workflows for one in flow.steps for name in _state_names(one)},
    }
    scope = Scope(known=known, edges=edges, names=edges)
    check = partial(_problems, pending=pending)
    for step in plan.steps:
        where, inner = f"step {step.name!r}", step.innermost
        for one, items in _within(step, frozenset()):
            wrong += check(where, step_texts(one), replace(scope, step=step.name, own=step.name, items=items))
        wrong += _agent_findings(step, plan)
        wrong += (make_finding("INJECTION_RISK", f"{where}: {error}", error.fix) for _, error in unsafe_commands(inner))
        wrong += _unset_variables(where, inner, env)
        wrong += _unfilled_findings(where, inner)
    wrong += _unfilled_findings("document", document)
    for agent in plan.agents:
        texts = [TemplatedText(("url",), agent.url or ""), *_header_texts(agent)]
        wrong += check(f"agent {agent.name!r}", texts, scope)
        wrong += _unfilled_findings(f"agent {agent.name!r}", agent)
    wrong += check("output", [TemplatedText(("output",), plan.output or "", is_own=True)], scope)
    return list(dict.fromkeys(wrong))


def _unset_variables(where: str, step: Step, env: Mapping[str, str]) -> Iterator[DocumentFinding]:
    for text in texts_in((step.url, step.headers)):
        for name in VARIABLE.findall(text):
            if name not in env:
                yield make_finding("MISSING_ENV", f"{where} uses ${{{name}}}", f"set {name} in the environment")


def _within(step: Step, items: frozenset[str]) -> Iterator[tuple[Step, frozenset[str]]]:
    """Yield a step and the steps of its maps, with the names of their items."""
    yield step, items
    if step.step is not None:
        yield from _within(step.step, items | {step.as_})


def _header_texts(agent: AgentDef) -> Iterator[TemplatedText]:
    return (TemplatedText(("headers", name), text) for name, text in agent.headers.items())


def _problems(
    where: str, texts: Iterable[TemplatedText], scope: Scope, pending: Collection[str] | None
) -> Iterator[DocumentFinding]:
    """Yield the findings for texts. An address or a header is fixed before a run and reads no pending value."""
    for text in texts:
        try:
            mentioned = text.references()
        except BadExpression as error:
            yield make_finding("BAD_TEMPLATE", f"{where}: {text.path[0]}: {error}", "correct the template")
            continue
        for reference in mentioned:
            if text.path[0] in ("url", "headers") and value_name(reference.path) in (pending or ()):
                if not reference.is_optional:
                    fix = "give the value before a run: with `--var`, or `vars` of the agent in the settings"
                    yield make_finding("NOT_FIXED", f"{where}: {reference.source} is known only during a run", fix)
            elif pending is not None and not text.is_fixed and is_variable_reference(reference):
                continue  # a run may be given it
            elif (problem := scope.problem(text, reference)) is not None:
                code, message, fix = problem
                yield make_finding(code, f"{where}: {message}", fix)


def resolve_references(plan: Plan) -> Plan:
    """Return a plan with the values of addresses, headers and event names, which are all known before a run."""
    text = Values(input=plan.input, inputs=plan.inputs, vars=plan.vars).text

    def given(holder: AgentDef | Step) -> dict[str, Any]:
        headers = {name: text(value) for name, value in holder.headers.items()}
        return {"url": None if holder.url is None else text(holder.url), "headers": headers}

    def of(step: Step) -> Step:
        event = None if step.event is None else text(step.event)
        return replace(step, step=None if step.step is None else of(step.step), event=event, **given(step))

    agents = tuple(replace(agent, **given(agent)) for agent in plan.agents)
    return replace(plan, steps=tuple(map(of, plan.steps)), agents=agents)


# --- names and order --------------------------------------------------------------------------------------------------


def _name_findings(plan: Plan, edges: Edges) -> Iterator[DocumentFinding]:
    seen: set[str] = set()
    for name in (*(step.name for step in plan.steps), *(barrier.name for barrier in plan.barriers)):
        if name in seen:
            yield make_finding(
                "DUPLICATE_NAME", f"there are two steps or barriers called {name!r}", "rename one of them"
            )
        seen.add(name)
    spelled: dict[str, str] = {}
    for step in plan.steps:
        if (other := spelled.setdefault(variable := output_variable(step.name), step.name)) != step.name:
            message = f"{step.name!r} and {other!r} are both {variable} to a command"
            yield make_finding("DUPLICATE_NAME", message, "rename one of them")
    for name, before in edges.items():
        for other in before:
            if other not in edges:
                fix = unknown_name_fix(other, edges, "name a step or a barrier of the same workflow")
                yield make_finding("UNKNOWN_DEPENDENCY", f"{name!r} waits for {other!r}", fix)


def _state_names(step: Step) -> Iterator[str]:
    yield from step.set
    if step.step is not None:
        yield from _state_names(step.step)


# --- agents, commands, the environment --------------------------------------------------------------------------------


def _agent_findings(step: Step, plan: Plan) -> Iterator[DocumentFinding]:
    inner = step.innermost
    if inner.agent is not None and plan.agent(inner.agent) is None:
        fix = unknown_name_fix(inner.agent, [agent.name for agent in plan.agents], "add it to `agents`")
        yield make_finding("UNKNOWN_AGENT", f"step {step.name!r} is for the agent {inner.agent!r}", fix)
    elif inner.row.is_remote and not inner.url:
        yield make_finding("MISSING_URL", f"step {step.name!r} has no url", "add `url` to the step or to its agent")


def unsafe_commands(step: Step) -> Iterator[tuple[tuple[str, ...], UnsafeCommand]]:
    """Yield the commands of a step in which a value could become code: the member and the error."""
    checks: list[tuple[tuple[str, ...], Callable[[], None]]] = []
    verification = step.verification
    for where, member, command in (
        ((), step, step.command),
        (("verification",), verification, _check_command(verification)),
    ):
        if member is not None and member.argv is not None:
            allowed = {"options": member.allow_options, "interpreter": member.allow_interpreter}
            checks.append(((*where, "argv"), partial(check_argv, member.argv, **allowed)))
        elif member is not None and command is not None:
            name = "value" if where else "command"
            checks.append(((*where, name), partial(check_command, command, options=member.allow_options)))
    checks += [(("env", name), partial(_check_variable, name, text)) for name, text in step.env.items()]
    for path, check in checks:
        try:
            check()
        except UnsafeCommand as error:
            yield path, error
        except BadExpression:
            continue  # reported with the text


def _check_command(check: Verification | None) -> str | None:
    is_command = check is not None and check.type == "custom" and not check.value.startswith("regex:")
    return check.value if check is not None and is_command else None


def _check_variable(name: str, text: str) -> None:
    """Raise UnsafeCommand for a value in a variable from which programs take code, programs or options."""
    value = next((one.source for one in references(text) if one.path[0] != "env"), None)
    if value is not None and CODE_VARIABLE.fullmatch(name):
        raise UnsafeCommand(f"{value} would be what programs run because of {name}", "give it in another variable")


def unfilled(holder: Document | AgentDef | Step) -> Iterator[tuple[str, str, str]]:
    """Yield the variables of an `env` that would not be filled in: name, message and fix."""
    is_agent = isinstance(holder, AgentDef)
    for name, text in holder.env.items():
        if isinstance(holder, Document):
            if "{{" in text:
                yield name, "{{..}} is not filled in here", "write ${NAME}, or give it in the `env` of a step"
            continue
        named = _NAMED.search(text)
        if named is None or (is_agent and "{{" not in text):
            continue
        what = "{{..}} is not filled in beside" if is_agent else "a step's `env` does not fill in"
        is_variable = VARIABLE.fullmatch(named[0]) is not None
        fix = f"write {{{{env.{named[1]}}}}}" if is_variable else "give it alone to a variable of an agent's `env`"
        yield name, f"{what} {named[0]}", fix


def _unfilled_findings(where: str, holder: Document | AgentDef | Step) -> Iterator[DocumentFinding]:
    for name, message, fix in unfilled(holder):
        yield make_finding("NOT_FILLED", f"{where}: env.{name}: {message}", fix)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list | tuple),
    "object": lambda value: isinstance(value, dict),
}


_STAND_INS: Mapping[str, Any] = {"string": "", "number": 0, "integer": 0, "boolean": False, "array": [], "object": {}}
"""Type of an input -> a valid value of it."""


def outlined(document: Document, given: Mapping[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """Return values for planning a document before any run, and the names of values that only a run has.

    A required input that is not given gets a valid stand-in. Stand-ins, the input of the run, and variables read of
    them are pending: only a run has their values.
    """
    stand_ins = {
        name: one.enum[0] if one.enum else _STAND_INS[one.type]
        for name, one in document.inputs.items()
        if one.required and one.default is None and name not in given
    }
    pending = {"input", *(f"inputs.{name}" for name in stand_ins)}
    read = {f"vars.{name}": _values_read(value) for name, value in document.vars.items() if name not in given}
    while more := {name for name, values in read.items() if name not in pending and values & pending}:
        pending |= more
    return {**stand_ins, **given}, frozenset(pending)


def inputs_of(document: Document, given: Mapping[str, Any], text: str) -> tuple[dict[str, Any], list[DocumentFinding]]:
    """Return a document's inputs and findings. A value is given by name, in the run's JSON input, or is the default."""
    values: dict[str, Any] = {}
    problems: list[DocumentFinding] = []
    in_text = _json_object(text) if document.inputs else {}
    for name, one in document.inputs.items():
        if name in given:
            value = _converted(one, given[name])
        elif name in in_text:
            value = in_text[name]
        elif one.required and one.default is None:
            fix = f"give {name} by its name, or as a key of an input that is JSON"
            problems.append(make_finding("MISSING_INPUT", f"the input {name!r} is needed", fix))
            continue
        else:
            values[name] = one.default
            continue
        if not _TYPES[one.type](value):
            problems.append(
                make_finding("BAD_INPUT", f"the input {name!r} is {value!r}", f"give a value of the type {one.type}")
            )
        elif one.enum and value not in one.enum:
            allowed = ", ".join(map(str, one.enum))
            problems.append(make_finding("BAD_INPUT", f"the input {name!r} is {value!r}", f"give one of {allowed}"))
        values[name] = value
    return values, problems


def vars_of(
    document: Document,
    given: Mapping[str, Any],
    text: str,
    inputs: Mapping[str, Any],
    *,
    pending: Collection[str] = (),
) -> tuple[dict[str, Any], list[DocumentFinding]]:
    """Return a run's variables: the given ones, and the document's with their templates evaluated.

    A pending variable that cannot be made of stand-ins is an empty string.
    """
    done: dict[str, Any] = {name: value for name, value in given.items() if name not in document.inputs}
    left = {name: value for name, value in document.vars.items() if name not in done}
    problems: list[DocumentFinding] = []
    while left:
        ready = {name: value for name, value in left.items() if not _needs_variable(value, left)}
        if not ready:
            names = ", ".join(sorted(left))
            problems.append(make_finding("CYCLE", f"the variables {names} need each other", "give one of them a value"))
            break
        values = Values(input=text, inputs=inputs, vars=done)
        for name, value in ready.items():
            try:
                done[name] = _evaluated(values, value)
            except (BadExpression, Unresolved) as error:
                if f"vars.{name}" in pending and isinstance(error, Unresolved):
                    done[name] = ""
                else:
                    problems.append(make_finding("UNKNOWN_REFERENCE", f"vars.{name}: {error}", _fix(value)))
            del left[name]
    return done, problems


def _json_object(text: str) -> dict[str, Any]:
    try:
        table = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def _converted(one: Input, value: Any) -> Any:
    """Return a value in the type of its input. Values on a command line are strings."""
    if one.type == "string" or not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _needs_variable(value: Any, left: Mapping[str, Any]) -> bool:
    values = _values_read(value)
    return any(f"vars.{name}" in values for name in left)


def _values_read(value: Any) -> set[str]:
    try:
        return {value_name(reference.path) for text in texts_in(value) for reference in references(text)}
    except BadExpression:
        return set()


def value_name(path: tuple[str, ...]) -> str:
    """Return the value that a path starts with: `input`, `inputs.NAME` or `vars.NAME`, also for a bare name."""
    return ".".join(path[:2]) if path[0] in ROOTS else f"vars.{path[0]}"


def _evaluated(values: Values, value: Any) -> Any:
    if isinstance(value, str):
        return values.value(value)
    if isinstance(value, dict):
        return {key: _evaluated(values, part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_evaluated(values, part) for part in value]
    return value


def _fix(value: Any) -> str:
    if any("env." in text for text in texts_in(value)):
        return "write {{env.NAME}} where it is used: variables are kept with the run, and secrets should not be"
    return "variables may speak of input, inputs and other variables"


MENTIONED = b"run.events"
"""Text that a document contains if it uses an event address."""


def mentioned_events(plan: Plan) -> list[str]:
    """Return the events whose addresses a plan mentions."""
    if MENTIONED not in msgspec.json.encode((plan.steps, plan.output)):
        return []  # the common case; a long plan has many texts to search
    return sorted(set(_events_in(plan)))


def _events_in(plan: Plan) -> Iterator[str]:
    for text in texts_in((plan.steps, plan.output)):
        if "{{" in text:
            for reference in references(text):
                if reference.path[:2] == ("run", "events") and len(reference.path) > 2:
                    yield reference.path[2]
