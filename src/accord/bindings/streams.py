"""An event stream over HTTP: events as they come, a comment when none does, and an end when nobody reads.

It knows Server-Sent Events and their numbers; how an event looks is the dialect's, what it is wrapped in the binding's.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from accord.bindings.http import Headers, Receive, Scope, Send, header, query
from accord.errors import AccordError, InternalError, InvalidParams, Violation
from accord.model import Event

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

KEEP_ALIVE = b": keep-alive\n\n"

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
        self._sent = 0
        self._is_sending = False

    async def run(self, first: Event, rest: AsyncIterator[Event], receive: Receive, headers: Headers) -> None:
        """Write everything, until the events end or the client is gone."""
        await self._send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]})
        writer = asyncio.ensure_future(self._write_all(first, rest))
        reader = asyncio.ensure_future(self._attend(receive))
        try:
            await asyncio.wait({writer, reader}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            writer.cancel()
            await asyncio.gather(writer, reader, return_exceptions=True)  # what went wrong has been logged

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

    async def _attend(self, receive: Receive) -> None:
        """Return when the client is gone, or has not read for long; keep the connection alive until then."""
        message = asyncio.ensure_future(receive())
        seen, looks = -1, 0
        try:
            while True:
                done, _ = await asyncio.wait({message}, timeout=KEEP_ALIVE_SECONDS)
                if not done:
                    looks = looks + 1 if self._is_sending and seen == self._sent else 0
                    if looks >= STUCK_LOOKS:
                        log.info("stream ended: the client does not read")
                        return
                    if not self._is_sending:
                        await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
                    seen = self._sent
                elif message.result()["type"] == "http.disconnect":
                    return
                else:
                    message = asyncio.ensure_future(receive())
        finally:
            message.cancel()
