"""The journal of a task, for agents with many concurrent steps and child tasks.

All writes of one call are committed in one transaction.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from accord.engine.child_tasks import ChildCall, ChildTasks
from accord.engine.execution import Execution, StatusEntry
from accord.model import Task
from accord.storage.commands import conversation_state, tasks
from accord.storage.commands.steps import ChildWatch

Revise = Callable[[str | None], str]
"""Returns a new value from the stored one, or from None."""


class Journal:
    """The journal of one task, for one execution."""

    def __init__(self, execution: Execution) -> None:
        """Write through `execution`."""
        self.children = ChildTasks(execution)
        self._execution = execution
        self._nudged = asyncio.Event()
        self._changed = asyncio.Event()
        topic, hub = tasks.task_topic(execution.tenant, execution.job.key), execution.hub
        hub.watch(self._changed, topic)
        execution.result.at_end(lambda: hub.unwatch(topic, self._changed))

    # --- entries --------------------------------------------------------------------------------------------------

    def entries(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield the entries whose keys start with `prefix`: the rest of the key, and the entry."""
        for key, entry in self._execution.steps.items():
            if key.startswith(prefix):
                yield key.removeprefix(prefix), entry

    def entry(self, key: str) -> str | None:
        """Return the entry under a key."""
        return self._execution.recall(key)

    def child(self, key: str) -> str | None:
        """Return the ID of the child task under a key."""
        entry = self._execution.recall(key)
        return None if entry is None else msgspec.json.decode(entry, type=str)

    async def write(
        self, entries: Mapping[str, str], calls: Sequence[ChildCall] = (), statuses: Sequence[StatusEntry] = ()
    ) -> None:
        """Write entries, start tasks and append status updates with all earlier output, in one transaction."""
        with ExitStack() as places:
            children = [await self.children.prepare(call, places) for call in calls]
            accepted = await self._execution.commit_entries(
                entries, tuple(child.accept for child in children), statuses
            )
            if accepted is None:
                return
            for call, child, acceptance in zip(calls, children, accepted, strict=True):
                self._execution.steps[call.key] = msgspec.json.encode(acceptance.task_id).decode()
                child.begin(acceptance)

    def note(self, entries: Mapping[str, str], statuses: Sequence[StatusEntry] = ()) -> None:
        """Write entries and status updates with the next commit, or with the end of the execution."""
        self._execution.add_pending(entries, statuses)

    # --- waiting --------------------------------------------------------------------------------------------------

    async def reload(self) -> None:
        """Load new messages and signals."""
        await self._execution.reload()

    def nudge(self) -> None:
        """End the execution's current wait."""
        self._nudged.set()
        self._changed.set()

    async def nudged(self, seconds: float) -> None:
        """Wait for a nudge within this process, for at most `seconds`."""
        await _wait_and_clear(self._nudged, seconds)

    async def changed(self, seconds: float) -> None:
        """Wait for a nudge or a possible message or signal, for at most `seconds`.

        Commits of the execution itself count as well.
        """
        await _wait_and_clear(self._changed, seconds)

    async def suspend(self, *, keys: Sequence[str], children: Mapping[str, bool], delay_ms: int | None) -> None:
        """Suspend until a signal, a change of a child, a message of the caller, or the timeout.

        `children` maps each child to whether it asks (true) or works. Returns if something has already happened.
        """
        await self._execution.suspend(delay_ms=delay_ms, watch=ChildWatch(keys=tuple(keys), children=dict(children)))


async def _wait_and_clear(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, for at most `seconds`, and clear it."""
    alarm = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        alarm.cancel()
        event.clear()


class ConversationHistory:
    """Earlier tasks and stored values of one execution's conversation."""

    def __init__(self, execution: Execution) -> None:
        """Read and write for `execution`."""
        self._execution = execution

    async def earlier(self, limit: int) -> tuple[Task, ...]:
        """Return the latest ended tasks of the conversation, oldest first."""
        execution = self._execution
        return await execution.retry(
            lambda: execution.task_store.conversation(execution.tenant, execution.job.key, limit)
        )

    async def recall(self, key: str) -> str | None:
        """Return the value stored under `key` for the conversation, or None."""
        execution, store = self._execution, self._execution.task_store.store
        return await execution.retry(
            lambda: store.read(conversation_state.recall_value, execution.tenant, execution.job.key, key)
        )

    async def remember(self, key: str, value: str | Revise) -> None:
        """Commit a value of the conversation, or the result of a function of the stored value."""
        if isinstance(value, str):
            await self._execution.persist(conversation_state.put_value, self._state(key, value))
            return
        while True:
            before = await self.recall(key)
            revision = conversation_state.ValueRevision(self._state(key, value(before)), before)
            if await self._execution.persist(conversation_state.revise_value, revision):
                return  # otherwise another task of the conversation was faster

    def _state(self, key: str, value: str) -> conversation_state.ConversationValue:
        execution = self._execution
        return conversation_state.ConversationValue(
            task_id=execution.job.key, epoch=execution.job.epoch, key=key, value=value, at=execution.now_ms()
        )
