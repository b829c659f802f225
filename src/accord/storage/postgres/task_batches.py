"""Batches of the commands that every task needs: accept, append, settle and finish.

They have the same effect as the portable commands. The same tests run against both. All concurrent writes of a node's
tasks are a few statements and one commit.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from accord.protocol import lifecycle
from accord.storage.commands import jobs, remote_tasks, task_lifecycle, tasks, webhooks, workflow_runs
from accord.storage.commands.jobs import DEADLINE, EXECUTE_TASK, SLA, TIMERS, ClaimedJob, queue_topic
from accord.storage.commands.task_lifecycle import Acceptance, AcceptRequest, SettleRequest
from accord.storage.commands.tasks import Append, task_topic
from accord.storage.encoding import byte_count, encode_bodies, encode_body, encode_task, state_name
from accord.storage.postgres.batch import (
    INSERT_EVENTS,
    INSERT_STEPS,
    UPDATE_SNAPSHOTS,
    UPDATE_TASKS,
    BatchedCommand,
    Batcher,
    BatchItem,
    BatchStage,
    Begin,
    Write,
    WrittenItem,
    encode_line,
    event_lines,
    fetch_rows,
    ordered_items_sql,
    table_sql,
)
from accord.storage.postgres.journal_batches import (
    journal_item,
    report_item,
    write_journals,
    write_reports,
)
from accord.storage.sql import SqlEngine, compile
from accord.storage.store import ARRIVALS, FEW_ARRIVALS


class BatchedCommands:
    """The batched commands of one store."""

    def __init__(self, connect: Begin, begin: Begin, publish: Callable[[list[str]], None]) -> None:
        """Use autocommit connections from `connect`, or transactions from `begin`.

        The first save two round trips for writes that need only one statement.
        """

        def batcher(write: Write, turns: int = 0) -> Batcher:
            return Batcher([BatchStage(connect, write, is_statement=True)], publish, turns)

        log = Batcher(
            [
                BatchStage(connect, _write_quiet_chunks, _is_chunks, is_statement=True),
                BatchStage(connect, _write_quiet_log, _is_quiet, is_statement=True),
                BatchStage(begin, _write_log),
            ],
            publish,
        )
        self._table: dict[Callable[..., Any], BatchedCommand] = {
            tasks.append: BatchedCommand(_append, log),
            task_lifecycle.settle_execution: BatchedCommand(_settle, log),
            task_lifecycle.accept_task: BatchedCommand(_accept, batcher(_write_accepted, FEW_ARRIVALS)),
            jobs.finish: BatchedCommand(_finish, batcher(_write_finished)),
            remote_tasks.write_report: BatchedCommand(report_item, batcher(write_reports)),
            workflow_runs.write_journal: BatchedCommand(journal_item, batcher(write_journals)),
        }
        self._early = {task_lifecycle.accept_task: BatchedCommand(_accept, batcher(_write_accepted, ARRIVALS))}

    def get(self, command: Callable[..., Any], *, is_early: bool = False) -> BatchedCommand | None:
        """Return the batched form of a command, if any. With `is_early` it waits for more commands."""
        return (is_early and self._early.get(command)) or self._table.get(command)

    async def close(self) -> None:
        """Finish accepted commands."""
        for override in (*self._early.values(), *self._table.values()):
            await override.batcher.close()


# --- tasks.append and task_lifecycle.settle_execution -----------------------------------------------------------------


class _LogRow(NamedTuple):
    """The events to append to a task. `fate` is the fate of the job that ran it, if any."""

    tenant: str
    task_id: str
    epoch: int
    after: int
    last: int
    at: int
    bytes: int
    state: str | None
    doc: str | None
    fate: str | None = None
    job_id: int | None = None
    job_epoch: int | None = None
    job_key: str | None = None
    delay_ms: int | None = None
    awaited: str | None = None


class _PlainRow(NamedTuple):
    """The first columns of a log row, for events without further changes."""

    tenant: str
    task_id: str
    epoch: int
    after: int
    last: int
    at: int
    bytes: int


PARKED, DONE, ENDED = "parked", "done", "ended"
"""Fates of a job: suspended, deleted, or deleted with its task's timers.

The last applies if the task has no children.
"""

_LOCKED = """CROSS JOIN LATERAL (
        SELECT epoch, last_seq, pushes, children FROM task
        WHERE task.tenant = item.tenant AND task.id = item.task_id FOR UPDATE
    ) AS task"""
"""Locks the tasks of items by key. A plan made for a small table must not continue to read all of it."""


_IN_ORDER = ordered_items_sql(_LogRow)

_LOCK = f"SELECT 1 FROM {_IN_ORDER} {_LOCKED}"

_QUIET = "AND task.pushes = 0"
"""Leaves out tasks with webhooks: these must become due in the same transaction, by a statement that sees them."""


def _plain_log(only: str = "") -> str:
    """Return the statement for chunks alone, as in most batches of streams. The whole one costs twice as much."""
    return f"""
WITH item AS MATERIALIZED (
    SELECT item.*, task.pushes FROM {ordered_items_sql(_PlainRow)} {_LOCKED}
    WHERE task.epoch = item.epoch AND task.last_seq = item.after {only}
), moved AS (
    UPDATE task SET last_seq = item.last, bytes = task.bytes + item.bytes FROM item
    WHERE task.tenant = item.tenant AND task.id = item.task_id
), added AS ({INSERT_EVENTS}
)
SELECT n, pushes FROM item"""


def _whole_log(only: str = "", more: str = "") -> str:
    """Return the statement for all changes of an append or a settled execution. `more` adds a CTE."""
    return f"""
WITH item AS MATERIALIZED (
    SELECT item.*, task.pushes FROM {_IN_ORDER} {_LOCKED}
    WHERE task.epoch = item.epoch AND task.last_seq = item.after {only}
      AND (task.children = 0 OR item.fate IS DISTINCT FROM '{ENDED}')
      AND (item.awaited IS NULL OR (SELECT 1 FROM step WHERE step.tenant = item.tenant AND step.task_id = item.job_key
                                    AND step.key = item.awaited LIMIT 1) IS NULL)
), moved AS ({UPDATE_TASKS}
), added AS ({INSERT_EVENTS}
), kept AS ({UPDATE_SNAPSHOTS}
), parked AS (
    UPDATE job SET node = NULL, attempts = 0, parked = CASE WHEN item.delay_ms IS NULL THEN 1 ELSE 0 END,
                   child = NULL, run_at = {{now}} + COALESCE(item.delay_ms, 0)
    FROM item WHERE item.fate = '{PARKED}' AND job.id = item.job_id AND job.epoch = item.job_epoch
), finished AS (
    DELETE FROM job USING item
    WHERE item.fate IN ('{DONE}', '{ENDED}') AND job.id = item.job_id AND job.epoch = item.job_epoch
), dropped AS (
    DELETE FROM job USING item
    WHERE item.fate = '{ENDED}' AND job.tenant = item.tenant AND job.key = item.job_key
      AND job.kind IN ('{DEADLINE}', '{SLA}') AND job.node IS NULL
){more}
SELECT n, pushes FROM item"""


_PLAIN, _QUIET_PLAIN = _plain_log(), _plain_log(_QUIET)
_LOG, _QUIET_LOG = _whole_log(), _whole_log(_QUIET)

_NOTING = {
    statement: _whole_log(only, f", noted AS ({INSERT_STEPS}\n)")
    for statement, only in ((_LOG, ""), (_QUIET_LOG, _QUIET))
}
"""Statement -> its variant for batches in which an execution writes steps at its end, which is rare."""

_DUE = """UPDATE push SET due_at = {now} WHERE tenant = :tenant AND task_id = :task_id
          AND due_at IS NULL AND dead_at IS NULL"""


def _append(tenant: str, new: Append) -> BatchItem:
    encoded, size = encode_bodies(new.bodies)
    plain = _plain(tenant, new, size)
    is_plain = new.state is None and new.snapshot is None
    return _item(tenant, new, plain if is_plain else _LogRow(*plain, *_moved(new)), encoded)


def _item(
    tenant: str,
    new: Append,
    row: "_PlainRow | _LogRow",
    encoded: Sequence[tuple[str, str]],
    notes: Sequence[tuple[str, str]] = (),
    topics: tuple[str, ...] = (),
    result: object = None,
) -> BatchItem:
    if new.blobs:
        raise ValueError("References to large parts are rare and left to the portable command")
    return BatchItem(
        keys=((tenant, new.task_id),),
        row=row,
        line=encode_line(row),
        entries=event_lines(encoded),
        result=row.last if result is None else result,
        topics=(task_topic(tenant, new.task_id), *topics),
        notes=[encode_line(note) for note in notes],
    )


def _plain(tenant: str, new: Append, size: int) -> _PlainRow:
    return _PlainRow(tenant, new.task_id, new.epoch, new.after, new.after + len(new.bodies), new.at, size)


def _moved(new: Append) -> tuple[str | None, str | None]:
    """Return a task's new state and snapshot, or None where unchanged."""
    state = None if new.state is None else state_name(new.state)
    return state, None if new.snapshot is None else encode_task(new.snapshot)


def _settle(tenant: str, request: SettleRequest) -> BatchItem:
    if request.child is not None or request.watch is not None or request.parent_id is not None:
        raise ValueError("Questions that are passed on are rare and left to the portable command")
    last, job = request.last, request.job
    fate = PARKED if request.parks else ENDED if last.state in lifecycle.ENDED else DONE
    encoded, size = encode_bodies(last.bodies)
    row = _LogRow(
        *_plain(tenant, last, size),
        *_moved(last),
        fate=fate,
        job_id=job.id,
        job_epoch=job.epoch,
        job_key=job.key,
        delay_ms=request.delay_ms,
        awaited=request.awaited,
    )
    is_due = request.parks and request.delay_ms is not None
    topics = (queue_topic(job.queue),) if is_due else ()
    return _item(tenant, last, row, encoded, request.entries, topics, request.ended)


def _is_chunks(item: BatchItem) -> bool:
    return isinstance(item.row, _PlainRow)


def _is_quiet(item: BatchItem) -> bool:
    """Whether one statement is enough without webhooks. An item that waits for a step must lock its task first."""
    return isinstance(item.row, _LogRow) and item.row.awaited is None


async def _write_quiet_chunks(connection: Any, items: Sequence[BatchItem]) -> dict[int, WrittenItem]:
    return await _write_rows(connection, _QUIET_PLAIN, dict(enumerate(items)))


async def _write_quiet_log(connection: Any, items: Sequence[BatchItem]) -> dict[int, WrittenItem]:
    return await _write_rows(connection, _QUIET_LOG, dict(enumerate(items)))


async def _write_log(connection: Any, items: Sequence[BatchItem]) -> dict[int, WrittenItem]:
    """Write chunks by the short statement and other changes by the long one."""
    plain = {position: item for position, item in enumerate(items) if _is_chunks(item)}
    whole = {position: item for position, item in enumerate(items) if position not in plain}
    if any(item.row.awaited is not None for item in whole.values()):
        await fetch_rows(connection, _LOCK, list(whole.values()))
    written = await _write_rows(connection, _PLAIN, plain) if plain else {}
    return written | await _write_rows(connection, _LOG, whole) if whole else written


async def _write_rows(connection: Any, statement: str, items: Mapping[int, BatchItem]) -> dict[int, WrittenItem]:
    written: dict[int, WrittenItem] = {}
    positions, with_webhooks = list(items), []
    if any(item.notes for item in items.values()):
        statement = _NOTING[statement]
    for number, has_webhooks in await fetch_rows(connection, statement, list(items.values())):
        position = positions[number - 1]
        item = items[position]
        written[position] = WrittenItem(
            item.result, (*item.topics, webhooks.WEBHOOK_TOPIC) if has_webhooks else item.topics
        )
        if has_webhooks:
            with_webhooks.append(item.row[:2])
    if with_webhooks:
        await connection.executemany(compile(_DUE, SqlEngine.POSTGRES).text, with_webhooks)
    return written


# --- task_lifecycle.accept_task ---------------------------------------------------------------------------------------


class _AcceptRow(NamedTuple):
    """A task with its snapshot and job. `kind` is set with a first event, `config` with a webhook."""

    tenant: str
    task_id: str
    context_id: str
    agent: str
    owner: str
    origin: str | None
    parent_id: str | None
    state: str
    deadline_at: int | None
    at: int
    seq: int
    doc: str
    idempotency: str | None
    queue: str
    message_id: str
    priority: int
    max_attempts: int
    node: str | None
    kind: str | None
    data: str | None
    push_id: str | None
    config: str | None
    caller: str | None
    host: str | None
    address: str | None
    deadline_ms: int | None
    trace: str | None
    bytes: int


_ACCEPTED = f"""
WITH item AS MATERIALIZED (
    SELECT *, CASE WHEN node IS NULL THEN 0 ELSE 1 END AS claims FROM {table_sql(_AcceptRow, "item")}
), fresh AS MATERIALIZED (
    SELECT * FROM item WHERE idempotency IS NULL OR (
        SELECT 1 FROM idempotency AS known WHERE known.tenant = item.tenant AND known.key = item.idempotency LIMIT 1
    ) IS NULL
), noted AS (
    INSERT INTO idempotency (tenant, key, task_id, expires_at)
    SELECT tenant, idempotency, task_id,
           {{now}} + {task_lifecycle.IDEMPOTENCY_MS} FROM fresh WHERE idempotency IS NOT NULL
    ORDER BY tenant, idempotency
), made AS (
    INSERT INTO task (tenant, id, context_id, agent, owner, origin, parent_id, state, last_seq, epoch, pushes,
                      deadline_at, updated_at, trace, bytes)
    SELECT tenant, task_id, context_id, agent, owner, origin, parent_id, state, seq, claims,
           CASE WHEN config IS NULL THEN 0 ELSE 1 END, deadline_at, at, trace, bytes FROM fresh
), kept AS (
    INSERT INTO snapshot (tenant, task_id, seq, doc) SELECT tenant, task_id, seq, doc FROM fresh
), added AS (
    INSERT INTO event (tenant, task_id, seq, kind, data, at)
    SELECT tenant, task_id, seq, kind, data, at FROM fresh WHERE kind IS NOT NULL
), hooked AS (
    INSERT INTO push (tenant, task_id, id, config, caller, host, address, dialect, due_at)
    SELECT tenant, task_id, push_id, config, caller, host, address, COALESCE(origin, ''),
           CASE WHEN kind IS NULL THEN NULL ELSE {{now}} END
    FROM fresh WHERE config IS NOT NULL
), timed AS (
    INSERT INTO job (tenant, queue, kind, key, run_at)
    SELECT tenant, '{TIMERS}', '{DEADLINE}', task_id, {{now}} + deadline_ms
    FROM fresh WHERE deadline_ms IS NOT NULL ORDER BY n
), queued AS (
    INSERT INTO job (tenant, queue, kind, key, arg, priority, run_at, max_attempts, epoch, node, attempts)
    SELECT tenant, queue, '{EXECUTE_TASK}', task_id, message_id, priority, {{now}}, max_attempts, claims, node, claims
    FROM fresh ORDER BY n RETURNING id, tenant, key
)
SELECT tenant, key, id FROM queued"""
"""Duplicates are left to the portable command.

So is the whole batch if another node stores the same message concurrently. `ON CONFLICT` would handle that here, at
twice the cost of storing a key.
"""


def _accept(tenant: str, request: AcceptRequest) -> BatchItem:
    if request.new.blobs or request.parent is not None or request.work.is_held or request.name is not None:
        raise ValueError("References to large parts, children, what is held and names are left to the portable command")
    new, work, push = request.new, request.work, request.push
    task = new.task
    working = request.working if work.node is not None else None
    moved = task if working is None else lifecycle.apply(task, working)
    kind, data = (None, None) if working is None else encode_body(working)
    doc = encode_task(moved)
    row = _AcceptRow(
        tenant=tenant,
        task_id=task.id,
        context_id=task.context_id or "",
        agent=new.agent,
        owner=new.owner,
        origin=new.origin,
        parent_id=new.parent_id,
        state=state_name(moved.status.state),
        deadline_at=new.deadline_at,
        at=new.at,
        seq=0 if working is None else 1,
        doc=doc,
        idempotency=request.key,
        queue=work.queue,
        message_id=request.message_id,
        priority=work.priority,
        max_attempts=work.max_attempts,
        node=work.node,
        kind=kind,
        data=data,
        push_id=None if push is None else push.id or "",
        config=None if push is None else msgspec.json.encode(push).decode(),
        caller=None if push is None else webhooks.caller_of(tenant, new.owner),
        host=None if push is None else webhooks.host_of(push),
        address=None if push is None else webhooks.address_of(push),
        deadline_ms=request.deadline_ms,
        trace=new.trace,
        bytes=byte_count(doc) + byte_count(data or ""),
    )
    keys: tuple[tuple[str, ...], ...] = ((tenant, task.id),)
    if request.key is not None:
        keys = (*keys, (tenant, "key", request.key))
    return BatchItem(
        keys=keys, row=row, line=encode_line(row), result=Acceptance(task_id=task.id), topics=_accept_topics(row)
    )


def _accept_topics(row: _AcceptRow) -> tuple[str, ...]:
    topics = [task_topic(row.tenant, row.task_id)]
    if row.node is None:
        topics.append(queue_topic(row.queue))
    if row.deadline_ms is not None:
        topics.append(queue_topic(TIMERS))
    if row.config is not None:
        topics.append(webhooks.WEBHOOK_TOPIC)
    return tuple(topics)


async def _write_accepted(connection: Any, items: Sequence[BatchItem]) -> dict[int, WrittenItem]:
    written = {}
    positions = {(item.row.tenant, item.row.task_id): position for position, item in enumerate(items)}
    for tenant, task_id, job_id in await fetch_rows(connection, _ACCEPTED, items):
        position = positions[tenant, task_id]
        item = items[position]
        job = None if item.row.node is None else _claimed(item.row, job_id)
        written[position] = WrittenItem(Acceptance(task_id=task_id, job=job), item.topics)
    return written


def _claimed(row: _AcceptRow, job_id: int) -> ClaimedJob:
    return ClaimedJob(
        id=job_id,
        tenant=row.tenant,
        queue=row.queue,
        kind=EXECUTE_TASK,
        key=row.task_id,
        arg=row.message_id,
        epoch=1,
        attempts=1,
        max_attempts=row.max_attempts,
    )


# --- jobs.finish ------------------------------------------------------------------------------------------------------


class _FinishRow(NamedTuple):
    """A finished job, and the epoch of its claim."""

    id: int
    epoch: int


_FINISHED = f"""
WITH item AS MATERIALIZED (
    SELECT item.id, item.n FROM (SELECT * FROM {table_sql(_FinishRow, "item")} ORDER BY id) AS item
    CROSS JOIN LATERAL (SELECT epoch FROM job WHERE job.id = item.id FOR UPDATE) AS job
    WHERE job.epoch = item.epoch
)
DELETE FROM job USING item WHERE job.id = item.id RETURNING n"""


def _finish(job: ClaimedJob) -> BatchItem:
    row = _FinishRow(id=job.id, epoch=job.epoch)
    return BatchItem(keys=(job.id,), row=row, line=encode_line(row), result=True)


async def _write_finished(connection: Any, items: Sequence[BatchItem]) -> dict[int, WrittenItem]:
    found = await fetch_rows(connection, _FINISHED, items)
    return {number - 1: WrittenItem(items[number - 1].result) for (number,) in found}
