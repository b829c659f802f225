"""Tasks and their logs: create, append under a fence, read, follow, list.

A task's row holds a snapshot at `doc_seq`; events after it are folded on by the reader, so appending a chunk never
rewrites the task. `epoch` is the fence: a worker that lost its lease cannot append.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from accord.storage.store import Row, Tx


class NewTask(Struct, frozen=True, kw_only=True):
    """A task to create; `doc` is its JSON."""

    id: str
    context_id: str
    agent: str
    owner: str
    state: str
    doc: str
    origin: str | None = None
    parent_id: str | None = None
    deadline_at: int | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """An event to append; `state` and `doc` go with one that changes the task's state or refreshes its snapshot."""

    kind: str
    data: str
    state: str | None = None
    doc: str | None = None


class Stored(Struct, frozen=True, kw_only=True):
    """A task as it is kept: a snapshot, and the events that came after it as (seq, kind, data, at)."""

    id: str
    owner: str
    agent: str
    origin: str | None
    state: str
    doc: str
    doc_seq: int
    last_seq: int
    min_seq: int
    epoch: int
    updated_at: int
    events: tuple[Row, ...] = ()


class Fenced(Exception):
    """The writer's claim is not the current one: another worker has taken over."""


def topic(tenant: str, task_id: str) -> str:
    """Return the topic of hints that a task's log has grown."""
    return f"task:{tenant}:{task_id}"


async def create_task(tx: Tx, tenant: str, task: NewTask) -> None:
    """Keep a new task; its log is empty."""
    await tx.run(
        """INSERT INTO task (tenant, id, context_id, agent, owner, origin, parent_id, state, doc, deadline_at,
                             created_at, updated_at)
           VALUES (:tenant, :id, :context_id, :agent, :owner, :origin, :parent_id, :state, :doc, :deadline_at,
                   {now}, {now})""",
        tenant=tenant,
        id=task.id,
        context_id=task.context_id,
        agent=task.agent,
        owner=task.owner,
        origin=task.origin,
        parent_id=task.parent_id,
        state=task.state,
        doc=task.doc,
        deadline_at=task.deadline_at,
    )


async def append(tx: Tx, tenant: str, task_id: str, epoch: int, entries: Sequence[Entry]) -> int:
    """Append events under the fence and return the last one's sequence number.

    The update that takes the numbers is also the fence and the lock, so it costs no statement of its own; it touches
    no indexed column unless the state changes.
    """
    row = await tx.one(
        """UPDATE task SET last_seq = last_seq + :count WHERE tenant = :tenant AND id = :id AND epoch = :epoch
           RETURNING last_seq""",
        tenant=tenant,
        id=task_id,
        epoch=epoch,
        count=len(entries),
    )
    if row is None:
        raise Fenced(f"Task {task_id} has another owner than epoch {epoch}, or does not exist")
    last = int(row[0])
    for seq, entry in enumerate(entries, last - len(entries) + 1):
        await _insert(tx, tenant, task_id, seq, entry)
    tx.signal(topic(tenant, task_id))
    return last


async def _insert(tx: Tx, tenant: str, task_id: str, seq: int, entry: Entry) -> None:
    await tx.run(
        """INSERT INTO event (tenant, task_id, seq, kind, data, at)
           VALUES (:tenant, :task_id, :seq, :kind, :data, {now})""",
        tenant=tenant,
        task_id=task_id,
        seq=seq,
        kind=entry.kind,
        data=entry.data,
    )
    if entry.state is not None:
        await tx.run(
            "UPDATE task SET state = :state, updated_at = {now} WHERE tenant = :tenant AND id = :id",
            tenant=tenant,
            id=task_id,
            state=entry.state,
        )
    if entry.doc is not None:
        await tx.run(
            "UPDATE task SET doc = :doc, doc_seq = :seq WHERE tenant = :tenant AND id = :id",
            tenant=tenant,
            id=task_id,
            doc=entry.doc,
            seq=seq,
        )


async def read_task(tx: Tx, tenant: str, task_id: str) -> Stored | None:
    """Return a task's snapshot and the events after it."""
    row = await tx.one(
        """SELECT id, owner, agent, origin, state, doc, doc_seq, last_seq, min_seq, epoch, updated_at FROM task
           WHERE tenant = :tenant AND id = :id""",
        tenant=tenant,
        id=task_id,
    )
    if row is None:
        return None
    found = Stored(**dict(zip(Stored.__struct_fields__, row, strict=False)))
    if found.doc_seq == found.last_seq:
        return found
    return replace(found, events=tuple(await events_after(tx, tenant, task_id, found.doc_seq, limit=found.last_seq)))


async def events_after(tx: Tx, tenant: str, task_id: str, seq: int, limit: int = 1000) -> list[Row]:
    """Return the events after a sequence number, as (seq, kind, data, at)."""
    return await tx.all(
        """SELECT seq, kind, data, at FROM event WHERE tenant = :tenant AND task_id = :task_id AND seq > :seq
           ORDER BY seq LIMIT :limit""",
        tenant=tenant,
        task_id=task_id,
        seq=seq,
        limit=limit,
    )
