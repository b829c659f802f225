"""The composition root: an agent in, a running ASGI application out.

Nothing is decided here that a layer below could decide; it only puts the pieces together and routes paths to bindings.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import MappingProxyType

from msgspec import Struct

from accord.bindings.http import App, Receive, Scope, Send, respond
from accord.bindings.jsonrpc import JsonRpc
from accord.bindings.wellknown import CARD_PATHS, WellKnown
from accord.core.agent import Agent, Profile
from accord.core.archive import Archive
from accord.core.engine import Limits
from accord.core.follow import Hub
from accord.core.host import Host
from accord.core.upkeep import Retention, Upkeep
from accord.model import AgentCapabilities, AgentCard, AgentInterface
from accord.protocol.negotiate import MOUNTS
from accord.storage import migrate
from accord.storage.address import Address, SqliteAddress, parse
from accord.storage.blobs import LargeParts, open_blobs
from accord.storage.open import open_store
from accord.storage.store import Store, StoreRefused, StoreUnavailable

RPC_PATHS = frozenset({"", *MOUNTS})

GRACE_SECONDS = 3.0
"""How long running agents may finish after a signal before their work is handed over."""


def describe(profile: Profile, url: str) -> AgentCard:
    """Return the card of an agent that listens at `url`: what is really served, and nothing else."""
    return AgentCard(
        name=profile.name,
        description=profile.description,
        version=profile.version,
        supported_interfaces=tuple(
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version) for version in ("1.0", "0.3")
        ),
        capabilities=AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=False),
        default_input_modes=profile.input_modes,
        default_output_modes=profile.output_modes,
        skills=profile.skills,
    )


class Keeping(Struct, frozen=True, kw_only=True):
    """Where tasks and their large parts are kept, and for how long; `env` has the credentials of what needs some."""

    store: str | Address = "sqlite://:memory:"
    blobs: str = "table:"
    retention: Retention = Retention()
    env: Mapping[str, str] = MappingProxyType({})


class Application:
    """The ASGI application: paths to bindings, and the life of what is behind them."""

    def __init__(
        self, agents: Sequence[Agent], url: str, *, keeping: Keeping | None = None, limits: Limits | None = None
    ) -> None:
        """Serve `agents`, of which callers reach the first at `url`."""
        self._agents = agents
        self._keeping = keeping or Keeping()
        store = self._keeping.store
        self._address = parse(store) if isinstance(store, str) else store
        self._limits = limits
        self._card: App = WellKnown(describe(agents[0].profile, url))
        self._rpc: App = _starting
        self.on_start: Callable[[], None] = lambda: None
        self._host: Host | None = None
        self._opened = AsyncExitStack()

    @property
    def host(self) -> Host:
        """What runs behind the paths, once started."""
        if self._host is None:
            raise RuntimeError("The application has not been started")
        return self._host

    async def start(self) -> None:
        """Open the store, bring it to this version's schema and begin to work."""
        hub = Hub()
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_store(self._address, hub.heard))
            await self._migrate(store)
            blobs = open_blobs(self._keeping.blobs, store, self._keeping.env)
            stack.push_async_callback(blobs.close)
            archive = Archive(store, await LargeParts.open(store, blobs))
            upkeep = Upkeep(store, blobs, self._keeping.retention)
            self._host = Host(archive, hub, self._agents, limits=self._limits, upkeep=upkeep)
            await self._host.start()
            self._opened = stack.pop_all()
        self._rpc = JsonRpc(self._host.default, origin=self._host.default.origin)

    async def _migrate(self, store: Store) -> None:
        """Bring an empty or a local database to this version's schema; one that nodes share is upgraded on purpose."""
        if isinstance(self._address, SqliteAddress) or not await store.read(migrate.version):
            await migrate.upgrade(store)
        else:
            await migrate.check(store)

    async def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Finish what runs or hand it over, and let go of the store."""
        if self._host is not None:
            host, self._host, self._rpc = self._host, None, _starting
            await host.stop(grace_seconds)
        await self._opened.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI event."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            with suppress(asyncio.CancelledError):  # the server stops, and the caller took too long to finish
                await self._route(scope["path"])(scope, receive, send)

    def _route(self, path: str) -> App:
        if path in CARD_PATHS:
            return self._card
        return self._rpc if path.rstrip("/") in RPC_PATHS else _nothing_here

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except (StoreUnavailable, StoreRefused) as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        self.on_start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(
        send,
        404,
        b"Nothing here. The agent card is at /.well-known/agent-card.json\n",
        [(b"content-type", b"text/plain")],
    )


async def _starting(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, 503, b"The server is starting or stopping\n", [(b"retry-after", b"1")])
