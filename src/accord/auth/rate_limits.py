"""Rate limits and concurrency limits of callers.

Each process counts separately, so a caller has the full limits on each node.
"""

import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import Annotated

from msgspec import Meta, Struct

from accord.a2a import Caller
from accord.errors import RateLimited
from accord.protocol.codec import MAX_DEPTH
from accord.storage.commands import tasks
from accord.storage.store import BadValue, Store, StoreUnavailable

KiB, MiB = 1024, 1024 * 1024

Some = Annotated[float, Meta(ge=0)]
Many = Annotated[int, Meta(ge=0)]


class Quotas(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on callers. Sizes are in bytes unless noted, times in seconds."""

    rate: Some | None = 500.0
    """Requests per second of one caller, 0 for any number. More than agents need, less than a server can answer."""

    burst: Many = 1000
    """Requests of one caller at once after a pause."""

    open_rate: Some | None = None
    """Requests per second of all anonymous callers together. Only a server open to its own machine has any.
    Unlimited by default."""

    streams: Many = 1000
    """Concurrent streams of one caller. Each is a connection, and a process has some thousands."""

    connections: Many = 4096
    """Open HTTP connections of one client address that is not a trusted proxy, 0 for any number."""

    open_tasks: Many = 10_000
    """Tasks of one caller that have not ended."""

    owner_tasks: Many = 0
    """Tasks stored for one caller, including ended ones. 0 for any number, because only the operator knows the disk."""

    owner_bytes: Many = 0
    """Bytes stored for one caller's tasks, with their logs and files. 0 for any number."""

    tenant_tasks: Many = 0
    """Tasks stored for all callers of a tenant. 0 for any number."""

    tenant_bytes: Many = 0
    """Bytes stored for a tenant's tasks, with their logs and files. 0 for any number."""

    parts: Many = 256
    """Parts of a message, and entries of its other lists."""

    text: Many = 4 * MiB
    """Characters of one text, and bytes of one data value. About as much as the largest models read at once."""

    metadata: Many = 64 * KiB
    """Bytes of one metadata object, which every read of the task loads."""

    depth: Many = MAX_DEPTH
    """Nesting depth of data and metadata. Over gRPC, protobuf reads only about thirty levels."""

    identifier: Many = 512
    """Bytes of an ID chosen by callers. It is part of keys, and PostgreSQL limits keys to 2,704 bytes."""

    webhooks: Many = 20
    """Webhooks of one task. Every event is sent to each."""

    webhook_field: Many = 8 * KiB
    """Bytes of a webhook's URL, token or credentials, which are sent with every event. A signed token fits."""

    history: Many = 1000
    """Latest messages of one task in a reply. A2A leaves the number to the server if callers set none (3.2.4)."""

    page_with_artifacts: Many = 20
    """Tasks per page that includes artifacts. Pages may be smaller than requested, artifacts may not be cut."""

    body: Many = 16 * MiB
    """Largest request body that is read into memory. A file of 12 MB fits as base64."""

    bodies: Many = 256 * MiB
    """Bytes of all request bodies being received by a process. Half is for authenticated callers. One caller gets at
    most half."""

    answers: Many = 256 * MiB
    """Bytes of large unread replies and events of one process. Beyond it, clients that stopped reading are
    disconnected, and large replies fail with 503. Large means more than 64 KiB."""

    caller_answers: Many = 64 * MiB
    """Bytes of large unread replies of one authenticated caller. Beyond it, large replies fail with 429."""

    inline_files: Many = 12 * MiB
    """Bytes of files in one reply or event. Other files are sent as signed URLs. Base64 makes this 16 MiB, which
    clients accept as one event and which is the largest request body."""

    body_seconds: Some = 20.0
    """Seconds that a request body may take besides the time for its bytes, and maximum pause between them."""

    body_rate: Many = 16 * KiB
    """Bytes of a request body that extend its time by a second, and minimum bytes per second at which clients read
    replies."""

    head: Many = 32 * KiB
    """Bytes of the request line and headers, as much as common proxies pass on."""

    head_seconds: Some = 10.0
    """Seconds for the request line and headers."""

    unread_seconds: Some = 60.0
    """Seconds that a client may read a reply more slowly than `body_rate`."""


SWEEP_AT = 10_000
"""Tracked callers before unneeded entries are removed."""

SHARE = 8
"""The fraction of remaining open tasks that a node claims at once. With few nodes the limit is hardly exceeded."""

AGAIN_SECONDS = 2.0
"""Seconds for which a caller with too many open tasks is refused without another count."""

_NOISE = 1e-9
"""Rounding error of float sums."""

Account = tuple[str | None, str]

Count = Callable[[str | None, str, int], Awaitable[int]]
"""Counts the open tasks of an owner in a tenant, up to a limit. None counts in all tenants."""


class Bucket:
    """A rate limit per key: an average rate with a burst after a pause.

    Per key, only the time is stored at which its bucket is full again (generic cell rate algorithm).
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Allow `rate` per second and `burst` at once."""
        self._step = 1.0 / rate
        self._slack = self._step * (max(burst, 1) - 1)
        self._clock = clock
        self._full_at: dict[Hashable, float] = {}
        self._sweep_at = SWEEP_AT

    def take(self, key: Hashable) -> float:
        """Take a token and return 0, or return the seconds until one is available."""
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now)
        wait = full_at - now - self._slack
        if wait > _NOISE:
            return wait
        self._full_at[key] = full_at + self._step
        if len(self._full_at) > self._sweep_at:
            self._sweep(now)
        return 0.0

    def give_back(self, key: Hashable) -> None:
        """Return a token that turned out not to count."""
        if key in self._full_at:
            self._full_at[key] -= self._step

    def _sweep(self, now: float) -> None:
        """Remove the keys whose buckets are full again, because they equal new ones."""
        self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
        self._sweep_at = max(SWEEP_AT, 2 * len(self._full_at))


class CallerUsage:
    """Current usage of callers, for all agents of this process and all tenants."""

    def __init__(
        self, quotas: Quotas | None = None, *, count: Count | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Enforce `quotas`. `count` counts the open tasks of an owner. Without it they are not limited."""
        self.quotas = quotas or Quotas()
        self._count = count
        self._clock = clock
        rate, open_rate = self.quotas.rate, self.quotas.open_rate
        self._named = Bucket(rate, self.quotas.burst, clock) if rate else None
        self._nameless = Bucket(open_rate, self.quotas.burst, clock) if open_rate else None
        self._streams: Counter[Account] = Counter()
        self._room: dict[Account, int] = {}
        self._refused: dict[Account, float] = {}

    def take(self, caller: Caller) -> None:
        """Count a request. Raises RateLimited beyond the rate."""
        bucket = self._named if caller.owner else self._nameless
        if bucket is not None and (wait := bucket.take(caller.account)):
            rate = self.quotas.rate if caller.owner else self.quotas.open_rate
            raise _refused(f"More than {rate:g} requests per second", "rate", wait)

    def check_streams(self, caller: Caller) -> None:
        """Raise RateLimited if the caller has too many open streams."""
        if self._streams.get(caller.account, 0) >= self.quotas.streams:
            raise _refused(f"{self.quotas.streams} streams are open already", "streams", AGAIN_SECONDS)

    def open_stream(self, caller: Caller) -> None:
        """Count a stream until `close_stream`. Raises RateLimited if there are too many."""
        self.check_streams(caller)
        self._streams[caller.account] += 1

    def close_stream(self, caller: Caller) -> None:
        """Count a stream as closed."""
        key = caller.account
        self._streams[key] -= 1
        if not self._streams[key]:
            del self._streams[key]

    async def open_task(self, caller: Caller) -> None:
        """Count a new task. Raises RateLimited if too many are open.

        The store is queried from time to time, and a fraction of the room it reports is used between queries.
        Concurrent tasks here and on other nodes may exceed the limit: it protects against overload and is not exact.
        """
        if self._count is None:
            return
        key = caller.account
        room = self._room.get(key, 0)
        if not room:
            room = await self._find_room(key, self._count)
        self._room[key] = room - 1

    async def _find_room(self, key: Account, count: Count) -> int:
        limit, now = self.quotas.open_tasks, self._clock()
        if self._refused.get(key, now) <= now:
            self._forget(now)
            try:
                left = limit - await count(*key, limit)
            except (StoreUnavailable, BadValue):
                return 1  # the send itself raises the error
            if left > 0:
                return max(1, left // SHARE)
            self._refused[key] = now + AGAIN_SECONDS
        raise _refused(f"{limit} tasks have not ended yet", "open_tasks", self._refused[key] - now)

    def _forget(self, now: float) -> None:
        if len(self._room) > SWEEP_AT:
            self._room.clear()  # they are counted again later
        if len(self._refused) > SWEEP_AT:
            self._refused = {key: until for key, until in self._refused.items() if until > now}


def counting(store: Store) -> Count:
    """Return a function that counts open tasks in a store."""

    async def count(tenant: str | None, owner: str, limit: int) -> int:
        return await store.read(tasks.count_open, tenant, owner, limit)

    return count


def _refused(message: str, limit: str, wait: float) -> RateLimited:
    return RateLimited(message, retry_after=max(1, math.ceil(wait)), metadata={"limit": limit})
