"""Every setting of a server, with its default and the reason for it.

These are plain values: reading them from files, variables and flags is `config.load`, acting on them is `app`. A name
that is not here is an error wherever it is written.
"""

import re
from enum import Enum
from typing import Annotated, Any

from msgspec import Meta, field

from accord.agents.remote.terms import Mode, Terms
from accord.console.terms import Terms as Console
from accord.core.audit import Audited
from accord.core.engine import Limits
from accord.core.quotas import Quotas
from accord.core.roles import Role
from accord.core.schemes import settings as schemes
from accord.core.schemes.settings import AnyScheme
from accord.core.upkeep import Retention
from accord.protocol.operations import DialectName

Port = Annotated[int, Meta(ge=1, le=65535)]
Span = Annotated[float, Meta(ge=0)]
"""A length of time."""


class Section(schemes.Settings, frozen=True, kw_only=True):
    """A group of settings, whose `repr` has no secrets."""


class HttpServer(Enum):
    """What listens: uvicorn is best at few connections, granian (an extra) at many streams and for HTTP/2."""

    UVICORN = "uvicorn"
    GRANIAN = "granian"


class Capability(Enum):
    """The optional parts of A2A."""

    STREAMING = "streaming"
    PUSH = "push"
    EXTENDED_CARD = "extended-card"


class Server(Section, frozen=True, kw_only=True):
    """Where and how it listens.

    `url` is the address that callers use, where that is not the one listened on. Without `capabilities` the server
    offers what its agents have. Behind a proxy, `trusted_proxies` may say who called (`X-Forwarded-*`).
    """

    host: str = "127.0.0.1"
    port: Port = 8000
    url: str | None = None
    server: HttpServer = HttpServer.UVICORN
    workers: Annotated[int, Meta(ge=1)] = 1
    dialects: Annotated[tuple[DialectName, ...], Meta(min_length=1)] = tuple(DialectName)
    capabilities: tuple[Capability, ...] | None = None
    grpc_port: Port | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    behind_proxy: bool = False
    trusted_proxies: tuple[str, ...] = ("127.0.0.0/8", "::1")
    grace_seconds: Span = 3.0


class Auth(Section, frozen=True, kw_only=True):
    """Who is let in: whoever satisfies one of `schemes`. Roles are added to the built-in ones.

    Without any scheme the server is open, which only a loopback address may be.
    """

    schemes: tuple[AnyScheme, ...] = ()
    roles: tuple[Role, ...] = ()
    default_role: str | None = "user"


class Push(Section, frozen=True, kw_only=True):
    """Where webhooks may be, and the keys that they are signed with: the first is the newest, all are used.

    `allow_private` is for development: then any caller can make this server post into its own network.
    """

    SECRET = frozenset({"signing_keys"})

    allow_private: bool = False
    allow_hosts: tuple[str, ...] = ()
    signing_keys: tuple[str, ...] = ()


class Provider(Section, frozen=True, kw_only=True):
    """Who offers the agents."""

    organization: str
    url: str


class Extension(Section, frozen=True, kw_only=True):
    """A protocol extension that the agents know; one that is `required` must be declared by whoever sends a message."""

    uri: str
    description: str | None = None
    required: bool = False
    params: dict[str, Any] | None = None


class Card(Section, frozen=True, kw_only=True):
    """What cards say that cannot be derived, and the private key that signs them: a JWK, or the name of its file.

    `signing_key_url` is where callers find the public key.
    """

    SECRET = frozenset({"signing_key"})

    provider: Provider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    extensions: tuple[Extension, ...] = ()
    signing_key: str | None = None
    signing_key_url: str | None = None


class Registry(Section, frozen=True, kw_only=True):
    """Where agents are found by their names, and how this server keeps those that are published here.

    `url` is a registry elsewhere, which clients and commands ask instead of this one. `signers`, a JSON Web Key set or
    the name of its file, are the keys whose signatures on cards count; with `signed_only` no other cards are taken.
    Published agents are looked for every `check_seconds`, at public addresses unless the others are allowed.
    """

    enabled: bool = True
    url: str | None = None
    signers: str | None = None
    signed_only: bool = False
    check_seconds: Annotated[float, Meta(ge=1)] = 300.0
    allow_private: bool = False
    allow_hosts: tuple[str, ...] = ()


class Credentials(Section, frozen=True, kw_only=True):
    """The keys that seal what the store has of credentials for agents elsewhere: the first seals, all open.

    A key is 32 random bytes in base64 (`openssl rand -base64 32`). Those of `key_file`, one in each line, come first.
    """

    SECRET = frozenset({"keys"})

    keys: tuple[str, ...] = ()
    key_file: str | None = None


NAME = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
NAMES_ARE = "a name is of letters and digits, joined by - or _, because it is part of a path"
"""What an agent elsewhere may be called here."""


class Remote(Section, frozen=True, kw_only=True):
    """An agent elsewhere that is served here: at its `url`, or by the name that it has in a registry.

    It authenticates us by the credentials called `key`, or by a bearer `token`; without either, by what its card asks
    for. Its webhooks may be signed with one of `signing_keys` instead of bringing their token. `redact`, the
    `module:function` of a function from report to report, takes out what must not be kept. With a `p2p_address` the url
    is that of an ISEK bridge, which passes everything on to this peer.
    """

    SECRET = frozenset({"token", "signing_keys", "headers"})

    url: str
    mode: Mode = Mode.AUTO
    key: str | None = None
    token: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    dialect: DialectName | None = None
    binding: str | None = None
    allow_hosts: tuple[str, ...] = ()
    sla_seconds: Annotated[float, Meta(gt=0)] = Terms().sla_seconds
    answer_seconds: Annotated[float, Meta(gt=0)] = Terms().answer_seconds
    streams: Annotated[int, Meta(ge=0)] = Terms().streams
    signing_keys: tuple[str, ...] = ()
    redact: str | None = None
    p2p_address: str | None = None


class Receiver(Section, frozen=True, kw_only=True):
    """Where agents elsewhere report: `url` is the public address of `/api/webhook/tasks`, where that is not our own.

    Their tokens are good for `token_seconds`, or as long as the task is kept. One address may report `rate` times a
    second.
    """

    url: str | None = None
    token_seconds: Annotated[float, Meta(gt=0)] | None = None
    rate: Annotated[float, Meta(gt=0)] | None = None


class Settings(Section, frozen=True, kw_only=True):
    """All settings. Without a `store` it is a file in the user's data directory; `agents` and `remotes` are served
    besides those that a command names, by the name that their path has.

    An agent is `module:name`, or a table that its kind understands (`agents.kinds.Options` is what all of them do).
    """

    SECRET = frozenset({"store", "agents"})  # an address may have a password in it, and an agent's table a key

    store: str | None = None
    blobs: str = "table:"
    keep_days: Span = 30.0
    keep_audit_days: Span = 90.0
    agents: dict[str, str | dict[str, Any]] = field(default_factory=dict)
    remotes: dict[str, Remote] = field(default_factory=dict)
    receiver: Receiver = Receiver()
    server: Server = Server()
    auth: Auth = Auth()
    limits: Quotas = Quotas()
    engine: Limits = Limits()
    push: Push = Push()
    audit: Audited = Audited.WRITES
    card: Card = Card()
    registry: Registry = Registry()
    credentials: Credentials = Credentials()
    console: Console = Console()

    @property
    def retention(self) -> Retention:
        """How long things are kept; no days are for ever."""
        day = 24 * 3600.0
        return Retention(purge_after=self.keep_days * day or None, purge_audit_after=self.keep_audit_days * day or None)
