"""LangGraph checkpoints in the store that contains the tasks.

A `Saver` is made for one execution and writes under its fence, so writes of a node that lost the task are refused. A
step and the writes of its nodes are one commit (`PendingWrites`). An execution need not read its own writes
(`LatestSteps`). The bytes go to `accord.api.storage`.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from msgspec.structs import replace

from accord.api import Store, retry_until_available, storage
from accord.api.storage import (
    ALL_TABLES,
    CheckpointPlace,
    CheckpointWrites,
    EnteredThread,
    LoadedCheckpoint,
    NewCheckpoint,
    PendingWrite,
    TaskFence,
    TypedValue,
)


class LatestSteps:
    """Cache of the latest steps of threads."""

    def __init__(self) -> None:
        self._steps: dict[CheckpointPlace, LoadedCheckpoint | None] = {}
        self.added = 0

    def knows(self, place: CheckpointPlace, checkpoint_id: str | None) -> bool:
        """Whether the latest step at a place is cached, and has this id if one is given."""
        if place not in self._steps:
            return False
        step = self._steps[place]
        return checkpoint_id is None or (step is not None and step.checkpoint.id == checkpoint_id)

    def at(self, place: CheckpointPlace) -> LoadedCheckpoint | None:
        """Return the latest step at a cached place, or None if it has no steps."""
        return self._steps[place]

    def cache(self, place: CheckpointPlace, step: LoadedCheckpoint | None) -> None:
        """Cache a step that was read."""
        if not place.space:
            self._steps[place] = step

    def forget(self) -> None:
        """Clear the cache."""
        self._steps.clear()

    def add(self, write: NewCheckpoint | CheckpointWrites) -> None:
        """Update the cache with a pending write."""
        self.added += 1
        if write.place not in self._steps:
            return
        before = self._steps.pop(write.place)
        after = _after_step(before, write) if isinstance(write, NewCheckpoint) else _after_writes(before, write)
        if after is not None:
            self._steps[write.place] = after


def _after_step(before: LoadedCheckpoint | None, step: NewCheckpoint) -> LoadedCheckpoint | None:
    """Return the state after a step, or None if it contains values that are not cached."""
    new = {(channel, version): value for channel, version, value in step.values}
    old = {} if before is None else before.checkpoint.versions
    values: dict[str, TypedValue] = {}
    for channel, version in step.checkpoint.versions.items():
        if (channel, version) in new:
            values[channel] = new[channel, version]
        elif before is None or old.get(channel) != version:
            return None
        elif channel in before.values:
            values[channel] = before.values[channel]
    if before is None or before.checkpoint.id < step.checkpoint.id:
        return LoadedCheckpoint(step.checkpoint, values, [])
    if before.checkpoint.id > step.checkpoint.id:
        return None
    return LoadedCheckpoint(step.checkpoint, values, before.writes)


def _after_writes(before: LoadedCheckpoint | None, new: CheckpointWrites) -> LoadedCheckpoint | None:
    """Return the state after writes of nodes, or None if they belong to a step that is not cached."""
    if before is None or before.checkpoint.id != new.checkpoint_id:
        return None
    writes: dict[tuple[str, int], PendingWrite] = {(write.task, write.position): write for write in before.writes}
    for write in new.writes:
        if write.position < 0 or (write.task, write.position) not in writes:
            writes[write.task, write.position] = write
    return replace(before, writes=sorted(writes.values(), key=lambda write: (write.path, write.task, write.position)))


COMMIT_SECONDS = 0.02
"""Maximum time that a node's writes wait for their step, in seconds.

A step usually ends within this time after its last node. It is short compared with the work of a node whose writes are
worth storing before the step ends.
"""


class PendingWrites:
    """Pending steps and writes of nodes, in order."""

    def __init__(self, commit: Callable[[Sequence[NewCheckpoint | CheckpointWrites]], Awaitable[None]]) -> None:
        self._commit = commit
        self._pending: list[NewCheckpoint | CheckpointWrites] = []
        self._soon: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    def add(self, one: NewCheckpoint | CheckpointWrites) -> None:
        """Schedule a write for the next commit; raises the error of an earlier commit."""
        if self._error is not None:
            raise self._error
        self._pending.append(one)
        if self._soon is None and self._writing is None:
            self._soon = asyncio.get_running_loop().call_later(COMMIT_SECONDS, self._begin)

    async def flush(self) -> None:
        """Wait until all writes are committed. Canceling the caller does not cancel the commit."""
        while self._pending or self._writing is not None:
            self._begin()
            if self._writing is not None:
                await asyncio.shield(self._writing)
        if self._error is not None:
            raise self._error

    def drop(self) -> None:
        """Discard pending writes and stop the commit under way."""
        self._pending.clear()
        for handle in (self._soon, self._writing):
            if handle is not None:
                handle.cancel()

    def _begin(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="checkpoints")

    async def _write(self) -> None:
        """Commit until nothing is pending. Writes that arrive meanwhile form the next commit."""
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                await self._commit(batch)
        except Exception as error:  # raised by `flush` and by later calls of `add`
            self._error = error
            self._pending.clear()
        finally:
            self._writing = None


EMPTY = "empty"
"""Format of an empty channel."""

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("accord.langgraph")


def _from_thread(
    method: "Callable[Concatenate[Saver, P], Coroutine[Any, Any, T]]",
) -> "Callable[Concatenate[Saver, P], T]":
    """Return a method that runs a coroutine in the saver's event loop, and waits for it in a thread."""

    def run(saver: "Saver", /, *args: P.args, **named: P.kwargs) -> T:
        return asyncio.run_coroutine_threadsafe(method(saver, *args, **named), saver._loop).result()

    return run


class Saver(BaseCheckpointSaver[str]):
    """LangGraph checkpoint saver of one tenant for one execution."""

    def __init__(self, store: Store, tenant: str, fence: TaskFence) -> None:
        super().__init__()
        self._store, self._tenant, self._fence = store, tenant, fence
        self._loop = asyncio.get_running_loop()
        self._unwritten = PendingWrites(self._commit)
        self._latest = LatestSteps()

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the next version.

        It has a random part, so that two versions that follow the same one differ, as in forks.
        """
        number = 0 if current is None else int(current.partition(".")[0])
        return f"{number + 1:032}.{secrets.token_hex(8)}"

    # --- threads ----------------------------------------------------------------------------------------------------

    async def enter(self) -> EnteredThread:
        """Claim the thread of the task's conversation, unless another task holds it."""
        entered = await self._retried(lambda: storage.enter_thread(self._store, self._tenant, self._fence))
        if entered.is_new:
            self._latest.cache(CheckpointPlace(entered.thread), None)
        return entered

    async def trim(self, thread: str) -> None:
        """Delete all but the last step of a graph that has ended."""
        await self.flush()
        self._latest.forget()
        await self._retried(lambda: storage.trim_checkpoints(self._store, self._tenant, thread, self._fence))

    async def flush(self) -> None:
        """Wait until all writes of the graph are committed."""
        await self._unwritten.flush()

    def drop(self) -> None:
        """Discard pending writes, because the execution has ended."""
        self._unwritten.drop()

    # --- LangGraph's interface --------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint of a config, or the latest."""
        place, only = _place(config), get_checkpoint_id(config)
        if self._latest.knows(place, only):
            loaded = self._latest.at(place)
            await self.flush()  # a read must follow all earlier writes
        else:
            loaded = await self._read_latest(place, only)
        return None if loaded is None else self._tuple(place, loaded)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, the latest first."""
        if config is None:
            raise ValueError("Name a thread: this run may not look at others")
        place, remaining = _place(config), ALL_TABLES if limit is None else limit
        places = [place]
        if "checkpoint_ns" not in config["configurable"]:
            await self.flush()
            spaces = await self._retried(lambda: storage.checkpoint_namespaces(self._store, self._tenant, place.thread))
            places = [CheckpointPlace(place.thread, space) for space in spaces]
        for thread_place in places:
            only, until = get_checkpoint_id(config), get_checkpoint_id(before) if before else None
            for row in await self._load(
                thread_place, only=only, before=until, limit=ALL_TABLES if filter else remaining
            ):
                checkpoint_tuple = self._tuple(thread_place, row)
                metadata = cast(dict[str, Any], checkpoint_tuple.metadata)
                if remaining > 0 and all(metadata.get(key) == value for key, value in (filter or {}).items()):
                    remaining -= 1
                    yield checkpoint_tuple

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, with only the new values of its channels."""
        place = _place(config)
        state: dict[str, Any] = {**checkpoint}
        channel_values = state.pop("channel_values")
        values = [
            (
                channel,
                str(version),
                self._typed(channel_values[channel]) if channel in channel_values else TypedValue(EMPTY, b""),
            )
            for channel, version in new_versions.items()
        ]
        row = storage.Checkpoint(
            id=checkpoint["id"],
            parent=config["configurable"].get("checkpoint_id"),
            versions={channel: str(version) for channel, version in checkpoint["channel_versions"].items()},
            state=self._typed(state),
            metadata=self._typed(get_checkpoint_metadata(config, metadata)),
        )
        self._add(NewCheckpoint(place, row, values))
        if metadata.get("source") != "input":  # without it the next execution receives the same input again
            await self._unwritten.flush()
        return _config(place, row.id)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store a node's writes in an unfinished step: at once if other nodes depend on them, else with the step."""
        place, after = _place(config), config["configurable"]["checkpoint_id"]
        rows = [
            PendingWrite(
                task=task_id,
                position=WRITES_IDX_MAP.get(channel, position),
                path=task_path,
                channel=channel,
                value=self._typed(value),
            )
            for position, (channel, value) in enumerate(writes)
        ]
        self._add(CheckpointWrites(place, after, rows))
        if any(channel in WRITES_IDX_MAP for channel, _ in writes):
            await self._unwritten.flush()

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread."""
        await self.flush()
        self._latest.forget()
        await self._retried(lambda: storage.delete_checkpoints(self._store, self._tenant, thread_id, self._fence))

    # --- synchronous variants for nodes that are plain functions, which run in threads ------------------------------

    get_tuple = _from_thread(aget_tuple)
    put = _from_thread(aput)
    put_writes = _from_thread(aput_writes)
    delete_thread = _from_thread(adelete_thread)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, the latest first."""

        async def collected(saver: "Saver") -> Sequence[CheckpointTuple]:
            return [found async for found in saver.alist(config, filter=filter, before=before, limit=limit)]

        yield from _from_thread(collected)(self)

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _retried(self, do: Callable[[], Awaitable[T]]) -> T:
        """Retry until the store is available; every operation here may be repeated."""
        return await retry_until_available(do, log, task_id=self._fence.task_id)

    def _add(self, write: NewCheckpoint | CheckpointWrites) -> None:
        self._unwritten.add(write)
        self._latest.add(write)

    async def _commit(self, batch: Sequence[NewCheckpoint | CheckpointWrites]) -> None:
        await self._retried(lambda: storage.put_checkpoints(self._store, self._tenant, self._fence, batch))

    async def _read_latest(self, place: CheckpointPlace, checkpoint_id: str | None) -> LoadedCheckpoint | None:
        """Read one step, and cache it if it is the latest."""
        added = self._latest.added
        steps = await self._load(place, only=checkpoint_id, limit=1)
        latest = steps[0] if steps else None
        if checkpoint_id is None and added == self._latest.added:  # otherwise it has changed since the read
            self._latest.cache(place, latest)
        return latest

    async def _load(self, place: CheckpointPlace, **which: Any) -> Sequence[LoadedCheckpoint]:
        await self.flush()
        return await self._retried(lambda: storage.load_checkpoints(self._store, self._tenant, place, **which))

    def _tuple(self, place: CheckpointPlace, loaded: LoadedCheckpoint) -> CheckpointTuple:
        row = loaded.checkpoint
        values = {name: self._value(value) for name, value in loaded.values.items() if value.format != EMPTY}
        checkpoint = cast(Checkpoint, {**self._value(row.state), "channel_values": values})
        return CheckpointTuple(
            config=_config(place, row.id),
            checkpoint=checkpoint,
            metadata=self._value(row.metadata),
            parent_config=None if row.parent is None else _config(place, row.parent),
            pending_writes=[(write.task, write.channel, self._value(write.value)) for write in loaded.writes],
        )

    def _typed(self, value: Any) -> TypedValue:
        format, data = self.serde.dumps_typed(value)
        return TypedValue(format, bytes(data))

    def _value(self, value: TypedValue) -> Any:
        return self.serde.loads_typed((value.format, value.data))


def _place(config: RunnableConfig) -> CheckpointPlace:
    named = config["configurable"]
    return CheckpointPlace(named["thread_id"], named.get("checkpoint_ns", ""))


def _config(place: CheckpointPlace, checkpoint_id: str) -> RunnableConfig:
    named = {"thread_id": place.thread, "checkpoint_ns": place.space, "checkpoint_id": checkpoint_id}
    return {"configurable": named}
