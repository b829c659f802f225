"""Real sockets of this machine: agents served from a thread, and a webhook endpoint.

The endpoint can also fail, or leave deliveries unanswered.
"""

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from aiohttp import web
from msgspec import Struct

from accord.engine.agent import Agent
from accord.protocol import http_headers
from accord.testing.clock import MovableClock
from accord.testing.inprocess import application

START_SECONDS = 30.0
"""Timeout of starting and of stopping, in seconds."""


class _Server(uvicorn.Server):
    """A server that signals when it is ready, and leaves operating system signals to the test runner."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.is_ready.set()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@contextmanager
def serving(
    agent: Agent | Callable[..., Any],
    *others: Agent | Callable[..., Any],
    store: Path | str | None = None,
    **settings: Any,
) -> Iterator[str]:
    """Serve agents while the block runs, and yield the address of the first; see `inprocess.running`."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = {"url": url, **settings.pop("server", {})}
        app = application((agent, *others), store, server=server, **settings)
        config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1)
        running = _Server(config)
        thread = threading.Thread(target=_listen, args=(running, listening), name="accord-serving", daemon=True)
        thread.start()
        try:
            if not running.is_ready.wait(START_SECONDS) or not running.started:
                raise RuntimeError(f"The server did not start: {app.refusal or 'it takes too long'}")
            yield url
        finally:
            running.should_exit = True
            thread.join(START_SECONDS)
            if thread.is_alive():
                raise RuntimeError("The server does not stop")


def _listen(server: _Server, listening: socket.socket) -> None:
    with suppress(SystemExit):  # raised by uvicorn when it could not start, which `started` shows
        asyncio.run(server.serve(sockets=[listening]))


WAIT_SECONDS = 30.0
"""Timeout for deliveries, in seconds: a hanging test gives no information."""

WEBHOOK_PATH = "/hook"


class Delivery(Struct, frozen=True, kw_only=True):
    """One received POST and the status of its answer. 0 means no answer."""

    headers: Mapping[str, str]
    body: bytes
    status: int
    is_signed: bool

    @property
    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body)

    @property
    def event_id(self) -> str:
        """The event's id, equal in every delivery of the same event."""
        return self.headers.get(http_headers.EVENT_ID.lower(), "")

    @property
    def task_id(self) -> str:
        """The id of its task."""
        return self.headers.get(http_headers.TASK_ID.lower(), "")


class Webhooks:
    """The deliveries to an endpoint, and its answers to the next ones."""

    def __init__(self, url: str, keys: Sequence[str], clock: MovableClock | None, tenant: str = "") -> None:
        """Receive deliveries. A signature is valid if it is recent and made for this receiver with one of `keys`."""
        self.url = url
        self.all: list[Delivery] = []
        """Every delivery, including refused ones."""
        self._keys = [http_headers.receiver_key(key, url, tenant) for key in keys]
        self._now: Callable[[], float] = clock.now if clock else time.time
        self._bounded_by: Callable[[float], AbstractAsyncContextManager[Any]] = (
            clock.bound if clock else asyncio.timeout
        )
        self._next: deque[int | None] = deque()
        self._news = asyncio.Condition()
        self._over = asyncio.Event()

    @property
    def taken(self) -> list[Delivery]:
        """The deliveries that were accepted."""
        return [one for one in self.all if 200 <= one.status < 300]

    def fail(self, times: int = 1, *, status: int = 503) -> None:
        """Refuse the next deliveries."""
        self._next += [status] * times

    def hang(self, times: int = 1) -> None:
        """Leave the next deliveries unanswered until the sender's timeout."""
        self._next += [None] * times

    async def wait(self, count: int, *, bound: float = WAIT_SECONDS) -> list[Delivery]:
        """Wait until `count` deliveries were accepted, and return them."""
        await self.until(lambda: len(self.taken) >= count, f"{count} accepted", bound=bound)
        return self.taken

    async def wait_for_any(self, count: int, *, bound: float = WAIT_SECONDS) -> list[Delivery]:
        """Wait until `count` deliveries arrived, accepted or not, and return them."""
        await self.until(lambda: len(self.all) >= count, f"{count}", bound=bound)
        return self.all

    async def until(self, is_so: Callable[[], bool], what: str = "what is", *, bound: float = WAIT_SECONDS) -> None:
        """Wait until a condition is true, which is checked at every delivery. A failure message names `what`."""
        async with self._news:
            try:
                async with self._bounded_by(bound):
                    await self._news.wait_for(is_so)
            except TimeoutError:
                came = ", ".join(f"{one.event_id} ({one.status})" for one in self.all) or "nothing"
                raise AssertionError(f"In {bound:g} s {what} waited for did not come, but {came}") from None

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        status = self._next.popleft() if self._next else 200
        headers = {name.lower(): value for name, value in request.headers.items()}
        signature = headers.get(http_headers.SIGNATURE_HEADER.lower(), "")
        is_signed = http_headers.is_signed_webhook(signature, body, self._keys, self._now())
        async with self._news:
            self.all.append(Delivery(headers=headers, body=body, status=status or 0, is_signed=is_signed))
            self._news.notify_all()
        if status is None:
            await self._over.wait()
        return web.Response(status=status or 500)


@asynccontextmanager
async def catching(
    *, keys: Sequence[str] = (), clock: MovableClock | None = None, tenant: str = ""
) -> AsyncIterator[Webhooks]:
    """Receive webhooks on a free port of this machine while the block runs.

    `clock` is the server's movable clock, if any. `keys` are the `push.signing_keys` of the server, from which this
    receiver's keys for `tenant` are derived.
    """
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        hooks = Webhooks(f"http://127.0.0.1:{listening.getsockname()[1]}{WEBHOOK_PATH}", keys, clock, tenant)
        app = web.Application()
        app.router.add_post(WEBHOOK_PATH, hooks._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.SockSite(runner, listening).start()
            yield hooks
        finally:
            hooks._over.set()
            await runner.cleanup()
