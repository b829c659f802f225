"""The hot commands by sets, for PostgreSQL: what a node's tasks write at one time is a few statements and one commit.

Each does exactly what the portable command of its name does, for many at once; the same tests run against both. Tasks
are locked in the order of their keys, so that no two batches wait for each other. A statement does not see what was
committed while it waited for its locks, so what must be seen (a step, a webhook) is read by another one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from accord.protocol import lifecycle
from accord.storage.commands import audit, jobs, journal, pushes, reports, runs, tasks
from accord.storage.commands.jobs import DEADLINE, RUN, SLA, TIMERS, Claimed, queue_topic
from accord.storage.commands.runs import Accept, Accepted, Settle
from accord.storage.commands.tasks import Append, topic
from accord.storage.postgres_audit import audit_item, write_audit
from accord.storage.postgres_batch import Batcher, Begin, Item, Override, Stage, Write, Written
from accord.storage.postgres_journal import advance_item, write_advances
from accord.storage.postgres_relay import relay_item, write_relays
from accord.storage.postgres_rows import (
    ADDED,
    KEPT,
    MOVED,
    NOTED,
    entries,
    fetched,
    given,
    in_order,
    line,
)
from accord.storage.records import byte_count, encode_bodies, encode_body, encode_task, state_name
from accord.storage.sql import Engine, compile
from accord.storage.store import ARRIVALS, FEW_ARRIVALS


class Overrides:
    """The commands that one store runs by sets."""

    def __init__(self, connect: Begin, begin: Begin, publish: Callable[[list[str]], None]) -> None:
        """Use connections on which a statement is a transaction by itself (`connect`), or transactions (`begin`).

        The first saves two round trips; whatever needs one statement only is written so.
        """

        def batcher(write: Write, turns: int = 0) -> Batcher:
            return Batcher([Stage(connect, write, is_statement=True)], publish, turns)

        log = Batcher(
            [
                Stage(connect, _write_quiet_chunks, _is_chunks, is_statement=True),
                Stage(connect, _write_quiet_log, _is_quiet, is_statement=True),
                Stage(begin, _write_log),
            ],
            publish,
        )
        self._table: dict[Callable[..., Any], Override] = {
            tasks.append: Override(_append, log),
            runs.settle: Override(_settle, log),
            runs.accept: Override(_accept, batcher(_write_accepted, FEW_ARRIVALS)),
            jobs.finish: Override(_finish, batcher(_write_finished)),
            reports.relay: Override(relay_item, batcher(write_relays)),
            journal.advance: Override(advance_item, batcher(write_advances)),
            audit.append: Override(audit_item, batcher(write_audit)),
        }
        self._early = {runs.accept: Override(_accept, batcher(_write_accepted, ARRIVALS))}

    def get(self, command: Callable[..., Any], *, is_early: bool = False) -> Override | None:
        """Return how a command is run by sets, if it is; together with more others if nobody hears of it yet."""
        return (is_early and self._early.get(command)) or self._table.get(command)

    async def close(self) -> None:
        """Finish what was accepted."""
        for override in (*self._early.values(), *self._table.values()):
            await override.batcher.close()


# --- tasks.append and runs.settle -------------------------------------------------------------------------------------


class _LogRow(NamedTuple):
    """What is appended to a task and, with a `fate`, what becomes of the job that ran it."""

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
    """What is appended to a task and changes nothing else: the first columns of a log row."""

    tenant: str
    task_id: str
    epoch: int
    after: int
    last: int
    at: int
    bytes: int


PARKED, DONE, ENDED = "parked", "done", "ended"
"""Fates of a job: it waits; it goes; it goes together with its task's timers, if the task has started no others."""

_LOCKED = """CROSS JOIN LATERAL (
        SELECT epoch, last_seq, pushes, children FROM task
        WHERE task.tenant = item.tenant AND task.id = item.task_id FOR UPDATE
    ) AS task"""
"""Locks the tasks of items by key: a plan from when the table was small must not go on reading all of it."""


_IN_ORDER = in_order(_LogRow)

_LOCK = f"SELECT 1 FROM {_IN_ORDER} {_LOCKED}"

_QUIET = "AND task.pushes = 0"
"""Leaves tasks with webhooks out: these must become due in the same transaction, by a statement that sees them."""


def _plain_log(only: str = "") -> str:
    """Return the statement for chunks alone, as most batches are while agents stream; the whole one costs twice."""
    return f"""
WITH item AS MATERIALIZED (
    SELECT item.*, task.pushes FROM {in_order(_PlainRow)} {_LOCKED}
    WHERE task.epoch = item.epoch AND task.last_seq = item.after {only}
), moved AS (
    UPDATE task SET last_seq = item.last, bytes = task.bytes + item.bytes FROM item
    WHERE task.tenant = item.tenant AND task.id = item.task_id
), added AS ({ADDED}
)
SELECT n, pushes FROM item"""


def _whole_log(only: str = "", more: str = "") -> str:
    """Return the statement for everything that a log tells of, and more of the kind."""
    return f"""
WITH item AS MATERIALIZED (
    SELECT item.*, task.pushes FROM {_IN_ORDER} {_LOCKED}
    WHERE task.epoch = item.epoch AND task.last_seq = item.after {only}
      AND (task.children = 0 OR item.fate IS DISTINCT FROM '{ENDED}')
      AND (item.awaited IS NULL OR (SELECT 1 FROM step WHERE step.tenant = item.tenant AND step.task_id = item.job_key
                                    AND step.key = item.awaited LIMIT 1) IS NULL)
), moved AS ({MOVED}
), added AS ({ADDED}
), kept AS ({KEPT}
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
    statement: _whole_log(only, f", noted AS ({NOTED}\n)") for statement, only in ((_LOG, ""), (_QUIET_LOG, _QUIET))
}
"""Statement -> the one for a batch in which a run writes down something with its end; few do."""

_DUE = """UPDATE push SET due_at = {now} WHERE tenant = :tenant AND task_id = :task_id
          AND due_at IS NULL AND dead_at IS NULL"""


def _append(tenant: str, new: Append) -> Item:
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
) -> Item:
    if new.blobs:
        raise ValueError("References to large parts are rare and left to the portable command")
    return Item(
        keys=((tenant, new.task_id),),
        row=row,
        line=line(row),
        entries=entries(encoded),
        result=row.last if result is None else result,
        topics=(topic(tenant, new.task_id), *topics),
        notes=[line(note) for note in notes],
    )


def _plain(tenant: str, new: Append, size: int) -> _PlainRow:
    return _PlainRow(tenant, new.task_id, new.epoch, new.after, new.after + len(new.bodies), new.at, size)


def _moved(new: Append) -> tuple[str | None, str | None]:
    """Return the state and the document that a task has afterwards, as far as they change."""
    state = None if new.state is None else state_name(new.state)
    return state, None if new.snapshot is None else encode_task(new.snapshot)


def _settle(tenant: str, request: Settle) -> Item:
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


def _is_chunks(item: Item) -> bool:
    return isinstance(item.row, _PlainRow)


def _is_quiet(item: Item) -> bool:
    """Whether one statement is enough, if the task has no webhooks: what waits for a step must look for that first."""
    return isinstance(item.row, _LogRow) and item.row.awaited is None


async def _write_quiet_chunks(connection: Any, items: Sequence[Item]) -> dict[int, Written]:
    return await _write_rows(connection, _QUIET_PLAIN, dict(enumerate(items)))


async def _write_quiet_log(connection: Any, items: Sequence[Item]) -> dict[int, Written]:
    return await _write_rows(connection, _QUIET_LOG, dict(enumerate(items)))


async def _write_log(connection: Any, items: Sequence[Item]) -> dict[int, Written]:
    """Write chunks by the short statement and what else happens to tasks by the long one."""
    plain = {position: item for position, item in enumerate(items) if _is_chunks(item)}
    whole = {position: item for position, item in enumerate(items) if position not in plain}
    if any(item.row.awaited is not None for item in whole.values()):
        await fetched(connection, _LOCK, list(whole.values()))
    written = await _write_rows(connection, _PLAIN, plain) if plain else {}
    return written | await _write_rows(connection, _LOG, whole) if whole else written


async def _write_rows(connection: Any, statement: str, items: Mapping[int, Item]) -> dict[int, Written]:
    written: dict[int, Written] = {}
    positions, with_webhooks = list(items), []
    if any(item.notes for item in items.values()):
        statement = _NOTING[statement]
    for number, has_webhooks in await fetched(connection, statement, list(items.values())):
        position = positions[number - 1]
        item = items[position]
        written[position] = Written(item.result, (*item.topics, pushes.TOPIC) if has_webhooks else item.topics)
        if has_webhooks:
            with_webhooks.append(item.row[:2])
    if with_webhooks:
        await connection.executemany(compile(_DUE, Engine.POSTGRES).text, with_webhooks)
    return written


# --- runs.accept ------------------------------------------------------------------------------------------------------


class _AcceptRow(NamedTuple):
    """A task with its snapshot and job; with `kind` its first event, with `config` its webhook."""

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
    SELECT *, CASE WHEN node IS NULL THEN 0 ELSE 1 END AS claims FROM {given(_AcceptRow, "item")}
), fresh AS MATERIALIZED (
    SELECT * FROM item WHERE idempotency IS NULL OR (
        SELECT 1 FROM idempotency AS known WHERE known.tenant = item.tenant AND known.key = item.idempotency LIMIT 1
    ) IS NULL
), noted AS (
    INSERT INTO idempotency (tenant, key, task_id, expires_at)
    SELECT tenant, idempotency, task_id,
           {{now}} + {runs.IDEMPOTENCY_MS} FROM fresh WHERE idempotency IS NOT NULL
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
    SELECT tenant, queue, '{RUN}', task_id, message_id, priority, {{now}}, max_attempts, claims, node, claims
    FROM fresh ORDER BY n RETURNING id, tenant, key
)
SELECT tenant, key, id FROM queued"""
"""What was sent before is left to the portable command; so is the whole batch if another node keeps the same message in
this very moment. `ON CONFLICT` would see to that here, for twice what keeping a key costs."""


def _accept(tenant: str, request: Accept) -> Item:
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
        caller=None if push is None else pushes.caller_of(tenant, new.owner),
        host=None if push is None else pushes.host_of(push),
        address=None if push is None else pushes.address_of(push),
        deadline_ms=request.deadline_ms,
        trace=new.trace,
        bytes=byte_count(doc) + byte_count(data or ""),
    )
    keys: tuple[tuple[str, ...], ...] = ((tenant, task.id),)
    if request.key is not None:
        keys = (*keys, (tenant, "key", request.key))
    return Item(keys=keys, row=row, line=line(row), result=Accepted(task_id=task.id), topics=_accept_topics(row))


def _accept_topics(row: _AcceptRow) -> tuple[str, ...]:
    topics = [topic(row.tenant, row.task_id)]
    if row.node is None:
        topics.append(queue_topic(row.queue))
    if row.deadline_ms is not None:
        topics.append(queue_topic(TIMERS))
    if row.config is not None:
        topics.append(pushes.TOPIC)
    return tuple(topics)


async def _write_accepted(connection: Any, items: Sequence[Item]) -> dict[int, Written]:
    written = {}
    positions = {(item.row.tenant, item.row.task_id): position for position, item in enumerate(items)}
    for tenant, task_id, job_id in await fetched(connection, _ACCEPTED, items):
        position = positions[tenant, task_id]
        item = items[position]
        job = None if item.row.node is None else _claimed(item.row, job_id)
        written[position] = Written(Accepted(task_id=task_id, job=job), item.topics)
    return written


def _claimed(row: _AcceptRow, job_id: int) -> Claimed:
    return Claimed(
        id=job_id,
        tenant=row.tenant,
        queue=row.queue,
        kind=RUN,
        key=row.task_id,
        arg=row.message_id,
        epoch=1,
        attempts=1,
        max_attempts=row.max_attempts,
    )


# --- jobs.finish ------------------------------------------------------------------------------------------------------


class _FinishRow(NamedTuple):
    """A job that is done, and the claim under which it was."""

    id: int
    epoch: int


_FINISHED = f"""
WITH item AS MATERIALIZED (
    SELECT item.id, item.n FROM (SELECT * FROM {given(_FinishRow, "item")} ORDER BY id) AS item
    CROSS JOIN LATERAL (SELECT epoch FROM job WHERE job.id = item.id FOR UPDATE) AS job
    WHERE job.epoch = item.epoch
)
DELETE FROM job USING item WHERE job.id = item.id RETURNING n"""


def _finish(job: Claimed) -> Item:
    row = _FinishRow(id=job.id, epoch=job.epoch)
    return Item(keys=(job.id,), row=row, line=line(row), result=True)


async def _write_finished(connection: Any, items: Sequence[Item]) -> dict[int, Written]:
    found = await fetched(connection, _FINISHED, items)
    return {number - 1: Written(items[number - 1].result) for (number,) in found}
