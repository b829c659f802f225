"""The ASGI application: routes paths to agents, and starts and stops what is behind them.

Servers and applications that mount it are above.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context
from types import MappingProxyType, TracebackType
from typing import Any, Self

from accord.auth.trusted_proxies import networks
from accord.console import PREFIXES
from accord.engine.agent import Agent
from accord.engine.clock import SYSTEM, Clock
from accord.http.asgi import RESPONSE_KEY, App, Receive, Scope, Send, TrackedSend, respond
from accord.http.compression import Compression
from accord.http.cross_origin import LocalOnly
from accord.http.files import FILES_PATH
from accord.http.operator_endpoints import HEALTH_PATH, READY_PATH, HealthPage
from accord.http.proxy_headers import ProxyHeaders
from accord.http.response_bodies import ClientGone
from accord.protocol import urls
from accord.server import cards
from accord.server.composition import Composition, RunningServer
from accord.server.grace_period import GracePeriod
from accord.server.settings import ServerSettings, Settings
from accord.server.settings_loader import BadSettings, merge_sources
from accord.server.sites import path_below_mount, with_mounted_path
from accord.service.host import Host
from accord.storage.address import default_address, parse_address
from accord.storage.store import StoreRefused, StoreUnavailable

START_ERRORS = (StoreUnavailable, StoreRefused, BadSettings, OSError)
"""What an operator can mend; anything else is a mistake of ours."""

PAGE_PREFIXES = (*PREFIXES, FILES_PATH)
"""What the paths of pages begin with, the more exact ones first."""

log = logging.getLogger("accord.app")


def url_of(server: ServerSettings) -> str:
    """Return the address that callers of a server use, without a slash at its end."""
    return server.url.rstrip("/") if server.url else own_url_of(server)


def own_url_of(server: ServerSettings) -> str:
    """Return the address at which a server is found on its own machine."""
    scheme = "https" if server.tls_cert else "http"
    name = "localhost" if server.host in ("127.0.0.1", "0.0.0.0", "::") else server.host
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{server.port}"


class Application:
    """The ASGI application.

    A server tells it by lifespan events when to start and stop. Mounted in another application, which keeps those to
    itself, it starts with its first request; whoever mounts it should run `lifespan` so that it is stopped as well.
    `refusal` is why it did not start when a server told it to.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        settings: Settings | None = None,
        *,
        env: Mapping[str, str] = MappingProxyType({}),
        clock: Clock = SYSTEM,
    ) -> None:
        """Serve `agents`, the first of them at the root; `env` has the credentials of what needs some."""
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
        """What runs behind the paths, once started."""
        if self._running is None:
            raise RuntimeError("The application has not been started")
        return self._running.host

    @property
    def url(self) -> str:
        """The address that callers use, without a slash at its end."""
        return url_of(self.settings.server)

    # --- start and stop -------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Find out whether it could start, and leave the store with this version's schema."""
        await self._composition.check()

    async def start(self) -> None:
        """Open the store, bring it to this version's schema and begin to work."""
        async with self._starting:
            if self._running is None:
                grace = GracePeriod(self.settings.server.grace_seconds)
                grace.at_end.append(self._end_requests)
                async with AsyncExitStack() as stack:
                    self._running = await self._composition.run(stack, grace)
                    self._grace = grace
                    self._opened = stack.pop_all()

    async def stop(self) -> None:
        """Finish what runs or hand it over, and let go of the store."""
        self._running, grace = None, self._grace
        opened, self._opened = self._opened, AsyncExitStack()
        grace.begin()
        await opened.aclose()
        grace.end()  # nothing more can come to a stream

    def leave(self) -> None:
        """Have whoever sends requests here send them elsewhere: it is not ready any more, and answers all the same."""
        self.is_leaving = True

    def finish(self) -> None:
        """Let the grace begin, for whatever is being answered or runs: no more comes, and `stop` is near."""
        self.leave()
        self._grace.begin()

    @property
    def is_over(self) -> bool:
        """Whether the grace is over: what is answered from now on is cut off."""
        return self._grace.is_over

    def _end_requests(self) -> None:
        """End what is still being answered; that may be streams that would never end by themselves."""
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
        """Run while the block does: `FastAPI(lifespan=mounted.lifespan)`."""
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
        """Start with a request, where nobody else does; if that fails, the next one tries again.

        What is started outlives the request, so it knows nothing of it: neither its end nor, say, its trace.
        """
        start = asyncio.create_task(self.start(), name="start", context=Context())
        try:
            await asyncio.shield(start)
        except START_ERRORS as error:
            log.error("cannot start", extra={"reason": str(error)})

    # --- requests -------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI event."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})  # A2A has no use for it
            return
        if self._running is None and not self._is_managed:
            await self._start_unasked()
        request = asyncio.current_task()
        assert request is not None  # ASGI is called by nothing else
        self._requests.add(request)
        answer = TrackedSend(_with_connection_close(scope, send) if self.is_leaving else send)
        if self._is_served:
            scope[RESPONSE_KEY] = answer
        try:
            await self._app(scope, receive, answer)
        except ClientGone:
            log.info("request ended: the client does not read")
        except asyncio.CancelledError:
            if not self._is_served:
                raise
            # The server stops and has waited long enough. An answer that has begun is left unfinished, so that nobody
            # takes it for whole; raised, this would be logged as a mistake.
            log.info("request ended: the server stops")
            if not answer.is_begun:
                await _unavailable(scope, receive, answer)
        finally:
            self._requests.discard(request)
            scope.pop(
                RESPONSE_KEY, None
            )  # it refers to the connection, which has the scope: nobody is to search for that

    def _route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        running, scope = self._running, with_mounted_path(scope)
        path, mount = path_below_mount(scope), scope.get("root_path", "")
        scope["accord.mount"] = mount
        if running is None:
            return (_STARTING_HEALTH if path == HEALTH_PATH else _unavailable)(scope, receive, send)
        if self.is_leaving and path == READY_PATH:
            return _DRAINING_HEALTH(scope, receive, send)
        if path.startswith(cards.AGENTS_PATH):
            name = path.removeprefix(cards.AGENTS_PATH).partition("/")[0]
            site = running.sites.get(name, _no_such_agent)
            return site({**scope, "root_path": f"{mount}{cards.AGENTS_PATH}{name}"}, receive, send)
        return _page(running, path)(scope, receive, send)

    def keep_local(self) -> None:
        """Answer only to local names and that of `server.url`, unless callers have to authenticate.

        For whoever listens: an application that is mounted is called by whatever name its host has. Behind a proxy
        both what arrives and what the proxy passes on are checked: each can have a name that is not this server's.
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
            return ProxyHeaders(inner, networks(server.trusted_proxies))
        except ValueError as error:
            raise BadSettings(f"server.trusted_proxies: {error}") from None


def _page(running: RunningServer, path: str) -> App:
    """Return what is at a path, or at the most exact prefix of it that has something; else it is the first agent's."""
    page = running.pages.get(path)
    if page is None and path.startswith(PAGE_PREFIXES):
        below_it = (running.pages.get(prefix) for prefix in PAGE_PREFIXES if path.startswith(prefix))
        page = next(filter(None, below_it), None)
    return running.default if page is None else page


_TEXT = [(b"content-type", b"text/plain; charset=utf-8")]
_STARTING_HEALTH = HealthPage({})


async def _stopping() -> str:
    return "stopping"


_DRAINING_HEALTH = HealthPage({"server": _stopping})


def _with_connection_close(scope: Scope, send: Send) -> Send:
    """Say with an answer that its connection takes no more: a proxy that kept it would lose the next request."""
    if scope.get("http_version") != "1.1":
        return send  # HTTP/2 has no such header, and says it otherwise

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
    """Return an ASGI application that serves agents, to be run or mounted: `app.mount("/a2a", to_a2a(agent))`.

    An agent is anything that `accord serve` takes. Settings are those of `accord.server`, by section; without a store
    everything is forgotten when it stops: `to_a2a(echo, store="sqlite:///tasks.db", server={"dialects": ["v1"]})`.
    """
    import os

    from accord.agents.command_environment import Environment
    from accord.agents.loader import as_agent

    loaded = merge_sources([("to_a2a", {"store": "sqlite://:memory:"} | settings)], os.environ)
    env = Environment(os.environ, loaded.referred)
    served = [as_agent(one, env=env) for one in (agent, *agents)]
    return Application(served, loaded.settings, env=env)
