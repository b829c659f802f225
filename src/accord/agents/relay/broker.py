"""A relay of our own for one machine: channels in memory, over HTTP, for those who have a key.

`POST /channels/messages` posts, `GET /channels/messages?channel=..&limit=20` reads; who reads `after` a message and
will `wait` for the next need not ask every few seconds. Nothing outlives it and nothing is unbounded. Who speaks is
told by the key, so that nobody can speak for another. `local` starts it.
"""

import asyncio
import hmac
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

if TYPE_CHECKING:
    from aiohttp import web

PATH = "/channels/messages"

MAX_MESSAGES = 1000
"""Messages that a channel remembers: far more than are read at a time."""

MAX_CHANNELS = 100
MAX_TEXT = 4 * 1024 * 1024
"""Characters of a message."""

MAX_BODY = MAX_TEXT * 2 + 1024
MAX_WAIT_SECONDS = 25.0
"""How long a reader may wait: less than anything in between takes for a broken connection."""

LATEST = 20


class Posted(Struct, frozen=True, kw_only=True):
    """What is posted."""

    channel: Annotated[str, Meta(min_length=1, max_length=200)]
    text: Annotated[str, Meta(max_length=MAX_TEXT)]


class Broker:
    """Channels, and an HTTP server for them."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """Let in those who have one of `keys`, as whom it says."""
        self._keys = dict(keys)
        self._channels: dict[str, deque[dict[str, Any]]] = {}
        self._count = 0
        self._news = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, and return the address."""
        from aiohttp import web

        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post(PATH, self._post)
        app.router.add_get(PATH, self._read)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        found = self._runner.addresses[0]
        return f"http://{host}:{found[1]}"

    async def stop(self) -> None:
        """Stop listening, and forget everything."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._channels.clear()

    async def _post(self, request: "web.Request") -> "web.Response":
        sender = self._sender(request)
        if sender is None:
            return _answer({"error": "no such key"}, 401)
        try:
            posted = msgspec.json.decode(await request.read(), type=Posted)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _answer({"error": str(error)}, 400)
        if posted.channel not in self._channels and len(self._channels) >= MAX_CHANNELS:
            return _answer({"error": "too many channels"}, 429)
        async with self._news:
            self._count += 1
            message = {
                "id": self._count,
                "channel": posted.channel,
                "from": sender,
                "text": posted.text,
                "created_at": datetime.now(UTC).isoformat(),
            }
            self._channels.setdefault(posted.channel, deque(maxlen=MAX_MESSAGES)).append(message)
            self._news.notify_all()
        return _answer(message, 201)

    async def _read(self, request: "web.Request") -> "web.Response":
        if self._sender(request) is None:
            return _answer({"error": "no such key"}, 401)
        asked = request.query
        try:
            limit, after = int(asked.get("limit", LATEST)), int(asked.get("after", 0))
            wait = min(float(asked.get("wait", 0)), MAX_WAIT_SECONDS)
        except ValueError:
            return _answer({"error": "limit, after and wait are numbers"}, 400)
        name = asked.get("channel", "")

        def found() -> list[dict[str, Any]]:
            new = [message for message in self._channels.get(name, ()) if message["id"] > after]
            # Who reads on gets what comes next, who only looks what is latest.
            return new[: max(1, limit)] if after else new[-max(1, limit) :]

        if wait > 0 and not found():
            try:
                async with asyncio.timeout(wait), self._news:
                    await self._news.wait_for(lambda: bool(found()))
            except TimeoutError:
                pass
        return _answer(found(), 200)

    def _sender(self, request: "web.Request") -> str | None:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        given = key.strip().encode()
        known = [name for one, name in self._keys.items() if hmac.compare_digest(one.encode(), given)]
        return known[0] if known else None


def _answer(value: Any, status: int) -> "web.Response":
    from aiohttp import web

    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
