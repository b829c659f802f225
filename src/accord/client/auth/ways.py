"""The ways to authenticate that a card can describe, and what each needs: one row for each form of a scheme.

A row says how a way is made of credentials; which of several is taken, and where credentials are, is `choice`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from accord.client.auth.certificates import Mtls
from accord.client.auth.flow import Auth
from accord.client.auth.oauth import ClientCredentials
from accord.client.auth.oidc import OpenIdConnect
from accord.client.auth.signed import Hmac
from accord.client.auth.stated import ApiKey, Basic, Bearer
from accord.client.keys import Credential
from accord.model import (
    ApiKeyScheme,
    HttpAuthScheme,
    MutualTlsScheme,
    OAuth2Scheme,
    OpenIdConnectScheme,
    SecurityScheme,
)
from accord.protocol import signing

Make = Callable[[Credential, Sequence[str]], Auth | None]
"""Makes a way of a credential for some scopes; None if the credential has nothing for it."""


class Way(Struct, frozen=True, kw_only=True):
    """One way to authenticate: `kind` is what `accord creds set` calls it, and `sent_to` where it sends secrets besides
    the agent itself. A lower `rank` is preferred.
    """

    rank: int
    kind: str
    wants: str
    variables: str
    make: Make
    sent_to: tuple[str, ...] = ()


def way_of(scheme: SecurityScheme) -> Way:
    """Return how a scheme of a card is satisfied."""
    form = next(form for form in scheme.__struct_fields__ if getattr(scheme, form) is not None)
    return _FORMS[form](getattr(scheme, form))


def _api_key(scheme: ApiKeyScheme) -> Way:
    if signing.is_described_by(scheme):
        return _signature(scheme)

    def make(credential: Credential, scopes: Sequence[str]) -> Auth | None:
        if credential.api_key is None:
            return None
        return ApiKey(credential.api_key, location=scheme.location, name=scheme.name)

    wants = f"an API key in the {scheme.location} {scheme.name}"
    return Way(rank=0, kind="api-key", wants=wants, variables="ACCORD_KEY_{id}", make=make)


def _signature(scheme: ApiKeyScheme) -> Way:
    def make(credential: Credential, scopes: Sequence[str]) -> Auth | None:
        key = credential.hmac
        return None if key is None else Hmac(key.secret, key_id=key.key_id)

    wants = f"requests that are signed in the header {scheme.name}"
    return Way(rank=5, kind="hmac", wants=wants, variables="ACCORD_HMAC_{id}", make=make)


OAUTH = "ACCORD_OAUTH_{id}_CLIENT_ID and _CLIENT_SECRET"


def _oauth2(scheme: OAuth2Scheme) -> Way:
    flow = scheme.flows.client_credentials
    if flow is None:  # the other flows are for people with a browser, who come with a token
        return _bearer("a token of another OAuth 2.0 flow than client credentials", rank=2)

    def make(credential: Credential, scopes: Sequence[str]) -> Auth | None:
        client = credential.oauth
        if client is None or not client.client_id or not client.client_secret:
            return _token(credential)
        return ClientCredentials(
            flow.token_url, client.client_id, client.client_secret, scopes=scopes, parameters=client.parameters
        )

    wants = f"an OAuth 2.0 client of {flow.token_url}"
    return Way(rank=1, kind="oauth", wants=wants, variables=OAUTH, make=make, sent_to=(flow.token_url,))


def _open_id_connect(scheme: OpenIdConnectScheme) -> Way:
    url = scheme.open_id_connect_url

    def make(credential: Credential, scopes: Sequence[str]) -> Auth | None:
        client = credential.oauth
        if client is None or not client.client_id or not client.client_secret:
            return _token(credential)
        more: Mapping[str, Any] = {"scopes": scopes, "parameters": client.parameters}
        return OpenIdConnect(url, client.client_id, client.client_secret, hosts=credential.hosts, **more)

    wants = f"an OpenID Connect client of {url}"
    return Way(rank=1, kind="oauth", wants=wants, variables=OAUTH, make=make, sent_to=(url,))


def _http(scheme: HttpAuthScheme) -> Way:
    if scheme.scheme.lower() != "basic":
        return _bearer(f"a token for HTTP {scheme.scheme}", rank=2, scheme=scheme.scheme)

    def make(credential: Credential, scopes: Sequence[str]) -> Auth | None:
        user = credential.basic
        return None if user is None else Basic(user.username, user.password)

    return Way(rank=3, kind="basic", wants="a name and a password", variables="ACCORD_BASIC_{id}", make=make)


def _bearer(wants: str, *, rank: int, scheme: str = "Bearer") -> Way:
    def make(credential: Credential, scopes: Sequence[str]) -> Auth | None:
        return _token(credential, scheme)

    return Way(rank=rank, kind="bearer", wants=wants, variables="ACCORD_TOKEN_{id}", make=make)


def _token(credential: Credential, scheme: str = "Bearer") -> Auth | None:
    return None if credential.bearer is None else Bearer(credential.bearer, scheme=scheme)


def _mtls(scheme: MutualTlsScheme) -> Way:
    def make(credential: Credential, scopes: Sequence[str]) -> Auth | None:
        own = credential.certificate
        return None if own is None else Mtls(own.file, own.key, password=own.password, ca=own.ca)

    return Way(rank=4, kind="mtls", wants="a client certificate", variables="`certificate` in a key file", make=make)


_FORMS: Mapping[str, Callable[[Any], Way]] = {
    "api_key_security_scheme": _api_key,
    "oauth2_security_scheme": _oauth2,
    "open_id_connect_security_scheme": _open_id_connect,
    "http_auth_security_scheme": _http,
    "mtls_security_scheme": _mtls,
}
