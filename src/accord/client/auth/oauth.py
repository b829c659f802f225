"""OAuth 2.0 client credentials (RFC 6749, 4.4), also found by OpenID Connect discovery.

A token is used until a minute before its expiry, and requested again once after a 401. Other flows need a person
with a browser, who supplies a bearer token.
"""

import base64
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from accord.client.credentials.credential import is_host_allowed
from accord.client.exchange import AuthFlow, header_of, with_header
from accord.errors import AuthenticationFailed
from accord.outbound import HttpReply, HttpRequest, Unreachable

MARGIN_SECONDS = 60.0
"""How long before its expiry a token is no longer used: a request takes time, and clocks differ."""

TOKEN_SECONDS = 30.0
"""Timeout of the token endpoint, in seconds."""

FORM = "application/x-www-form-urlencoded"
NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})

TRANSIENT_STATUSES = (408, 425, 429)
"""Statuses below 500 after which a retry may help."""


class OAuthToken(Struct, frozen=True):
    """A token, and the clock time until which it is used."""

    text: str
    until: float | None

    def __repr__(self) -> str:
        return f"OAuthToken(until={self.until})"


class _Granted(Struct):
    """The answer of a token endpoint. Some endpoints send the number as text."""

    access_token: str
    expires_in: float | str | None = None


class _Refused(Struct):
    error: str = ""
    error_description: str = ""


_granted = msgspec.json.Decoder(_Granted)
_refused = msgspec.json.Decoder(_Refused)

TokenFlow = Generator[HttpRequest, HttpReply, OAuthToken]


class ClientCredentials:
    """A token that this client requests for itself.

    The secret is sent in the form as AgentVault does. After a 401 it is sent once more in `Authorization`, the only
    method that every endpoint must support (RFC 6749, 2.3.1).
    """

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str,
        *,
        scopes: Sequence[str] = (),
        parameters: Mapping[str, str] = NO_PARAMETERS,
        in_header: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Request tokens at `token_url`. `parameters`, such as an audience, are added to the form.

        `in_header` is for endpoints that are known to require the secret in `Authorization`.
        """
        self._token_url = token_url
        self._client_id = client_id
        self._client_secret = client_secret
        self._form = {"grant_type": "client_credentials", **parameters}
        if scopes:
            self._form["scope"] = " ".join(scopes)
        self._clock = clock
        self._token: OAuthToken | None = None
        self._in_header = in_header

    def __repr__(self) -> str:
        return f"ClientCredentials(token_url={self._token_url!r}, client_id={self._client_id!r})"

    def prepare(self, request: HttpRequest) -> AuthFlow:
        """Return the request with a token, which is requested first if needed."""
        token = self._token
        if token is None or (token.until is not None and token.until <= self._clock()):
            token = yield from self._renew()
        return _with_token(request, token)

    def retry(self, request: HttpRequest, refused: HttpReply) -> AuthFlow:
        """Return the request with another token than the refused token."""
        token = self._token
        if token is not None and header_of(request, "Authorization") == f"Bearer {token.text}":
            self._token = token = None  # otherwise another request has renewed it since
        return _with_token(request, token or (yield from self._renew()))

    def _renew(self) -> TokenFlow:
        reply = yield self._token_request(in_header=self._in_header)
        if not self._in_header and (reply.status == 401 or _read_refusal(reply).error == "invalid_client"):
            reply = yield self._token_request(in_header=True)
            self._in_header = reply.status == 200
        self._token = token = self._read(reply)
        return token

    def _token_request(self, *, in_header: bool) -> HttpRequest:
        id, secret = self._client_id, self._client_secret
        form = self._form if in_header else self._form | {"client_id": id, "client_secret": secret}
        request = HttpRequest(
            method="POST",
            url=self._token_url,
            headers=(("Content-Type", FORM), ("Accept", "application/json")),
            body=urlencode(form).encode(),
            seconds=TOKEN_SECONDS,
        )
        if not in_header:
            return request
        pair = base64.b64encode(f"{quote_plus(id)}:{quote_plus(secret)}".encode()).decode()
        return with_header(request, "Authorization", f"Basic {pair}")

    def _read(self, reply: HttpReply) -> OAuthToken:
        if reply.status != 200:
            raise token_error(self._token_url, reply)
        try:
            granted = _granted.decode(reply.body)
            lasts = None if granted.expires_in is None else float(granted.expires_in)
        except (msgspec.MsgspecError, ValueError):  # without the body: it may contain a token
            raise AuthenticationFailed(f"{self._token_url} returned an answer without a valid token") from None
        text = granted.access_token
        if not text or not text.isascii() or not text.isprintable():
            raise AuthenticationFailed(f"{self._token_url} returned a token that a header cannot contain")
        if not lasts:
            return OAuthToken(text, None)
        usable = lasts - MARGIN_SECONDS if lasts > MARGIN_SECONDS else lasts / 2
        return OAuthToken(text, self._clock() + usable)


def _with_token(request: HttpRequest, token: OAuthToken) -> HttpRequest:
    return with_header(request, "Authorization", f"Bearer {token.text}")


def token_error(url: str, reply: HttpReply) -> Exception:
    """Return the error for a missing token, with the endpoint's OAuth error if it sent one."""
    if reply.status >= 500 or reply.status in TRANSIENT_STATUSES:
        return Unreachable(f"No credentials are available: {url} answers {reply.status}", was_sent=False)
    refusal = _read_refusal(reply)
    words = ": ".join(word for word in (refusal.error, refusal.error_description) if word)
    reason = f" ({''.join(c if c.isprintable() else '?' for c in words)[:200]})" if words else ""
    return AuthenticationFailed(f"{url} gives no token: {reply.status}{reason}")


def _read_refusal(reply: HttpReply) -> _Refused:
    """Decode an error (RFC 6749, 5.2). A proxy before the endpoint may send any other body."""
    try:
        return _refused.decode(reply.body)
    except msgspec.MsgspecError:
        return _Refused()


class _Issuer(Struct):
    """The used fields of the discovery document. The default is from OpenID Connect Discovery (3)."""

    token_endpoint: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


_issuer = msgspec.json.Decoder(_Issuer)


class OpenIdConnect:
    """Client credentials at the token endpoint that an issuer names."""

    def __init__(
        self, discovery_url: str, client_id: str, client_secret: str, *, hosts: Collection[str] = (), **more: Any
    ) -> None:
        """Discover at `discovery_url`. The other arguments are those of `ClientCredentials`.

        If there are `hosts`, the token endpoint must be on one of them.
        """
        self._discovery_url = discovery_url
        self._client_id = client_id
        self._client_secret = client_secret
        self._hosts = hosts
        self._more = more
        self._inner: ClientCredentials | None = None

    def __repr__(self) -> str:
        return f"OpenIdConnect(discovery_url={self._discovery_url!r}, client_id={self._client_id!r})"

    def prepare(self, request: HttpRequest) -> AuthFlow:
        """Return the request with a token, after discovering the token endpoint."""
        inner = self._inner
        if inner is None:
            self._inner = inner = self._read((yield self._token_request()))
        return (yield from inner.prepare(request))

    def retry(self, request: HttpRequest, refused: HttpReply) -> AuthFlow | None:
        """Return the request with another token."""
        return None if self._inner is None else self._inner.retry(request, refused)

    def _token_request(self) -> HttpRequest:
        headers = (("Accept", "application/json"),)
        return HttpRequest(method="GET", url=self._discovery_url, headers=headers, seconds=TOKEN_SECONDS)

    def _read(self, reply: HttpReply) -> ClientCredentials:
        if reply.status != 200:
            raise token_error(self._discovery_url, reply)
        try:
            issuer = _issuer.decode(reply.body)
        except msgspec.MsgspecError as error:
            text = f"{self._discovery_url} is not a valid OpenID Connect discovery document: {error}"
            raise AuthenticationFailed(text) from None
        if self._discovery_url.startswith("https:") and not issuer.token_endpoint.startswith("https:"):
            raise AuthenticationFailed(f"{self._discovery_url} names a token endpoint that is not https")
        if self._hosts and not is_host_allowed(self._hosts, issuer.token_endpoint):
            named = f"{self._discovery_url} names the token endpoint {issuer.token_endpoint}"
            raise AuthenticationFailed(
                f"{named}, which is not among the credential's hosts (`accord creds set --host`)"
            )
        in_header = "client_secret_post" not in issuer.token_endpoint_auth_methods_supported
        return ClientCredentials(
            issuer.token_endpoint, self._client_id, self._client_secret, in_header=in_header, **self._more
        )
