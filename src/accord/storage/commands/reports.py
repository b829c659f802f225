"""What an agent elsewhere reports on a task: its link, the log and, if the task has ended, all that goes with that.

One report is one transaction, whoever brings it and whatever runs meanwhile; it is refused if anything was added since
the writer looked. What a report changes is decided in `core.reports`.
"""

from msgspec import Struct
from msgspec.structs import replace

from accord.model import TaskState
from accord.protocol import lifecycle
from accord.storage.commands import children, jobs, remotes, runs, steps
from accord.storage.commands.endings import Ending, NoSuchTask, end, end_with, said
from accord.storage.commands.remotes import Link
from accord.storage.commands.tasks import (
    Append,
    Behind,
    Ended,
    Head,
    Stored,
    append,
    lock_head,
    lock_task,
    read_head,
    read_task,
)
from accord.storage.store import Tx

RETRY = '"retry"'
"""What a task is told that somebody wants to be tried again."""


class Relay(Struct, frozen=True, kw_only=True):
    """What a report changes.

    `link` is the link after it, with the version that it was read with; `last` has the task's new events, which may be
    none. With a `step` the task is woken to look for itself, and told this `output`.
    """

    link: Link
    last: Append
    step: str | None = None
    output: str = "null"
    keeps_context: bool = False


class GiveUp(Struct, frozen=True, kw_only=True):
    """A task that nobody reports on, why it is given up, and when to ask for it again all the same."""

    link: Link
    reason: str
    at: int
    again_ms: int


async def look(tx: Tx, tenant: str, task_id: str, *, whole: bool) -> tuple[Link, Head | Stored] | None:
    """Return a task's link and the task, without what was said in it unless it is wanted `whole`."""
    link = await remotes.find(tx, tenant, task_id)
    read = read_task if whole else read_head
    found: Head | Stored | None = await read(tx, tenant, task_id)
    return None if link is None or found is None else (link, found)


async def relay(tx: Tx, tenant: str, request: Relay) -> list[Ended]:
    """Write what a report changes and return what has ended with it; raises Behind if the task or its link has changed
    since they were read."""
    link, last = request.link, request.last
    head = await lock_head(tx, tenant, link.task_id)
    if head is None:
        raise NoSuchTask(link.task_id)
    if not await remotes.move(tx, tenant, link):
        raise Behind(f"Something else was reported on {link.task_id}")
    if request.keeps_context:
        await remotes.keep_context(tx, tenant, link, head.owner, head.context_id)
    ended: list[Ended] = []
    if last.bodies:
        last = replace(last, epoch=head.epoch)  # whoever runs it learns of this when it next writes
        if last.state in lifecycle.ENDED:
            ended = await end_with(tx, tenant, head, last)
        else:
            await append(tx, tenant, last)
            if head.parent_id is not None and lifecycle.INTERRUPTED & {head.task_state, last.state}:
                await children.rouse_parent(tx, tenant, head.parent_id, head.id)
    if request.step is not None and await steps.put(tx, tenant, link.task_id, request.step, request.output, last.at):
        await runs.rouse(tx, tenant, head)
    return ended


async def retry(tx: Tx, tenant: str, link: Link, step: str, at: int) -> bool:
    """Let a task look for what became of it elsewhere; false if it has ended for good. `link` has one ask more."""
    head = await lock_head(tx, tenant, link.task_id)
    if head is None or head.task_state in lifecycle.TERMINAL:
        return False
    if not await remotes.move(tx, tenant, link):
        raise Behind(f"Something else was reported on {link.task_id}")
    await steps.put(tx, tenant, link.task_id, step, RETRY, at)
    await runs.rouse(tx, tenant, head)
    return True


async def give_up(tx: Tx, tenant: str, request: GiveUp) -> list[Ended]:
    """Let a task be unknown: nothing if it has ended, or if anything was reported since its link was read."""
    link = request.link
    stored = await lock_task(tx, tenant, link.task_id)
    if stored is None or stored.task_state in lifecycle.ENDED or not await remotes.move(tx, tenant, link):
        return []
    status = said(TaskState.UNKNOWN, request.reason, stored, request.at)
    ended = await end(tx, tenant, Ending(task_id=stored.id, status=status, at=request.at))
    again = jobs.NewJob(
        kind=jobs.RUN, key=stored.id, queue=stored.agent, arg="", delay_ms=request.again_ms, epoch=stored.epoch + 1
    )
    await jobs.enqueue(tx, tenant, again)
    return ended
