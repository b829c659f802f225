"""Real sockets of this machine: agents served from a thread, and an endpoint that receives webhooks.

The endpoint can also fail, or not answer.
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
"""How long starting and stopping may take."""


class _Server(uvicorn.Server):
    """A server that says when it is ready, and leaves signals to whoever runs the tests."""

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
    """Serve agents while the block runs, and give the address of the first; see `inprocess.running`."""
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
    with suppress(SystemExit):  # how uvicorn ends that could not start, which `started` says
        asyncio.run(server.serve(sockets=[listening]))


WAIT_SECONDS = 30.0
"""How long to wait for deliveries: a test that hangs says nothing."""

WEBHOOK_PATH = "/hook"


class Delivery(Struct, frozen=True, kw_only=True):
    """One POST, and the status that it was answered with; 0 is none at all."""

    headers: Mapping[str, str]
    body: bytes
    status: int
    is_signed: bool

    @property
    def json(self) -> Any:
        """What it says."""
        return json.loads(self.body)

    @property
    def event_id(self) -> str:
        """The same whenever the same event is sent again."""
        return self.headers.get(http_headers.EVENT_ID.lower(), "")

    @property
    def task_id(self) -> str:
        """The task that it is about."""
        return self.headers.get(http_headers.TASK_ID.lower(), "")


class Webhooks:
    """What came to an address, and how the next ones are answered."""

    def __init__(self, url: str, keys: Sequence[str], clock: MovableClock | None, tenant: str = "") -> None:
        """Take deliveries; a signature is good if it was made for this receiver with one of `keys`, not long ago."""
        self.url = url
        self.all: list[Delivery] = []
        """Every delivery, also those that were refused."""
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
        """Say nothing to the next deliveries until whoever sends them gives up."""
        self._next += [None] * times

    async def wait(self, count: int, *, bound: float = WAIT_SECONDS) -> list[Delivery]:
        """Wait until so many deliveries were accepted, and return them."""
        await self.until(lambda: len(self.taken) >= count, f"{count} accepted", bound=bound)
        return self.taken

    async def wait_for_any(self, count: int, *, bound: float = WAIT_SECONDS) -> list[Delivery]:
        """Wait until there were so many deliveries, accepted or not, and return them."""
        await self.until(lambda: len(self.all) >= count, f"{count}", bound=bound)
        return self.all

    async def until(self, is_so: Callable[[], bool], what: str = "what is", *, bound: float = WAIT_SECONDS) -> None:
        """Wait until something is so, which is looked at with every delivery; `what` is said to be waited for."""
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
    """Listen on a free port of this machine while the block runs; `clock` is that of the server, if it is moved.

    `keys` are the `push.signing_keys` of the server, of which this receiver's keys for `tenant` are derived.
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
