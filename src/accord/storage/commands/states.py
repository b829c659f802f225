"""What an agent keeps of a conversation, by key: the id of a session elsewhere, a history, a framework's own state.

It belongs to the tenant, the agent, the caller and the context of the task that it is kept by, and is found by later
tasks that have all four in common. A row is written under the fence of the task; `retention` deletes it with the last
task of the conversation.
"""

from collections.abc import Iterable

from msgspec import Struct

from accord.storage.commands.tasks import Fenced
from accord.storage.store import Tx


class State(Struct, frozen=True, kw_only=True):
    """What is to be kept under a key, and the claim of the task that wants it so."""

    task_id: str
    epoch: int
    key: str
    value: str
    at: int


class Revision(Struct, frozen=True):
    """What is to be kept in place of `before`, which is None where nothing was."""

    state: State
    before: str | None


class Conversation(Struct, frozen=True):
    """Whose conversation it is, with which agent."""

    tenant: str
    context_id: str
    agent: str
    owner: str


async def recall(tx: Tx, tenant: str, task_id: str, key: str) -> str | None:
    """Return what is kept under a key of the conversation that a task belongs to."""
    row = await tx.one(
        """SELECT value FROM task JOIN context_state ON context_state.tenant = task.tenant
               AND context_state.context_id = task.context_id AND context_state.agent = task.agent
               AND context_state.owner = task.owner AND context_state.key = :key
           WHERE task.tenant = :tenant AND task.id = :task_id""",
        tenant=tenant,
        task_id=task_id,
        key=key,
    )
    return None if row is None else str(row[0])


async def remember(tx: Tx, tenant: str, state: State) -> None:
    """Keep a value in place of the one before, if the worker still holds the task."""
    await tx.run(
        """INSERT INTO context_state (tenant, context_id, agent, owner, key, value, at)
           VALUES (:tenant, :context_id, :agent, :owner, :key, :value, :at)
           ON CONFLICT (tenant, context_id, agent, owner, key)
           DO UPDATE SET value = excluded.value, at = excluded.at""",
        **await _row(tx, tenant, state),
    )


async def revise(tx: Tx, tenant: str, revision: Revision) -> bool:
    """Keep a value like `remember`, but only if nobody has changed the one before; return whether it is kept.

    Two that revise at the same time wait for each other's row, so the second sees what the first has made of it.
    """
    row = await _row(tx, tenant, revision.state)
    if revision.before is None:
        return bool(
            await tx.run(
                """INSERT INTO context_state (tenant, context_id, agent, owner, key, value, at)
                   VALUES (:tenant, :context_id, :agent, :owner, :key, :value, :at)
                   ON CONFLICT (tenant, context_id, agent, owner, key) DO NOTHING""",
                **row,
            )
        )
    return bool(
        await tx.run(
            """UPDATE context_state SET value = :value, at = :at
               WHERE tenant = :tenant AND context_id = :context_id AND agent = :agent AND owner = :owner AND key = :key
                 AND value = :before""",
            before=revision.before,
            **row,
        )
    )


async def _row(tx: Tx, tenant: str, state: State) -> dict[str, str | int]:
    """Return a value's row in the conversation of its task, which the worker must still hold."""
    row = await tx.one(
        "SELECT epoch, context_id, agent, owner FROM task WHERE tenant = :tenant AND id = :id {for_update}",
        tenant=tenant,
        id=state.task_id,
    )
    if row is None or row[0] != state.epoch:
        raise Fenced(f"Task {state.task_id} has another owner than epoch {state.epoch}, or does not exist")
    _, context_id, agent, owner = row
    whose = {"tenant": tenant, "context_id": str(context_id), "agent": str(agent), "owner": str(owner)}
    return {**whose, "key": state.key, "value": state.value, "at": state.at}


async def forget(tx: Tx, conversations: Iterable[Conversation]) -> None:
    """Delete what is kept of those conversations that have no task any more."""
    await tx.many(
        """DELETE FROM context_state
           WHERE tenant = :tenant AND context_id = :context_id AND agent = :agent AND owner = :owner
             AND NOT EXISTS (SELECT 1 FROM task WHERE task.tenant = :tenant AND task.context_id = :context_id
                             AND task.agent = :agent AND task.owner = :owner)""",
        [
            {"tenant": one.tenant, "context_id": one.context_id, "agent": one.agent, "owner": one.owner}
            for one in conversations
        ],
    )
