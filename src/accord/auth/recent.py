"""A bounded cache whose entries expire."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """A cache of at most `size` values, each for at most `seconds`."""

    def __init__(self, size: int, seconds: float, clock: Callable[[], float]) -> None:
        """Create a cache whose entries expire by `clock`, in seconds."""
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return a value, or None if it is missing or expired."""
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] <= self._clock():
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return found[1]

    def put(self, key: K, value: V, until: float | None = None) -> None:
        """Store a value, until `until` if that is earlier than its usual expiry."""
        expires = self._clock() + self._seconds
        self._kept[key] = (expires if until is None else min(expires, until), value)
        self._kept.move_to_end(key)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)

    def forget(self, key: K) -> None:
        """Remove a value."""
        self._kept.pop(key, None)

    def __len__(self) -> int:
        return len(self._kept)
