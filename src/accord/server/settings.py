"""Every setting of a server, with its default and its description.

The reference and the schema print the text below each field. These are plain values: `settings_loader` reads them, and
the rest of `server` acts on them. An unknown name is an error wherever it is written.
"""

import re
from enum import Enum
from typing import Annotated, Any

from msgspec import Meta, field

from accord.agents.remote import RemoteTerms, ReportMode
from accord.auth import scheme_settings as schemes
from accord.auth.audit import Audited
from accord.auth.rate_limits import Quotas
from accord.auth.roles import CallerRole
from accord.auth.scheme_settings import AnyScheme
from accord.console import ConsoleSettings as Console
from accord.engine.agent import Approvals
from accord.engine.node import Limits
from accord.engine.retention import Retention
from accord.protocol import urls
from accord.protocol.operations import DialectName
from accord.server.settings_validation import BadField

Port = Annotated[int, Meta(ge=1, le=65535)]
Seconds = Annotated[float, Meta(ge=0)]
"""A length of time."""


class Section(schemes.Settings, frozen=True, kw_only=True):
    """A group of settings, whose `repr` has no secrets."""


INVALID_URL = "It must be a URL that begins with https:// or http:// and has a host"


def _check_url(field: str, url: str | None) -> None:
    """Refuse what is no address: whoever uses it would only find out later, and not where it was said."""
    if url is not None and not urls.is_http_url(url):
        raise BadField(field, INVALID_URL)


class HttpServer(Enum):
    """What listens: uvicorn is best at few connections, granian (an extra) at many streams and for HTTP/2."""

    UVICORN = "uvicorn"
    GRANIAN = "granian"


class Capability(Enum):
    """The optional parts of A2A."""

    STREAMING = "streaming"
    PUSH = "push"
    EXTENDED_CARD = "extended-card"


class ServerSettings(Section, frozen=True, kw_only=True):
    """Where and how it listens."""

    host: str = "127.0.0.1"
    """The address to listen on. Any but a loopback address needs `auth.schemes`, and TLS or a proxy that ends it."""

    port: Port = 8000
    """The port to listen on."""

    url: str | None = None
    """The address that callers use, where that is not the one listened on; cards name it. Any but a loopback
    address needs authentication."""

    server: HttpServer = HttpServer.UVICORN
    """What listens: `uvicorn` is best at few connections, `granian` (an extra) at many streams and for HTTP/2."""

    workers: Annotated[int, Meta(ge=1)] = 1
    """Processes on the one port. Each is a node of its own; one that dies is replaced."""

    dialects: Annotated[tuple[DialectName, ...], Meta(min_length=1)] = tuple(DialectName)
    """The dialects that are spoken."""

    capabilities: tuple[Capability, ...] | None = None
    """The optional parts of A2A that are offered; left out, what the agents have."""

    grpc_port: Port | None = None
    """A port for gRPC, which is an extra."""

    tls_cert: str | None = None
    """The file with the server's certificate chain."""

    tls_key: str | None = None
    """The file with the key of the certificate."""

    tls_client_ca: str | None = None
    """The file with the certificates of those who issue certificates to clients. Over HTTP with uvicorn clients may go
    without one; gRPC and granian demand one of everybody, whatever else they bring."""

    behind_proxy: bool = False
    """Whether a proxy ends TLS and says who called; needs authentication."""

    trusted_proxies: tuple[str, ...] = ("127.0.0.0/8", "::1")
    """The networks of proxies whose `X-Forwarded-*` headers are believed, behind a proxy."""

    file_hours: Annotated[float, Meta(gt=0, le=24 * 90)] = 24.0
    """How long the signed address of a file can be used by anybody who has it."""

    drain_seconds: Seconds = 0.0
    """How long requests are still taken after SIGTERM, while `/readyz` already says 503: as long as whoever sends
    requests here needs to notice."""

    grace_seconds: Seconds = 3.0
    """How long requests, calls and agents may go on, all together, when a server stops; what is left then is handed
    over."""

    def __post_init__(self) -> None:
        """Refuse an address that nobody could call; an empty one is none."""
        _check_url("url", self.url or None)


class RequiredFor(Enum):
    """What callers must authenticate for."""

    ALL = "all"
    EXTENDED_CARD = "extended-card"


class AuthSettings(Section, frozen=True, kw_only=True):
    """Who is let in, and what they may do."""

    schemes: tuple[AnyScheme, ...] = ()
    """Ways to authenticate: whoever satisfies one is let in. Without any the server is open, which only a server on a
    loopback address may be that is not behind a proxy and has no public `server.url`."""

    required_for: RequiredFor = RequiredFor.ALL
    """What callers must authenticate for: `all`, or `extended-card` alone. With the latter the server is open,
    as without any of `auth.schemes`; credentials that a caller presents still have to be valid."""

    roles: tuple[CallerRole, ...] = ()
    """Roles besides the built-in ones; one of the same name replaces it."""

    default_role: str | None = "user"
    """The role of whoever was given none at all."""

    def __post_init__(self) -> None:
        """Refuse to guard the extended card with nothing: every caller would read it."""
        if self.required_for is not RequiredFor.ALL and not self.schemes:
            raise BadField("required_for", f"`{self.required_for.value}` needs at least one of `auth.schemes`")

    @property
    def is_open(self) -> bool:
        """Whether callers may send without credentials."""
        return not self.schemes or self.required_for is not RequiredFor.ALL


class PushSettings(Section, frozen=True, kw_only=True):
    """Webhooks: where they may be, and how they are signed."""

    SECRET = frozenset({"signing_keys"})

    allow_private: bool = False
    """For development: webhooks may be in private networks. Any caller can then make this server post into its own."""

    allow_hosts: tuple[str, ...] = ()
    """Hosts in private networks that webhooks may be on; `*.example` stands for all below it."""

    signing_keys: tuple[str, ...] = ()
    """The keys of which those are derived that webhooks are signed with: the first is the newest, all are used.
    `accord push key URL` prints what the receiver at an address is given."""


class ProviderSettings(Section, frozen=True, kw_only=True):
    """Who offers the agents."""

    organization: str
    """Its name."""

    url: str
    """Its page."""


class ExtensionSettings(Section, frozen=True, kw_only=True):
    """A protocol extension that the agents know."""

    uri: str
    """What it is called."""

    description: str | None = None
    """What the agents do with it."""

    required: bool = False
    """Whether whoever sends a message must declare it."""

    params: dict[str, Any] | None = None
    """What it needs to know."""


class CardSettings(Section, frozen=True, kw_only=True):
    """What cards say that cannot be derived, and what signs them."""

    SECRET = frozenset({"signing_key"})

    provider: ProviderSettings | None = None
    """Who offers the agents."""

    documentation_url: str | None = None
    """Where the agents are described."""

    icon_url: str | None = None
    """A picture for the agents."""

    extensions: tuple[ExtensionSettings, ...] = ()
    """Protocol extensions besides those that every agent here has."""

    signing_key: str | None = None
    """The private key that signs cards: a JSON Web Key, or the name of its file. Cards are signed for `server.url` and
    this machine's own names, and for no other host that a caller names."""

    signing_key_url: str | None = None
    """Where callers find the public key."""


STORE_REGISTRY = "store"
"""What to say instead of an address for the registry in the store, where another one is set."""


class RegistrySettings(Section, frozen=True, kw_only=True):
    """Where agents are found by their names, and how this server keeps those that are published here."""

    enabled: bool = True
    """Whether agents can be published here."""

    url: str | None = None
    """A registry elsewhere, which clients and commands ask instead of this one."""

    signers: str | None = None
    """The keys whose signatures on cards count: a JSON Web Key set, or the name of its file."""

    signed_only: bool = False
    """Whether only cards are taken that one of `signers` has signed."""

    check_seconds: Annotated[float, Meta(ge=1)] = 300.0
    """How often published agents are looked for."""

    allow_private: bool = False
    """Whether published agents may be in private networks."""

    allow_hosts: tuple[str, ...] = ()
    """Hosts in private networks that published agents may be on."""

    def __post_init__(self) -> None:
        """Refuse an address at which nobody could be asked."""
        _check_url("url", None if self.url == STORE_REGISTRY else self.url)


class CredentialSettings(Section, frozen=True, kw_only=True):
    """Keys that seal the secrets in the store: credentials for remote agents, tokens and credentials of webhooks."""

    SECRET = frozenset({"keys"})

    keys: tuple[str, ...] = ()
    """Keys, each 32 random bytes in base64 (`openssl rand -base64 32`): the first seals, all open.

    Without a key, secrets of webhooks are stored in plain text.
    """

    key_file: str | None = None
    """A file with more of them, one in each line, which come first."""


REMOTE_NAME = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
REMOTE_NAME_RULE = "a name is of letters and digits, joined by - or _, because it is part of a path"
"""What an agent elsewhere may be called here."""


class RemoteSettings(Section, frozen=True, kw_only=True):
    """An agent elsewhere that is served here.

    Without `key` and `token` it is authenticated to by what its card asks for.
    """

    SECRET = frozenset({"token", "signing_keys", "headers"})

    url: str
    """Its address, or the name that it has in a registry."""

    mode: ReportMode = ReportMode.AUTO
    """How its reports get here: by webhook (`push`), over a stream (`subscribe`), by asking (`poll`), the best of the
    last two (`follow`) or of all that it offers (`auto`)."""

    key: str | None = None
    """The name of the credentials that it is called with."""

    token: str | None = None
    """A bearer token that it is called with."""

    headers: dict[str, str] = field(default_factory=dict)
    """Headers of every request to it."""

    dialect: DialectName | None = None
    """The dialect to insist on; left out, the card chooses."""

    binding: str | None = None
    """The binding to insist on: `jsonrpc`, `rest` or `grpc`."""

    allow_hosts: tuple[str, ...] = ()
    """Hosts besides its own that its card may name."""

    sla_seconds: Annotated[float, Meta(gt=0)] = RemoteTerms().sla_seconds
    """How long it may say nothing new before its task is given up as unknown."""

    answer_seconds: Annotated[float, Meta(gt=0)] = RemoteTerms().answer_seconds
    """How long it may take to answer a message: most acknowledge it at once, but some do the work first."""

    streams: Annotated[int, Meta(ge=0)] = RemoteTerms().streams
    """Streams that are held open to it at a time; tasks beyond that are asked for."""

    signing_keys: tuple[str, ...] = ()
    """Keys one of which may sign its webhooks, instead of the token that they bring otherwise."""

    redact: str | None = None
    """The `module:function` of a function from report to report that takes out what must not be kept."""

    p2p_address: str | None = None
    """The peer to which the ISEK bridge at `url` passes everything on."""

    def __post_init__(self) -> None:
        """Refuse what is neither an address nor could be a host or a name in a registry, which have no scheme."""
        if "://" in self.url or not urls.host_of(self.url):
            _check_url("url", self.url)


class WebhookEndpointSettings(Section, frozen=True, kw_only=True):
    """Where agents elsewhere report."""

    url: str | None = None
    """The public address of `/api/webhook/tasks`, where that is not our own."""

    token_seconds: Annotated[float, Meta(gt=0)] | None = None
    """How long their tokens are good; left out, as long as the task is kept."""

    rate: Annotated[float, Meta(gt=0)] | None = None
    """How often a second one address may report; left out, as often as it likes."""

    def __post_init__(self) -> None:
        """Refuse an address to which nobody could report."""
        _check_url("url", self.url)


class WorkflowHookSettings(Section, frozen=True, kw_only=True):
    """Signed webhook endpoints of workflows (`/hooks/NAME/PATH`)."""

    tolerance_seconds: Annotated[int, Meta(gt=0, le=3600)] = 300
    """Maximum difference between the timestamp of a signature and this server's clock."""

    remember_days: Annotated[float, Meta(ge=1, le=3650)] = 30.0
    """How many days a delivery is remembered whose signature has no timestamp (`signature: github`)."""


class LogFormat(Enum):
    """How a record is written: a line for people, or a JSON object for programs."""

    TEXT = "text"
    JSON = "json"


class LogLevel(Enum):
    """The least severe records that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class TelemetrySettings(Section, frozen=True, kw_only=True):
    """What those see who watch the server, besides `/metrics`."""

    traces: bool | None = None
    """Whether there are OpenTelemetry traces (an extra), set up by its own `OTEL_*` variables. Left out, there are if
    `OTEL_EXPORTER_OTLP_ENDPOINT` is set and the extra is installed."""

    log_format: LogFormat = LogFormat.TEXT
    """How records are written to standard error: `text`, or `json` with an object in each line."""

    log_level: LogLevel | None = None
    """The least severe records that are written: `debug`, `info`, `warning` or `error`. Left out, `info` for
    `accord serve`, `error` for `accord run`, which shows failed steps itself, and `warning` for other commands."""

    def level(self, default: str) -> str:
        """Return the least severe level that is written, by a command with this default."""
        return default if self.log_level is None else self.log_level.value


class Settings(Section, frozen=True, kw_only=True):
    """All settings."""

    SECRET = frozenset({"store", "agents"})  # an address may have a password in it, and an agent's table a key

    store: str | None = None
    """The store, as `sqlite:///file.db` or `postgresql://user:password@host/database`; left out, a file in the user's
    data directory."""

    blobs: str = "table:"
    """Where large files are: `table:` is in the store, `dir:///path` in a directory, `s3://bucket/prefix` in S3."""

    keep_days: Seconds = 30.0
    """How many days ended tasks are kept; 0 is for ever."""

    keep_audit_days: Seconds = 90.0
    """How many days the audit log is kept; 0 is for ever."""

    audit: Audited = Audited.WRITES
    """What the audit log has: `all` requests, those that change something (`writes`), or `none`."""

    agents: dict[str, str | dict[str, Any]] = field(default_factory=dict)
    """Agents that are served besides those that a command names, by the name that their path has: `module:name`,
    `file.py:name`, a workflow's file, or a table that the agent's kind understands."""

    remotes: dict[str, RemoteSettings] = field(default_factory=dict)
    """Agents elsewhere that are served here, by the name that their path has."""

    receiver: WebhookEndpointSettings = WebhookEndpointSettings()
    hooks: WorkflowHookSettings = WorkflowHookSettings()
    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    approvals: Approvals = Approvals()
    limits: Quotas = Quotas()
    engine: Limits = Limits()
    push: PushSettings = PushSettings()
    card: CardSettings = CardSettings()
    registry: RegistrySettings = RegistrySettings()
    credentials: CredentialSettings = CredentialSettings()
    console: Console = Console()
    telemetry: TelemetrySettings = TelemetrySettings()

    @property
    def retention(self) -> Retention:
        """How long things are kept; no days are for ever."""
        day = 24 * 3600.0
        return Retention(purge_after=self.keep_days * day or None, purge_audit_after=self.keep_audit_days * day or None)
