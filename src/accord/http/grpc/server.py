"""The gRPC server: listens on a port and dispatches calls to the agent that their metadata names."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import grpc
from msgspec import Struct

from accord.a2a import A2A, Handler
from accord.auth.authentication import Access
from accord.auth.rate_limits import Quotas
from accord.errors import AgentUnavailable, InvalidRequest
from accord.http.asgi import QUOTAS, RETRY_SECONDS, SHUTDOWN_MESSAGE, Admit
from accord.http.files import FileLinks
from accord.http.grpc.calls import GrpcCalls, GrpcReader, end_call
from accord.protocol.negotiation import ALL_DIALECTS
from accord.protocol.operations import DialectName
from accord.protocol.protobuf import GRPC_SERVICES, GrpcMethod, GrpcService

AGENT_KEY = "x-accord-agent"

MAX_CALLS = 10_000
"""Concurrent calls, most of them idle streams: as many as the memory of a small machine surely holds."""

LATE_SECONDS = 5.0
"""Extra seconds for calls to be answered after the grace period, before gRPC aborts them."""

OPTIONS: tuple[tuple[str, int], ...] = (
    # A peer that vanished is detected within a minute; a peer may send a keep-alive ping every ten seconds.
    ("grpc.keepalive_time_ms", 40_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)

Handle = Callable[[GrpcCalls, GrpcMethod, Any], Awaitable[Any]]


class GrpcTls(Struct, frozen=True, kw_only=True):
    """A server's certificate chain and key in PEM; with `client_ca`, clients must present a certificate issued by it.

    gRPC for Python either requests no client certificate, or requires one. It does not offer optional certificates.
    """

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None


class GrpcBinding:
    """A gRPC server for A2A 1.0 and 0.3."""

    def __init__(  # noqa: PLR0913  # each is a limit, or a component made by the caller
        self,
        service: A2A | Handler,
        *,
        agents: Mapping[str, A2A | Handler] = MappingProxyType({}),
        enabled: frozenset[DialectName] = ALL_DIALECTS,
        admit: Admit | None = None,
        extensions: frozenset[str] = frozenset(),
        quotas: Quotas = QUOTAS,
        max_calls: int = MAX_CALLS,
        shares_port: bool = False,
        links: FileLinks | None = None,
    ) -> None:
        """Serve `service`, and `agents` by name, to callers that `admit` authenticates.

        Of the enabled dialects, those with a gRPC service are served. `extensions` are those of the agents' cards.
        `links` replaces large files by URLs. A port in use is refused, unless all its processes set `shares_port`.
        """
        self._shares_port = shares_port
        self._quotas = quotas
        self._max_calls = max_calls
        self._editions = [edition for name, edition in GRPC_SERVICES.items() if name in enabled]
        reader = GrpcReader(quotas, max_calls)
        self._agents = {
            name: GrpcCalls(
                agent,
                reader=reader,
                admit=admit or Access().admit,
                extensions=extensions,
                quotas=quotas,
                links=links,
            )
            for name, agent in {"": service, **agents}.items()
        }
        self._server: Any = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_ending = False

    async def start(self, address: str, *, tls: GrpcTls | None = None) -> int:
        """Listen on `host:port` and return the port; port 0 selects a free one."""
        limits = (
            ("grpc.max_receive_message_length", self._quotas.body),
            ("grpc.max_metadata_size", self._quotas.head),
            ("grpc.max_concurrent_streams", self._quotas.streams),
            ("grpc.so_reuseport", int(self._shares_port)),
        )
        server = grpc.aio.server(options=(*OPTIONS, *limits), maximum_concurrent_rpcs=self._max_calls)
        server.add_generic_rpc_handlers([self._handlers(edition) for edition in self._editions])
        try:
            port: int = server.add_secure_port(address, _credentials(tls)) if tls else server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"Cannot listen for gRPC on {address}") from error
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_seconds: float = 0.0) -> None:
        """Refuse new calls, let running ones finish within the grace period, and end the others."""
        if self._server is not None:
            ending = asyncio.get_running_loop().call_later(grace_seconds, self._end_calls)
            await self._server.stop(grace_seconds + LATE_SECONDS)
            ending.cancel()
            self._server = None

    def _end_calls(self) -> None:
        self._is_ending = True
        for call in self._calls:
            call.cancel()

    def _handlers(self, edition: GrpcService) -> grpc.GenericRpcHandler:
        """Return the handler of each method of a service; messages stay encoded.

        gRPC gets every method as a stream in both directions, which is the same on the wire. So `GrpcReader` waits for
        the message, and `GrpcCalls` for the reader of the response, instead of gRPC.
        """
        return grpc.method_handlers_generic_handler(
            edition.service,
            {
                method.name: grpc.stream_stream_rpc_method_handler(
                    partial(self._dispatch, GrpcCalls.stream if method.streams else GrpcCalls.answer, method)
                )
                for method in edition.methods
            },
        )

    async def _dispatch(self, handle: Handle, method: GrpcMethod, _: object, context: Any) -> Any:
        """Dispatch a call to the agent that it names, and report a shutdown that cancels it."""
        call = asyncio.current_task()
        assert call is not None  # gRPC calls it in a task
        self._calls.add(call)
        try:
            return await self._answer(handle, method, context)
        except asyncio.CancelledError:
            if not self._is_ending:
                raise  # the client disconnected
            await end_call(context, method, AgentUnavailable(SHUTDOWN_MESSAGE, retry_after=RETRY_SECONDS))
        finally:
            self._calls.discard(call)

    async def _answer(self, handle: Handle, method: GrpcMethod, context: Any) -> Any:
        name = next((value for key, value in context.invocation_metadata() or () if key == AGENT_KEY), "")
        calls = self._agents.get(name)
        if calls is None:
            await end_call(context, method, InvalidRequest(f"There is no agent {name[:60]!r} here"))
        return await handle(calls, method, context)


def _credentials(tls: GrpcTls) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], root_certificates=tls.client_ca, require_client_auth=tls.client_ca is not None
    )
