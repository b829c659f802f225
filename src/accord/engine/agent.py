"""The interface of an agent: a profile with its crash policy, and one method that does the work."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from accord.engine.clock import SYSTEM, Clock
from accord.engine.context import Context
from accord.model import AgentSkill, Message
from accord.protocol.budgets import Budget
from accord.storage.store import Store

TEXT = "text/plain"


class Crash(Enum):
    """What to do with an execution whose process died: resume from its checkpoints, restart, or fail."""

    RESUME = "resume"
    RESTART = "restart"
    FAIL = "fail"


class Profile(Struct, frozen=True, kw_only=True):
    """The identity of an agent and how its tasks are executed."""

    name: str
    description: str = ""
    version: str = "1.0.0"
    skills: tuple[AgentSkill, ...] = ()
    extended_skills: tuple[AgentSkill, ...] = ()
    """Skills that the extended card adds for authenticated callers."""

    input_modes: tuple[str, ...] = (TEXT,)
    output_modes: tuple[str, ...] = (TEXT,)
    crash: Crash = Crash.RESTART
    attempts: int = 3
    timeout: float | None = None
    concurrency: int | None = None
    answers_message: bool | Callable[[Message], bool] = False
    """Whether the reply is a message alone, for all messages or as decided per message. Such senders do not see the
    task."""

    takes_repeats: bool = False
    """Whether a duplicate message starts a new task."""

    reports_start: bool = False
    """Whether tasks stay submitted until the agent reports that it works."""

    budget: Budget = Budget()

    @property
    def max_attempts(self) -> int:
        """The number of executions that may start before the task fails."""
        return 1 if self.crash is Crash.FAIL else self.attempts

    def answers_alone(self, message: Message) -> bool:
        """Whether the reply to a message is a message alone."""
        answers = self.answers_message
        return answers(message) if callable(answers) else answers


class Agent(Protocol):
    """A profile and a method that does the work of a task."""

    @property
    def profile(self) -> Profile:
        """The agent's profile."""

    async def run(self, ctx: Context) -> None:
        """Do the work of one turn. Returning completes the task."""


class Approvals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Server-wide rules for workflow approvals, in addition to those of a step."""

    approvers: tuple[str, ...] = ()
    """Roles that may decide an approval whose step names none. One of them is enough. By default the owner decides."""

    not_by_starter: bool = False
    """Forbid owners to decide approvals of their own runs."""


class AgentEnvironment(Struct, frozen=True, kw_only=True):
    """The services of a node for the agents that it hosts."""

    store: Store
    url: str
    """The address that callers use."""

    wake: Callable[[str, str, str, Any], Awaitable[bool]]
    """Delivers a signal to a task, by tenant, task ID, key and value. Returns false if the task has a value under
    that key or has ended."""

    env: Mapping[str, str] = {}
    credential: Callable[[str], Any] = lambda _: None
    """Looks up a credential for remote agents by name."""

    clock: Clock = SYSTEM
    approvals: Approvals = Approvals()
    """Who may decide approvals that workflows request."""

    files: frozenset[Path] = frozenset()
    """Files of the store, which no agent may change."""

    def __repr__(self) -> str:
        return f"AgentEnvironment(url={self.url!r})"  # the environment contains secrets


@runtime_checkable
class Living(Protocol):
    """An agent with resources to open and close with its node, such as a pool or a connection."""

    async def start(self, node: AgentEnvironment) -> None:
        """Acquire the resources, before any task of the agent starts here."""

    async def stop(self) -> None:
        """Release the resources, after the last execution of the agent here has ended."""


@runtime_checkable
class AgentWithMembers(Protocol):
    """An agent with members, which are hosted beside it and reachable only from its executions."""

    @property
    def members(self) -> Mapping[str, Agent]:
        """The members by name."""


def with_members(agents: Iterable[Agent]) -> list[Agent]:
    """Return the agents, followed by the members of each."""
    found = list(agents)
    return [
        *found,
        *(member for agent in found if isinstance(agent, AgentWithMembers) for member in agent.members.values()),
    ]
