"""Identifiers made here: UUIDv7, which sort by time, insert fast and say when they were made.

The clock and the randomness are injected by whoever wants them repeatable.
"""

import os
import time
import uuid


def new_id() -> str:
    """Return a fresh UUIDv7 (RFC 9562, 5.7)."""
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))


def uuid7(milliseconds: int, random: bytes) -> str:
    """Return the UUIDv7 of a Unix time and ten random bytes."""
    rest = int.from_bytes(random, "big")
    value = (milliseconds & (1 << 48) - 1) << 80 | 0x7 << 76 | (rest >> 62 & 0xFFF) << 64 | 0b10 << 62
    return str(uuid.UUID(int=value | rest & (1 << 62) - 1))
