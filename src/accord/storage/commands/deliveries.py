"""Webhooks as somebody looks through them: how the deliveries of each go, of the tasks that they may see.

It only reads, and lets what was given up be tried again; delivering is `pushes`.
"""

from msgspec import Struct

from accord.storage.commands import pushes
from accord.storage.commands.browsing import Seen
from accord.storage.store import Row, Tx

STATES = {
    "dead": "push.dead_at IS NOT NULL",
    "retrying": "push.dead_at IS NULL AND push.attempts > 0",
    "pending": "push.dead_at IS NULL AND push.attempts = 0 AND push.due_at IS NOT NULL",
    "delivered": "push.dead_at IS NULL AND push.attempts = 0 AND push.due_at IS NULL",
}
"""How a webhook stands, each apart from the others."""

_LAST = """FROM push_attempt AS tried WHERE tried.tenant = push.tenant AND tried.task_id = push.task_id
                      AND tried.push_id = push.id ORDER BY tried.id DESC LIMIT 1"""


class Wanted(Struct, frozen=True, kw_only=True):
    """Which webhooks; unset members do not matter. `before` is the (task, webhook) where the last page ended."""

    state: str | None = None
    task_id: str | None = None
    id: str | None = None
    url: str | None = None
    before: tuple[str, str] | None = None
    limit: int = 50


class Found(Struct, frozen=True, kw_only=True):
    """A webhook: how it stands, and how the last attempt to call it went."""

    task_id: str
    id: str
    address: str
    agent: str
    state: str
    cursor: int
    last_seq: int
    attempts: int
    due_at: int | None
    last_error: str | None
    last_at: int | None = None
    last_status: int | None = None


async def page(tx: Tx, tenant: str, seen: Seen, wanted: Wanted) -> list[Found]:
    """Return webhooks, those of the newest tasks first."""
    conditions, values = seen.condition()
    conditions.insert(0, "push.tenant = :tenant")
    values["tenant"] = tenant
    for column, value in (("task_id", wanted.task_id), ("id", wanted.id)):
        if value is not None:
            conditions.append(f"push.{column} = :{column}")
            values[column] = value
    if wanted.state is not None:
        conditions.append(STATES[wanted.state])
    if wanted.url:
        # Not the configuration: whether a search matches must tell nothing of a token, credentials or a query.
        conditions.append("push.address LIKE :url ESCAPE '!'")
        values["url"] = f"%{_literal(wanted.url)}%"
    if wanted.before is not None:
        conditions.append("(push.task_id, push.id) < (:before_task, :before_id)")
        values |= {"before_task": wanted.before[0], "before_id": wanted.before[1]}
    stands = " ".join(f"WHEN {condition} THEN '{state}'" for state, condition in STATES.items())
    rows = await tx.all(
        f"""SELECT push.task_id, push.id, push.address, task.agent, CASE {stands} END, push.cursor, task.last_seq,
                   push.attempts, push.due_at, push.last_error,
                   (SELECT tried.at {_LAST}), (SELECT tried.status {_LAST})
            FROM push JOIN task ON task.tenant = push.tenant AND task.id = push.task_id
            WHERE {" AND ".join(conditions)} ORDER BY push.task_id DESC, push.id DESC LIMIT :limit""",
        **values,
        limit=wanted.limit,
    )
    return [_found(row) for row in rows]


def _found(row: Row) -> Found:
    task_id, id, address, agent, state, cursor, last_seq, attempts, due_at, last_error, at, status = row
    return Found(
        task_id=task_id,
        id=id,
        address=address,
        agent=agent,
        state=state,
        cursor=cursor,
        last_seq=last_seq,
        attempts=attempts,
        due_at=due_at,
        last_error=last_error,
        last_at=at,
        last_status=status,
    )


def _literal(text: str) -> str:
    """Return a text as a pattern that only it fits."""
    for special in ("!", "%", "_"):
        text = text.replace(special, f"!{special}")
    return text


async def redeliver_seen(tx: Tx, tenant: str, seen: Seen, limit: int) -> int:
    """Try those again that were given up, of the tasks that somebody sees; return how many, `limit` at most."""
    dead = await page(tx, tenant, seen, Wanted(state="dead", limit=limit))
    for one in dead:
        await pushes.redeliver(tx, tenant, one.task_id, one.id)
    return len(dead)
