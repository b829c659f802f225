"""Webhooks: for each a cursor over the event log, and the results of its deliveries."""

from collections.abc import Collection

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from accord.model import PushConfig
from accord.protocol import urls
from accord.storage.commands.tasks import Fenced
from accord.storage.encoding import from_row
from accord.storage.store import Tx, Value

WEBHOOK_TOPIC = "push"
"""The notification topic of due webhooks."""

KEPT_ATTEMPTS = 50
"""Maximum number of stored attempts per webhook: enough for diagnosis by a person."""

_CONFIG = msgspec.json.Decoder(PushConfig)
_ENCODER = msgspec.json.Encoder()


class ClaimedWebhook(Struct, frozen=True, kw_only=True):
    """A claimed webhook: the events after `cursor` are to be delivered."""

    tenant: str
    task_id: str
    id: str
    caller: str
    host: str
    config: PushConfig
    dialect: str
    cursor: int
    attempts: int
    epoch: int


class DeliveryAttempt(Struct, frozen=True, kw_only=True):
    """An attempt to deliver event `seq`. `detail` is the request and the response, without secrets."""

    seq: int
    attempt: int
    at: int
    duration_ms: int
    status: int | None = None
    error: str | None = None
    detail: str = "{}"


class StoredAttempt(DeliveryAttempt, frozen=True, kw_only=True):
    """A stored delivery attempt."""

    id: int


class Webhook(Struct, frozen=True, kw_only=True):
    """A webhook and the state of its deliveries."""

    config: PushConfig
    dialect: str
    cursor: int
    attempts: int
    is_dead: bool
    last_error: str | None


async def put(tx: Tx, tenant: str, task_id: str, config: PushConfig, dialect: str, after: int | None = None) -> bool:
    """Create or replace a webhook. Return false if the task does not exist.

    A new webhook gets the events from now on, or after `after`. A replaced webhook is retried at once. If its URL
    changes, the delivering node loses its claim: the remaining events go to the new address. Otherwise the node
    continues with the configuration that `advance` returns, because a second sender would send duplicates.
    """
    found = await _lock(tx, tenant, task_id)
    if found is None:
        return False
    last, owner = found
    known = await tx.one(
        "SELECT config FROM push WHERE tenant = :tenant AND task_id = :task_id AND id = :id {for_update}",
        tenant=tenant,
        task_id=task_id,
        id=config.id or "",
    )
    if known is None:
        await _insert(tx, (tenant, task_id, owner), config, dialect, (last if after is None else after, last))
    else:
        moves = _CONFIG.decode(known[0]).url != config.url
        await _replace(tx, (tenant, task_id), config, dialect, last, moves=moves)
    tx.signal(WEBHOOK_TOPIC)
    return True


async def _replace(tx: Tx, of: tuple[str, str], config: PushConfig, dialect: str, last: int, *, moves: bool) -> None:
    tenant, task_id = of
    await tx.run(
        """UPDATE push SET config = :config, host = :host, address = :address, dialect = :dialect,
             attempts = 0, dead_at = NULL, last_error = NULL,
             node = CASE WHEN :moves = 1 THEN NULL ELSE node END, epoch = epoch + :moves,
             due_at = CASE WHEN cursor < :last THEN {now} ELSE NULL END
           WHERE tenant = :tenant AND task_id = :task_id AND id = :id""",
        tenant=tenant,
        task_id=task_id,
        id=config.id or "",
        config=_ENCODER.encode(config).decode(),
        host=host_of(config),
        address=address_of(config),
        dialect=dialect,
        moves=int(moves),
        last=last,
    )


async def _lock(tx: Tx, tenant: str, task_id: str) -> tuple[int, str] | None:
    """Lock the task's log and webhooks; return the last sequence number and the owner."""
    row = await tx.one(
        "SELECT last_seq, owner FROM task WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=task_id
    )
    return None if row is None else (int(row[0]), row[1])


async def _insert(tx: Tx, of: tuple[str, str, str], config: PushConfig, dialect: str, span: tuple[int, int]) -> None:
    (tenant, task_id, owner), (cursor, last) = of, span
    await tx.run(
        """INSERT INTO push (tenant, task_id, id, config, caller, host, address, dialect, cursor, due_at)
           VALUES (:tenant, :task_id, :id, :config, :caller, :host, :address, :dialect, :cursor,
                   CASE WHEN :behind = 1 THEN {now} ELSE NULL END)""",
        tenant=tenant,
        task_id=task_id,
        id=config.id or "",
        config=_ENCODER.encode(config).decode(),
        caller=caller_of(tenant, owner),
        host=host_of(config),
        address=address_of(config),
        dialect=dialect,
        cursor=cursor,
        behind=int(cursor < last),
    )
    await _count(tx, tenant, task_id, 1)


def caller_of(tenant: str, owner: str) -> str:
    """Return the value of `push.caller` for an owner in a tenant."""
    return f"{tenant}\n{owner}"


def tenant_of(caller: str) -> str:
    """Return the tenant of a `push.caller` value."""
    return caller.partition("\n")[0]


def host_of(config: PushConfig) -> str:
    """Return the host and port of a webhook's URL, or an empty string."""
    return urls.split_url(config.url).netloc.rpartition("@")[2].lower()


def address_of(config: PushConfig) -> str:
    """Return a webhook's URL without user, query and fragment, which may be secrets."""
    parts = urls.split_url(config.url)
    return f"{parts.scheme}://{host_of(config)}{parts.path}" if parts.netloc else ""


async def _count(tx: Tx, tenant: str, task_id: str, change: int) -> None:
    await tx.run(
        "UPDATE task SET pushes = pushes + :change WHERE tenant = :tenant AND id = :id",
        tenant=tenant,
        id=task_id,
        change=change,
    )


async def list_webhooks(tx: Tx, tenant: str, task_id: str) -> list[Webhook]:
    """Return a task's webhooks, ordered by ID."""
    rows = await tx.all(
        """SELECT config, dialect, cursor, attempts, dead_at, last_error FROM push
           WHERE tenant = :tenant AND task_id = :task_id ORDER BY id""",
        tenant=tenant,
        task_id=task_id,
    )
    return [from_row(Webhook, row, config=_CONFIG.decode, is_dead=lambda dead_at: dead_at is not None) for row in rows]


async def delete(tx: Tx, tenant: str, task_id: str, id: str | None = None, url: str | None = None) -> int:
    """Delete a task's webhooks by ID, by URL, or all; return their number."""
    await _lock(tx, tenant, task_id)
    found = [
        hook.config.id or ""
        for hook in await list_webhooks(tx, tenant, task_id)
        if id in (None, hook.config.id) and url in (None, hook.config.url)
    ]
    for one in found:
        for statement in (
            "DELETE FROM push WHERE tenant = :tenant AND task_id = :task_id AND id = :id",
            "DELETE FROM push_attempt WHERE tenant = :tenant AND task_id = :task_id AND push_id = :id",
        ):
            await tx.run(statement, tenant=tenant, task_id=task_id, id=one)
    if found:
        await _count(tx, tenant, task_id, -len(found))
    return len(found)


async def release(tx: Tx, node: str, delivering: Collection[ClaimedWebhook]) -> None:
    """Release webhooks that a node holds but does not deliver.

    The reply to their claim was lost.
    """
    known = {(due.tenant, due.task_id, due.id) for due in delivering}
    for tenant, task_id, id in await tx.all("SELECT tenant, task_id, id FROM push WHERE node = :node", node=node):
        if (tenant, task_id, id) not in known:
            await tx.run(
                """UPDATE push SET node = NULL
                   WHERE tenant = :tenant AND task_id = :task_id AND id = :id AND node = :node""",
                tenant=tenant,
                task_id=task_id,
                id=id,
                node=node,
            )


async def advance(
    tx: Tx, due: ClaimedWebhook, cursor: int, *, keeps: bool, attempt: DeliveryAttempt | None = None
) -> ClaimedWebhook:
    """Move the cursor past delivered events, and store the `attempt`. Return the current webhook.

    With `keeps` the node continues to hold the webhook. Otherwise it is released, and due at once if the log has grown.
    """
    # Appending skips a webhook that is being delivered: without the lock neither would see the other.
    locked = None if keeps else await _lock(tx, due.tenant, due.task_id)
    if locked is not None:  # a restored store may have a shorter log
        cursor = min(cursor, locked[0])
    row = await tx.one(
        """UPDATE push SET cursor = :cursor, attempts = 0, last_error = NULL,
             node = CASE WHEN :keeps = 1 THEN node ELSE NULL END,
             due_at = CASE WHEN :keeps = 1 THEN due_at WHEN :has_grown = 1 THEN {now} ELSE NULL END
           WHERE tenant = :tenant AND task_id = :task_id AND id = :id AND epoch = :epoch
           RETURNING config, dialect""",
        tenant=due.tenant,
        task_id=due.task_id,
        id=due.id,
        epoch=due.epoch,
        cursor=cursor,
        keeps=int(keeps),
        has_grown=int(locked is not None and locked[0] > cursor),
    )
    if row is None:
        raise _fenced(due)
    await _note(tx, due, attempt)
    return replace(due, cursor=cursor, attempts=0, config=_CONFIG.decode(row[0]), dialect=row[1])


async def fail(
    tx: Tx, due: ClaimedWebhook, error: str, delay_ms: int | None, attempt: DeliveryAttempt | None = None
) -> None:
    """Record a failed delivery with its `attempt`.

    The webhook is retried after `delay_ms`. Without a delay it becomes dead. A webhook replaced meanwhile is due at
    once: the failure was that of its old configuration.
    """
    key: dict[str, Value] = {"tenant": due.tenant, "task_id": due.task_id, "id": due.id}
    row = await tx.one(
        """SELECT config FROM push
           WHERE tenant = :tenant AND task_id = :task_id AND id = :id AND epoch = :epoch {for_update}""",
        **key,
        epoch=due.epoch,
    )
    if row is None:
        raise _fenced(due)
    is_replaced = _CONFIG.decode(row[0]) != due.config
    await tx.run(
        """UPDATE push SET node = NULL, attempts = CASE WHEN :replaced = 1 THEN 0 ELSE attempts + 1 END,
             last_error = :error,
             due_at = CASE WHEN :dead = 1 THEN NULL ELSE {now} + :delay_ms END,
             dead_at = CASE WHEN :dead = 1 THEN {now} ELSE NULL END
           WHERE tenant = :tenant AND task_id = :task_id AND id = :id""",
        **key,
        error=error,
        replaced=int(is_replaced),
        dead=int(delay_ms is None and not is_replaced),
        delay_ms=0 if is_replaced else delay_ms or 0,
    )
    await _note(tx, due, attempt)


_OF_HOOK = "tenant = :tenant AND task_id = :task_id AND push_id = :push_id"


async def _note(tx: Tx, due: ClaimedWebhook, attempt: DeliveryAttempt | None) -> None:
    """Store an attempt and delete those beyond the limit."""
    if attempt is None:
        return
    key: dict[str, Value] = {"tenant": due.tenant, "task_id": due.task_id, "push_id": due.id}
    given = asdict(attempt)
    # This transaction holds the webhook's row, so no other one takes the same number.
    row = await tx.one(f"SELECT max(id) FROM push_attempt WHERE {_OF_HOOK}", **key)
    number = 1 + (row[0] or 0 if row else 0)
    await tx.run(
        f"""INSERT INTO push_attempt (tenant, task_id, push_id, id, {", ".join(given)})
            VALUES (:tenant, :task_id, :push_id, :id, {", ".join(f":{name}" for name in given)})""",
        **key,
        id=number,
        **given,
    )
    await tx.run(f"DELETE FROM push_attempt WHERE {_OF_HOOK} AND id <= :old", **key, old=number - KEPT_ATTEMPTS)
    tx.signal(attempts_topic(due.tenant, due.task_id))


def attempts_topic(tenant: str, task_id: str) -> str:
    """Return the notification topic of delivery attempts for a task's webhooks."""
    return f"tried:{task_id}:{tenant}"


async def list_attempts(
    tx: Tx, tenant: str, task_id: str, id: str | None = None, limit: int = KEPT_ATTEMPTS
) -> list[tuple[str, StoredAttempt]]:
    """Return the latest delivery attempts of a task, newest first, each with its webhook's ID.

    With `id` only those of that webhook.
    """
    rows = await tx.all(
        f"""SELECT push_id, {", ".join(StoredAttempt.__struct_fields__)} FROM push_attempt
            WHERE tenant = :tenant AND task_id = :task_id AND push_id = COALESCE(:id, push_id)
            ORDER BY at DESC, push_id, id DESC LIMIT :limit""",
        tenant=tenant,
        task_id=task_id,
        id=id,
        limit=limit,
    )
    return [(row[0], from_row(StoredAttempt, row[1:])) for row in rows]


async def redeliver(tx: Tx, tenant: str, task_id: str, id: str, after: int | None = None) -> bool:
    """Redeliver a webhook now, from its cursor or an earlier event. Return false if it does not exist.

    The delivering node loses its claim: its confirmation would move the cursor forward again.
    """
    changed = await tx.run(
        """UPDATE push SET due_at = {now}, dead_at = NULL, attempts = 0, cursor = COALESCE(:after, cursor),
                           node = NULL, epoch = epoch + 1
           WHERE tenant = :tenant AND task_id = :task_id AND id = :id""",
        tenant=tenant,
        task_id=task_id,
        id=id,
        after=after,
    )
    tx.signal(WEBHOOK_TOPIC)
    return changed == 1


def _fenced(due: ClaimedWebhook) -> Fenced:
    return Fenced(f"Webhook {due.id} of task {due.task_id} has another sender than epoch {due.epoch}, or is gone")


# --- for operators ----------------------------------------------------------------------------------------------------

STATUS_FILTERS = {"due": "push.due_at IS NOT NULL", "dead": "push.dead_at IS NOT NULL", "all": "1 = 1"}
"""Filters of a webhook list: due, dead, or all."""


class WebhookStatus(Struct, frozen=True, kw_only=True):
    """The delivery state of one webhook, without its secrets."""

    tenant: str
    task_id: str
    id: str
    address: str
    cursor: int
    last_seq: int
    attempts: int
    due_at: int | None
    dead_at: int | None
    last_error: str | None


async def list_statuses(tx: Tx, which: str, task_id: str | None, limit: int) -> list[WebhookStatus]:
    """Return webhooks of all tenants, or of one task, by key. `which` is a key of `STATUS_FILTERS`."""
    rows = await tx.all(
        f"""SELECT push.tenant, push.task_id, push.id, address, cursor, last_seq, attempts, due_at, dead_at, last_error
           FROM push JOIN task ON task.tenant = push.tenant AND task.id = push.task_id
           WHERE {STATUS_FILTERS[which]} AND push.task_id = COALESCE(:task_id, push.task_id)
           ORDER BY push.tenant, push.task_id, push.id LIMIT :limit""",
        task_id=task_id,
        limit=limit,
    )
    return [from_row(WebhookStatus, row) for row in rows]


class StoredWebhook(Struct, frozen=True, kw_only=True):
    """A stored webhook. `text` is the JSON of its configuration."""

    tenant: str
    task_id: str
    id: str
    config: PushConfig
    text: str


async def page(tx: Tx, after: tuple[str, str, str], limit: int) -> list[StoredWebhook]:
    """Return webhooks of all tenants, ordered by key, after a key."""
    rows = await tx.all(
        """SELECT tenant, task_id, id, config FROM push
           WHERE (tenant, task_id, id) > (:tenant, :task_id, :id)
           ORDER BY tenant, task_id, id LIMIT :limit""",
        tenant=after[0],
        task_id=after[1],
        id=after[2],
        limit=limit,
    )
    return [
        StoredWebhook(tenant=tenant, task_id=task_id, id=id, config=_CONFIG.decode(text), text=text)
        for tenant, task_id, id, text in rows
    ]


async def reseal(tx: Tx, old: StoredWebhook, config: PushConfig) -> bool:
    """Store a webhook's resealed configuration. Return false if it has changed since it was read."""
    changed = await tx.run(
        """UPDATE push SET config = :config
           WHERE tenant = :tenant AND task_id = :task_id AND id = :id AND config = :old""",
        tenant=old.tenant,
        task_id=old.task_id,
        id=old.id,
        config=_ENCODER.encode(config).decode(),
        old=old.text,
    )
    return changed == 1


async def redeliver_dead(tx: Tx) -> int:
    """Redeliver all dead webhooks from their cursors; return their number."""
    changed = await tx.run(
        """UPDATE push SET due_at = {now}, dead_at = NULL, attempts = 0, node = NULL, epoch = epoch + 1
           WHERE dead_at IS NOT NULL"""
    )
    tx.signal(WEBHOOK_TOPIC)
    return changed
