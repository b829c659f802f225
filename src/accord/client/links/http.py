"""What the two HTTP links share: an operation becomes one request, its answer a result, its stream events.

Addresses, envelopes and the reading of errors are each link's own; versions are the dialects'. It repeats nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import ClassVar

from msgspec.structs import replace

from accord.client.auth.driver import Driver
from accord.client.auth.flow import Auth
from accord.client.exchange import Exchange
from accord.client.links.answers import failure
from accord.client.links.streams import Stream
from accord.client.wire import SECONDS, Opened, Outgoing, Reply, Transport, Unreachable
from accord.errors import AccordError, UnsupportedOperation
from accord.model import Event, EventBody, Request, Result
from accord.protocol.dialects import Dialect
from accord.protocol.negotiate import DIALECT_HEADER, VERSION_HEADER
from accord.protocol.operations import DialectName, Operation
from accord.protocol.sse import Frame

Headers = tuple[tuple[str, str], ...]

VERSIONS: Mapping[DialectName, str] = {DialectName.V1: "1.0", DialectName.V03: "0.3"}
"""What a dialect says as `A2A-Version`; the others have no version of A2A's."""

JSON = ("Content-Type", "application/json")
STREAM = "text/event-stream"


class HttpLink(ABC):
    """One agent over HTTP."""

    binding: ClassVar[str]
    codecs: ClassVar[Mapping[DialectName, Dialect]]
    """The dialects that the binding has, as it speaks them."""

    def __init__(
        self,
        transport: Transport,
        url: str,
        dialect: DialectName,
        *,
        auth: Auth | Driver | None = None,
        headers: Mapping[str, str] | Headers = (),
        extensions: Iterable[str] = (),
        seconds: float | None = SECONDS,
    ) -> None:
        """Talk to the agent at `url`; `headers` go with every request, `extensions` are those to be used."""
        if dialect not in self.codecs:
            raise ValueError(f"There is no {self.binding} in dialect {dialect.value}")
        self.url = url
        self.dialect = dialect
        self.codec = self.codecs[dialect]
        self.resumable = False
        self.seconds = seconds
        self._exchange = Exchange(transport, auth)
        stated = tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)
        self.headers: Headers = (*spoken(dialect, extensions), *stated)

    @abstractmethod
    def outgoing(self, operation: Operation, request: Request, seconds: float | None) -> Outgoing:
        """Return the HTTP request of an operation."""

    @abstractmethod
    def result(self, operation: Operation, body: bytes, request: Request) -> Result:
        """Read the body of an answer; an error in it is raised."""

    def streamed(self, frame: Frame) -> EventBody:
        """Read one event of a stream; an error that ends it is raised."""
        return self.codec.decode_streamed(frame)

    @abstractmethod
    def whole_event(self, body: bytes) -> EventBody:
        """Read the body of an answer that should have been a stream; an error in it is raised."""

    @abstractmethod
    def stated_error(self, reply: Reply, request: Request) -> AccordError | None:
        """Read the body of an answer that is an error, or return None for one of unknown form."""

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Result:
        """Ask once and return the answer."""
        patience = self.seconds if seconds is None else seconds
        opened = await self._exchange.open(self.outgoing(operation, request, patience))
        body = await opened.read()
        if not 200 <= opened.status < 300:
            raise self._failure(opened, body, request)
        return self.result(operation, body, request)

    async def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Ask for a stream and yield its events."""
        outgoing = self.outgoing(operation, request, self.seconds)
        resumed = () if after is None else (("Last-Event-ID", str(after)),)
        others = [pair for pair in outgoing.headers if pair[0] != "Accept"]
        headers = (*others, ("Accept", STREAM), *resumed)
        opened = await self._exchange.open(replace(outgoing, headers=headers, streams=True))
        stream = Stream(self.streamed)
        if not 200 <= opened.status < 300:
            raise self._failure(opened, await opened.read(), request)
        if not opened.headers.get("content-type", "").lower().startswith(STREAM):
            yield stream.numbered(self.whole_event(await opened.read()), None)
            return
        try:
            async with aclosing(opened.pieces()) as pieces:  # type: ignore[type-var]  # a generator in every transport
                async for piece in pieces:
                    for event in stream.feed(piece):
                        self.resumable = stream.is_numbered
                        yield event
        except Unreachable as error:
            stream.cut(error)
        else:
            stream.finish()

    def _failure(self, opened: Opened, body: bytes, request: Request) -> AccordError:
        reply = Reply(status=opened.status, headers=opened.headers, body=body)
        return failure(reply, self.stated_error(reply, request))

    async def close(self) -> None:  # noqa: B027 - nothing here is the link's alone, and no subclass needs to say so
        """Do nothing: the transport belongs to whoever gave it."""


def lacking(operation: Operation, dialect: DialectName) -> UnsupportedOperation:
    """Return the refusal of an operation that a version of A2A does not have over a binding."""
    return UnsupportedOperation(f"{operation.value} does not exist in dialect {dialect.value}")


def spoken(dialect: DialectName, extensions: Iterable[str]) -> Headers:
    """Return the headers that say what is spoken: A2A's own, and for a server like ours the dialect itself."""
    version = VERSIONS.get(dialect)
    stated = ", ".join(extensions)
    found = [(VERSION_HEADER, version)] if version else []
    if dialect is not DialectName.V1:
        found.append((DIALECT_HEADER, dialect.value))
    if stated:
        found.append(("a2a-extensions", stated))
        if dialect is not DialectName.V1:
            found.append(("x-a2a-extensions", stated))
    return tuple(found)
