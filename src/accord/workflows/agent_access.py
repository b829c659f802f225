"""Access to the agents of a document: commands, addresses, preflight checks.

A command line agent is a row of `ROWS`. An A2A agent is called at the address in its card, or without a card at its
configured address over JSON-RPC. Secrets are read when they are used, and no plan contains them.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from accord.agents.command_environment import has_command
from accord.agents.process.options import PRESETS, PresetName
from accord.agents.remote.connection import NEEDS_OPERATOR, NO_ANSWER
from accord.agents.safe_regexes import BadRegex, compile_regex
from accord.client.auth.choice import allow_hosts_hint, foreign_hosts
from accord.client.credentials import Credential, KeyManagementError, Keys
from accord.client.discovery import BadCard, CardNotFound, NoSuchAgent
from accord.client.interfaces import JSONRPC
from accord.errors import AuthenticationFailed, PermissionDenied
from accord.model import AgentCapabilities, AgentCard, AgentInterface
from accord.workflows.agent_definition import A2A_SECONDS, AgentDef
from accord.workflows.commands import run_shell
from accord.workflows.document import Preflight

if TYPE_CHECKING:
    from accord.client.client import Client


MODEL = "AGENT_MODEL"
"""The variable that contains the model, for a command without a row."""


class CliRow(Struct, frozen=True, kw_only=True):
    """A command line agent; `access` has the flags that make it enforce its permissions, where it can."""

    preset: PresetName
    path: str | None = None
    model: str | None = "--model"
    model_env: str | None = None
    access: Mapping[str, Sequence[str]] = {}
    directory: str | None = None
    own: Sequence[str] = ()
    """The server variables that it gets: its API key and the place of its configuration."""


_CURSOR = CliRow(preset="cursor", access={"full": ("--force",)}, own=("CURSOR_API_KEY",))
_ANY = ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENROUTER_API_KEY")
"""API keys of models, for commands that support any provider."""

ROWS: Mapping[str, CliRow] = {
    "claude": CliRow(
        preset="claude",
        access={
            "readonly": ("--disallowedTools", "Edit,MultiEdit,Write,NotebookEdit"),
            "readwrite": ("--permission-mode", "acceptEdits"),
            "restricted": ("--permission-mode", "acceptEdits"),
            "full": ("--dangerously-skip-permissions",),
        },
        directory="--add-dir",
        own=(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CONFIG_DIR",
        ),
    ),
    "codex": CliRow(
        preset="codex",
        access={
            "readonly": ("--sandbox", "read-only"),
            "readwrite": ("--sandbox", "workspace-write"),
            "restricted": ("--sandbox", "workspace-write"),
            "full": ("--dangerously-bypass-approvals-and-sandbox",),
        },
        directory="--add-dir",
        own=("CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ),
    "gemini": CliRow(
        preset="gemini",
        access={
            "readwrite": ("--approval-mode", "auto_edit"),
            "restricted": ("--approval-mode", "auto_edit"),
            "full": ("--approval-mode", "yolo"),
        },
        directory="--include-directories",
        own=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT"),
    ),
    "aider": CliRow(preset="aider", access={"readonly": ("--dry-run",)}, own=_ANY),
    "goose": CliRow(preset="goose", model=None, model_env="GOOSE_MODEL", own=("GOOSE_PROVIDER", *_ANY)),
    "opencode": CliRow(preset="opencode", own=_ANY),
    "droid": CliRow(preset="droid", own=("FACTORY_API_KEY",)),
    "cursor": _CURSOR,
    "cursor-agent": _CURSOR,
    "agent": CliRow(preset="cursor", path="agent", access=_CURSOR.access, own=_CURSOR.own),
}
"""`cli` -> its command."""


def cli_arguments(row: CliRow, *, model: str | None, access: str | None, directories: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a command, besides those of its preset."""
    named = (row.model, model) if row.model and model else ()
    added = [word for directory in directories for word in (row.directory, directory)] if row.directory else []
    return (*named, *row.access.get(access or "", ()), *(word for word in added if word))


def cli_variables(row: CliRow | None, model: str | None) -> dict[str, str]:
    """Return the variables that pass the model to a command. A command without a row gets `AGENT_MODEL`."""
    name = MODEL if row is None else row.model_env
    return {name: model} if name and model else {}


VERSIONS = ("0.3", "1.0")
"""The protocol versions that are tried for an agent without a card.

Each version rejects the method names of the other, so no call has an effect twice.
"""

API_KEY = "X-API-Key"
"""The header for an API key when no card names one."""

NO_CARD = (CardNotFound, BadCard, AuthenticationFailed, PermissionDenied)
"""Errors that prevent reading a card, but not calling the agent."""

_REFERENCE = re.compile(r"\$\{(credential:)?([^${}]+)\}")

log = logging.getLogger("accord.workflows")


def fill_secrets(text: str, env: Mapping[str, str], keys: Keys, to: str | None = None) -> str:
    """Return a text with `${NAME}` from the environment and `${credential:NAME}` from `keys` filled in.

    Raises KeyManagementError if a variable or credential is missing, or if the credential's `hosts` leave out the
    address `to`.
    """

    def found(reference: re.Match[str]) -> str:
        name = reference[2]
        if reference[1] is None:
            value = env.get(name)
        else:
            credential = credential_for(name, keys, to)
            value = None if credential is None else credential.bearer or credential.api_key
        if value is None:
            what = "variable" if reference[1] is None else "credential with a token or an API key"
            raise KeyManagementError(f"There is no {what} called {name}")
        return value

    return _REFERENCE.sub(found, text)


def credential_for(name: str, keys: Keys, to: str | None) -> Credential | None:
    """Return the credential that a document names; raises KeyManagementError if its `hosts` leave out the address."""
    credential = keys.find(name)
    refused = () if credential is None or to is None else foreign_hosts(credential, [to])
    if credential is not None and refused:
        raise KeyManagementError(f"`{name}` is not for {refused[0]}; {allow_hosts_hint(name, credential, refused)}")
    return credential


def connector_for(agent: AgentDef, env: Mapping[str, str], keys: Keys) -> Callable[[], Any]:
    """Return a function that opens a connection to an agent."""

    @asynccontextmanager
    async def connect() -> AsyncIterator["Client"]:
        from accord.client.client import Client

        url, options = await asyncio.to_thread(_connection_of, agent, env, keys)
        async with AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(Client.connect(url, **options))
            except NoSuchAgent:
                raise
            except NO_CARD as error:
                log.info("workflow.no_card", extra={"agent": agent.name, "reason": str(error)})
                options["headers"] |= _api_key_header(agent, keys)
                client = await stack.enter_async_context(Client.connect(assumed_card(agent, url), **options))
            yield client

    return connect


async def fetch_card(agent: AgentDef, env: Mapping[str, str], keys: Keys) -> AgentCard:
    """Return the card of an agent; raises the error of the connection."""
    from accord.client.client import Client

    url, options = await asyncio.to_thread(_connection_of, agent, env, keys)
    async with Client.connect(url, **options) as client:
        return client.card


def _connection_of(agent: AgentDef, env: Mapping[str, str], keys: Keys) -> tuple[str, dict[str, Any]]:
    """Return an agent's address and connection options, with secrets filled in. May read a keyring.

    If the document gives headers and names no credential, the headers are the authentication.
    """
    url = fill_secrets(agent.url or "", env, keys)
    url = fill_secrets(
        agent.url or "", env, keys, to=url
    )  # a credential in the address is bound to the address as well
    if agent.credentials is not None and credential_for(agent.credentials, keys, url) is None:
        raise KeyManagementError(f"There is no credential called {agent.credentials}")
    return url, {
        "keys": None if agent.headers and agent.credentials is None else keys,
        "service": agent.credentials,
        "headers": {name: fill_secrets(value, env, keys, url) for name, value in agent.headers.items()},
        "timeout": agent.timeout or A2A_SECONDS,
    }


def _api_key_header(agent: AgentDef, keys: Keys) -> dict[str, str]:
    """Return the header for an API key. Without a card, the agent cannot name the place of the key."""
    credential = None if agent.credentials is None else keys.find(agent.credentials)
    if credential is None or credential.bearer or not credential.api_key:
        return {}
    return {API_KEY: credential.api_key}


def assumed_card(agent: AgentDef, url: str) -> AgentCard:
    """Return the card assumed for an agent without one. It streams unless the document says otherwise."""
    interfaces = tuple(
        AgentInterface(url=url, protocol_binding=JSONRPC, protocol_version=version) for version in VERSIONS
    )
    return AgentCard(
        name=agent.name,
        description=agent.role or "",
        version="",
        supported_interfaces=interfaces,
        capabilities=AgentCapabilities(streaming=agent.streaming is not False),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(),
    )


CHECK_SECONDS = 30.0
"""Timeout of one preflight check, in seconds."""

CARD_SECONDS = 10.0
"""Timeout for reading an agent's card in a preflight, in seconds."""


async def run_preflight_checks(checks: Iterable[Preflight], *, directory: Path, env: Mapping[str, str]) -> list[str]:
    """Run the checks of a workflow in order; return the failures."""
    problems = [await _run_check(check, directory, env) for check in checks]
    return [problem for problem in problems if problem is not None]


async def _run_check(check: Preflight, directory: Path, env: Mapping[str, str]) -> str | None:
    ran = await run_shell(check.command, directory=directory, env=env, seconds=CHECK_SECONDS)
    wrong = ran.error or await asyncio.to_thread(_check_failure, check, ran.output.strip())
    return None if wrong is None else f"Preflight failed: {check.description or check.command}: {wrong}"


def _check_failure(check: Preflight, output: str) -> str | None:
    shown = output.splitlines()[0] if output else ""
    try:
        if check.fail_if == "non-empty":
            return f"it printed {shown!r}" if output else None
        if check.fail_if == "empty":
            return None if output else "it printed nothing"
        if check.fail_if is not None and compile_regex(check.fail_if).search(output):
            return f"it printed what matches {check.fail_if!r}"
        if check.success_if is not None and not compile_regex(check.success_if).search(output):
            return f"it printed nothing that matches {check.success_if!r}"
    except BadRegex as error:
        return str(error)
    return None


def find_missing_commands(agents: Iterable[AgentDef], env: Mapping[str, str], directory: Path) -> list[str]:
    """Return a problem for each command line agent that is not installed."""
    problems = []
    for agent in agents:
        row = ROWS.get(agent.cli or "")
        if agent.is_a2a or agent.command is not None or row is None:
            continue
        preset = PRESETS[row.preset]
        binary = row.path or preset.binary
        if not has_command(binary, env, directory):
            how = f" ({preset.install})" if preset.install else ""
            problems.append(f"The agent {agent.name} needs the command {binary}, which is not there: install it{how}")
    return problems


async def find_missing_agents(agents: Iterable[AgentDef], env: Mapping[str, str], keys: Keys) -> list[str]:
    """Return a problem for each A2A agent without a readable card. All cards are read concurrently."""
    remote_agents = [agent for agent in agents if agent.is_a2a]
    cards = await asyncio.gather(*(card_of(agent, env, keys) for agent in remote_agents))
    return [
        f"The A2A agent {agent.name} is not there: {card}"
        for agent, card in zip(remote_agents, cards, strict=True)
        if isinstance(card, str)
    ]


async def card_of(agent: AgentDef, env: Mapping[str, str], keys: Keys) -> AgentCard | str:
    """Return the card of an A2A agent, or why it cannot be read."""
    try:
        async with asyncio.timeout(CARD_SECONDS):
            return await fetch_card(agent, env, keys)
    except TimeoutError:
        return f"it did not answer within {CARD_SECONDS:g} seconds"
    except (*NO_ANSWER, *NEEDS_OPERATOR) as error:
        return str(error)


def introduction_line(agent: AgentDef, card: AgentCard | str) -> str:
    """Return the post that introduces an agent. A run continues without a card."""
    if isinstance(card, str):
        return f"A2A agent: {agent.name} (no card: {card}); continuing without"
    return f"A2A agent: {card.name} ({card.description})"
