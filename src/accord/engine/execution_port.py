"""The interface of an execution that a context writes through."""

from typing import Any, Protocol

from accord.a2a import Caller
from accord.engine.budgets import TaskUsage
from accord.engine.child_tasks import ChildCalls, Spawning
from accord.engine.journal import Journal
from accord.engine.task_store import ConversationHistory
from accord.model import Artifact, Message, Task, TaskState


class ExecutionPort(Protocol):
    """The execution that a context writes through."""

    tenant: str
    caller: Caller
    message: Message
    deadline_at: int | None
    is_cancelled: bool

    @property
    def is_child(self) -> bool:
        """Whether another task called this one."""

    @property
    def calls(self) -> ChildCalls:
        """Access to child tasks."""

    @property
    def journal(self) -> Journal:
        """The journal, for agents with many concurrent steps."""

    @property
    def spawning(self) -> Spawning:
        """Access to tasks of the same conversation."""

    @property
    def spending(self) -> TaskUsage:
        """The usage and budget of the task."""

    @property
    def conversation(self) -> ConversationHistory:
        """The conversation of the task."""

    @property
    def task(self) -> Task:
        """The current task."""

    @property
    def attempt(self) -> int:
        """The number of this execution: 1, or more if an earlier one was lost."""

    @property
    def epoch(self) -> int:
        """The epoch of the claim."""

    @property
    def place(self) -> int:
        """The position of the turn's message in the history, from 1."""

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""

    async def status(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> None:
        """Append a status."""

    async def say(self, message: Message) -> None:
        """Append a message of the agent to the history."""

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Append a chunk."""

    async def finish(self, artifact_id: str) -> None:
        """Mark an artifact as complete."""

    async def flush(self) -> None:
        """Wait until all output is committed."""

    async def has_ended(self) -> bool:
        """Whether the task has ended, by this execution or otherwise."""

    def recall(self, key: str) -> str | None:
        """Return the result of a step."""

    async def remember(self, key: str, output: str) -> None:
        """Commit the result of a step."""

    def answered(self, key: str) -> Message | None:
        """Return the message that answered a question, or None."""

    async def take(self, key: str) -> bool:
        """Answer a question with the caller's oldest unread message. Return false without a message."""

    async def park(
        self,
        state: TaskState | None,
        message: Message | None,
        *,
        delay_ms: int | None = None,
        awaited: str | None = None,
    ) -> None:
        """Suspend the task. Returns if the awaited event has already happened."""

    async def limit(self, key: str, seconds: float, reason: str) -> None:
        """Set the timer that gives the task up as unknown, and commit it as a step."""

    def message_id(self) -> str:
        """Return a new message ID."""
