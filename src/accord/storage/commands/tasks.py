"""Tasks and their event logs: create, append under a fence, read and list."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from accord.model import EventBody, Task, TaskState
from accord.protocol import lifecycle
from accord.storage.commands import blobs
from accord.storage.encoding import (
    byte_count,
    decode_event,
    decode_task,
    encode_bodies,
    encode_task,
    from_row,
    state_name,
    state_of,
)
from accord.storage.store import Row, Tx, Value

READ_PAGE = 1000
"""Maximum number of events that a subscriber reads at once."""


class TaskCreation(Struct, frozen=True, kw_only=True):
    """A task to create.

    `at` is the time of its status in epoch milliseconds. `trace` is its trace context, if traced.
    """

    task: Task
    agent: str
    owner: str
    at: int
    origin: str | None = None
    parent_id: str | None = None
    deadline_at: int | None = None
    blobs: tuple[str, ...] = ()
    trace: str | None = None


class Append(Struct, frozen=True, kw_only=True):
    """Events to append to a task's event log."""

    task_id: str
    epoch: int
    after: int
    """The sequence number of the last event in the log."""
    bodies: Sequence[EventBody]
    at: int
    state: TaskState | None = None
    """The new state, if the events change it."""
    snapshot: Task | None = None
    """The task after the last event."""
    blobs: tuple[str, ...] = ()
    """Hashes of large parts in the events or the snapshot."""


class EndedTask(NamedTuple):
    """A task that a command has ended, in a state of `lifecycle.ENDED`."""

    tenant: str
    task_id: str
    agent: str
    state: TaskState


class TaskHead(Struct, frozen=True, kw_only=True):
    """A task without its content. The cost of reading it does not depend on the task's length."""

    id: str
    context_id: str
    agent: str
    owner: str
    origin: str | None
    parent_id: str | None
    state: str
    last_seq: int
    min_seq: int
    epoch: int
    pushes: int
    deadline_at: int | None
    updated_at: int
    trace: str | None = None

    @property
    def task_state(self) -> TaskState:
        """The task's state."""
        return state_of(self.state)


class TornRead(Exception):
    """A task changed between two reads. Retry on one snapshot."""


class StoredTask(TaskHead, frozen=True, kw_only=True):
    """A stored task: a snapshot, and the later events as (seq, kind, data, at)."""

    doc_seq: int
    doc: str
    events: tuple[Row, ...] = ()

    def task(self) -> Task:
        """Decode the snapshot and apply the later events."""
        return self.folded(decode_task(self.doc))

    def folded(self, snapshot: Task) -> Task:
        """Apply the later events to a decoded snapshot."""
        return lifecycle.fold(snapshot, (decode_event(row, dated=False) for row in self.events))


class Fenced(Exception):
    """The writer's claim is void: another node has claimed the task, or the task is gone."""


class Behind(Exception):
    """The event log has grown since the writer last read it."""


class Rewound(Fenced):
    """The event log is shorter than the events written to it.

    The store was restored to an earlier state, and the claim is void.
    """


def task_topic(tenant: str, task_id: str) -> str:
    """Return the notification topic of new events in a task's log."""
    return f"task:{tenant}:{task_id}"


async def create_task(tx: Tx, tenant: str, new: TaskCreation, epoch: int = 0, bodies: Sequence[EventBody] = ()) -> None:
    """Store a new task and the first events of its log."""
    task = new.task
    for body in bodies:
        task = lifecycle.apply(task, body)
    doc = encode_task(task)
    encoded, size = encode_bodies(bodies)
    await tx.run(
        """INSERT INTO task (tenant, id, context_id, agent, owner, origin, parent_id, state, epoch, last_seq,
                             deadline_at, updated_at, trace, bytes)
           VALUES (:tenant, :id, :context_id, :agent, :owner, :origin, :parent_id, :state, :epoch, :last_seq,
                   :deadline_at, :at, :trace, :bytes)""",
        tenant=tenant,
        id=task.id,
        context_id=task.context_id or "",
        agent=new.agent,
        owner=new.owner,
        origin=new.origin,
        parent_id=new.parent_id,
        state=state_name(task.status.state),
        epoch=epoch,
        last_seq=len(bodies),
        deadline_at=new.deadline_at,
        at=new.at,
        trace=new.trace,
        bytes=byte_count(doc) + size,
    )
    await tx.run(
        "INSERT INTO snapshot (tenant, task_id, seq, doc) VALUES (:tenant, :task_id, :seq, :doc)",
        tenant=tenant,
        task_id=task.id,
        seq=len(bodies),
        doc=doc,
    )
    if new.blobs:
        await blobs.add_references(tx, tenant, task.id, new.blobs)
    if bodies:
        await _insert(tx, tenant, Append(task_id=task.id, epoch=epoch, after=0, bodies=bodies, at=new.at), encoded)
    tx.signal(task_topic(tenant, task.id))


async def append(tx: Tx, tenant: str, new: Append) -> int:
    """Append events under the fence and return the last sequence number."""
    await extend(tx, tenant, new)
    return new.after + len(new.bodies)


async def extend(tx: Tx, tenant: str, new: Append) -> int:
    """Append events under the fence and return the task's number of child tasks.

    One UPDATE takes the sequence numbers, checks the fence and locks the row, so these cost no extra statement.
    """
    encoded, size = encode_bodies(new.bodies)
    row = await tx.one(
        """UPDATE task SET last_seq = last_seq + :count, state = COALESCE(:state, state),
                           bytes = bytes + :bytes,
                           updated_at = CASE WHEN :state IS NULL THEN updated_at ELSE :at END
           WHERE tenant = :tenant AND id = :id AND epoch = :epoch AND last_seq = :after
           RETURNING pushes, children""",
        tenant=tenant,
        id=new.task_id,
        epoch=new.epoch,
        after=new.after,
        count=len(encoded),
        bytes=size,
        state=None if new.state is None else state_name(new.state),
        at=new.at,
    )
    if row is None:
        raise await _explained(tx, tenant, new)
    pushes, children = row
    await _insert(tx, tenant, new, encoded)
    if new.blobs:
        await blobs.add_references(tx, tenant, new.task_id, new.blobs)
    if pushes:
        await _due(tx, tenant, new.task_id)
    tx.signal(task_topic(tenant, new.task_id))
    return int(children)


async def _explained(tx: Tx, tenant: str, new: Append) -> Exception:
    """Return the reason why nothing was appended."""
    row = await tx.one(
        "SELECT epoch, last_seq FROM task WHERE tenant = :tenant AND id = :id", tenant=tenant, id=new.task_id
    )
    if row is None or row[0] != new.epoch:
        return Fenced(f"Task {new.task_id} has another owner than epoch {new.epoch}, or does not exist")
    if row[1] < new.after:
        return Rewound(f"Task {new.task_id} has {row[1]} of {new.after} events: the store went back in time")
    return Behind(f"Task {new.task_id} has events after {new.after}")


async def _insert(tx: Tx, tenant: str, new: Append, encoded: Sequence[tuple[str, str]]) -> None:
    rows: list[dict[str, Value]] = [
        {"tenant": tenant, "task_id": new.task_id, "seq": seq, "kind": kind, "data": data, "at": new.at}
        for seq, (kind, data) in enumerate(encoded, new.after + 1)
    ]
    await tx.many(
        """INSERT INTO event (tenant, task_id, seq, kind, data, at)
           VALUES (:tenant, :task_id, :seq, :kind, :data, :at)""",
        rows,
    )
    if new.snapshot is not None:
        await tx.run(
            "UPDATE snapshot SET seq = :seq, doc = :doc WHERE tenant = :tenant AND task_id = :task_id",
            tenant=tenant,
            task_id=new.task_id,
            seq=new.after + len(new.bodies),
            doc=encode_task(new.snapshot),
        )


async def _due(tx: Tx, tenant: str, task_id: str) -> None:
    """Make the task's webhooks due."""
    await tx.run(
        """UPDATE push SET due_at = {now} WHERE tenant = :tenant AND task_id = :task_id
           AND due_at IS NULL AND dead_at IS NULL""",
        tenant=tenant,
        task_id=task_id,
    )
    tx.signal("push")


_HEAD = ", ".join(f"task.{column}" for column in TaskHead.__struct_fields__)
_LAST_SEQ, _DOC_SEQ = TaskHead.__struct_fields__.index("last_seq"), len(TaskHead.__struct_fields__)
_OF_TASK = "FROM snapshot WHERE snapshot.tenant = task.tenant AND snapshot.task_id = task.id"
COLUMNS = f"{_HEAD}, (SELECT seq {_OF_TASK}), (SELECT doc {_OF_TASK}) FROM task"
"""Columns of a stored task.

The snapshot is read by two subqueries. SQLite would prepare a statement with a join again each time, which costs twice
as much as all of them.
"""


async def read_task(tx: Tx, tenant: str, task_id: str) -> StoredTask | None:
    """Return a task's snapshot and the later events."""
    row = await tx.one(f"SELECT {COLUMNS} WHERE task.tenant = :tenant AND task.id = :id", tenant=tenant, id=task_id)
    return None if row is None else await with_events(tx, tenant, row)


async def lock_task(tx: Tx, tenant: str, task_id: str) -> StoredTask | None:
    """Lock and read a task until this transaction ends."""
    await tx.one("SELECT 1 FROM task WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=task_id)
    return await read_task(tx, tenant, task_id)


async def lock_head(tx: Tx, tenant: str, task_id: str) -> TaskHead | None:
    """Lock and read a task's head until this transaction ends."""
    row = await tx.one(
        f"SELECT {_HEAD} FROM task WHERE tenant = :tenant AND id = :id {{for_update}}", tenant=tenant, id=task_id
    )
    return None if row is None else from_row(TaskHead, row)


async def read_head(tx: Tx, tenant: str, task_id: str) -> TaskHead | None:
    """Return a task's head, without its content."""
    row = await tx.one(f"SELECT {_HEAD} FROM task WHERE tenant = :tenant AND id = :id", tenant=tenant, id=task_id)
    return None if row is None else from_row(TaskHead, row)


async def with_events(tx: Tx, tenant: str, row: Row) -> StoredTask:
    """Return a task of a row with `COLUMNS`, and the events after its snapshot."""
    missing = count_events_after_snapshot(row)
    if not missing:
        return stored_task(row)
    events = tuple(await events_after(tx, tenant, row[0], row[_DOC_SEQ], limit=missing))
    if len(events) < missing:
        raise TornRead(f"The log of {row[0]} was cut while it was read")
    return stored_task(row, events)


def count_events_after_snapshot(row: Row) -> int:
    """Return the number of events after the snapshot in a row of `COLUMNS`."""
    return int(row[_LAST_SEQ] - row[_DOC_SEQ])


def stored_task(row: Row, events: tuple[Row, ...] = ()) -> StoredTask:
    """Return the task in a row of `COLUMNS`, with the events after its snapshot."""
    return from_row(StoredTask, (*row, events))


async def events_after(tx: Tx, tenant: str, task_id: str, seq: int, limit: int = READ_PAGE) -> list[Row]:
    """Return the events after a sequence number, as (seq, kind, data, at)."""
    return await tx.all(
        """SELECT seq, kind, data, at FROM event WHERE tenant = :tenant AND task_id = :task_id AND seq > :seq
           ORDER BY seq LIMIT :limit""",
        tenant=tenant,
        task_id=task_id,
        seq=seq,
        limit=limit,
    )


async def events_before(tx: Tx, tenant: str, task_id: str, seq: int, limit: int = READ_PAGE) -> list[Row]:
    """Return the events before a sequence number as (seq, kind, data, at), latest first."""
    return await tx.all(
        """SELECT seq, kind, data, at FROM event WHERE tenant = :tenant AND task_id = :task_id AND seq < :seq
           ORDER BY seq DESC LIMIT :limit""",
        tenant=tenant,
        task_id=task_id,
        seq=seq,
        limit=limit,
    )


async def log_lengths(tx: Tx, tenants: Mapping[str, str]) -> dict[str, int]:
    """Return the last sequence numbers of existing tasks. `tenants` maps task IDs to tenants."""
    rows = await tx.all(
        """SELECT task.id, task.last_seq FROM {pairs} :wanted {end} AS wanted
           JOIN task ON task.tenant = wanted.value AND task.id = wanted.key""",
        wanted=msgspec.json.encode(tenants).decode(),
    )
    return {id: last_seq for id, last_seq in rows}


async def read_conversation(tx: Tx, tenant: str, task_id: str, limit: int) -> list[StoredTask]:
    """Return the latest ended tasks of a task's conversation, oldest first.

    They have the same context, owner and agent.
    """
    of = await read_head(tx, tenant, task_id)
    if of is None or not of.context_id:
        return []
    rows = await tx.all(
        f"""SELECT {COLUMNS} WHERE task.tenant = :tenant AND task.context_id = :context_id AND task.owner = :owner
            AND task.agent = :agent AND task.id <> :id AND NOT {{open}}
            ORDER BY task.updated_at DESC, task.id DESC LIMIT :limit""",
        tenant=tenant,
        context_id=of.context_id,
        owner=of.owner,
        agent=of.agent,
        id=task_id,
        limit=limit,
    )
    return [await with_events(tx, tenant, row) for row in reversed(rows)]


async def count_open(tx: Tx, tenant: str | None, owner: str, limit: int) -> int:
    """Count an owner's open tasks, up to `limit`. None for `tenant` counts all tenants."""
    placed, there = ("", {}) if tenant is None else ("tenant = :tenant AND", {"tenant": tenant})
    row = await tx.one(
        f"""SELECT count(*) FROM (
                SELECT 1 FROM task WHERE {placed} owner = :owner AND {{open}} LIMIT :limit
            ) AS found""",
        **there,
        owner=owner,
        limit=limit,
    )
    return int(row[0]) if row else 0
