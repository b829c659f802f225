"""Batches of journal entries and of reports of remote agents.

They have the same effect as the portable commands. The same tests run against both.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from accord.protocol import lifecycle
from accord.storage.commands.jobs import DEADLINE, EXECUTE_TASK, SLA, node_topic
from accord.storage.commands.remote_tasks import RemoteLink, ReportRequest
from accord.storage.commands.tasks import EndedTask, task_topic
from accord.storage.commands.workflow_runs import JournalRequest
from accord.storage.encoding import encode_bodies, encode_task, state_name
from accord.storage.postgres.batch import (
    INSERT_EVENTS,
    INSERT_STEPS,
    UPDATE_SNAPSHOTS,
    UPDATE_TASKS,
    BatchItem,
    WrittenItem,
    encode_line,
    event_lines,
    fetch_rows,
    ordered_items_sql,
)


class _JournalRow(NamedTuple):
    """The events to append to a task's log."""

    tenant: str
    task_id: str
    epoch: int
    after: int
    last: int
    at: int
    bytes: int
    state: str | None
    doc: str | None


_WRITE_JOURNALS = f"""
WITH item AS MATERIALIZED (
    SELECT item.* FROM {ordered_items_sql(_JournalRow)} CROSS JOIN LATERAL (
        SELECT epoch, last_seq, pushes FROM task
        WHERE task.tenant = item.tenant AND task.id = item.task_id FOR UPDATE
    ) AS task
    WHERE task.epoch = item.epoch AND task.last_seq = item.after AND task.pushes = 0
), moved AS ({UPDATE_TASKS}
), added AS ({INSERT_EVENTS}
), kept AS ({UPDATE_SNAPSHOTS}
), noted AS ({INSERT_STEPS}
)
SELECT n FROM item"""


def journal_item(tenant: str, request: JournalRequest) -> BatchItem:
    """Encode a workflow run's journal request as an item."""
    last = request.last
    if request.calls or last.blobs:
        raise ValueError("Tasks that are begun, and large parts, are left to the portable command")
    encoded, size = encode_bodies(last.bodies)
    row = _JournalRow(
        tenant=tenant,
        task_id=last.task_id,
        epoch=last.epoch,
        after=last.after,
        last=last.after + len(last.bodies),
        at=last.at,
        bytes=size,
        state=None if last.state is None else state_name(last.state),
        doc=None if last.snapshot is None else encode_task(last.snapshot),
    )
    return BatchItem(
        keys=((tenant, last.task_id),),
        row=row,
        line=encode_line(row),
        entries=event_lines(encoded),
        notes=[encode_line(note) for note in request.entries],
        result=[],
        topics=(task_topic(tenant, last.task_id),),
    )


async def write_journals(connection: Any, items: Sequence[BatchItem]) -> dict[int, WrittenItem]:
    """Write journal requests. Those that the statement leaves out run alone."""
    return {
        number - 1: WrittenItem(items[number - 1].result, items[number - 1].topics)
        for (number,) in await fetch_rows(connection, _WRITE_JOURNALS, items)
    }


class _ReportRow(NamedTuple):
    """The events to append to a remote task's log, and its new link. `ends` is 1 if it ends the task."""

    tenant: str
    task_id: str
    after: int
    last: int
    at: int
    bytes: int
    state: str | None
    doc: str | None
    ends: int
    remote_id: str | None
    context_id: str | None
    mode: str | None
    there: str | None
    stamp: int | None
    seq: int | None
    mark: str | None
    sent: int
    tries: int
    polls: int
    asks: int
    looked: int
    heard_at: int
    asked_at: int
    version: int


_WRITE_REPORTS = f"""
WITH item AS MATERIALIZED (
    SELECT item.* FROM {ordered_items_sql(_ReportRow)} CROSS JOIN LATERAL (
        SELECT last_seq, state, pushes, children, parent_id FROM task
        WHERE task.tenant = item.tenant AND task.id = item.task_id FOR UPDATE
    ) AS task CROSS JOIN LATERAL (
        SELECT version FROM remote WHERE remote.tenant = item.tenant AND remote.task_id = item.task_id FOR UPDATE
    ) AS link
    WHERE link.version = item.version AND item.after IN (task.last_seq, item.last) AND task.pushes = 0
      AND (task.children = 0 OR item.ends = 0)
      AND (task.parent_id IS NULL OR (
          item.ends = 0 AND NOT ARRAY[task.state, item.state] && ARRAY['input_required', 'auth_required']))
), linked AS (
    UPDATE remote SET remote_id = item.remote_id, context_id = item.context_id, mode = item.mode, state = item.there,
                      stamp = item.stamp, seq = item.seq, mark = item.mark, sent = item.sent, tries = item.tries,
                      polls = item.polls, asks = item.asks, looked = item.looked, heard_at = item.heard_at,
                      asked_at = item.asked_at, version = remote.version + 1
    FROM item WHERE remote.tenant = item.tenant AND remote.task_id = item.task_id
), moved AS (
    UPDATE task SET last_seq = item.last, bytes = task.bytes + item.bytes,
                    state = COALESCE(item.state, task.state), epoch = task.epoch + item.ends,
                    updated_at = CASE WHEN item.state IS NULL THEN task.updated_at ELSE item.at END
    FROM item WHERE item.last > item.after AND task.tenant = item.tenant AND task.id = item.task_id
), added AS ({INSERT_EVENTS}
), kept AS ({UPDATE_SNAPSHOTS}
), dropped AS (
    DELETE FROM job USING item
    WHERE item.ends = 1 AND job.tenant = item.tenant AND job.key = item.task_id
      AND (job.kind = '{EXECUTE_TASK}' OR (job.kind IN ('{DEADLINE}', '{SLA}') AND job.node IS NULL))
    RETURNING item.n, job.node
)
SELECT item.n, (SELECT max(node) FROM dropped WHERE dropped.n = item.n) FROM item"""
"""A claimed job is only deleted if it runs the task. Its node is notified."""


def report_item(tenant: str, request: ReportRequest) -> BatchItem:
    """Encode a report as an item."""
    link, last = request.link, request.last
    if request.step is not None or request.keeps_context or last.blobs:
        raise ValueError("What has to be noted beside the log is rare and left to the portable command")
    state, ended = last.state, []
    if state is not None and state in lifecycle.ENDED:
        ended.append(EndedTask(tenant, link.task_id, link.agent, state))
    encoded, size = encode_bodies(last.bodies)
    row = _ReportRow(
        tenant=tenant,
        task_id=link.task_id,
        after=last.after,
        last=last.after + len(last.bodies),
        at=last.at,
        bytes=size,
        state=None if state is None else state_name(state),
        doc=None if last.snapshot is None else encode_task(last.snapshot),
        ends=len(ended),
        there=None if link.state is None else state_name(link.state),
        **{name: getattr(link, name) for name in _OF_LINK},
    )
    return BatchItem(
        keys=((tenant, link.task_id),),
        row=row,
        line=encode_line(row),
        entries=event_lines(encoded),
        result=ended,
        topics=(task_topic(tenant, link.task_id),) if last.bodies else (),
    )


_OF_LINK = tuple(
    name for name in _ReportRow._fields if name in RemoteLink.__struct_fields__ and name not in ("task_id", "state")
)


async def write_reports(connection: Any, items: Sequence[BatchItem]) -> dict[int, WrittenItem]:
    """Write reports. Those that the statement leaves out run alone."""
    return {
        number - 1: WrittenItem(
            items[number - 1].result, (*items[number - 1].topics, *((node_topic(node),) if node else ()))
        )
        for number, node in await fetch_rows(connection, _WRITE_REPORTS, items)
    }
