"""Agent cards: fetched, cached and verified.

`agent-card.json` is tried first, then `agent.json`, then the host's catalog. A card is read in any dialect and
cached as HTTP defines (RFC 9111). It is checked against pinned keys and for addresses that its host may not name
(`interfaces`).
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urljoin, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.client.exchange import HttpExchange
from accord.client.interfaces import (
    CardFinding,
    CardHostTrust,
    describe_findings,
    keep_usable_interfaces,
    with_home_interface,
)
from accord.client.retries import Retries
from accord.errors import AccordError, AgentUnavailable, AuthenticationFailed, PermissionDenied, RateLimited
from accord.model import AgentCard, CardProfile
from accord.outbound import TIMEOUT_SECONDS, HttpReply, HttpRequest, Unreachable, read_retry_after
from accord.protocol.cards import CARD_TYPE, CATALOG_TYPE, decode_card, encode_card
from accord.protocol.operations import DialectName

if TYPE_CHECKING:
    from joserfc.jwk import Key

    from accord.protocol.card_signatures import VerifiedCard


MAX_CARDS = 256
"""Maximum number of cached documents. The least recently used is removed first."""

MAX_AGE_SECONDS = 24 * 3600.0
"""Maximum age of a cached document, in seconds, even if its server allows more: agents move."""

_MAX_AGE = re.compile(r"max-age\s*=\s*\"?(\d{1,9})\"?", re.IGNORECASE)


class CachedCard(Struct, frozen=True, kw_only=True):
    """A document with its server's validators. `fresh_until` is a time of the clock that stored it."""

    body: bytes
    etag: str | None
    modified: str | None
    fresh_until: float

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        """The headers of a conditional request."""
        validators = (("If-None-Match", self.etag), ("If-Modified-Since", None if self.etag else self.modified))
        return tuple((name, value) for name, value in validators if value)


class CardCache:
    """Documents by address."""

    def __init__(self) -> None:
        self._documents: OrderedDict[str, CachedCard] = OrderedDict()

    def get(self, url: str) -> CachedCard | None:
        """Return the cached document of an address, fresh or not."""
        cached = self._documents.get(url)
        if cached is not None:
            self._documents.move_to_end(url)
        return cached

    def clear(self) -> None:
        """Remove all documents."""
        self._documents.clear()

    def put(self, url: str, body: bytes, headers: Mapping[str, str], now: float) -> None:
        """Store a fetched or revalidated document, or remove it if it may not be cached."""
        directives = headers.get("Cache-Control", "").lower()
        etag, modified = headers.get("ETag"), headers.get("Last-Modified")
        fresh = _fresh_seconds(directives)
        if "no-store" in directives or not (fresh or etag or modified):
            self._documents.pop(url, None)
            return
        self._documents[url] = CachedCard(body=body, etag=etag, modified=modified, fresh_until=now + fresh)
        self._documents.move_to_end(url)
        while len(self._documents) > MAX_CARDS:
            self._documents.popitem(last=False)


def _fresh_seconds(directives: str) -> float:
    """Return how long a document is fresh, in seconds. Without a `max-age` it is revalidated each time."""
    max_age = _MAX_AGE.search(directives)
    if max_age is None or "no-cache" in directives:
        return 0.0
    return min(float(max_age[1]), MAX_AGE_SECONDS)


WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Paths of cards: since A2A 0.3, and before."""

CATALOG = "/.well-known/ai-catalog.json"
MAX_CARD_BYTES = 1024 * 1024
MAX_REDIRECTS = 3

_ACCEPT = ("Accept", f"application/json, {CARD_TYPE}, {CATALOG_TYPE}")

CARD_RETRIES = Retries(attempts=2)
"""A caller waits for the discovery, so a failure must be reported within a second."""


class CardNotFound(Exception):
    """No card was found. `tried` maps each address to its result."""

    def __init__(self, target: str, tried: Mapping[str, str]) -> None:
        answers = "; ".join(f"{url}: {answer}" for url, answer in tried.items())
        super().__init__(f"No agent card at {target} ({answers})")
        self.tried = dict(tried)


class NoSuchAgent(CardNotFound):
    """No such agent exists, according to the registry. A retry does not help."""


class BadCard(Exception):
    """A card was found, but is not usable. `findings` contains the reasons."""

    def __init__(self, url: str, findings: Iterable[CardFinding]) -> None:
        self.url = url
        self.findings = tuple(findings)
        super().__init__(f"The agent card at {url} cannot be used: {'; '.join(describe_findings(self.findings))}")


class DiscoveredCard(Struct, frozen=True, kw_only=True):
    """A card, its address, the findings about it, and the name of the pinned key that signed it."""

    card: AgentCard
    url: str
    document: bytes
    findings: tuple[CardFinding, ...] = ()
    signed_by: str | None = None


class Discovery:
    """Fetches cards."""

    def __init__(
        self,
        exchange: HttpExchange,
        *,
        cache: CardCache,
        headers: Iterable[tuple[str, str]] = (),
        allow_hosts: Iterable[str] = (),
        keys: Iterable["Key"] | None = None,
        seconds: float | None = TIMEOUT_SECONDS,
    ) -> None:
        """Fetch with these headers. With `keys`, only a card signed with one of them is accepted."""
        self._exchange = exchange
        self._foreign_exchange = HttpExchange(exchange.transport)
        self._cache = cache
        self._headers = tuple(headers)
        self._trust = CardHostTrust(allow_hosts=frozenset(allow_hosts))
        self._keys = None if keys is None else tuple(keys)
        self._seconds = seconds

    async def find(self, target: str) -> DiscoveredCard:
        """Return the card of the agent at an address: its base, its endpoint, or the card's own.

        A card at the host's root counts only if it names the requested address.
        """
        target = target.partition("#")[0]
        try:
            parts = urlsplit(target)
        except ValueError as error:
            raise CardNotFound(target, {target: f"an invalid address: {error}"}) from None
        if parts.path.endswith(".json"):
            return self._read(target, *await self._fetch_document(target))
        tried: dict[str, str] = {}
        base, origin = target.partition("?")[0].rstrip("/"), f"{parts.scheme}://{parts.netloc}"
        for place in dict.fromkeys((base, origin)):
            for path in WELL_KNOWN:
                if (fetched := await self._fetch_json(place + path, tried)) is not None:
                    discovered = self._read(*fetched)
                    if place == base or _names(discovered.card, base):
                        return discovered
                    tried[place + path] = "a card of another agent"
        if (listed := await self._find_in_catalog(origin, base, tried)) is not None:
            return self._read(listed, *await self._fetch_document(listed))
        raise CardNotFound(target, tried)

    async def _fetch_json(self, url: str, tried: dict[str, str]) -> tuple[str, str, bytes] | None:
        """Return a JSON document with its requested and final address, or record the failure."""
        try:
            served, body = await self._fetch_document(url)
        except CardNotFound as error:
            tried.update(error.tried)
            return None
        if not body.lstrip().startswith(b"{"):
            tried[url] = "no JSON object"  # a page for every address, as web applications serve
            return None
        return url, served, body

    async def listed(self, origin: str) -> tuple[str, ...]:
        """Return the addresses of the cards in a host's catalog. Empty if it has no catalog."""
        return tuple(url for _, url in await self._catalog(origin, {}) or ())

    async def _catalog(self, origin: str, tried: dict[str, str]) -> list[tuple[str, str]] | None:
        """Return the names and addresses of a catalog's cards, or record the failure."""
        fetched = await self._fetch_json(origin + CATALOG, tried)
        if fetched is None:
            return None
        try:
            entries = [entry for entry in _catalog.decode(fetched[2]).entries if entry.type == CARD_TYPE and entry.url]
            return [(entry.display_name, urljoin(fetched[1], entry.url or "")) for entry in entries]
        except (msgspec.MsgspecError, ValueError):  # not a catalog, or an invalid address in it
            tried[origin + CATALOG] = "no catalog"
            return None

    async def _find_in_catalog(self, origin: str, base: str, tried: dict[str, str]) -> str | None:
        """Return the address of the matching card in the host's catalog, if there is exactly one."""
        entries = await self._catalog(origin, tried)
        if entries is None:
            return None
        cards = [url for _, url in entries]
        below = [url for url in cards if base != origin and url.startswith(f"{base}/")]
        if len(chosen := below or (cards if base == origin else [])) == 1:
            return chosen[0]
        names = ", ".join(f"{name} ({url})" for name, url in entries)
        tried[origin + CATALOG] = f"a catalog of {len(cards)} agents, ask for one of them: {names}"
        return None

    # --- fetching -------------------------------------------------------------------------------------------------

    async def _fetch_document(self, url: str) -> tuple[str, bytes]:
        """Return the final address of a document, and the document. Raises `CardNotFound` if it is missing."""
        at = url
        for _ in range(MAX_REDIRECTS + 1):
            kept, now = self._cache.get(at), time.monotonic()
            if kept is not None and now < kept.fresh_until:
                return at, kept.body
            is_home = urlsplit(at)[:2] == urlsplit(url)[:2]
            reply = await self._fetch(at, () if kept is None else kept.conditions, is_home=is_home)
            if reply.status == 304 and kept is not None:
                self._cache.put(at, kept.body, _confirmed(reply.headers, kept.etag, kept.modified), now)
                return at, kept.body
            if reply.status == 200:
                self._cache.put(at, reply.body, reply.headers, now)
                return at, reply.body
            if reply.status not in (301, 302, 303, 307, 308) or "Location" not in reply.headers:
                _refuse(url, reply)
            at = _redirected(url, at, reply.headers["Location"])
        raise CardNotFound(url, {url: "too many redirects"})

    async def _fetch(self, url: str, conditions: tuple[tuple[str, str], ...], *, is_home: bool) -> HttpReply:
        attempt = 0
        while True:
            error: Exception
            try:
                reply = await self._send(url, conditions, is_home)
                if reply.status not in (429, 500, 502, 503, 504):
                    return reply
                error = _transient_error(reply)
            except Unreachable as unreachable:
                error = unreachable
            delay = CARD_RETRIES.delay(attempt, error) if attempt < CARD_RETRIES.attempts else None
            if delay is None:
                raise error
            attempt += 1
            await asyncio.sleep(delay)

    async def _send(self, url: str, conditions: tuple[tuple[str, str], ...], is_home: bool) -> HttpReply:
        """Send one request. Extra headers and credentials are sent to the requested host, not to a redirect's host."""
        own = self._headers if is_home else ()
        request = HttpRequest(method="GET", url=url, headers=(_ACCEPT, *own, *conditions), seconds=self._seconds)
        return await (self._exchange if is_home else self._foreign_exchange).fetch(request)

    # --- reading --------------------------------------------------------------------------------------------------

    def _read(self, url: str, served: str, document: bytes) -> DiscoveredCard:
        if len(document) > MAX_CARD_BYTES:
            raise BadCard(url, [CardFinding(where="", what=f"It is larger than {MAX_CARD_BYTES} bytes")])
        signed_by = None
        if self._keys is not None:
            verified = _verified(url, document, self._keys)
            signed_by, document = verified.key, verified.document
        decoded = _decoded(url, document)
        if not decoded.supported_interfaces and b'"supportedInterfaces"' not in document:
            decoded = with_home_interface(decoded, served)
        card, findings = keep_usable_interfaces(decoded, served, replace(self._trust, is_signed=signed_by is not None))
        if not card.supported_interfaces:
            no_address = CardFinding(where="supportedInterfaces", what="There is no address that may be used")
            raise BadCard(url, (*findings, no_address))
        return DiscoveredCard(card=card, url=served, document=document, findings=findings, signed_by=signed_by)


def discover_given_card(card: AgentCard, keys: Iterable["Key"] | None = None) -> DiscoveredCard:
    """Return a card that the caller supplies. Its addresses are trusted, but pinned keys must have signed it."""
    document = encode_card(card, frozenset({DialectName.V1}))
    if keys is None:
        return DiscoveredCard(card=card, url="", document=document)
    verified = _verified(card.name, document, keys)
    covered = _decoded(card.name, verified.document)
    if card.profile is not None:  # the name comes from the caller, not from the signer
        covered = replace(covered, profile=CardProfile(human_readable_id=card.profile.human_readable_id))
    return DiscoveredCard(card=covered, url="", document=verified.document, signed_by=verified.key)


def _decoded(url: str, document: bytes) -> AgentCard:
    try:
        return decode_card(document)
    except AccordError as error:
        named = [CardFinding(where=one.field, what=one.description) for one in error.violations]
        raise BadCard(url, named or [CardFinding(where="", what=error.message)]) from error


def _verified(url: str, document: bytes, keys: Iterable["Key"]) -> "VerifiedCard":
    """Return the signed part of a card, which is the only part used when keys are pinned."""
    from accord.protocol.card_signatures import UntrustedCard, verify_card

    try:
        return verify_card(document, keys, time.time())
    except UntrustedCard as error:
        raise BadCard(url, [CardFinding(where="signatures", what=str(error))]) from error


def read_pinned_keys(stated: Any) -> tuple["Key", ...]:
    """Return the keys in a JWK, a JWK set (as data or JSON) or a list of keys. Raises ValueError for other values."""
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry, Key

    if isinstance(stated, Key):
        return (stated,)
    try:
        plain = msgspec.json.decode(stated) if isinstance(stated, str | bytes) else stated
        if isinstance(plain, Mapping):
            plain = plain.get("keys", [plain])
        return tuple(one if isinstance(one, Key) else JWKRegistry.import_key(dict(one)) for one in plain)
    except (msgspec.MsgspecError, JoseError, ValueError, TypeError, KeyError) as error:
        raise ValueError("The keys that verify cards must be JSON Web Keys") from error


class _Entry(Struct, rename="camel"):
    url: str | None = None
    type: str | None = None
    display_name: str = ""


class _Catalog(Struct):
    entries: list[_Entry] = []


_catalog = msgspec.json.Decoder(_Catalog)


def _names(card: AgentCard, base: str) -> bool:
    """Whether a card names the requested address."""
    return any(interface.url.rstrip("/") == base for interface in card.supported_interfaces)


def _redirected(asked: str, at: str, location: str) -> str:
    try:
        to = urljoin(at, location)
        before, after = urlsplit(at), urlsplit(to)
    except ValueError:
        raise CardNotFound(asked, {asked: "a redirect to an invalid address"}) from None
    if after.scheme not in ("http", "https") or (before.scheme == "https" and after.scheme == "http"):
        raise CardNotFound(asked, {asked: "a redirect that leaves https"})
    return to


def _confirmed(headers: Mapping[str, str], etag: str | None, modified: str | None) -> dict[str, str]:
    """Return the cache headers of a 304, with the document's own validators where they are missing."""
    validators = {"ETag": etag, "Last-Modified": modified, "Cache-Control": None}
    merged = {name: headers.get(name) or before for name, before in validators.items()}
    return {name: value for name, value in merged.items() if value}


def _transient_error(reply: HttpReply) -> AccordError:
    kind = RateLimited if reply.status == 429 else AgentUnavailable
    return kind(f"The agent's card cannot be read: HTTP {reply.status}", retry_after=read_retry_after(reply.headers))


def _refuse(url: str, reply: HttpReply) -> NoReturn:
    if reply.status == 401:
        raise AuthenticationFailed("The agent's card requires authentication")
    if reply.status == 403:
        raise PermissionDenied("The agent's card may not be read with these credentials")
    raise CardNotFound(url, {url: f"HTTP {reply.status}"})
