"""Answers calls: a protobuf message in, one message or a stream of them out, or a status that says why not.

It knows gRPC's framing only: the dialect decodes and encodes, the service does the work, and a call's metadata are read
by the same functions as the headers of an HTTP request, which is what they are. Listening is `server`.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import A2A, Caller, streaming_operations, unary_operations
from accord.auth.rate_limits import Quotas
from accord.bindings.grpc.messages import from_json
from accord.bindings.grpc.reading import Reader
from accord.bindings.grpc.status import Metadata, as_metadata, status_of
from accord.bindings.http import QUOTAS, Admit, Scope, activated, extensions, header, idempotency_key
from accord.bindings.links import Links, shortening
from accord.bindings.outgoing import PIECE, Outgoing, account_of
from accord.bindings.streams import last_seen
from accord.errors import AccordError, AgentUnavailable, InternalError
from accord.model import Event, Request
from accord.protocol.negotiation import VERSION_HEADER, check_version
from accord.protocol.protobuf import GrpcMethod, to_json

log = logging.getLogger("accord.grpc")

BINDING = "grpc"

LAST_EVENT_KEY = "last-event-id"
"""As in HTTP, what a caller saw last; a stream says it of its first event in front, and of its last one at the end."""

LARGE_BYTES = 64 * 1024
"""What is longer is converted in a thread: 16 MB of small values take seconds, in which others want to be served."""

UNREAD = Outgoing()
"""Large messages that clients have not read, apart from those over HTTP: gRPC cannot disconnect one call."""

T = TypeVar("T")


class Understood(Struct, frozen=True):
    """A call that may be made: what it asks, who makes it, and what the answer says in its metadata."""

    request: Request
    caller: Caller
    after: int | None
    said: Metadata


class Calls:
    """Answers the calls to one agent."""

    def __init__(
        self,
        service: A2A,
        *,
        reader: Reader,
        admit: Admit,
        extensions: frozenset[str],
        quotas: Quotas = QUOTAS,
        links: Links | None = None,
    ) -> None:
        """Answer for `service` to whom `admit` lets in; `extensions` are those of the agent's card.

        `links` gives large files addresses.

        One message waits for `quotas.unread_seconds` at most for a client that does not read.
        """
        self._answering = unary_operations(service)
        self._streaming = streaming_operations(service)
        self._reader = reader
        self._admit = admit
        self._extensions = extensions
        self._quotas = quotas
        self._links = links

    async def _understand(self, method: GrpcMethod, context: Any) -> Understood:
        scope = _scope(method, context)
        caller, body = await self._reader.read(scope, context, self._admit)
        check_version(header(scope, VERSION_HEADER.encode()), method.dialect.name)
        after = last_seen(scope) if method.streams else None
        params = await _convert(partial(to_json, method.request), body)
        request = method.dialect.decode_request(method.operation, params)
        known = replace(
            caller,
            origin=method.dialect.name.value,
            binding=BINDING,
            extensions=extensions(scope),
            idempotency_key=idempotency_key(scope),
            files_at=None if self._links is None else "",
        )
        return Understood(request, known, after, as_metadata(activated(scope, self._extensions)))

    def _shortening(self, understood: Understood) -> Callable[[T], T]:
        return shortening(self._links, understood.request, understood.caller, self._quotas.inline_files)

    # --- one answer -----------------------------------------------------------------------------------------------

    async def answer(self, method: GrpcMethod, context: Any) -> None:
        """Answer a call that is answered once."""
        try:
            understood = await self._understand(method, context)
            await self._write(context, await self._result(method, understood, context), understood.caller)
            return
        except AccordError as error:
            failure = error
        except Exception:  # whatever it is, the caller learns nothing of it and the log everything
            log.exception("call failed", extra={"method": method.path})
            failure = InternalError()
        await end(context, method, failure)

    async def _result(self, method: GrpcMethod, understood: Understood, context: Any) -> bytes:
        """Return an answer as it is on the wire; what it was made of may be large, and is not held while it is read."""
        result = await self._answering[method.operation](understood.request, understood.caller)
        json = method.dialect.encode_result(method.operation, result)
        if len(json) > self._quotas.inline_files:
            json = method.dialect.encode_result(method.operation, self._shortening(understood)(result))
        del result
        answer = await _convert(partial(from_json, method.response), json)
        context.set_trailing_metadata(understood.said)
        return answer

    # --- streams --------------------------------------------------------------------------------------------------

    async def stream(self, method: GrpcMethod, context: Any) -> None:
        """Answer a call that is answered with a stream; whoever goes away has it cancelled by gRPC."""
        try:
            understood = await self._understand(method, context)
            follow = self._streaming[method.operation]
            events = follow(understood.request, understood.caller, understood.after)
            async with aclosing(events):  # type: ignore[type-var]  # every service stream is an async generator
                await self._write_all(events, method, understood, context)
            return
        except AccordError as error:
            failure = error
        except Exception:  # as in answer
            log.exception("stream failed", extra={"method": method.path})
            failure = InternalError()
        await end(context, method, failure)

    async def _write_all(
        self, events: AsyncIterator[Event], method: GrpcMethod, understood: Understood, context: Any
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

    async def _event(self, method: GrpcMethod, understood: Understood, event: Event) -> bytes | None:
        """Return an event as it is on the wire, or None for one that its dialect does not have."""
        frame = method.dialect.encode_event(event)
        if frame is not None and len(frame.data) > self._quotas.inline_files:
            frame = method.dialect.encode_event(self._shortening(understood)(event))
        del event
        return None if frame is None else await _convert(partial(from_json, method.response), frame.data)

    async def _write(self, context: Any, message: bytes | None, caller: Caller) -> None:
        """Write a message, and wait until gRPC has sent it.

        A client that does not read is given up, unless the message is large: gRPC keeps what it was given until the
        client reads or leaves, so a large message counts against the limits for so long.
        """
        quotas = self._quotas
        if message is None:
            return
        if len(message) > PIECE:
            with UNREAD.hold(message, account_of(caller), quotas, is_written=False) as pending:
                del message
                await context.write(pending.body.data)
            return
        try:
            async with asyncio.timeout(quotas.unread_seconds):
                await context.write(message)
        except TimeoutError:
            raise AgentUnavailable(f"The answer was not read for {quotas.unread_seconds:g} seconds") from None


async def end(context: Any, method: GrpcMethod, error: AccordError) -> NoReturn:
    """End a call with an error; what a stream has said in its metadata stays said."""
    status = status_of(error, method.dialect)
    await context.abort(status.code, status.sentence, (*status.metadata, *(context.trailing_metadata() or ())))
    raise AssertionError("abort raises")


async def _convert(convert: Callable[[bytes], T], data: bytes) -> T:
    return convert(data) if len(data) <= LARGE_BYTES else await asyncio.to_thread(convert, data)


def _scope(method: GrpcMethod, context: Any) -> Scope:
    """Return a call as the HTTP request that it is."""
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
