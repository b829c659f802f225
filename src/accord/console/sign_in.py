"""Sign-in and sign-out: with a key, a password or an issuer.

The server's own schemes check credentials (`auth.authentication`). `oidc` has the flow with an OpenID Connect issuer.
"""

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.json import Decoder

from accord.a2a import Caller
from accord.api import Identity, Presented
from accord.api.access import OK, Access, Audit, Bucket, FetchError, entry
from accord.console import PAGES, SESSIONS, SIGNIN
from accord.console.routing import ApiReply, ApiRequest, ApiRoute
from accord.console.sessions import (
    ISSUERS,
    KEYS,
    PASSWORDS,
    PENDING_COOKIE,
    SECRETS,
    SESSION_COOKIE,
    BrowserSessions,
    PendingSignIn,
    SignInMethods,
    stored_key_id,
    with_password,
)
from accord.console.views import SessionView, Way
from accord.errors import AgentUnavailable, AuthenticationFailed, InvalidParams, RateLimited
from accord.http import cards
from accord.http.asgi import Admit, Headers, Scope, address_of
from accord.protocol import codec

if TYPE_CHECKING:
    from accord.console.oidc import Issuer


ATTEMPT_RATE, ATTEMPT_BURST = 1 / 6, 10
"""Sign-in attempts per second of one address, and burst: enough for typing errors, too few for guessing."""


class SignInSessions:
    """Signs people in and out."""

    def __init__(
        self,
        access: Access,
        admit: Admit,
        sessions: BrowserSessions,
        ways: SignInMethods,
        issuers: "Mapping[str, Issuer]",
        audit: Audit,
    ) -> None:
        """Keep `sessions` of callers authenticated by `admit`, which writes the audit log, or by one of the
        `issuers`.
        """
        self.is_open = access.is_open
        self.admit = admit
        self.ways = ways
        self.issuers = issuers
        self.audit = audit
        self._sessions = sessions
        self._attempts = Bucket(ATTEMPT_RATE, ATTEMPT_BURST)

    def count(self, scope: Scope) -> None:
        """Count an attempt. Raises RateLimited if there were too many from its address."""
        if wait := self._attempts.take(address_of(scope)):
            again = max(1, round(wait))
            raise RateLimited("Too many attempts to sign in", retry_after=again, metadata={"limit": "attempts"})

    async def begin(self, caller: Caller, scope: Scope, **ground: Any) -> Headers:
        """Start a new session, and end the browser's previous one. Returns the headers that set its cookie."""
        await self._end(scope)
        token = await self._sessions.begin(caller, **ground)
        self._note("SignIn", caller)
        return SESSION_COOKIE.set(token, is_tls(scope), self._sessions.seconds)

    async def end(self, caller: Caller | None, scope: Scope) -> Headers:
        """End a browser's session, and return the headers that clear its cookie."""
        await self._end(scope)
        if caller is not None:
            self._note("SignOut", caller)
        return SESSION_COOKIE.clear(is_tls(scope))

    async def _end(self, scope: Scope) -> None:
        token = SESSION_COOKIE.read(presented_by(scope))
        if token is not None:
            await self._sessions.end(token)

    def _note(self, operation: str, caller: Caller) -> None:
        if self.audit.is_on:
            self.audit.note(entry(operation, caller, "", None, OK, self.audit.now_ms()))


def presented_by(scope: Scope, headers: Headers | None = None) -> Presented:
    """Return the credentials of a request, or those in other headers."""
    client = scope.get("client")
    return Presented(
        headers=scope["headers"] if headers is None else headers,
        target=scope["path"],
        peer=client[0] if client else "",
        secure=is_tls(scope),
    )


def is_tls(scope: Scope) -> bool:
    """Whether a request came over TLS."""
    return scope.get("scheme") == "https"


class Credentials(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Sign-in credentials: a key or a secret, or a name and a password."""

    api_key: str | None = None
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return "Credentials()"


_credentials = Decoder(Credentials)


class SessionApi:
    """The session endpoints."""

    def __init__(self, door: SignInSessions, *, version: str, url: str, features: Mapping[str, bool]) -> None:
        """Sign people in through `door`, to a server of this version at `url` with these features."""
        self._door = door
        self._version = version
        self._url = url
        self._features = features

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        return (
            ApiRoute("GET", SESSIONS, self.look, is_open=True, gives=SessionView),
            ApiRoute("POST", SESSIONS, self.sign_in, is_open=True, takes=Credentials, gives=SessionView),
            ApiRoute("DELETE", SESSIONS, self.sign_out, is_open=True, status=204),
        )

    async def look(self, asked: ApiRequest) -> ApiReply:
        """Show the current session and the sign-in methods."""
        return ApiReply(200, self._view(asked.caller, asked.scope))

    async def sign_in(self, asked: ApiRequest) -> ApiReply:
        """Sign in, and set the session cookie."""
        given = codec.decode(asked.body, _credentials)
        if self._door.is_open:
            return ApiReply(200, self._view(asked.caller, asked.scope))
        self._door.count(asked.scope)
        caller, ground = await self._tried(given, asked.scope)
        cookie = await self._door.begin(caller, asked.scope, **ground)
        return ApiReply(200, self._view(caller, asked.scope), headers=cookie)

    async def sign_out(self, asked: ApiRequest) -> ApiReply:
        """Sign out. All copies of the session's cookie become invalid."""
        return ApiReply(204, headers=await self._door.end(asked.caller, asked.scope))

    async def _tried(self, given: Credentials, scope: Scope) -> tuple[Caller, dict[str, Any]]:
        """Return the caller of credentials, and the ground of its session."""
        ways = self._door.ways
        if given.api_key is not None and ways.takes_keys:
            key = given.api_key.strip()
            caller = await self._admitted(ways.with_key(key), scope)
            is_kept = caller.scheme == KEYS
            return caller, {"key_id": stored_key_id(key)} if is_kept else {"ground": ways.ground(SECRETS, key)}
        if given.username and given.password is not None and ways.takes_passwords:
            if ":" in given.username:  # a colon would end the name
                raise AuthenticationFailed
            caller = await self._admitted(with_password(given.username, given.password), scope)
            return caller, {"ground": ways.ground(PASSWORDS, given.username)}
        raise InvalidParams("One signs in with `apiKey`, or with `username` and `password`, as the server has it")

    async def _admitted(self, headers: Headers, scope: Scope) -> Caller:
        try:
            return await self._door.admit(presented_by(scope, headers))
        except AuthenticationFailed as error:
            error.challenges = ()  # the page asks again, not the browser
            raise

    def _view(self, caller: Caller | None, scope: Scope) -> SessionView:
        return SessionView(
            signed_in=caller is not None,
            is_open=self._door.is_open,
            name=caller.owner if caller else "",
            tenant=caller.tenant if caller else "",
            roams=caller.roams if caller else False,
            roles=sorted(caller.roles or ()) if caller else [],
            ways=self._ways(scope.get("accord.mount", "")),
            version=self._version,
            url=cards.url_at_origin(self._url, cards.request_origin(scope)),
            features=dict(self._features),
        )

    def _ways(self, mount: str) -> list[Way]:
        door = self._door
        found = [
            Way(kind="oidc", label=issuer.label, url=f"{mount}{SESSIONS}/oidc/{name}")
            for name, issuer in door.issuers.items()
        ]
        if door.ways.takes_passwords:
            found.append(Way(kind="password", label="Name and password", url=None))
        if door.ways.takes_keys:
            found.append(Way(kind="api-key", label="API key", url=None))
        return found


PENDING_SECONDS = 600
"""Seconds that a sign-in at an issuer may take."""

DENIED, EXPIRED, FAILED = "denied", "expired", "failed"
"""Error codes for the sign-in page: the issuer refused, no sign-in is pending, or another failure."""

_ISSUER = f"{SESSIONS}/oidc/(?P<name>[a-z0-9-]{{1,32}})"
_PAGE = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")

log = logging.getLogger("accord.console")


class IssuersApi:
    """Sign-in at OpenID Connect issuers."""

    def __init__(self, door: SignInSessions, url: str) -> None:
        """Sign people in through `door`. They return to the server at `url`."""
        self._door = door
        self._url = url

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        return (
            ApiRoute("GET", _ISSUER, self.leave, is_open=True, status=303),
            ApiRoute("GET", f"{_ISSUER}/callback", self.come_back, is_open=True, status=303),
        )

    async def leave(self, asked: ApiRequest) -> ApiReply:
        """Redirect to an issuer, and later back to the page `next`."""
        issuer, page = self._issuer(asked), asked.query.get("next", ["/"])[0]
        try:
            url, pending = await issuer.begin(self._redirect(asked), console_page(page))
        except FetchError as error:
            return self._failed(asked, str(error))
        cookie = PENDING_COOKIE.set(pending.written(), is_tls(asked.scope), PENDING_SECONDS)
        return ApiReply(303, headers=[_redirect_header(url), *cookie])

    async def come_back(self, asked: ApiRequest) -> ApiReply:
        """Complete a sign-in after the redirect from an issuer."""
        issuer, name = self._issuer(asked), asked.parts["name"]
        self._door.count(asked.scope)
        given = {key: values[0] for key, values in asked.query.items()}
        pending = PendingSignIn.read(PENDING_COOKIE.read(presented_by(asked.scope)) or "")
        if pending is None or not pending.fits(name, given.get("state", "")):
            return self._failed(asked, "nobody has left for there, or too long ago", EXPIRED)
        if "error" in given:
            return self._failed(asked, given["error"][:200], DENIED)
        try:
            redirect = self._redirect(asked)
            identity = await issuer.finish(pending, given.get("code", ""), redirect, given.get("iss"))
        except AuthenticationFailed:
            self._door.audit.refused(presented_by(asked.scope))
            return self._failed(asked, "what the issuer answered is not good")
        except (FetchError, AgentUnavailable) as error:
            return self._failed(asked, str(error))
        ground = self._door.ways.ground(ISSUERS, name)
        cookie = await self._door.begin(_caller(identity, asked.scope), asked.scope, ground=ground)
        page = _redirect_header(_pages(asked.scope) + console_page(pending.next))
        return ApiReply(303, headers=[page, *cookie, *PENDING_COOKIE.clear(is_tls(asked.scope))])

    def _issuer(self, asked: ApiRequest) -> "Issuer":
        found = self._door.issuers.get(asked.parts["name"])
        if found is None:
            raise InvalidParams("One does not sign in there")
        return found

    def _redirect(self, asked: ApiRequest) -> str:
        """Return the redirect URL for an issuer, at the requested host if the server's own is local."""
        url = cards.url_at_origin(self._url, cards.request_origin(asked.scope))
        return f"{url}{SESSIONS}/oidc/{asked.parts['name']}/callback"

    def _failed(self, asked: ApiRequest, reason: str, code: str = FAILED) -> ApiReply:
        log.warning("console.sign_in_failed", extra={"issuer": asked.parts["name"], "reason": reason})
        page = f"{_pages(asked.scope)}{SIGNIN}?{urlencode({'error': code})}"
        return ApiReply(303, headers=[_redirect_header(page), *PENDING_COOKIE.clear(is_tls(asked.scope))])


def console_page(stated: str) -> str:
    """Return a requested page below `/console`, or the first page if it is invalid."""
    is_page = _PAGE.fullmatch(stated) and ".." not in stated and "//" not in stated
    return stated if is_page else "/"


def _caller(identity: Identity, scope: Scope) -> Caller:
    return Caller(
        owner=identity.owner,
        tenant=identity.tenant or "",
        roams=identity.tenant is None,
        roles=identity.roles,
        scheme=ISSUERS,
        peer=presented_by(scope).peer or None,
    )


def _pages(scope: Scope) -> str:
    mount: str = scope.get("accord.mount", "")
    return mount + PAGES.rstrip("/")


def _redirect_header(url: str) -> tuple[bytes, bytes]:
    return b"location", url.encode("latin-1", "replace")
