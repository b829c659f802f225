"""The well-known addresses: the agent card, for every dialect, with what caches need.

What the card says is made elsewhere, but for one thing: a server that is known only by a local address is given the
name that its caller used, because clients refuse a card that points to another origin than its own.
"""

from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from msgspec.structs import replace

from accord.bindings.http import JSON, Headers, Receive, Scope, Send, authority, not_modified, query, respond
from accord.errors import AccordError
from accord.model import AgentCard
from accord.protocol.cards import encode_card
from accord.protocol.negotiate import ALL_DIALECTS, not_enabled, parse_dialect
from accord.protocol.operations import DialectName

CARD_PATHS = frozenset({"/.well-known/agent-card.json", "/.well-known/agent.json"})

MAX_AGE_SECONDS = 60
"""How long a card may be used unasked: it changes only when the server is started anew, and then soon matters."""

MAX_VARIANTS = 64
"""How many written cards are kept: the dialects times a few names of the host, which callers choose."""


class Variant(NamedTuple):
    """A card as it is sent, and the hash that names exactly these bytes."""

    body: bytes
    etag: str


class WellKnown:
    """An ASGI application that serves one agent's card."""

    def __init__(
        self,
        card: AgentCard,
        *,
        enabled: frozenset[DialectName] = ALL_DIALECTS,
        modified: datetime | None = None,
    ) -> None:
        """Serve `card`, which is as it is since `modified`, or else since now, in the enabled dialects."""
        self._card = card
        self._enabled = enabled
        self._modified = (modified or datetime.now(UTC)).astimezone(UTC)
        self._own = _local_origin(card)
        self._variant = lru_cache(MAX_VARIANTS)(self._write)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        head = scope["method"] == "HEAD"
        try:
            body, etag = self._variant(self._wish(scope), self._origin(scope))
        except AccordError as error:
            plain = [(b"content-type", b"text/plain; charset=utf-8")]
            await respond(send, 400, error.message.encode(), plain, head=head)
            return
        caching: Headers = [
            (b"cache-control", b"public, max-age=%d" % MAX_AGE_SECONDS),
            (b"etag", etag.encode()),
            (b"vary", b"A2A-Version"),
        ]
        if not_modified(scope, etag, self._modified):
            await respond(send, 304, b"", caching)
            return
        last = (b"last-modified", format_datetime(self._modified, usegmt=True).encode())
        await respond(send, 200, body, [*JSON, *caching, last], head=head)

    def _wish(self, scope: Scope) -> DialectName | None:
        wished = query(scope, "dialect")
        if not wished:
            return None
        dialect = parse_dialect(wished)
        if dialect not in self._enabled:
            raise not_enabled(dialect, self._enabled)
        return dialect

    def _origin(self, scope: Scope) -> str | None:
        """Return the origin that the caller used, where the card has none of its own."""
        host = authority(scope) if self._own else None
        return f"{'https' if scope.get('scheme') == 'https' else 'http'}://{host}" if host else None

    def _write(self, dialect: DialectName | None, origin: str | None) -> Variant:
        card = _moved(self._card, self._own, origin) if self._own and origin else self._card
        body = encode_card(card, self._enabled, dialect)
        return Variant(body, f'"{sha256(body).hexdigest()[:32]}"')


def _local_origin(card: AgentCard) -> str | None:
    """Return the origin of the card's first interface, if nobody but this machine can use it."""
    first = urlsplit(card.supported_interfaces[0].url if card.supported_interfaces else "")
    return _origin_of(first) if first.scheme in ("http", "https") and _is_local(first.hostname or "") else None


def _is_local(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def _moved(card: AgentCard, own: str, origin: str) -> AgentCard:
    """Return the card with the interfaces of one origin at another."""
    interfaces = tuple(
        replace(interface, url=origin + interface.url[len(own) :])
        if _origin_of(urlsplit(interface.url)) == own
        else interface
        for interface in card.supported_interfaces
    )
    return replace(card, supported_interfaces=interfaces)


def _origin_of(url: SplitResult) -> str:
    return f"{url.scheme}://{url.netloc}"
