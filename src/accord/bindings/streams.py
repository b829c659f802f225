"""An event stream over HTTP: events as they come, a comment when none does, and an end when nobody reads.

It knows Server-Sent Events and their numbers; how an event looks is the dialect's, what it is wrapped in the binding's.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from accord.bindings import alarms
from accord.bindings.http import Headers, Receive, Scope, Send, header, query
from accord.errors import AccordError, InternalError, InvalidParams, Violation
from accord.model import Event
from accord.protocol.sse import KEEP_ALIVE

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

Encode = Callable[[Event], bytes | None]
Broke = Callable[[AccordError], bytes]


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

    def __init__(self, send: Send, encode: Encode, broke: Broke) -> None:
        """Write what `encode` makes of events, and what `broke` makes of the error that ends them early."""
        self._send = send
        self._encode = encode
        self._broke = broke
        self._sent = self._seen = self._looks = 0
        self._is_sending = self._is_over = False
        self._alive: asyncio.Task[None] | None = None

    async def run(self, first: Event, rest: AsyncIterator[Event], receive: Receive, headers: Headers) -> None:
        """Write everything, until the events end or the client is gone."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # ASGI is called by nothing else
        await self._send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]})
        reader = loop.create_task(self._until_gone(receive, task))
        quiet = _Quiet(alarms.of(loop), lambda: self._look(task))
        try:
            await self._write_all(first, rest)
        except asyncio.CancelledError:
            if not self._is_over or task.uncancel():
                raise
        finally:
            quiet.clear()
            for helper in (reader, self._alive):
                if helper is not None:
                    helper.cancel()

    async def _write_all(self, first: Event, rest: AsyncIterator[Event]) -> None:
        async with aclosing(rest) as events:  # type: ignore[type-var]  # every service stream is an async generator
            try:
                await self._write(self._encode(first))
                async for event in events:
                    await self._write(self._encode(event))
            except AccordError as error:
                await self._write(self._broke(error))
            except Exception:  # the status is sent: the error can only be an event
                log.exception("stream broke")
                await self._write(self._broke(InternalError()))
        await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, frame: bytes | None) -> None:
        if frame is not None:
            self._is_sending = True
            await self._send({"type": "http.response.body", "body": frame, "more_body": True})
            self._is_sending = False
            self._sent += 1

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
