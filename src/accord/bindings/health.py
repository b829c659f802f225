"""`/healthz` and `/readyz`: whether the process lives, and whether it should be sent work.

A process that cannot reach its store is alive and not ready, so an orchestrator takes it out of the balancing and does
not restart it. No agent is asked anything.
"""

from collections.abc import Awaitable, Callable

import msgspec

from accord.bindings.http import JSON, Receive, Scope, Send, respond

HEALTH, READY = "/healthz", "/readyz"

Check = Callable[[], Awaitable[str | None]]
"""Returns why something does not work, or None."""

Note = Callable[[], str | None]
"""Returns what operators must learn of something that works, or None."""


class Health:
    """An ASGI application for both addresses."""

    def __init__(self, checks: dict[str, Check], notes: dict[str, Note] | None = None) -> None:
        """Be ready when none of `checks` has a complaint; `notes` are shown and change nothing."""
        self._checks = checks
        self._notes = notes or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        head = scope["method"] == "HEAD"
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        found: dict[str, str] = {}
        if scope["path"].endswith(READY):
            found = {name: await check() or "ok" for name, check in self._checks.items()}
        is_well = all(said == "ok" for said in found.values())
        answer: dict[str, object] = {"status": "ok" if is_well else "unavailable", "checks": found}
        if found and (notes := {name: text for name, note in self._notes.items() if (text := note()) is not None}):
            answer["notes"] = notes
        body = msgspec.json.encode(answer)
        headers = [*JSON, (b"cache-control", b"no-store")]
        await respond(send, 200 if is_well else 503, body, headers, head=head)
