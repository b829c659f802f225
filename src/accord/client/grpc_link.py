"""An agent over gRPC (extra `grpc`), in A2A 1.0 or 0.3.

An operation is a call, its messages are protobuf. A failed call is either an agent's error or an `Unreachable` of
the network. gRPC reports both alike, so the details in the trailing metadata decide (A2A 1.0, 10.6), then the error
name at the start of a 0.3 message, then the status. Addresses are checked before a connection is made.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeAlias, TypeVar
from urllib.parse import urlsplit

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from accord import errors
from accord.client.auth.schemes import certificates_of
from accord.client.exchange import AuthDriver, ClientAuth
from accord.client.http_link import EventStream, Headers, header_pairs, missing_operation, version_headers
from accord.engine import tracing
from accord.errors import AccordError
from accord.model import Event, Request, Result
from accord.outbound import (
    MAX_BYTES,
    TIMEOUT_SECONDS,
    HttpReply,
    HttpRequest,
    HttpTransport,
    Policy,
    StreamBroken,
    TargetRefused,
    TimedOut,
    Unreachable,
    read_retry_after,
    too_large,
)
from accord.outbound.connector import CheckedResolver
from accord.outbound.session import SystemResolver
from accord.protocol import urls
from accord.protocol.dialects.v03.rest import named_error
from accord.protocol.dialects.v1 import read_error
from accord.protocol.operations import DialectName, Operation
from accord.protocol.protobuf import GRPC_SERVICES, GrpcMethod, NoProtobuf, from_json, to_json
from accord.protocol.sse import Frame

ChannelOptions = tuple[tuple[str, int | str], ...]
_NOT_PINNED: ChannelOptions = ()


def parse_target(url: str) -> tuple[str, bool]:
    """Return the `host:port` of an agent, and whether it uses TLS.

    Cards contain `host:port` without a scheme: then only this machine is called without TLS.
    """
    scheme, separator, remainder = url.partition("://")
    parts = urlsplit(f"//{remainder if separator else url}")
    is_secure = scheme.lower() in ("https", "grpcs") if separator else not urls.is_loopback(parts.hostname or "")
    port = "" if parts.port else ":443" if is_secure else ":80"
    return parts.netloc.rpartition("@")[2] + port, is_secure


async def check_target(policy: Policy, target: str, *, is_secure: bool) -> tuple[str, ChannelOptions]:
    """Return the addresses of `host:port` as a gRPC target, and the settings that keep the host's name.

    Raises TargetRefused for a target that the policy does not allow. A second lookup could return other
    addresses, so none is made.
    """
    allowed = policy.target(f"{'https' if is_secure else 'http'}://{target}/")
    host, port = allowed.url.raw_host or "", allowed.url.port or 0
    names = SystemResolver()
    try:
        addresses = await CheckedResolver(names, is_trusted=allowed.is_trusted).resolve(host, port)
    finally:
        names.close()
    hosts = [one["host"] for one in addresses]
    family = "ipv6" if ":" in hosts[0] else "ipv4"
    places = [
        f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts if (":" in one) == (":" in hosts[0])
    ]
    settings: ChannelOptions = (("grpc.default_authority", target), ("grpc.ssl_target_name_override", host))
    return f"{family}:{','.join(places)}", settings if is_secure else settings[:1]


Code: TypeAlias = grpc.StatusCode

GRPC_ERRORS: Mapping[Code, type[AccordError]] = {
    Code.INVALID_ARGUMENT: errors.InvalidParams,
    Code.NOT_FOUND: errors.TaskNotFound,
    Code.PERMISSION_DENIED: errors.PermissionDenied,
    Code.UNAUTHENTICATED: errors.AuthenticationFailed,
    Code.RESOURCE_EXHAUSTED: errors.RateLimited,
    Code.FAILED_PRECONDITION: errors.UnsupportedOperation,
    Code.UNIMPLEMENTED: errors.MethodNotFound,
    Code.INTERNAL: errors.InternalError,
    Code.UNAVAILABLE: errors.AgentUnavailable,
    Code.DEADLINE_EXCEEDED: errors.TaskTimeout,
}
"""gRPC status -> error, where nothing else identifies it. Other statuses are a RemoteError."""

DETAILS_KEY = "grpc-status-details-bin"
KNOWN_DETAILS = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
"""The details that are read. They are imported because protobuf finds imported types by name."""

NEVER_SENT_SIGNS = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "errors resolving",
    "dns resolution failed",
    "name resolution failure",
    "domain name not found",
    "handshake",
    "connection refused",
)
"""Texts in gRPC's errors for calls that never had a connection."""

CUT_SIGNS = ("rst_stream", "stream removed", "connection reset", "goaway")
"""Texts in gRPC's internal errors for a lost connection."""

MAX_REASON = 300

GRPC_STATUS_KEY = "grpcStatus"
"""The error's metadata key for the gRPC status of the failed call."""


def error_of_call(error: grpc.aio.AioRpcError, *, is_open: bool, limit: int) -> AccordError | Unreachable:
    """Return the error for a failed call. `is_open` means that the answer had begun, `limit` is its maximum size."""
    code, sentence = error.code(), error.details() or ""
    metadata = {str(key).lower(): value for key, value in error.trailing_metadata() or ()}
    details = _details(metadata.get(DETAILS_KEY))
    if not details and (broken := _connection_error(code, sentence, is_open=is_open)):
        return broken
    if code is Code.RESOURCE_EXHAUSTED and not details and "larger than max" in sentence:
        return too_large(limit)
    agent_error = _agent_error(code, sentence, details)
    texts = {key: value for key, value in metadata.items() if isinstance(value, str)}
    if agent_error.retry_after is None:
        agent_error.retry_after = read_retry_after(texts)
    if isinstance(agent_error, errors.AuthenticationFailed) and "www-authenticate" in texts:
        agent_error.challenges = (texts["www-authenticate"],)
    return agent_error


def _agent_error(code: Code, sentence: str, details: list[Any]) -> AccordError:
    named, sentence = named_error(sentence)
    decoded = read_error(0, sentence, details)
    kind = (
        type(decoded)
        if not isinstance(decoded, errors.RemoteError)
        else named or GRPC_ERRORS.get(code, errors.RemoteError)
    )
    facts = {name: value for name, value in decoded.metadata.items() if name != "code"}
    return kind(
        sentence or f"The agent answered with gRPC status {code.name}",
        violations=decoded.violations,
        retry_after=decoded.retry_after,
        metadata=facts | {GRPC_STATUS_KEY: code.name},
    )


def _connection_error(code: Code, sentence: str, *, is_open: bool) -> Unreachable | None:
    """Return the connection's failure, or None if the agent itself reported the error."""
    text, reason = sentence.lower(), sentence[:MAX_REASON]
    if code is Code.DEADLINE_EXCEEDED:
        return TimedOut("No answer in time", was_sent=True)
    if code not in (Code.UNAVAILABLE, Code.CANCELLED) and not (
        code in (Code.INTERNAL, Code.UNKNOWN) and any(sign in text for sign in CUT_SIGNS)
    ):
        return None
    if is_open:
        return StreamBroken(f"The stream was cut: {reason}")
    if code is Code.UNAVAILABLE and any(sign in text for sign in NEVER_SENT_SIGNS):
        return Unreachable(f"There is no connection: {reason}", was_sent=False)
    return Unreachable(f"The call broke off: {reason}", was_sent=True)


def _details(packed: Any) -> list[Any]:
    """Return the details of a status in the JSON form of A2A 1.0's errors."""
    if not isinstance(packed, bytes):
        return []
    try:
        return [MessageToDict(detail) for detail in status_pb2.Status.FromString(packed).details if _is_known(detail)]
    except DecodeError:
        return []


def _is_known(detail: Any) -> bool:
    return any(detail.Is(kind.DESCRIPTOR) for kind in KNOWN_DETAILS)


METHODS: Mapping[DialectName, Mapping[Operation, GrpcMethod]] = {
    name: {method.operation: method for method in edition.methods} for name, edition in GRPC_SERVICES.items()
}

CHANNEL_OPTIONS: ChannelOptions = (
    # A lost server is detected within a minute, while there is a call.
    ("grpc.keepalive_time_ms", 40_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.enable_retries", 0),  # the client decides about retries
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),  # connections belong to one set of credentials
)

T = TypeVar("T")


class GrpcLink:
    """A link to one agent over gRPC."""

    binding: ClassVar = "GRPC"

    def __init__(  # noqa: PLR0913 - the options of every link, and those of gRPC
        self,
        transport: HttpTransport,
        url: str,
        dialect: DialectName,
        *,
        auth: ClientAuth | AuthDriver | None = None,
        headers: Mapping[str, str] | Headers = (),
        extensions: Iterable[str] = (),
        seconds: float | None = TIMEOUT_SECONDS,
        tls: ssl.SSLContext | None = None,
        policy: Policy | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Call the agent at `url`, which may be `host:port`. `transport` is for the requests of `auth`.

        `tls` replaces the system's authorities, `policy` limits the addresses. `headers` are sent with every call.
        """
        self.url = url
        self.dialect = dialect
        self.seconds = seconds
        self.resumable = False  # only the first event of a gRPC stream can have a number
        self._target, self._is_secure = parse_target(url)
        self._tls = tls
        self._policy = policy
        self._max_bytes = max_bytes
        self._methods = METHODS[dialect]
        self._driver = AuthDriver(auth, transport) if auth is not None and not isinstance(auth, AuthDriver) else auth
        self._headers: Headers = (*version_headers(dialect, extensions), *header_pairs(headers))
        self._channel: Any = None

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Result:
        """Send one request and return the answer."""
        method, call = self._call(operation, request)
        make = (await self._open()).unary_unary(method.path)
        timeout = self.seconds if seconds is None else seconds

        async def send(sent: HttpRequest) -> bytes:
            answer: bytes = await make(sent.body, metadata=_metadata(sent), timeout=timeout)
            return answer

        return method.dialect.decode_result(operation, _json(method, await self._authorized(call, send)), request)

    async def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Open a stream and yield its events."""
        method, call = self._call(operation, request, after)
        make = (await self._open()).unary_stream(method.path)

        async def send(sent: HttpRequest) -> tuple[Any, Any]:
            """Open a stream and return it with its first message."""
            opened = make(sent.body, metadata=_metadata(sent))
            try:
                async with asyncio.timeout(self.seconds):
                    return opened, await opened.read()
            except BaseException as error:
                opened.cancel()
                if isinstance(error, TimeoutError):
                    raise TimedOut("No answer in time", was_sent=True) from None
                raise

        stream = EventStream(method.dialect.decode_event)
        opened, message = await self._authorized(call, send)
        try:
            while message is not grpc.aio.EOF:
                yield stream.numbered(method.dialect.decode_event(Frame(data=_json(method, message))), None)
                message = await opened.read()
        except grpc.aio.AioRpcError as error:
            failure = error_of_call(error, is_open=True, limit=self._max_bytes)
            if not isinstance(failure, Unreachable):
                raise failure from error
            stream.cut(failure)
        else:
            stream.finish()
        finally:
            opened.cancel()

    async def _authorized(self, call: HttpRequest, send: Callable[[HttpRequest], Awaitable[T]]) -> T:
        """Send a call with its credentials, and once more with other credentials if they are refused."""
        sent = await self._with_credentials(call)
        try:
            try:
                return await send(sent)
            except grpc.aio.AioRpcError as error:
                again = await self._again(sent, error)
                if again is None:
                    raise
            return await send(again)
        except grpc.aio.AioRpcError as error:
            raise error_of_call(error, is_open=False, limit=self._max_bytes) from error

    async def close(self) -> None:
        """Close the channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    # --- calls ------------------------------------------------------------------------------------------------------

    def _call(self, operation: Operation, request: Request, after: int | None = None) -> tuple[GrpcMethod, HttpRequest]:
        """Return a call in the form of its HTTP request."""
        method = self._methods.get(operation)
        if method is None:
            raise missing_operation(operation, self.dialect)
        try:
            body = from_json(method.request, method.dialect.encode_request(operation, request))
        except NoProtobuf:
            raise errors.InvalidParams("The request is nested too deeply for gRPC") from None
        resumed = () if after is None else (("last-event-id", str(after)),)
        traced = tracing.headers().items()
        scheme = "https" if self._is_secure else "http"
        url = f"{scheme}://{self._target}{method.path}"
        return method, HttpRequest(method="POST", url=url, headers=(*self._headers, *resumed, *traced), body=body)

    async def _open(self) -> Any:
        """Return the channel. With a policy it connects to the checked addresses, under the host's name."""
        if self._channel is not None:
            return self._channel
        target, pinned = self._target, _NOT_PINNED
        if self._policy is not None:
            try:
                target, pinned = await check_target(self._policy, target, is_secure=self._is_secure)
            except (TargetRefused, OSError) as error:
                raise Unreachable(f"There is no connection: {error}", was_sent=False) from error
        if self._channel is None:  # no concurrent call has opened it
            options = (*CHANNEL_OPTIONS, *pinned, ("grpc.max_receive_message_length", self._max_bytes))
            if self._is_secure:
                auth = None if self._driver is None else self._driver.auth
                self._channel = grpc.aio.secure_channel(target, _credentials(self._tls, auth), options=options)
            else:
                self._channel = grpc.aio.insecure_channel(target, options=options)
        return self._channel

    async def _with_credentials(self, call: HttpRequest) -> HttpRequest:
        if self._driver is None:
            return call
        sent = await self._driver.prepare(call)
        if sent.url != call.url:
            raise errors.AuthenticationFailed("Credentials that belong into a query cannot be sent over gRPC")
        return sent

    async def _again(self, sent: HttpRequest, error: grpc.aio.AioRpcError) -> HttpRequest | None:
        if self._driver is None or error.code() is not grpc.StatusCode.UNAUTHENTICATED:
            return None
        said = {str(key).lower(): str(value) for key, value in error.trailing_metadata() or ()}
        return await self._driver.retry(sent, HttpReply(status=401, headers=said, body=b""))


def _credentials(tls: ssl.SSLContext | None, auth: ClientAuth | None) -> grpc.ChannelCredentials:
    """Return the credentials of a channel. gRPC uses only the authorities of a TLS context."""
    authorities = (
        b"" if tls is None else "".join(map(ssl.DER_cert_to_PEM_cert, tls.get_ca_certs(binary_form=True))).encode()
    )
    own = certificates_of(auth) if auth is not None else []
    key, chain = own[0].pem() if own else (None, None)
    return grpc.ssl_channel_credentials(authorities or None, key, chain)


def _metadata(sent: HttpRequest) -> Headers:
    return tuple((name.lower(), value) for name, value in sent.headers)


def _json(method: GrpcMethod, message: bytes) -> bytes:
    try:
        return to_json(method.response, message)
    except (errors.ParseError, errors.InvalidParams) as error:
        raise errors.InvalidAgentResponse(f"The agent's answer is invalid: {error.message}") from None
