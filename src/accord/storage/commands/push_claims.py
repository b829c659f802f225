"""Claims of webhooks: which of those that are due a node delivers next, callers in turn.

A caller is an owner of a tenant. However many webhooks of one caller are due, and however long their hosts take, others
find room; what is delivered and noted is `pushes`, and what is under way is known to the node (`core.push`).
"""

from collections import Counter
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from accord.model import PushConfig
from accord.storage.commands.pushes import Due, tenant_of
from accord.storage.store import Row, Tx

HOST = 64
"""Deliveries of one caller to one host at once, on each node."""

LOOK, LOOKS = 128, 8
"""Webhooks of one caller that a claim reads at once, and how often it reads others after putting some off."""

FULL_MS = 1000
"""How long a webhook is put off at least whose host has no room: a claim does not read it again."""

_CONFIG = msgspec.json.Decoder(PushConfig)


class Busy(Struct, frozen=True, kw_only=True):
    """The deliveries that a node has under way, and the hosts that it leaves alone."""

    tenants: Mapping[str, int] = {}
    """Deliveries under way by tenant."""

    callers: Mapping[str, int] = {}
    """Deliveries under way by caller."""

    hosts: Mapping[tuple[str, str], int] = {}
    """Deliveries under way by caller and host: a host that several callers use is counted for each of them, so that
    none can keep it from another."""

    resting: Mapping[tuple[str, str], int] = {}
    """Milliseconds for which a host gets nothing from a caller."""

    hung: frozenset[tuple[str, str]] = frozenset()
    """Hosts that did not answer a caller in time, and get one delivery at a time until they do."""


_IDLE = Busy()


async def claim(tx: Tx, node: str, room: int, busy: Busy = _IDLE) -> list[Due]:
    """Claim due webhooks, callers in turn: those with fewer deliveries under way first, then who has waited longest.

    A caller may use as much of the room as remains free after it, less what its tenant uses: one caller gets a third of
    an idle node, and room for others is left however many webhooks are due. A caller that has nothing under way gets
    one delivery however much others of its tenant use, unless three quarters of the node are in use.
    """
    waiting = await _waiting_callers(tx)
    waiting.sort(key=lambda one: (busy.callers.get(one[0], 0), one[1]))
    shares, found = _Shares(busy, room), []
    for position, (caller, _) in enumerate(waiting):
        found += await _claim_of(tx, node, caller, shares.of(caller, len(waiting) - position), shares)
    return found


class _Shares:
    """The room of a node while a claim uses it up."""

    def __init__(self, busy: Busy, room: int) -> None:
        self._busy = busy
        self._room = room
        self._reserve = (room + sum(busy.callers.values())) // 4
        self._tenants, self._hosts = Counter(busy.tenants), Counter(busy.hosts)

    def of(self, caller: str, waiting: int) -> int:
        """Return how many webhooks a caller may claim when so many callers are to share the room."""
        own = self._busy.callers.get(caller, 0)
        least = 1 if not own and self._room > self._reserve else 0
        used = self._tenants[tenant_of(caller)] + own
        return max(least, min(-(-self._room // waiting), -(-(self._room - used) // 3)))

    def has_room(self, lane: tuple[str, str]) -> bool:
        """Whether a caller's host may get another delivery."""
        most = 0 if lane in self._busy.resting else 1 if lane in self._busy.hung else HOST
        return self._hosts[lane] < most

    def use(self, lane: tuple[str, str]) -> None:
        """Count a delivery."""
        self._room -= 1
        self._tenants[tenant_of(lane[0])] += 1
        self._hosts[lane] += 1

    def delay(self, lane: tuple[str, str]) -> int:
        """Return for how many milliseconds to put off a webhook whose host has no room."""
        return max(FULL_MS, self._busy.resting.get(lane, 0))


async def _claim_of(tx: Tx, node: str, caller: str, share: int, shares: _Shares) -> list[Due]:
    """Claim webhooks of a caller; those whose host has no room are put off, so that they hide no others."""
    found: list[Due] = []
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
    """Return the callers that have webhooks due, and since when: two look-ups each, however many webhooks are due."""
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
    """Put off the webhooks of a caller's host that are due up to a time; this counts as no attempt."""
    await tx.run(
        """UPDATE push SET due_at = {now} + :delay_ms WHERE (tenant, task_id, id) IN (
               SELECT tenant, task_id, id FROM push WHERE caller = :caller AND host = :host
               AND due_at <= :last AND node IS NULL {skip_locked})""",
        caller=lane[0],
        host=lane[1],
        last=last,
        delay_ms=delay_ms,
    )


async def _take(tx: Tx, node: str, of: tuple[str, str, str]) -> Due | None:
    row = await tx.one(
        """UPDATE push SET node = :node, epoch = epoch + 1
           WHERE tenant = :tenant AND task_id = :task_id AND id = :id
           RETURNING tenant, task_id, id, caller, host, config, dialect, cursor, attempts, epoch""",
        node=node,
        tenant=of[0],
        task_id=of[1],
        id=of[2],
    )
    if row is None:
        return None
    *names, config, dialect, cursor, attempts, epoch = row
    tenant, task_id, id, caller, host = names
    return Due(
        tenant=tenant,
        task_id=task_id,
        id=id,
        caller=caller,
        host=host,
        config=_CONFIG.decode(config),
        dialect=dialect,
        cursor=cursor,
        attempts=attempts,
        epoch=epoch,
    )
