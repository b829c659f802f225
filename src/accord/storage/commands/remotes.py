"""Tasks that an agent elsewhere does: what it is called there, what may report on it, and whom to tell of a cancel.

A link is one row for as long as its task is kept, and nothing is held for it: no connection and no process. What a
report does to the task is `reports`; what it means is decided in `core`.
"""

from msgspec import Struct

from accord.model import TaskState
from accord.storage.records import state_name, state_of
from accord.storage.store import Row, Tx, Value


class Link(Struct, frozen=True, kw_only=True):
    """A task and its twin elsewhere; see the table `remote`. The tenant is known by whoever has it."""

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


class Expected(Struct, frozen=True, kw_only=True):
    """A link to be made before its first message is sent, and the hash of the token that reports on it will show."""

    task_id: str
    agent: str
    context_id: str
    at: int
    mode: str | None = None
    token_hash: str | None = None
    ttl_ms: int | None = None


class Cancel(Struct, frozen=True, kw_only=True):
    """A task that was cancelled here and is still done elsewhere; `cancels` is how often that was tried to be told."""

    tenant: str
    link: Link
    cancels: int


class Standing(Struct, frozen=True, kw_only=True):
    """How a task that an agent elsewhere does stands; `here` is its state here."""

    tenant: str
    here: TaskState
    link: Link


_COLUMNS = ", ".join(f"remote.{column}" for column in Link.__struct_fields__)


def link_of(row: Row) -> Link:
    """Return the link of a row with its columns."""
    found = dict(zip(Link.__struct_fields__, row, strict=True))
    found["state"] = None if found["state"] is None else state_of(found["state"])
    return Link(**found)


async def expect(tx: Tx, tenant: str, new: Expected) -> Link:
    """See to it that a task has a link, how its reports get here, and that those with the token are let in."""
    await tx.run(
        """INSERT INTO remote (tenant, task_id, agent, context_id, mode, heard_at)
           VALUES (:tenant, :task_id, :agent, :context_id, :mode, :at)
           ON CONFLICT (tenant, task_id) DO UPDATE SET mode = COALESCE(excluded.mode, remote.mode)""",
        tenant=tenant,
        task_id=new.task_id,
        agent=new.agent,
        context_id=new.context_id,
        mode=new.mode,
        at=new.at,
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
    found = await find(tx, tenant, new.task_id)
    assert found is not None  # it has just been made
    return found


async def find(tx: Tx, tenant: str, task_id: str) -> Link | None:
    """Return a task's link."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM remote WHERE tenant = :tenant AND task_id = :task_id", tenant=tenant, task_id=task_id
    )
    return None if row is None else link_of(row)


async def by_token(tx: Tx, token_hash: str) -> tuple[str, str, Link] | None:
    """Return the hash of a token, and the tenant and the link whose reports show it; None if none do any more."""
    row = await tx.one(
        f"""SELECT hash, remote.tenant, {_COLUMNS} FROM remote_token
            JOIN remote ON remote.tenant = remote_token.tenant AND remote.task_id = remote_token.task_id
            WHERE hash = :hash AND (expires_at IS NULL OR expires_at > {{now}})""",
        hash=token_hash,
    )
    return None if row is None else (row[0], row[1], link_of(row[2:]))


async def by_remote_id(tx: Tx, agent: str, remote_id: str) -> tuple[str, Link] | None:
    """Return the tenant and the link of a task by its id elsewhere."""
    row = await tx.one(
        f"SELECT remote.tenant, {_COLUMNS} FROM remote WHERE agent = :agent AND remote_id = :remote_id",
        agent=agent,
        remote_id=remote_id,
    )
    return None if row is None else (row[0], link_of(row[1:]))


async def move(tx: Tx, tenant: str, link: Link) -> bool:
    """Write a link as it is now; false if somebody else has, since it was read."""
    changed = await tx.run(
        """UPDATE remote SET remote_id = :remote_id, context_id = :context_id, state = :state, stamp = :stamp,
                  seq = :seq, mark = :mark, sent = :sent, tries = :tries, polls = :polls, asks = :asks,
                  looked = :looked, heard_at = :heard_at, asked_at = :asked_at, mode = :mode, version = version + 1
           WHERE tenant = :tenant AND task_id = :task_id AND version = :version""",
        tenant=tenant,
        task_id=link.task_id,
        remote_id=link.remote_id,
        context_id=link.context_id,
        state=None if link.state is None else state_name(link.state),
        stamp=link.stamp,
        seq=link.seq,
        mark=link.mark,
        sent=link.sent,
        tries=link.tries,
        polls=link.polls,
        asks=link.asks,
        looked=link.looked,
        heard_at=link.heard_at,
        asked_at=link.asked_at,
        mode=link.mode,
        version=link.version,
    )
    return changed == 1


# --- conversations ----------------------------------------------------------------------------------------------------


async def context(tx: Tx, tenant: str, agent: str, owner: str, context_id: str) -> str | None:
    """Return what an agent elsewhere calls a conversation, if it does not take our name for it."""
    row = await tx.one(
        """SELECT remote_id FROM remote_context
           WHERE tenant = :tenant AND agent = :agent AND owner = :owner AND context_id = :context_id""",
        tenant=tenant,
        agent=agent,
        owner=owner,
        context_id=context_id,
    )
    return None if row is None else str(row[0])


async def keep_context(tx: Tx, tenant: str, link: Link, owner: str, context_id: str) -> None:
    """Remember what the agent of a link calls a conversation."""
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


async def take_cancels(tx: Tx, agent: str, limit: int, again_ms: int) -> list[Cancel]:
    """Return the tasks of an agent to be cancelled there now; unless that is done they are due again after a while."""
    rows = await tx.all(
        f"""SELECT remote.tenant, cancels, {_COLUMNS} FROM remote
            WHERE cancel_at <= (SELECT {{now}}) AND agent = :agent ORDER BY cancel_at LIMIT :limit {{skip_locked}}""",
        agent=agent,
        limit=limit,
    )
    found = [Cancel(tenant=row[0], cancels=row[1], link=link_of(row[2:])) for row in rows]
    for cancel in found:
        await tx.run(
            """UPDATE remote SET cancel_at = {now} + :again, cancels = cancels + 1
               WHERE tenant = :tenant AND task_id = :task_id""",
            again=again_ms * 2**cancel.cancels,
            tenant=cancel.tenant,
            task_id=cancel.link.task_id,
        )
    return found


async def told(tx: Tx, tenant: str, task_id: str) -> None:
    """Note that nobody has to be told of a cancel any more."""
    await tx.run(
        "UPDATE remote SET cancel_at = NULL WHERE tenant = :tenant AND task_id = :task_id",
        tenant=tenant,
        task_id=task_id,
    )


# --- for operators ----------------------------------------------------------------------------------------------------


async def standings(tx: Tx, task_id: str | None, state: TaskState | None, limit: int) -> list[Standing]:
    """Return tasks that agents elsewhere do, those heard of last first; of this id, or in this state here."""
    given: dict[str, Value] = {"id": task_id, "state": None if state is None else state_name(state)}
    wanted = {column: value for column, value in given.items() if value is not None}
    where = f"WHERE {' AND '.join(f'task.{column} = :{column}' for column in wanted)}" if wanted else ""
    rows = await tx.all(
        f"""SELECT task.tenant, task.state, {_COLUMNS} FROM remote
            JOIN task ON task.tenant = remote.tenant AND task.id = remote.task_id
            {where} ORDER BY remote.heard_at DESC, task.id LIMIT :limit""",
        **wanted,
        limit=limit,
    )
    return [Standing(tenant=row[0], here=state_of(row[1]), link=link_of(row[2:])) for row in rows]
