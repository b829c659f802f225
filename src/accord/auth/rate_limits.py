"""Rate limits and concurrency limits of callers.

Each process counts for itself: behind several nodes a caller has as much on each.
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
    """What callers may ask for; sizes are in bytes unless said otherwise, times in seconds."""

    rate: Some | None = 500.0
    """Requests a second of one caller, 0 for any number: more than agents need, less than a server can answer."""

    burst: Many = 1000
    """How many of them may come at once after a pause."""

    open_rate: Some | None = None
    """The same for callers without a name, together: there are none but on a server that is open to its own machine."""

    streams: Many = 1000
    """Streams that one caller holds open at a time: each is a connection, and a process has some thousands."""

    connections: Many = 4096
    """Open HTTP connections of one client address that is not a trusted proxy, 0 for any number."""

    open_tasks: Many = 10_000
    """Tasks of one caller that have not ended: more are not worked off, they pile up."""

    owner_tasks: Many = 0
    """Tasks that one caller stores, ended ones included; 0 for any number: only the operator knows the disk."""

    owner_bytes: Many = 0
    """Bytes of these tasks, with their logs and files; 0 for any number."""

    tenant_tasks: Many = 0
    """Tasks that all callers of a tenant store together; 0 for any number."""

    tenant_bytes: Many = 0
    """Bytes of these tasks; 0 for any number."""

    parts: Many = 256
    """Parts of a message, and members of its other lists."""

    text: Many = 4 * MiB
    """Characters of one text, and bytes of one value of data: about what the largest models can read at once."""

    metadata: Many = 64 * KiB
    """Bytes of one metadata object: it is read again with every look at the task."""

    depth: Many = MAX_DEPTH
    """How deeply data and metadata may be nested; over gRPC protobuf itself reads no more than about thirty levels."""

    identifier: Many = 512
    """Bytes of an id that callers choose: it is part of keys, and PostgreSQL takes keys of 2,704 bytes."""

    webhooks: Many = 20
    """Webhooks of one task: every event goes to each."""

    webhook_field: Many = 8 * KiB
    """Bytes of a webhook's url, token or credentials: they travel with every event; a signed token has its place."""

    history: Many = 1000
    """Messages of one task in an answer, the latest: A2A leaves it to the server when callers do not say (3.2.4)."""

    page_with_artifacts: Many = 20
    """Tasks of a page that includes their artifacts: a page may be smaller than was asked for, an artifact may not."""

    body: Many = 16 * MiB
    """The largest body that is read into memory: a file of 12 MB still fits as base64."""

    bodies: Many = 256 * MiB
    """Bytes of all bodies being received by a process. Half is for authenticated callers only; one has half at most."""

    answers: Many = 256 * MiB
    """Bytes of large answers and events that clients have not read, of one process. Beyond it, clients that have
    stopped reading are disconnected, and large answers are refused with 503. One of more than 64 KiB is large."""

    caller_answers: Many = 64 * MiB
    """The same of one authenticated caller, whose large answers are refused with 429 beyond it."""

    inline_files: Many = 12 * MiB
    """Bytes of files in one answer or event; those that do not fit are sent as signed addresses. Base64 makes this 16
    MiB, which is what clients take as one event and what is the largest body of a request."""

    body_seconds: Some = 20.0
    """How long a body may take that brings nothing, and pause: what does not come in this time was not meant to."""

    body_rate: Many = 16 * KiB
    """Bytes sent of a body that buy another second, and read of an answer that are enough in one: any line has more."""

    head: Many = 32 * KiB
    """Bytes of the request line and the headers: as much as common proxies pass on."""

    head_seconds: Some = 10.0
    """How long they may take."""

    unread_seconds: Some = 60.0
    """How long a client may read less of an answer than that."""


SWEEP_AT = 10_000
"""Callers that are remembered before those are forgotten of whom nothing needs to be."""

SHARE = 8
"""What part of the room for open tasks a node takes at once: with few nodes the limit is passed by little."""

AGAIN_SECONDS = 2.0
"""How long a caller with too many open tasks is refused without counting them again."""

_NOISE = 1e-9
"""What sums of floats may be off by."""

Account = tuple[str | None, str]

Count = Callable[[str | None, str, int], Awaitable[int]]
"""Counts the open tasks of an owner in a tenant, or with None in all, up to a limit."""


class Bucket:
    """A rate for each of many keys: so many a second on average, and so many at once after a pause.

    Of each key only the moment is kept at which its bucket is full again (the generic cell rate algorithm).
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Allow `rate` a second and `burst` at once."""
        self._step = 1.0 / rate
        self._slack = self._step * (max(burst, 1) - 1)
        self._clock = clock
        self._full_at: dict[Hashable, float] = {}
        self._sweep_at = SWEEP_AT

    def take(self, key: Hashable) -> float:
        """Take one, and return 0; or take none, and return in how many seconds there will be one."""
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
        """Return one that was taken and turned out not to count."""
        if key in self._full_at:
            self._full_at[key] -= self._step

    def _sweep(self, now: float) -> None:
        """Forget the keys whose buckets are full again: they are as good as new."""
        self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
        self._sweep_at = max(SWEEP_AT, 2 * len(self._full_at))


class CallerUsage:
    """What callers use at the moment, of all agents of this process together, whatever tenants they name."""

    def __init__(
        self, quotas: Quotas | None = None, *, count: Count | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Hold callers to `quotas`; `count` looks up the open tasks of an owner, without it they are not limited."""
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
        """Count a request, or refuse it."""
        bucket = self._named if caller.owner else self._nameless
        if bucket is not None and (wait := bucket.take(caller.account)):
            rate = self.quotas.rate if caller.owner else self.quotas.open_rate
            raise _refused(f"More than {rate:g} requests a second are too many", "rate", wait)

    def check_streams(self, caller: Caller) -> None:
        """Refuse another stream if there are enough."""
        if self._streams.get(caller.account, 0) >= self.quotas.streams:
            raise _refused(f"{self.quotas.streams} streams are open already", "streams", AGAIN_SECONDS)

    def open_stream(self, caller: Caller) -> None:
        """Count a stream until `close_stream` is called for it, or refuse it."""
        self.check_streams(caller)
        self._streams[caller.account] += 1

    def close_stream(self, caller: Caller) -> None:
        """Note that a stream is over."""
        key = caller.account
        self._streams[key] -= 1
        if not self._streams[key]:
            del self._streams[key]

    async def open_task(self, caller: Caller) -> None:
        """Count a new task, or refuse it.

        The store is asked now and then, and in between a part of the room that it found is used up. So the limit may be
        passed by what begins at the same moment, here and on other nodes: it is there against piles, not for bills.
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
                return 1  # the send itself will say so
            if left > 0:
                return max(1, left // SHARE)
            self._refused[key] = now + AGAIN_SECONDS
        raise _refused(f"{limit} tasks have not ended yet", "open_tasks", self._refused[key] - now)

    def _forget(self, now: float) -> None:
        if len(self._room) > SWEEP_AT:
            self._room.clear()  # they are counted again
        if len(self._refused) > SWEEP_AT:
            self._refused = {key: until for key, until in self._refused.items() if until > now}


def counting(store: Store) -> Count:
    """Return what counts open tasks in a store."""

    async def count(tenant: str | None, owner: str, limit: int) -> int:
        return await store.read(tasks.count_open, tenant, owner, limit)

    return count


def _refused(message: str, limit: str, wait: float) -> RateLimited:
    return RateLimited(message, retry_after=max(1, math.ceil(wait)), metadata={"limit": limit})
