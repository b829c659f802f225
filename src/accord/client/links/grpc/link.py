"""One agent over gRPC: an operation is a call, its messages are protobuf.

It knows gRPC's framing only: the dialect writes and reads, by way of the JSON that every binding shares. Credentials
are those of an HTTP request, which a call is. It repeats nothing; the client above decides.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, ClassVar

import grpc

from accord.client.auth.driver import Driver
from accord.client.auth.flow import Auth
from accord.client.auth.together import certificates_of
from accord.client.links.grpc.addresses import Options, address, checked
from accord.client.links.grpc.status import translated
from accord.client.links.http import Headers, lacking, spoken
from accord.client.links.streams import Stream
from accord.client.wire import MAX_BYTES, SECONDS, Outgoing, Reply, TimedOut, Transport, Unreachable
from accord.engine import tracing
from accord.errors import AccordError, AuthenticationFailed, InvalidAgentResponse, InvalidParams, ParseError
from accord.model import Event, Request, Result
from accord.outbound import Policy, Refused
from accord.protocol.operations import DialectName, Operation
from accord.protocol.protobuf.messages import NoProtobuf, from_json, to_json
from accord.protocol.protobuf.methods import EDITIONS, Method
from accord.protocol.sse import Frame

METHODS: Mapping[DialectName, Mapping[Operation, Method]] = {
    name: {method.operation: method for method in edition.methods} for name, edition in EDITIONS.items()
}

OPTIONS: Options = (
    # A server that vanished is found out within a minute, while there is a call.
    ("grpc.keepalive_time_ms", 40_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.enable_retries", 0),  # whether to ask again is the client's to decide
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),  # connections belong to one set of credentials
)

Metadata = tuple[tuple[str, str], ...]


class GrpcLink:
    """One agent over gRPC."""

    binding: ClassVar = "GRPC"

    def __init__(  # noqa: PLR0913 - what every link takes, and what is gRPC's own
        self,
        transport: Transport,
        url: str,
        dialect: DialectName,
        *,
        auth: Auth | Driver | None = None,
        headers: Mapping[str, str] | Headers = (),
        extensions: Iterable[str] = (),
        seconds: float | None = SECONDS,
        tls: ssl.SSLContext | None = None,
        policy: Policy | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Talk to the agent at `url`, which may be `host:port`; `transport` is for what `auth` has to ask for.

        `tls` replaces the system's authorities, `policy` says where connections may go. `headers` go with every call.
        """
        self.url = url
        self.dialect = dialect
        self.seconds = seconds
        self.resumable = False  # only the first event of a gRPC stream can have a number
        self._target, self._is_secure = address(url)
        self._tls = tls
        self._policy = policy
        self._max_bytes = max_bytes
        self._methods = METHODS[dialect]
        self._driver = Driver(auth, transport) if auth is not None and not isinstance(auth, Driver) else auth
        stated = headers.items() if isinstance(headers, Mapping) else headers
        self._headers: Headers = (*spoken(dialect, extensions), *stated)
        self._channel: Any = None

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Result:
        """Ask once and return the answer."""
        method, call = self._call(operation, request)
        patience = self.seconds if seconds is None else seconds
        try:
            answer = await self._asked(method, call, patience)
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from error
        return method.dialect.decode_result(operation, _json(method, answer), request)

    async def _asked(self, method: Method, call: Outgoing, seconds: float | None) -> bytes:
        make = (await self._open()).unary_unary(method.path)
        sent = await self._with_credentials(call)
        try:
            answer: bytes = await make(sent.body, metadata=_metadata(sent), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            again = await self._again(sent, error)
            if again is None:
                raise
            answer = await make(again.body, metadata=_metadata(again), timeout=seconds)
        return answer

    async def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Ask for a stream and yield its events."""
        method, call = self._call(operation, request, after)
        stream = Stream(method.dialect.decode_event)
        opened, message = await self._opened(method, call)
        try:
            while message is not grpc.aio.EOF:
                yield stream.numbered(method.dialect.decode_event(Frame(data=_json(method, message))), None)
                message = await opened.read()
        except grpc.aio.AioRpcError as error:
            failure = self._translated(error, is_open=True)
            if not isinstance(failure, Unreachable):
                raise failure from error
            stream.cut(failure)
        else:
            stream.finish()
        finally:
            opened.cancel()

    async def _opened(self, method: Method, call: Outgoing) -> tuple[Any, Any]:
        """Begin a stream; returns it with its first message."""
        make = (await self._open()).unary_stream(method.path)
        sent = await self._with_credentials(call)
        try:
            return await self._first(make(sent.body, metadata=_metadata(sent)))
        except grpc.aio.AioRpcError as error:
            again = await self._again(sent, error)
            if again is None:
                raise self._translated(error) from error
        try:
            return await self._first(make(again.body, metadata=_metadata(again)))
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from error

    async def _first(self, opened: Any) -> tuple[Any, Any]:
        try:
            async with asyncio.timeout(self.seconds):
                return opened, await opened.read()
        except BaseException as error:
            opened.cancel()
            if isinstance(error, TimeoutError):
                raise TimedOut("No answer in time", was_sent=True) from None
            raise

    async def close(self) -> None:
        """Close the channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    # --- calls ------------------------------------------------------------------------------------------------------

    def _call(self, operation: Operation, request: Request, after: int | None = None) -> tuple[Method, Outgoing]:
        """Return a call as the HTTP request that it is."""
        method = self._methods.get(operation)
        if method is None:
            raise lacking(operation, self.dialect)
        try:
            body = from_json(method.request, method.dialect.encode_request(operation, request))
        except NoProtobuf:
            raise InvalidParams("The request is nested too deeply for gRPC") from None
        resumed = () if after is None else (("last-event-id", str(after)),)
        traced = tracing.headers().items()
        scheme = "https" if self._is_secure else "http"
        url = f"{scheme}://{self._target}{method.path}"
        return method, Outgoing(method="POST", url=url, headers=(*self._headers, *resumed, *traced), body=body)

    async def _open(self) -> Any:
        if self._channel is None:  # it belongs to the loop that runs, which there is only now
            target, pinned = await self._checked()
            if self._channel is None:  # nobody else was faster
                self._channel = self._channel_to(target, pinned)
        return self._channel

    async def _checked(self) -> tuple[str, Options]:
        """Return where to connect to: with a policy, to the addresses that were checked, under the host's name."""
        if self._policy is None:
            return self._target, ()
        try:
            return await checked(self._policy, self._target, is_secure=self._is_secure)
        except (Refused, OSError) as error:
            raise Unreachable(f"There is no connection: {error}", was_sent=False) from error

    def _channel_to(self, target: str, pinned: Options) -> Any:
        options = (*OPTIONS, *pinned, ("grpc.max_receive_message_length", self._max_bytes))
        if not self._is_secure:
            return grpc.aio.insecure_channel(target, options=options)
        auth = None if self._driver is None else self._driver.auth
        return grpc.aio.secure_channel(target, _credentials(self._tls, auth), options=options)

    async def _with_credentials(self, call: Outgoing) -> Outgoing:
        if self._driver is None:
            return call
        sent = await self._driver.prepare(call)
        if sent.url != call.url:
            raise AuthenticationFailed("Credentials that belong into a query cannot be sent over gRPC")
        return sent

    async def _again(self, sent: Outgoing, error: grpc.aio.AioRpcError) -> Outgoing | None:
        if self._driver is None or error.code() is not grpc.StatusCode.UNAUTHENTICATED:
            return None
        said = {str(key).lower(): str(value) for key, value in error.trailing_metadata() or ()}
        return await self._driver.retry(sent, Reply(status=401, headers=said, body=b""))

    def _translated(self, error: grpc.aio.AioRpcError, *, is_open: bool = False) -> AccordError | Unreachable:
        return translated(error, is_open=is_open, limit=self._max_bytes)


def _credentials(tls: ssl.SSLContext | None, auth: Auth | None) -> grpc.ChannelCredentials:
    """Return what a channel is made with: the authorities of a context, since gRPC takes nothing else of one."""
    found = b"" if tls is None else "".join(map(ssl.DER_cert_to_PEM_cert, tls.get_ca_certs(binary_form=True))).encode()
    own = certificates_of(auth) if auth is not None else []
    key, chain = own[0].pem() if own else (None, None)
    return grpc.ssl_channel_credentials(found or None, key, chain)


def _metadata(sent: Outgoing) -> Metadata:
    return tuple((name.lower(), value) for name, value in sent.headers)


def _json(method: Method, message: bytes) -> bytes:
    try:
        return to_json(method.response, message)
    except (ParseError, InvalidParams) as error:
        raise InvalidAgentResponse(f"The agent's answer is invalid: {error.message}") from None
