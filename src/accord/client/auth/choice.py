"""The choice of authentication for a card, from the credentials there are.

Alternatives are tried in AgentVault's order (API key, OAuth, none, the rest between), because the order of a card's
requirements means nothing in A2A. The first with credentials is taken.

A card is written by its agent, so the id in it gives it no credential. A credential without `hosts` is sent only to the
host that its id names.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from shlex import quote
from typing import Any, NamedTuple

from msgspec import Struct

from accord.client.auth.oauth import ClientCredentials, OpenIdConnect
from accord.client.auth.schemes import (
    Anonymous,
    ApiKey,
    BasicAuth,
    Bearer,
    CombinedAuth,
    CustomHeader,
    HmacAuth,
    MtlsAuth,
)
from accord.client.credentials import Credential, Keys
from accord.client.credentials.credential import host_ids, host_names, is_host_allowed, variable_suffix
from accord.client.exchange import ClientAuth
from accord.model import (
    AgentCard,
    ApiKeyScheme,
    HttpAuthScheme,
    MutualTlsScheme,
    OAuth2Scheme,
    OpenIdConnectScheme,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
)
from accord.protocol import http_headers, urls

Make = Callable[[Credential, Sequence[str]], ClientAuth | None]
"""Creates a `ClientAuth` from a credential and scopes; None if the credential lacks the secret."""

OAUTH_VARIABLES = "ACCORD_OAUTH_{id}_CLIENT_ID and _CLIENT_SECRET"


class AuthMethod(Struct, frozen=True, kw_only=True):
    """One authentication method.

    `kind` is its name in `accord creds set`, and `sent_to` lists further addresses that receive secrets. A lower
    `rank` is preferred.
    """

    rank: int
    kind: str
    wants: str
    variables: str
    make: Make
    sent_to: tuple[str, ...] = ()


def auth_method_of(scheme: SecurityScheme) -> AuthMethod:
    """Return the authentication method for a card's scheme."""
    form = next(form for form in scheme.__struct_fields__ if getattr(scheme, form) is not None)
    return _FORMS[form](getattr(scheme, form))


def _api_key(scheme: ApiKeyScheme) -> AuthMethod:
    if http_headers.is_signature_scheme(scheme):
        wants = f"requests that are signed in the header {scheme.name}"
        return AuthMethod(rank=5, kind="hmac", wants=wants, variables="ACCORD_HMAC_{id}", make=_signature)

    def make(credential: Credential, scopes: Sequence[str]) -> ClientAuth | None:
        key = credential.api_key
        return None if key is None else ApiKey(key, location=scheme.location, name=scheme.name)

    wants = f"an API key in the {scheme.location} {scheme.name}"
    return AuthMethod(rank=0, kind="api-key", wants=wants, variables="ACCORD_KEY_{id}", make=make)


def _oauth2(scheme: OAuth2Scheme) -> AuthMethod:
    flow = scheme.flows.client_credentials
    if flow is None:  # the other flows need a person with a browser, who supplies a token
        return _bearer("a token of another OAuth 2.0 flow than client credentials")
    return _oauth_client("OAuth 2.0", ClientCredentials, flow.token_url)


def _open_id_connect(scheme: OpenIdConnectScheme) -> AuthMethod:
    return _oauth_client("OpenID Connect", OpenIdConnect, scheme.open_id_connect_url)


def _oauth_client(standard: str, flow: type[ClientCredentials] | type[OpenIdConnect], url: str) -> AuthMethod:
    def make(credential: Credential, scopes: Sequence[str]) -> ClientAuth | None:
        client = credential.oauth
        if client is None or not client.client_id or not client.client_secret:
            return None if credential.bearer is None else Bearer(credential.bearer)
        options: dict[str, Any] = {"scopes": scopes, "parameters": client.parameters}
        if flow is OpenIdConnect:
            options["hosts"] = credential.hosts
        return flow(url, client.client_id, client.client_secret, **options)

    wants = f"an {standard} client of {url}"
    return AuthMethod(rank=1, kind="oauth", wants=wants, variables=OAUTH_VARIABLES, make=make, sent_to=(url,))


def _http(scheme: HttpAuthScheme) -> AuthMethod:
    if scheme.scheme.lower() != "basic":
        return _bearer(f"a token for HTTP {scheme.scheme}", scheme.scheme)
    wants = "a name and a password"
    return AuthMethod(rank=3, kind="basic", wants=wants, variables="ACCORD_BASIC_{id}", make=_basic)


def _bearer(wants: str, scheme: str = "Bearer") -> AuthMethod:
    def make(credential: Credential, scopes: Sequence[str]) -> ClientAuth | None:
        return None if credential.bearer is None else Bearer(credential.bearer, scheme=scheme)

    return AuthMethod(rank=2, kind="bearer", wants=wants, variables="ACCORD_TOKEN_{id}", make=make)


def _mtls(scheme: MutualTlsScheme) -> AuthMethod:
    variables = "`certificate` in a key file"
    return AuthMethod(rank=4, kind="mtls", wants="a client certificate", variables=variables, make=_certificate)


def _signature(credential: Credential, scopes: Sequence[str] = ()) -> ClientAuth | None:
    key = credential.hmac
    return None if key is None else HmacAuth(key.secret, key_id=key.key_id)


def _basic(credential: Credential, scopes: Sequence[str] = ()) -> ClientAuth | None:
    user = credential.basic
    return None if user is None else BasicAuth(user.username, user.password)


def _certificate(credential: Credential, scopes: Sequence[str]) -> ClientAuth | None:
    own = credential.certificate
    return None if own is None else MtlsAuth(own.file, own.key, password=own.password, ca=own.ca)


_FORMS: Mapping[str, Callable[[Any], AuthMethod]] = {
    "api_key_security_scheme": _api_key,
    "oauth2_security_scheme": _oauth2,
    "open_id_connect_security_scheme": _open_id_connect,
    "http_auth_security_scheme": _http,
    "mtls_security_scheme": _mtls,
}


LAST_RANK = 9
"""The rank of a scheme that a card requires but does not describe."""


class NoCredentials(Exception):
    """There are no credentials for a card's requirements. The message names the credentials that would satisfy them."""


class ChosenAuth(NamedTuple):
    """The chosen authentication, the card's names for its schemes, and the ids of its credentials."""

    auth: ClientAuth
    schemes: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


def choose_auth(
    card: AgentCard, keys: Keys | None = None, *, service: str | None = None, origin: str = ""
) -> ClientAuth:
    """Return the authentication for a card's agent, or raise NoCredentials.

    Credentials are looked up by `service`. Without it they are looked up by the scheme's `service_identifier`, the
    card's `humanReadableId`, and the agent's host with and without its port. The lookup may block on the operating
    system. `origin` is the address that served the card, empty if unknown.
    """
    return choose_auth_with_ids(card, keys, service=service, origin=origin).auth


def choose_auth_with_ids(
    card: AgentCard, keys: Keys | None = None, *, service: str | None = None, origin: str = ""
) -> ChosenAuth:
    """Return the authentication with its schemes and ids; see `choose_auth`."""
    choice = _AuthChoice(card, keys or _NoKeys(), service, origin)
    missing: list[str] = []
    for requirement in choice.alternatives():
        chosen = choice.satisfy(requirement)
        if isinstance(chosen, ChosenAuth):
            return chosen
        missing.append(chosen)
    undeclared = choice.undeclared()
    if undeclared is not None:
        return undeclared
    if choice.is_optional:
        return ChosenAuth(Anonymous())
    raise NoCredentials(f"{card.name} asks for {'; or for '.join(missing)}")


def credential_ids(card: AgentCard, service: str | None = None) -> tuple[str, ...]:
    """Return every id under which credentials for a card's agent may be stored, the likeliest first."""
    if service:
        return (service,)
    named = card.profile.service_identifiers.values() if card.profile else ()
    return tuple(dict.fromkeys([*named, *_own_ids(card)]))


class _NoKeys:
    def find(self, id: str) -> Credential | None:
        return None


class _AuthChoice:
    """The choice for one card, with the source of credentials."""

    def __init__(self, card: AgentCard, keys: Keys, service: str | None, origin: str) -> None:
        self._card = card
        self._keys = keys
        self._service = service
        self._origin = origin
        stated = card.security_requirements
        # A card that describes schemes and requires none lets everyone in, but may allow more to authenticated callers.
        alone = [SecurityRequirement(schemes={name: Scopes()}) for name in card.security_schemes]
        self._requirements = stated or tuple(alone)
        self.is_optional = not stated or any(not requirement.schemes for requirement in stated)

    def alternatives(self) -> list[SecurityRequirement]:
        """Return the alternative requirements, the preferred first."""

        def rank(requirement: SecurityRequirement) -> int:
            methods = [self._method(name) for name in requirement.schemes]
            return max(LAST_RANK if method is None else method.rank for method in methods)

        return sorted((one for one in self._requirements if one.schemes), key=rank)

    def satisfy(self, requirement: SecurityRequirement) -> ChosenAuth | str:
        """Return the authentication for all schemes of a requirement, or a text that names the missing ones."""
        choices = [self._auth_for(name, scopes.list) for name, scopes in requirement.schemes.items()]
        missing = [one for one in choices if isinstance(one, str)]
        if missing:
            return " and ".join(missing)
        parts = [one for one in choices if isinstance(one, ChosenAuth)]
        auths = [one.auth for one in parts]
        ids = tuple(dict.fromkeys(id for one in parts for id in one.ids))
        return ChosenAuth(auths[0] if len(auths) == 1 else CombinedAuth(auths), tuple(requirement.schemes), ids)

    def undeclared(self) -> ChosenAuth | None:
        """Return a method that the card does not declare.

        Some dialects cannot describe signatures, and some cards omit their schemes.
        """
        for id in credential_ids(self._card, self._service):
            credential = self._keys.find(id)
            if credential is None or self._foreign_hosts(id, credential):
                continue
            try:
                auth = _unstated_auth(credential, is_named=self._service is not None)
            except ValueError as error:
                raise NoCredentials(f"What is kept under `{id}` cannot be used: {error}") from None
            if auth is not None:
                return ChosenAuth(auth, (), (id,))
        return None

    def _method(self, name: str) -> AuthMethod | None:
        scheme = self._card.security_schemes.get(name)
        return None if scheme is None else auth_method_of(scheme)

    def _auth_for(self, name: str, scopes: Sequence[str]) -> ChosenAuth | str:
        """Return the authentication for one scheme, or a text that names the missing credential."""
        method = self._method(name)
        if method is None:
            return f"`{name}`, which its card does not describe"
        ids = self._ids(name)
        reasons, commands = [], []
        for id in ids:
            credential = self._keys.find(id)
            try:
                auth = None if credential is None else method.make(credential, scopes)
            except ValueError as error:
                reasons.append(f"what is kept under `{id}` cannot be used: {error}")
                continue
            if credential is None or auth is None:
                continue
            refused_hosts = self._foreign_hosts(id, credential, () if isinstance(auth, Bearer) else method.sent_to)
            if not refused_hosts and not _is_downgraded(self._card, method):
                return ChosenAuth(auth, (name,), (id,))
            target = " and ".join(refused_hosts) if refused_hosts else f"{method.sent_to[0]}, which is not https"
            reasons.append(f"the credential `{id}` is not for {target}")
            commands += [allow_hosts_hint(id, credential, refused_hosts)] if refused_hosts else []
        return _describe_missing(method, ids, reasons, commands)

    def _foreign_hosts(self, id: str, credential: Credential, tokens: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the hosts that would receive a credential that is not stored for them.

        Other ports of the host in `id` are allowed, and a card served by this host may name any token endpoint. The
        caller's own `service` is for all hosts, unless the credential has `hosts`.
        """
        urls = _urls(self._card)
        if credential.hosts or self._service:
            return foreign_hosts(credential, [*urls, *tokens])
        if id.lower() in host_names(self._origin):
            return _hosts_not_among(host_ids(self._origin)[-1:], urls)
        return _hosts_not_among((id,), [*urls, *tokens])

    def _ids(self, scheme: str) -> list[str]:
        """Return the ids for one scheme, without the card's ids for other schemes."""
        if self._service:
            return [self._service]
        named = self._card.profile.service_identifiers.get(scheme) if self._card.profile else None
        return list(dict.fromkeys([*([named] if named else []), *_own_ids(self._card)]))


def _unstated_auth(credential: Credential, *, is_named: bool) -> ClientAuth | None:
    """Return the authentication where the card requires none.

    A plain secret is sent only if the caller named the credential.
    """
    if credential.hmac is not None:
        return _signature(credential)
    if credential.headers:
        return CustomHeader(credential.headers)
    if not is_named:
        return None
    if credential.bearer is not None:
        return Bearer(credential.bearer)
    return _basic(credential) if credential.api_key is None else ApiKey(credential.api_key)


def _describe_missing(method: AuthMethod, ids: Sequence[str], reasons: Sequence[str], commands: Sequence[str]) -> str:
    """Return a text that names the missing credential and the fix."""
    id = ids[0] if ids else "<id>"
    nothing = f"no such credential is stored under {' or '.join(f'`{one}`' for one in ids)}"
    variables = method.variables.format(id=variable_suffix(id).upper())
    # Quoted, because a card's author writes the id, and a reader may copy the command into a shell.
    fix = f"set {variables}, or run `accord creds set {quote(ids[0]) if ids else id} --kind {method.kind}`"
    return f"{method.wants} ({'; '.join(reasons) or nothing}; {' or '.join(commands) or fix})"


def _own_ids(card: AgentCard) -> list[str]:
    """Return the ids of an agent: its name in AgentVault's registry, and its host."""
    own = [card.profile.human_readable_id] if card.profile and card.profile.human_readable_id else []
    return own + [id for url in _urls(card)[:1] for id in host_ids(url)]


def _urls(card: AgentCard) -> list[str]:
    return [interface.url for interface in card.supported_interfaces]


def foreign_hosts(credential: Credential, urls: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts of addresses outside a credential's `hosts`. Without `hosts` every host is allowed."""
    return _hosts_not_among(credential.hosts, urls) if credential.hosts else ()


def allow_hosts_hint(id: str, credential: Credential, refused: Iterable[str]) -> str:
    """Return the commands that allow a credential to be sent to further hosts."""
    own = credential.hosts or ((id,) if is_host(id) else ())
    allowed = list(dict.fromkeys([*own, *refused]))
    options = " ".join(f"--host {quote(host)}" for host in allowed)
    variable = f"ACCORD_HOSTS_{variable_suffix(id).upper()}={quote(','.join(allowed))}"
    return f"to allow that, run `accord creds set {quote(id)} --kind hosts {options}` or set {variable}"


def _hosts_not_among(allowed: Collection[str], urls: Iterable[str]) -> tuple[str, ...]:
    """Return the first name of each host that is not among the allowed hosts."""
    refused = [url for url in urls if not is_host_allowed(allowed, url)]
    return tuple(dict.fromkeys((host_ids(url) or ["an address without a host"])[0] for url in refused))


def is_host(id: str) -> bool:
    """Whether an id looks like a host, with or without a port."""
    return "/" not in id and (urls.is_loopback(urls.host_of(id)) or "." in id or ":" in id)


def _is_downgraded(card: AgentCard, method: AuthMethod) -> bool:
    """Whether an agent reached over https would have a secret sent to another address without TLS."""
    is_safe = all(url.startswith("https:") for url in _urls(card))
    return is_safe and any(not url.startswith("https:") for url in method.sent_to)
