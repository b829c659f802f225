"""A connection to an agent, made from its name, address or card.

The card is found and checked, credentials are chosen and an endpoint is picked. Nothing is sent to the agent itself.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from accord.client.auth import AuthDriver, ClientAuth, choose_auth, tls_of
from accord.client.discovery import (
    CardCache,
    CardNotFound,
    DiscoveredCard,
    Discovery,
    NoSuchAgent,
    discover_given_card,
    read_pinned_keys,
)
from accord.client.exchange import HttpExchange
from accord.client.interfaces import GRPC, JSONRPC, AgentEndpoint, usable_endpoints
from accord.client.peer import AgentLink, AgentPeer, OpenLink
from accord.client.resolver import DEFAULT_RESOLVER, ResolveAgent
from accord.client.retries import Retries
from accord.model import AgentCard
from accord.outbound import TIMEOUT_SECONDS, HttpTransport, Policy, open_transport
from accord.protocol import urls
from accord.protocol.operations import DialectName
from accord.registry.names import NotAsked, UnknownName, is_name

if TYPE_CHECKING:
    from accord.client.credentials import Keys


CARDS = CardCache()
"""The public cards, shared by all clients of this process. Cards read with credentials are not shared."""

NO_GRPC = "Calling agents over gRPC needs grpcio and a2a-sdk 1.x: pip install 'accord[grpc]'"

_HOST = re.compile(r"(localhost|\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:\d+)?(/.*)?", re.IGNORECASE)


class ConnectOptions(Struct, frozen=True, kw_only=True):
    """The options of a connection to an agent; see `Client.connect`."""

    auth: ClientAuth | None = None
    keys: "Keys | None" = None
    service: str | None = None
    transport: str | HttpTransport = "aiohttp"
    tls: ssl.SSLContext | None = None
    policy: Policy | None = None
    headers: tuple[tuple[str, str], ...] = ()
    extensions: tuple[str, ...] = ()
    timeout: float | None = TIMEOUT_SECONDS
    dialect: DialectName | None = None
    binding: str | None = None
    allow_hosts: frozenset[str] = frozenset()
    verify: Any = None
    resolve: ResolveAgent | None = None
    retries: Retries = Retries()
    is_idempotent: bool | None = None


async def connect(
    target: str | AgentCard, options: ConnectOptions, stack: AsyncExitStack
) -> tuple[AgentPeer, DiscoveredCard]:
    """Return a peer and its discovered card. Closing `stack` closes the opened connections."""
    tls = options.tls if options.auth is None else tls_of(options.auth, options.tls)
    transport = _open_transport(options, tls, stack)
    discovered = await _find_card(target, options, transport)
    auth = options.auth
    if auth is None and options.keys is not None:  # in a thread, because a keyring may block
        choose = partial(choose_auth, discovered.card, options.keys, service=options.service, origin=discovered.url)
        auth = await asyncio.to_thread(choose)
    if auth is not None and options.auth is None and (chosen := tls_of(auth, options.tls)) is not tls:
        tls, transport = chosen, _open_transport(options, chosen, stack)  # with the certificate chosen just now
    driver = None if auth is None else AuthDriver(auth, transport)
    possible = usable_endpoints(discovered.card, binding=options.binding, dialect=options.dialect)
    opener = _link_opener(options, transport, driver, tls)
    peer = AgentPeer(discovered.card, possible, opener, retries=options.retries, is_idempotent=options.is_idempotent)
    stack.push_async_callback(peer.close)
    return peer, discovered


def _open_transport(options: ConnectOptions, tls: ssl.SSLContext | None, stack: AsyncExitStack) -> HttpTransport:
    if not isinstance(options.transport, str):
        return options.transport  # its creator closes it
    policy = {} if options.policy is None else {"policy": options.policy}
    transport = open_transport(options.transport, tls=tls, **policy)
    stack.push_async_callback(transport.close)
    return transport


async def _find_card(target: str | AgentCard, options: ConnectOptions, transport: HttpTransport) -> DiscoveredCard:
    if isinstance(target, str):
        target = await _resolve_target(target, options.resolve or DEFAULT_RESOLVER.resolve)
    keys = None if options.verify is None else read_pinned_keys(options.verify)
    if isinstance(target, AgentCard):
        return discover_given_card(target, keys)
    discovery = Discovery(
        HttpExchange(transport, options.auth),
        cache=CARDS if options.auth is None and not options.headers else CardCache(),
        headers=options.headers,
        allow_hosts=options.allow_hosts,
        keys=keys,
        seconds=options.timeout,
    )
    return await discovery.find(target)


async def _resolve_target(target: str, resolve: ResolveAgent | None) -> str | AgentCard:
    """Return the address that a text means.

    A URL is returned unchanged, a host gets a scheme, and a name `org/agent` is resolved.
    """
    if "://" in target:
        return target
    host = _HOST.fullmatch(target)
    if host is not None and urls.is_loopback(host[1]):
        return f"http://{target}"
    if host is not None and (host[2] or "." in host[1]):
        return f"https://{target}"
    if resolve is None or not is_name(target):
        raise NoSuchAgent(target, {target: "not a URL, a host, or the name of an agent in a known registry"})
    try:
        return await resolve(target)
    except UnknownName as error:
        kind = CardNotFound if isinstance(error, NotAsked) else NoSuchAgent
        raise kind(target, {target: str(error).removeprefix(f"{target}: ")}) from None


def _link_opener(
    options: ConnectOptions, transport: HttpTransport, auth: AuthDriver | None, tls: ssl.SSLContext | None
) -> OpenLink:
    """Return a function that opens links. Each binding's module is imported on first use."""
    link_options: Mapping[str, Any] = {
        "auth": auth,
        "headers": options.headers,
        "extensions": options.extensions,
        "seconds": options.timeout,
    }

    def open_link(way: AgentEndpoint) -> AgentLink:
        if way.binding == GRPC:
            try:
                from accord.client.grpc_link import GrpcLink
            except ImportError as error:
                raise ImportError(NO_GRPC) from error
            return GrpcLink(transport, way.url, way.dialect, tls=tls, policy=options.policy, **link_options)
        from accord.client.http_link import JsonRpcLink, RestLink

        link = JsonRpcLink if way.binding == JSONRPC else RestLink
        return link(transport, way.url, way.dialect, **link_options)

    return open_link
