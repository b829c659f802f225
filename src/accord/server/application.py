"""The ASGI application: routes paths to agents, and starts and stops the server behind them.

HTTP servers and applications that mount it are above.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context
from types import MappingProxyType, TracebackType
from typing import Any, Self

from accord.engine.agent import Agent
from accord.engine.clock import SYSTEM, Clock
from accord.http.asgi import RESPONSE_KEY, App, Receive, Scope, Send, TrackedSend, respond
from accord.http.compression import Compression
from accord.http.cross_origin import LocalOnly
from accord.http.operator_endpoints import HEALTH_PATH, READY_PATH, HealthPage
from accord.http.proxy_headers import ProxyHeaders
from accord.http.response_bodies import ClientGone
from accord.protocol import urls
from accord.protocol.urls import parse_networks
from accord.server import cards
from accord.server.composition import Composition, RunningServer
from accord.server.grace_period import GracePeriod
from accord.server.settings import ServerSettings, Settings
from accord.server.settings_loader import BadSettings, merge_sources
from accord.server.sites import with_mounted_path
from accord.service.host import Host
from accord.storage.address import default_address, parse_address
from accord.storage.store import StoreRefused, StoreUnavailable

START_ERRORS = (StoreUnavailable, StoreRefused, BadSettings, OSError)
"""Errors that an operator can fix. Any other is a bug."""

log = logging.getLogger("accord.app")


def url_of(server: ServerSettings) -> str:
    """Return the URL that callers of a server use, without a trailing slash."""
    return server.url.rstrip("/") if server.url else own_url_of(server)


def own_url_of(server: ServerSettings) -> str:
    """Return the URL of a server on its own machine."""
    scheme = "https" if server.tls_cert else "http"
    name = "localhost" if server.host in ("127.0.0.1", "0.0.0.0", "::") else server.host
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{server.port}"


class Application:
    """The ASGI application of a server.

    ASGI servers start and stop it with lifespan events. In an application that mounts it without passing on those
    events, it starts with its first request. Such an application should run `lifespan`, so that it is also stopped.
    `refusal` is the reason why it did not start on a lifespan event.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        settings: Settings | None = None,
        *,
        env: Mapping[str, str] = MappingProxyType({}),
        clock: Clock = SYSTEM,
    ) -> None:
        """Serve `agents`, the first of them at the root. `env` contains the credentials of agents."""
        self.settings = settings or Settings()
        self.env = env
        self.address = parse_address(self.settings.store) if self.settings.store else default_address(env)
        self.agents = cards.by_slug(agents)
        self.on_start: list[Callable[[], None]] = []
        self.refusal: str | None = None
        self._composition = Composition(self.settings, self.address, self.agents, self.url, env, clock)
        self._running: RunningServer | None = None
        self._grace = GracePeriod(self.settings.server.grace_seconds)
        self._opened = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._is_served = self._is_managed = False
        self.is_leaving = False
        self._requests: set[asyncio.Task[Any]] = set()
        self._app = self._wrapped(self._route)

    @property
    def host(self) -> Host:
        """The host behind the paths, once started."""
        if self._running is None:
            raise RuntimeError("The application has not been started")
        return self._running.host

    @property
    def url(self) -> str:
        """The URL that callers use, without a trailing slash."""
        return url_of(self.settings.server)

    # --- start and stop -------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check whether the application could start, and upgrade the store's schema."""
        await self._composition.check()

    async def start(self) -> None:
        """Open the store, upgrade its schema and start the node."""
        async with self._starting:
            if self._running is None:
                grace = GracePeriod(self.settings.server.grace_seconds)
                grace.at_end.append(self._end_requests)
                async with AsyncExitStack() as stack:
                    self._running = await self._composition.run(stack, grace)
                    self._grace = grace
                    self._opened = stack.pop_all()

    async def stop(self) -> None:
        """Finish or hand over running executions, and close the store."""
        self._running, grace = None, self._grace
        opened, self._opened = self._opened, AsyncExitStack()
        grace.begin()
        await opened.aclose()
        grace.end()  # no more events can reach a stream

    def leave(self) -> None:
        """Report not ready, so that load balancers send requests to other servers. Requests are still answered."""
        self.is_leaving = True

    def finish(self) -> None:
        """Start the grace period of running requests and executions before `stop`."""
        self.leave()
        self._grace.begin()

    @property
    def is_over(self) -> bool:
        """Whether the grace period is over: responses from now on are cut off."""
        return self._grace.is_over

    def _end_requests(self) -> None:
        for request in self._requests:
            request.cancel()

    async def __aenter__(self) -> Self:
        self._is_managed = True
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @asynccontextmanager
    async def lifespan(self, _app: Any = None) -> AsyncIterator[None]:
        """Run the application during the block: `FastAPI(lifespan=mounted.lifespan)`."""
        async with self:
            yield

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._is_served = self._is_managed = True
        try:
            await self.start()
        except START_ERRORS as error:
            self.refusal = str(error)
            await send({"type": "lifespan.startup.failed", "message": self.refusal})
            return
        for tell in self.on_start:
            tell()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start_unasked(self) -> None:
        """Start with the first request if there was no lifespan event. The next request retries a failed start.

        The server outlives the request, so it starts without the request's context: neither its end nor its trace.
        """
        start = asyncio.create_task(self.start(), name="start", context=Context())
        try:
            await asyncio.shield(start)
        except START_ERRORS as error:
            log.error("server.not_started", extra={"reason": str(error)})

    # --- requests -------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI event."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})  # A2A does not use WebSocket
            return
        if self._running is None and not self._is_managed:
            await self._start_unasked()
        request = asyncio.current_task()
        assert request is not None  # ASGI always runs in a task
        self._requests.add(request)
        if self.is_leaving:
            send = _with_connection_close(scope, send)
        answer = None
        if self._is_served:
            send = scope[RESPONSE_KEY] = answer = TrackedSend(send)
        try:
            await self._app(scope, receive, send)
        except ClientGone:
            log.info("request.not_read")
        except asyncio.CancelledError:
            if answer is None:
                raise
            # The server stops and the grace period is over. A response that has begun stays unfinished, so that no
            # client takes it for whole. Raised, this would be logged as an error.
            log.info("request.ended_by_stop")
            if not answer.is_begun:
                await _unavailable(scope, receive, answer)
        finally:
            self._requests.discard(request)
            scope.pop(RESPONSE_KEY, None)  # break a reference cycle: it refers to the connection, which has the scope

    def _route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        running, mount = self._running, scope.get("root_path", "")
        scope = with_mounted_path(scope, mount) if mount else scope
        path = scope["path"].removeprefix(mount)
        scope["accord.mount"] = mount
        if running is None:
            return (_STARTING_HEALTH if path == HEALTH_PATH else _unavailable)(scope, receive, send)
        if self.is_leaving and path == READY_PATH:
            return _DRAINING_HEALTH(scope, receive, send)
        if not path.startswith(cards.AGENTS_PATH):
            return running.router.find(scope["method"], path)(scope, receive, send)
        name = path.removeprefix(cards.AGENTS_PATH).partition("/")[0]
        place = cards.AGENTS_PATH + name
        site = running.router.sites.get(name)
        app = _no_such_agent if site is None else site.at(path.removeprefix(place))
        return app({**scope, "root_path": mount + place}, receive, send)

    def keep_local(self) -> None:
        """Answer only requests for local names and the host of `server.url`, unless callers must authenticate.

        For applications that listen themselves: a mounted one is called by any name of its host. Behind a proxy both
        the original and the forwarded host are checked, since each can be a foreign name.
        """
        server = self.settings.server
        if self.settings.auth.is_open:
            names = frozenset({server.host, urls.host_of(server.url or "") or server.host})
            inner = LocalOnly(self._route, names, server.url) if server.behind_proxy else self._route
            self._app = LocalOnly(self._wrapped(inner), names, server.url)

    def _wrapped(self, app: App) -> App:
        server = self.settings.server
        inner: App = Compression(app)
        if not server.behind_proxy:
            return inner
        try:
            return ProxyHeaders(inner, parse_networks(server.trusted_proxies))
        except ValueError as error:
            raise BadSettings(f"server.trusted_proxies: {error}") from None


_TEXT = [(b"content-type", b"text/plain; charset=utf-8")]
_STARTING_HEALTH = HealthPage({})


async def _stopping() -> str:
    return "stopping"


_DRAINING_HEALTH = HealthPage({"server": _stopping})


def _with_connection_close(scope: Scope, send: Send) -> Send:
    """Announce with a response that its connection closes: a proxy that reuses it would lose the next request."""
    if scope.get("http_version") != "1.1":
        return send  # HTTP/2 does not have this header, and signals it otherwise

    async def closing(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return closing


async def _unavailable(scope: Scope, _receive: Receive, send: Send) -> None:
    text = b"The server is starting or stopping\n"
    await respond(send, 503, text, [*_TEXT, (b"retry-after", b"1")], head=scope["method"] == "HEAD")


async def _no_such_agent(scope: Scope, _receive: Receive, send: Send) -> None:
    text = b"There is no such agent; /.well-known/ai-catalog.json lists those that there are\n"
    await respond(send, 404, text, _TEXT, head=scope["method"] == "HEAD")


def to_a2a(agent: Any, *agents: Any, **settings: Any) -> Application:
    """Return an ASGI application that serves agents, to run or mount: `app.mount("/a2a", to_a2a(agent))`.

    An agent is anything that `accord serve` takes. Settings are those of `accord.server`, by section. Without a store,
    tasks are kept in memory: `to_a2a(echo, store="sqlite:///tasks.db", server={"dialects": ["v1"]})`.
    """
    import os

    from accord.agents.command_environment import Environment
    from accord.agents.loader import as_agent

    loaded = merge_sources([("to_a2a", {"store": "sqlite://:memory:"} | settings)], os.environ)
    env = Environment(os.environ, loaded.referred)
    served = [as_agent(one, env=env) for one in (agent, *agents)]
    return Application(served, loaded.settings, env=env)
