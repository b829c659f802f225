"""Settings of each authentication scheme, checked when they are made."""

from ipaddress import ip_network
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field

from accord.auth.authentication import Identity
from accord.protocol.http_headers import SIGNATURE_WINDOW_SECONDS

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
    """What somebody who has authenticated is."""

    owner: str = ""
    """Whose tasks they see and make; left out, those of their own name."""

    tenant: str = ""
    """Their tenant; `*` is any."""

    roles: tuple[str, ...] = ()
    """What they may do; left out, what `auth.default_role` may."""

    def identity(self, name: str = "") -> Identity:
        """Return who that is; `name` is the owner where none is stated."""
        tenant = None if self.tenant == ANY_TENANT else self.tenant
        return Identity(owner=self.owner or name, tenant=tenant, roles=frozenset(self.roles))


class User(Grant, frozen=True, kw_only=True):
    """Somebody with a password."""

    SECRET = frozenset({"password"})

    password: str
    """The password as `accord hash-password` prints it."""


class Secret(Grant, frozen=True, kw_only=True):
    """Somebody who knows a secret."""

    SECRET = frozenset({"secret"})

    secret: str
    """The secret, of 16 characters or more."""

    def __post_init__(self) -> None:
        """Refuse a secret that could be guessed."""
        if len(self.secret) < MIN_SECRET:
            raise ValueError(f"`secret` needs at least {MIN_SECRET} characters")


class ApiKeys(Settings, frozen=True, kw_only=True, tag_field="type", tag="api-keys"):
    """Keys of the store, made by `accord apikeys create`: in a header of their own or as bearer tokens."""

    header: str = "X-API-Key"
    """The header."""

    remember_seconds: float = 5.0
    """How long a key is believed without looking: a revoked one is refused after this time at the latest."""


class SignIn(Settings, frozen=True, kw_only=True):
    """How people sign in to the console with an issuer: this server as its client, by the authorization code flow."""

    SECRET = frozenset({"client_secret"})

    client_id: str
    """What the issuer calls this server."""

    client_secret: str | None = None
    """What this server authenticates itself with; a public client has none."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,32}$")] = "oidc"
    """A part of the redirect address, which is that of the server and `/api/session/oidc/NAME/callback`."""

    label: str = "single sign-on"
    """What the page calls it."""

    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """What the issuer is asked for."""


class Jwt(Settings, frozen=True, kw_only=True, tag_field="type", tag="jwt"):
    """Bearer tokens of one issuer, whose keys are found by OpenID Connect discovery, at `jwks_url`, or are a `secret`.

    A claim may be inside of others: `realm_access.roles`.
    """

    SECRET = frozenset({"secret"})

    issuer: str
    """Who issues the tokens."""

    audience: tuple[str, ...]
    """Whom the tokens are for: one of these."""

    jwks_url: str | None = None
    """Where the issuer's public keys are, if it does not describe itself."""

    secret: str | None = None
    """What issuer and server share, instead of public keys."""

    algorithms: tuple[str, ...] = ()
    """The algorithms that may sign tokens; left out, those that the keys are for."""

    leeway_seconds: int = 30
    """How far the issuer's clock may be off."""

    owner_claim: str = "sub"
    """The claim with the caller's name."""

    owner_prefix: str = ""
    """What is put before that name: of two issuers each needs its own, since a subject is only unique to its issuer."""

    tenant_claim: str | None = None
    """The claim with the caller's tenant."""

    tenant: str = ""
    """The tenant of every caller, where no claim is named."""

    role_claims: tuple[str, ...] = ("roles", "scope")
    """The claims whose values are the caller's roles, all together."""

    token_url: str | None = None
    """Where clients get a token for themselves, for the card."""

    scopes: dict[str, str] = field(default_factory=dict)
    """What they may ask for there, and what each is, for the card."""

    sign_in: SignIn | None = None
    """How people get into the console with it."""

    remember_seconds: float = 5.0
    """How long a token is believed without verifying it again."""

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
    """Users by their names."""

    remember_seconds: float = 300.0
    """How long a password is believed without hashing it again, which takes a while."""


class Header(Settings, frozen=True, kw_only=True, tag_field="type", tag="header"):
    """Shared secrets in a header of any name."""

    name: str
    """The header."""

    secrets: tuple[Secret, ...]
    """Secrets, and who knows each."""


class Hmac(Settings, frozen=True, kw_only=True, tag_field="type", tag="hmac"):
    """Signed requests, by the name of the key.

    How they are signed is in `protocol.http_headers`.
    """

    keys: dict[str, Secret]
    """Keys by their names, and who has each."""

    window_seconds: int = SIGNATURE_WINDOW_SECONDS
    """How far a signature's time may be off."""


NameOf = Literal["uri", "dns", "email", "common-name"]


class Mtls(Settings, frozen=True, kw_only=True, tag_field="type", tag="mtls"):
    """Client certificates: those of TLS connections, or those that a trusted proxy passes on in `header`."""

    header: str | None = None
    """The header in which a proxy passes certificates on."""

    verified_header: str | None = None
    """The header that says SUCCESS for those it could verify, where a proxy also passes others on."""

    trusted_proxies: tuple[str, ...] = ()
    """The networks of proxies that are believed."""

    names: tuple[NameOf, ...] = ("uri", "dns", "email", "common-name")
    """Where a certificate says whose it is: the first of these that it has."""

    clients: dict[str, Grant] = field(default_factory=dict)
    """Those who are let in, by that name; left out, everybody whom the issuer vouches for."""

    tenant: str = ""
    """The tenant of those, where no `clients` are named."""

    roles: tuple[str, ...] = ()
    """Their roles, where no `clients` are named."""

    def __post_init__(self) -> None:
        """Refuse a header that anybody could send."""
        if self.header and not self.trusted_proxies:
            raise ValueError("`header` needs `trusted_proxies`: anybody else could claim to be anybody")
        for network in self.trusted_proxies:
            ip_network(network, strict=False)


class Plugin(Settings, frozen=True, kw_only=True, tag_field="type", tag="plugin"):
    """The way to authenticate that another package has registered under a name, with options of its own."""

    SECRET = frozenset({"options"})  # which of them are secrets only the package knows

    name: str
    """The name that the package has registered in the group `accord.auth`."""

    options: dict[str, Any] = field(default_factory=dict)
    """What the package takes; a name that it does not know is refused."""


AnyScheme = ApiKeys | Jwt | Basic | Header | Hmac | Mtls | Plugin
"""What a server may be told to enforce; `type` tells them apart."""
