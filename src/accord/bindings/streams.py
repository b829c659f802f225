"""An event stream over HTTP: events as they come, a comment when none does, and an end when nobody reads.

It knows Server-Sent Events and their numbers; how an event looks is the dialect's, what it is wrapped in the binding's.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, MutableMapping
from contextlib import aclosing
from typing import Any, NamedTuple

from msgspec.structs import replace

from accord.auth.rate_limits import Quotas
from accord.bindings import alarms
from accord.bindings.http import QUOTAS, Headers, Receive, Scope, Send, header, query
from accord.bindings.outgoing import OUTGOING, PIECE, ClientGone, Outgoing
from accord.errors import AccordError, InternalError, InvalidParams, Violation
from accord.model import Event
from accord.protocol import sse
from accord.protocol.sse import KEEP_ALIVE, Frame

log = logging.getLogger("accord.stream")

HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]

KEEP_ALIVE_SECONDS = 15.0
"""How long a stream is silent at most: well below the minute after which proxies close what is idle."""

STUCK_LOOKS = 4
"""For how many of these silences one event may wait for a reader who does not read, before the stream is ended."""


class Large(NamedTuple):
    """A long event: its data, which streams of the same task share, and the bytes before and after it."""

    before: bytes
    data: bytes
    after: bytes


Encode = Callable[[Event], bytes | Large | None]
Broke = Callable[[AccordError], bytes]

NO_ENVELOPE = b"", b""


def encode(frame: Frame, envelope: tuple[bytes, bytes] = NO_ENVELOPE) -> bytes | Large:
    """Encode an event whose data goes between the two parts of an envelope."""
    before, after = envelope
    if len(frame.data) <= PIECE or b"\n" in frame.data or b"\r" in frame.data:
        return sse.encode(replace(frame, data=before + frame.data + after) if before else frame)
    head, end = sse.around(frame)
    return Large(head + before, frame.data, after + end)


class Opened:
    """A stream whose first event has been read: an error before it is an answer and not an event."""

    __slots__ = ("_first", "rest")

    def __init__(self, first: Event, rest: AsyncIterator[Event]) -> None:
        """Begin with `first`."""
        self._first: Event | None = first
        self.rest = rest

    def first(self) -> Event:
        """Return the first event once, and release it: it may be a whole task, and the stream lasts."""
        first, self._first = self._first, None
        assert first is not None  # a stream is written once
        return first


def last_seen(scope: Scope) -> int | None:
    """Return the number of the last event that a caller saw, from `Last-Event-ID` or `?after=`."""
    for name, stated in (("Last-Event-ID", header(scope, b"last-event-id")), ("after", query(scope, "after"))):
        if stated:
            if stated.isascii() and stated.isdigit() and len(stated) < 19:
                return int(stated)
            raise InvalidParams(f"{name} is not the number of an event", violations=(Violation(name, "not a number"),))
    return None


class Writer:
    """One stream to one client."""

    def __init__(
        self,
        send: Send,
        encode: Encode,
        broke: Broke,
        *,
        account: Hashable = None,
        quotas: Quotas = QUOTAS,
        outgoing: Outgoing = OUTGOING,
    ) -> None:
        """Write what `encode` makes of events, and what `broke` makes of the error that ends them early.

        Long events count against the limits of `account` until the client has read them.
        """
        self._send = send
        self._encode = encode
        self._broke = broke
        self._account = account
        self._quotas = quotas
        self._outgoing = outgoing
        self._head: Headers | None = None
        self._sent = self._seen = self._looks = 0
        self._is_sending = self._is_over = False
        self._alive: asyncio.Task[None] | None = None

    async def run(self, opened: Opened, receive: Receive, headers: Headers) -> None:
        """Write everything, until the events end or the client is gone.

        A first event that the limits do not allow is the only AccordError raised: nothing has been sent then.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # ASGI is called by nothing else
        self._head = [*HEADERS, *headers]
        reader = loop.create_task(self._until_gone(receive, task))
        quiet = _Quiet(alarms.of(loop), lambda: self._look(task))
        try:
            await self._write_all(opened)
        except ClientGone:
            return  # it was disconnected, because it does not read
        except asyncio.CancelledError:
            if not self._is_over or task.uncancel():
                raise
        finally:
            quiet.clear()
            for helper in (reader, self._alive):
                if helper is not None:
                    helper.cancel()

    async def _write_all(self, opened: Opened) -> None:
        async with aclosing(opened.rest) as events:  # type: ignore[type-var]  # every service stream is an async generator
            try:
                await self._write(self._encode(opened.first()))
                async for event in events:
                    written = self._write(self._encode(event))
                    del event  # it may be long, and the client slow
                    await written
            except AccordError as error:
                if self._head is not None:
                    raise
                await self._write(self._broke(error))
            except ClientGone:
                raise
            except Exception:  # the status is sent: the error can only be an event
                log.exception("stream broke")
                await self._write(self._broke(InternalError()))
        await self._send({"type": "http.response.body", "body": b""})

    def _write(self, frame: bytes | Large | None) -> Awaitable[None]:
        """Write an event; what waits for the client holds no long one."""
        return self._write_large(frame) if isinstance(frame, Large) else self._write_small(frame)

    async def _write_small(self, frame: bytes | None) -> None:
        if self._head is not None:
            await self._begin()
        if frame is not None:
            await self._write_piece({"type": "http.response.body", "body": frame, "more_body": True})

    async def _write_piece(self, message: MutableMapping[str, Any]) -> None:
        self._is_sending = True
        await self._send(message)
        self._is_sending = False
        self._sent += 1

    async def _write_large(self, frame: Large) -> None:
        with self._outgoing.hold(frame.data, self._account, self._quotas, shares=True) as pending:
            before, after = frame.before, frame.after
            del frame
            if self._head is not None:
                await self._begin()
            await self._outgoing.write(self._write_piece, pending, before, after, more=True)

    async def _begin(self) -> None:
        head, self._head = self._head, None
        await self._send({"type": "http.response.start", "status": 200, "headers": head})

    # --- the client -----------------------------------------------------------------------------------------------

    async def _until_gone(self, receive: Receive, task: "asyncio.Task[object]") -> None:
        """End the stream when its client is gone."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._end(task)

    def _end(self, task: "asyncio.Task[object]") -> None:
        self._is_over = True
        task.cancel()

    def _look(self, task: "asyncio.Task[object]") -> None:
        """See whether the client reads, and keep the connection alive."""
        self._looks = self._looks + 1 if self._is_sending and self._seen == self._sent else 0
        self._seen = self._sent
        if self._looks >= STUCK_LOOKS:
            log.info("stream ended: the client does not read")
            self._end(task)
        elif not self._is_sending:
            self._alive = asyncio.get_running_loop().create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})


class _Quiet:
    """Calls something after every so many seconds, until it is cleared."""

    def __init__(self, waiting: alarms.Alarms, look: Callable[[], None]) -> None:
        self._waiting = waiting
        self._look = look
        self._number = waiting.set(KEEP_ALIVE_SECONDS, self._ring)

    def clear(self) -> None:
        self._waiting.clear(self._number)

    def _ring(self) -> None:
        self._number = self._waiting.set(KEEP_ALIVE_SECONDS, self._ring)
        self._look()
