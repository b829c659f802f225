"""The keys of an issuer of tokens: found by OpenID Connect discovery, kept, and asked for again when they change.

What it fetches with is a port. Whoever sends tokens can make it ask again, but only every few seconds; while the issuer
cannot be reached, the keys that are known go on being good. Verifying tokens is `core.schemes.jwt`.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from joserfc.jwk import Key
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from accord.core.schemes.ports import Fetch, NotFetched
from accord.errors import AgentUnavailable
from accord.protocol import jose

FRESH_SECONDS = 600.0
"""After that keys are asked for again, while those that are known are used."""

STALE_SECONDS = 24 * 3600.0
"""After that keys are no longer used: an issuer that cannot be reached for a day may have withdrawn them."""

AGAIN_SECONDS = 10.0
"""Between two questions to an issuer, whatever tokens name."""

FETCH_SECONDS = 30.0
MAX_BYTES = 1024 * 1024

log = logging.getLogger("accord.access")


class _Discovered(Struct):
    issuer: str
    jwks_uri: str


_discovered = Decoder(_Discovered)


def discovery_url(issuer: str) -> str:
    """Return where an issuer describes itself (OpenID Connect Discovery 1.0, 4)."""
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration"


class Jwks:
    """The keys of one issuer."""

    def __init__(
        self, fetch: Fetch, issuer: str, url: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Find the keys of `issuer`, at `url` if that is known."""
        self._fetch = fetch
        self._issuer = issuer
        self._url = url
        self._clock = clock
        self._keys: tuple[Key, ...] = ()
        self._loaded_at = self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def find(self, alg: str, kid: str | None) -> Key | None:
        """Return the key that may verify a signature, or raise AgentUnavailable if no keys can be had."""
        age = self._clock() - self._loaded_at
        if age >= STALE_SECONDS:
            await self._ask()
        elif age >= FRESH_SECONDS:
            self._begin()
        found = jose.find_key(self._usable(), alg, kid)
        if found is None:  # the issuer may have a new key
            await self._ask()
            found = jose.find_key(self._usable(), alg, kid)
        return found

    def _usable(self) -> tuple[Key, ...]:
        if self._clock() - self._loaded_at >= STALE_SECONDS:
            raise AgentUnavailable("Tokens cannot be verified at the moment", retry_after=int(AGAIN_SECONDS))
        return self._keys

    async def _ask(self) -> None:
        """Wait for an answer to a question that is being asked, or may be asked now."""
        asking = self._begin()
        if asking is not None:
            await asyncio.shield(asking)  # others wait for it too, and go on if this caller goes away

    def _begin(self) -> asyncio.Task[None] | None:
        now = self._clock()
        if self._asking is None and now - self._asked_at >= AGAIN_SECONDS:
            self._asked_at = now
            self._asking = asyncio.create_task(self._load(), name="jwks")
        return self._asking

    async def _load(self) -> None:
        try:
            self._keys, self._loaded_at = await self.read(), self._clock()
        except (NotFetched, OSError, jose.BadSignature) as error:
            log.warning("an issuer's keys could not be read", extra={"issuer": self._issuer, "reason": str(error)})
        finally:
            self._asking = None

    async def read(self) -> tuple[Key, ...]:
        """Ask for the keys, and return them or raise why there are none: NotFetched, an OSError or BadSignature."""
        async with asyncio.timeout(FETCH_SECONDS):
            keys = jose.read_keys(await self._read(self._url or await self._discover()))
        if not keys:
            raise NotFetched("There is no key in it that can verify signatures")
        return keys

    async def _discover(self) -> str:
        try:
            found = _discovered.decode(await self._read(discovery_url(self._issuer)))
        except (MsgspecError, UnicodeDecodeError, RecursionError):
            raise NotFetched("The issuer's description of itself is not readable") from None
        if found.issuer != self._issuer:
            raise NotFetched("The issuer calls itself something else")
        if urlsplit(found.jwks_uri).scheme not in ("https", urlsplit(self._issuer).scheme):
            raise NotFetched("The issuer's keys would be read over a less safe connection than the issuer's own")
        return found.jwks_uri

    async def _read(self, url: str) -> bytes:
        data = await self._fetch(url)
        if len(data) > MAX_BYTES:
            raise NotFetched("The answer is too large")
        return data
