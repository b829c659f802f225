"""What a server needs besides the store and only sometimes: keys of token issuers, a key to sign cards, a gRPC port.

Each is imported when it is used, so that a server without it starts as fast as before.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from accord.a2a import A2A
from accord.app import cards
from accord.app.grace import Grace
from accord.auth.scheme_settings import Mtls
from accord.auth.schemes import Fetch, FetchError
from accord.bindings.http import Admit
from accord.bindings.links import Links
from accord.bindings.wellknown import Sign
from accord.config.files import BadSettings
from accord.config.settings import Card, Registry, Settings
from accord.outbound import HostUnreachable, Outbound, Policy, TargetRefused
from accord.registry.availability import AskPort, ForbiddenAddress, ServerAnswer, UnreachableServer
from accord.registry.trust import TrustedKeys

if TYPE_CHECKING:
    from accord.bindings.grpc import Tls

log = logging.getLogger("accord.grpc")

MAX_KEYS = 1024 * 1024
"""Bytes of a document with an issuer's keys."""

MAX_CARDS = 4 * 1024 * 1024
"""Bytes of a card, or of a page of them."""

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def fetching(outbound: Outbound) -> Fetch:
    """Return how documents with keys are read."""

    async def fetch(url: str) -> bytes:
        try:
            answer = await outbound.request("GET", url, headers={"Accept": "application/json"}, max_bytes=MAX_KEYS)
        except (TargetRefused, HostUnreachable) as error:
            raise FetchError(str(error)) from None
        if answer.status != 200 or not answer.is_whole:
            raise FetchError(f"{url} answers {answer.status}")
        return answer.body

    return fetch


def posting(outbound: Outbound) -> Callable[[str, Mapping[str, str], bytes], Awaitable[ServerAnswer]]:
    """Return how issuers are asked for tokens."""

    async def post(url: str, headers: Mapping[str, str], body: bytes) -> ServerAnswer:
        try:
            answer = await outbound.request("POST", url, headers=headers, body=body, max_bytes=MAX_KEYS)
        except (TargetRefused, HostUnreachable) as error:
            raise FetchError(str(error)) from None
        return ServerAnswer(status=answer.status, body=answer.body)

    return post


def asking(outbound: Outbound, headers: Mapping[str, str] = NO_HEADERS) -> AskPort:
    """Return how registries and published agents are asked, always with these headers."""
    always = {"Accept": "application/json", **headers}

    async def ask(method: str, url: str, body: bytes | None = None) -> ServerAnswer:
        sent = always if body is None else always | {"Content-Type": "application/json"}
        try:
            answer = await outbound.request(method, url, headers=sent, body=body, max_bytes=MAX_CARDS)
        except TargetRefused as error:
            raise ForbiddenAddress(str(error)) from None
        except HostUnreachable as error:
            raise UnreachableServer(str(error)) from None
        if not answer.is_whole:
            raise UnreachableServer(f"The answer is larger than {MAX_CARDS} bytes")
        return ServerAnswer(status=answer.status, body=answer.body)

    return ask


def inspecting(settings: Settings, stack: AsyncExitStack) -> Callable[[str], Outbound]:
    """Return what asks the servers that people look into, until the stack is left.

    Wherever the operator's own agents elsewhere are, they may be asked there; others are as webhooks are.
    """
    push = settings.push
    strangers = Outbound(Policy(allow_private=push.allow_private, allow_hosts=frozenset(push.allow_hosts)))
    own = Outbound(Policy(allow_private=True))
    origins = {urlsplit(remote.url)[:2] for remote in settings.remotes.values()}
    for outbound in (strangers, own):
        stack.push_async_callback(outbound.close)

    def chosen(url: str) -> Outbound:
        try:
            return own if urlsplit(url)[:2] in origins else strangers
        except ValueError:
            return strangers  # which says what is wrong with it

    return chosen


def trusting(settings: Registry) -> TrustedKeys:
    """Return whose signatures on cards count: the keys themselves, or the name of a file that holds them."""
    if settings.signers is None:
        if settings.signed_only:
            raise BadSettings("registry.signed_only: There are no registry.signers that a card could be signed by")
        return TrustedKeys()
    given = settings.signers.strip()
    try:
        return TrustedKeys.reading(given.encode() if given.startswith("{") else Path(given).read_bytes())
    except (OSError, ValueError) as error:
        raise BadSettings(f"registry.signers: {error}") from None


def signing(card: Card) -> Sign | None:
    """Return what signs cards, if there is a key for it: the key itself, or the name of a file that holds it."""
    if card.signing_key is None:
        return None
    from functools import partial

    from accord.protocol.card_signatures import read_signing_key, sign_card

    given = card.signing_key.strip()
    try:
        text = given.encode() if given.startswith("{") else Path(given).read_bytes()
    except (OSError, ValueError):  # not repeated: it may be the key itself in some other form
        raise ValueError("It is neither a JSON Web Key nor the name of a file that can be read") from None
    return partial(sign_card, key=read_signing_key(text, card.signing_key_url))


async def grpc_server(
    stack: AsyncExitStack,
    grace: Grace,
    settings: Settings,
    agents: Mapping[str, A2A],
    admit: Admit,
    links: Links | None,
) -> None:
    """Listen for gRPC until the stack is left; of `agents`, the first is for those who name none.

    Calls that go on then end with the `grace`.
    """
    try:
        from accord.bindings.grpc import Grpc
    except ImportError as error:
        raise BadSettings(f"server.grpc_port: {error}") from None

    server = settings.server
    first = next(iter(agents.values()))
    grpc = Grpc(
        first,
        agents=agents,
        enabled=frozenset(server.dialects),
        admit=admit,
        extensions=frozenset(one.uri or "" for one in cards.extensions(settings.card)),
        quotas=settings.limits,
        shares_port=server.workers > 1,
        links=links,
    )
    host = f"[{server.host}]" if ":" in server.host else server.host
    tls = _tls(settings)
    others = sorted({str(one.__struct_config__.tag) for one in settings.auth.schemes if not isinstance(one, Mtls)})
    if tls is not None and tls.client_ca is not None and others:
        # The card says what it takes, for all its addresses; and HTTP does take them without a certificate.
        log.warning("gRPC takes nobody without a client certificate", extra={"schemes": others})
    await grpc.start(f"{host}:{server.grpc_port}", tls=tls)
    stack.push_async_callback(lambda: grpc.stop(grace.left()))


def _tls(settings: Settings) -> "Tls | None":
    from accord.bindings.grpc import Tls

    server = settings.server
    if not server.tls_cert or not server.tls_key:
        return None
    ca = Path(server.tls_client_ca).read_bytes() if server.tls_client_ca else None
    return Tls(certificate=Path(server.tls_cert).read_bytes(), key=Path(server.tls_key).read_bytes(), client_ca=ca)
