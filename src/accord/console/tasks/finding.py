"""One task of those that the console shows: whether somebody may see it, and whom to ask to do something with it.

Tasks of served agents are asked about through their guarded services. Those of members, which have no path of their
own, and of agents that are served no longer are only read here: whoever sees what they are members of sees them.
"""

from typing import NamedTuple

from msgspec.structs import replace

from accord.a2a import A2A, Caller
from accord.console.house import House
from accord.errors import TaskNotFound
from accord.model import Task
from accord.protocol.operations import Operation
from accord.storage.commands import browsing, tasks
from accord.storage.commands.browsing import Found
from accord.storage.commands.tasks import Head, Stored


class Whole(NamedTuple):
    """A task as it is kept, as a list shows it, and as it is."""

    stored: Stored
    found: Found
    task: Task


class Finding:
    """Finds tasks."""

    def __init__(self, house: House) -> None:
        """Look in the store of `house`."""
        self._house = house

    async def head(self, task_id: str, caller: Caller, operation: Operation = Operation.GET) -> Head:
        """Return what is known of a task with which somebody may do something; any other looks as if it were not there.

        What of it is not allowed by roles is refused by whoever is asked to do it.
        """
        found = await self._house.store.read(tasks.read_head, caller.tenant, task_id)
        return self._allowed(found, task_id, caller, operation)

    async def whole(self, task_id: str, caller: Caller) -> Whole:
        """Return a task."""
        both = await self._house.store.read(browsing.whole, caller.tenant, task_id)
        self._allowed(None if both is None else both[0], task_id, caller, Operation.GET)
        assert both is not None  # it would not be allowed
        return Whole(*both, await self._house.host.engine.archive.unpack(caller.tenant, both[0]))

    def _allowed(self, found: Head | None, task_id: str, caller: Caller, operation: Operation) -> Head:
        if found is None or not self._house.sight.seen(caller, operation).sees(found.agent, found.owner):
            raise TaskNotFound(metadata={"taskId": task_id})
        return found

    def is_served(self, agent: str) -> bool:
        """Whether an agent has a path of its own here."""
        slug = self._house.sight.slug(agent)
        return slug in self._house.agents and self._house.agents[slug].profile.name == agent

    def service(self, head: Head, caller: Caller) -> tuple[A2A, Caller]:
        """Return whom to ask about a task that was found, and as whom."""
        if self.is_served(head.agent):
            return self._house.services[self._house.sight.slug(head.agent)], caller
        inner = self._house.host.services.get(head.agent)
        if inner is None:
            raise TaskNotFound("The agent of this task is not served any more")
        return inner, caller if head.owner == caller.owner else replace(caller, sees_all=True)
