"""API keys: `ak_<id>_<secret>`, in a header of their own or as a bearer token.

The store has a SHA-256 of the secret. A slow hash is for secrets that people choose; this one has 256 random bits.
"""

import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from accord.a2a import Admission
from accord.auth.authentication import Identity, Presented, challenge
from accord.auth.recent import ExpiringCache
from accord.auth.scheme_settings import ApiKeys
from accord.auth.schemes import Ports, SchemeKind
from accord.errors import AgentUnavailable, AuthenticationFailed, PermissionDenied
from accord.model import ApiKeyScheme, SecurityScheme
from accord.storage.commands import authentication
from accord.storage.commands.authentication import KEY_ID_LENGTH, MAX_KEY_GENERATIONS, StoredApiKey
from accord.storage.store import Store, StoreUnavailable

PREFIX = "ak_"
"""What every key begins with, so that people and scanners for leaked secrets know one when they see it."""

KNOWN, UNKNOWN = 10_000, 10_000
"""Keys that are remembered, and ids that belong to none. They are apart: guessing must not push out real keys."""

USED_MS = 3600 * 1000
"""How exactly it is noted when a key was last used: more often would make every request a write."""

RETRY_SECONDS = 1

_KEY = re.compile(
    rf"ak_(?P<id>(?:[0-9a-f]{{{KEY_ID_LENGTH}}}){{1,{MAX_KEY_GENERATIONS}}})_(?P<secret>[A-Za-z0-9_-]{{43}})"
)
_NOBODY = hashlib.sha256(b"no key has this secret").hexdigest()

log = logging.getLogger("accord.access")


class NewSecret(NamedTuple):
    """A key as its holder gets it, once, and what is kept of it."""

    key: str
    id: str
    hash: str

    def __repr__(self) -> str:
        return f"NewSecret(id={self.id!r})"


def new_key(of: str = "") -> NewSecret:
    """Make a key, or one `of` another, which it is not good without; there are only so many in a row."""
    if len(of) >= KEY_ID_LENGTH * MAX_KEY_GENERATIONS:
        raise PermissionDenied("A key of this one would come from too many others: make it with one of those")
    id, secret = of + secrets.token_hex(KEY_ID_LENGTH // 2), secrets.token_urlsafe(32)
    return NewSecret(f"{PREFIX}{id}_{secret}", id, _hash(secret))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class ApiKeyAccess:
    """Callers with a key of the store."""

    name = "api-keys"

    def __init__(self, settings: ApiKeys, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        """Look keys up in `store`, and remember what was found for a moment."""
        self._header = settings.header
        self._store = store
        self._known: ExpiringCache[str, StoredApiKey] = ExpiringCache(KNOWN, settings.remember_seconds, clock)
        self._unknown: ExpiringCache[str, bool] = ExpiringCache(UNKNOWN, settings.remember_seconds, clock)
        self._noted: ExpiringCache[str, bool] = ExpiringCache(KNOWN, USED_MS / 1000, clock)

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """A key in a header."""
        return {"apiKey": SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="header", name=self._header))}

    @property
    def challenge(self) -> str:
        """A key is a bearer token as well, and only that has a challenge."""
        return challenge("Bearer")

    async def identify(self, presented: Presented) -> Identity | None:
        """Return who holds the key that a request brings."""
        text = presented.header(self._header)
        if text is None:
            text = presented.credentials("bearer")
            if text is None or not text.startswith(PREFIX):
                return None
        match = _KEY.fullmatch(text.strip())
        if match is None:
            raise self._refused("not a key")
        key = await self._find(match["id"])
        # An unknown id is compared as well, so that it is refused on the same path as a wrong secret.
        is_right = hmac.compare_digest(_hash(match["secret"]), key.hash if key else _NOBODY)
        if key is None or not is_right:
            raise self._refused("no such key")
        if not key.is_live:
            raise self._refused("revoked or expired", key.id)
        await self._note(key.id)
        ticket = Admission(kind=self.name, id=key.id, until=key.expires_at, key_id=key.id)
        return Identity(owner=key.owner, tenant=key.tenant, roles=frozenset(key.roles), ticket=ticket)

    async def is_good(self, id: str) -> bool:
        """Whether a key has been neither revoked nor forgotten."""
        key = await self._find(id)
        return key is not None and key.is_live

    async def _find(self, id: str) -> StoredApiKey | None:
        found = self._known.get(id)
        if found is not None or self._unknown.get(id):
            return found
        try:
            found = await self._store.read(authentication.find_api_key, id)
        except StoreUnavailable as error:
            raise AgentUnavailable("Keys cannot be checked at the moment", retry_after=RETRY_SECONDS) from error
        if found is None:
            self._unknown.put(id, True)
        else:
            self._known.put(id, found)
        return found

    async def _note(self, id: str) -> None:
        """Note now and then that a key is in use; that it could not be noted is no reason to refuse it."""
        if self._noted.get(id):
            return
        self._noted.put(id, True)
        try:
            await self._store.do(authentication.touch_api_key, id, USED_MS)
        except StoreUnavailable as error:
            log.warning("the use of a key was not noted", extra={"key": id, "reason": str(error)})

    def _refused(self, reason: str, id: str | None = None) -> AuthenticationFailed:
        log.info("refused", extra={"scheme": self.name, "reason": reason, "key": id})
        failure = AuthenticationFailed()
        failure.challenges = (challenge("Bearer", error="invalid_token"),)
        return failure


def _built(settings: ApiKeys, ports: Ports) -> ApiKeyAccess:
    if ports.store is None:
        raise ValueError("API keys need a store")
    return ApiKeyAccess(settings, ports.store, ports.clock)


SCHEME = SchemeKind(settings=ApiKeys, build=_built)
