"""Signing in at an issuer over HTTP: a browser leaves by `/api/session/oidc/NAME` and comes back to its `callback`.

It sends browsers about and never anywhere but to the issuer and to pages of the console. The flow itself is
`console.entry.oidc`.
"""

import logging
import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from accord.a2a import Caller
from accord.auth.authentication import Identity
from accord.auth.schemes import FetchError
from accord.bindings import origins
from accord.bindings.http import Scope
from accord.console.entry.cookies import PENDING
from accord.console.entry.door import Door, brought, is_secure
from accord.console.entry.pending import Pending
from accord.console.entry.ways import ISSUERS
from accord.console.paths import PAGES, SESSIONS, SIGNIN
from accord.console.routing import Asked, Reply, Route
from accord.errors import AgentUnavailable, AuthenticationFailed, InvalidParams

if TYPE_CHECKING:
    from accord.console.entry.oidc import Issuer

PENDING_SECONDS = 600
"""How long somebody may take at an issuer."""

DENIED, EXPIRED, FAILED = "denied", "expired", "failed"
"""What the page is told: the issuer said no, nobody has left for there lately, something else is wrong."""

_ISSUER = f"{SESSIONS}/oidc/(?P<name>[a-z0-9-]{{1,32}})"
_PAGE = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")

log = logging.getLogger("accord.console")


class IssuersApi:
    """The handlers."""

    def __init__(self, door: Door, url: str) -> None:
        """Let people in by `door`, who come back to the server at `url`."""
        self._door = door
        self._url = url

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        return (
            Route("GET", _ISSUER, self.leave, is_open=True, status=303),
            Route("GET", f"{_ISSUER}/callback", self.come_back, is_open=True, status=303),
        )

    async def leave(self, asked: Asked) -> Reply:
        """Go to an issuer, and come back signed in to the page `next`."""
        issuer, page = self._issuer(asked), asked.query.get("next", ["/"])[0]
        try:
            url, pending = await issuer.begin(self._redirect(asked), page_of(page))
        except FetchError as error:
            return self._failed(asked, str(error))
        cookie = PENDING.set(pending.written(), is_secure(asked.scope), PENDING_SECONDS)
        return Reply(303, headers=[_to(url), *cookie])

    async def come_back(self, asked: Asked) -> Reply:
        """Come back from an issuer, which sends browsers here."""
        issuer, name = self._issuer(asked), asked.parts["name"]
        self._door.count(asked.scope)
        given = {key: values[0] for key, values in asked.query.items()}
        pending = Pending.read(PENDING.read(brought(asked.scope)) or "")
        if pending is None or not pending.fits(name, given.get("state", "")):
            return self._failed(asked, "nobody has left for there, or too long ago", EXPIRED)
        if "error" in given:
            return self._failed(asked, given["error"][:200], DENIED)
        try:
            redirect = self._redirect(asked)
            identity = await issuer.finish(pending, given.get("code", ""), redirect, given.get("iss"))
        except AuthenticationFailed:
            self._door.audit.refused(brought(asked.scope))
            return self._failed(asked, "what the issuer answered is not good")
        except (FetchError, AgentUnavailable) as error:
            return self._failed(asked, str(error))
        ground = self._door.ways.ground(ISSUERS, name)
        cookie = await self._door.begin(_caller(identity, asked.scope), asked.scope, ground=ground)
        page = _to(_pages(asked.scope) + page_of(pending.next))
        return Reply(303, headers=[page, *cookie, *PENDING.clear(is_secure(asked.scope))])

    def _issuer(self, asked: Asked) -> "Issuer":
        found = self._door.issuers.get(asked.parts["name"])
        if found is None:
            raise InvalidParams("One does not sign in there")
        return found

    def _redirect(self, asked: Asked) -> str:
        """Return the address that an issuer sends browsers back to, at the host that was asked if ours is local."""
        return f"{origins.at(self._url, origins.asked(asked.scope))}{SESSIONS}/oidc/{asked.parts['name']}/callback"

    def _failed(self, asked: Asked, reason: str, code: str = FAILED) -> Reply:
        log.warning("somebody could not sign in", extra={"issuer": asked.parts["name"], "reason": reason})
        page = f"{_pages(asked.scope)}{SIGNIN}?{urlencode({'error': code})}"
        return Reply(303, headers=[_to(page), *PENDING.clear(is_secure(asked.scope))])


def page_of(stated: str) -> str:
    """Return a page of the console, below `/console`, that somebody asks to be led to; what is none is the first."""
    is_page = _PAGE.fullmatch(stated) and ".." not in stated and "//" not in stated
    return stated if is_page else "/"


def _caller(identity: Identity, scope: Scope) -> Caller:
    return Caller(
        owner=identity.owner,
        tenant=identity.tenant or "",
        roams=identity.tenant is None,
        roles=identity.roles,
        scheme=ISSUERS,
        peer=brought(scope).peer or None,
    )


def _pages(scope: Scope) -> str:
    mount: str = scope.get("accord.mount", "")
    return mount + PAGES.rstrip("/")


def _to(url: str) -> tuple[bytes, bytes]:
    return b"location", url.encode("latin-1", "replace")
