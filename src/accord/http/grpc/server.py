"""The gRPC server: listens on a port and passes calls to the agent that they name."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import grpc
from msgspec import Struct

from accord.a2a import A2A
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
"""Calls at a time, most of them streams that wait: as many as the memory of a small machine surely holds."""

LATE_SECONDS = 5.0
"""How much longer than they may last calls can take to be answered, before gRPC breaks them off."""

OPTIONS: tuple[tuple[str, int], ...] = (
    # A peer that vanished is found out within a minute; one that asks whether we are there may do so every ten seconds.
    ("grpc.keepalive_time_ms", 40_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)

Handle = Callable[[GrpcCalls, GrpcMethod, Any], Awaitable[Any]]


class GrpcTls(Struct, frozen=True, kw_only=True):
    """A server's certificate chain and key in PEM; with `client_ca`, clients must show a certificate issued by it.

    gRPC for Python either does not ask for one, and tells nobody of it, or demands it: there is nothing in between.
    """

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None


class GrpcBinding:
    """A gRPC server for A2A 1.0 and 0.3."""

    def __init__(  # noqa: PLR0913  # each is a limit, or a part that is made elsewhere
        self,
        service: A2A,
        *,
        agents: Mapping[str, A2A] = MappingProxyType({}),
        enabled: frozenset[DialectName] = ALL_DIALECTS,
        admit: Admit | None = None,
        extensions: frozenset[str] = frozenset(),
        quotas: Quotas = QUOTAS,
        max_calls: int = MAX_CALLS,
        shares_port: bool = False,
        links: FileLinks | None = None,
    ) -> None:
        """Serve `service`, and by their names `agents`, to whom `admit` lets in.

        Of the enabled dialects, those are spoken that have a gRPC service; `extensions` are those of the agents' cards
        and `links` gives large files addresses. A port in use is refused, unless all its processes
        say that they share it.
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
        """Listen on `host:port` and return the port, which is any free one for 0."""
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
        """Take no more calls, let those that run finish for so long, and end the others."""
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
        """Return what gRPC calls for each method of a service; bodies come and go as they are on the wire.

        To gRPC all requests and answers are streams, which on the wire is the same: so `reading` waits for the message,
        and `calls` for the reader of the answer, not gRPC.
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
        """Bring a call to the agent that it names, and say so if it is ended by a server that stops."""
        call = asyncio.current_task()
        assert call is not None  # gRPC calls it in one
        self._calls.add(call)
        try:
            return await self._answer(handle, method, context)
        except asyncio.CancelledError:
            if not self._is_ending:
                raise  # whoever called is gone
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
