"""Remote tasks: their links, tokens, reports and cancels.

A link is one row for as long as its task is stored. It needs no connection and no process. One report is one
transaction, refused if anything was added since the writer read the task.
"""

from msgspec import Struct
from msgspec.structs import asdict, replace

from accord.model import TaskState
from accord.protocol import lifecycle
from accord.storage.commands import jobs, steps, task_lifecycle
from accord.storage.commands.task_endings import EndRequest, NoSuchTask, end_task, end_with_events, server_status
from accord.storage.commands.tasks import (
    Append,
    Behind,
    EndedTask,
    StoredTask,
    TaskHead,
    append,
    lock_head,
    lock_task,
    read_head,
    read_task,
)
from accord.storage.encoding import from_row, state_name, state_of
from accord.storage.store import Row, Tx, Value


class RemoteLink(Struct, frozen=True, kw_only=True):
    """The link between a task and its remote task, a row of the table `remote`. Its tenant is passed separately."""

    task_id: str
    agent: str
    remote_id: str | None = None
    context_id: str | None = None
    mode: str | None = None
    state: TaskState | None = None
    stamp: int | None = None
    seq: int | None = None
    mark: str | None = None
    sent: int = 0
    tries: int = 0
    polls: int = 0
    asks: int = 0
    looked: int = 0
    heard_at: int = 0
    asked_at: int = 0
    version: int = 0


class NewRemoteLink(Struct, frozen=True, kw_only=True):
    """A link to create before the first message is sent. `token_hash` authenticates its reports."""

    task_id: str
    agent: str
    context_id: str
    at: int
    mode: str | None = None
    token_hash: str | None = None
    ttl_ms: int | None = None


class RemoteCancel(Struct, frozen=True, kw_only=True):
    """A task canceled here whose remote task is not yet canceled. `cancels` counts the attempts."""

    tenant: str
    link: RemoteLink
    cancels: int


class RemoteTaskStatus(Struct, frozen=True, kw_only=True):
    """The status of a task that a remote agent executes. `here` is the local state."""

    tenant: str
    here: TaskState
    link: RemoteLink


_LINK_COLUMNS = ", ".join(f"remote.{column}" for column in RemoteLink.__struct_fields__)


def decode_link(row: Row) -> RemoteLink:
    """Decode a link from a row of its columns."""
    return from_row(RemoteLink, row, state=lambda name: None if name is None else state_of(name))


async def create_link(tx: Tx, tenant: str, new: NewRemoteLink) -> RemoteLink:
    """Create a task's link unless it exists, update its report mode, and store its token."""
    await tx.run(
        """INSERT INTO remote (tenant, task_id, agent, context_id, mode, heard_at)
           VALUES (:tenant, :task_id, :agent, :context_id, :mode, :at)
           ON CONFLICT (tenant, task_id) DO UPDATE SET mode = COALESCE(excluded.mode, remote.mode)""",
        tenant=tenant,
        **asdict(new),
    )
    if new.token_hash is not None:
        expires = "NULL" if new.ttl_ms is None else "{now} + :ttl"
        await tx.run(
            f"""INSERT INTO remote_token (hash, tenant, task_id, expires_at)
                VALUES (:hash, :tenant, :task_id, {expires})""",
            hash=new.token_hash,
            tenant=tenant,
            task_id=new.task_id,
            **({} if new.ttl_ms is None else {"ttl": new.ttl_ms}),
        )
    found = await find_link(tx, tenant, new.task_id)
    assert found is not None  # it was just created
    return found


async def find_link(tx: Tx, tenant: str, task_id: str) -> RemoteLink | None:
    """Return a task's link, or None."""
    row = await tx.one(
        f"SELECT {_LINK_COLUMNS} FROM remote WHERE tenant = :tenant AND task_id = :task_id",
        tenant=tenant,
        task_id=task_id,
    )
    return None if row is None else decode_link(row)


async def find_link_by_token(tx: Tx, token_hash: str) -> tuple[str, str, RemoteLink] | None:
    """Return a token's hash, tenant and link; None for an unknown or expired token."""
    row = await tx.one(
        f"""SELECT hash, remote.tenant, {_LINK_COLUMNS} FROM remote_token
            JOIN remote ON remote.tenant = remote_token.tenant AND remote.task_id = remote_token.task_id
            WHERE hash = :hash AND (expires_at IS NULL OR expires_at > {{now}})""",
        hash=token_hash,
    )
    return None if row is None else (row[0], row[1], decode_link(row[2:]))


async def find_link_by_remote_id(tx: Tx, agent: str, remote_id: str) -> tuple[str, RemoteLink] | None:
    """Return the tenant and link of a remote task by its ID on the remote agent."""
    row = await tx.one(
        f"SELECT remote.tenant, {_LINK_COLUMNS} FROM remote WHERE agent = :agent AND remote_id = :remote_id",
        agent=agent,
        remote_id=remote_id,
    )
    return None if row is None else (row[0], decode_link(row[1:]))


async def update_link(tx: Tx, tenant: str, link: RemoteLink) -> bool:
    """Write a link. Return false if it was changed since it was read."""
    changed = await tx.run(
        """UPDATE remote SET remote_id = :remote_id, context_id = :context_id, state = :state, stamp = :stamp,
                  seq = :seq, mark = :mark, sent = :sent, tries = :tries, polls = :polls, asks = :asks,
                  looked = :looked, heard_at = :heard_at, asked_at = :asked_at, mode = :mode, version = version + 1
           WHERE tenant = :tenant AND task_id = :task_id AND version = :version""",
        tenant=tenant,
        **asdict(link) | {"state": None if link.state is None else state_name(link.state)},
    )
    return changed == 1


# --- remote contexts --------------------------------------------------------------------------------------------------


async def find_remote_context(tx: Tx, tenant: str, agent: str, owner: str, context_id: str) -> str | None:
    """Return the remote agent's own ID of a context, or None if it uses ours."""
    row = await tx.one(
        """SELECT remote_id FROM remote_context
           WHERE tenant = :tenant AND agent = :agent AND owner = :owner AND context_id = :context_id""",
        tenant=tenant,
        agent=agent,
        owner=owner,
        context_id=context_id,
    )
    return None if row is None else str(row[0])


async def put_remote_context(tx: Tx, tenant: str, link: RemoteLink, owner: str, context_id: str) -> None:
    """Store the remote agent's own ID of a context."""
    await tx.run(
        """INSERT INTO remote_context (tenant, agent, owner, context_id, remote_id)
           VALUES (:tenant, :agent, :owner, :context_id, :remote_id)
           ON CONFLICT (tenant, agent, owner, context_id) DO UPDATE SET remote_id = excluded.remote_id""",
        tenant=tenant,
        agent=link.agent,
        owner=owner,
        context_id=context_id,
        remote_id=link.context_id,
    )


# --- cancels ----------------------------------------------------------------------------------------------------------


async def claim_cancels(tx: Tx, agent: str, limit: int, again_ms: int) -> list[RemoteCancel]:
    """Claim an agent's due cancels. An unconfirmed cancel is due again after a doubling delay."""
    rows = await tx.all(
        f"""SELECT remote.tenant, cancels, {_LINK_COLUMNS} FROM remote
            WHERE cancel_at <= (SELECT {{now}}) AND agent = :agent ORDER BY cancel_at LIMIT :limit {{skip_locked}}""",
        agent=agent,
        limit=limit,
    )
    found = [RemoteCancel(tenant=row[0], cancels=row[1], link=decode_link(row[2:])) for row in rows]
    for cancel in found:
        await tx.run(
            """UPDATE remote SET cancel_at = {now} + :again, cancels = cancels + 1
               WHERE tenant = :tenant AND task_id = :task_id""",
            again=again_ms * 2**cancel.cancels,
            tenant=cancel.tenant,
            task_id=cancel.link.task_id,
        )
    return found


async def clear_cancel(tx: Tx, tenant: str, task_id: str) -> None:
    """Record that a remote cancel is settled."""
    await tx.run(
        "UPDATE remote SET cancel_at = NULL WHERE tenant = :tenant AND task_id = :task_id",
        tenant=tenant,
        task_id=task_id,
    )


# --- for operators ----------------------------------------------------------------------------------------------------


async def list_remote_tasks(tx: Tx, task_id: str | None, state: TaskState | None, limit: int) -> list[RemoteTaskStatus]:
    """Return remote tasks, latest report first, filtered by ID or local state."""
    given: dict[str, Value] = {"id": task_id, "state": None if state is None else state_name(state)}
    wanted = {column: value for column, value in given.items() if value is not None}
    where = f"WHERE {' AND '.join(f'task.{column} = :{column}' for column in wanted)}" if wanted else ""
    rows = await tx.all(
        f"""SELECT task.tenant, task.state, {_LINK_COLUMNS} FROM remote
            JOIN task ON task.tenant = remote.tenant AND task.id = remote.task_id
            {where} ORDER BY remote.heard_at DESC, task.id LIMIT :limit""",
        **wanted,
        limit=limit,
    )
    return [RemoteTaskStatus(tenant=row[0], here=state_of(row[1]), link=decode_link(row[2:])) for row in rows]


RETRY_SIGNAL = '"retry"'
"""The output of a step that requests a retry."""


class ReportRequest(Struct, frozen=True, kw_only=True):
    """The changes of one report.

    `link` is the new link with the version that was read. `last` has the task's new events, possibly none. With a
    `step` the task is also woken to poll its remote task, with `output` as the step's output.
    """

    link: RemoteLink
    last: Append
    step: str | None = None
    output: str = "null"
    keeps_context: bool = False


class GiveUpRequest(Struct, frozen=True, kw_only=True):
    """A request to give up a remote task without reports. `again_ms` is the delay before the next poll."""

    link: RemoteLink
    reason: str
    at: int
    again_ms: int


async def read_link_and_task(
    tx: Tx, tenant: str, task_id: str, *, whole: bool
) -> tuple[RemoteLink, TaskHead | StoredTask] | None:
    """Return a task's link, and the task or, unless `whole`, only its head."""
    link = await find_link(tx, tenant, task_id)
    read = read_task if whole else read_head
    found: TaskHead | StoredTask | None = await read(tx, tenant, task_id)
    return None if link is None or found is None else (link, found)


async def write_report(tx: Tx, tenant: str, request: ReportRequest) -> list[EndedTask]:
    """Write a report's changes and return the ended tasks.

    Raises Behind if the task or its link has changed since they were read.
    """
    link, last = request.link, request.last
    head = await lock_head(tx, tenant, link.task_id)
    if head is None:
        raise NoSuchTask(link.task_id)
    if not await update_link(tx, tenant, link):
        raise Behind(f"Something else was reported on {link.task_id}")
    if request.keeps_context:
        await put_remote_context(tx, tenant, link, head.owner, head.context_id)
    ended: list[EndedTask] = []
    if last.bodies:
        last = replace(last, epoch=head.epoch)  # its current execution is fenced at the next write
        if last.state in lifecycle.ENDED:
            ended = await end_with_events(tx, tenant, head, last)
        else:
            await append(tx, tenant, last)
            if head.parent_id is not None and lifecycle.INTERRUPTED & {head.task_state, last.state}:
                await steps.wake_parent(tx, tenant, head.parent_id, head.id)
    if request.step is not None and await steps.put_step(
        tx, tenant, link.task_id, request.step, request.output, last.at
    ):
        await task_lifecycle.requeue_task(tx, tenant, head)
    return ended


async def retry_remote_task(tx: Tx, tenant: str, link: RemoteLink, step: str, at: int) -> bool:
    """Wake a task to poll its remote task. Return false if it has ended. `link` has an incremented `asks`."""
    head = await lock_head(tx, tenant, link.task_id)
    if head is None or head.task_state in lifecycle.TERMINAL:
        return False
    if not await update_link(tx, tenant, link):
        raise Behind(f"Something else was reported on {link.task_id}")
    await steps.put_step(tx, tenant, link.task_id, step, RETRY_SIGNAL, at)
    await task_lifecycle.requeue_task(tx, tenant, head)
    return True


async def give_up_remote_task(tx: Tx, tenant: str, request: GiveUpRequest) -> list[EndedTask]:
    """Give up a remote task as unknown. Does nothing if the task has ended or its link has changed."""
    link = request.link
    stored = await lock_task(tx, tenant, link.task_id)
    if stored is None or stored.task_state in lifecycle.ENDED or not await update_link(tx, tenant, link):
        return []
    status = server_status(TaskState.UNKNOWN, request.reason, stored, request.at)
    ended = await end_task(tx, tenant, EndRequest(task_id=stored.id, status=status, at=request.at))
    again = jobs.NewJob(
        kind=jobs.EXECUTE_TASK,
        key=stored.id,
        queue=stored.agent,
        arg="",
        delay_ms=request.again_ms,
        epoch=stored.epoch + 1,
    )
    await jobs.enqueue(tx, tenant, again)
    return ended
