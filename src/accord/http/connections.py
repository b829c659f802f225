"""HTTP/1.1 connections of uvicorn, with limits on heads, unread responses and their number.

uvicorn's own connections wait without a timeout, accept trailers as headers, and lose the body of a request to upgrade.
`request_bodies` limits the time of bodies with any server. Open connections are counted by client address.
"""

import logging
import sys
from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, ClassVar

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from accord.auth.rate_limits import Bucket, Quotas
from accord.protocol.urls import Network, is_in_networks, network_of

try:
    import resource
except ImportError:  # this system has no such limits
    resource = None  # type: ignore[assignment]

FLUSH_BYTES = 64 * 1024
"""Bytes after which buffered data is written without waiting for more."""

CHUNKED_HEAD_END = b"transfer-encoding: chunked\r\n\r\n"
"""End of the head of a chunked response, as uvicorn writes it."""


LOG_RATE = 1 / 60, 1
"""Log records about too many connections of an address: per second, and at once."""

log = logging.getLogger("accord.server")


class NoUpgradeParser(HttpRequestParser):
    """A parser that ignores requests to upgrade (RFC 9110, 7.8), as the server speaks only HTTP/1.1.

    Clients that prefer HTTP/2 ask for it with their first request, and send its body all the same.
    """

    def __init__(self, connection: "Connection") -> None:
        """Report parsed data to `connection`."""
        super().__init__(connection)
        self._connection = connection
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # as in uvicorn, for pipelining

    def feed_data(self, data: Any) -> None:
        """Parse bytes; an upgrade request is parsed again without the upgrade, CONNECT ends the connection."""
        while True:
            try:
                super().feed_data(data)
            except HttpParserUpgrade as wish:
                if self.get_method() == b"CONNECT":
                    self._connection.refuse(HTTPStatus.NOT_IMPLEMENTED)
                    return
                data = self._connection.head_without_wish() + data[wish.args[0] :]
            else:
                return


class LoopTurns:
    """Batches writes: at the end of each turn of a loop, all connections write the data buffered during it.

    A client with many concurrent requests is then woken up once for all of them.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        """Write in `loop`."""
        self.loop = loop
        self._said: list[BatchedTransport] = []

    def add(self, joined: "BatchedTransport") -> None:
        """Flush `joined` when the turn ends."""
        if not self._said:
            self.loop.call_soon(self._end)
        self._said.append(joined)

    def _end(self) -> None:
        said, self._said = self._said, []
        for joined in said:
            joined.flush()


def _half_of_files() -> int:
    """Return half of this process's limit of open files, which leaves the other half to other clients."""
    if resource is None:
        return sys.maxsize
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if most == resource.RLIM_INFINITY else most // 2


_last: LoopTurns | None = None


def turns_of(loop: AbstractEventLoop) -> LoopTurns:
    """Return the turns of a loop; a process has one loop, except in tests."""
    global _last  # noqa: PLW0603  # the cached value only saves construction
    if _last is None or _last.loop is not loop:
        _last = LoopTurns(loop)
    return _last


class BatchedTransport:
    """A transport that joins the writes of one turn of the loop: a head and its body, or several events.

    Each write is a system call that wakes the client up, and costs as much as all the rest of a short response. The
    head of a stream waits only for its first event: of many streams that begin in one turn, the first does not wait for
    the last.
    """

    def __init__(self, transport: Transport, turns: LoopTurns) -> None:
        """Write to `transport` when one of the `turns` ends."""
        self._transport = transport
        self._turns = turns
        self._held: list[bytes] = []
        self._size = 0
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        """Buffer data until the turn ends."""
        held = self._held
        if not held:
            self._turns.add(self)
        held.append(data)
        self._size += len(data)
        if self._size > FLUSH_BYTES or (len(held) == 2 and held[0].endswith(CHUNKED_HEAD_END)):
            self.flush()

    def close(self) -> None:
        """Write the buffered data, and close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close without writing."""
        self._held.clear()
        self._size = 0
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that have not been written."""
        return self._size + self._transport.get_write_buffer_size()

    def flush(self) -> None:
        """Write the buffered data, unless the connection is closing."""
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._size = 0
            if not self.is_closing():
                self._transport.write(data)


class Connection(HttpToolsProtocol):
    """One client connection.

    A timer runs while no request is being answered and data is expected: from the start until the first head is
    complete, and whenever bytes arrive that complete no head. Between requests uvicorn's own keep-alive timer runs.
    """

    quotas: ClassVar[Quotas] = Quotas()
    trusted: ClassVar[Sequence[Network]] = ()
    """Trusted proxies. Their connections carry many callers and are not counted."""

    _open: ClassVar[Counter[str]] = Counter()
    _logged: ClassVar[Bucket] = Bucket(*LOG_RATE)

    _address: str | None = None
    _late: TimerHandle | None = None
    _unread: TimerHandle | None = None
    _is_in_head = False
    _begun = 0
    _size = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start, and store the client's certificate in the state of its requests."""
        super().connection_made(transport)
        self.transport = BatchedTransport(transport, turns_of(self.loop))  # type: ignore[assignment]  # all of it that uvicorn uses
        self.parser = NoUpgradeParser(self)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and (certificate := tls.getpeercert(binary_form=True)):
            self.app_state = {**self.app_state, "client_certificate": certificate}
        if self._count(transport):
            self._expect()
        else:
            self.refuse(HTTPStatus.TOO_MANY_REQUESTS)

    def _count(self, transport: Transport) -> bool:
        """Count this connection for its client, and return False if the client has too many."""
        peer, limit = transport.get_extra_info("peername"), min(self.quotas.connections, _half_of_files())
        if not limit or not isinstance(peer, tuple) or is_in_networks(peer[0], self.trusted):
            return True
        address = network_of(peer[0])
        if self._open[address] >= limit:
            if not self._logged.take(address):
                log.warning("connection.refused", extra={"peer": address, "open": limit})
            return False
        self._address = address
        self._open[address] += 1
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's count and timers."""
        super().connection_lost(exc)
        if self._address is not None:
            self._open[self._address] -= 1
            if not self._open[self._address]:
                del self._open[self._address]
        self._came()
        self._was_read()

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and count those that leave a head, or the trailers of a body, incomplete."""
        begun = self._begun
        super().data_received(data)
        if begun == self._begun:  # the position of a new head or of a body's end in `data` is unknown
            self._size += len(data)
            if self._size > self.quotas.head:
                self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if self._is_in_head or self._is_idle:  # idle: empty lines, or the remainder of a refused body
            self._expect()

    def on_message_begin(self) -> None:
        """Record that a head begins."""
        super().on_message_begin()
        self._is_in_head, self._size = True, 0
        self._begun += 1

    def on_headers_complete(self) -> None:
        """Record that a head is complete; the bindings check its exact size.

        Later headers are trailers, which must not pass for headers that a proxy checks (RFC 9110, 6.5.1).
        """
        self._is_in_head = False
        self._came()
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            self.headers = []

    def on_body(self, body: bytes) -> None:
        """Accept a piece of a body."""
        self._begun += 1
        self._size = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record that a request is complete, unless it will be parsed again."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def head_without_wish(self) -> bytes:
        """Return the parsed head without its upgrade request."""
        version = self.parser.get_http_version().encode()
        kept = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self.parser.get_method(), self.url, version, b"".join(kept))

    def pause_writing(self) -> None:
        """Record that the client reads more slowly than the server writes."""
        super().pause_writing()
        if self._unread is None:
            self._watch_reader()

    def resume_writing(self) -> None:
        """Record that the client has caught up."""
        super().resume_writing()
        self._was_read()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # None at first

    def _expect(self) -> None:
        if self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(self.quotas.head_seconds, self._give_up)

    def _came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _watch_reader(self) -> None:
        """Check again after a while: a long response is written at once, and is read as fast as the line allows."""
        enough = self.transport.get_write_buffer_size() - self.quotas.unread_seconds * self.quotas.body_rate
        self._unread = self.loop.call_later(self.quotas.unread_seconds, self._check_reader, enough)

    def _check_reader(self, enough: float) -> None:
        if self.transport.get_write_buffer_size() > max(0.0, enough):
            self.transport.abort()
        else:
            self._watch_reader()

    def _was_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _give_up(self) -> None:
        self._late = None
        if self._is_in_head:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    def refuse(self, status: HTTPStatus) -> None:
        """Close the connection with a status, unless another response is being written."""
        if not self.transport.is_closing():
            if self._is_idle:
                line = f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                self.transport.write(line.encode())
            self.transport.close()


def connection_class(quotas: Quotas, trusted: Sequence[Network] = ()) -> type[Connection]:
    """Return a connection class with `quotas`, for `uvicorn.Config(http=...)`."""
    members = {"quotas": quotas, "trusted": trusted, "_open": Counter[str](), "_logged": Bucket(*LOG_RATE)}
    return type("Connection", (Connection,), members)
