"""Names and passwords (RFC 7617): the users of the settings.

A password is hashed in a thread, few at a time, because each needs memory and time on purpose; one that was right is
remembered by a digest that only this process can make. How hashes are made is `core.schemes.passwords`.
"""

import asyncio
import base64
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from accord.core.access import Identity, Presented, challenge
from accord.core.schemes import passwords
from accord.core.schemes.kinds import SchemeKind
from accord.core.schemes.recent import Recent
from accord.core.schemes.settings import Basic
from accord.errors import AuthenticationFailed, RateLimited
from accord.model import HttpAuthScheme, SecurityScheme

MAX_CREDENTIALS = 1024
AT_ONCE = 2
"""Passwords that are hashed at the same time; each takes a core and tens of megabytes."""

WAITING = 64
"""Passwords that may be checked or wait for it: a flood of wrong ones must not become a queue of minutes."""

REMEMBERED = 10_000

log = logging.getLogger("accord.access")


class BasicAccess:
    """Callers with a name and a password."""

    name = "basic"
    challenge = challenge("Basic", charset="UTF-8")

    def __init__(self, settings: Basic, clock: Callable[[], float] = time.monotonic) -> None:
        """Let in the users of the settings."""
        if not settings.users or any(":" in name or not name for name in settings.users):
            raise ValueError("Basic authentication needs users, whose names are not empty and have no colon")
        self._users = {
            name: (passwords.read(user.password), user.identity(name)) for name, user in settings.users.items()
        }
        # Whoever is unknown is checked against somebody who is not: refusing takes as long for one as for the other.
        self._somebody = next(iter(self._users.values()))[0]
        self._right: Recent[bytes, Identity] = Recent(REMEMBERED, settings.remember_seconds, clock)
        self._key = os.urandom(32)
        # Threads of its own: hashing goes on when a caller gives up, and agents and files need those that all share.
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="accord-passwords")
        self._waiting = 0

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """HTTP's own scheme."""
        return {"basic": SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="Basic"))}

    async def identify(self, presented: Presented) -> Identity | None:
        """Return the user whose password a request brings."""
        credentials = presented.credentials("basic")
        if credentials is None:
            return None
        digest = hashlib.blake2b(credentials.encode("latin-1"), key=self._key).digest()
        known = self._right.get(digest)
        if known is not None:
            return known
        name, password = _read(credentials)
        hash, identity = self._users.get(name, (self._somebody, None))
        fits = await self._hashed(hash, password)
        if not fits or identity is None:
            log.info("refused", extra={"scheme": self.name, "reason": "no such user with this password"})
            raise AuthenticationFailed
        self._right.put(digest, identity)
        return identity

    async def _hashed(self, hash: passwords.Scrypt, password: str) -> bool:
        if self._waiting >= WAITING:
            raise RateLimited("Too many passwords to check at once", retry_after=1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, hash.fits, password)
        finally:
            self._waiting -= 1


def _read(credentials: str) -> tuple[str, str]:
    try:
        if len(credentials) > MAX_CREDENTIALS:
            raise AuthenticationFailed
        name, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:  # neither base64 nor UTF-8, or not even ASCII
        raise AuthenticationFailed from None
    if not colon:
        raise AuthenticationFailed
    return name, password


SCHEME = SchemeKind(settings=Basic, build=lambda settings, ports: BasicAccess(settings, ports.clock))
