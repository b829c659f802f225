"""What schemes are given by whoever puts a server together: the store, the network and the time.

These are types only, so that an adapter for the network needs nothing of what the schemes themselves need.
"""

import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from accord.storage.store import Store


class NotFetched(Exception):
    """A URL could not be read; the message says why."""


Fetch = Callable[[str], Awaitable[bytes]]
"""Reads a URL, or raises NotFetched; it bounds how long that takes and how much is read."""


class Ports(Struct, frozen=True, kw_only=True):
    """All there is; `now` is the time of day, `clock` a time that is never set back, both in seconds."""

    store: Store | None = None
    fetch: Fetch | None = None
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
