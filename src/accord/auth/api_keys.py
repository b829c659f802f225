"""API keys: `ak_<id>_<secret>`, in a header of their own or as a bearer token.

The store has a SHA-256 of the secret. A slow hash is for secrets that people choose. This one has 256 random bits.
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
from accord.auth.authentication import INVALID_TOKEN, ExpiringCache, Identity, Presented, challenge, refusal
from accord.auth.scheme_settings import ApiKeys
from accord.auth.schemes import Ports, SchemeType
from accord.errors import AgentUnavailable, PermissionDenied
from accord.model import ApiKeyScheme, SecurityScheme
from accord.storage.commands import authentication
from accord.storage.commands.authentication import KEY_ID_LENGTH, MAX_KEY_GENERATIONS, StoredApiKey
from accord.storage.store import Store, StoreUnavailable

PREFIX = "ak_"
"""Prefix of every key, recognizable for people and for scanners of leaked secrets."""

KNOWN, UNKNOWN = 10_000, 10_000
"""Cache sizes for known keys and for unknown IDs. They are separate, so that guessed IDs do not evict real keys."""

USED_MS = 3600 * 1000
"""Resolution of a key's last use. A finer one would make every request a write."""

RETRY_SECONDS = 1

_KEY = re.compile(
    rf"ak_(?P<id>(?:[0-9a-f]{{{KEY_ID_LENGTH}}}){{1,{MAX_KEY_GENERATIONS}}})_(?P<secret>[A-Za-z0-9_-]{{43}})"
)
_NOBODY = hashlib.sha256(b"no key has this secret").hexdigest()

log = logging.getLogger("accord.access")


class NewSecret(NamedTuple):
    """A new key: the text that its holder gets once, its ID and the stored hash."""

    key: str
    id: str
    hash: str

    def __repr__(self) -> str:
        return f"NewSecret(id={self.id!r})"


def new_key(of: str = "") -> NewSecret:
    """Create a key, or a child key `of` another, which is invalid without its parent. The nesting is limited."""
    if len(of) >= KEY_ID_LENGTH * MAX_KEY_GENERATIONS:
        raise PermissionDenied("API keys cannot be nested any deeper: create the key with a parent of this key")
    id, secret = of + secrets.token_hex(KEY_ID_LENGTH // 2), secrets.token_urlsafe(32)
    return NewSecret(f"{PREFIX}{id}_{secret}", id, _hash(secret))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class ApiKeyAccess:
    """API key authentication with keys of the store."""

    name = "api-keys"

    def __init__(self, settings: ApiKeys, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        """Look keys up in `store`, and cache them for `remember_seconds`."""
        self._header = settings.header
        self._store = store
        self._known: ExpiringCache[str, StoredApiKey] = ExpiringCache(KNOWN, settings.remember_seconds, clock)
        self._unknown: ExpiringCache[str, bool] = ExpiringCache(UNKNOWN, settings.remember_seconds, clock)
        self._noted: ExpiringCache[str, bool] = ExpiringCache(KNOWN, USED_MS / 1000, clock)

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """The A2A scheme: a key in a header."""
        return {"apiKey": SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="header", name=self._header))}

    @property
    def challenge(self) -> str:
        """The challenge of a bearer token, because a header scheme has none."""
        return challenge("Bearer")

    async def identify(self, presented: Presented) -> Identity | None:
        """Return the holder of the request's key, or None without a key."""
        text = presented.header(self._header)
        if text is None:
            text = presented.credentials("bearer")
            if text is None or not text.startswith(PREFIX):
                return None
        match = _KEY.fullmatch(text.strip())
        if match is None:
            raise refusal(self.name, "not a key", INVALID_TOKEN, key=None)
        key = await self._find(match["id"])
        # Hash the secret for unknown IDs too, so that both refusals take the same path.
        is_right = hmac.compare_digest(_hash(match["secret"]), key.hash if key else _NOBODY)
        if key is None or not is_right:
            raise refusal(self.name, "no such key", INVALID_TOKEN, key=None)
        if not key.is_live:
            raise refusal(self.name, "revoked or expired", INVALID_TOKEN, key=key.id)
        await self._note(key.id)
        ticket = Admission(kind=self.name, id=key.id, until=key.expires_at, key_id=key.id)
        return Identity(owner=key.owner, tenant=key.tenant, roles=frozenset(key.roles), ticket=ticket)

    async def is_good(self, id: str) -> bool:
        """Whether a key exists and is neither revoked nor expired."""
        key = await self._find(id)
        return key is not None and key.is_live

    async def _find(self, id: str) -> StoredApiKey | None:
        stored_key = self._known.get(id)
        if stored_key is not None or self._unknown.get(id):
            return stored_key
        try:
            stored_key = await self._store.read(authentication.find_api_key, id)
        except StoreUnavailable as error:
            raise AgentUnavailable("Keys cannot be checked at the moment", retry_after=RETRY_SECONDS) from error
        if stored_key is None:
            self._unknown.put(id, True)
        else:
            self._known.put(id, stored_key)
        return stored_key

    async def _note(self, id: str) -> None:
        """Record the use of a key from time to time. A failure to record does not refuse the key."""
        if self._noted.get(id):
            return
        self._noted.put(id, True)
        try:
            await self._store.do(authentication.touch_api_key, id, USED_MS)
        except StoreUnavailable as error:
            log.warning("access.use_not_noted", extra={"key": id, "reason": str(error)})


def _built(settings: ApiKeys, ports: Ports) -> ApiKeyAccess:
    if ports.store is None:
        raise ValueError("API keys need a store")
    return ApiKeyAccess(settings, ports.store, ports.clock)


SCHEME = SchemeType(settings=ApiKeys, build=_built)
