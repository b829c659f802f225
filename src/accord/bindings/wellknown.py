"""The well-known addresses: the agent card, for every dialect.

What the card says is made elsewhere; here it is only served.
"""

from accord.bindings.http import JSON, Receive, Scope, Send, query, respond
from accord.errors import AccordError
from accord.model import AgentCard
from accord.protocol.cards import encode_card
from accord.protocol.negotiate import ALL_DIALECTS, parse_dialect
from accord.protocol.operations import DialectName

CARD_PATHS = frozenset({"/.well-known/agent-card.json", "/.well-known/agent.json"})


class WellKnown:
    """An ASGI application that serves one agent's card."""

    def __init__(self, card: AgentCard, *, enabled: frozenset[DialectName] = ALL_DIALECTS) -> None:
        """Serve `card` in the enabled dialects."""
        self._card = card
        self._enabled = enabled
        self._public = encode_card(card, enabled)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        body = self._public
        if wished := query(scope, "dialect"):
            try:
                body = encode_card(self._card, self._enabled, parse_dialect(wished))
            except AccordError as error:
                await respond(send, 400, error.message.encode(), [(b"content-type", b"text/plain; charset=utf-8")])
                return
        await respond(send, 200, body, [*JSON, (b"vary", b"A2A-Version")])
