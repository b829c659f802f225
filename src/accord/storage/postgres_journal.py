"""What runs write down, for PostgreSQL: the journals of many runs by one statement.

It does what `journal.advance` does for a run that begins no tasks; those that do, and tasks with webhooks, are left to
the portable command. `postgres_overrides` stands above.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from accord.storage.commands.journal import Advance
from accord.storage.commands.tasks import topic
from accord.storage.postgres_batch import Item, Written
from accord.storage.postgres_rows import (
    ADDED,
    KEPT,
    MOVED,
    NOTED,
    entries,
    fetched,
    in_order,
    line,
)
from accord.storage.records import encode_bodies, encode_task, state_name


class _AdvanceRow(NamedTuple):
    """What is appended to a task's log."""

    tenant: str
    task_id: str
    epoch: int
    after: int
    last: int
    at: int
    bytes: int
    state: str | None
    doc: str | None


_ADVANCED = f"""
WITH item AS MATERIALIZED (
    SELECT item.* FROM {in_order(_AdvanceRow)} CROSS JOIN LATERAL (
        SELECT epoch, last_seq, pushes FROM task
        WHERE task.tenant = item.tenant AND task.id = item.task_id FOR UPDATE
    ) AS task
    WHERE task.epoch = item.epoch AND task.last_seq = item.after AND task.pushes = 0
), moved AS ({MOVED}
), added AS ({ADDED}
), kept AS ({KEPT}
), noted AS ({NOTED}
)
SELECT n FROM item"""


def advance_item(tenant: str, request: Advance) -> Item:
    """Return what a run writes down, to be written with others."""
    last = request.last
    if request.calls or last.blobs:
        raise ValueError("Tasks that are begun, and large parts, are left to the portable command")
    encoded, size = encode_bodies(last.bodies)
    row = _AdvanceRow(
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
    return Item(
        keys=((tenant, last.task_id),),
        row=row,
        line=line(row),
        entries=entries(encoded),
        notes=[line(note) for note in request.entries],
        result=[],
        topics=(topic(tenant, last.task_id),),
    )


async def write_advances(connection: Any, items: Sequence[Item]) -> dict[int, Written]:
    """Write journals; those that the statement leaves out run alone."""
    return {
        number - 1: Written(items[number - 1].result, items[number - 1].topics)
        for (number,) in await fetched(connection, _ADVANCED, items)
    }
