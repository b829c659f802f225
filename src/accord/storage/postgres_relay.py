"""Reports of agents elsewhere by sets, for PostgreSQL: what webhooks bring at one time is one statement.

It does exactly what `reports.relay` does, for the reports that most are: they add to a task or end it, and nobody else
has to be told. Reports on tasks with webhooks, children or a parent that waits, and those that wake a run, are left to
the portable command. The batches are `postgres_batch`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from accord.protocol import lifecycle
from accord.storage.commands.jobs import DEADLINE, RUN, SLA, node_topic
from accord.storage.commands.remotes import Link
from accord.storage.commands.reports import Relay
from accord.storage.commands.tasks import Ended, topic
from accord.storage.postgres_batch import Item, Written
from accord.storage.postgres_rows import ADDED, KEPT, entries, fetched, in_order, line
from accord.storage.records import encode_bodies, encode_task, state_name


class _RelayRow(NamedTuple):
    """What is appended to a task that an agent elsewhere does, and its link after that; `ends` is 1 for its end."""

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


_RELAYED = f"""
WITH item AS MATERIALIZED (
    SELECT item.* FROM {in_order(_RelayRow)} CROSS JOIN LATERAL (
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
), added AS ({ADDED}
), kept AS ({KEPT}
), dropped AS (
    DELETE FROM job USING item
    WHERE item.ends = 1 AND job.tenant = item.tenant AND job.key = item.task_id
      AND (job.kind = '{RUN}' OR (job.kind IN ('{DEADLINE}', '{SLA}') AND job.node IS NULL))
    RETURNING item.n, job.node
)
SELECT item.n, (SELECT max(node) FROM dropped WHERE dropped.n = item.n) FROM item"""
"""Only the job that runs a task may be held among those that are dropped: its node is told."""


def relay_item(tenant: str, request: Relay) -> Item:
    """Return a report to be written with others."""
    link, last = request.link, request.last
    if request.step is not None or request.keeps_context or last.blobs:
        raise ValueError("What has to be noted beside the log is rare and left to the portable command")
    state, ended = last.state, []
    if state is not None and state in lifecycle.ENDED:
        ended.append(Ended(tenant, link.task_id, link.agent, state))
    encoded, size = encode_bodies(last.bodies)
    row = _RelayRow(
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
    return Item(
        keys=((tenant, link.task_id),),
        row=row,
        line=line(row),
        entries=entries(encoded),
        result=ended,
        topics=(topic(tenant, link.task_id),) if last.bodies else (),
    )


_OF_LINK = tuple(
    name for name in _RelayRow._fields if name in Link.__struct_fields__ and name not in ("task_id", "state")
)


async def write_relays(connection: Any, items: Sequence[Item]) -> dict[int, Written]:
    """Write reports; those that the statement leaves out run alone."""
    return {
        number - 1: Written(
            items[number - 1].result, (*items[number - 1].topics, *((node_topic(node),) if node else ()))
        )
        for number, node in await fetched(connection, _RELAYED, items)
    }
