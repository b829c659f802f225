"""Calling other agents for a run: each call is a child task, whose questions are passed on to the caller of its parent.

Nothing is remembered here: the child is noted among the run's steps by the transaction that makes it, and an answer
belongs to the question that it follows in the history. `core.context` offers calls to agents, the engine carries them
out; that children end with their parent is `storage.commands.endings`.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from accord.errors import TaskNotFound
from accord.model import Message, Part, Role, Task, TaskState
from accord.protocol import lifecycle
from accord.storage.commands.tasks import Fenced

T = TypeVar("T")

CHILD_TASK = "childTask"
"""Metadata key of a question that was passed on: the id of the task that asks it."""


class Parent(Protocol):
    """The run that calls."""

    is_cancelled: bool
    on_lost: Callable[[], object]

    @property
    def task(self) -> Task:
        """The task as it is now."""

    def recall(self, key: str) -> str | None:
        """Return what a step gave."""

    async def flush(self) -> None:
        """Wait until everything said is committed."""

    async def patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something as often as it takes while the database cannot be used."""

    async def status(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> None:
        """Append a status."""

    async def park(self, state: TaskState | None, message: Message | None, *, child: str | None) -> None:
        """End the run until something happens; returns if that has happened already."""


Send = Callable[[str, Message, str], Awaitable[str]]
"""Says something to an agent and returns its task, which, if it is new, is noted under a step of the run."""

Settled = Callable[[str], Awaitable[Task]]
"""Waits until a task has ended or asks."""

Look = Callable[[str], Awaitable[tuple[object, Task] | None]]
"""Reads a task as it is now."""


class Calls:
    """The calls of one run."""

    def __init__(self, run: Parent, send: Send, settled: Settled, look: Look) -> None:
        """Call for `run`."""
        self._run = run
        self._reach, self._settled, self._look = send, settled, look

    async def ended(self, agent: str, asked: Message, noted: str) -> Task:
        """Let an agent do something as a child, once, and return how that ended.

        What the child asks is asked of the run's own caller, and the answer passed on.
        """
        run = self._run
        known = run.recall(noted)
        child = await self._send(agent, asked, noted) if known is None else msgspec.json.decode(known, type=str)
        while True:
            await self._withdraw(child)
            task = await run.patiently(lambda: self._settled(child))
            if task.status.state not in lifecycle.INTERRUPTED:
                return task
            question = self._passed_on(task)
            answer = answer_to(question, run.task.history)
            if answer is not None:
                reply = replace(answer, message_id=f"{question.message_id}/answer", task_id=child, context_id=None)
                await self._send(agent, reply, noted)
            elif self._asks(question):
                await run.park(None, None, child=child)
            else:
                await run.park(task.status.state, question, child=child)

    async def _send(self, agent: str, message: Message, noted: str) -> str:
        run = self._run
        await run.flush()
        try:
            return await run.patiently(lambda: self._reach(agent, message, noted))
        except Fenced:
            run.is_cancelled = True
            run.on_lost()  # an agent that catches every exception must not go on
            raise

    async def _withdraw(self, child: str) -> None:
        """Work again if the run asks what the child no longer does: somebody else has answered, or has ended it."""
        asked = self._run.task.status
        if asked.state not in lifecycle.INTERRUPTED or asked.message is None or child_of(asked.message) != child:
            return
        found = await self._run.patiently(lambda: self._look(child))
        if found is None:
            raise TaskNotFound(metadata={"taskId": child})
        now = found[1]
        if now.status.state not in lifecycle.INTERRUPTED or not self._asks(self._passed_on(now)):
            await self._run.status(TaskState.WORKING, None, None)

    def _asks(self, question: Message) -> bool:
        """Whether the run's task asks a question at the moment."""
        status = self._run.task.status
        asked = status.message.message_id if status.message else None
        return status.state in lifecycle.INTERRUPTED and asked == question.message_id

    def _passed_on(self, child: Task) -> Message:
        """Return a child's question as the run asks it.

        Its id tells it from all others that the child may ask, also if that uses an id twice.
        """
        waits_for = "credentials" if child.status.state is TaskState.AUTH_REQUIRED else "input"
        nothing = (Part(text=f"Task {child.id} waits for {waits_for}"),)
        asked = child.status.message or Message(message_id="", role=Role.AGENT, parts=nothing)
        turn = sum(said.role is Role.USER for said in child.history)
        return replace(
            asked,
            message_id=f"{child.id}/{turn}/{asked.message_id}",
            task_id=self._run.task.id,
            context_id=self._run.task.context_id,
            metadata={**(asked.metadata or {}), CHILD_TASK: child.id},
        )


def child_of(question: Message) -> str | None:
    """Return the task whose question a message passes on, if it does."""
    found = (question.metadata or {}).get(CHILD_TASK)
    return found if question.role is Role.AGENT and isinstance(found, str) else None


def answer_to(question: Message, history: Sequence[Message]) -> Message | None:
    """Return what the caller said next after a question."""
    said = pairwise(history)
    found = (new for before, new in said if before.message_id == question.message_id and new.role is Role.USER)
    return next(found, None)
