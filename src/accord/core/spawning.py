"""Tasks that a run begins beside its own: each belongs to the same caller and conversation, and outlives the run.

Unlike a child (`core.calls`) such a task is nobody's part: it is seen, answered and ended like any that the caller has
sent. It is noted among the run's steps by the transaction that makes it, so a run that is repeated makes it once.
`core.context` offers this to agents; the services of the node do it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from accord.core.interface import Caller
from accord.core.output import parts_of
from accord.errors import TaskNotFound
from accord.model import AgentSkill, Message, Part, Role, SendRequest, Task, TaskState
from accord.model.keys import HOLD
from accord.storage.commands.tasks import Fenced, Stored

T = TypeVar("T")


class Served(Struct, frozen=True, kw_only=True):
    """An agent that tasks can be made for, as it is described."""

    name: str
    description: str = ""
    skills: tuple[AgentSkill, ...] = ()


class Begins(Protocol):
    """The run that begins others."""

    caller: Caller
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


class Means(Protocol):
    """What the node does for it."""

    def known(self) -> Mapping[str, Served]:
        """Return the agents that callers can reach, by their names."""

    async def spawn(self, agent: str, request: SendRequest, step: str) -> str:
        """Make a task, noted under a step, and return it."""

    async def read(self, task_id: str) -> tuple[Stored, Task] | None:
        """Read a task as it is now."""

    async def execute(self, agent: str, task_id: str) -> None:
        """Let a held task begin."""

    async def cancel(self, agent: str, task_id: str) -> None:
        """End a task; one that has ended has."""

    async def conclude(self, agent: str, task_id: str, state: TaskState, result: Message | None) -> None:
        """End a held task that somebody has done elsewhere."""


class Spawning:
    """The tasks of a conversation that its runs begin."""

    def __init__(self, run: Begins, means: Means) -> None:
        """Begin them for `run`."""
        self._run = run
        self._means = means

    @property
    def agents(self) -> Mapping[str, Served]:
        """The agents that are served here, by their names; members of others are not for everybody."""
        return self._means.known()

    async def spawn(self, agent: str, asked: Message, noted: str, *, hold: bool, metadata: dict[str, Any]) -> str:
        """Make a task, once, and return its id."""
        run = self._run
        if (known := run.recall(noted)) is not None:
            return msgspec.json.decode(known, type=str)
        await run.flush()
        request = SendRequest(message=asked, metadata={**metadata, HOLD: True} if hold else metadata or None)
        try:
            return await run.patiently(lambda: self._means.spawn(agent, request, noted))
        except Fenced:
            run.is_cancelled = True
            run.on_lost()  # an agent that catches every exception must not go on
            raise

    async def read(self, task_id: str) -> Task:
        """Return a task of this conversation; any other is as if it were not there."""
        return (await self._found(task_id))[1]

    async def execute(self, task_id: str) -> Task:
        """Let a task of this conversation begin that was held, and return it; one that has begun is left alone."""
        stored, _ = await self._found(task_id)
        await self._run.patiently(lambda: self._means.execute(stored.agent, task_id))
        return await self.read(task_id)

    async def cancel(self, task_id: str) -> Task:
        """End a task of this conversation, unless it has ended, and return it."""
        stored, _ = await self._found(task_id)
        await self._run.patiently(lambda: self._means.cancel(stored.agent, task_id))
        return await self.read(task_id)

    async def conclude(self, task_id: str, state: TaskState, result: Any = None) -> Task:
        """End a task of this conversation that was held, because somebody has done it elsewhere, and return it."""
        stored, task = await self._found(task_id)
        said = Message(
            message_id=f"{task_id}/result",
            role=Role.AGENT,
            parts=parts_of(result) or (Part(text=""),),
            task_id=task_id,
            context_id=task.context_id,
        )
        told = None if result is None else said
        await self._run.patiently(lambda: self._means.conclude(stored.agent, task_id, state, told))
        return await self.read(task_id)

    async def _found(self, task_id: str) -> tuple[Stored, Task]:
        run = self._run
        found = await run.patiently(lambda: self._means.read(task_id))
        if found is None or found[0].owner != run.caller.owner or found[1].context_id != run.task.context_id:
            raise TaskNotFound(metadata={"taskId": task_id})
        return found
