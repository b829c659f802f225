"""`/metrics`: what Prometheus reads.

It knows HTTP and who may look; what is on the page comes from whoever writes it. Where callers have to say who they
are, so have those who look, and they need a role that sees everything, and not in one tenant alone: the numbers are
those of all tenants together.
"""

from collections.abc import Awaitable, Callable

from accord.bindings.http import Admit, Receive, Scope, Send, error_headers, header, presented, respond
from accord.errors import AccordError, PermissionDenied

METRICS = "/metrics"

READERS = frozenset({"admin", "operator"})
"""The roles that may look."""

Write = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Returns the page in the form that an Accept header asks for, and its media type."""


class MetricsPage:
    """An ASGI application that shows the page."""

    def __init__(self, write: Write, *, admit: Admit | None = None) -> None:
        """Show what `write` returns, to those of `READERS` whom `admit` lets in, or else to everybody."""
        self._write = write
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        try:
            await self._check(scope)
        except AccordError as error:
            plain = (b"content-type", b"text/plain; charset=utf-8")
            await respond(send, error.row.http, error.message.encode(), [plain, *error_headers(error)])
            return
        page, media_type = await self._write(header(scope, b"accept") or "")
        headers = [(b"content-type", media_type.encode("latin-1")), (b"cache-control", b"no-store")]
        if scope.get("http_version", "").startswith("1"):
            # Of several processes the next look should reach another; a connection that stays open belongs to one.
            headers.append((b"connection", b"close"))
        await respond(send, 200, page, headers, head=scope["method"] == "HEAD")

    async def _check(self, scope: Scope) -> None:
        if self._admit is not None:
            caller = await self._admit(presented(scope, b""))
            if caller.roles is not None and not (caller.roles & READERS and caller.is_of_server):
                raise PermissionDenied("Your roles do not include a look at the metrics")
