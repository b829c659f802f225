"""The well-known addresses: the agent card, for every dialect, and the catalog of a host's agents.

What they say is made elsewhere, but for one thing: a server that is known only by a local address is given the name
that its caller used (`bindings.origins`).
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from accord.bindings import origins
from accord.bindings.http import Document, Receive, Scope, Send, publish, query, respond
from accord.errors import AccordError
from accord.model import AgentCard
from accord.protocol.cards import CATALOG_TYPE, encode_card, encode_catalog
from accord.protocol.negotiation import ALL_DIALECTS, not_enabled, parse_dialect
from accord.protocol.operations import DialectName

CARD_PATH = "/.well-known/agent-card.json"
CARD_PATHS = frozenset({CARD_PATH, "/.well-known/agent.json"})
CATALOG_PATH = "/.well-known/ai-catalog.json"

MAX_VARIANTS = 64
"""How many written documents are kept: the dialects times a few names of the host, which callers choose."""

REMEMBER_SECONDS = 5.0
"""How long the catalog goes without asking which agents were published: anybody may read it, so that costs little."""

Sign = Callable[[bytes], bytes]
"""Adds signatures to a written card."""

Published = Callable[[], Awaitable[Mapping[str, AgentCard]]]
"""Returns the cards of agents that are elsewhere, by the URLs at which their cards can be read here."""


class WellKnown:
    """An ASGI application that serves one agent's card."""

    def __init__(
        self,
        card: AgentCard,
        *,
        enabled: frozenset[DialectName] = ALL_DIALECTS,
        modified: datetime | None = None,
        sign: Sign | None = None,
    ) -> None:
        """Serve `card`, which is as it is since `modified`, or else since now, in the enabled dialects.

        What speaks A2A 1.0 is given to `sign` as it is written, because a signature holds for one document only. It
        vouches for the addresses on it, so a card that was moved to a host that only its caller names has none.
        """
        self._card = card
        self._enabled = enabled
        self._modified = (modified or datetime.now(UTC)).astimezone(UTC)
        self._sign = sign
        self._is_local = origins.is_local(card)
        self._variant = lru_cache(MAX_VARIANTS)(self._write)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        try:
            variant = self._variant(self._wish(scope), origins.asked(scope) if self._is_local else None)
        except AccordError as error:
            plain = [(b"content-type", b"text/plain; charset=utf-8")]
            await respond(send, 400, error.message.encode(), plain, head=scope["method"] == "HEAD")
            return
        await publish(scope, send, variant)

    def _wish(self, scope: Scope) -> DialectName | None:
        wished = query(scope, "dialect")
        if not wished:
            return None
        dialect = parse_dialect(wished)
        if dialect not in self._enabled:
            raise not_enabled(dialect, self._enabled)
        return dialect

    def _write(self, dialect: DialectName | None, origin: str | None) -> Document:
        body = encode_card(origins.moved(self._card, origin), self._enabled, dialect)
        speaks_1_0 = DialectName.V1 in (dialect, *(self._enabled if dialect is None else ()))
        is_ours = speaks_1_0 and origins.is_own(self._card, origin)
        signed = self._sign(body) if self._sign and is_ours else body
        return Document.of(signed, self._modified, [(b"vary", b"A2A-Version")])


class Catalog:
    """An ASGI application that lists the agents of a host, for those who look for one among many."""

    def __init__(
        self,
        cards: Mapping[str, AgentCard],
        *,
        modified: datetime | None = None,
        published: Published | None = None,
    ) -> None:
        """List the agents whose cards are served at these URLs, as they are since `modified`, or else since now.

        `published` finds others that come and go; they are asked for again after `REMEMBER_SECONDS`.
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
        if self._published is not None and time.monotonic() - self._asked_at >= REMEMBER_SECONDS:
            await self._renew(self._published)
        await publish(scope, send, self._variant(origins.asked(scope)))

    async def _renew(self, published: Published) -> None:
        self._asked_at = time.monotonic()
        cards = {**self._own, **await published()}
        if cards != self._cards:
            self._cards, self._modified = cards, datetime.now(UTC)
            self._variant.cache_clear()

    def _write(self, origin: str | None) -> Document:
        cards = {origins.at(url, origin): card for url, card in self._cards.items()}
        # Crawlers and pages of any origin may read it: it holds nothing that is not public.
        anyone = [(b"access-control-allow-origin", b"*")]
        return Document.of(encode_catalog(cards), self._modified, anyone, CATALOG_TYPE)
