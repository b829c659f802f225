"""Agent cards and the catalog over HTTP, with the addresses that callers use.

A server whose only configured address is local substitutes the origin of the request. Clients refuse a card that points
to another origin than its own. A public address from the settings is never changed.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import SplitResult

from msgspec.structs import replace

from accord.errors import AccordError
from accord.http.asgi import CachedDocument, Receive, Scope, Send, authority, query, respond, respond_with_document
from accord.model import AgentCard
from accord.protocol import urls
from accord.protocol.cards import CATALOG_TYPE, encode_card, encode_catalog
from accord.protocol.negotiation import ALL_DIALECTS, not_enabled, parse_dialect
from accord.protocol.operations import DialectName

_PORTS = {"http": 80, "https": 443}


def request_origin(scope: Scope) -> str | None:
    """Return the origin that the caller used, if stated, with the path at which the host is mounted."""
    host = authority(scope)
    scheme = "https" if scope.get("scheme") == "https" else "http"
    return f"{scheme}://{host}{scope.get('accord.mount', '')}" if host else None


def is_local_card(card: AgentCard) -> bool:
    """Whether a card's address is reachable only from this machine."""
    return bool(card.supported_interfaces) and urls.is_this_machine(urls.host_of(card.supported_interfaces[0].url))


def is_own_origin(card: AgentCard, origin: str | None) -> bool:
    """Whether a card that is moved to `origin` has addresses of this server, not ones that the caller invented.

    For a local card these are names of this machine, at the port of this server. Another port may belong to another
    program.
    """
    if origin is None or not is_local_card(card):
        return True
    own, asked = urls.split_url(card.supported_interfaces[0].url), urls.split_url(origin)
    return urls.is_loopback(asked.hostname or "") and _port(asked) == _port(own)


def card_at_origin(card: AgentCard, origin: str | None) -> AgentCard:
    """Return a local card with its host's addresses moved to `origin`; gRPC keeps its own port.

    A changed card has no signatures, because they hold only for the signed card.
    """
    if origin is None or not is_local_card(card):
        return card
    own = urls.split_url(card.supported_interfaces[0].url)
    interfaces = tuple(
        replace(found, url=url_at_origin(found.url, origin)) if _is_beside(urls.split_url(found.url), own) else found
        for found in card.supported_interfaces
    )
    signatures = card.signatures if interfaces == card.supported_interfaces else ()
    return replace(card, supported_interfaces=interfaces, signatures=signatures)


def url_at_origin(url: str, origin: str | None) -> str:
    """Return a local URL moved to an origin; a gRPC address, which has no scheme, keeps its port."""
    parts = urls.split_url(url)
    if origin is None or not urls.is_this_machine(parts.hostname or ""):
        return url
    if parts.scheme:
        return origin + url.removeprefix(f"{parts.scheme}://{parts.netloc}")
    host = urls.host_of(origin)
    return f"{f'[{host}]' if ':' in host else host}:{parts.port}"


def _is_beside(url: SplitResult, own: SplitResult) -> bool:
    """Whether a URL has the same origin as another, or the same host name and no scheme."""
    return url[:2] == own[:2] or (not url.scheme and url.hostname == own.hostname)


def _port(url: SplitResult) -> int | None:
    return url.port or _PORTS.get(url.scheme)


CARD_PATH = "/.well-known/agent-card.json"
CARD_PATHS = frozenset({CARD_PATH, "/.well-known/agent.json"})
CATALOG_PATH = "/.well-known/ai-catalog.json"

MAX_VARIANTS = 64
"""Number of cached documents: the dialects times a few host names, which callers choose."""

CATALOG_SECONDS = 5.0
"""Seconds for which published agents are cached. Anyone may read the catalog, so a request must cost little."""

SignCard = Callable[[bytes], bytes]
"""Adds signatures to a written card."""

FindPublished = Callable[[], Awaitable[Mapping[str, AgentCard]]]
"""Returns the cards of published remote agents, by the URLs at which this server serves the cards."""


class CardPage:
    """An ASGI application that serves one agent's card."""

    def __init__(
        self,
        card: AgentCard,
        *,
        enabled: frozenset[DialectName] = ALL_DIALECTS,
        modified: datetime | None = None,
        sign: SignCard | None = None,
    ) -> None:
        """Serve `card` in the enabled dialects, with `modified` (default: now) as its time of change.

        `sign` signs each encoded A2A 1.0 card, because a signature holds for one document only. A signature vouches for
        the card's addresses, so a card moved to a host that only its caller names has none.
        """
        self._card = card
        self._enabled = enabled
        self._modified = (modified or datetime.now(UTC)).astimezone(UTC)
        self._sign = sign
        self._is_local = is_local_card(card)
        self._variant = lru_cache(MAX_VARIANTS)(self._write)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        try:
            variant = self._variant(self._wish(scope), request_origin(scope) if self._is_local else None)
        except AccordError as error:
            plain = [(b"content-type", b"text/plain; charset=utf-8")]
            await respond(send, 400, error.message.encode(), plain, head=scope["method"] == "HEAD")
            return
        await respond_with_document(scope, send, variant)

    def _wish(self, scope: Scope) -> DialectName | None:
        wished = query(scope, "dialect")
        if not wished:
            return None
        dialect = parse_dialect(wished)
        if dialect not in self._enabled:
            raise not_enabled(dialect, self._enabled)
        return dialect

    def _write(self, dialect: DialectName | None, origin: str | None) -> CachedDocument:
        body = encode_card(card_at_origin(self._card, origin), self._enabled, dialect)
        speaks_1_0 = DialectName.V1 in (dialect, *(self._enabled if dialect is None else ()))
        is_ours = speaks_1_0 and is_own_origin(self._card, origin)
        signed = self._sign(body) if self._sign and is_ours else body
        return CachedDocument.of(signed, self._modified, [(b"vary", b"A2A-Version")])


class CatalogPage:
    """An ASGI application that lists the agents of a host, for discovery."""

    def __init__(
        self,
        cards: Mapping[str, AgentCard],
        *,
        modified: datetime | None = None,
        published: FindPublished | None = None,
    ) -> None:
        """List the agents whose cards are served at these URLs, with `modified` (default: now) as the time of change.

        `published` returns further agents, which come and go. It is called again after `CATALOG_SECONDS`.
        """
        self._own = self._cards = cards
        self._modified = (modified or datetime.now(UTC)).astimezone(UTC)
        self._published = published
        self._asked_at = float("-inf")
        self._variant = lru_cache(MAX_VARIANTS)(self._write)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        if self._published is not None and time.monotonic() - self._asked_at >= CATALOG_SECONDS:
            await self._renew(self._published)
        await respond_with_document(scope, send, self._variant(request_origin(scope)))

    async def _renew(self, published: FindPublished) -> None:
        self._asked_at = time.monotonic()
        cards = {**self._own, **await published()}
        if cards != self._cards:
            self._cards, self._modified = cards, datetime.now(UTC)
            self._variant.cache_clear()

    def _write(self, origin: str | None) -> CachedDocument:
        cards = {url_at_origin(url, origin): card for url, card in self._cards.items()}
        # Crawlers and pages of any origin may read it: it contains only public data.
        anyone = [(b"access-control-allow-origin", b"*")]
        return CachedDocument.of(encode_catalog(cards), self._modified, anyone, CATALOG_TYPE)
