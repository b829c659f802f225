"""An agent as the engine sees it: a profile, and one method that does the work."""

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
    """What becomes of a run whose process died: go on from its own checkpoints, begin anew, or fail."""

    RESUME = "resume"
    RESTART = "restart"
    FAIL = "fail"


class Profile(Struct, frozen=True, kw_only=True):
    """Who an agent is and how it wants to be run.

    An agent with `answers_message` answers with a message alone, or those messages for which it is true; their senders
    are not shown the task behind it. One that `takes_repeats` begins a task whenever a message comes, even if the same
    one came before. Its `extended_skills` are shown to callers who have said who they are. The tasks of one that
    `reports_start` stay submitted until the agent reports that it works.
    """

    name: str
    description: str = ""
    version: str = "1.0.0"
    skills: tuple[AgentSkill, ...] = ()
    extended_skills: tuple[AgentSkill, ...] = ()
    input_modes: tuple[str, ...] = (TEXT,)
    output_modes: tuple[str, ...] = (TEXT,)
    crash: Crash = Crash.RESTART
    attempts: int = 3
    timeout: float | None = None
    concurrency: int | None = None
    answers_message: bool | Callable[[Message], bool] = False
    takes_repeats: bool = False
    reports_start: bool = False
    budget: Budget = Budget()

    @property
    def max_attempts(self) -> int:
        """How often a run may begin before its task fails."""
        return 1 if self.crash is Crash.FAIL else self.attempts

    def answers_alone(self, message: Message) -> bool:
        """Whether a message is answered with a message alone."""
        answers = self.answers_message
        return answers(message) if callable(answers) else answers


class Agent(Protocol):
    """Something that does work."""

    @property
    def profile(self) -> Profile:
        """Who it is."""

    async def run(self, ctx: Context) -> None:
        """Do the work of one turn; returning completes the task."""


class Approvals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may decide the approvals of workflows, besides what a step says itself."""

    approvers: tuple[str, ...] = ()
    """Roles one of which a caller needs to decide an approval whose step names none; left out, the owner decides."""

    not_by_starter: bool = False
    """Whether no owner may decide an approval of their own run."""


class Node(Struct, frozen=True, kw_only=True):
    """What a node has for the agents that it hosts.

    `url` is the address that callers use; `wake` hands a task (by tenant and id) what it waits for under a key, and is
    false if it has that already or has ended. `credential` looks up what the server has for agents elsewhere, by name.
    `approvals` is who may decide what its workflows ask. `files` are those of its store, which no agent changes.
    """

    store: Store
    url: str
    wake: Callable[[str, str, str, Any], Awaitable[bool]]
    env: Mapping[str, str] = {}
    credential: Callable[[str], Any] = lambda _: None
    clock: Clock = SYSTEM
    approvals: Approvals = Approvals()
    files: frozenset[Path] = frozenset()

    def __repr__(self) -> str:
        return f"Node(url={self.url!r})"  # the environment has secrets


@runtime_checkable
class Living(Protocol):
    """An agent that holds something while its node runs: a pool, a broker, a connection."""

    async def start(self, node: Node) -> None:
        """Take what it needs; before any of its tasks runs here."""

    async def stop(self) -> None:
        """Let go of it, once nothing of it runs here any more."""


@runtime_checkable
class AgentWithMembers(Protocol):
    """An agent with members: agents that are hosted beside it, and that nobody but its runs can reach."""

    @property
    def members(self) -> Mapping[str, Agent]:
        """They, by their names."""


def with_members(agents: Iterable[Agent]) -> list[Agent]:
    """Return agents, and then the members of each."""
    found = list(agents)
    return [
        *found,
        *(member for agent in found if isinstance(agent, AgentWithMembers) for member in agent.members.values()),
    ]
