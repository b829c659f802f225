"""What is looked at before the first step of a run: checks that its document asks for, commands, and agents' cards.

Each function says what is wrong, for a person, and changes nothing. What a document itself shows to be wrong is found
earlier, by `checks`; who decides that a run does not begin is the run, above.
"""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

from accord.agents.command_environment import has_command
from accord.agents.process.options import PRESETS
from accord.agents.remote.connection import NEEDS_OPERATOR, NO_ANSWER
from accord.agents.safe_regexes import BadRegex, compile_regex
from accord.client.keys import Keys
from accord.model import AgentCard
from accord.workflows.clis import ROWS
from accord.workflows.document import AgentDef, Preflight
from accord.workflows.elsewhere import carded
from accord.workflows.steps.command import run_shell

CHECK_SECONDS = 30.0
"""How long one check may take."""

CARD_SECONDS = 10.0
"""How long an agent may take to show its card, when it is asked whether it is there."""


async def checked(checks: Iterable[Preflight], *, directory: Path, env: Mapping[str, str]) -> list[str]:
    """Do all checks of a workflow, one after the other, and return what is wrong."""
    found = [await _checked(check, directory, env) for check in checks]
    return [problem for problem in found if problem is not None]


async def _checked(check: Preflight, directory: Path, env: Mapping[str, str]) -> str | None:
    ran = await run_shell(check.command, directory=directory, env=env, seconds=CHECK_SECONDS)
    wrong = ran.error or await asyncio.to_thread(_judged, check, ran.output.strip())
    return None if wrong is None else f"Preflight failed: {check.description or check.command}: {wrong}"


def _judged(check: Preflight, output: str) -> str | None:
    """Return what speaks against what a check printed."""
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


def missing_commands(agents: Iterable[AgentDef], env: Mapping[str, str], directory: Path) -> list[str]:
    """Return what is wrong with command line agents that are not on this machine."""
    found = []
    for agent in agents:
        row = ROWS.get(agent.cli or "")
        if agent.is_a2a or agent.command is not None or row is None:
            continue
        preset = PRESETS[row.preset]
        binary = row.path or preset.binary
        if not has_command(binary, env, directory):
            how = f" ({preset.install})" if preset.install else ""
            found.append(f"The agent {agent.name} needs the command {binary}, which is not there: install it{how}")
    return found


async def absent(agents: Iterable[AgentDef], env: Mapping[str, str], keys: Keys) -> list[str]:
    """Return what is wrong with A2A agents that do not show a card; all are asked at the same time."""
    asked = [agent for agent in agents if agent.is_a2a]
    cards = await asyncio.gather(*(card_of(agent, env, keys) for agent in asked))
    return [
        f"The A2A agent {agent.name} is not there: {card}"
        for agent, card in zip(asked, cards, strict=True)
        if isinstance(card, str)
    ]


async def card_of(agent: AgentDef, env: Mapping[str, str], keys: Keys) -> AgentCard | str:
    """Return the card of an A2A agent, or why it cannot be had."""
    try:
        async with asyncio.timeout(CARD_SECONDS):
            return await carded(agent, env, keys)
    except TimeoutError:
        return f"it did not answer within {CARD_SECONDS:g} seconds"
    except (*NO_ANSWER, *NEEDS_OPERATOR) as error:
        return str(error)


def introduced(agent: AgentDef, card: AgentCard | str) -> str:
    """Return the line that a channel gets about an agent before it is talked to; without a card the run goes on."""
    if isinstance(card, str):
        return f"A2A agent: {agent.name} (no card: {card}); going on without"
    return f"A2A agent: {card.name} ({card.description})"
