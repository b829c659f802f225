"""OpenID Connect sign-in: the authorization code flow with PKCE.

The issuer's ID token is verified like any of its tokens (`auth.jwt`). Only servers with such an issuer import
this module, because the verification of signatures takes a tenth of a second to import.
"""

import base64
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.api import Identity
from accord.api.access import MAX_TOKEN, Fetch, FetchError, Jwt, JwtAccess, SignIn, discovery_url
from accord.api.directory import ServerAnswer
from accord.console.sessions import PendingSignIn
from accord.errors import AuthenticationFailed

FRESH_SECONDS = 600.0
"""Seconds for which an issuer's discovery document is cached."""

MAX_CODE = 4096
"""Maximum length of an authorization code."""

FORM = "application/x-www-form-urlencoded"

Post = Callable[[str, Mapping[str, str], bytes], Awaitable[ServerAnswer]]
"""Posts to a URL, or raises NotFetched."""

log = logging.getLogger("accord.console")


class _Described(Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(Struct):
    id_token: str


_described, _tokens = msgspec.json.Decoder(_Described), msgspec.json.Decoder(_Tokens)


class Issuer:
    """An issuer at which people sign in."""

    def __init__(
        self, settings: Jwt, sign_in: SignIn, fetch: Fetch, post: Post, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Create a client of the issuer in `settings`."""
        self._settings = settings
        self._client = sign_in
        self._fetch = fetch
        self._post = post
        self._clock = clock
        # An ID token has the client as its audience. Its identity is read as from any other token.
        self._tokens = JwtAccess(replace(settings, audience=(sign_in.client_id,), sign_in=None), fetch)
        self._cached: tuple[float, _Described] | None = None

    @property
    def label(self) -> str:
        """Name shown to people."""
        return self._client.label

    async def begin(self, redirect: str, next: str) -> tuple[str, PendingSignIn]:
        """Return the issuer's sign-in URL and the pending state. Raises NotFetched."""
        described = await self._description()
        pending = PendingSignIn(
            issuer=self._client.name,
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            next=next,
        )
        challenge = hashlib.sha256(pending.verifier.encode()).digest()
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._client.client_id,
                "redirect_uri": redirect,
                "scope": " ".join(self._client.scopes),
                "state": pending.state,
                "nonce": pending.nonce,
                "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
                "code_challenge_method": "S256",
            }
        )
        joint = "&" if urlsplit(described.authorization_endpoint).query else "?"
        return f"{described.authorization_endpoint}{joint}{query}", pending

    async def finish(self, pending: PendingSignIn, code: str, redirect: str, issuer: str | None) -> Identity:
        """Return the identity of the signed-in person. `issuer` is the issuer named by the response (RFC 9207).

        Raises AuthenticationFailed for an invalid response, and NotFetched if the issuer cannot be reached.
        """
        if not code or len(code) > MAX_CODE or issuer not in (None, self._settings.issuer):
            raise AuthenticationFailed
        token = await self._redeemed(code, pending.verifier, redirect)
        claims, identity = await self._tokens.read(token)
        nonce, party = claims.get("nonce"), claims.get("azp", self._client.client_id)
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), pending.nonce.encode()):
            raise self._refused("the nonce is another")
        if party != self._client.client_id:
            raise self._refused("the token is of another client")
        return identity

    async def _redeemed(self, code: str, verifier: str, redirect: str) -> str:
        """Return the ID token for an authorization code."""
        described, client = await self._description(), self._client
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": client.client_id,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": FORM, "Accept": "application/json"}
        if client.client_secret is not None:
            if "client_secret_basic" in described.token_endpoint_auth_methods_supported:
                pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"  # RFC 6749, 2.3.1
                headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
            else:
                form["client_secret"] = client.client_secret
        answer = await self._post(described.token_endpoint, headers, urlencode(form).encode())
        if answer.status != 200:
            raise self._refused(f"the code was answered with {answer.status}")
        try:
            token = _tokens.decode(answer.body).id_token
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise self._refused("there is no identity token in the answer") from None
        if len(token) > MAX_TOKEN:
            raise self._refused("the identity token is too large")
        return token

    async def _description(self) -> _Described:
        cached = self._cached
        if cached is not None and cached[0] > self._clock():
            return cached[1]
        issuer = self._settings.issuer
        try:
            description = _described.decode(await self._fetch(discovery_url(issuer)))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise FetchError("The issuer's description is not valid") from None
        if description.issuer != issuer:
            raise FetchError("The issuer states another URL for itself")
        allowed = ("https", urlsplit(issuer).scheme)
        if not {urlsplit(description.authorization_endpoint).scheme, urlsplit(description.token_endpoint).scheme} <= {
            *allowed
        }:
            raise FetchError("The endpoints of the issuer are less secure than the issuer's own URL")
        self._cached = self._clock() + FRESH_SECONDS, description
        return description

    def _refused(self, reason: str) -> AuthenticationFailed:
        log.info("console.not_signed_in", extra={"issuer": self._settings.issuer, "reason": reason})
        return AuthenticationFailed()
