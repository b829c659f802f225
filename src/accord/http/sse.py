"""Event streams over HTTP (Server-Sent Events), with keep-alive and an end for stuck readers.

The dialect encodes an event, the binding wraps it, and `protocol.sse` frames it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, MutableMapping
from contextlib import aclosing
from typing import Any, NamedTuple

from msgspec.structs import replace

from accord.a2a import TaskEvents
from accord.auth.rate_limits import Quotas
from accord.errors import AccordError, InternalError, InvalidParams, Violation
from accord.http import timers
from accord.http.asgi import QUOTAS, Headers, Receive, Scope, Send, header, query
from accord.http.response_bodies import PIECE, RESPONSE_BODIES, ClientGone, ResponseBodies
from accord.model import Event
from accord.protocol import sse
from accord.protocol.sse import KEEP_ALIVE, Frame

log = logging.getLogger("accord.stream")

STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]

KEEP_ALIVE_SECONDS = 15.0
"""Maximum seconds of silence on a stream: well below the minute after which proxies close idle connections."""

MAX_STUCK_INTERVALS = 4
"""Keep-alive intervals that one event may wait for a client that does not read, before the stream is ended."""


class LargeEvent(NamedTuple):
    """A long event: its data, which streams of the same task share, and the bytes before and after it."""

    before: bytes
    data: bytes
    after: bytes


EncodeEvent = Callable[[Event], bytes | LargeEvent | None]
EncodeError = Callable[[AccordError], bytes]

NO_ENVELOPE = b"", b""


def encode_frame(frame: Frame, envelope: tuple[bytes, bytes] = NO_ENVELOPE) -> bytes | LargeEvent:
    """Encode an event whose data is placed between the two parts of an envelope."""
    before, after = envelope
    if len(frame.data) <= PIECE or b"\n" in frame.data or b"\r" in frame.data:
        return sse.encode(replace(frame, data=before + frame.data + after) if before else frame)
    head, end = sse.around(frame)
    return LargeEvent(head + before, frame.data, after + end)


def last_event_id(scope: Scope) -> int | None:
    """Return the number of the last event that a client received, from `Last-Event-ID` or else `?after=`."""
    number = None
    for name, value in (("after", query(scope, "after")), ("Last-Event-ID", header(scope, b"last-event-id"))):
        if value:
            if not (value.isascii() and value.isdigit() and len(value) < 19):
                text = f"{name} is not the number of an event"
                raise InvalidParams(text, violations=(Violation(name, "not a number"),))
            number = int(value)
    return number


class SseWriter:
    """One stream to one client."""

    def __init__(
        self,
        send: Send,
        encode: EncodeEvent,
        broke: EncodeError,
        *,
        account: Hashable = None,
        quotas: Quotas = QUOTAS,
        outgoing: ResponseBodies = RESPONSE_BODIES,
    ) -> None:
        """Write events with `encode`, and the error that ends them early with `broke`.

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

    async def run(self, stream: TaskEvents, receive: Receive, headers: Headers) -> None:
        """Write everything, until the events end or the client disconnects.

        The only AccordError raised is for a first event that exceeds the limits. Nothing has been sent then.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # ASGI is called in a task
        self._head = [*STREAM_HEADERS, *headers]
        reader = loop.create_task(self._until_gone(receive, task))
        quiet = _KeepAliveTimer(timers.timers_of(loop), lambda: self._check_client(task))
        try:
            await self._write_all(stream)
        except ClientGone:
            return  # it was disconnected because it does not read
        except asyncio.CancelledError:
            if not self._is_over or task.uncancel():
                raise
        finally:
            quiet.clear()
            for helper in (reader, self._alive):
                if helper is not None:
                    helper.cancel()

    async def _write_all(self, stream: TaskEvents) -> None:
        async with aclosing(stream):
            try:
                await self._write(self._encode(stream.first()))
                async for event in stream.rest:
                    frame = self._encode(event)
                    del event  # it may be long, and the client slow
                    if isinstance(frame, LargeEvent):
                        written, frame = self._write_large(frame), None
                        await written
                    elif frame is not None:
                        self._is_sending = True
                        await self._send({"type": "http.response.body", "body": frame, "more_body": True})
                        self._is_sending = False
                        self._sent += 1
            except AccordError as error:
                if self._head is not None:
                    raise
                await self._write(self._broke(error))
            except ClientGone:
                raise
            except Exception:  # the status is sent, so the error can only be an event
                log.exception("stream.broke")
                await self._write(self._broke(InternalError()))
        await self._send({"type": "http.response.body", "body": b""})

    def _write(self, frame: bytes | LargeEvent | None) -> Awaitable[None]:
        """Write an event; a long one is not held by the code that waits for the client."""
        return self._write_large(frame) if isinstance(frame, LargeEvent) else self._write_small(frame)

    async def _write_small(self, frame: bytes | None) -> None:
        if self._head is not None:
            await self._begin()
        if frame is not None:
            self._is_sending = True
            await self._send({"type": "http.response.body", "body": frame, "more_body": True})
            self._is_sending = False
            self._sent += 1

    async def _write_piece(self, message: MutableMapping[str, Any]) -> None:
        self._is_sending = True
        await self._send(message)
        self._is_sending = False
        self._sent += 1

    async def _write_large(self, frame: LargeEvent) -> None:
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
        while (await receive())["type"] != "http.disconnect":
            pass
        self._end(task)

    def _end(self, task: "asyncio.Task[object]") -> None:
        self._is_over = True
        task.cancel()

    def _check_client(self, task: "asyncio.Task[object]") -> None:
        self._looks = self._looks + 1 if self._is_sending and self._seen == self._sent else 0
        self._seen = self._sent
        if self._looks >= MAX_STUCK_INTERVALS:
            log.info("stream.not_read")
            self._end(task)
        elif not self._is_sending:
            self._alive = asyncio.get_running_loop().create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})


class _KeepAliveTimer:
    """Calls a function at every interval, until it is cleared."""

    def __init__(self, waiting: timers.CoarseTimers, look: Callable[[], None]) -> None:
        self._waiting = waiting
        self._check_client = look
        self._number = waiting.set(KEEP_ALIVE_SECONDS, self._ring)

    def clear(self) -> None:
        self._waiting.clear(self._number)

    def _ring(self) -> None:
        self._number = self._waiting.set(KEEP_ALIVE_SECONDS, self._ring)
        self._check_client()
