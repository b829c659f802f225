"""Where people come in and go out: sessions begun and ended in a browser, whichever way somebody signs in.

It sets cookies, takes notes for the audit log and counts attempts; it knows no credentials. The routes of the two kinds
of ways are `console.entry.api` and `console.entry.issuers`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from accord.a2a import Caller
from accord.auth.audit import OK, Audit, entry
from accord.auth.authentication import Access, Presented
from accord.auth.rate_limits import Bucket
from accord.bindings.http import Admit, Headers, Scope, address_of
from accord.console.entry.cookies import SESSION
from accord.console.entry.sessions import Sessions
from accord.console.entry.ways import Ways
from accord.errors import RateLimited

if TYPE_CHECKING:
    from accord.console.entry.oidc import Issuer

ATTEMPT_RATE, ATTEMPT_BURST = 1 / 6, 10
"""Attempts a second of one address, and at once: enough for somebody who mistypes, nothing for somebody who guesses."""


class Door:
    """Lets people in and out."""

    def __init__(
        self,
        access: Access,
        admit: Admit,
        sessions: Sessions,
        ways: Ways,
        issuers: "Mapping[str, Issuer]",
        audit: Audit,
    ) -> None:
        """Keep `sessions` of those whom `admit`, which somebody watches, or one of the `issuers` vouches for."""
        self.is_open = access.is_open
        self.admit = admit
        self.ways = ways
        self.issuers = issuers
        self.audit = audit
        self._sessions = sessions
        self._attempts = Bucket(ATTEMPT_RATE, ATTEMPT_BURST)

    def count(self, scope: Scope) -> None:
        """Count an attempt, and refuse it if there were too many from its address."""
        if wait := self._attempts.take(address_of(scope)):
            again = max(1, round(wait))
            raise RateLimited("Too many attempts to sign in", retry_after=again, metadata={"limit": "attempts"})

    async def begin(self, caller: Caller, scope: Scope, **ground: Any) -> Headers:
        """Begin a session, always a new one, and end that which the browser had; return how its cookie is set."""
        await self._end(scope)
        token = await self._sessions.begin(caller, **ground)
        self._note("SignIn", caller)
        return SESSION.set(token, is_secure(scope), self._sessions.seconds)

    async def end(self, caller: Caller | None, scope: Scope) -> Headers:
        """End a browser's session, and return how its cookie is taken back."""
        await self._end(scope)
        if caller is not None:
            self._note("SignOut", caller)
        return SESSION.clear(is_secure(scope))

    async def _end(self, scope: Scope) -> None:
        token = SESSION.read(brought(scope))
        if token is not None:
            await self._sessions.end(token)

    def _note(self, operation: str, caller: Caller) -> None:
        if self.audit.is_on:
            self.audit.note(entry(operation, caller, "", None, OK, self.audit.now_ms()))


def brought(scope: Scope, headers: Headers | None = None) -> Presented:
    """Return what a request brings, or what it says in other headers."""
    client = scope.get("client")
    return Presented(
        headers=scope["headers"] if headers is None else headers,
        target=scope["path"],
        peer=client[0] if client else "",
        secure=is_secure(scope),
    )


def is_secure(scope: Scope) -> bool:
    """Whether a request came over TLS."""
    return scope.get("scheme") == "https"
