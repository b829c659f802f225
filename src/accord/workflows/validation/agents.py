"""Check agents: definitions, addresses, secrets, and advice from experience."""

import re
import shlex
from collections.abc import Iterator, Mapping

from accord.agents.command_environment import COMMON_VARIABLES
from accord.agents.command_safety import placeholder_problem
from accord.agents.process.options import PROMPT
from accord.protocol import urls
from accord.workflows.agent_access import find_missing_commands
from accord.workflows.agent_definition import AgentDef
from accord.workflows.decoder import default_of, fields_of
from accord.workflows.findings import CheckProblem, Where
from accord.workflows.members import is_interactive
from accord.workflows.references import unknown_name_fix
from accord.workflows.validation.subject import PlacedStep, Subject

PROCESS = (
    *("cli", "command", "role", "task", "channels", "interactive", "preset", "constraints", "cwd", "workdir"),
    *("additionalPaths", "env", "permissions", "skills", "done", "shareContext", "timeout"),
    "allowInterpreter",
)
MODEL = (
    "cli",
    "role",
    "task",
    "channels",
    "preset",
    "constraints",
    "skills",
    "url",
    "headers",
    "credentials",
    "shareContext",
    "timeout",
)
A2A = (
    *("runtime", "url", "headers", "credentials", "timeout", "streaming", "mode", "shareContext"),
    *("role", "task", "channels", "constraints"),
)

SECRET = re.compile(r"authorization|cookie|.*(api|access|auth)[-_]?(key|token)|.*(secret|password)", re.IGNORECASE)
"""Headers that contain secrets."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_READ = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_NO_URL = re.compile(r"\{\{|\$\{")


def check_agents_exist(subject: Subject) -> Iterator[CheckProblem]:
    """Check that named agents exist."""
    stated: list[tuple[Where, str | None]] = []
    for step, where, *_ in subject.steps:
        stated.append(((*where, "agent"), step.agent))
        if step.verification is not None:
            stated.append(((*where, "verification", "diagnosticAgent"), step.verification.diagnostic_agent))
    if subject.document.error_handling is not None:
        stated.append((("errorHandling", "repairAgent"), subject.document.error_handling.repair_agent))
    for place, name in stated:
        if name is not None and name not in subject.agents and "{{" not in name:
            fix = unknown_name_fix(name, subject.agents, "add it to `agents`")
            yield CheckProblem("UNKNOWN_AGENT", place, f"There is no agent {name}", fix)


def check_agent_kinds(subject: Subject) -> Iterator[CheckProblem]:
    """Check that steps name agents of the right runtime."""
    for step, where, *_ in subject.steps:
        agent = subject.agent_of(step)
        if agent is None:
            continue
        if step.type == "agent" and agent.is_a2a:
            message = f"{agent.name} is reached over A2A"
            yield CheckProblem("WRONG_AGENT", (*where, "type"), message, "write `type: a2a`")
        if step.row.is_remote and not agent.is_a2a:
            message = f"{agent.name} is a command, not an A2A agent"
            yield CheckProblem(
                "WRONG_AGENT", (*where, "agent"), message, "leave `type` out, or give the agent `runtime: a2a`"
            )


def check_programs(subject: Subject) -> Iterator[CheckProblem]:
    """Check that each agent has one program."""
    for at, agent in enumerate(subject.document.agents):
        where = ("agents", at)
        if agent.is_a2a:
            continue
        if agent.cli is None and agent.command is None:
            fix = "add `cli`, `command`, or `runtime: a2a` with a `url`"
            yield CheckProblem("NO_PROGRAM", where, f"Nothing says which program {agent.name} is", fix)
        if agent.cli is not None and agent.command is not None:
            message = "`cli` and `command` both say which program it is"
            yield CheckProblem("CONFLICT", (*where, "command"), message, "remove one of them", at_key=True)
        if agent.command is not None and not agent.command.strip():
            yield CheckProblem("BLANK_COMMAND", (*where, "command"), "`command` is blank", "say what is run")
        elif agent.command is not None and (wrong := _prompt_problem(agent)) is not None:
            fix = "leave {prompt} out, so that the task is standard input, or say `allowInterpreter: true`"
            yield CheckProblem("INJECTION_RISK", (*where, "command"), wrong, fix)
        if agent.cli == "api" and agent.constraints.model is None:
            message = f"{agent.name} is a model behind an API, and nothing says which"
            yield CheckProblem("MISSING_MEMBER", where, message, "add `constraints: {model: ...}`")


def check_unused_agent_members(subject: Subject) -> Iterator[CheckProblem]:
    """Check that no member of an agent is without effect."""
    for at, agent in enumerate(subject.document.agents):
        used = A2A if agent.is_a2a else MODEL if agent.cli == "api" else PROCESS
        what = "an A2A agent" if agent.is_a2a else "a model behind an API" if agent.cli == "api" else "a command"
        for field in fields_of(AgentDef):
            name = field.encode_name
            if name not in used and not field.required and getattr(agent, field.name) != default_of(field):
                message = f"`{name}` does nothing for {what}"
                yield CheckProblem("UNUSED_MEMBER", ("agents", at, name), message, _instead(name, agent), at_key=True)


def check_addresses(subject: Subject) -> Iterator[CheckProblem]:
    """Check that the URLs of agents and steps are valid."""
    placed: list[tuple[Where, str | None]] = [((*where, "url"), step.url) for step, where, *_ in subject.steps]
    placed += [(("agents", at, "url"), agent.url) for at, agent in enumerate(subject.document.agents)]
    for place, url in placed:
        if url is not None and not _NO_URL.search(url) and not urls.is_http_url(url):
            yield CheckProblem(
                "BAD_URL", place, f"{url} is not a valid http or https URL", "write http://host:port/path"
            )


def check_secrets(subject: Subject) -> Iterator[CheckProblem]:
    """Check that no header contains a secret in plain text."""
    placed = [((*where, "headers"), step.headers) for step, where, *_ in subject.steps]
    placed += [(("agents", at, "headers"), agent.headers) for at, agent in enumerate(subject.document.agents)]
    for where, headers in placed:
        for name, value in headers.items():
            if SECRET.fullmatch(name) and not _NO_URL.search(value):
                fix = "write ${NAME} for a variable, ${credential:NAME}, or `credentials: NAME`"
                yield CheckProblem("PLAIN_SECRET", (*where, name), f"`{name}` is written in plain text", fix)


def check_variables(subject: Subject) -> Iterator[CheckProblem]:
    """Check that variables of addresses, headers and environments are set.

    Those of an A2A agent are read only during a run. Without any other the document cannot be planned.
    """
    texts: list[tuple[Where, str | None, str]] = []
    for step, where, *_ in subject.steps:
        texts.append(((*where, "url"), step.url, "MISSING_ENV"))
        texts += [((*where, "headers", name), value, "MISSING_ENV") for name, value in step.headers.items()]
    texts += [(("env", name), value, "MISSING_ENV") for name, value in subject.document.env.items()]
    for at, agent in enumerate(subject.document.agents):
        code = "UNSET_VARIABLE" if agent.is_a2a else "MISSING_ENV"
        texts.append((("agents", at, "url"), agent.url, code))
        for part, table in (("headers", agent.headers), ("env", agent.env)):
            texts += [(("agents", at, part, name), value, code) for name, value in table.items()]
    for place, text, code in texts:
        for name in _VARIABLE.findall(text or ""):
            if name not in subject.env:
                yield CheckProblem(code, place, f"The variable {name} is not set", f"set {name} before it is run")


def check_passed_variables(subject: Subject) -> Iterator[CheckProblem]:
    """Check that variables that commands read are passed to them."""
    texts: list[tuple[Where, str | None, Mapping[str, str]]] = []
    for step, where, *_ in subject.steps:
        texts.append(((*where, "command"), step.command, step.env))
        if step.verification is not None and step.verification.type == "custom":
            texts.append(((*where, "verification", "value"), step.verification.value, step.env))
    for at, workflow in enumerate(subject.document.workflows):
        for number, check in enumerate(workflow.preflight):
            texts.append((("workflows", at, "preflight", number, "command"), check.command, {}))
    for place, command, own in texts:
        for name in dict.fromkeys(_READ.findall(command or "")):
            is_given = name in own or name in subject.document.env or COMMON_VARIABLES.fullmatch(name)
            is_set_here = re.search(rf"\b{name}=|\b(for|read)\b[^;\n]*\b{name}\b", command or "")
            if name in subject.env and not is_given and not is_set_here:
                fix = f'say env: {{{name}: "${{{name}}}"}} at the top of the file'
                yield CheckProblem("NOT_PASSED", place, f"The variable {name} is not passed to commands", fix)


def check_installed(subject: Subject) -> Iterator[CheckProblem]:
    """Check that the programs of agents are installed."""
    for at, agent in enumerate(subject.document.agents):
        for message in find_missing_commands([agent], subject.env, subject.base):
            what, _, fix = message.partition(": ")
            yield CheckProblem("CLI_NOT_FOUND", ("agents", at, "cli"), what, fix or "install it")


def _prompt_problem(agent: AgentDef) -> str | None:
    """Return the error of the prompt's place in an agent's command, or None."""
    try:
        words = shlex.split(agent.command or "")
    except ValueError as error:
        return str(error)
    return placeholder_problem(words, PROMPT, is_allowed=agent.allow_interpreter)


def _instead(name: str, agent: AgentDef) -> str:
    if agent.is_a2a and name in ("cli", "command", "interactive"):
        return "remove it, or `runtime: a2a`"
    if not agent.is_a2a and name in ("url", "headers", "streaming", "mode"):
        return "add `runtime: a2a`, or remove it"
    return "remove it"


AGENT_CHECKS = (
    check_agents_exist,
    check_agent_kinds,
    check_programs,
    check_unused_agent_members,
    check_addresses,
    check_secrets,
    check_variables,
    check_passed_variables,
    check_installed,
)


MANY = 4
"""Number of agents in terminals that a machine can usually run at once."""

REVIEWS = re.compile(r"review|critic|verif|audit|judge|\bqa\b|test", re.IGNORECASE)
ENDS = re.compile(r"\bexit\b|/quit|/exit|STEP_COMPLETE|OWNER_DECISION|when (you are )?(done|finished)", re.IGNORECASE)
GUARDS = re.compile(r"(not|never|don't|no)\b.{0,40}\b(spawn|start|launch|create)\b|start no", re.IGNORECASE | re.DOTALL)
RELAYS = re.compile(
    r"->relay:|mcp__relay|relay_(send|dm|post|inbox)|\b(send_dm|post_message|check_inbox)\b", re.IGNORECASE
)


def advise_spark_models(subject: Subject) -> Iterator[CheckProblem]:
    """Advise a terminal for codex's spark models."""
    for at, agent in enumerate(subject.document.agents):
        if agent.cli == "codex" and "spark" in (agent.constraints.model or "") and not is_interactive(agent):
            where = ("agents", at, "constraints", "model")
            message = f"{agent.constraints.model} does not work without a terminal"
            yield CheckProblem(
                "CODEX_SPARK_NON_INTERACTIVE", where, message, "choose another model, or `interactive: true`"
            )


def advise_endings(subject: Subject) -> Iterator[CheckProblem]:
    """Advise that the prompt of codex in a terminal says how to end."""
    for placed in _terminal_steps(subject, "codex"):
        step = placed.step
        if step.verification is None and not ENDS.search(f"{step.task} {_agent(subject, placed).task or ''}"):
            message = f"{step.name} has codex in a terminal, and says nothing of how it ends"
            fix = "say `exit when done`, add a verification, or `interactive: false`"
            yield CheckProblem("CODEX_NO_EXIT", (*placed.where, "task"), message, fix)


def advise_spawning(subject: Subject) -> Iterator[CheckProblem]:
    """Advise that the prompt of claude in a terminal forbids starting agents."""
    for placed in _terminal_steps(subject, "claude"):
        agent = _agent(subject, placed)
        if not GUARDS.search(f"{placed.step.task} {agent.task or ''} {agent.role or ''}"):
            message = f"{placed.step.name} lets claude start agents of its own"
            yield CheckProblem(
                "CLAUDE_NO_SPAWN_GUARD", (*placed.where, "task"), message, "say `Do not start other agents`"
            )


def advise_chains(subject: Subject) -> Iterator[CheckProblem]:
    """Advise a verification for agents in a terminal that other steps wait for."""
    open_ended = {
        (id(placed.workflow), placed.step.name)
        for placed in _terminal_steps(subject)
        if placed.step.verification is None
    }
    for step, where, workflow, *_ in subject.steps:
        for at, name in enumerate(step.depends_on or ()):
            if (id(workflow), name) in open_ended:
                message = f"{step.name} waits for {name}, an agent in a terminal that nothing verifies"
                fix = f"add a `verification` to {name}, or `interactive: false` to its agent"
                yield CheckProblem("CHAIN_ON_INTERACTIVE", (*where, "dependsOn", at), message, fix)


def advise_relaying(subject: Subject) -> Iterator[CheckProblem]:
    """Advise that agents without a terminal do not use relay's messages."""
    for placed in subject.steps:
        agent = subject.agent_of(placed.step)
        if agent is None or is_interactive(agent) or agent.is_a2a:
            continue
        if RELAYS.search(f"{placed.step.task} {agent.task or ''} {agent.role or ''}"):
            message = f"{agent.name} has no terminal, and nobody hears relay's messages of it"
            fix = "have it print its result: the next steps get its output"
            yield CheckProblem("NONINTERACTIVE_RELAY", (*placed.where, "task"), message, fix)


def advise_reviews(subject: Subject) -> Iterator[CheckProblem]:
    """Advise a reviewer where several agents write."""
    used = {placed.step.agent for placed in subject.steps if subject.kind_of(placed.step) == "agent"}
    writers = [agent for agent in subject.document.agents if agent.name in used and not agent.is_a2a]
    is_reviewed = any(
        agent.preset == "reviewer" or REVIEWS.search(f"{agent.name} {agent.role or ''}")
        for agent in subject.document.agents
    )
    if len(writers) > 1 and not is_reviewed:
        message = f"{len(writers)} agents work, and none of them reviews"
        yield CheckProblem(
            "NO_REVIEW_AGENT", ("agents",), message, "add an agent with `preset: reviewer` and a step for it", True
        )


def advise_crowds(subject: Subject) -> Iterator[CheckProblem]:
    """Advise a limit for agents in terminals."""
    agents = [agent for agent in subject.document.agents if is_interactive(agent)]
    most = subject.document.swarm.max_concurrency
    if len(agents) > MANY and (most is None or most > MANY):
        message = f"{len(agents)} agents work in terminals, perhaps all at a time"
        yield CheckProblem("HIGH_CONCURRENCY", ("swarm", "maxConcurrency"), message, f"write `maxConcurrency: {MANY}`")


def advise_idle_agents(subject: Subject) -> Iterator[CheckProblem]:
    """Advise a step for each agent, in patterns that use only agents named by steps."""
    used = {placed.step.agent for placed in subject.steps}
    used |= {placed.step.verification.diagnostic_agent for placed in subject.steps if placed.step.verification}
    used |= {subject.document.error_handling.repair_agent} if subject.document.error_handling else set()
    if subject.document.swarm.pattern in ("dag", "pipeline"):
        for at, agent in enumerate(subject.document.agents):
            if agent.name not in used:
                yield CheckProblem(
                    "UNUSED_AGENT", ("agents", at), f"No step names {agent.name}", "name it, or remove it"
                )


def _terminal_steps(subject: Subject, cli: str | None = None) -> Iterator[PlacedStep]:
    """Yield the steps of agents in a terminal."""
    for placed in subject.steps:
        agent = subject.agent_of(placed.step)
        if agent is not None and is_interactive(agent) and cli in (None, agent.cli):
            yield placed


def _agent(subject: Subject, placed: PlacedStep) -> AgentDef:
    return subject.agents[placed.step.agent or ""]


ADVICE_CHECKS = (
    advise_spark_models,
    advise_endings,
    advise_spawning,
    advise_chains,
    advise_relaying,
    advise_reviews,
    advise_crowds,
    advise_idle_agents,
)
