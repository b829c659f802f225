"""OpenID Connect: its discovery document says where to get a token, which is then OAuth 2.0's client credentials.

It reads no identity: what a token says is for the agent. The document is read once; a token is asked for again when
`oauth` says so.
"""

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Struct

from accord.client.auth.flow import Flow
from accord.client.auth.oauth import TOKEN_SECONDS, ClientCredentials, failure_of
from accord.client.keys.credential import is_for
from accord.client.wire import Outgoing, Reply
from accord.errors import AuthenticationFailed


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

    def prepare(self, request: Outgoing) -> Flow:
        """Return the request with a token, discovering where to get one first."""
        inner = self._inner
        if inner is None:
            self._inner = inner = self._read((yield self._asking()))
        return (yield from inner.prepare(request))

    def retry(self, request: Outgoing, refused: Reply) -> Flow | None:
        """Return the request with another token."""
        return None if self._inner is None else self._inner.retry(request, refused)

    def _asking(self) -> Outgoing:
        headers = (("Accept", "application/json"),)
        return Outgoing(method="GET", url=self._discovery_url, headers=headers, seconds=TOKEN_SECONDS)

    def _read(self, reply: Reply) -> ClientCredentials:
        if reply.status != 200:
            raise failure_of(self._discovery_url, reply)
        try:
            found = _issuer.decode(reply.body)
        except msgspec.MsgspecError as error:
            text = f"{self._discovery_url} is no OpenID Connect discovery: {error}"
            raise AuthenticationFailed(text) from None
        if self._discovery_url.startswith("https:") and not found.token_endpoint.startswith("https:"):
            raise AuthenticationFailed(f"{self._discovery_url} names a token endpoint that is not https")
        if self._hosts and not is_for(self._hosts, found.token_endpoint):
            named = f"{self._discovery_url} names the token endpoint {found.token_endpoint}"
            raise AuthenticationFailed(
                f"{named}, which is not among the credential's hosts (`accord creds set --host`)"
            )
        in_header = "client_secret_post" not in found.token_endpoint_auth_methods_supported
        return ClientCredentials(
            found.token_endpoint, self._client_id, self._client_secret, in_header=in_header, **self._more
        )
