"""Authentication with secrets that client and server share: sent in a header, or signing each request."""

import hashlib
import hmac
import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from accord.auth.authentication import BodyNeeded, Identity, Presented, challenge, refusal
from accord.auth.scheme_settings import Header, Hmac
from accord.auth.schemes import SchemeType
from accord.errors import AgentUnavailable
from accord.model import ApiKeyScheme, SecurityScheme
from accord.protocol import http_headers
from accord.storage.commands import authentication
from accord.storage.store import Store, StoreUnavailable

KEPT_WINDOWS = 3
"""Windows for which a signature is stored: one before its time, one after it, and one for clock differences."""

RETRY_SECONDS = 1

REMEMBERED = 100_000
"""Signatures of one key to remember. At 64 bytes and set overhead, about 15 MB."""

SIGNATURE = ApiKeyScheme(
    location="header", name=http_headers.SIGNATURE_HEADER, description=http_headers.SIGNATURE_DESCRIPTION
)
"""The scheme on the card. A2A has none for signatures, so it is a header key with a description."""

_NOBODY = os.urandom(32)


class HeaderAccess:
    """Authentication with a shared secret in a header."""

    name = "header"

    def __init__(self, settings: Header) -> None:
        if not settings.name or not settings.secrets:
            raise ValueError("A header for authentication needs a name and secrets")
        self._header = settings.name
        self._secrets = [(_digest(one.secret), one.identity()) for one in settings.secrets]

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """The A2A scheme: a key in a header."""
        return {"header": SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="header", name=self._header))}

    @property
    def challenge(self) -> str:
        """A challenge that names the header, because HTTP has no registered scheme for it."""
        return challenge("ApiKey", header=self._header)

    async def identify(self, presented: Presented) -> Identity | None:
        """Return the owner of the request's secret, or None without one."""
        stated = presented.header(self._header)
        if stated is None:
            return None
        given = _digest(stated)
        # Compare with every secret, as digests of one length, so that the time reveals nothing about them.
        identities = [identity for digest, identity in self._secrets if hmac.compare_digest(digest, given)]
        if not identities:
            raise refusal(self.name, "no such secret")
        return identities[0]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


class UsedSignatures:
    """The used signatures of one key, in bounded memory.

    Signatures are grouped by their time. When memory is full the oldest times are dropped, and all signatures as old
    are refused. No request is accepted twice, but late ones may have to be signed again.
    """

    def __init__(self, size: int, window: int) -> None:
        """Remember `size` signatures within `window` seconds of now."""
        self._size = size
        self._window = window
        self._count = 0
        self._by_time: dict[int, set[str]] = {}
        self._floor = self._swept_at = 0

    def add(self, timestamp: int, digest: str, now: int) -> bool:
        """Add a signature. Return false if it was used, or may have been."""
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
        """Drop expired signatures, once a second."""
        if now != self._swept_at:
            self._swept_at = now
            for old in [at for at in self._by_time if at < now - self._window]:
                self._forget(old)

    def _forget(self, at: int) -> None:
        self._count -= len(self._by_time.pop(at))


class HmacAccess:
    """Authentication with signed requests, each accepted once and for a few minutes."""

    name = "hmac"
    security: Mapping[str, SecurityScheme] = MappingProxyType(
        {"signature": SecurityScheme(api_key_security_scheme=SIGNATURE)}
    )
    challenge = challenge(http_headers.SIGNATURE_HEADER)

    def __init__(self, settings: Hmac, now: Callable[[], float] = time.time, store: Store | None = None) -> None:
        """Accept signatures by the keys of the settings. Without a store, replays are detected per process only."""
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
        """Return the signer of a request, or None without a signature."""
        stated = presented.header(http_headers.SIGNATURE_HEADER)
        if stated is None:
            return None
        signature, now = http_headers.parse_signature(stated), int(self._now())
        if signature is None:
            raise refusal(self.name, "no signature")
        if abs(now - signature.timestamp) > self._window:
            raise refusal(self.name, "not of now")
        if presented.body is None:
            raise BodyNeeded
        request = http_headers.SignedRequest(method=presented.method, target=presented.target, nonce=signature.nonce)
        # Compute with an unknown key too, so that both refusals take the same path.
        secret, identity, seen = self._keys.get(signature.key_id or self._only, (_NOBODY, None, None))
        digest = http_headers.find_digest(signature, presented.body, (secret,), request=request)
        if digest is None or identity is None or seen is None:
            raise refusal(self.name, "not signed by a known key")
        if not seen.add(signature.timestamp, digest, now) or not await self._use(digest):
            raise refusal(self.name, "seen before")
        return identity

    async def _use(self, digest: str) -> bool:
        """Record a signature for all nodes. Return false if one of them has used it."""
        if self._store is None:
            return True
        try:
            return await self._store.do(authentication.use_signature, digest, KEPT_WINDOWS * self._window * 1000)
        except StoreUnavailable as error:
            raise AgentUnavailable("Signatures cannot be checked at the moment", retry_after=RETRY_SECONDS) from error


HEADER = SchemeType(settings=Header, build=lambda settings, _: HeaderAccess(settings))
HMAC = SchemeType(settings=Hmac, build=lambda settings, ports: HmacAccess(settings, ports.now, ports.store))
