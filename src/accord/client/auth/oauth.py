"""OAuth 2.0 client credentials (RFC 6749, 4.4): a token that this client gets for itself.

A token is kept until a minute before its end and asked for again after a 401, once. No user is ever sent to a browser:
other flows are for people, and what they give is a bearer token. Sharing a request among many is `driver`'s.
"""

import base64
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from accord.client.auth.flow import Flow, header_of, with_header
from accord.client.wire import Outgoing, Reply, Unreachable
from accord.errors import AuthenticationFailed

MARGIN_SECONDS = 60.0
"""How long before its end a token is no longer used: a request takes time, and clocks differ."""

TOKEN_SECONDS = 30.0
"""How long a token endpoint may take."""

FORM = "application/x-www-form-urlencoded"
NOTHING: Mapping[str, str] = MappingProxyType({})

MAY_PASS = (408, 425, 429)
"""Statuses besides those of 500 and more after which asking again may help."""


class Token(Struct, frozen=True):
    """A token, and when by the clock it is no longer used."""

    text: str
    until: float | None

    def __repr__(self) -> str:
        return f"Token(until={self.until})"


class _Granted(Struct):
    """The answer of a token endpoint; some write the number as text."""

    access_token: str
    expires_in: float | str | None = None


class _Refused(Struct):
    error: str = ""
    error_description: str = ""


_granted = msgspec.json.Decoder(_Granted)
_refused = msgspec.json.Decoder(_Refused)

Asking = Generator[Outgoing, Reply, Token]


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
        parameters: Mapping[str, str] = NOTHING,
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
        self._token: Token | None = None
        self._in_header = in_header

    def __repr__(self) -> str:
        return f"ClientCredentials(token_url={self._token_url!r}, client_id={self._client_id!r})"

    def prepare(self, request: Outgoing) -> Flow:
        """Return the request with a token, asking for one first if there is none."""
        token = self._token
        if token is None or (token.until is not None and token.until <= self._clock()):
            token = yield from self._renewed()
        return _with(request, token)

    def retry(self, request: Outgoing, refused: Reply) -> Flow | None:
        """Return the request with another token than the one that was refused."""
        return self._again(request)

    def _again(self, request: Outgoing) -> Flow:
        token = self._token
        if token is not None and _is_with(request, token):  # else somebody has had a new one since
            self._token = token = None
        return _with(request, token or (yield from self._renewed()))

    def _renewed(self) -> Asking:
        reply = yield self._asking(in_header=self._in_header)
        if not self._in_header and (reply.status == 401 or _said(reply).error == "invalid_client"):
            reply = yield self._asking(in_header=True)
            self._in_header = reply.status == 200
        self._token = token = self._read(reply)
        return token

    def _asking(self, *, in_header: bool) -> Outgoing:
        id, secret = self._client_id, self._client_secret
        form = self._form if in_header else self._form | {"client_id": id, "client_secret": secret}
        request = Outgoing(
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

    def _read(self, reply: Reply) -> Token:
        if reply.status != 200:
            raise failure_of(self._token_url, reply)
        try:
            granted = _granted.decode(reply.body)
            lasts = None if granted.expires_in is None else float(granted.expires_in)
        except (msgspec.MsgspecError, ValueError):  # nothing of it is repeated: it may have a token in it
            raise AuthenticationFailed(f"{self._token_url} answers with something that is no token") from None
        text = granted.access_token
        if not text or not text.isascii() or not text.isprintable():
            raise AuthenticationFailed(f"{self._token_url} answers with a token that no header can hold")
        return Token(text, None if not lasts else self._clock() + _used_for(lasts))


def _used_for(lasts: float) -> float:
    """Return how long a token is used; one that hardly lasts is used for half of it, not asked for each time."""
    return lasts - MARGIN_SECONDS if lasts > MARGIN_SECONDS else lasts / 2


def _with(request: Outgoing, token: Token) -> Outgoing:
    return with_header(request, "Authorization", f"Bearer {token.text}")


def _is_with(request: Outgoing, token: Token) -> bool:
    return header_of(request, "Authorization") == f"Bearer {token.text}"


def failure_of(url: str, reply: Reply) -> Exception:
    """Return why there is no token, as far as an endpoint says so in OAuth's own words."""
    if reply.status >= 500 or reply.status in MAY_PASS:
        return Unreachable(f"No credentials to be had: {url} answers {reply.status}", was_sent=False)
    said = _said(reply)
    words = ": ".join(word for word in (said.error, said.error_description) if word)
    reason = f" ({''.join(c if c.isprintable() else '?' for c in words)[:200]})" if words else ""
    return AuthenticationFailed(f"{url} gives no token: {reply.status}{reason}")


def _said(reply: Reply) -> _Refused:
    """Read an error (RFC 6749, 5.2); a proxy in front of the endpoint may say anything else."""
    try:
        return _refused.decode(reply.body)
    except msgspec.MsgspecError:
        return _Refused()
