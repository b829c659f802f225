"""Retention: replaces the event log of an ended task by its snapshot, and deletes expired tasks."""

import msgspec

from accord.storage.commands import blobs, conversation_state, monitoring
from accord.storage.commands.jobs import DEADLINE, EXECUTE_TASK, SLA
from accord.storage.commands.tasks import read_task
from accord.storage.encoding import encode_task
from accord.storage.store import Row, Tx, Value

MAX_EVENTS = 20_000
"""Approximate maximum of events that one batch deletes. SQLite has one writer, and all other writes wait for it."""

KEEP_UNKNOWN_MS = 365 * 24 * 3600 * 1000
"""Retention of unknown tasks, whose end may yet be reported."""

# Times are compared with `(SELECT {now} ...)`: PostgreSQL reads that once for an index lookup, `{now}` once per row.


async def compact(tx: Tx, older_than_ms: int, limit: int) -> int:
    """Delete the event logs of tasks that ended more than `older_than_ms` ago; return their number.

    Their snapshots are complete then. A subscriber whose cursor lies before `min_seq` gets the whole task instead. An
    event log is kept while a webhook still has events to deliver.
    """
    rows = await tx.all(
        """SELECT tenant, id, last_seq AS events, last_seq,
                   (SELECT seq FROM snapshot WHERE snapshot.tenant = task.tenant AND snapshot.task_id = task.id)
            FROM task
            WHERE {terminal} AND min_seq = 1 AND last_seq > 0 AND updated_at < (SELECT {now} - :age)
              AND NOT EXISTS (SELECT 1 FROM push WHERE push.tenant = task.tenant AND push.task_id = task.id
                              AND push.cursor < task.last_seq AND push.dead_at IS NULL)
            ORDER BY updated_at LIMIT :limit {skip_locked}""",
        age=older_than_ms,
        limit=limit,
    )
    chosen = _within_bounds(rows)
    complete = [
        _key(row) for row in chosen if row[4] == row[3] or await _complete_snapshot(tx, tenant=row[0], task_id=row[1])
    ]
    await tx.many("DELETE FROM event WHERE tenant = :tenant AND task_id = :task_id", complete)
    await tx.many(
        f"""UPDATE task SET min_seq = last_seq + 1, bytes = {monitoring.SNAPSHOT_BYTES} + {monitoring.FILE_BYTES}
            WHERE tenant = :tenant AND id = :task_id""",
        complete,
    )
    return len(complete)


async def _complete_snapshot(tx: Tx, tenant: str, task_id: str) -> bool:
    """Write the final snapshot of a task.

    Return false if its log cannot be decoded, so that a broken log does not block the others.
    """
    stored = await read_task(tx, tenant, task_id)
    if stored is None:
        return False
    try:
        doc = encode_task(stored.task())
    except (ValueError, msgspec.MsgspecError):
        return False
    await tx.run(
        "UPDATE snapshot SET seq = :seq, doc = :doc WHERE tenant = :tenant AND task_id = :task_id",
        tenant=tenant,
        task_id=task_id,
        seq=stored.last_seq,
        doc=doc,
    )
    return True


async def purge(tx: Tx, older_than_ms: int, limit: int, unknown_older_than_ms: int = KEEP_UNKNOWN_MS) -> int:
    """Delete tasks that ended more than `older_than_ms` ago, with all their data; return their number.

    An unknown task is kept longer because its end may yet be reported. A child task is deleted by its own age. Pending
    webhook deliveries are dropped.
    """
    rows = await tx.all(
        """SELECT tenant, id, last_seq - min_seq + 1 AS events,
                   (SELECT 1 FROM blob_ref WHERE blob_ref.tenant = task.tenant AND blob_ref.task_id = task.id LIMIT 1),
                   (SELECT 1 FROM context_state AS kept
                    WHERE kept.tenant = task.tenant AND kept.context_id = task.context_id
                      AND kept.agent = task.agent AND kept.owner = task.owner LIMIT 1),
                   (SELECT 1 FROM thread WHERE thread.tenant = task.tenant AND thread.task_id = task.id LIMIT 1),
                   context_id, agent, owner
            FROM task
            WHERE {ended} AND updated_at < (SELECT {now} - :age)
              AND (state <> 'unknown' OR updated_at < (SELECT {now} - :unknown_age))
            ORDER BY updated_at LIMIT :limit {skip_locked}""",
        age=older_than_ms,
        unknown_age=unknown_older_than_ms,
        limit=limit,
    )
    chosen = _within_bounds(rows)
    for tenant, task_id, _, has_blobs, *_ in chosen:
        if has_blobs:
            await blobs.release_references(tx, tenant, task_id)
    await _delete(tx, [_key(row) for row in chosen])
    await conversation_state.forget_conversations(
        tx, {conversation_state.ConversationKey(row[0], *row[6:]) for row in chosen if row[4]}
    )
    await conversation_state.forget_threads(tx, [_key(row) for row in chosen if row[5]])
    return len(chosen)


async def _delete(tx: Tx, keys: list[dict[str, Value]]) -> None:
    for table in ("event", "snapshot", "push", "push_attempt", "step", "remote_token", "remote"):
        await tx.many(f"DELETE FROM {table} WHERE tenant = :tenant AND task_id = :task_id", keys)
    # A claimed job is left to its node, which may be waiting for this very task.
    await tx.many(
        f"""DELETE FROM job WHERE tenant = :tenant AND key = :task_id
            AND kind IN ('{EXECUTE_TASK}', '{DEADLINE}', '{SLA}') AND node IS NULL""",
        keys,
    )
    await tx.many("DELETE FROM task WHERE tenant = :tenant AND id = :task_id", keys)


async def forget_keys(tx: Tx, limit: int) -> int:
    """Delete expired idempotency keys and return their number."""
    rows = await tx.all(
        """SELECT tenant, key FROM idempotency WHERE expires_at < (SELECT {now})
           ORDER BY expires_at LIMIT :limit {skip_locked}""",
        limit=limit,
    )
    expired = [{"tenant": tenant, "key": key} for tenant, key in rows]
    await tx.many("DELETE FROM idempotency WHERE tenant = :tenant AND key = :key", expired)
    return len(rows)


def _within_bounds(rows: list[Row]) -> list[Row]:
    """Return the first tasks, up to the event limit of a batch but at least one."""
    events = 0
    for position, row in enumerate(rows):
        if events >= MAX_EVENTS:
            return rows[:position]
        events += row[2]
    return rows


def _key(row: Row) -> dict[str, Value]:
    return {"tenant": row[0], "task_id": row[1]}
