"""Settings of each authentication scheme, validated on creation."""

from ipaddress import ip_network
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field

from accord.auth.authentication import Identity
from accord.protocol.http_headers import SIGNATURE_WINDOW_SECONDS

ANY_TENANT = "*"
"""Tenant setting of callers that may name any tenant in requests. In tokens and certificates it is an ordinary name."""

MIN_SECRET = 16
"""Minimum characters of a shared secret. Random base64 of this length has 96 bits."""


class MaskedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings whose output masks their secrets: the base of all settings of authentication."""

    SECRET: ClassVar[frozenset[str]] = frozenset()
    """Fields that are masked in output."""

    def __repr__(self) -> str:
        shown = {name: "***" if name in self.SECRET else repr(getattr(self, name)) for name in self.__struct_fields__}
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in shown.items())})"


class Grant(MaskedSettings, frozen=True, kw_only=True):
    """The owner, tenant and roles of an authenticated caller."""

    owner: str = ""
    """Owner of the caller's tasks. The caller's own name by default."""

    tenant: str = ""
    """Tenant of the caller, or `*` for any."""

    roles: tuple[str, ...] = ()
    """Roles of the caller. `auth.default_role` by default."""

    def identity(self, name: str = "") -> Identity:
        """Return the identity. `name` is the owner if the settings have none."""
        tenant = None if self.tenant == ANY_TENANT else self.tenant
        return Identity(owner=self.owner or name, tenant=tenant, roles=frozenset(self.roles))


class User(Grant, frozen=True, kw_only=True):
    """A user with a password."""

    SECRET = frozenset({"password"})

    password: str
    """Password hash, as printed by `accord hash-password`."""


class Secret(Grant, frozen=True, kw_only=True):
    """A caller with a shared secret."""

    SECRET = frozenset({"secret"})

    secret: str
    """Shared secret of 16 characters or more."""

    def __post_init__(self) -> None:
        """Refuse a secret that is easy to guess."""
        if len(self.secret) < MIN_SECRET:
            raise ValueError(f"`secret` needs at least {MIN_SECRET} characters")


class ApiKeys(MaskedSettings, frozen=True, kw_only=True, tag_field="type", tag="api-keys"):
    """API keys of the store, created by `accord apikeys create` and sent in a header or as bearer tokens."""

    header: str = "X-API-Key"
    """Header that contains the key."""

    remember_seconds: float = 5.0
    """Seconds for which a key is cached. A revoked key is refused after this time at the latest."""


class SignIn(MaskedSettings, frozen=True, kw_only=True):
    """Sign-in to the console with an issuer, by the authorization code flow with this server as the client."""

    SECRET = frozenset({"client_secret"})

    client_id: str
    """Client ID of this server at the issuer."""

    client_secret: str | None = None
    """Client secret of this server. A public client has none."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,32}$")] = "oidc"
    """Name in the redirect URL, which is the server's URL and `/api/session/oidc/NAME/callback`."""

    label: str = "single sign-on"
    """Label on the sign-in page."""

    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """Scopes to request from the issuer."""


class Jwt(MaskedSettings, frozen=True, kw_only=True, tag_field="type", tag="jwt"):
    """Bearer tokens of one issuer, with keys from OpenID Connect discovery, `jwks_url` or a `secret`.

    Claims can be nested: `realm_access.roles`.
    """

    SECRET = frozenset({"secret"})

    issuer: str
    """Issuer of the tokens."""

    audience: tuple[str, ...]
    """Accepted audiences. A token must have one of them."""

    jwks_url: str | None = None
    """URL of the issuer's public keys, if it has no discovery document."""

    secret: str | None = None
    """Secret shared with the issuer, instead of public keys."""

    algorithms: tuple[str, ...] = ()
    """Allowed signature algorithms. Those of the keys by default."""

    leeway_seconds: int = 30
    """Tolerated difference to the issuer's clock, in seconds."""

    owner_claim: str = "sub"
    """Claim with the caller's name."""

    owner_prefix: str = ""
    """Prefix of that name. Two issuers need different ones, because a subject is only unique within its issuer."""

    tenant_claim: str | None = None
    """Claim with the caller's tenant."""

    tenant: str = ""
    """Tenant of every caller, if `tenant_claim` is not set."""

    role_claims: tuple[str, ...] = ("roles", "scope")
    """Claims whose values together are the caller's roles."""

    token_url: str | None = None
    """Token URL for clients, shown on the card."""

    scopes: dict[str, str] = field(default_factory=dict)
    """Scopes that clients can request there, with descriptions, shown on the card."""

    sign_in: SignIn | None = None
    """Sign-in to the console with this issuer."""

    remember_seconds: float = 5.0
    """Seconds for which a verified token is cached."""

    def __post_init__(self) -> None:
        """Refuse settings that would accept tokens of other servers."""
        if not self.issuer or not self.audience or not all(self.audience):
            raise ValueError(
                "`issuer` and `audience` are required: without them a token for another server would be accepted"
            )
        if self.secret is not None and self.jwks_url is not None:
            raise ValueError("Either `secret` or `jwks_url`: a public key must never be taken for a shared secret")
        if self.secret is None and urlsplit(self.jwks_url or self.issuer).scheme not in ("https", "http"):
            raise ValueError("`issuer` must be a URL, or `jwks_url` or `secret` be given")
        if self.sign_in is not None and (self.secret or urlsplit(self.issuer).scheme not in ("https", "http")):
            raise ValueError("`sign_in` needs an `issuer` that describes itself at its URL, and no `secret`")


class Basic(MaskedSettings, frozen=True, kw_only=True, tag_field="type", tag="basic"):
    """User names and passwords."""

    users: dict[str, User]
    """Users by name."""

    remember_seconds: float = 300.0
    """Seconds for which a verified password is cached, because hashing takes a while."""


class Header(MaskedSettings, frozen=True, kw_only=True, tag_field="type", tag="header"):
    """Shared secrets in a header of any name."""

    name: str
    """Header that contains the secret."""

    secrets: tuple[Secret, ...]
    """Secrets and their owners."""


class Hmac(MaskedSettings, frozen=True, kw_only=True, tag_field="type", tag="hmac"):
    """Signed requests, by the name of the key. `protocol.http_headers` defines the signature."""

    keys: dict[str, Secret]
    """Keys by name, with their owners."""

    window_seconds: int = SIGNATURE_WINDOW_SECONDS
    """Tolerated age or clock difference of a signature, in seconds."""


NameOf = Literal["uri", "dns", "email", "common-name"]


class Mtls(MaskedSettings, frozen=True, kw_only=True, tag_field="type", tag="mtls"):
    """Client certificates of TLS connections, or those that a trusted proxy passes on in `header`."""

    header: str | None = None
    """Header in which a proxy passes certificates on."""

    verified_header: str | None = None
    """Header that must be SUCCESS, for proxies that also pass on unverified certificates."""

    trusted_proxies: tuple[str, ...] = ()
    """Networks of trusted proxies."""

    names: tuple[NameOf, ...] = ("uri", "dns", "email", "common-name")
    """Certificate names to use as the owner. The first that the certificate contains counts."""

    clients: dict[str, Grant] = field(default_factory=dict)
    """Accepted clients by that name. All certificates of the issuer by default."""

    tenant: str = ""
    """Tenant of all callers, if `clients` is empty."""

    roles: tuple[str, ...] = ()
    """Roles of all callers, if `clients` is empty."""

    def __post_init__(self) -> None:
        """Refuse a header that any client could send."""
        if self.header and not self.trusted_proxies:
            raise ValueError("`header` needs `trusted_proxies`: without them any client could claim any identity")
        for network in self.trusted_proxies:
            ip_network(network, strict=False)


class Plugin(MaskedSettings, frozen=True, kw_only=True, tag_field="type", tag="plugin"):
    """An authentication scheme that another package has registered, with its own options."""

    SECRET = frozenset({"options"})  # only the package knows which of them are secrets

    name: str
    """Name that the package has registered in the group `accord.auth`."""

    options: dict[str, Any] = field(default_factory=dict)
    """Options of the package. Unknown options are an error."""


AnyScheme = ApiKeys | Jwt | Basic | Header | Hmac | Mtls | Plugin
"""The settings of any scheme. `type` selects the scheme."""
