"""Every setting of a server, with its default and its description.

The reference and the schema print the text below each field. These are plain values: `settings_loader` reads them, and
the rest of `server` uses them. An unknown name is an error in any source.
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
"""A duration in seconds."""


class Section(schemes.MaskedSettings, frozen=True, kw_only=True):
    """A group of settings, whose `repr` has no secrets."""


INVALID_URL = "It must be a URL that begins with https:// or http:// and has a host"


def _check_url(field: str, url: str | None) -> None:
    """Raise BadField for an invalid URL, so that the error names the setting and not a later use."""
    if url is not None and not urls.is_http_url(url):
        raise BadField(field, INVALID_URL)


class HttpServer(Enum):
    """HTTP server: uvicorn is best at few connections, granian (an extra) at many streams and for HTTP/2."""

    UVICORN = "uvicorn"
    GRANIAN = "granian"


class Capability(Enum):
    """The optional parts of A2A."""

    STREAMING = "streaming"
    PUSH = "push"
    EXTENDED_CARD = "extended-card"


class ServerSettings(Section, frozen=True, kw_only=True):
    """Address, port and limits of the HTTP server."""

    host: str = "127.0.0.1"
    """Address to listen on. Any but a loopback address needs `auth.schemes`, and TLS or a proxy that terminates it."""

    port: Port = 8000
    """Port to listen on."""

    url: str | None = None
    """URL that callers use and cards name, if it differs from the listening address. Any but a loopback address needs
    authentication."""

    server: HttpServer = HttpServer.UVICORN
    """HTTP server: `uvicorn` is best at few connections, `granian` (an extra) at many streams and for HTTP/2."""

    workers: Annotated[int, Meta(ge=1)] = 1
    """Number of processes on the port. Each is a node of its own and is replaced when it ends."""

    dialects: Annotated[tuple[DialectName, ...], Meta(min_length=1)] = tuple(DialectName)
    """Enabled dialects."""

    capabilities: tuple[Capability, ...] | None = None
    """Optional parts of A2A that are offered [default: those that the agents have]."""

    grpc_port: Port | None = None
    """Port for gRPC, which is an extra."""

    tls_cert: str | None = None
    """File of the server's certificate chain."""

    tls_key: str | None = None
    """File of the certificate's private key."""

    tls_client_ca: str | None = None
    """File of the CA certificates for client certificates. Over HTTP with uvicorn client certificates are optional.
    With gRPC and granian every client needs one, regardless of other credentials."""

    behind_proxy: bool = False
    """Whether a proxy terminates TLS and forwards the client's address. Needs authentication."""

    trusted_proxies: tuple[str, ...] = ("127.0.0.0/8", "::1")
    """Networks of proxies whose `X-Forwarded-*` headers are trusted, with `behind_proxy`."""

    file_hours: Annotated[float, Meta(gt=0, le=24 * 90)] = 24.0
    """Hours for which the signed URL of a file is valid for any client that has it."""

    drain_seconds: Seconds = 0.0
    """Seconds for which requests are accepted after SIGTERM while `/readyz` returns 503: as long as a load balancer
    needs to notice."""

    grace_seconds: Seconds = 3.0
    """Seconds in total for requests, calls and executions to finish when a server stops. The rest is handed over to
    other nodes."""

    def __post_init__(self) -> None:
        """Validate `url`. An empty one counts as missing."""
        _check_url("url", self.url or None)


class RequiredFor(Enum):
    """Requests that callers must authenticate for."""

    ALL = "all"
    EXTENDED_CARD = "extended-card"


class AuthSettings(Section, frozen=True, kw_only=True):
    """Authentication and roles of callers."""

    schemes: tuple[AnyScheme, ...] = ()
    """Authentication schemes, of which callers must satisfy one. Without any the server is open, which is allowed only
    on a loopback address, not behind a proxy, and without a public `server.url`."""

    required_for: RequiredFor = RequiredFor.ALL
    """Requests that callers must authenticate for: `all`, or `extended-card` alone. With the latter the server is open,
    as without any of `auth.schemes`. Credentials that a caller presents still have to be valid."""

    roles: tuple[CallerRole, ...] = ()
    """Roles besides the built-in ones. One of the same name replaces it."""

    default_role: str | None = "user"
    """Role of callers without a role."""

    def __post_init__(self) -> None:
        """Refuse `extended-card` without schemes, since every caller would read it."""
        if self.required_for is not RequiredFor.ALL and not self.schemes:
            raise BadField("required_for", f"`{self.required_for.value}` needs at least one of `auth.schemes`")

    @property
    def is_open(self) -> bool:
        """Whether callers may send without credentials."""
        return not self.schemes or self.required_for is not RequiredFor.ALL


class PushSettings(Section, frozen=True, kw_only=True):
    """Webhooks: allowed addresses and signing keys."""

    SECRET = frozenset({"signing_keys"})

    allow_private: bool = False
    """For development: allow webhooks in private networks. Any caller can then make this server post into its own."""

    allow_hosts: tuple[str, ...] = ()
    """Hosts in private networks that webhooks may be on. `*.example` matches all hosts below it."""

    signing_keys: tuple[str, ...] = ()
    """Keys from which webhook signing keys are derived, newest first. All of them sign. `accord push key URL` prints
    the key for the receiver at a URL."""


class ProviderSettings(Section, frozen=True, kw_only=True):
    """The organization that offers the agents."""

    organization: str
    """Name of the organization."""

    url: str
    """Web page of the organization."""


class ExtensionSettings(Section, frozen=True, kw_only=True):
    """A protocol extension that the agents support."""

    uri: str
    """URI of the extension."""

    description: str | None = None
    """Description of the agents' support for it."""

    required: bool = False
    """Whether clients must declare it to send a message."""

    params: dict[str, Any] | None = None
    """Parameters of the extension."""


class CardSettings(Section, frozen=True, kw_only=True):
    """Parts of cards that cannot be derived, and their signing key."""

    SECRET = frozenset({"signing_key"})

    provider: ProviderSettings | None = None
    """The organization that offers the agents."""

    documentation_url: str | None = None
    """URL of the agents' documentation."""

    icon_url: str | None = None
    """URL of an icon for the agents."""

    extensions: tuple[ExtensionSettings, ...] = ()
    """Protocol extensions besides those that every agent has."""

    signing_key: str | None = None
    """Private key that signs cards: a JSON Web Key, or the name of its file. Cards are signed for `server.url` and this
    machine's own names, not for other hosts that a caller names."""

    signing_key_url: str | None = None
    """URL of the public key, for callers."""


STORE_REGISTRY = "store"
"""Value of `registry.url` that selects the registry in the store."""


class RegistrySettings(Section, frozen=True, kw_only=True):
    """Lookup of agents by name, and the agents published on this server."""

    enabled: bool = True
    """Whether agents can be published on this server."""

    url: str | None = None
    """Remote registry that clients and commands ask instead of this server's own."""

    signers: str | None = None
    """Keys whose card signatures count: a JSON Web Key set, or the name of its file."""

    signed_only: bool = False
    """Whether only cards signed by one of `signers` are accepted."""

    check_seconds: Annotated[float, Meta(ge=1)] = 300.0
    """Seconds between two availability checks of published agents."""

    allow_private: bool = False
    """Whether published agents may be in private networks."""

    allow_hosts: tuple[str, ...] = ()
    """Hosts in private networks that published agents may be on."""

    def __post_init__(self) -> None:
        """Validate `url`."""
        _check_url("url", None if self.url == STORE_REGISTRY else self.url)


class CredentialSettings(Section, frozen=True, kw_only=True):
    """Keys that seal the secrets in the store: credentials for remote agents, tokens and credentials of webhooks."""

    SECRET = frozenset({"keys"})

    keys: tuple[str, ...] = ()
    """Keys, each 32 random bytes in base64 (`openssl rand -base64 32`): the first seals, all open. Without a key,
    secrets of webhooks are stored in plain text."""

    key_file: str | None = None
    """File with more keys, one per line, which come before `keys`."""


REMOTE_NAME = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
REMOTE_NAME_RULE = "a name is of letters and digits, joined by - or _, because it is part of a path"
"""Rule for the names of remote agents."""


class RemoteSettings(Section, frozen=True, kw_only=True):
    """A remote agent that is served here. Without `key` and `token` its card selects the credentials."""

    SECRET = frozenset({"token", "signing_keys", "headers"})

    url: str
    """URL of the agent, or its name in a registry."""

    mode: ReportMode = ReportMode.AUTO
    """Transport of its reports: webhook (`push`), stream (`subscribe`), polling (`poll`), the best of the last two
    (`follow`) or of all that it offers (`auto`)."""

    key: str | None = None
    """Name of the credentials for calls to it."""

    token: str | None = None
    """Bearer token for calls to it."""

    headers: dict[str, str] = field(default_factory=dict)
    """Headers of every request to it."""

    dialect: DialectName | None = None
    """Required dialect [default: chosen by its card]."""

    binding: str | None = None
    """Required binding: `jsonrpc`, `rest` or `grpc`."""

    allow_hosts: tuple[str, ...] = ()
    """Hosts besides its own that its card may name."""

    sla_seconds: Annotated[float, Meta(gt=0)] = RemoteTerms().sla_seconds
    """Seconds without news after which its task ends as unknown."""

    answer_seconds: Annotated[float, Meta(gt=0)] = RemoteTerms().answer_seconds
    """Seconds to wait for the response to a message: most agents acknowledge at once, but some do the work first."""

    streams: Annotated[int, Meta(ge=0)] = RemoteTerms().streams
    """Maximum number of open streams to it. Further tasks are polled."""

    signing_keys: tuple[str, ...] = ()
    """Keys that may sign its webhooks, instead of a token."""

    redact: str | None = None
    """Function `module:function` from report to report that removes data that must not be stored."""

    p2p_address: str | None = None
    """Peer to which the ISEK bridge at `url` forwards all requests."""

    def __post_init__(self) -> None:
        """Validate `url`, unless it may be a host or a name in a registry, which have no scheme."""
        if "://" in self.url or not urls.host_of(self.url):
            _check_url("url", self.url)


class WebhookEndpointSettings(Section, frozen=True, kw_only=True):
    """Webhook endpoint for reports of remote agents."""

    url: str | None = None
    """Public URL of `/api/webhook/tasks`, if it differs from this server's own."""

    token_seconds: Annotated[float, Meta(gt=0)] | None = None
    """Seconds for which webhook tokens are valid [default: as long as the task is kept]."""

    rate: Annotated[float, Meta(gt=0)] | None = None
    """Maximum reports per second from one address [default: unlimited]."""

    def __post_init__(self) -> None:
        """Validate `url`."""
        _check_url("url", self.url)


class WorkflowHookSettings(Section, frozen=True, kw_only=True):
    """Signed webhook endpoints of workflows (`/hooks/NAME/PATH`)."""

    tolerance_seconds: Annotated[int, Meta(gt=0, le=3600)] = 300
    """Maximum difference in seconds between the timestamp of a signature and this server's clock."""

    remember_days: Annotated[float, Meta(ge=1, le=3650)] = 30.0
    """Days for which a delivery whose signature has no timestamp (`signature: github`) is remembered."""


class LogFormat(Enum):
    """Format of log records: a line for people, or a JSON object for programs."""

    TEXT = "text"
    JSON = "json"


class LogLevel(Enum):
    """Minimum severity of log records."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class TelemetrySettings(Section, frozen=True, kw_only=True):
    """Traces and logs of the server, besides `/metrics`."""

    traces: bool | None = None
    """Whether to export OpenTelemetry traces (an extra), configured by its own `OTEL_*` variables [default: if
    `OTEL_EXPORTER_OTLP_ENDPOINT` is set and the extra is installed]."""

    log_format: LogFormat = LogFormat.TEXT
    """Format of log records on standard error: `text`, or `json` with an object per line."""

    log_level: LogLevel | None = None
    """Minimum severity of log records: `debug`, `info`, `warning` or `error` [default: `info` for `accord serve`,
    `error` for `accord run`, which shows failed steps itself, `warning` for other commands]."""

    def level(self, default: str) -> str:
        """Return the minimum severity, for a command with this default."""
        return default if self.log_level is None else self.log_level.value


class Settings(Section, frozen=True, kw_only=True):
    """All settings."""

    SECRET = frozenset({"store", "agents"})  # a store's URL may contain a password, and an agent's table a key

    store: str | None = None
    """Store, as `sqlite:///file.db` or `postgresql://user:password@host/database` [default: a file in the user's data
    directory]."""

    blobs: str = "table:"
    """Storage of large files: `table:` is in the store, `dir:///path` in a directory, `s3://bucket/prefix` in S3."""

    keep_days: Seconds = 30.0
    """Days for which ended tasks are kept. 0 keeps them without limit."""

    keep_audit_days: Seconds = 90.0
    """Days for which the audit log is kept. 0 keeps it without limit."""

    audit: Audited = Audited.WRITES
    """Requests in the audit log: `all`, those that change something (`writes`), or `none`."""

    agents: dict[str, str | dict[str, Any]] = field(default_factory=dict)
    """Agents to serve besides those of a command, by the name in their path: `module:name`, `file.py:name`, a
    workflow's file, or a table with the options of the agent type."""

    remotes: dict[str, RemoteSettings] = field(default_factory=dict)
    """Remote agents to serve, by the name in their path."""

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
        """Retention of tasks and audit entries. Zero days means without limit."""
        day = 24 * 3600.0
        return Retention(purge_after=self.keep_days * day or None, purge_audit_after=self.keep_audit_days * day or None)
