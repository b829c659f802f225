"""Requests signed with a shared secret (HMAC), each accepted once and for a few minutes."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from accord.auth.authentication import BodyNeeded, Identity, Presented, challenge
from accord.auth.scheme_settings import Hmac
from accord.auth.schemes import SchemeKind
from accord.errors import AgentUnavailable, AuthenticationFailed
from accord.model import ApiKeyScheme, SecurityScheme
from accord.protocol import http_headers
from accord.storage.commands import authentication
from accord.storage.store import Store, StoreUnavailable

KEPT_WINDOWS = 3
"""How long a signature is kept: from a window before its time to one after it, and one more for clocks that differ."""

RETRY_SECONDS = 1

REMEMBERED = 100_000
"""Signatures of one key that are remembered: at 64 bytes and the set around them, some 15 MB."""

SIGNATURE = ApiKeyScheme(
    location="header", name=http_headers.SIGNATURE_HEADER, description=http_headers.SIGNATURE_DESCRIPTION
)
"""A2A has no word for signatures; a key in a header is nearest, and its description says the rest."""

_NOBODY = os.urandom(32)

log = logging.getLogger("accord.access")


class UsedSignatures:
    """The signatures of one key that were used, bounded, and safe when it is full.

    Signatures are kept by their time. When there is no more room the oldest times are given up, and from then on what
    is as old counts as seen: no request is let in twice, but late ones may have to be signed again.
    """

    def __init__(self, size: int, window: int) -> None:
        """Remember `size` signatures that are at most `window` seconds off."""
        self._size = size
        self._window = window
        self._count = 0
        self._by_time: dict[int, set[str]] = {}
        self._floor = self._swept_at = 0

    def add(self, timestamp: int, digest: str, now: int) -> bool:
        """Note a signature; false if it was seen or may have been."""
        self._sweep(now)
        if timestamp <= self._floor or digest in self._by_time.get(timestamp, ()):
            return False
        self._by_time.setdefault(timestamp, set()).add(digest)
        self._count += 1
        while self._count > self._size:
            self._floor = min(self._by_time)
            self._forget(self._floor)
        return True

    def _sweep(self, now: int) -> None:
        """Forget what is too old to be accepted again, once in a second."""
        if now != self._swept_at:
            self._swept_at = now
            for old in [at for at in self._by_time if at < now - self._window]:
                self._forget(old)

    def _forget(self, at: int) -> None:
        self._count -= len(self._by_time.pop(at))


class HmacAccess:
    """Callers that sign their requests."""

    name = "hmac"
    security: Mapping[str, SecurityScheme] = MappingProxyType(
        {"signature": SecurityScheme(api_key_security_scheme=SIGNATURE)}
    )
    challenge = challenge(http_headers.SIGNATURE_HEADER)

    def __init__(self, settings: Hmac, now: Callable[[], float] = time.time, store: Store | None = None) -> None:
        """Let in who signs with one of the keys of the settings; without a store, a process knows what it saw only."""
        if not settings.keys:
            raise ValueError("Signed requests need keys")
        self._window = settings.window_seconds
        self._now = now
        self._store = store
        self._keys = {
            name: (key.secret.encode(), key.identity(name), UsedSignatures(REMEMBERED, self._window))
            for name, key in settings.keys.items()
        }
        self._only = next(iter(self._keys)) if len(self._keys) == 1 else ""

    async def identify(self, presented: Presented) -> Identity | None:
        """Return who signed a request."""
        stated = presented.header(http_headers.SIGNATURE_HEADER)
        if stated is None:
            return None
        signature, now = http_headers.parse_signature(stated), int(self._now())
        if signature is None:
            raise self._refused("no signature")
        if abs(now - signature.timestamp) > self._window:
            raise self._refused("not of now")
        if presented.body is None:
            raise BodyNeeded
        request = http_headers.SignedRequest(method=presented.method, target=presented.target, nonce=signature.nonce)
        # A key that does not exist is computed with as well, so that it is refused on the same path as a wrong one.
        secret, identity, seen = self._keys.get(signature.key_id or self._only, (_NOBODY, None, None))
        digest = http_headers.find_digest(signature, presented.body, (secret,), request=request)
        if digest is None or identity is None or seen is None:
            raise self._refused("not signed by a known key")
        if not seen.add(signature.timestamp, digest, now) or not await self._use(digest):
            raise self._refused("seen before")
        return identity

    async def _use(self, digest: str) -> bool:
        """Note a signature for all nodes; false if one of them has seen it."""
        if self._store is None:
            return True
        try:
            return await self._store.do(authentication.use_signature, digest, KEPT_WINDOWS * self._window * 1000)
        except StoreUnavailable as error:
            raise AgentUnavailable("Signatures cannot be checked at the moment", retry_after=RETRY_SECONDS) from error

    def _refused(self, reason: str) -> AuthenticationFailed:
        log.info("refused", extra={"scheme": self.name, "reason": reason})
        return AuthenticationFailed()


SCHEME = SchemeKind(settings=Hmac, build=lambda settings, ports: HmacAccess(settings, ports.now, ports.store))
