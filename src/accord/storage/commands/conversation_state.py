"""State that agents keep per conversation: values by key, and checkpoints of graphs.

A conversation is the tenant, agent, caller and context of a task. Later tasks with the same four share its state. It is
written under the fence of the task and deleted with the last task of the conversation.
"""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

import msgspec
from msgspec import Struct

from accord.storage.commands.tasks import Fenced
from accord.storage.store import Tx, Value


class ConversationValue(Struct, frozen=True, kw_only=True):
    """A value to store under a key, with the claim of the writing task."""

    task_id: str
    epoch: int
    key: str
    value: str
    at: int


class ValueRevision(Struct, frozen=True):
    """A value that replaces `before`, or None for a new key."""

    state: ConversationValue
    before: str | None


class ConversationKey(Struct, frozen=True):
    """Identifies a conversation: its owner and its agent."""

    tenant: str
    context_id: str
    agent: str
    owner: str


async def recall_value(tx: Tx, tenant: str, task_id: str, key: str) -> str | None:
    """Return the value of a key in the conversation of a task."""
    row = await tx.one(
        """SELECT value FROM task JOIN context_state ON context_state.tenant = task.tenant
               AND context_state.context_id = task.context_id AND context_state.agent = task.agent
               AND context_state.owner = task.owner AND context_state.key = :key
           WHERE task.tenant = :tenant AND task.id = :task_id""",
        tenant=tenant,
        task_id=task_id,
        key=key,
    )
    return None if row is None else str(row[0])


async def put_value(tx: Tx, tenant: str, state: ConversationValue) -> None:
    """Store a value, replacing the previous one, if the node still holds the task."""
    await tx.run(
        """INSERT INTO context_state (tenant, context_id, agent, owner, key, value, at)
           VALUES (:tenant, :context_id, :agent, :owner, :key, :value, :at)
           ON CONFLICT (tenant, context_id, agent, owner, key)
           DO UPDATE SET value = excluded.value, at = excluded.at""",
        **await _value_row(tx, tenant, state),
    )


async def revise_value(tx: Tx, tenant: str, revision: ValueRevision) -> bool:
    """Store a value only if the current one equals `before`. Return whether it was stored.

    Concurrent revisions wait for each other's row, so the second sees the result of the first.
    """
    row = await _value_row(tx, tenant, revision.state)
    if revision.before is None:
        return bool(
            await tx.run(
                """INSERT INTO context_state (tenant, context_id, agent, owner, key, value, at)
                   VALUES (:tenant, :context_id, :agent, :owner, :key, :value, :at)
                   ON CONFLICT (tenant, context_id, agent, owner, key) DO NOTHING""",
                **row,
            )
        )
    return bool(
        await tx.run(
            """UPDATE context_state SET value = :value, at = :at
               WHERE tenant = :tenant AND context_id = :context_id AND agent = :agent AND owner = :owner AND key = :key
                 AND value = :before""",
            before=revision.before,
            **row,
        )
    )


async def _value_row(tx: Tx, tenant: str, state: ConversationValue) -> dict[str, str | int]:
    """Return a value's row in the conversation of its task. Raises Fenced if the node lost the task."""
    row = await tx.one(
        "SELECT epoch, context_id, agent, owner FROM task WHERE tenant = :tenant AND id = :id {for_update}",
        tenant=tenant,
        id=state.task_id,
    )
    if row is None or row[0] != state.epoch:
        raise Fenced(f"Task {state.task_id} has another owner than epoch {state.epoch}, or does not exist")
    _, context_id, agent, owner = row
    whose = {"tenant": tenant, "context_id": str(context_id), "agent": str(agent), "owner": str(owner)}
    return {**whose, "key": state.key, "value": state.value, "at": state.at}


async def forget_conversations(tx: Tx, conversations: Iterable[ConversationKey]) -> None:
    """Delete the state of those conversations that have no task left."""
    await tx.many(
        """DELETE FROM context_state
           WHERE tenant = :tenant AND context_id = :context_id AND agent = :agent AND owner = :owner
             AND NOT EXISTS (SELECT 1 FROM task WHERE task.tenant = :tenant AND task.context_id = :context_id
                             AND task.agent = :agent AND task.owner = :owner)""",
        [
            {"tenant": one.tenant, "context_id": one.context_id, "agent": one.agent, "owner": one.owner}
            for one in conversations
        ],
    )


ALL_TABLES = 1_000_000_000
"""More checkpoints than any thread has."""

TABLES = ("checkpoint", "checkpoint_value", "checkpoint_write")


class TaskFence(Struct, frozen=True):
    """The claim under which a node writes."""

    task_id: str
    epoch: int


class CheckpointPlace(Struct, frozen=True):
    """Location of checkpoints: a thread, and the namespace of a subgraph."""

    thread: str
    space: str = ""


class TypedValue(Struct, frozen=True):
    """A value as serialized by the framework."""

    format: str
    data: bytes


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The state after a step, with the versions of the channels but not their values."""

    id: str
    parent: str | None
    versions: dict[str, str]
    state: TypedValue
    metadata: TypedValue


class PendingWrite(Struct, frozen=True, kw_only=True):
    """A write of a graph node. With a negative position it replaces an earlier one."""

    task: str
    position: int
    path: str
    channel: str
    value: TypedValue


class NewCheckpoint(Struct, frozen=True):
    """A checkpoint to store, with its new values as (channel, version, value)."""

    place: CheckpointPlace
    checkpoint: Checkpoint
    values: list[tuple[str, str, TypedValue]]


class CheckpointWrites(Struct, frozen=True):
    """Writes of graph nodes after a checkpoint."""

    place: CheckpointPlace
    checkpoint_id: str
    writes: list[PendingWrite]


class LoadedCheckpoint(Struct, frozen=True):
    """A checkpoint with its channel values and the later writes, in the order of their application."""

    checkpoint: Checkpoint
    values: dict[str, TypedValue]
    writes: list[PendingWrite]


class EnteredThread(Struct, frozen=True):
    """The thread of a task's conversation.

    `holder` is the other task that is working in it, if any. `is_new` marks a new thread.
    """

    thread: str
    holder: str | None = None
    is_new: bool = False


async def enter_thread(tx: Tx, tenant: str, fence: TaskFence) -> EnteredThread:
    """Take the thread of a task's conversation, unless another task is working in it.

    The thread's ID contains tenant, owner and agent, so naming a context gives no access to other threads. A task that
    waits for its caller's answer loses the thread: the conversation continued without the answer.
    """
    owner, agent, context_id = await _check_fence(tx, tenant, fence)
    thread = "/".join(quote(name, safe="") for name in (tenant, owner, agent, context_id))
    mine = {"tenant": tenant, "id": thread, "task_id": fence.task_id}
    is_new = await tx.run(
        "INSERT INTO thread (tenant, id, task_id) VALUES (:tenant, :id, :task_id) ON CONFLICT (tenant, id) DO NOTHING",
        **mine,
    )
    if is_new:
        return EnteredThread(thread, is_new=True)
    row = await tx.one(
        "SELECT task_id FROM thread WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=thread
    )
    holder = fence.task_id if row is None else str(row[0])
    if holder == fence.task_id:
        return EnteredThread(thread)
    is_at_work = await tx.one(
        "SELECT 1 FROM task WHERE tenant = :tenant AND id = :holder AND state IN ('submitted', 'working')",
        tenant=tenant,
        holder=holder,
    )
    if is_at_work:
        return EnteredThread(thread, holder)
    await tx.run("UPDATE thread SET task_id = :task_id WHERE tenant = :tenant AND id = :id", **mine)
    return EnteredThread(thread)


async def put_checkpoints(
    tx: Tx, tenant: str, fence: TaskFence, kept: Sequence[NewCheckpoint | CheckpointWrites]
) -> None:
    """Store checkpoints and writes of graph nodes. An existing write is replaced only at a negative position."""
    await _check_fence(tx, tenant, fence)
    steps = [one for one in kept if isinstance(one, NewCheckpoint)]
    for sql, rows in (
        (_PUT_VALUE, [row for step in steps for row in _value_rows(tenant, step)]),
        (_PUT_CHECKPOINT, [_checkpoint_row(tenant, step) for step in steps]),
        (_PUT_WRITE, [row for one in kept if isinstance(one, CheckpointWrites) for row in _write_rows(tenant, one)]),
    ):
        if rows:
            await tx.many(sql, rows)


async def load_checkpoints(
    tx: Tx,
    tenant: str,
    place: CheckpointPlace,
    *,
    only: str | None = None,
    before: str | None = None,
    limit: int = ALL_TABLES,
) -> list[LoadedCheckpoint]:
    """Return checkpoints, latest first: only one, those before another, or all."""
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
        LoadedCheckpoint(
            Checkpoint(
                id=id,
                parent=parent,
                versions=msgspec.json.decode(versions),
                state=TypedValue(format, data),
                metadata=TypedValue(metadata_format, metadata),
            ),
            await _values(tx, tenant, place, versions),
            await _writes(tx, tenant, place, id),
        )
        for id, parent, versions, format, data, metadata_format, metadata in rows
    ]


async def checkpoint_namespaces(tx: Tx, tenant: str, thread: str) -> list[str]:
    """Return the namespaces in which a thread has checkpoints: the graph itself and its subgraphs."""
    rows = await tx.all(
        "SELECT DISTINCT space FROM checkpoint WHERE tenant = :tenant AND thread = :thread ORDER BY space",
        tenant=tenant,
        thread=thread,
    )
    return [str(row[0]) for row in rows]


async def trim_checkpoints(tx: Tx, tenant: str, thread: str, fence: TaskFence) -> None:
    """Delete all checkpoints of a finished graph except the latest, and those of its subgraphs.

    A subgraph with its own memory has a namespace without a colon and is left unchanged.
    """
    await _check_fence(tx, tenant, fence)
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


async def delete_checkpoints(tx: Tx, tenant: str, thread: str, fence: TaskFence) -> None:
    """Delete a thread's checkpoints. Its task keeps the thread."""
    await _check_fence(tx, tenant, fence)
    for table in TABLES:
        await tx.run(f"DELETE FROM {table} WHERE tenant = :tenant AND thread = :thread", tenant=tenant, thread=thread)


async def forget_threads(tx: Tx, tasks: Sequence[Mapping[str, Value]]) -> None:
    """Delete the threads whose last holders were these tasks (tenant, task_id)."""
    for table in TABLES:
        await tx.many(
            f"""DELETE FROM {table} WHERE tenant = :tenant
                AND thread IN (SELECT id FROM thread WHERE tenant = :tenant AND task_id = :task_id)""",
            tasks,
        )
    await tx.many("DELETE FROM thread WHERE tenant = :tenant AND task_id = :task_id", tasks)


async def _check_fence(tx: Tx, tenant: str, fence: TaskFence) -> tuple[str, str, str]:
    """Raise Fenced if the node lost the task; return the task's owner, agent and context."""
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


def _place_values(tenant: str, place: CheckpointPlace) -> dict[str, Value]:
    return {"tenant": tenant, "thread": place.thread, "space": place.space}


def _value_rows(tenant: str, step: NewCheckpoint) -> list[dict[str, Value]]:
    at = _place_values(tenant, step.place)
    return [
        {**at, "channel": channel, "version": version, "format": value.format, "data": value.data}
        for channel, version, value in step.values
    ]


def _checkpoint_row(tenant: str, step: NewCheckpoint) -> dict[str, Value]:
    checkpoint = step.checkpoint
    return _place_values(tenant, step.place) | {
        "id": checkpoint.id,
        "parent": checkpoint.parent,
        "versions": msgspec.json.encode(checkpoint.versions).decode(),
        "format": checkpoint.state.format,
        "data": checkpoint.state.data,
        "metadata_format": checkpoint.metadata.format,
        "metadata": checkpoint.metadata.data,
    }


def _write_rows(tenant: str, given: CheckpointWrites) -> list[dict[str, Value]]:
    at = _place_values(tenant, given.place) | {"checkpoint": given.checkpoint_id}
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


async def _values(tx: Tx, tenant: str, place: CheckpointPlace, versions: str) -> dict[str, TypedValue]:
    rows = await tx.all(
        """SELECT kept.channel, kept.format, kept.data FROM {pairs} :versions {end} AS wanted
           JOIN checkpoint_value AS kept ON kept.tenant = :tenant AND kept.thread = :thread AND kept.space = :space
                AND kept.channel = wanted.key AND kept.version = wanted.value""",
        tenant=tenant,
        thread=place.thread,
        space=place.space,
        versions=versions,
    )
    return {channel: TypedValue(format, data) for channel, format, data in rows}


async def _writes(tx: Tx, tenant: str, place: CheckpointPlace, checkpoint_id: str) -> list[PendingWrite]:
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
        PendingWrite(task=task, position=position, path=path, channel=channel, value=TypedValue(format, data))
        for task, position, path, channel, format, data in rows
    ]
