"""Sign-in and sign-out: with a key, a password or an issuer.

The server's own schemes check credentials (`auth.authentication`). `oidc` has the flow with an OpenID Connect issuer.
"""

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from msgspec import Struct

from accord.a2a import Caller
from accord.api import Presented
from accord.api.access import OK, Access, Audit, Bucket, FetchError, entry
from accord.console import PAGES, SESSIONS, SIGNIN
from accord.console.routing import ApiReply, ApiRequest, ApiSection, route, write_token
from accord.console.server_context import ServerContext
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
from accord.console.views import View
from accord.errors import AgentUnavailable, AuthenticationFailed, InvalidParams, RateLimited
from accord.http import cards
from accord.http.asgi import Admit, Headers, Scope, address_of

if TYPE_CHECKING:
    from accord.console.oidc import Issuer


ATTEMPT_RATE, ATTEMPT_BURST = 1 / 6, 10
"""Sign-in attempts per second of one address, and burst: enough for typing errors, too few for guessing."""


PENDING_SECONDS = 600
"""Seconds that a sign-in at an issuer may take."""

DENIED, EXPIRED, FAILED = "denied", "expired", "failed"
"""Error codes for the sign-in page: the issuer refused, no sign-in is pending, or another failure."""

ISSUER = f"{SESSIONS}/oidc/(?P<name>[a-z0-9-]{{1,32}})"
_PAGE = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")

log = logging.getLogger("accord.console")


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


class SignInOption(View, frozen=True, kw_only=True):
    """A sign-in method. `url` is a page for the browser. Methods without one post credentials."""

    kind: Literal["api-key", "password", "oidc"]
    label: str
    url: str | None


class SessionView(View, frozen=True, kw_only=True):
    """The current caller, sign-in methods and features. With `is_open`, callers need no credentials."""

    signed_in: bool
    is_open: bool
    name: str
    tenant: str
    roams: bool
    roles: list[str]
    ways: list[SignInOption]
    version: str
    url: str
    features: dict[str, bool]


class Credentials(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Sign-in credentials: a key or a secret, or a name and a password."""

    api_key: str | None = None
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return "Credentials()"


class SignInApi(ApiSection):
    """The endpoints that sign people in and out."""

    def __init__(  # one argument per service
        self,
        server: ServerContext,
        access: Access,
        admit: Admit,
        sessions: BrowserSessions,
        methods: SignInMethods,
        issuers: "Mapping[str, Issuer]",
        audit: Audit,
        features: Mapping[str, bool],
    ) -> None:
        """Keep `sessions` of callers that `admit`, which writes the audit log, or an issuer authenticated."""
        self._server = server
        self._is_open = access.is_open
        self._admit = admit
        self._sessions = sessions
        self._methods = methods
        self._issuers = issuers
        self._audit = audit
        self._features = features
        self._attempts = Bucket(ATTEMPT_RATE, ATTEMPT_BURST)

    # --- sessions -------------------------------------------------------------------------------------------------

    @route("GET", SESSIONS, is_open=True)
    async def show(self, request: ApiRequest) -> SessionView:
        """Show the current session and the sign-in methods."""
        return self._view(request.visitor, request.scope)

    @route("POST", SESSIONS, is_open=True, result=SessionView)
    async def sign_in(self, request: ApiRequest, body: Credentials) -> ApiReply:
        """Sign in, and set the session cookie."""
        if self._is_open:
            return ApiReply(200, self._view(request.visitor, request.scope))
        self._count_attempt(request.scope)
        caller, ground = await self._authenticate(body, request.scope)
        cookie = await self._begin(caller, request.scope, **ground)
        return ApiReply(200, self._view(caller, request.scope), headers=cookie)

    @route("DELETE", SESSIONS, is_open=True, status=204)
    async def sign_out(self, request: ApiRequest) -> ApiReply:
        """Sign out. All copies of the session's cookie become invalid."""
        await self._end(request.scope)
        if request.visitor is not None:
            self._note("SignOut", request.visitor)
        return ApiReply(204, headers=SESSION_COOKIE.clear(is_tls(request.scope)))

    def _count_attempt(self, scope: Scope) -> None:
        """Count an attempt. Raises RateLimited if there were too many from its address."""
        if wait := self._attempts.take(address_of(scope)):
            again = max(1, round(wait))
            raise RateLimited("Too many attempts to sign in", retry_after=again, metadata={"limit": "attempts"})

    async def _begin(self, caller: Caller, scope: Scope, **ground: Any) -> Headers:
        """Start a new session, and end the browser's previous one. Returns the headers that set its cookie."""
        await self._end(scope)
        token = await self._sessions.begin(caller, **ground)
        self._note("SignIn", caller)
        return SESSION_COOKIE.set(token, is_tls(scope), self._sessions.seconds)

    async def _end(self, scope: Scope) -> None:
        token = SESSION_COOKIE.read(presented_by(scope))
        if token is not None:
            await self._sessions.end(token)

    def _note(self, operation: str, caller: Caller) -> None:
        if self._audit.is_on:
            self._audit.note(entry(operation, caller, "", None, OK, self._audit.now_ms()))

    async def _authenticate(self, credentials: Credentials, scope: Scope) -> tuple[Caller, dict[str, Any]]:
        """Return the caller of credentials, and the ground of its session."""
        methods = self._methods
        if credentials.api_key is not None and methods.takes_keys:
            key = credentials.api_key.strip()
            caller = await self._admit_headers(methods.with_key(key), scope)
            is_stored = caller.scheme == KEYS
            return caller, {"key_id": stored_key_id(key)} if is_stored else {"ground": methods.ground(SECRETS, key)}
        if credentials.username and credentials.password is not None and methods.takes_passwords:
            if ":" in credentials.username:  # a colon would end the name
                raise AuthenticationFailed
            caller = await self._admit_headers(with_password(credentials.username, credentials.password), scope)
            return caller, {"ground": methods.ground(PASSWORDS, credentials.username)}
        raise InvalidParams("Sign in with `apiKey`, or with `username` and `password`, as the server offers")

    async def _admit_headers(self, headers: Headers, scope: Scope) -> Caller:
        try:
            return await self._admit(presented_by(scope, headers))
        except AuthenticationFailed as error:
            error.challenges = ()  # the page asks again, not the browser
            raise

    def _view(self, caller: Caller | None, scope: Scope) -> SessionView:
        return SessionView(
            signed_in=caller is not None,
            is_open=self._is_open,
            name=caller.owner if caller else "",
            tenant=caller.tenant if caller else "",
            roams=caller.roams if caller else False,
            roles=sorted(caller.roles or ()) if caller else [],
            ways=self._options(scope.get("accord.mount", "")),
            version=self._server.version,
            url=cards.url_at_origin(self._server.url, cards.request_origin(scope)),
            features=dict(self._features),
        )

    def _options(self, mount: str) -> list[SignInOption]:
        methods = self._methods
        options = [
            SignInOption(kind="oidc", label=issuer.label, url=f"{mount}{SESSIONS}/oidc/{name}")
            for name, issuer in self._issuers.items()
        ]
        if methods.takes_passwords:
            options.append(SignInOption(kind="password", label="Name and password", url=None))
        if methods.takes_keys:
            options.append(SignInOption(kind="api-key", label="API key", url=None))
        return options

    # --- issuers --------------------------------------------------------------------------------------------------

    @route("GET", ISSUER, is_open=True, status=303)
    async def leave(self, request: ApiRequest) -> ApiReply:
        """Redirect to an issuer, and later back to the page `next`."""
        issuer, page = self._issuer(request), request.query.get("next", ["/"])[0]
        try:
            url, pending = await issuer.begin(self._redirect_url(request), console_page(page))
        except FetchError as error:
            return self._failed(request, str(error))
        cookie = PENDING_COOKIE.set(write_token(pending), is_tls(request.scope), PENDING_SECONDS)
        return ApiReply(303, headers=[_location(url), *cookie])

    @route("GET", f"{ISSUER}/callback", is_open=True, status=303)
    async def come_back(self, request: ApiRequest) -> ApiReply:
        """Complete a sign-in after the redirect from an issuer."""
        issuer, name, scope = self._issuer(request), request.parts["name"], request.scope
        self._count_attempt(scope)
        answer = {key: values[0] for key, values in request.query.items()}
        pending = PendingSignIn.read(PENDING_COOKIE.read(presented_by(scope)) or "")
        if pending is None or not pending.fits(name, answer.get("state", "")):
            return self._failed(request, "no sign-in is pending, or it has expired", EXPIRED)
        if "error" in answer:
            return self._failed(request, answer["error"][:200], DENIED)
        try:
            redirect = self._redirect_url(request)
            identity = await issuer.finish(pending, answer.get("code", ""), redirect, answer.get("iss"))
        except AuthenticationFailed:
            self._audit.refused(presented_by(scope))
            return self._failed(request, "the issuer's answer is not valid")
        except (FetchError, AgentUnavailable) as error:
            return self._failed(request, str(error))
        caller = Caller(
            owner=identity.owner,
            tenant=identity.tenant or "",
            roams=identity.tenant is None,
            roles=identity.roles,
            scheme=ISSUERS,
            peer=presented_by(scope).peer or None,
        )
        cookie = await self._begin(caller, scope, ground=self._methods.ground(ISSUERS, name))
        page = _location(_pages(scope) + console_page(pending.next))
        return ApiReply(303, headers=[page, *cookie, *PENDING_COOKIE.clear(is_tls(scope))])

    def _issuer(self, request: ApiRequest) -> "Issuer":
        issuer = self._issuers.get(request.parts["name"])
        if issuer is None:
            raise InvalidParams("Unknown identity provider")
        return issuer

    def _redirect_url(self, request: ApiRequest) -> str:
        """Return the redirect URL for an issuer, at the requested host if the server's own is local."""
        url = cards.url_at_origin(self._server.url, cards.request_origin(request.scope))
        return f"{url}{SESSIONS}/oidc/{request.parts['name']}/callback"

    def _failed(self, request: ApiRequest, reason: str, code: str = FAILED) -> ApiReply:
        log.warning("console.sign_in_failed", extra={"issuer": request.parts["name"], "reason": reason})
        page = f"{_pages(request.scope)}{SIGNIN}?{urlencode({'error': code})}"
        return ApiReply(303, headers=[_location(page), *PENDING_COOKIE.clear(is_tls(request.scope))])


def console_page(path: str) -> str:
    """Return a requested page below `/console`, or the first page if it is invalid."""
    is_page = _PAGE.fullmatch(path) and ".." not in path and "//" not in path
    return path if is_page else "/"


def _pages(scope: Scope) -> str:
    mount: str = scope.get("accord.mount", "")
    return mount + PAGES.rstrip("/")


def _location(url: str) -> tuple[bytes, bytes]:
    return b"location", url.encode("latin-1", "replace")
