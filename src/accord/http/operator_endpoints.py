"""Endpoints for operators: `/healthz`, `/readyz` and `/metrics`.

A process that cannot reach its store is alive and not ready, so an orchestrator sends it no requests and does not
restart it. Metrics cover all tenants: a server with authentication shows them to operators and admins only.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from accord.errors import AccordError, PermissionDenied
from accord.http.asgi import JSON, Admit, Receive, Scope, Send, error_headers, header, presented, respond
from accord.storage import schema
from accord.storage.store import Store, StoreUnavailable

HEALTH_PATH, READY_PATH = "/healthz", "/readyz"

ReadinessCheck = Callable[[], Awaitable[str | None]]
"""Returns why a component does not work, or None."""

ReadinessNote = Callable[[], str | None]
"""Returns a note for operators about a working component, or None."""


class HealthPage:
    """An ASGI application for `/healthz` and `/readyz`."""

    def __init__(self, checks: dict[str, ReadinessCheck], notes: dict[str, ReadinessNote] | None = None) -> None:
        """Report ready while all `checks` return None; `notes` are shown and change nothing."""
        self._checks = checks
        self._notes = notes or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        head = scope["method"] == "HEAD"
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        found: dict[str, str] = {}
        if scope["path"].endswith(READY_PATH):
            found = {name: await check() or "ok" for name, check in self._checks.items()}
        is_well = all(said == "ok" for said in found.values())
        answer: dict[str, object] = {"status": "ok" if is_well else "unavailable", "checks": found}
        if found and (notes := {name: text for name, note in self._notes.items() if (text := note()) is not None}):
            answer["notes"] = notes
        body = msgspec.json.encode(answer)
        headers = [*JSON, (b"cache-control", b"no-store")]
        await respond(send, 200 if is_well else 503, body, headers, head=head)


METRICS_PATH = "/metrics"

METRICS_ROLES = frozenset({"admin", "operator"})
"""The roles that may read metrics."""

WriteMetrics = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Returns the metrics in the form that an Accept header requests, and their media type."""


class MetricsPage:
    """An ASGI application that serves the metrics."""

    def __init__(self, write: WriteMetrics, *, admit: Admit | None = None) -> None:
        """Serve the output of `write` to callers with one of `METRICS_ROLES`, or to everyone without `admit`."""
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
            # With several processes the next scrape should reach another; an open connection belongs to one process.
            headers.append((b"connection", b"close"))
        await respond(send, 200, page, headers, head=scope["method"] == "HEAD")

    async def _check(self, scope: Scope) -> None:
        if self._admit is not None:
            caller = await self._admit(presented(scope, b""))
            if caller.roles is not None and not (caller.roles & METRICS_ROLES and caller.is_of_server):
                raise PermissionDenied("Your roles do not include a look at the metrics")


STORE_SECONDS = 2.0
"""Seconds until the store counts as unavailable: health probes usually wait no longer."""


def check_store(store: Store) -> Callable[[], Awaitable[str | None]]:
    """Return a check whether the store answers."""

    async def check() -> str | None:
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await store.read(schema.schema_version)
        except (StoreUnavailable, TimeoutError):
            return "unavailable"
        return None

    return check
