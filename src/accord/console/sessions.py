"""Sessions of people who signed in with a browser, and their cookies.

The store has the SHA-256 of a cookie's secret, so a session is valid on every node. It ends by time, by sign-out, and
with its key, user or issuer. Sessions are valid under `/api/` only. Requests of pages of other origins are refused.
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from accord.a2a import Admission, Caller
from accord.api import Grant, Presented, Store, StoreUnavailable, challenge, storage
from accord.api.access import PREFIX, Access, AnyScheme, ApiKeys, Basic, ExpiringCache, Header, Jwt, SignIn
from accord.api.storage import NewSession, StoredSession
from accord.console.routing import read_token
from accord.errors import AgentUnavailable, AuthenticationFailed, PermissionDenied
from accord.http.asgi import Admit, Headers
from accord.http.cross_origin import OWN_SITES, SAFE_METHODS, is_origin_of_host, is_same_origin

COOKIE_PREFIX = "__Host-"


class Cookie(NamedTuple):
    """A cookie. `same_site` controls whether browsers send it with links from other sites."""

    name: str
    same_site: str

    def named(self, secure: bool) -> str:
        """Return the cookie's name in requests with or without TLS."""
        return COOKIE_PREFIX + self.name if secure else self.name

    def read(self, presented: Presented) -> str | None:
        """Return the cookie's value. Two values of one name count as none, because another site may have set one."""
        cookie_name = self.named(presented.secure)
        lines = (value.decode("latin-1") for name, value in presented.headers if name == b"cookie")
        pairs = [pair.strip().partition("=") for line in lines for pair in line.split(";")]
        values = {value for name, _, value in pairs if name == cookie_name}
        return values.pop() if len(values) == 1 else None

    def set(self, value: str, secure: bool, seconds: int) -> Headers:
        """Return the headers that set the cookie for so many seconds."""
        flags = f"Path=/; Max-Age={seconds}; HttpOnly; SameSite={self.same_site}" + ("; Secure" if secure else "")
        return [(b"set-cookie", f"{self.named(secure)}={value}; {flags}".encode("latin-1"))]

    def clear(self, secure: bool) -> Headers:
        """Return the headers that clear the cookie."""
        return self.set("", secure, 0)


SESSION_COOKIE = Cookie("accord_session", "Strict")
"""The session cookie.

It is never sent with links from other sites. Pages need no session and send their own requests.
"""

PENDING_COOKIE = Cookie("accord_signin", "Lax")
"""The cookie of a pending sign-in. The redirect from the issuer is a link from another site."""


class PendingSignIn(Struct, frozen=True, kw_only=True, array_like=True):
    """The state of a sign-in that the issuer's redirect must match. `next` is the page to show afterwards."""

    issuer: str
    state: str
    nonce: str
    verifier: str
    next: str

    def __repr__(self) -> str:
        return f"Pending(issuer={self.issuer!r})"

    @classmethod
    def read(cls, text: str) -> "PendingSignIn | None":
        """Return the pending sign-in in a cookie's value, or None if it is invalid."""
        try:
            return read_token(text, cls)
        except ValueError:
            return None

    def fits(self, issuer: str, state: str) -> bool:
        """Whether issuer and state match."""
        return self.issuer == issuer and hmac.compare_digest(self.state.encode(), state.encode())


def check_origin(presented: Presented, *, is_public: bool = False) -> None:
    """Refuse requests of pages of another origin. With `is_public` such pages may read."""
    is_read = presented.method in SAFE_METHODS
    is_fine = (is_public or _may_read(presented)) if is_read else _may_write(presented)
    if not is_fine:
        raise PermissionDenied("This comes from a page of another origin")


def _may_read(presented: Presented) -> bool:
    """Whether a read is allowed: links from other sites may navigate here, but their pages may not read responses."""
    origin = presented.header("origin")
    if origin is not None:
        return is_origin_of_host(origin, presented)
    site = presented.header("sec-fetch-site") or "none"
    return site in OWN_SITES or presented.header("sec-fetch-mode") == "navigate"


def _may_write(presented: Presented) -> bool:
    is_same = is_same_origin(presented)
    # Every browser with cookies sends the origin of a request.
    return SESSION_COOKIE.read(presented) is None if is_same is None else is_same


KEYS, PASSWORDS, SECRETS, ISSUERS = "api-keys", "basic", "header", "jwt"
"""Names of the schemes, as in `Caller.scheme`."""


class SignInMethods:
    """The sign-in methods of a server."""

    def __init__(self, schemes: Sequence[AnyScheme]) -> None:
        """Read the methods from the settings of a server's schemes. Raises ValueError for an invalid combination."""
        self.issuers: dict[str, tuple[Jwt, SignIn]] = {}
        self._headers: list[str] = []
        self._grounds: dict[str, dict[str, str]] = {}
        for scheme in schemes:
            self._add(scheme)

    def _add(self, scheme: AnyScheme) -> None:
        match scheme:
            case ApiKeys():
                self._headers.append(scheme.header)
                self._grounds[KEYS] = {}  # the store has the keys
            case Header():
                self._headers.append(scheme.name)
                grounds = {secret.secret: _ground(secret.secret, secret) for secret in scheme.secrets}
                self._grounds.setdefault(SECRETS, {}).update(grounds)
            case Basic():
                grounds = {name: _ground(user.password, user) for name, user in scheme.users.items()}
                self._grounds.setdefault(PASSWORDS, {}).update(grounds)
            case Jwt(sign_in=SignIn() as sign_in):
                if sign_in.name in self.issuers:
                    raise ValueError("Issuers to sign in with need a `sign_in.name` each: it is in their addresses")
                self.issuers[sign_in.name] = scheme, sign_in
                ground = json.dumps([scheme.issuer, sign_in.client_id])
                self._grounds.setdefault(ISSUERS, {})[sign_in.name] = ground

    @property
    def takes_keys(self) -> bool:
        """Whether callers may sign in with a key or a secret."""
        return bool(self._headers)

    @property
    def takes_passwords(self) -> bool:
        """Whether callers may sign in with a name and a password."""
        return PASSWORDS in self._grounds

    @property
    def grounds(self) -> dict[str, tuple[str, ...]]:
        """The valid grounds of sessions, by scheme."""
        return {scheme: tuple(grounds.values()) for scheme, grounds in self._grounds.items()}

    def ground(self, scheme: str, name: str) -> str:
        """Return the ground of sessions of a user, a secret or an issuer."""
        return self._grounds[scheme][name]

    def with_key(self, key: str) -> Headers:
        """Return the headers that present a key to every scheme that takes one."""
        return [(name.lower().encode("latin-1"), key.encode()) for name in self._headers]


def with_password(name: str, password: str) -> Headers:
    """Return the header that presents a name and a password."""
    return [(b"authorization", b"Basic " + base64.b64encode(f"{name}:{password}".encode()))]


def stored_key_id(key: str) -> str:
    """Return the id of a stored key."""
    return key.removeprefix(PREFIX).partition("_")[0]


def _ground(secret: str, grant: Grant) -> str:
    """Return the ground of a session: a secret and its rights, so that the session ends when either changes."""
    return json.dumps([secret, grant.owner, grant.tenant, grant.roles])


SESSION_TICKET = "session"
"""Ticket type of callers with a session."""

BYTES = 32
"""Random bytes of a session: 256 bits, so that a fast hash is enough."""

MAX_CACHED, CACHE_SECONDS = 10_000, 5.0
"""Maximum number of cached sessions, and seconds until other nodes notice that one has ended."""

RETRY_SECONDS = 1

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


class BrowserSessions:
    """The sessions of a server."""

    def __init__(
        self,
        store: Store,
        grounds: Mapping[str, Collection[str]],
        hours: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep sessions in `store`, each for so many `hours`.

        `grounds` are the valid grounds, by scheme. A session is valid as long as the settings contain its ground.
        Sessions of API keys need none, since the store has the keys.
        """
        self._store = store
        self._grounds = grounds
        self.seconds = round(hours * 3600)
        self._cached: ExpiringCache[str, StoredSession] = ExpiringCache(MAX_CACHED, CACHE_SECONDS, clock)

    async def begin(self, caller: Caller, *, key_id: str | None = None, ground: str = "") -> str:
        """Start a session of a caller that was just authenticated, and return the value of its cookie."""
        token = secrets.token_urlsafe(BYTES)
        session = NewSession(
            hash=_hash(token),
            owner=caller.owner,
            tenant=None if caller.roams else caller.tenant,
            roles=sorted(caller.roles or ()),
            scheme=caller.scheme or "",
            key_id=key_id,
            proof=None if key_id else _proof(token, ground),
            lasts_ms=self.seconds * 1000,
        )
        await storage.create_session(self._store, session)
        return token

    async def find(self, token: str, peer: str) -> Caller | None:
        """Return the caller of a session, at this address, or None if the session is unknown or has ended."""
        if not _TOKEN.fullmatch(token):
            return None
        hash = _hash(token)
        session = await self._stored(hash)
        if session is None or not self._has_ground(session, token):
            return None
        return Caller(
            owner=session.owner,
            tenant=session.tenant or "",
            roams=session.tenant is None,
            roles=frozenset(session.roles),
            ticket=Admission(kind=SESSION_TICKET, id=hash, until=session.expires_at, key_id=session.key_id),
            scheme=session.scheme,
            peer=peer or None,
        )

    async def is_good(self, hash: str) -> bool:
        """Whether a session is still valid, by the hash of its cookie's value."""
        return await self._stored(hash) is not None

    async def end(self, token: str) -> None:
        """End a session on all nodes."""
        hash = _hash(token)
        await storage.end_session(self._store, hash)
        self._cached.forget(hash)

    async def _stored(self, hash: str) -> StoredSession | None:
        session = self._cached.get(hash)
        if session is not None:
            return session
        try:
            session = await storage.find_session(self._store, hash)
        except StoreUnavailable as error:
            raise AgentUnavailable("Sessions cannot be looked up at the moment", retry_after=RETRY_SECONDS) from error
        if session is not None:
            self._cached.put(hash, session)
        return session

    def _has_ground(self, session: StoredSession, token: str) -> bool:
        """Whether the key or ground of a session still exists."""
        grounds = self._grounds.get(session.scheme)
        if grounds is None:
            return False
        if session.key_id is not None:
            return True
        return any(hmac.compare_digest(_proof(token, ground), session.proof or "") for ground in grounds)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("latin-1")).hexdigest()


def _proof(token: str, ground: str) -> str:
    """Return the stored proof of a ground. It reveals nothing without the cookie."""
    return hmac.digest(token.encode("latin-1"), ground.encode(), "sha256").hex()


CHALLENGE = challenge("Session")
"""Challenge for browsers. A Basic challenge would open the browser's own password window over the page."""


class SessionAuthenticator:
    """Authenticates callers by session or credentials."""

    def __init__(self, access: Access, admit: Admit, sessions: BrowserSessions, *, is_public: bool = False) -> None:
        """Accept a session, else credentials that `access` accepts. `admit` is `access` with auditing.

        With `is_public`, pages of any origin may read public responses.
        """
        self._access = access
        self._admit = admit
        self._sessions = sessions
        self._is_public = is_public

    async def visit(self, presented: Presented) -> Caller | None:
        """Return the caller, or None without credentials."""
        check_origin(presented, is_public=self._is_public)
        return await self._session(presented) or await self._access.visit(presented)

    async def admit(self, presented: Presented) -> Caller:
        """Return the caller, or raise AuthenticationFailed."""
        check_origin(presented, is_public=self._is_public)
        caller = await self._session(presented)
        if caller is not None:
            return caller
        try:
            return await self._admit(presented)
        except AuthenticationFailed as error:
            if is_browser(presented):
                error.challenges = (CHALLENGE,)
            raise

    async def _session(self, presented: Presented) -> Caller | None:
        token = None if self._access.is_open else SESSION_COOKIE.read(presented)
        return None if token is None else await self._sessions.find(token, presented.peer)


def is_browser(presented: Presented) -> bool:
    """Whether a request comes from a browser, by its user agent, which all browsers start in the same way."""
    return (presented.header("user-agent") or "").startswith("Mozilla/")
