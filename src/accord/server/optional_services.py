"""Telemetry, outgoing requests, card signing and gRPC, as configured.

Each is imported on use, so that a server without it starts as fast as before.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from accord.a2a import HostedAgent
from accord.auth.scheme_settings import Mtls
from accord.auth.schemes import Fetch, FetchError
from accord.engine.hooks import Detail, Hook, Hooks, TaskFinished
from accord.http.asgi import Admit
from accord.http.cards import SignCard
from accord.http.files import FileLinks
from accord.outbound import HttpSession, Policy, TargetRefused, Unreachable
from accord.registry.availability import AskPort, ForbiddenAddress, ServerAnswer, UnreachableServer
from accord.registry.cards import TrustedKeys
from accord.server import cards
from accord.server.grace_period import GracePeriod
from accord.server.settings import CardSettings, LogFormat, RegistrySettings, Settings, TelemetrySettings
from accord.server.settings_loader import BadSettings
from accord.telemetry import logs
from accord.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from accord.http.grpc import GrpcTls
    from accord.telemetry.tracing import Tracing


TRACE_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables that set a trace endpoint and so enable traces."""


class Instruments:
    """Metrics, traces and logs of one process."""

    def __init__(
        self, settings: TelemetrySettings, agents: Iterable[str], env: Mapping[str, str], stack: AsyncExitStack
    ) -> None:
        """Measure `agents`. The last traces are sent when `stack` is left."""
        self.metrics = Metrics(agents)
        self.tracing = start_tracing(settings, env)
        notes: dict[type[Detail], Callable[[Any], None]] = {**self.metrics.notes, TaskFinished: self._ended}
        hooks: list[Hook] = []
        if settings.log_format is LogFormat.JSON:
            hooks.append(logs.log_context_hook)
        if self.tracing is not None:
            hooks.append(self.tracing.hear)
            stack.push_async_callback(self.tracing.flush)
        self.hooks = Hooks(tuple(hooks), notes)

    def _ended(self, detail: TaskFinished) -> None:
        self.metrics.notes[TaskFinished](detail)
        logs.log_task_end(detail)


def start_tracing(settings: TelemetrySettings, env: Mapping[str, str]) -> "Tracing | None":
    """Return the tracing, if enabled. A missing extra is an error only if the setting asks for it."""
    if settings.traces is False or (settings.traces is None and not any(map(env.get, TRACE_VARIABLES))):
        return None
    try:
        from accord.telemetry.tracing import EXPORTERS, start
    except ImportError as error:
        if settings.traces is None:
            return None
        raise BadSettings("telemetry.traces: traces need OpenTelemetry: pip install 'accord[otel]'") from error
    try:
        return start()
    except ValueError as error:
        raise BadSettings(f"{EXPORTERS}: {error}") from None


log = logging.getLogger("accord.grpc")

MAX_KEYS_BYTES = 1024 * 1024
"""Maximum bytes of a document with an issuer's keys."""

MAX_CARDS_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a card, or of a page of them."""

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def key_fetcher(outbound: HttpSession) -> Fetch:
    """Return a function that fetches documents with keys."""

    async def fetch(url: str) -> bytes:
        try:
            answer = await outbound.request(
                "GET", url, headers={"Accept": "application/json"}, max_bytes=MAX_KEYS_BYTES
            )
        except Unreachable as error:
            raise FetchError(str(error)) from None
        if answer.status != 200 or not answer.is_whole:
            raise FetchError(f"{url} answers {answer.status}")
        return answer.body

    return fetch


def token_poster(outbound: HttpSession) -> Callable[[str, Mapping[str, str], bytes], Awaitable[ServerAnswer]]:
    """Return a function that requests tokens of issuers."""

    async def post(url: str, headers: Mapping[str, str], body: bytes) -> ServerAnswer:
        try:
            answer = await outbound.request("POST", url, headers=headers, body=body, max_bytes=MAX_KEYS_BYTES)
        except Unreachable as error:
            raise FetchError(str(error)) from None
        return ServerAnswer(status=answer.status, body=answer.body)

    return post


def registry_requester(outbound: HttpSession, headers: Mapping[str, str] = NO_HEADERS) -> AskPort:
    """Return a function that calls registries and published agents, always with these headers."""
    always = {"Accept": "application/json", **headers}

    async def ask(method: str, url: str, body: bytes | None = None) -> ServerAnswer:
        sent = always if body is None else always | {"Content-Type": "application/json"}
        try:
            answer = await outbound.request(method, url, headers=sent, body=body, max_bytes=MAX_CARDS_BYTES)
        except TargetRefused as error:
            raise ForbiddenAddress(str(error)) from None
        except Unreachable as error:
            raise UnreachableServer(str(error)) from None
        if not answer.is_whole:
            raise UnreachableServer(f"The answer is larger than {MAX_CARDS_BYTES} bytes")
        return ServerAnswer(status=answer.status, body=answer.body)

    return ask


def inspector_outbound(settings: Settings, stack: AsyncExitStack) -> Callable[[str], HttpSession]:
    """Return a function that chooses the client for inspected servers, which are closed with the stack.

    The operator's own remote agents may be in private networks. Other servers follow the rules of webhooks.
    """
    push = settings.push
    policy = Policy(allow_private=push.allow_private, allow_hosts=frozenset(push.allow_hosts))
    strangers = HttpSession.strict(policy, silent_seconds=None)  # a followed task may be silent for hours
    own = HttpSession.strict(Policy(allow_private=True), silent_seconds=None)
    origins = {urlsplit(remote.url)[:2] for remote in settings.remotes.values()}
    for outbound in (strangers, own):
        stack.push_async_callback(outbound.close)

    def chosen(url: str) -> HttpSession:
        try:
            return own if urlsplit(url)[:2] in origins else strangers
        except ValueError:
            return strangers  # its client reports the invalid URL

    return chosen


def trusted_signers(settings: RegistrySettings) -> TrustedKeys:
    """Return the keys whose card signatures count: from the setting itself, or the file that it names."""
    if settings.signers is None:
        if settings.signed_only:
            raise BadSettings("registry.signed_only: missing registry.signers: add the keys that sign cards")
        return TrustedKeys()
    given = settings.signers.strip()
    try:
        return TrustedKeys.reading(given.encode() if given.startswith("{") else Path(given).read_bytes())
    except (OSError, ValueError) as error:
        raise BadSettings(f"registry.signers: {error}") from None


def card_signer(card: CardSettings) -> SignCard | None:
    """Return the function that signs cards, if there is a key: the setting itself, or the file that it names."""
    if card.signing_key is None:
        return None
    from functools import partial

    from accord.protocol.card_signatures import read_signing_key, sign_card

    given = card.signing_key.strip()
    try:
        text = given.encode() if given.startswith("{") else Path(given).read_bytes()
    except (OSError, ValueError):  # not repeated in the message: it may be the key itself in another form
        raise ValueError("It must be a JSON Web Key or the name of a readable file") from None
    return partial(sign_card, key=read_signing_key(text, card.signing_key_url))


async def grpc_server(
    stack: AsyncExitStack,
    grace: GracePeriod,
    settings: Settings,
    agents: Mapping[str, HostedAgent],
    admit: Admit,
    links: FileLinks | None,
) -> None:
    """Serve gRPC until the stack is left. The first of `agents` is for callers who name none.

    Calls in progress then end with the `grace` period.
    """
    try:
        from accord.http.grpc import GrpcBinding
    except ImportError as error:
        raise BadSettings(f"server.grpc_port: {error}") from None

    server = settings.server
    first = next(iter(agents.values()))
    grpc = GrpcBinding(
        first,
        agents=agents,
        enabled=frozenset(server.dialects),
        admit=admit,
        extensions=frozenset(one.uri or "" for one in cards.card_extensions(settings.card)),
        quotas=settings.limits,
        shares_port=server.workers > 1,
        links=links,
    )
    host = f"[{server.host}]" if ":" in server.host else server.host
    tls = _tls(settings)
    others = sorted({str(one.__struct_config__.tag) for one in settings.auth.schemes if not isinstance(one, Mtls)})
    if tls is not None and tls.client_ca is not None and others:
        # The card lists the schemes for all its addresses, and HTTP does accept callers without a certificate.
        log.warning("grpc.demands_certificates", extra={"schemes": others})
    await grpc.start(f"{host}:{server.grpc_port}", tls=tls)
    stack.push_async_callback(lambda: grpc.stop(grace.left()))


def _tls(settings: Settings) -> "GrpcTls | None":
    from accord.http.grpc import GrpcTls

    server = settings.server
    if not server.tls_cert or not server.tls_key:
        return None
    ca = Path(server.tls_client_ca).read_bytes() if server.tls_client_ca else None
    return GrpcTls(certificate=Path(server.tls_cert).read_bytes(), key=Path(server.tls_key).read_bytes(), client_ca=ca)
