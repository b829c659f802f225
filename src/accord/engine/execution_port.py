"""The interface of an execution that a context writes through."""

from typing import Any, Protocol

from accord.a2a import Caller
from accord.engine.budgets import TaskUsage
from accord.engine.child_tasks import ChildCalls, Spawning
from accord.engine.journal import Journal
from accord.engine.task_store import ConversationHistory
from accord.model import Artifact, Message, Task, TaskState


class ExecutionPort(Protocol):
    """The run behind a context: what it writes through."""

    tenant: str
    caller: Caller
    message: Message
    deadline_at: int | None
    is_cancelled: bool

    @property
    def is_child(self) -> bool:
        """Whether another run has called."""

    @property
    def calls(self) -> ChildCalls:
        """How it calls other agents."""

    @property
    def journal(self) -> Journal:
        """What it writes down if it does many things at once."""

    @property
    def spawning(self) -> Spawning:
        """How it begins tasks beside its own."""

    @property
    def spending(self) -> TaskUsage:
        """What its task has used, and may."""

    @property
    def conversation(self) -> ConversationHistory:
        """The conversation that its task belongs to."""

    @property
    def task(self) -> Task:
        """The task as it is now."""

    @property
    def attempt(self) -> int:
        """1, or more if an earlier run was lost."""

    @property
    def epoch(self) -> int:
        """The number of its claim."""

    @property
    def place(self) -> int:
        """The place of the message that began this turn among all that were said, from 1."""

    def now_ms(self) -> int:
        """The time."""

    async def status(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> None:
        """Append a status."""

    async def say(self, message: Message) -> None:
        """Append a message of the agent to the history."""

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Append a chunk."""

    async def finish(self, artifact_id: str) -> None:
        """Say that an artifact is whole."""

    async def flush(self) -> None:
        """Wait until everything said is committed."""

    async def has_ended(self) -> bool:
        """Whether the task has ended, here or from outside."""

    def recall(self, key: str) -> str | None:
        """Return what a step gave."""

    async def remember(self, key: str, output: str) -> None:
        """Commit what a step gave."""

    def answered(self, key: str) -> Message | None:
        """Return the message that answered a question, if one has."""

    async def take(self, key: str) -> bool:
        """Let the caller's oldest message that nobody has taken answer a question; false if there is none."""

    async def park(
        self,
        state: TaskState | None,
        message: Message | None,
        *,
        delay_ms: int | None = None,
        awaited: str | None = None,
    ) -> None:
        """End the run until something happens; returns if that has happened already."""

    async def limit(self, key: str, seconds: float, reason: str) -> None:
        """Give the task up as unknown after a while, and commit that as a step."""

    def message_id(self) -> str:
        """Make an id for a message."""
