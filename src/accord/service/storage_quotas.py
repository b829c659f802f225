"""Storage quotas: tasks and bytes that an owner and a tenant may store.

The store has the totals. A node reads them regularly, and when it has used its share of the remainder.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from msgspec import UNSET

from accord.a2a import Caller
from accord.auth.rate_limits import AGAIN_SECONDS, SHARE, SWEEP_AT, Quotas
from accord.errors import StorageQuotaExceeded
from accord.model import Message, PushConfig
from accord.protocol import codec
from accord.storage.commands import monitoring
from accord.storage.commands.monitoring import StoredTotal
from accord.storage.store import BadValue, Store, StoreUnavailable

REFRESH_SECONDS = 30.0
"""How long a total is used, in seconds: agents and other nodes write meanwhile."""

IDLE_FACTOR = 100
"""A total that took a second is used for this many seconds, so large accounts cost the store 1 % at most."""

MESSAGES = 10
"""Messages of an account with a byte quota between two totals: agents' answers to them may have any size."""

Account = tuple[str | None, str | None]
"""A tenant and an owner. None stands for all of them."""

Measure = Callable[[Account], Awaitable[StoredTotal]]


class QuotaScope(NamedTuple):
    """An account, its limits (0 for no limit), and their name."""

    account: Account
    tasks: int
    bytes: int
    name: str


class _Room:
    """The remaining storage of an account as known to this node, and its share until the next measurement."""

    def __init__(self) -> None:
        self.tasks = self.bytes = 0.0
        self.task_share = self.byte_share = self.message_share = 0.0
        self.again = self.until = 0.0
        self.lock = asyncio.Lock()

    def has_share(self, tasks: int, size: int) -> bool:
        return self.task_share >= tasks and self.byte_share >= size and self.message_share > 0

    def take(self, tasks: int, size: int) -> None:
        self.tasks -= tasks
        self.task_share -= tasks
        self.bytes -= size
        self.byte_share -= size
        self.message_share -= 1


class QuotaShare(NamedTuple):
    """The share that a message took from its accounts. Each account has the time of its next measurement."""

    rooms: list[tuple[_Room, float]]
    tasks: int
    size: int

    def give_back(self) -> None:
        """Release the share of a message that was not stored, unless its accounts were measured since."""
        for room, until in self.rooms:
            if room.until == until:
                room.take(-self.tasks, -self.size)


class StorageQuotas:
    """The storage quotas of a server."""

    def __init__(self, quotas: Quotas, measure: Measure, clock: Callable[[], float] = time.monotonic) -> None:
        """Enforce `quotas`. `measure` returns the stored total of an account."""
        self._quotas = quotas
        self._measure = measure
        self._clock = clock
        self._rooms: dict[Account, _Room] = {}
        self.has_limits = any((quotas.owner_tasks, quotas.owner_bytes, quotas.tenant_tasks, quotas.tenant_bytes))

    def scopes(self, caller: Caller) -> list[QuotaScope]:
        """Return the quotas that apply to a caller. A caller that may name any tenant is one owner in all of them."""
        quotas = self._quotas
        return [
            QuotaScope(caller.account, quotas.owner_tasks, quotas.owner_bytes, "owner"),
            QuotaScope((caller.tenant, None), quotas.tenant_tasks, quotas.tenant_bytes, "tenant"),
        ]

    async def take(self, caller: Caller, message: Message | PushConfig) -> QuotaShare | None:
        """Count a message with the task that it creates, or a webhook, or raise StorageQuotaExceeded."""
        scopes = [scope for scope in self.scopes(caller) if scope.tasks or scope.bytes]
        if not scopes:
            return None
        tasks, size = 0 if message.task_id else 1, size_of(message)
        rooms = [await self._room(scope, tasks, size) for scope in scopes]
        for room in rooms:
            room.take(tasks, size)
        return QuotaShare([(room, room.until) for room in rooms], tasks, size)

    async def _room(self, scope: QuotaScope, tasks: int, size: int) -> _Room:
        if len(self._rooms) > SWEEP_AT:
            self._rooms.clear()  # they are measured again
        room = self._rooms.setdefault(scope.account, _Room())
        async with room.lock:
            now = self._clock()
            if now >= room.until or (now >= room.again and not room.has_share(tasks, size)):
                try:
                    await self._fill(room, scope)
                except (StoreUnavailable, BadValue):
                    return room  # the send itself fails and reports it
        if room.tasks < tasks:
            raise _exceeded(scope, "tasks", scope.tasks)
        if room.bytes < size:
            raise _exceeded(scope, "bytes", scope.bytes)
        return room

    async def _fill(self, room: _Room, scope: QuotaScope) -> None:
        begun = self._clock()
        stored = await self._measure(scope.account)
        now = self._clock()
        cost = IDLE_FACTOR * (now - begun)
        room.again, room.until = now + max(AGAIN_SECONDS, cost), now + max(REFRESH_SECONDS, cost)
        room.tasks, room.task_share = _left(scope.tasks, stored.tasks)
        room.bytes, room.byte_share = _left(scope.bytes, stored.bytes)
        room.message_share = MESSAGES if scope.bytes else float("inf")


def _left(limit: int, stored: int) -> tuple[float, float]:
    """Return the remainder of a limit, and this node's share of it until the next measurement."""
    if not limit:
        return float("inf"), float("inf")
    left = max(0, limit - stored)
    return left, left // SHARE


def _exceeded(scope: QuotaScope, unit: str, limit: int) -> StorageQuotaExceeded:
    account = "You" if scope.name == "owner" else "All callers of your tenant"
    return StorageQuotaExceeded(
        f"{account} may store {limit} {unit}, which this message would exceed:"
        f" ended tasks are deleted after their retention, and the operator can raise limits.{scope.name}_{unit}",
        metadata={"limit": f"{scope.name}_{unit}"},
    )


def size_of(message: Message | PushConfig) -> int:
    """Return the approximate size of a message or webhook: files in bytes, everything else as JSON."""
    if isinstance(message, PushConfig):
        return len(codec.encode(message))
    files = sum(len(part.raw) for part in message.parts if part.raw is not None)
    texts = sum(len(part.text) for part in message.parts if part.text is not None)
    data = sum(len(codec.encode(part.data)) for part in message.parts if part.data is not UNSET)
    more = [message.metadata, *(part.metadata for part in message.parts), *(part.url for part in message.parts)]
    return files + texts + data + sum(len(codec.encode(one)) for one in more if one is not None)


def measuring(store: Store) -> Measure:
    """Return a function that measures accounts in a store."""

    async def measure(account: Account) -> StoredTotal:
        return await store.read(monitoring.stored_total, *account)

    return measure
