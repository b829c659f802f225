"""Relays to test with: our own broker with its keys, and one that answers as a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from accord.agents.relay.agent import Broker
from accord.agents.relay.channel import RelayChannel

BOUND_SECONDS = 30.0
KEYS = {"rk_asks": "a2a", "rk_worker": "Worker1", "rk_other": "Worker2"}


@asynccontextmanager
async def broker() -> AsyncIterator[str]:
    """Our own relay."""
    made = Broker(KEYS)
    url = await made.start()
    try:
        yield url
    finally:
        await made.stop()


@asynccontextmanager
async def joined(url: str, key: str, channel: str = "general") -> AsyncIterator[RelayChannel]:
    """A channel, as the owner of a key has it."""
    found = RelayChannel(url, key, channel)
    try:
        yield found
    finally:
        await found.close()


async def hears(channel: RelayChannel, is_so: Callable[[str], bool]) -> str:
    """Wait until something was said in a channel."""
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            for entry in await channel.latest():
                if is_so(entry.text):
                    return entry.text
            await asyncio.sleep(0.01)


class Relay:
    """A relay that does as a test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.messages: list[dict[str, Any]] = []
        self.asked: list[web.Request] = []
        self.bodies: list[Any] = []
        self.posted: Callable[[dict[str, Any]], Awaitable[web.Response] | web.Response] = self.keeps
        self.read: Callable[[], web.Response] = lambda: web.json_response(self.messages[-20:])

    def keeps(self, message: dict[str, Any]) -> web.Response:
        """Keep a message, as a relay without ids does."""
        self.messages.append({"from": "a2a", "text": message["text"]})
        return web.json_response({"ok": True})

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        if request.method == "GET":
            return self.read()
        body = await request.json()
        self.bodies.append(body)
        found = self.posted(body)
        return found if isinstance(found, web.Response) else await found


@asynccontextmanager
async def relay() -> AsyncIterator[Relay]:
    """Serve a relay while the block runs."""
    made = Relay()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()
