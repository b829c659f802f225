"""HTTP Basic authentication (RFC 7617) of the users in the settings, whose passwords are hashed by scrypt.

A hash is `scrypt$<n>$<r>$<p>$<salt>$<hash>`. Wrong passwords are throttled by address and account.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import math
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from accord.auth.authentication import ExpiringCache, Identity, Presented, challenge, refusal
from accord.auth.rate_limits import Bucket
from accord.auth.scheme_settings import Basic
from accord.auth.schemes import SchemeType
from accord.errors import AuthenticationFailed, RateLimited
from accord.model import HttpAuthScheme, SecurityScheme
from accord.protocol.urls import network_of

N, R, P = 2**15, 8, 3
"""32 MiB and three passes: one of several equally strong settings that OWASP recommends."""

SALT_BYTES, HASH_BYTES = 16, 32
MAX_MEMORY = 256 * 1024 * 1024
"""Maximum memory of a hash. A larger one is a mistake, and could stop the server."""

_FORM = re.compile(r"scrypt\$(\d{1,9})\$(\d{1,3})\$(\d{1,3})\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)", re.ASCII)


class Scrypt(NamedTuple):
    """A password hash and its parameters."""

    n: int
    r: int
    p: int
    salt: bytes
    hash: bytes

    def __repr__(self) -> str:
        return f"Scrypt(n={self.n}, r={self.r}, p={self.p})"

    def fits(self, password: str) -> bool:
        """Whether the password has this hash, compared in constant time. It is slow on purpose."""
        return hmac.compare_digest(_scrypt(password, self.n, self.r, self.p, self.salt, len(self.hash)), self.hash)


def hash_password(password: str) -> str:
    """Return the hash of a password, with its parameters and salt."""
    salt = os.urandom(SALT_BYTES)
    parts = (salt, _scrypt(password, N, R, P, salt, HASH_BYTES))
    return "$".join(("scrypt", str(N), str(R), str(P), *(base64.b64encode(part).decode() for part in parts)))


def read_hash(text: str) -> Scrypt:
    """Parse a password hash of the settings."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError("A password must be a hash as printed by `accord hash-password`")
    n, r, p = (int(match[at]) for at in (1, 2, 3))
    try:
        salt, hash = (base64.b64decode(match[at], validate=True) for at in (4, 5))
    except binascii.Error:
        raise ValueError("The password hash is not valid base64") from None
    if n < 2 or n & (n - 1) or not r or not p or 128 * n * r > MAX_MEMORY or len(salt) < 8 or len(hash) < HASH_BYTES:
        raise ValueError("The password hash has invalid scrypt parameters")
    return Scrypt(n, r, p, salt, hash)


def _scrypt(password: str, n: int, r: int, p: int, salt: bytes, size: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=2 * MAX_MEMORY, dklen=size)


MAX_CREDENTIALS = 1024
AT_ONCE = 2
"""Passwords hashed at the same time. Each takes a core and tens of megabytes."""

WAITING = 64
"""Passwords being checked or waiting for it. A flood of wrong ones must not queue for minutes."""

RESERVED = 16
"""Places among them for accounts at addresses where they have signed in before."""

WAITING_PER_ADDRESS = 8
"""Maximum number of the other places for one address."""

PAIR = 1 / 6, 10
"""Failures per second and burst of one account at one address, as on the console's sign-in page."""

ADDRESS = 1 / 2, 60
"""Failures per second and burst of all accounts at one address. Users of a shared address mistype too."""

ACCOUNT = 1 / 6, 100
"""Failures per second and burst of one account at all unknown addresses. NIST SP 800-63B allows 100 in a row."""

KNOWN_SECONDS = 86_400.0
"""How long an address is remembered where an account has signed in."""

REMEMBERED = 10_000

log = logging.getLogger("accord.access")


class Attempts:
    """Counts pending and wrong passwords by client address and account.

    An account at an address where it has signed in is isolated from other clients. It has reserved places, and only its
    own failures there count.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._pairs, self._addresses, self._accounts = (Bucket(*limit, clock) for limit in (PAIR, ADDRESS, ACCOUNT))
        self._known: ExpiringCache[tuple[str, str], bool] = ExpiringCache(REMEMBERED, KNOWN_SECONDS, clock)
        self._waiting: Counter[str] = Counter()
        self._strangers = self._all = 0

    async def check(self, address: str, account: str, checking: Callable[[], Awaitable[bool]]) -> bool:
        """Check a password and count a failure. Raises RateLimited, without a check, beyond the limits."""
        pair = address, account
        is_known = bool(self._known.get(pair))
        limits = [(self._pairs, pair), *([] if is_known else [(self._addresses, address), (self._accounts, account)])]
        self._check_places(address, is_known=is_known)
        self._count(limits)
        self._wait(address, 1, is_known=is_known)
        try:
            fits = await checking()
        finally:
            self._wait(address, -1, is_known=is_known)
        if fits:
            self._known.put(pair, True)
            for bucket, key in limits:
                bucket.give_back(key)
        return fits

    def _check_places(self, address: str, *, is_known: bool) -> None:
        is_full = self._all >= WAITING
        if not is_known:
            is_full |= self._strangers >= WAITING - RESERVED or self._waiting[address] >= WAITING_PER_ADDRESS
        if is_full:
            raise RateLimited("Too many passwords to check at once", retry_after=1)

    def _count(self, limits: Sequence[tuple[Bucket, Hashable]]) -> None:
        """Count the attempt as a failure in advance, so that concurrent attempts count too."""
        for position, (bucket, key) in enumerate(limits):
            if wait := bucket.take(key):
                for before, its_key in limits[:position]:
                    before.give_back(its_key)
                log.info("access.refused", extra={"scheme": BasicAccess.name, "reason": "too many wrong passwords"})
                again = max(1, math.ceil(wait))
                raise RateLimited("Too many wrong passwords", retry_after=again, metadata={"limit": "passwords"})

    def _wait(self, address: str, more: int, *, is_known: bool) -> None:
        self._all += more
        if not is_known:
            self._strangers += more
            self._waiting[address] += more
            if not self._waiting[address]:
                del self._waiting[address]


class BasicAccess:
    """Authentication with a user name and password."""

    name = "basic"
    challenge = challenge("Basic", charset="UTF-8")

    def __init__(self, settings: Basic, clock: Callable[[], float] = time.monotonic) -> None:
        if not settings.users or any(":" in name or not name for name in settings.users):
            raise ValueError("Basic authentication needs users, whose names are not empty and have no colon")
        self._users = {name: (read_hash(user.password), user.identity(name)) for name, user in settings.users.items()}
        # Unknown users are checked against a real hash, so that both refusals take the same time.
        self._somebody = next(iter(self._users.values()))[0]
        self._right: ExpiringCache[bytes, Identity] = ExpiringCache(REMEMBERED, settings.remember_seconds, clock)
        self._key = os.urandom(32)
        # Separate threads: hashing continues when a caller disconnects, and agents and files need the shared ones.
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="accord-passwords")
        self._attempts = Attempts(clock)
        self._checking: dict[bytes, asyncio.Task[bool]] = {}

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """The HTTP Basic scheme."""
        return {"basic": SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="Basic"))}

    async def identify(self, presented: Presented) -> Identity | None:
        """Return the user of the request's password, or None without one."""
        credentials = presented.credentials("basic")
        if credentials is None:
            return None
        digest = hashlib.blake2b(credentials.encode("latin-1"), key=self._key).digest()
        known = self._right.get(digest)
        if known is not None:
            return known
        name, password = _read(credentials)
        hash, identity = self._users.get(name, (self._somebody, None))
        checking = self._checking.get(digest)
        if checking is None:  # concurrent requests of a client share one hash
            checking = asyncio.create_task(
                self._attempts.check(network_of(presented.peer), name, partial(self._hashed, hash, password, identity))
            )
            self._checking[digest] = checking
            checking.add_done_callback(lambda _: self._checking.pop(digest, None))
        if not await asyncio.shield(checking) or identity is None:
            raise refusal(self.name, "no such user with this password")
        self._right.put(digest, identity)
        return identity

    async def _hashed(self, hash: Scrypt, password: str, identity: Identity | None) -> bool:
        fits = await asyncio.get_running_loop().run_in_executor(self._threads, hash.fits, password)
        return fits and identity is not None


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


SCHEME = SchemeType(settings=Basic, build=lambda settings, ports: BasicAccess(settings, ports.clock))
