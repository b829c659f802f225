"""OAuth 2.0 client credentials (RFC 6749, 4.4), also found by OpenID Connect discovery.

A token is used until a minute before its expiry, and requested again once after a 401. Other flows are for people with
a browser: what they give is a bearer token.
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
from accord.client.transports import HttpReply, HttpRequest, Unreachable
from accord.errors import AuthenticationFailed

MARGIN_SECONDS = 60.0
"""How long before its end a token is no longer used: a request takes time, and clocks differ."""

TOKEN_SECONDS = 30.0
"""How long a token endpoint may take."""

FORM = "application/x-www-form-urlencoded"
NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})

TRANSIENT_STATUSES = (408, 425, 429)
"""Statuses besides those of 500 and more after which asking again may help."""


class OAuthToken(Struct, frozen=True):
    """A token, and when by the clock it is no longer used."""

    text: str
    until: float | None

    def __repr__(self) -> str:
        return f"OAuthToken(until={self.until})"


class _Granted(Struct):
    """The answer of a token endpoint; some write the number as text."""

    access_token: str
    expires_in: float | str | None = None


class _Refused(Struct):
    error: str = ""
    error_description: str = ""


_granted = msgspec.json.Decoder(_Granted)
_refused = msgspec.json.Decoder(_Refused)

TokenFlow = Generator[HttpRequest, HttpReply, OAuthToken]


class ClientCredentials:
    """A token that this client gets for itself.

    The secret is sent in the form as AgentVault does; an endpoint that answers 401 is asked once more with it in
    `Authorization`, which is the only way that every endpoint must know (RFC 6749, 2.3.1).
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
        """Ask at `token_url`; `parameters` are added to the form, such as an audience.

        `in_header` is for endpoints that are known to want the secret in `Authorization`.
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
        """Return the request with a token, asking for one first if there is none."""
        token = self._token
        if token is None or (token.until is not None and token.until <= self._clock()):
            token = yield from self._renewed()
        return _with_token(request, token)

    def retry(self, request: HttpRequest, refused: HttpReply) -> AuthFlow | None:
        """Return the request with another token than the one that was refused."""
        return self._again(request)

    def _again(self, request: HttpRequest) -> AuthFlow:
        token = self._token
        if token is not None and _has_token(request, token):  # else somebody has had a new one since
            self._token = token = None
        return _with_token(request, token or (yield from self._renewed()))

    def _renewed(self) -> TokenFlow:
        reply = yield self._asking(in_header=self._in_header)
        if not self._in_header and (reply.status == 401 or _read_refusal(reply).error == "invalid_client"):
            reply = yield self._asking(in_header=True)
            self._in_header = reply.status == 200
        self._token = token = self._read(reply)
        return token

    def _asking(self, *, in_header: bool) -> HttpRequest:
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
        except (msgspec.MsgspecError, ValueError):  # nothing of it is repeated: it may have a token in it
            raise AuthenticationFailed(f"{self._token_url} answers with something that is no token") from None
        text = granted.access_token
        if not text or not text.isascii() or not text.isprintable():
            raise AuthenticationFailed(f"{self._token_url} answers with a token that no header can hold")
        return OAuthToken(text, None if not lasts else self._clock() + _usable_seconds(lasts))


def _usable_seconds(lasts: float) -> float:
    """Return how long a token is used; one that hardly lasts is used for half of it, not asked for each time."""
    return lasts - MARGIN_SECONDS if lasts > MARGIN_SECONDS else lasts / 2


def _with_token(request: HttpRequest, token: OAuthToken) -> HttpRequest:
    return with_header(request, "Authorization", f"Bearer {token.text}")


def _has_token(request: HttpRequest, token: OAuthToken) -> bool:
    return header_of(request, "Authorization") == f"Bearer {token.text}"


def token_error(url: str, reply: HttpReply) -> Exception:
    """Return why there is no token, as far as an endpoint says so in OAuth's own words."""
    if reply.status >= 500 or reply.status in TRANSIENT_STATUSES:
        return Unreachable(f"No credentials to be had: {url} answers {reply.status}", was_sent=False)
    said = _read_refusal(reply)
    words = ": ".join(word for word in (said.error, said.error_description) if word)
    reason = f" ({''.join(c if c.isprintable() else '?' for c in words)[:200]})" if words else ""
    return AuthenticationFailed(f"{url} gives no token: {reply.status}{reason}")


def _read_refusal(reply: HttpReply) -> _Refused:
    """Read an error (RFC 6749, 5.2); a proxy in front of the endpoint may say anything else."""
    try:
        return _refused.decode(reply.body)
    except msgspec.MsgspecError:
        return _Refused()


class _Issuer(Struct):
    """What of the document matters here; the default is OpenID Connect Discovery's (3)."""

    token_endpoint: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


_issuer = msgspec.json.Decoder(_Issuer)


class OpenIdConnect:
    """Client credentials at the token endpoint that an issuer names."""

    def __init__(
        self, discovery_url: str, client_id: str, client_secret: str, *, hosts: Collection[str] = (), **more: Any
    ) -> None:
        """Discover at `discovery_url`; everything else is as for `ClientCredentials`.

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
        """Return the request with a token, discovering where to get one first."""
        inner = self._inner
        if inner is None:
            self._inner = inner = self._read((yield self._asking()))
        return (yield from inner.prepare(request))

    def retry(self, request: HttpRequest, refused: HttpReply) -> AuthFlow | None:
        """Return the request with another token."""
        return None if self._inner is None else self._inner.retry(request, refused)

    def _asking(self) -> HttpRequest:
        headers = (("Accept", "application/json"),)
        return HttpRequest(method="GET", url=self._discovery_url, headers=headers, seconds=TOKEN_SECONDS)

    def _read(self, reply: HttpReply) -> ClientCredentials:
        if reply.status != 200:
            raise token_error(self._discovery_url, reply)
        try:
            found = _issuer.decode(reply.body)
        except msgspec.MsgspecError as error:
            text = f"{self._discovery_url} is no OpenID Connect discovery: {error}"
            raise AuthenticationFailed(text) from None
        if self._discovery_url.startswith("https:") and not found.token_endpoint.startswith("https:"):
            raise AuthenticationFailed(f"{self._discovery_url} names a token endpoint that is not https")
        if self._hosts and not is_host_allowed(self._hosts, found.token_endpoint):
            named = f"{self._discovery_url} names the token endpoint {found.token_endpoint}"
            raise AuthenticationFailed(
                f"{named}, which is not among the credential's hosts (`accord creds set --host`)"
            )
        in_header = "client_secret_post" not in found.token_endpoint_auth_methods_supported
        return ClientCredentials(
            found.token_endpoint, self._client_id, self._client_secret, in_header=in_header, **self._more
        )
