"""The states of graphs, step by step: threads, checkpoints, what their channels hold, and writes that are pending.

What is in a checkpoint is the framework's business: here it is bytes. Whoever writes does so for a task and states the
epoch of its claim, so that a worker that lost the task cannot change the thread behind the back of the one that has it.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec
from msgspec import Struct

from accord.storage.commands.tasks import Fenced
from accord.storage.store import Tx, Value

ALL = 1_000_000_000
"""Checkpoints: more than any thread has."""

TABLES = ("checkpoint", "checkpoint_value", "checkpoint_write")


class Fence(Struct, frozen=True):
    """The claim under which a worker writes."""

    task_id: str
    epoch: int


class Place(Struct, frozen=True):
    """Where checkpoints belong: a thread, and a graph within its graph."""

    thread: str
    space: str = ""


class Typed(Struct, frozen=True):
    """A value as the framework writes it."""

    format: str
    data: bytes


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The state after a step, without what the channels hold: of that it names the versions."""

    id: str
    parent: str | None
    versions: dict[str, str]
    state: Typed
    metadata: Typed


class Write(Struct, frozen=True, kw_only=True):
    """What a node gave; one with a position below zero takes the place of an earlier one."""

    task: str
    position: int
    path: str
    channel: str
    value: Typed


class Step(Struct, frozen=True):
    """A checkpoint to keep, with the values that are new in it, as (channel, version, value)."""

    place: Place
    checkpoint: Checkpoint
    values: list[tuple[str, str, Typed]]


class Given(Struct, frozen=True):
    """What nodes gave after a checkpoint."""

    place: Place
    checkpoint_id: str
    writes: list[Write]


class Loaded(Struct, frozen=True):
    """A checkpoint with what the channels hold, and with what nodes gave after it, in the order in which it counts."""

    checkpoint: Checkpoint
    values: dict[str, Typed]
    writes: list[Write]


class Entered(Struct, frozen=True):
    """The thread of a task's conversation, the task that is at work in it, if that is another, and if it is new."""

    thread: str
    holder: str | None = None
    is_new: bool = False


async def enter(tx: Tx, tenant: str, fence: Fence) -> Entered:
    """Take the thread of a task's conversation for it, unless another task is at work there.

    Nobody reaches a thread of another tenant, owner or agent by naming a context. A task that waits for its caller's
    answer has to give its thread up: the conversation went on without the answer.
    """
    owner, agent, context_id = await _check(tx, tenant, fence)
    thread = "/".join(quote(name, safe="") for name in (tenant, owner, agent, context_id))
    mine = {"tenant": tenant, "id": thread, "task_id": fence.task_id}
    is_new = await tx.run(
        "INSERT INTO thread (tenant, id, task_id) VALUES (:tenant, :id, :task_id) ON CONFLICT (tenant, id) DO NOTHING",
        **mine,
    )
    if is_new:
        return Entered(thread, is_new=True)
    row = await tx.one(
        "SELECT task_id FROM thread WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=thread
    )
    holder = fence.task_id if row is None else str(row[0])
    if holder == fence.task_id:
        return Entered(thread)
    is_at_work = await tx.one(
        "SELECT 1 FROM task WHERE tenant = :tenant AND id = :holder AND state IN ('submitted', 'working')",
        tenant=tenant,
        holder=holder,
    )
    if is_at_work:
        return Entered(thread, holder)
    await tx.run("UPDATE thread SET task_id = :task_id WHERE tenant = :tenant AND id = :id", **mine)
    return Entered(thread)


async def put(tx: Tx, tenant: str, fence: Fence, kept: Sequence[Step | Given]) -> None:
    """Keep steps, and what nodes gave: of that, what is there already stays unless its position is below zero."""
    await _check(tx, tenant, fence)
    steps = [one for one in kept if isinstance(one, Step)]
    for sql, rows in (
        (_PUT_VALUE, [row for step in steps for row in _value_rows(tenant, step)]),
        (_PUT_CHECKPOINT, [_checkpoint_row(tenant, step) for step in steps]),
        (_PUT_WRITE, [row for one in kept if isinstance(one, Given) for row in _write_rows(tenant, one)]),
    ):
        if rows:
            await tx.many(sql, rows)


async def load(
    tx: Tx, tenant: str, place: Place, *, only: str | None = None, before: str | None = None, limit: int = ALL
) -> list[Loaded]:
    """Return checkpoints, the latest first: a single one, those before another, or all."""
    rows = await tx.all(
        """SELECT id, parent, versions, format, data, metadata_format, metadata FROM checkpoint
           WHERE tenant = :tenant AND thread = :thread AND space = :space
             AND (:only = '' OR id = :only) AND (:before = '' OR id < :before)
           ORDER BY id DESC LIMIT :limit""",
        tenant=tenant,
        thread=place.thread,
        space=place.space,
        only=only or "",
        before=before or "",
        limit=limit,
    )
    return [
        Loaded(
            Checkpoint(
                id=id,
                parent=parent,
                versions=msgspec.json.decode(versions),
                state=Typed(format, data),
                metadata=Typed(metadata_format, metadata),
            ),
            await _values(tx, tenant, place, versions),
            await _writes(tx, tenant, place, id),
        )
        for id, parent, versions, format, data, metadata_format, metadata in rows
    ]


async def spaces(tx: Tx, tenant: str, thread: str) -> list[str]:
    """Return where a thread has checkpoints: in its graph, and in which graphs within it."""
    rows = await tx.all(
        "SELECT DISTINCT space FROM checkpoint WHERE tenant = :tenant AND thread = :thread ORDER BY space",
        tenant=tenant,
        thread=thread,
    )
    return [str(row[0]) for row in rows]


async def trim(tx: Tx, tenant: str, thread: str, fence: Fence) -> None:
    """Forget all steps of a graph that has ended but the latest, and those of graphs that ran within it.

    A graph within it that has a memory of its own is called by its name alone, and left as it is.
    """
    await _check(tx, tenant, fence)
    row = await tx.one(
        """SELECT id, versions FROM checkpoint WHERE tenant = :tenant AND thread = :thread AND space = ''
           ORDER BY id DESC LIMIT 1""",
        tenant=tenant,
        thread=thread,
    )
    if row is None:
        return
    for table in TABLES:
        await tx.run(
            f"DELETE FROM {table} WHERE tenant = :tenant AND thread = :thread AND space LIKE '%:%'",
            tenant=tenant,
            thread=thread,
        )
    for table, column in (("checkpoint", "id"), ("checkpoint_write", "checkpoint")):
        await tx.run(
            f"DELETE FROM {table} WHERE tenant = :tenant AND thread = :thread AND space = '' AND {column} <> :latest",
            tenant=tenant,
            thread=thread,
            latest=row[0],
        )
    await tx.run(
        """DELETE FROM checkpoint_value WHERE tenant = :tenant AND thread = :thread AND space = ''
           AND NOT EXISTS (SELECT 1 FROM {pairs} :versions {end} AS wanted
                           WHERE wanted.key = checkpoint_value.channel AND wanted.value = checkpoint_value.version)""",
        tenant=tenant,
        thread=thread,
        versions=row[1],
    )


async def delete(tx: Tx, tenant: str, thread: str, fence: Fence) -> None:
    """Forget a thread's checkpoints; the task that has it keeps it."""
    await _check(tx, tenant, fence)
    for table in TABLES:
        await tx.run(f"DELETE FROM {table} WHERE tenant = :tenant AND thread = :thread", tenant=tenant, thread=thread)


async def forget(tx: Tx, tasks: Sequence[Mapping[str, Value]]) -> None:
    """Delete the threads that these tasks (tenant, task_id) were the last to have."""
    for table in TABLES:
        await tx.many(
            f"""DELETE FROM {table} WHERE tenant = :tenant
                AND thread IN (SELECT id FROM thread WHERE tenant = :tenant AND task_id = :task_id)""",
            tasks,
        )
    await tx.many("DELETE FROM thread WHERE tenant = :tenant AND task_id = :task_id", tasks)


async def _check(tx: Tx, tenant: str, fence: Fence) -> tuple[str, str, str]:
    """Refuse a worker that has lost the task; returns its owner, agent and context."""
    row = await tx.one(
        "SELECT epoch, owner, agent, context_id FROM task WHERE tenant = :tenant AND id = :id {for_update}",
        tenant=tenant,
        id=fence.task_id,
    )
    if row is None or row[0] != fence.epoch:
        raise Fenced(f"Task {fence.task_id} has another owner than epoch {fence.epoch}, or does not exist")
    return row[1], row[2], row[3]


_PUT_VALUE = """
    INSERT INTO checkpoint_value (tenant, thread, space, channel, version, format, data)
    VALUES (:tenant, :thread, :space, :channel, :version, :format, :data)
    ON CONFLICT (tenant, thread, space, channel, version) DO NOTHING"""

_PUT_CHECKPOINT = """
    INSERT INTO checkpoint (tenant, thread, space, id, parent, versions, format, data, metadata_format, metadata)
    VALUES (:tenant, :thread, :space, :id, :parent, :versions, :format, :data, :metadata_format, :metadata)
    ON CONFLICT (tenant, thread, space, id) DO UPDATE SET parent = excluded.parent,
        versions = excluded.versions, format = excluded.format, data = excluded.data,
        metadata_format = excluded.metadata_format, metadata = excluded.metadata"""

_PUT_WRITE = """
    INSERT INTO checkpoint_write (tenant, thread, space, checkpoint, task, position, path, channel, format, data)
    VALUES (:tenant, :thread, :space, :checkpoint, :task, :position, :path, :channel, :format, :data)
    ON CONFLICT (tenant, thread, space, checkpoint, task, position) DO UPDATE
    SET path = excluded.path, channel = excluded.channel, format = excluded.format, data = excluded.data
    WHERE excluded.position < 0"""


def _at(tenant: str, place: Place) -> dict[str, Value]:
    return {"tenant": tenant, "thread": place.thread, "space": place.space}


def _value_rows(tenant: str, step: Step) -> list[dict[str, Value]]:
    at = _at(tenant, step.place)
    return [
        {**at, "channel": channel, "version": version, "format": value.format, "data": value.data}
        for channel, version, value in step.values
    ]


def _checkpoint_row(tenant: str, step: Step) -> dict[str, Value]:
    checkpoint = step.checkpoint
    return _at(tenant, step.place) | {
        "id": checkpoint.id,
        "parent": checkpoint.parent,
        "versions": msgspec.json.encode(checkpoint.versions).decode(),
        "format": checkpoint.state.format,
        "data": checkpoint.state.data,
        "metadata_format": checkpoint.metadata.format,
        "metadata": checkpoint.metadata.data,
    }


def _write_rows(tenant: str, given: Given) -> list[dict[str, Value]]:
    at = _at(tenant, given.place) | {"checkpoint": given.checkpoint_id}
    return [
        {
            **at,
            "task": write.task,
            "position": write.position,
            "path": write.path,
            "channel": write.channel,
            "format": write.value.format,
            "data": write.value.data,
        }
        for write in given.writes
    ]


async def _values(tx: Tx, tenant: str, place: Place, versions: str) -> dict[str, Typed]:
    rows = await tx.all(
        """SELECT kept.channel, kept.format, kept.data FROM {pairs} :versions {end} AS wanted
           JOIN checkpoint_value AS kept ON kept.tenant = :tenant AND kept.thread = :thread AND kept.space = :space
                AND kept.channel = wanted.key AND kept.version = wanted.value""",
        tenant=tenant,
        thread=place.thread,
        space=place.space,
        versions=versions,
    )
    return {channel: Typed(format, data) for channel, format, data in rows}


async def _writes(tx: Tx, tenant: str, place: Place, checkpoint_id: str) -> list[Write]:
    rows = await tx.all(
        """SELECT task, position, path, channel, format, data FROM checkpoint_write
           WHERE tenant = :tenant AND thread = :thread AND space = :space AND checkpoint = :checkpoint
           ORDER BY path, task, position""",
        tenant=tenant,
        thread=place.thread,
        space=place.space,
        checkpoint=checkpoint_id,
    )
    return [
        Write(task=task, position=position, path=path, channel=channel, value=Typed(format, data))
        for task, position, path, channel, format, data in rows
    ]
