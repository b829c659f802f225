"""How each way to authenticate can be set up: plain values, checked when they are made.

Reading them from files and variables, and looking up secrets that are only named there, is done above. Their `repr` has
no secrets, so that settings may be logged.
"""

from ipaddress import ip_network
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field

from accord.core.access import Identity
from accord.protocol.signing import WINDOW_SECONDS

ANY_TENANT = "*"
"""Where a setting says a tenant: the caller may name any in its requests. In tokens and certificates it is a name."""

MIN_SECRET = 16
"""Characters of a shared secret: 96 bits if they are random base64, and no word that somebody remembers."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all settings."""

    SECRET: ClassVar[frozenset[str]] = frozenset()
    """The fields that are not shown."""

    def __repr__(self) -> str:
        shown = {name: "***" if name in self.SECRET else repr(getattr(self, name)) for name in self.__struct_fields__}
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in shown.items())})"


class Grant(Settings, frozen=True, kw_only=True):
    """What somebody who has authenticated is: `*` as the tenant is any."""

    owner: str = ""
    tenant: str = ""
    roles: tuple[str, ...] = ()

    def identity(self, name: str = "") -> Identity:
        """Return who that is; `name` is the owner where none is stated."""
        tenant = None if self.tenant == ANY_TENANT else self.tenant
        return Identity(owner=self.owner or name, tenant=tenant, roles=frozenset(self.roles))


class User(Grant, frozen=True, kw_only=True):
    """Somebody with a password, given as `accord hash-password` prints it; the owner is by default the user's name."""

    SECRET = frozenset({"password"})

    password: str


class Secret(Grant, frozen=True, kw_only=True):
    """Somebody who knows a secret."""

    SECRET = frozenset({"secret"})

    secret: str

    def __post_init__(self) -> None:
        """Refuse a secret that could be guessed."""
        if len(self.secret) < MIN_SECRET:
            raise ValueError(f"`secret` needs at least {MIN_SECRET} characters")


class ApiKeys(Settings, frozen=True, kw_only=True, tag_field="type", tag="api-keys"):
    """Keys of the store, made by `accord apikeys create`: in a header of their own or as bearer tokens.

    A revoked key is refused after `remember_seconds` at the latest.
    """

    header: str = "X-API-Key"
    remember_seconds: float = 5.0


class SignIn(Settings, frozen=True, kw_only=True):
    """How people sign in to the console with an issuer: this server as its client, by the authorization code flow.

    Its redirect address is that of the server and `/api/session/oidc/NAME/callback`; `label` is what the page says.
    """

    SECRET = frozenset({"client_secret"})

    client_id: str
    client_secret: str | None = None
    name: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,32}$")] = "oidc"
    label: str = "single sign-on"
    scopes: tuple[str, ...] = ("openid", "profile", "email")


class Jwt(Settings, frozen=True, kw_only=True, tag_field="type", tag="jwt"):
    """Bearer tokens of one issuer, whose keys are found by OpenID Connect discovery, at `jwks_url`, or are a `secret`.

    A caller's tenant is that of `tenant_claim` if one is named, and its roles are those of all `role_claims`; a claim
    may be inside of others: `realm_access.roles`. Tokens of two issuers need different `owner_prefix`es, since a
    subject is only unique to its issuer. `token_url` tells clients on the card where to get a token for themselves.
    With `sign_in` people get into the console with it.
    """

    SECRET = frozenset({"secret"})

    issuer: str
    audience: tuple[str, ...]
    jwks_url: str | None = None
    secret: str | None = None
    algorithms: tuple[str, ...] = ()
    leeway_seconds: int = 30
    owner_claim: str = "sub"
    owner_prefix: str = ""
    tenant_claim: str | None = None
    tenant: str = ""
    role_claims: tuple[str, ...] = ("roles", "scope")
    token_url: str | None = None
    scopes: dict[str, str] = field(default_factory=dict)
    sign_in: SignIn | None = None
    remember_seconds: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what would let in tokens that are meant for others."""
        if not self.issuer or not self.audience or not all(self.audience):
            raise ValueError("`issuer` and `audience` are needed: without them a token of another server would do")
        if self.secret is not None and self.jwks_url is not None:
            raise ValueError("Either `secret` or `jwks_url`: a public key must never be taken for a shared secret")
        if self.secret is None and urlsplit(self.jwks_url or self.issuer).scheme not in ("https", "http"):
            raise ValueError("`issuer` must be a URL, or `jwks_url` or `secret` be given")
        if self.sign_in is not None and (self.secret or urlsplit(self.issuer).scheme not in ("https", "http")):
            raise ValueError("`sign_in` needs an `issuer` that describes itself at its URL, and no `secret`")


class Basic(Settings, frozen=True, kw_only=True, tag_field="type", tag="basic"):
    """Names and passwords."""

    users: dict[str, User]
    remember_seconds: float = 300.0


class Header(Settings, frozen=True, kw_only=True, tag_field="type", tag="header"):
    """Shared secrets in a header of any name."""

    name: str
    secrets: tuple[Secret, ...]


class Hmac(Settings, frozen=True, kw_only=True, tag_field="type", tag="hmac"):
    """Signed requests, by the name of the key: see `protocol.signing`."""

    keys: dict[str, Secret]
    window_seconds: int = WINDOW_SECONDS


NameOf = Literal["uri", "dns", "email", "common-name"]


class Mtls(Settings, frozen=True, kw_only=True, tag_field="type", tag="mtls"):
    """Client certificates: those of TLS connections, or those that a trusted proxy passes on in `header`.

    The owner is the first of `names` that the certificate has. With `clients` only those are let in, otherwise
    everybody whom the certificate authority vouches for gets `tenant` and `roles`. Where a proxy also passes on
    certificates that it could not verify, `verified_header` is the one that says SUCCESS for those it could.
    """

    header: str | None = None
    verified_header: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    names: tuple[NameOf, ...] = ("uri", "dns", "email", "common-name")
    clients: dict[str, Grant] = field(default_factory=dict)
    tenant: str = ""
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a header that anybody could send."""
        if self.header and not self.trusted_proxies:
            raise ValueError("`header` needs `trusted_proxies`: anybody else could claim to be anybody")
        for network in self.trusted_proxies:
            ip_network(network, strict=False)


AnyScheme = ApiKeys | Jwt | Basic | Header | Hmac | Mtls
"""What a server may be told to enforce; `type` tells them apart."""
