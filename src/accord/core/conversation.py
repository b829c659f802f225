"""The conversation that a run's task belongs to: what ended earlier in it, and what its agent keeps of it.

It is one caller's with one agent; what others said under the same context id is theirs. What is kept where is
`storage.commands.states`, what agents see of it `core.context`.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from accord.core.archive import Archive
from accord.model import Task
from accord.storage.commands import states
from accord.storage.commands.jobs import Claimed
from accord.storage.store import Command

Q = TypeVar("Q")
T = TypeVar("T")

Revise = Callable[[str | None], str]
"""Makes a new value of the one that is kept, if any is."""


class Speaker(Protocol):
    """The run whose conversation it is."""

    job: Claimed
    tenant: str

    def now_ms(self) -> int:
        """The time."""

    async def patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something as often as it takes while the database cannot be used."""

    async def persist(self, command: Command[[str, Q], T], request: Q) -> T | None:
        """Run a command as often as it takes while the database cannot be used."""


class Conversation:
    """One run's conversation."""

    def __init__(self, run: Speaker, archive: Archive) -> None:
        """Read it from `archive`."""
        self._run = run
        self._archive = archive

    async def earlier(self, limit: int) -> tuple[Task, ...]:
        """Return the latest tasks that ended in it, oldest first."""
        run = self._run
        return await run.patiently(lambda: self._archive.conversation(run.tenant, run.job.key, limit))

    async def recall(self, key: str) -> str | None:
        """Return what is kept of it."""
        run, store = self._run, self._archive.store
        return await run.patiently(lambda: store.read(states.recall, run.tenant, run.job.key, key))

    async def remember(self, key: str, value: str | Revise) -> None:
        """Commit what is to be kept of it: a value, or what a function makes of the one that is there then."""
        if isinstance(value, str):
            await self._run.persist(states.remember, self._state(key, value))
            return
        while True:
            before = await self.recall(key)
            revision = states.Revision(self._state(key, value(before)), before)
            if await self._run.persist(states.revise, revision):
                return  # or another task of the conversation was faster

    def _state(self, key: str, value: str) -> states.State:
        job = self._run.job
        return states.State(task_id=job.key, epoch=job.epoch, key=key, value=value, at=self._run.now_ms())
