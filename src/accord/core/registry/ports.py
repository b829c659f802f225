"""What the registry is given by whoever puts a server together: a way to ask other servers.

These are types only; what may be asked, how long that may take and how much is read is decided by the adapter.
"""

from typing import Protocol

from msgspec import Struct


class NotReached(Exception):
    """There was no answer, and why; there may be one later."""


class NotAllowed(NotReached):
    """That address may not be asked, and why."""


class Answer(Struct, frozen=True, kw_only=True):
    """What a server said."""

    status: int
    body: bytes


class Ask(Protocol):
    """Asks a server."""

    async def __call__(self, method: str, url: str, body: bytes | None = None) -> Answer:
        """Send a request, whose body is JSON, and return the answer, or raise NotReached."""
