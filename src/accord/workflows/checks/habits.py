"""What experience with agents advises: agent-relay's own warnings about files that are right and will disappoint."""

import re
from collections.abc import Iterator

from accord.workflows.checks.subject import Placed, Problem, Subject
from accord.workflows.document import AgentDef
from accord.workflows.members import is_interactive

MANY = 4
"""Terminals with agents in them that a machine can usually bear at a time."""

REVIEWS = re.compile(r"review|critic|verif|audit|judge|\bqa\b|test", re.IGNORECASE)
ENDS = re.compile(r"\bexit\b|/quit|/exit|STEP_COMPLETE|OWNER_DECISION|when (you are )?(done|finished)", re.IGNORECASE)
GUARDS = re.compile(r"(not|never|don't|no)\b.{0,40}\b(spawn|start|launch|create)\b|start no", re.IGNORECASE | re.DOTALL)
RELAYS = re.compile(
    r"->relay:|mcp__relay|relay_(send|dm|post|inbox)|\b(send_dm|post_message|check_inbox)\b", re.IGNORECASE
)


def spark(subject: Subject) -> Iterator[Problem]:
    """Codex's spark models have a terminal."""
    for at, agent in enumerate(subject.document.agents):
        if agent.cli == "codex" and "spark" in (agent.constraints.model or "") and not is_interactive(agent):
            where = ("agents", at, "constraints", "model")
            message = f"{agent.constraints.model} does not work without a terminal"
            yield Problem("CODEX_SPARK_NON_INTERACTIVE", where, message, "choose another model, or `interactive: true`")


def endings(subject: Subject) -> Iterator[Problem]:
    """Codex in a terminal knows how to end."""
    for placed in _terminal_steps(subject, "codex"):
        step = placed.step
        if step.verification is None and not ENDS.search(f"{step.task} {_agent(subject, placed).task or ''}"):
            message = f"{step.name} has codex in a terminal, and says nothing of how it ends"
            fix = "say `exit when done`, add a verification, or `interactive: false`"
            yield Problem("CODEX_NO_EXIT", (*placed.where, "task"), message, fix)


def spawning(subject: Subject) -> Iterator[Problem]:
    """Claude in a terminal is told to start no agents."""
    for placed in _terminal_steps(subject, "claude"):
        agent = _agent(subject, placed)
        if not GUARDS.search(f"{placed.step.task} {agent.task or ''} {agent.role or ''}"):
            message = f"{placed.step.name} lets claude start agents of its own"
            yield Problem("CLAUDE_NO_SPAWN_GUARD", (*placed.where, "task"), message, "say `Do not start other agents`")


def chains(subject: Subject) -> Iterator[Problem]:
    """What waits for an agent in a terminal waits for something that can be seen."""
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
                yield Problem("CHAIN_ON_INTERACTIVE", (*where, "dependsOn", at), message, fix)


def relaying(subject: Subject) -> Iterator[Problem]:
    """Who has no terminal is not told to use relay's messages."""
    for placed in subject.steps:
        agent = subject.agent_of(placed.step)
        if agent is None or is_interactive(agent) or agent.is_a2a:
            continue
        if RELAYS.search(f"{placed.step.task} {agent.task or ''} {agent.role or ''}"):
            message = f"{agent.name} has no terminal, and nobody hears relay's messages of it"
            fix = "have it print its result: the next steps get its output"
            yield Problem("NONINTERACTIVE_RELAY", (*placed.where, "task"), message, fix)


def reviewing(subject: Subject) -> Iterator[Problem]:
    """Where several write, somebody reviews."""
    used = {placed.step.agent for placed in subject.steps if subject.kind_of(placed.step) == "agent"}
    writers = [agent for agent in subject.document.agents if agent.name in used and not agent.is_a2a]
    is_reviewed = any(
        agent.preset == "reviewer" or REVIEWS.search(f"{agent.name} {agent.role or ''}")
        for agent in subject.document.agents
    )
    if len(writers) > 1 and not is_reviewed:
        message = f"{len(writers)} agents work, and none of them reviews"
        yield Problem(
            "NO_REVIEW_AGENT", ("agents",), message, "add an agent with `preset: reviewer` and a step for it", True
        )


def crowds(subject: Subject) -> Iterator[Problem]:
    """Few terminals are open at a time."""
    agents = [agent for agent in subject.document.agents if is_interactive(agent)]
    most = subject.document.swarm.max_concurrency
    if len(agents) > MANY and (most is None or most > MANY):
        message = f"{len(agents)} agents work in terminals, perhaps all at a time"
        yield Problem("HIGH_CONCURRENCY", ("swarm", "maxConcurrency"), message, f"write `maxConcurrency: {MANY}`")


def idlers(subject: Subject) -> Iterator[Problem]:
    """Every agent has something to do, where the pattern gives work only to those that steps name."""
    used = {placed.step.agent for placed in subject.steps}
    used |= {placed.step.verification.diagnostic_agent for placed in subject.steps if placed.step.verification}
    used |= {subject.document.error_handling.repair_agent} if subject.document.error_handling else set()
    if subject.document.swarm.pattern in ("dag", "pipeline"):
        for at, agent in enumerate(subject.document.agents):
            if agent.name not in used:
                yield Problem("UNUSED_AGENT", ("agents", at), f"No step names {agent.name}", "name it, or remove it")


def _terminal_steps(subject: Subject, cli: str | None = None) -> Iterator[Placed]:
    """Yield the steps that an agent in a terminal does."""
    for placed in subject.steps:
        agent = subject.agent_of(placed.step)
        if agent is not None and is_interactive(agent) and cli in (None, agent.cli):
            yield placed


def _agent(subject: Subject, placed: Placed) -> AgentDef:
    return subject.agents[placed.step.agent or ""]


ADVICE_CHECKS = (spark, endings, spawning, chains, relaying, reviewing, crowds, idlers)
