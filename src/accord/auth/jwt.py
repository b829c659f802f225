"""Authentication with JSON Web Tokens of an issuer (RFC 7519, 8725, 9068), and the keys that verify them."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import Key, OctKey
from joserfc.jwt import JWTClaimsRegistry
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from accord.a2a import Admission
from accord.auth.authentication import INVALID_TOKEN, ExpiringCache, Identity, Presented, challenge, refusal
from accord.auth.scheme_settings import ANY_TENANT, Jwt
from accord.auth.schemes import Fetch, FetchError, SchemeType
from accord.errors import AgentUnavailable, AuthenticationFailed
from accord.model import (
    ClientCredentialsFlow,
    HttpAuthScheme,
    OAuth2Scheme,
    OAuthFlows,
    OpenIdConnectScheme,
    SecurityScheme,
)
from accord.protocol import jose
from accord.protocol.jose import BadSignature

FRESH_SECONDS = 600.0
"""Age at which keys are fetched again, while the known ones stay in use."""

STALE_SECONDS = 24 * 3600.0
"""Age at which keys are dropped. An issuer that is unreachable for a day may have withdrawn them."""

AGAIN_SECONDS = 10.0
"""Minimum seconds between requests to an issuer, regardless of the keys that tokens name."""

FETCH_SECONDS = 30.0
MAX_BYTES = 1024 * 1024

log = logging.getLogger("accord.access")


class _Discovered(Struct):
    issuer: str
    jwks_uri: str


_discovered = Decoder(_Discovered)


def discovery_url(issuer: str) -> str:
    """Return the discovery URL of an issuer (OpenID Connect Discovery 1.0, 4)."""
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration"


class Jwks:
    """The signing keys of one issuer."""

    def __init__(
        self, fetch: Fetch, issuer: str, url: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Fetch the keys of `issuer`, from `url` or by discovery."""
        self._fetch = fetch
        self._issuer = issuer
        self._url = url
        self._clock = clock
        self._keys: tuple[Key, ...] = ()
        self._loaded_at = self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def find(self, alg: str, kid: str | None) -> Key | None:
        """Return the key for a signature, or None. Raises AgentUnavailable if no keys are available."""
        age = self._clock() - self._loaded_at
        if age >= STALE_SECONDS:
            await self._load_now()
        elif age >= FRESH_SECONDS:
            self._begin()
        key = jose.find_key(self._usable(), alg, kid)
        if key is None:  # the issuer may have a new key
            await self._load_now()
            key = jose.find_key(self._usable(), alg, kid)
        return key

    def _usable(self) -> tuple[Key, ...]:
        if self._clock() - self._loaded_at >= STALE_SECONDS:
            raise AgentUnavailable("Tokens cannot be verified at the moment", retry_after=int(AGAIN_SECONDS))
        return self._keys

    async def _load_now(self) -> None:
        """Wait for a pending request, or for a new one if its interval has passed."""
        asking = self._begin()
        if asking is not None:
            await asyncio.shield(asking)  # other callers wait for the request too, and need it if this one disconnects

    def _begin(self) -> asyncio.Task[None] | None:
        now = self._clock()
        if self._asking is None and now - self._asked_at >= AGAIN_SECONDS:
            self._asked_at = now
            self._asking = asyncio.create_task(self._load(), name="jwks")
        return self._asking

    async def _load(self) -> None:
        try:
            self._keys, self._loaded_at = await self.read(), self._clock()
        except (FetchError, OSError, jose.BadSignature) as error:
            log.warning("access.issuer_unreadable", extra={"issuer": self._issuer, "reason": str(error)})
        finally:
            self._asking = None

    async def read(self) -> tuple[Key, ...]:
        """Fetch and return the keys. Raises FetchError, OSError or BadSignature."""
        async with asyncio.timeout(FETCH_SECONDS):
            keys = jose.read_keys(await self._read(self._url or await self._discover()))
        if not keys:
            raise FetchError("The key set has no key that can verify signatures")
        return keys

    async def _discover(self) -> str:
        try:
            document = _discovered.decode(await self._read(discovery_url(self._issuer)))
        except (MsgspecError, UnicodeDecodeError, RecursionError):
            raise FetchError("The issuer's discovery document is not readable") from None
        if document.issuer != self._issuer:
            raise FetchError("The discovery document names another issuer")
        if urlsplit(document.jwks_uri).scheme not in ("https", urlsplit(self._issuer).scheme):
            raise FetchError("The URL of the issuer's keys is not https")
        return document.jwks_uri

    async def _read(self, url: str) -> bytes:
        data = await self._fetch(url)
        if len(data) > MAX_BYTES:
            raise FetchError("The answer is too large")
        return data


MAX_TOKEN = 16 * 1024
"""Maximum characters of a token. The largest of identity providers are near 8 KiB."""

TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt", "application/jwt"})
"""Accepted `typ` values. Other tokens of the same issuer and key, such as logout tokens, have different ones."""

REMEMBERED = 10_000
LONG_SECONDS = 3600.0
"""Maximum seconds of caching, to bound an expiry that is too large for arithmetic."""

LAST_SECOND = 253402300799
"""The end of the year 9999, which bounds the stored expiry."""

UNREADABLE = (BadSignature, JoseError, MsgspecError, ValueError, RecursionError)
"""Exceptions for an invalid token."""


class _Issued(Struct):
    iss: str


_issued, _claims = Decoder(_Issued), Decoder(dict[str, Any])


class JwtAccess:
    """Authentication with tokens of one issuer."""

    name = "jwt"

    def __init__(
        self,
        settings: Jwt,
        fetch: Fetch | None = None,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Verify tokens with the issuer's keys, read by `fetch`, or with a shared secret."""
        self._settings = settings
        self._now = now
        self._clock = clock
        self._algorithms = _algorithms(settings)
        self._keys = _keys(settings, fetch, clock)
        self._recent: ExpiringCache[bytes, Identity] = ExpiringCache(REMEMBERED, settings.remember_seconds, clock)

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """OpenID Connect for keys by discovery, and client credentials if there is a token URL.

        Otherwise a bearer token.
        """
        settings = self._settings
        schemes: dict[str, SecurityScheme] = {}
        discovers = settings.secret is None and settings.jwks_url is None
        if discovers:
            url = discovery_url(settings.issuer)
            schemes["openIdConnect"] = SecurityScheme(
                open_id_connect_security_scheme=OpenIdConnectScheme(open_id_connect_url=url)
            )
        if settings.token_url:
            flow = ClientCredentialsFlow(token_url=settings.token_url, scopes=dict(settings.scopes))
            oauth = OAuth2Scheme(flows=OAuthFlows(client_credentials=flow))
            schemes["oauth2"] = SecurityScheme(oauth2_security_scheme=oauth)
        bearer = SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="Bearer", bearer_format="JWT"))
        return schemes or {"bearer": bearer}

    @property
    def challenge(self) -> str:
        """The bearer challenge."""
        return challenge("Bearer")

    async def identify(self, presented: Presented) -> Identity | None:
        """Return the subject of the request's token, or None without a token of this issuer."""
        token = presented.credentials("bearer")
        if token is None or token.count(".") != 2:
            return None
        if len(token) > MAX_TOKEN:
            raise self._refusal("too large")
        digest = hashlib.sha256(token.encode("latin-1")).digest()
        cached = self._recent.get(digest)
        if cached is not None:
            return cached
        try:
            if not self._is_ours(token):
                return None
        except UNREADABLE as error:
            raise self._refusal(f"{type(error).__name__}: {error}"[:200]) from None
        claims, identity = await self.read(token)
        now = self._now()
        self._recent.put(digest, identity, until=self._clock() + min(claims["exp"], now + LONG_SECONDS) - now)
        return identity

    async def read(self, token: str) -> tuple[dict[str, Any], Identity]:
        """Verify a token. Return its claims and the identity in them."""
        try:
            claims = await self._verified(token)
            return claims, self._identity(claims)
        except UNREADABLE as error:
            raise self._refusal(f"{type(error).__name__}: {error}"[:200]) from None

    def _is_ours(self, token: str) -> bool:
        """Whether the token claims to be of this issuer. It is not verified yet: others belong to another scheme."""
        return _issued.decode(jose.from_base64url(token.split(".")[1])).iss == self._settings.issuer

    async def _verified(self, token: str) -> dict[str, Any]:
        header = jose.read_header(token.partition(".")[0])
        if header.alg not in self._algorithms:
            raise BadSignature("Algorithm not allowed")
        if (header.typ or "jwt").lower() not in TYPES:
            raise BadSignature("Not an access token")
        key = self._keys if isinstance(self._keys, OctKey) else await self._keys.find(header.alg, header.kid)
        if key is None:
            raise BadSignature("No such key")
        claims = _claims.decode(jose.verify_signature(token, key, header.alg))
        self._check(claims)
        return claims

    def _check(self, claims: dict[str, Any]) -> None:
        settings = self._settings
        JWTClaimsRegistry(
            now=int(self._now()),
            leeway=settings.leeway_seconds,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "values": list(settings.audience)},
            exp={"essential": True},
        ).validate(claims)

    def _identity(self, claims: dict[str, Any]) -> Identity:
        settings = self._settings
        owner = _claim(claims, settings.owner_claim)
        if not isinstance(owner, str) or not owner:
            raise ValueError("no owner")
        tenant: str | None = None if settings.tenant == ANY_TENANT else settings.tenant
        if settings.tenant_claim is not None:
            named_tenant = _claim(claims, settings.tenant_claim)
            if not isinstance(named_tenant, str) or not named_tenant:
                raise ValueError("no tenant")
            tenant = named_tenant
        roles = frozenset(role for name in settings.role_claims for role in _listed(_claim(claims, name)))
        until = min(claims["exp"] + settings.leeway_seconds, LAST_SECOND)
        ticket = Admission(kind=self.name, until=int(until * 1000))
        return Identity(owner=settings.owner_prefix + owner, tenant=tenant, roles=roles, ticket=ticket)

    def _refusal(self, reason: str) -> AuthenticationFailed:
        return refusal(self.name, reason, INVALID_TOKEN, issuer=self._settings.issuer)


def _keys(settings: Jwt, fetch: Fetch | None, clock: Callable[[], float]) -> Jwks | OctKey:
    if settings.secret is not None:
        return OctKey.import_key(settings.secret)
    if fetch is None:
        raise ValueError("Tokens cannot be verified without a way to fetch the issuer's keys")
    return Jwks(fetch, settings.issuer, settings.jwks_url, clock)


def _algorithms(settings: Jwt) -> frozenset[str]:
    """Return the allowed algorithms: those of public keys or those of a shared secret, never both."""
    if settings.secret is None:
        allowed = frozenset(settings.algorithms or jose.KEY_TYPES)
        if not allowed <= jose.KEY_TYPES.keys():
            raise ValueError(f"`algorithms` may be {', '.join(jose.KEY_TYPES)}; those of a shared secret need `secret`")
        return allowed
    allowed = frozenset(settings.algorithms or ("HS256",))
    if not allowed <= jose.SECRET_LENGTHS.keys():
        raise ValueError(f"`algorithms` with a `secret` may be {', '.join(jose.SECRET_LENGTHS)}")
    shortest = max(jose.SECRET_LENGTHS[alg] for alg in allowed)
    if len(settings.secret.encode()) < shortest:
        raise ValueError(f"`secret` needs at least {shortest} bytes")
    return allowed


def _claim(claims: dict[str, Any], name: str) -> Any:
    """Return a claim by name. A name with dots also finds a nested claim."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for step in name.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _listed(value: Any) -> list[str]:
    """Return the names in a claim: a list, or words separated by spaces (RFC 6749, 3.3)."""
    if isinstance(value, str):
        return value.split()
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


SCHEME = SchemeType(
    settings=Jwt,
    build=lambda settings, ports: JwtAccess(settings, ports.fetch, now=ports.now, clock=ports.clock),
)
