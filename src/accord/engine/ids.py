"""UUIDv7 identifiers, which sort by creation time and insert fast."""

import os
import time
from collections.abc import Iterator

RANDOM_BYTES = 10
"""Random bytes per identifier, of which six bits are replaced."""

AT_ONCE = 256
"""Identifiers per request for randomness: the system call takes longer than the rest."""


class _Random:
    """System randomness, fetched in advance. A list's iterator gives each item to one thread only."""

    def __init__(self) -> None:
        self._left: Iterator[bytes] = iter(())
        os.register_at_fork(after_in_child=self._forget)

    def take(self) -> bytes:
        while (found := next(self._left, None)) is None:
            fetched = os.urandom(RANDOM_BYTES * AT_ONCE)
            self._left = iter([fetched[at : at + RANDOM_BYTES] for at in range(0, len(fetched), RANDOM_BYTES)])
        return found

    def _forget(self) -> None:
        """Drop the fetched randomness, so that a forked process makes other identifiers."""
        self._left = iter(())


_random = _Random()


def new_id() -> str:
    """Return a new UUIDv7 (RFC 9562, 5.7)."""
    return uuid7(time.time_ns() // 1_000_000, _random.take())


_VARIANT = "89ab"


def uuid7(milliseconds: int, random: bytes) -> str:
    """Return the UUIDv7 of a Unix time and ten random bytes."""
    when, rest = f"{milliseconds & (1 << 48) - 1:012x}", random.hex()
    return f"{when[:8]}-{when[8:]}-7{rest[1:4]}-{_VARIANT[random[2] >> 4 & 3]}{rest[5:8]}-{rest[8:]}"
