"""The plan of a run, and the check that its references resolve.

A plan is plain data in which everything that can be resolved before a run is resolved. It is stored with its run and
contains names of secrets, never secrets. References are checked by name and order, because steps have no values yet.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from accord.workflows.document import (
    AgentDef,
    Barrier,
    Document,
    IdleNudge,
    Permissions,
    Preflight,
    SharedState,
    Step,
    Trajectories,
    Verification,
)
from accord.workflows.expressions import ROOTS, BadExpression, Reference, condition_references, references, texts_in
from accord.workflows.findings import DocumentFinding, make_finding
from accord.workflows.functions import nearest
from accord.workflows.inputs import value_name
from accord.workflows.pattern_rounds import TABLES, TEXTS
from accord.workflows.values import UnsafeCommand, Values, check_argv, check_command, output_variable


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
        return next((agent for agent in self.agents if agent.name == name), None)


VARIABLE = re.compile(r"\$\{(\w+)\}")
"""How headers and URLs name a variable of the environment, so that no secret is written down."""

_NAMED = re.compile(r"\$\{([^}]+)\}")
"""The same, or a credential."""

LATER = frozenset({"steps", "state", "env", "run", "item", "index"})
"""Roots of values that are known only during a run, or must not be stored with a plan."""

THIS_STEP = "step"
NO_THIS_STEP = 'name the step: {{steps.NAME.output}}; write braces that are only text as {{"{{"}}'
"""How texts of agent-relay name the current step, and what to write instead."""

CODE_VARIABLE = re.compile(
    r"PATH|HOME|XDG_CONFIG_HOME|BASH_ENV|ENV|IFS|PS4|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|LD_.*|DYLD_.*|(.*_)?(EDITOR|PAGER)|VISUAL|"
    r"MANPAGER|LESSOPEN|LESSCLOSE|BROWSER|.*_ASKPASS|GIT_(SSH|SSH_COMMAND|PROXY_COMMAND|EXTERNAL_DIFF|CONFIG.*|EXEC_PATH|"
    r"TEMPLATE_DIR|DIR|COMMON_DIR|ALLOW_PROTOCOL)|NODE_(OPTIONS|PATH)|PERL5(LIB|OPT|DB)|RUBY(OPT|LIB|SHELL)|PYTHON(PATH|STARTUP|HOME|"
    r"BREAKPOINT|USERBASE|WARNINGS)|(JAVA_TOOL|JDK_JAVA|_JAVA)_OPTIONS|CLASSPATH|(GNU)?MAKE(FLAGS|FILES)|SHELL|LESS|ZDOTDIR|"
    r"(TAR|GREP)_OPTIONS|(RSYNC|CVS)_RSH|SVN_SSH|GOFLAGS|RUSTC(_WRAPPER)?|LUA_(INIT|C?PATH).*|PHPRC|WGETRC|PSQLRC|KUBECONFIG|"
    r"(JAVA|MAVEN|GRADLE|SBT|ANT)_OPTS|GH_CONFIG_DIR|GNUPGHOME|HGRCPATH|R_PROFILE.*|AWS_CONFIG_FILE|GCONV_PATH|OPENSSL_CONF|(VIM|EX)INIT|DOTNET_STARTUP_HOOKS|(?i:npm_config_.*)|BASH_FUNC_.*"
)
"""Variables that choose which programs run."""

OF_STEPS = ("output", "status", "json", "exit_code", "exitCode")

Known = Mapping[str, Collection[str]]
"""The names that have values, by the first word of their paths."""

Edges = Mapping[str, tuple[str, ...]]


def check_references(
    plan: Plan, document: Document, env: Mapping[str, str], pending: Collection[str] | None = None
) -> list[DocumentFinding]:
    """Return the findings for references without a value, and for an impossible order.

    `pending` has the values that only a run has, for an outline: a plan of no run yet. Variables that are given to a
    run count as known there. Addresses and headers are fixed before a run, so they read no pending value.
    """
    is_outline = pending is not None
    edges: dict[str, tuple[str, ...]] = {step.name: step.depends_on or () for step in plan.steps}
    edges |= {barrier.name: barrier.wait_for for barrier in plan.barriers}
    wrong = [*_names(plan, edges), *_circles(edges)]
    if wrong:
        return wrong
    known: Known = {
        "inputs": plan.inputs,
        "vars": plan.vars,
        "env": env,
        "run": events_of(plan.steps),
        "state": {name for flow in document.workflows for one in flow.steps for name in _sets(one)},
    }
    look = partial(_judged, known, edges)
    for step in plan.steps:
        for one in _mentions(step, wrong):
            if not (is_outline and not one.is_fixed and is_variable_reference(one.reference)):
                wrong += look(step, one.reference, one.is_own)
        wrong += _agents(step, plan)
        wrong += _commands(step)
        wrong += _variables(step, env)
        wrong += _fixed(f"step {step.name!r}", step.innermost, _items(step))
        wrong += _pending(f"step {step.name!r}", step.innermost, pending or ())
        wrong += _unfilled(f"step {step.name!r}", step.innermost)
    wrong += _unfilled("document", document)
    for agent in plan.agents:
        where = f"agent {agent.name!r}"
        wrong += _fixed(where, agent)
        wrong += _pending(where, agent, pending or ())
        wrong += _unfilled(where, agent)
        for text in texts_in((agent.url, agent.headers)):
            for reference in _read(text, where, wrong):
                if (fix := _missing(known, *_root(reference))) is not None:
                    said = f"{where}: {reference.source} has no value"
                    wrong.append(make_finding("UNKNOWN_REFERENCE", said, fix))
    for reference in _read(plan.output or "", "output", wrong):
        if not (is_outline and is_variable_reference(reference)):
            wrong += look(None, reference, True)
    return list(dict.fromkeys(wrong))


def resolve_references(plan: Plan) -> Plan:
    """Return a plan with the values of addresses, headers and event names, which are all known before a run."""
    text = Values(input=plan.input, inputs=plan.inputs, vars=plan.vars).text

    def given(said: AgentDef | Step) -> dict[str, Any]:
        headers = {name: text(value) for name, value in said.headers.items()}
        return {"url": None if said.url is None else text(said.url), "headers": headers}

    def of(step: Step) -> Step:
        event = None if step.event is None else text(step.event)
        return replace(step, step=None if step.step is None else of(step.step), event=event, **given(step))

    agents = tuple(replace(agent, **given(agent)) for agent in plan.agents)
    return replace(plan, steps=tuple(map(of, plan.steps)), agents=agents)


# --- names and order --------------------------------------------------------------------------------------------------


def _names(plan: Plan, edges: Edges) -> Iterator[DocumentFinding]:
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
                yield make_finding(
                    "UNKNOWN_DEPENDENCY", f"{name!r} waits for {other!r}", f"there is none{nearest(other, edges)}"
                )


def _circles(edges: Edges) -> Iterator[DocumentFinding]:
    """Remove steps without dependencies until none is left. The remaining steps are in a cycle."""
    left = {name: sum(other in edges for other in set(before)) for name, before in edges.items()}
    after: dict[str, list[str]] = {}
    for name, before in edges.items():
        for other in set(before):
            after.setdefault(other, []).append(name)
    free = [name for name, count in left.items() if not count]
    for name in free:
        for other in after.get(name, ()):
            left[other] -= 1
            if not left[other]:
                free.append(other)
    if stuck := sorted(name for name, count in left.items() if count):
        yield make_finding(
            "CYCLE", f"these wait for each other: {', '.join(stuck)}", "take one of them out of `dependsOn`"
        )


def _is_upstream(edges: Edges, name: str, other: str) -> bool:
    left, seen = list(edges.get(name, ())), set()
    while left:
        one = left.pop()
        if one == other:
            return True
        if one not in seen:
            seen.add(one)
            left += edges.get(one, ())
    return False


# --- references -------------------------------------------------------------------------------------------------------


_SPOKEN = (*TEXTS, "argv", *TABLES, "until")


class StepReference(NamedTuple):
    """A reference in a step.

    `is_own` if it may read the step itself, because it is evaluated after its end. `is_fixed` if a run cannot change
    it.
    """

    reference: Reference
    is_own: bool = False
    is_fixed: bool = False


def _mentions(step: Step, wrong: list[DocumentFinding]) -> Iterator[StepReference]:
    """Yield the references of a step."""
    for text in (step.if_,) if step.if_ is not None else ():
        for reference in _read(text, f"step {step.name!r}: if", wrong, is_condition=True):
            yield StepReference(reference)
    for name in _SPOKEN:
        value = getattr(step, name)
        for text in texts_in(value) if value else ():
            for reference in _read(text, f"step {step.name!r}: {name.rstrip('_')}", wrong):
                yield StepReference(reference, name == "set", name in ("url", "headers", "event"))
    wanted = step.verification
    for text in (wanted.value, *(wanted.argv or ())) if wanted is not None else ():
        for reference in _read(text, f"step {step.name!r}: verification", wrong):
            yield StepReference(reference, is_own=True)
    if step.step is not None:
        inner = replace(step.step, name=step.name)
        for one in _mentions(inner, wrong):
            if one.reference.path[0] not in ("item", "index", step.as_):
                yield one


def _read(text: str, where: str, wrong: list[DocumentFinding], is_condition: bool = False) -> Iterable[Reference]:
    try:
        return condition_references(text) if is_condition else references(text)
    except BadExpression as error:
        wrong.append(make_finding("BAD_TEMPLATE", f"{where}: {error}", "mend it"))
        return ()


def _judged(
    known: Known, edges: Edges, step: Step | None, reference: Reference, is_own: bool
) -> Iterator[DocumentFinding]:
    where = f"step {step.name!r}" if step is not None else "output"
    root, *rest = reference.path
    if root == "steps" and rest:
        yield from _of_step(edges, step, reference, is_own)
    elif not reference.is_optional and (fix := _missing(known, root, rest)) is not None:
        code = "MISSING_ENV" if root == "env" else "UNKNOWN_REFERENCE"
        yield make_finding(code, f"{where}: {reference.source} has no value: {'.'.join(reference.path)}", fix)


def _of_step(edges: Edges, step: Step | None, reference: Reference, is_own: bool) -> Iterator[DocumentFinding]:
    where = f"step {step.name!r}" if step is not None else "output"
    _, name, *rest = reference.path
    if name not in edges:
        yield make_finding(
            "UNKNOWN_REFERENCE",
            f"{where}: {reference.source} speaks of {name!r}",
            f"no such step{nearest(name, edges)}",
        )
    elif rest and rest[0] not in OF_STEPS:
        fix = f"a step has {', '.join(OF_STEPS)}"
        yield make_finding("UNKNOWN_REFERENCE", f"{where}: {reference.source} asks for {rest[0]!r}", fix)
    elif step is not None and not (is_own and name == step.name) and not _is_upstream(edges, step.name, name):
        fix = f"add {name!r} to its `dependsOn`"
        yield make_finding("NOT_UPSTREAM", f"{where}: {reference.source}: {name!r} need not have ended by then", fix)


def _missing(known: Known, root: str, rest: list[str]) -> str | None:
    """Return the fix for a missing value, or None if the value exists."""
    if root in ("item", "index"):
        return "only the step of a map has one"
    if root == "input" and not rest:
        return None
    if root == "run" and rest:
        return run_lacks(rest, known["run"])
    table, name = (root, rest[0]) if root in known and rest else ("vars", root)
    if name in known[table]:
        return None
    if root == THIS_STEP and rest:
        return NO_THIS_STEP
    if root in ROOTS and not rest:
        return f"write {{{{{root}.NAME}}}}"
    return {
        "inputs": f"add it to `inputs`{nearest(name, known['inputs']) if known['inputs'] else ''}",
        "vars": f"add it to `vars`, or give a run the variable {name}",
        "env": f"set {name} in the environment, which no workflow sees if settings refer to it",
        "state": f"no step says `set: {{{name}: ..}}`; if it comes from elsewhere: {{{{state.{name} | default('')}}}}",
    }[table]


def is_variable_reference(reference: Reference) -> bool:
    """Whether a reference reads a variable."""
    root, *rest = reference.path
    return (root == "vars" and bool(rest)) or (root not in ROOTS and not (root == THIS_STEP and rest))


def events_of(steps: Sequence[Step]) -> frozenset[str]:
    """Return the events that steps wait for."""
    return frozenset(event for step in steps if (event := step.innermost.event) is not None)


def run_lacks(rest: Sequence[str], events: Collection[str]) -> str | None:
    """Return the fix for an unknown value of a run, or None if the value exists."""
    if rest[0] == "id" and len(rest) == 1:
        return None
    if rest[0] != "events" or len(rest) != 2:
        return "a run has an `id`, and `events.NAME` for what its steps wait for"
    if rest[1] in events:
        return None
    return f"no step waits for it{nearest(rest[1], events) if events else ''}: `type: wait`, `event: {rest[1]}`"


def _sets(step: Step) -> Iterator[str]:
    yield from step.set
    if step.step is not None:
        yield from _sets(step.step)


def _items(step: Step) -> frozenset[str]:
    """Return the names of items in the innermost step of nested maps."""
    return frozenset() if step.step is None else frozenset({step.as_}) | _items(step.step)


# --- agents, commands, the environment --------------------------------------------------------------------------------


def _agents(step: Step, plan: Plan) -> Iterator[DocumentFinding]:
    inner = step.innermost
    if inner.agent is not None and plan.agent(inner.agent) is None:
        names = [agent.name for agent in plan.agents]
        fix = f"there is none{nearest(inner.agent, names)}" if names else "add it to `agents`"
        yield make_finding("UNKNOWN_AGENT", f"step {step.name!r} is for the agent {inner.agent!r}", fix)
    elif inner.row.is_remote and not inner.url:
        yield make_finding("MISSING_URL", f"step {step.name!r} has no url", "add `url` to the step or to its agent")


def _commands(step: Step) -> Iterator[DocumentFinding]:
    for _, error in unsafe_commands(step.innermost):
        yield make_finding("INJECTION_RISK", f"step {step.name!r}: {error}", error.fix)


def unsafe_commands(step: Step) -> Iterator[tuple[tuple[str, ...], UnsafeCommand]]:
    """Yield the commands of a step in which a value could become code: the member and the error."""
    checks: list[tuple[tuple[str, ...], Callable[[], None]]] = []
    wanted = step.verification
    for where, member, command in (((), step, step.command), (("verification",), wanted, _custom(wanted))):
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


def _custom(wanted: Verification | None) -> str | None:
    """Return the shell command of a verification, if it has one."""
    is_command = wanted is not None and wanted.type == "custom" and not wanted.value.startswith("regex:")
    return wanted.value if wanted is not None and is_command else None


def _check_variable(name: str, text: str) -> None:
    """Raise UnsafeCommand for a value in a variable from which programs take code, programs or options."""
    value = next((one.source for one in references(text) if one.path[0] != "env"), None)
    if value is not None and CODE_VARIABLE.fullmatch(name):
        raise UnsafeCommand(f"{value} would be what programs run because of {name}", "give it in another variable")


def _fixed(where: str, said: AgentDef | Step, items: Collection[str] = ()) -> Iterator[DocumentFinding]:
    """Yield references in addresses, headers and events that are known only during a run.

    No agent may choose an address.
    """
    event = said.event if isinstance(said, Step) else None
    for text in texts_in((said.url, said.headers, event)):
        for reference in _read(text, where, []):
            root = reference.path[0]
            if root in LATER or root in items:
                fix = "write ${NAME} for a variable of the environment" if root == "env" else "use `vars` or `inputs`"
                yield make_finding(
                    "NOT_FIXED", f"{where}: {reference.source} stands in `url`, `headers` or `event`", fix
                )


def _pending(where: str, said: AgentDef | Step, pending: Collection[str]) -> Iterator[DocumentFinding]:
    """Yield references in addresses and headers that have no value before a run. Members are made before it."""
    for text in texts_in((said.url, said.headers)):
        for reference in _read(text, where, []):
            if value_name(reference.path) in pending and not reference.is_optional:
                fix = "give the value before a run: with `--var`, or `vars` of the agent in the settings"
                yield make_finding("NOT_FIXED", f"{where}: {reference.source} is known only during a run", fix)


def unfilled(said: Document | AgentDef | Step) -> Iterator[tuple[str, str, str]]:
    """Yield the variables of an `env` that would not be filled in: name, message and fix."""
    is_agent = isinstance(said, AgentDef)
    for name, text in said.env.items():
        if isinstance(said, Document):
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


def _unfilled(where: str, said: Document | AgentDef | Step) -> Iterator[DocumentFinding]:
    for name, message, fix in unfilled(said):
        yield make_finding("NOT_FILLED", f"{where}: env.{name}: {message}", fix)


def _root(reference: Reference) -> tuple[str, list[str]]:
    return reference.path[0], list(reference.path[1:])


def _variables(step: Step, env: Mapping[str, str]) -> Iterator[DocumentFinding]:
    inner = step.innermost
    for text in texts_in((inner.url, inner.headers)):
        for name in VARIABLE.findall(text):
            if name not in env:
                yield make_finding(
                    "MISSING_ENV", f"step {step.name!r} uses ${{{name}}}", f"set {name} in the environment"
                )
