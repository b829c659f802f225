"""What an agent is to the engine: a profile, and one method that does the work.

A function, a graph, a process, a remote agent and a workflow all look like this; `accord.agents` has one file for each
kind. What an agent may do while it runs is `core.context`.
"""

from enum import Enum
from typing import Protocol

from msgspec import Struct

from accord.core.context import Context
from accord.model import AgentSkill

TEXT = "text/plain"


class Crash(Enum):
    """What becomes of a run whose process died: go on from its own checkpoints, begin anew, or fail."""

    RESUME = "resume"
    RESTART = "restart"
    FAIL = "fail"


class Profile(Struct, frozen=True, kw_only=True):
    """Who an agent is and how it wants to be run.

    An agent with `answers_message` answers with a message alone; callers do not see the task behind it.
    """

    name: str
    description: str = ""
    version: str = "1.0.0"
    skills: tuple[AgentSkill, ...] = ()
    input_modes: tuple[str, ...] = (TEXT,)
    output_modes: tuple[str, ...] = (TEXT,)
    crash: Crash = Crash.RESTART
    attempts: int = 3
    timeout: float | None = None
    concurrency: int | None = None
    answers_message: bool = False

    @property
    def max_attempts(self) -> int:
        """How often a run may begin before its task fails."""
        return 1 if self.crash is Crash.FAIL else self.attempts


class Agent(Protocol):
    """Something that does work."""

    @property
    def profile(self) -> Profile:
        """Who it is."""

    async def run(self, ctx: Context) -> None:
        """Do the work of one turn; returning completes the task."""
