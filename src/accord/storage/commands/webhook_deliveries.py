"""Deliveries of webhooks: nodes claim due webhooks, and callers see their state.

Callers take turns: many due webhooks or slow hosts of one caller leave room for the others.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from accord.model import PushConfig
from accord.storage.commands import webhooks
from accord.storage.commands.task_lists import VisibleTasks
from accord.storage.commands.webhooks import ClaimedWebhook, tenant_of
from accord.storage.encoding import from_row
from accord.storage.store import Row, Tx

HOST_LIMIT = 64
"""Maximum of concurrent deliveries from one caller to one host, per node."""

LOOK, LOOKS = 128, 8
"""Webhooks of one caller read at once by a claim, and the maximum of such reads after postponing some."""

FULL_HOST_DELAY_MS = 1000
"""Minimum delay of a webhook whose host is at its limit, so that the claim does not read it again."""

_CONFIG = msgspec.json.Decoder(PushConfig)


class DeliveryLoad(Struct, frozen=True, kw_only=True):
    """A node's deliveries in progress, and the hosts that it avoids."""

    tenants: Mapping[str, int] = {}
    """Deliveries in progress by tenant."""

    callers: Mapping[str, int] = {}
    """Deliveries in progress by caller."""

    hosts: Mapping[tuple[str, str], int] = {}
    """Deliveries in progress by caller and host.

    A shared host is counted for each caller, so that none can block it for another.
    """

    resting: Mapping[tuple[str, str], int] = {}
    """Milliseconds during which a host gets no deliveries from a caller."""

    hung: frozenset[tuple[str, str]] = frozenset()
    """Hosts that timed out for a caller. They get one delivery at a time until they respond."""


_IDLE = DeliveryLoad()


async def claim_webhooks(tx: Tx, node: str, room: int, busy: DeliveryLoad = _IDLE) -> list[ClaimedWebhook]:
    """Claim due webhooks, callers in turn: fewest deliveries in progress first, then longest waiting.

    A caller may use as much of the room as remains free after it, less the use of its tenant. One caller gets a third
    of an idle node, and room for others is left however many webhooks are due. A caller without deliveries gets one
    regardless of its tenant's use, unless three quarters of the node are in use.
    """
    waiting = await _waiting_callers(tx)
    waiting.sort(key=lambda one: (busy.callers.get(one[0], 0), one[1]))
    shares, found = _Shares(busy, room), []
    for position, (caller, _) in enumerate(waiting):
        found += await _claim_of(tx, node, caller, shares.of(caller, len(waiting) - position), shares)
    return found


class _Shares:
    """The free room of a node during a claim."""

    def __init__(self, busy: DeliveryLoad, room: int) -> None:
        self._busy = busy
        self._room = room
        self._reserve = (room + sum(busy.callers.values())) // 4
        self._tenants, self._hosts = Counter(busy.tenants), Counter(busy.hosts)

    def of(self, caller: str, waiting: int) -> int:
        """Return how many webhooks a caller may claim when `waiting` callers share the room."""
        own = self._busy.callers.get(caller, 0)
        least = 1 if not own and self._room > self._reserve else 0
        used = self._tenants[tenant_of(caller)] + own
        return max(least, min(-(-self._room // waiting), -(-(self._room - used) // 3)))

    def has_room(self, lane: tuple[str, str]) -> bool:
        """Whether a caller's host may get another delivery."""
        most = 0 if lane in self._busy.resting else 1 if lane in self._busy.hung else HOST_LIMIT
        return self._hosts[lane] < most

    def use(self, lane: tuple[str, str]) -> None:
        """Count a delivery."""
        self._room -= 1
        self._tenants[tenant_of(lane[0])] += 1
        self._hosts[lane] += 1

    def delay(self, lane: tuple[str, str]) -> int:
        """Return the delay in milliseconds of a webhook whose host is at its limit."""
        return max(FULL_HOST_DELAY_MS, self._busy.resting.get(lane, 0))


async def _claim_of(tx: Tx, node: str, caller: str, share: int, shares: _Shares) -> list[ClaimedWebhook]:
    """Claim webhooks of a caller. Webhooks of hosts at their limit are postponed, so that they hide no others."""
    found: list[ClaimedWebhook] = []
    for _ in range(LOOKS):
        rows = await _due(tx, caller, LOOK) if len(found) < share else []
        full: dict[tuple[str, str], int] = {}
        for tenant, task_id, id, host, due_at in rows:
            lane = (caller, host)
            if not shares.has_room(lane):
                full[lane] = due_at
            elif len(found) < share and (due := await _take(tx, node, (tenant, task_id, id))) is not None:
                shares.use(lane)
                found.append(due)
        for lane, last in full.items():
            await _put_off(tx, lane, last, shares.delay(lane))
        if not full:
            break
    return found


async def _waiting_callers(tx: Tx) -> list[tuple[str, int]]:
    """Return the callers with due webhooks, each with its first due time.

    It takes two index lookups per caller, for any number of webhooks.
    """
    rows = await tx.all(
        """WITH RECURSIVE waiting(caller) AS (
               SELECT (SELECT min(caller) FROM push WHERE due_at IS NOT NULL AND node IS NULL)
               UNION ALL
               SELECT (SELECT min(push.caller) FROM push
                       WHERE due_at IS NOT NULL AND node IS NULL AND push.caller > waiting.caller)
               FROM waiting WHERE waiting.caller IS NOT NULL),
           candidate(caller, since) AS (
               SELECT waiting.caller, (
                   SELECT due_at FROM push WHERE push.caller = waiting.caller AND due_at IS NOT NULL AND node IS NULL
                   AND due_at <= {now} ORDER BY due_at LIMIT 1)
               FROM waiting)
           SELECT caller, since FROM candidate WHERE since IS NOT NULL"""
    )
    return [(caller, since) for caller, since in rows]


async def _due(tx: Tx, caller: str, limit: int) -> list[Row]:
    return await tx.all(
        """SELECT tenant, task_id, id, host, due_at FROM push
           WHERE caller = :caller AND due_at <= {now} AND node IS NULL ORDER BY due_at LIMIT :limit {skip_locked}""",
        caller=caller,
        limit=limit,
    )


async def _put_off(tx: Tx, lane: tuple[str, str], last: int, delay_ms: int) -> None:
    """Postpone a caller's webhooks for a host that are due up to `last`. This counts as no attempt."""
    await tx.run(
        """UPDATE push SET due_at = {now} + :delay_ms WHERE (tenant, task_id, id) IN (
               SELECT tenant, task_id, id FROM push WHERE caller = :caller AND host = :host
               AND due_at <= :last AND node IS NULL {skip_locked})""",
        caller=lane[0],
        host=lane[1],
        last=last,
        delay_ms=delay_ms,
    )


async def _take(tx: Tx, node: str, of: tuple[str, str, str]) -> ClaimedWebhook | None:
    row = await tx.one(
        """UPDATE push SET node = :node, epoch = epoch + 1
           WHERE tenant = :tenant AND task_id = :task_id AND id = :id
           RETURNING tenant, task_id, id, caller, host, config, dialect, cursor, attempts, epoch""",
        node=node,
        tenant=of[0],
        task_id=of[1],
        id=of[2],
    )
    return None if row is None else from_row(ClaimedWebhook, row, config=_CONFIG.decode)


DELIVERY_STATES = {
    "dead": "push.dead_at IS NOT NULL",
    "retrying": "push.dead_at IS NULL AND push.attempts > 0",
    "pending": "push.dead_at IS NULL AND push.attempts = 0 AND push.due_at IS NOT NULL",
    "delivered": "push.dead_at IS NULL AND push.attempts = 0 AND push.due_at IS NULL",
}
"""States of a webhook's deliveries, mutually exclusive."""

_LAST_ATTEMPT = """FROM push_attempt AS tried WHERE tried.tenant = push.tenant AND tried.task_id = push.task_id
                      AND tried.push_id = push.id ORDER BY tried.id DESC LIMIT 1"""


class DeliveryListQuery(Struct, frozen=True, kw_only=True):
    """Filters of a webhook list. Unset fields match everything.

    `before` is the (task, webhook) at which the previous page ended.
    """

    state: str | None = None
    task_id: str | None = None
    id: str | None = None
    url: str | None = None
    before: tuple[str, str] | None = None
    limit: int = 50


class ListedDelivery(Struct, frozen=True, kw_only=True):
    """A webhook with its delivery state and the result of its last attempt."""

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


async def list_deliveries(tx: Tx, tenant: str, seen: VisibleTasks, wanted: DeliveryListQuery) -> list[ListedDelivery]:
    """Return webhooks, newest tasks first."""
    conditions, values = seen.condition()
    conditions.insert(0, "push.tenant = :tenant")
    values["tenant"] = tenant
    for column, value in (("task_id", wanted.task_id), ("id", wanted.id)):
        if value is not None:
            conditions.append(f"push.{column} = :{column}")
            values[column] = value
    if wanted.state is not None:
        conditions.append(DELIVERY_STATES[wanted.state])
    if wanted.url:
        # The configuration is not searched: a match must not reveal parts of a token, credentials or a query.
        conditions.append("push.address LIKE :url ESCAPE '!'")
        values["url"] = f"%{_literal(wanted.url)}%"
    if wanted.before is not None:
        conditions.append("(push.task_id, push.id) < (:before_task, :before_id)")
        values |= {"before_task": wanted.before[0], "before_id": wanted.before[1]}
    stands = " ".join(f"WHEN {condition} THEN '{state}'" for state, condition in DELIVERY_STATES.items())
    rows = await tx.all(
        f"""SELECT push.task_id, push.id, push.address, task.agent, CASE {stands} END, push.cursor, task.last_seq,
                   push.attempts, push.due_at, push.last_error,
                   (SELECT tried.at {_LAST_ATTEMPT}), (SELECT tried.status {_LAST_ATTEMPT})
            FROM push JOIN task ON task.tenant = push.tenant AND task.id = push.task_id
            WHERE {" AND ".join(conditions)} ORDER BY push.task_id DESC, push.id DESC LIMIT :limit""",
        **values,
        limit=wanted.limit,
    )
    return [from_row(ListedDelivery, row) for row in rows]


def _literal(text: str) -> str:
    """Escape text for LIKE."""
    for special in ("!", "%", "_"):
        text = text.replace(special, f"!{special}")
    return text


async def redeliver_visible(tx: Tx, tenant: str, seen: VisibleTasks, limit: int) -> int:
    """Redeliver up to `limit` dead webhooks of visible tasks; return their number."""
    dead = await list_deliveries(tx, tenant, seen, DeliveryListQuery(state="dead", limit=limit))
    for one in dead:
        await webhooks.redeliver(tx, tenant, one.task_id, one.id)
    return len(dead)
