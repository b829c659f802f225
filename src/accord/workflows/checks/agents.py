"""Agents: whether those that are named are there, can be reached, and are given only what has an effect on them."""

import re
import shlex
from collections.abc import Iterator, Mapping

from accord.agents.command_environment import COMMON_VARIABLES
from accord.agents.command_safety import placeholder_problem
from accord.agents.process.options import PROMPT
from accord.protocol import hosts
from accord.workflows.checks.names import meant
from accord.workflows.checks.subject import Problem, Subject, Where
from accord.workflows.document import AgentDef
from accord.workflows.keys import default, fields
from accord.workflows.preflight import missing_commands

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
"""Headers that carry what nobody else may know."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_READ = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_NO_URL = re.compile(r"\{\{|\$\{")


def known(subject: Subject) -> Iterator[Problem]:
    """Whoever is named is among the agents."""
    stated: list[tuple[Where, str | None]] = []
    for step, where, *_ in subject.steps:
        stated.append(((*where, "agent"), step.agent))
        if step.verification is not None:
            stated.append(((*where, "verification", "diagnosticAgent"), step.verification.diagnostic_agent))
    if subject.document.error_handling is not None:
        stated.append((("errorHandling", "repairAgent"), subject.document.error_handling.repair_agent))
    for place, name in stated:
        if name is not None and name not in subject.agents and "{{" not in name:
            fix = meant(name, subject.agents, "add it to `agents`")
            yield Problem("UNKNOWN_AGENT", place, f"There is no agent {name}", fix)


def kinds(subject: Subject) -> Iterator[Problem]:
    """A step is given an agent of the kind that it needs."""
    for step, where, *_ in subject.steps:
        agent = subject.agent_of(step)
        if agent is None:
            continue
        if step.type == "agent" and agent.is_a2a:
            message = f"{agent.name} is reached over A2A"
            yield Problem("WRONG_AGENT", (*where, "type"), message, "write `type: a2a`")
        if step.type == "a2a" and not agent.is_a2a:
            message = f"{agent.name} is a command, not an A2A agent"
            yield Problem(
                "WRONG_AGENT", (*where, "agent"), message, "leave `type` out, or give the agent `runtime: a2a`"
            )


def programs(subject: Subject) -> Iterator[Problem]:
    """An agent says what it is, once."""
    for at, agent in enumerate(subject.document.agents):
        where = ("agents", at)
        if agent.is_a2a:
            continue
        if agent.cli is None and agent.command is None:
            fix = "add `cli`, `command`, or `runtime: a2a` with a `url`"
            yield Problem("NO_PROGRAM", where, f"Nothing says which program {agent.name} is", fix)
        if agent.cli is not None and agent.command is not None:
            message = "`cli` and `command` both say which program it is"
            yield Problem("CONFLICT", (*where, "command"), message, "remove one of them", at_key=True)
        if agent.command is not None and not agent.command.strip():
            yield Problem("BLANK_COMMAND", (*where, "command"), "`command` is blank", "say what is run")
        elif agent.command is not None and (wrong := _prompt_problem(agent)) is not None:
            fix = "leave {prompt} out, so that the task is standard input, or say `allowInterpreter: true`"
            yield Problem("INJECTION_RISK", (*where, "command"), wrong, fix)
        if agent.cli == "api" and agent.constraints.model is None:
            message = f"{agent.name} is a model behind an API, and nothing says which"
            yield Problem("MISSING_MEMBER", where, message, "add `constraints: {model: ...}`")


def unused(subject: Subject) -> Iterator[Problem]:
    """An agent is given nothing that does nothing for its kind."""
    for at, agent in enumerate(subject.document.agents):
        used = A2A if agent.is_a2a else MODEL if agent.cli == "api" else PROCESS
        what = "an A2A agent" if agent.is_a2a else "a model behind an API" if agent.cli == "api" else "a command"
        for field in fields(AgentDef):
            name = field.encode_name
            if name not in used and not field.required and getattr(agent, field.name) != default(field):
                message = f"`{name}` does nothing for {what}"
                yield Problem("UNUSED_MEMBER", ("agents", at, name), message, _instead(name, agent), at_key=True)


def addresses(subject: Subject) -> Iterator[Problem]:
    """Whoever is talked to over A2A has an address."""
    for step, where, *_ in subject.steps:
        if subject.kind_of(step) != "a2a" or step.use is not None:
            continue
        agent = subject.agent_of(step)
        if not step.url and not (agent is not None and agent.url) and not (step.agent and agent is None):
            message = f"The A2A step {step.name} has no `url`, nor has its agent"
            yield Problem("MISSING_URL", where, message, "add `url` to the step, or to an agent that it names")
    placed: list[tuple[Where, str | None]] = [((*where, "url"), step.url) for step, where, *_ in subject.steps]
    placed += [(("agents", at, "url"), agent.url) for at, agent in enumerate(subject.document.agents)]
    for place, url in placed:
        if url is not None and not _NO_URL.search(url) and not hosts.is_web(url):
            yield Problem("BAD_URL", place, f"{url} is no URL of http or https", "write http://host:port/path")


def secrets(subject: Subject) -> Iterator[Problem]:
    """No secret is written into a file, and variables that are used are there."""
    placed = [((*where, "headers"), step.headers) for step, where, *_ in subject.steps]
    placed += [(("agents", at, "headers"), agent.headers) for at, agent in enumerate(subject.document.agents)]
    for where, headers in placed:
        for name, value in headers.items():
            if SECRET.fullmatch(name) and not _NO_URL.search(value):
                fix = "write ${NAME} for a variable, ${credential:NAME}, or `credentials: NAME`"
                yield Problem("PLAIN_SECRET", (*where, name), f"`{name}` is written in plain text", fix)


def variables(subject: Subject) -> Iterator[Problem]:
    """Variables that addresses, headers and environments are made of are set.

    Only a remote agent's are read during a run: without any other the document cannot be planned.
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
                yield Problem(code, place, f"The variable {name} is not set", f"set {name} before it is run")


def passed_on(subject: Subject) -> Iterator[Problem]:
    """Variables that commands read are passed to them."""
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
                yield Problem("NOT_PASSED", place, f"The variable {name} is not passed to commands", fix)


def installed(subject: Subject) -> Iterator[Problem]:
    """The programs of agents are there."""
    for at, agent in enumerate(subject.document.agents):
        for message in missing_commands([agent], subject.env, subject.base):
            what, _, fix = message.partition(": ")
            yield Problem("CLI_NOT_FOUND", ("agents", at, "cli"), what, fix or "install it")


def _prompt_problem(agent: AgentDef) -> str | None:
    """Return what is wrong with the place of the task in an agent's command."""
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


AGENT_CHECKS = (known, kinds, programs, unused, addresses, secrets, variables, passed_on, installed)
