"""Sessions of people who signed in with a browser, and their cookies.

The store has the SHA-256 of a cookie's secret, so a session is valid on every node. It ends by time, by sign-out, and
with the key, user or issuer that it rests on. Sessions count under `/api/` only. Requests of pages of other origins are
refused.
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

import msgspec
from msgspec import Struct

from accord.a2a import Admission, Caller
from accord.auth.api_keys import PREFIX
from accord.auth.authentication import Access, Presented, challenge
from accord.auth.recent import ExpiringCache
from accord.auth.scheme_settings import AnyScheme, ApiKeys, Basic, Grant, Header, Jwt, SignIn
from accord.errors import AgentUnavailable, AuthenticationFailed, PermissionDenied
from accord.http.asgi import Admit, Headers
from accord.http.cross_origin import OWN_SITES, SAFE_METHODS, is_origin_of_host, is_same_origin
from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewSession, StoredSession
from accord.storage.store import Store, StoreUnavailable

COOKIE_PREFIX = "__Host-"


class Cookie(NamedTuple):
    """A cookie; `same_site` says whether it comes along when a page from elsewhere leads here."""

    name: str
    same_site: str

    def named(self, secure: bool) -> str:
        """Return the name that it has in requests of this kind."""
        return COOKIE_PREFIX + self.name if secure else self.name

    def read(self, presented: Presented) -> str | None:
        """Return its value; two of one name say nothing, because one of them was set by somebody else."""
        wanted = self.named(presented.secure)
        lines = (value.decode("latin-1") for name, value in presented.headers if name == b"cookie")
        pairs = [pair.strip().partition("=") for line in lines for pair in line.split(";")]
        found = {value for name, _, value in pairs if name == wanted}
        return found.pop() if len(found) == 1 else None

    def set(self, value: str, secure: bool, seconds: int) -> Headers:
        """Return how an answer sets it, for so many seconds."""
        flags = f"Path=/; Max-Age={seconds}; HttpOnly; SameSite={self.same_site}" + ("; Secure" if secure else "")
        return [(b"set-cookie", f"{self.named(secure)}={value}; {flags}".encode("latin-1"))]

    def clear(self, secure: bool) -> Headers:
        """Return how an answer takes it back."""
        return self.set("", secure, 0)


SESSION_COOKIE = Cookie("accord_session", "Strict")
"""Who has signed in. It never comes along from elsewhere; pages themselves are for everybody and ask again."""

PENDING_COOKIE = Cookie("accord_signin", "Lax")
"""Who is on the way to an issuer and back: coming back is a page from elsewhere that leads here."""


class PendingSignIn(Struct, frozen=True, kw_only=True, array_like=True):
    """What has to come back the same; `next` is the page that somebody wants to see then."""

    issuer: str
    state: str
    nonce: str
    verifier: str
    next: str

    def __repr__(self) -> str:
        return f"Pending(issuer={self.issuer!r})"

    def written(self) -> str:
        """Return it as a cookie's value."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> "PendingSignIn | None":
        """Return what a cookie's value says, None if it says nothing."""
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, msgspec.MsgspecError):
            return None

    def fits(self, issuer: str, state: str) -> bool:
        """Whether this is what came back."""
        return self.issuer == issuer and hmac.compare_digest(self.state.encode(), state.encode())


def check_origin(presented: Presented, *, is_public: bool = False) -> None:
    """Refuse what a page of another origin has a browser send; with `is_public` such pages may read."""
    is_read = presented.method in SAFE_METHODS
    is_fine = (is_public or _may_read(presented)) if is_read else _may_write(presented)
    if not is_fine:
        raise PermissionDenied("This comes from a page of another origin")


def _may_read(presented: Presented) -> bool:
    """Whether an answer may be had: links from elsewhere lead here, but no page looks at what is behind them."""
    origin = presented.header("origin")
    if origin is not None:
        return is_origin_of_host(origin, presented)
    site = presented.header("sec-fetch-site") or "none"
    return site in OWN_SITES or presented.header("sec-fetch-mode") == "navigate"


def _may_write(presented: Presented) -> bool:
    stated = is_same_origin(presented)
    # Every browser that has cookies says where they come from.
    return SESSION_COOKIE.read(presented) is None if stated is None else stated


KEYS, PASSWORDS, SECRETS, ISSUERS = "api-keys", "basic", "header", "jwt"
"""The schemes, as callers are said to have used them."""


class SignInMethods:
    """What there is."""

    def __init__(self, schemes: Sequence[AnyScheme]) -> None:
        """Read it from the settings of a server's schemes; what cannot work is a ValueError."""
        self.issuers: dict[str, tuple[Jwt, SignIn]] = {}
        self._headers: list[str] = []
        self._grounds: dict[str, dict[str, str]] = {}
        for scheme in schemes:
            self._add(scheme)

    def _add(self, scheme: AnyScheme) -> None:
        match scheme:
            case ApiKeys():
                self._headers.append(scheme.header)
                self._grounds[KEYS] = {}  # the store knows which keys there are
            case Header():
                self._headers.append(scheme.name)
                found = self._grounds.setdefault(SECRETS, {})
                found |= {one.secret: _ground(one.secret, one) for one in scheme.secrets}
            case Basic():
                found = self._grounds.setdefault(PASSWORDS, {})
                found |= {name: _ground(user.password, user) for name, user in scheme.users.items()}
            case Jwt(sign_in=SignIn() as sign_in):
                if sign_in.name in self.issuers:
                    raise ValueError("Issuers to sign in with need a `sign_in.name` each: it is in their addresses")
                self.issuers[sign_in.name] = scheme, sign_in
                found = self._grounds.setdefault(ISSUERS, {})
                found[sign_in.name] = json.dumps([scheme.issuer, sign_in.client_id])

    @property
    def takes_keys(self) -> bool:
        """Whether one signs in with a key or a secret."""
        return bool(self._headers)

    @property
    def takes_passwords(self) -> bool:
        """Whether one signs in with a name and a password."""
        return PASSWORDS in self._grounds

    @property
    def grounds(self) -> dict[str, tuple[str, ...]]:
        """What sessions may rest on, by scheme."""
        return {scheme: tuple(found.values()) for scheme, found in self._grounds.items()}

    def ground(self, scheme: str, name: str) -> str:
        """Return what the sessions of a user, a secret or an issuer rest on."""
        return self._grounds[scheme][name]

    def with_key(self, key: str) -> Headers:
        """Return the headers that present a key to every scheme that takes one."""
        return [(name.lower().encode("latin-1"), key.encode()) for name in self._headers]


def with_password(name: str, password: str) -> Headers:
    """Return the header that presents a name and a password."""
    return [(b"authorization", b"Basic " + base64.b64encode(f"{name}:{password}".encode()))]


def stored_key_id(key: str) -> str:
    """Return the id of a key of the store."""
    return key.removeprefix(PREFIX).partition("_")[0]


def _ground(secret: str, grant: Grant) -> str:
    """Return what sessions rest on: a secret and what it grants, so that they end when either changes."""
    return json.dumps([secret, grant.owner, grant.tenant, grant.roles])


KIND = "session"
"""What the tickets are called of those who have signed in."""

BYTES = 32
"""Random bytes of a session: 256 bits, so that a fast hash is enough."""

MAX_CACHED, CACHE_SECONDS = 10_000, 5.0
"""Sessions that are remembered, and for how long: so much later other nodes know that one has ended."""

RETRY_SECONDS = 1

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


class BrowserSessions:
    """The sessions of a server's people."""

    def __init__(
        self,
        store: Store,
        grounds: Mapping[str, Collection[str]],
        hours: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep them in `store`, each for so many `hours`.

        `grounds` is what sessions may rest on, by the scheme: whatever it is, a session rests on one of them as long as
        the settings have it. Sessions of keys need none, the store knows which keys there are.
        """
        self._store = store
        self._grounds = grounds
        self.seconds = round(hours * 3600)
        self._known: ExpiringCache[str, StoredSession] = ExpiringCache(MAX_CACHED, CACHE_SECONDS, clock)

    async def begin(self, caller: Caller, *, key_id: str | None = None, ground: str = "") -> str:
        """Begin a session of somebody who was let in just now, and return what its cookie holds."""
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
        await self._store.do(authentication.create_session, session)
        return token

    async def find(self, token: str, peer: str) -> Caller | None:
        """Return whose session it is, at this address; None if it is none, or has ended."""
        if not _TOKEN.fullmatch(token):
            return None
        hash = _hash(token)
        found = await self._stored(hash)
        if found is None or not self._rests(found, token):
            return None
        return Caller(
            owner=found.owner,
            tenant=found.tenant or "",
            roams=found.tenant is None,
            roles=frozenset(found.roles),
            ticket=Admission(kind=KIND, id=hash, until=found.expires_at, key_id=found.key_id),
            scheme=found.scheme,
            peer=peer or None,
        )

    async def is_good(self, hash: str) -> bool:
        """Whether a session has not ended, by the hash of what its cookie holds."""
        return await self._stored(hash) is not None

    async def end(self, token: str) -> None:
        """End a session for good."""
        hash = _hash(token)
        await self._store.do(authentication.end_session, hash)
        self._known.forget(hash)

    async def _stored(self, hash: str) -> StoredSession | None:
        found = self._known.get(hash)
        if found is not None:
            return found
        try:
            found = await self._store.read(authentication.find_session, hash)
        except StoreUnavailable as error:
            raise AgentUnavailable("Sessions cannot be looked up at the moment", retry_after=RETRY_SECONDS) from error
        if found is not None:
            self._known.put(hash, found)
        return found

    def _rests(self, session: StoredSession, token: str) -> bool:
        """Whether what a session was begun with is still there."""
        grounds = self._grounds.get(session.scheme)
        if grounds is None:
            return False
        if session.key_id is not None:
            return True
        return any(hmac.compare_digest(_proof(token, ground), session.proof or "") for ground in grounds)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("latin-1")).hexdigest()


def _proof(token: str, ground: str) -> str:
    """Return what is kept of a ground: nothing that says anything to somebody who has the store but not the cookie."""
    return hmac.digest(token.encode("latin-1"), ground.encode(), "sha256").hex()


CHALLENGE = challenge("Session")
"""What is asked of a browser: were it told of passwords, it would put a window of its own over the page."""


class SessionAuthenticator:
    """Lets callers in."""

    def __init__(self, access: Access, admit: Admit, sessions: BrowserSessions, *, is_public: bool = False) -> None:
        """Let in who has a session, or else whom `access` does; `admit` is its own way in, with somebody who watches.

        With `is_public`, pages of any origin may read what strangers may.
        """
        self._access = access
        self._admit = admit
        self._sessions = sessions
        self._is_public = is_public

    async def visit(self, presented: Presented) -> Caller | None:
        """Return the caller, None if it does not say who it is."""
        check_origin(presented, is_public=self._is_public)
        return await self._session(presented) or await self._access.visit(presented)

    async def admit(self, presented: Presented) -> Caller:
        """Return the caller, or refuse it."""
        check_origin(presented, is_public=self._is_public)
        found = await self._session(presented)
        if found is not None:
            return found
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
    """Whether a person's browser asks, which all call themselves by the same name."""
    return (presented.header("user-agent") or "").startswith("Mozilla/")
