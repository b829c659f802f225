"""Agents behind a real socket of this machine, served from a thread: for clients that need one, and tests that block.

    with serving(greeter) as url:
        httpx.post(url, json=...)

It is the same application as in `inprocess`, listened to by uvicorn; a process of its own is `accord serve`.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

from accord.engine.agent import Agent
from accord.testing.inprocess import application

BOUND_SECONDS = 30.0
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
            if not running.is_ready.wait(BOUND_SECONDS) or not running.started:
                raise RuntimeError(f"The server did not start: {app.refusal or 'it takes too long'}")
            yield url
        finally:
            running.should_exit = True
            thread.join(BOUND_SECONDS)
            if thread.is_alive():
                raise RuntimeError("The server does not stop")


def _listen(server: _Server, listening: socket.socket) -> None:
    with suppress(SystemExit):  # how uvicorn ends that could not start, which `started` says
        asyncio.run(server.serve(sockets=[listening]))
