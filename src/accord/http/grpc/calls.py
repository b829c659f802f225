"""Calls over gRPC: a protobuf message in, messages or a status out.

Where possible, a call is authenticated from its metadata before its message is read. Unauthenticated callers get little
time and little memory for a message that does not arrive. The dialect decodes and encodes, the service executes. Errors
are a status with google.rpc details in the trailing metadata (10.6), bounded because it must fit into HTTP/2 headers.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import A2A, Call, Caller, Handler, handler_of, read_stream
from accord.auth.authentication import BodyNeeded
from accord.auth.rate_limits import Quotas
from accord.errors import (
    AccordError,
    AgentUnavailable,
    InternalError,
    InvalidAgentResponse,
    InvalidRequest,
    RateLimited,
    RequestTimeout,
)
from accord.http.asgi import (
    QUOTAS,
    Admit,
    Headers,
    Scope,
    activated_extensions,
    address_of,
    declared_extensions,
    error_headers,
    header,
    idempotency_key,
    presented,
)
from accord.http.files import FileLinks, large_file_linker
from accord.http.response_bodies import PIECE, ResponseBodies, account_of
from accord.http.sse import last_event_id
from accord.model import Event, Request
from accord.protocol import protobuf
from accord.protocol.dialects.base import Dialect
from accord.protocol.dialects.v1 import error_details
from accord.protocol.negotiation import VERSION_HEADER, check_version
from accord.protocol.protobuf import GrpcMethod, to_json

log = logging.getLogger("accord.grpc")


def encode_message(kind: type[Message], json: bytes) -> bytes:
    """Return a result as protobuf."""
    try:
        return protobuf.from_json(kind, json)
    except protobuf.NoProtobuf as error:
        log.warning("grpc.not_encodable", extra={"reason": str(error)[:500]})
        raise InvalidAgentResponse("The answer is nested too deeply for gRPC; JSON-RPC and HTTP+JSON have it") from None


_STRANGERS = object()


class GrpcReader:
    """Reads the messages of all calls of a server, and counts calls whose message is outstanding."""

    def __init__(self, quotas: Quotas, max_calls: int) -> None:
        """Limit outstanding messages: a quarter of `max_calls` per caller or address, half for unauthenticated callers.

        An authenticated caller has as much time as the largest body may take over HTTP, because gRPC does not report
        how much has arrived. An unauthenticated one has the time of a body that makes no progress.
        """
        self._seconds = quotas.body_seconds
        self._known_seconds = quotas.body_seconds + quotas.body / max(quotas.body_rate, 1)
        self._of_one, self._of_strangers = -(-max_calls // 4), -(-max_calls // 2)
        self._unread: Counter[Hashable] = Counter()

    async def read(self, scope: Scope, context: Any, admit: Admit) -> tuple[Caller, bytes]:
        """Return the caller and message of a call."""
        caller = await _authenticate_from_metadata(scope, admit)
        if caller is not None and caller.owner:
            with self._room(caller.account, self._of_one):
                return caller, await _read_message(context, self._known_seconds)
        with self._room(_STRANGERS, self._of_strangers), self._room(address_of(scope), self._of_one):
            body = await _read_message(context, self._seconds)
        return caller or await admit(presented(scope, body)), body

    @contextmanager
    def _room(self, who: Hashable, most: int) -> Iterator[None]:
        if self._unread[who] >= most:
            raise RateLimited("Too many calls wait for their messages", retry_after=1, metadata={"limit": "unread"})
        self._unread[who] += 1
        try:
            yield
        finally:
            self._unread[who] -= 1
            if not self._unread[who]:
                del self._unread[who]


async def _authenticate_from_metadata(scope: Scope, admit: Admit) -> Caller | None:
    """Return the caller of a call, or None if its message is needed to authenticate."""
    try:
        return await admit(presented(scope, None))
    except BodyNeeded:
        return None


async def _read_message(context: Any, seconds: float) -> bytes:
    """Return the first message. A unary call has no other, and gRPC does not read further ones."""
    try:
        async with asyncio.timeout(seconds):
            message = await context.read()
    except TimeoutError:
        raise RequestTimeout("The message did not arrive in time") from None
    if message is grpc.aio.EOF:
        raise InvalidRequest("The call has no message")
    found: bytes = message
    return found


Metadata = tuple[tuple[str, str | bytes], ...]

DETAILS_KEY = "grpc-status-details-bin"

MAX_SENTENCE_BYTES = 800
MAX_DETAILS_BYTES = 3000
"""Clients refuse metadata over 8 kB. The sentence is sent up to 3 times as long (percent-encoded), the details 4/3
times (base64).
"""

KNOWN = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
"""Message types in `details`. protobuf finds them by name after they have been imported."""


class GrpcStatus(NamedTuple):
    """The status that ends a call."""

    code: grpc.StatusCode
    sentence: str
    metadata: Metadata


def status_of(error: AccordError, dialect: Dialect) -> GrpcStatus:
    """Return the status of an error."""
    code: grpc.StatusCode = grpc.StatusCode[error.row.grpc]
    sentence = dialect.encode_error(error).message.encode()[:MAX_SENTENCE_BYTES].decode(errors="ignore")
    said = _rpc_status(code, sentence, error_details(error))
    if said.ByteSize() > MAX_DETAILS_BYTES:  # the reason is the part that the caller must have
        said = _rpc_status(code, sentence, error_details(type(error)()))
    return GrpcStatus(code, sentence, ((DETAILS_KEY, said.SerializeToString()), *as_metadata(error_headers(error))))


def as_metadata(headers: Headers) -> Metadata:
    """Return headers as metadata, without `Connection`, which HTTP/2 does not have (RFC 9113, 8.2.2)."""
    return tuple((name.decode(), value.decode("latin-1")) for name, value in headers if name != b"connection")


def _rpc_status(code: grpc.StatusCode, sentence: str, stated: list[dict[str, Any]]) -> Any:
    return ParseDict({"code": code.value[0], "message": sentence, "details": stated}, status_pb2.Status())


BINDING = "grpc"

LAST_EVENT_KEY = "last-event-id"
"""Metadata key of the last event a caller received, as in HTTP. A stream sends that of its first event in the initial
metadata, and that of its last event in the trailing metadata.
"""

LARGE_BYTES = 64 * 1024
"""Size above which messages are converted in a thread: 16 MB of small values take seconds and would block other calls.
"""

UNREAD_MESSAGES = ResponseBodies()
"""Large messages that clients have not read, counted apart from HTTP: gRPC cannot disconnect one call."""

T = TypeVar("T")


class GrpcRequest(Struct, frozen=True):
    """An authenticated call: its request, its caller, the event to resume after, and the response metadata."""

    request: Request
    caller: Caller
    after: int | None
    said: Metadata


class GrpcCalls:
    """Answers the calls to one agent."""

    def __init__(
        self,
        service: A2A | Handler,
        *,
        reader: GrpcReader,
        admit: Admit,
        extensions: frozenset[str],
        quotas: Quotas = QUOTAS,
        links: FileLinks | None = None,
    ) -> None:
        """Serve `service` to callers that `admit` authenticates; `extensions` are those of the agent's card.

        `links` replaces large files by URLs.

        A message waits at most `quotas.unread_seconds` for a client that does not read.
        """
        self._handler = handler_of(service)
        self._reader = reader
        self._admit = admit
        self._extensions = extensions
        self._quotas = quotas
        self._links = links

    async def _understand(self, method: GrpcMethod, context: Any) -> GrpcRequest:
        scope = _scope(method, context)
        caller, body = await self._reader.read(scope, context, self._admit)
        check_version(header(scope, VERSION_HEADER.encode()), method.dialect.name)
        after = last_event_id(scope) if method.streams else None
        params = await _convert_aside(partial(to_json, method.request), body)
        request = method.dialect.decode_request(method.operation, params)
        known = replace(
            caller,
            origin=method.dialect.name.value,
            binding=BINDING,
            extensions=declared_extensions(scope),
            idempotency_key=idempotency_key(scope),
            files_at=None if self._links is None else "",
        )
        return GrpcRequest(
            request, known, after, as_metadata(activated_extensions(scope, self._extensions & known.extensions))
        )

    def _shortening(self, understood: GrpcRequest) -> Callable[[T], T]:
        return large_file_linker(self._links, understood.request, understood.caller, self._quotas.inline_files)

    # --- unary calls ----------------------------------------------------------------------------------------------

    async def answer(self, method: GrpcMethod, context: Any) -> None:
        """Answer a unary call."""
        try:
            understood = await self._understand(method, context)
            await self._write(context, await self._result(method, understood, context), understood.caller)
            return
        except AccordError as error:
            failure = error
        except Exception:  # the caller gets no detail of it, the log everything
            log.exception("request.failed", extra={"method": method.path})
            failure = InternalError()
        await end_call(context, method, failure)

    async def _result(self, method: GrpcMethod, understood: GrpcRequest, context: Any) -> bytes:
        """Return an encoded result; the result itself may be large, and is not held while the client reads."""
        result = await self._handler.handle(Call(method.operation, understood.request, understood.caller))
        json = method.dialect.encode_result(method.operation, result)
        if len(json) > self._quotas.inline_files:
            json = method.dialect.encode_result(method.operation, self._shortening(understood)(result))
        del result
        answer = await _convert_aside(partial(encode_message, method.response), json)
        context.set_trailing_metadata(understood.said)
        return answer

    # --- streams --------------------------------------------------------------------------------------------------

    async def stream(self, method: GrpcMethod, context: Any) -> None:
        """Answer a streaming call. gRPC cancels it when the client disconnects."""
        try:
            understood = await self._understand(method, context)
            call = Call(method.operation, understood.request, understood.caller, understood.after)
            events = read_stream(self._handler, call)
            async with aclosing(events):  # type: ignore[type-var]  # every service stream is an async generator
                await self._write_all(events, method, understood, context)
            return
        except AccordError as error:
            failure = error
        except Exception:  # as in answer
            log.exception("stream.failed", extra={"method": method.path})
            failure = InternalError()
        await end_call(context, method, failure)

    async def _write_all(
        self, events: AsyncIterator[Event], method: GrpcMethod, understood: GrpcRequest, context: Any
    ) -> None:
        is_begun = False
        async for event in events:
            numbered = (*understood.said, (LAST_EVENT_KEY, str(event.seq)))
            if not is_begun:
                await context.send_initial_metadata(numbered)
                is_begun = True
            context.set_trailing_metadata(numbered)
            encoding = self._event(method, understood, event)
            del event  # as in _result
            await self._write(context, await encoding, understood.caller)

    async def _event(self, method: GrpcMethod, understood: GrpcRequest, event: Event) -> bytes | None:
        """Return an encoded event, or None if its dialect does not have it."""
        frame = method.dialect.encode_event(event)
        if frame is not None and len(frame.data) > self._quotas.inline_files:
            frame = method.dialect.encode_event(self._shortening(understood)(event))
        del event
        return None if frame is None else await _convert_aside(partial(encode_message, method.response), frame.data)

    async def _write(self, context: Any, message: bytes | None, caller: Caller) -> None:
        """Write a message, and wait until gRPC has sent it.

        A client that does not read is given up after a timeout. A large message has none: gRPC holds it until the
        client reads or leaves, and it counts against the limits for so long.
        """
        quotas = self._quotas
        if message is None:
            return
        if len(message) > PIECE:
            with UNREAD_MESSAGES.hold(message, account_of(caller), quotas, is_written=False) as pending:
                del message
                await context.write(pending.body.data)
            return
        try:
            async with asyncio.timeout(quotas.unread_seconds):
                await context.write(message)
        except TimeoutError:
            raise AgentUnavailable(f"The answer was not read for {quotas.unread_seconds:g} seconds") from None


async def end_call(context: Any, method: GrpcMethod, error: AccordError) -> NoReturn:
    """End a call with an error, keeping the metadata that a stream has set."""
    status = status_of(error, method.dialect)
    await context.abort(status.code, status.sentence, (*status.metadata, *(context.trailing_metadata() or ())))
    raise AssertionError("abort raises")


async def _convert_aside(convert: Callable[[bytes], T], data: bytes) -> T:
    return convert(data) if len(data) <= LARGE_BYTES else await asyncio.to_thread(convert, data)


def _scope(method: GrpcMethod, context: Any) -> Scope:
    stated = context.invocation_metadata() or ()
    pem = context.auth_context().get("x509_pem_cert")
    certificate = ssl.PEM_cert_to_DER_cert(pem[0].decode()) if pem else None
    return {
        "method": "POST",
        "path": method.path,
        "headers": [(key.encode(), value if isinstance(value, bytes) else value.encode()) for key, value in stated],
        "client": (_address(context.peer()), 0),
        "state": {"client_certificate": certificate},
    }


def _address(peer: str) -> str:
    """Return the address in `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    family, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]") if family in ("ipv4", "ipv6") else ""
