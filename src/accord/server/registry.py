"""The registry of a server, and the registry that a client or a command asks.

`registry.directory` has the logic, and `console.registry` its API. Clients and commands ask a remote registry if one is
set, else the one in the store, both in the same way.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from accord.a2a import Caller
from accord.agents.command_environment import environment_of_process
from accord.auth.api_keys import ApiKeyAccess
from accord.auth.audit import Audit
from accord.auth.authentication import Access, OpenStreams, Presented
from accord.auth.rate_limits import CallerUsage, Quotas
from accord.auth.roles import Roles
from accord.console import exchanges
from accord.console.registry import CARDS, REFUSALS, RegistryApi
from accord.console.routing import ApiApplication, ApiRoute, Refusals
from accord.console.sessions import BrowserSessions, SessionAuthenticator
from accord.http import cards
from accord.http.asgi import Admit, App
from accord.model import AgentCard
from accord.outbound import HttpSession, Policy
from accord.protocol import urls
from accord.registry.availability import AskPort, AvailabilityChecks
from accord.registry.directory import AgentDirectory, DeveloperKeys
from accord.registry.names import NotAsked, Resolve, UnknownName
from accord.registry.remote import RemoteRegistry
from accord.server.optional_services import registry_requester, trusted_signers
from accord.server.settings import INVALID_URL, STORE_REGISTRY, RegistrySettings
from accord.server.settings_loader import BadSettings, registry_of, store_of
from accord.storage import schema
from accord.storage.address import BadAddress, SqliteAddress, default_address, open_store, parse_address
from accord.storage.store import Store, StoreRefused, StoreUnavailable

log = logging.getLogger("accord.registry")


class Gates(NamedTuple):
    """Authentication, limits and audit of the whole server.

    With a console, sessions are accepted too by APIs that `api` returns.
    """

    access: Access
    admit: Admit
    usage: CallerUsage
    audit: Audit
    sessions: BrowserSessions | None = None
    standing: OpenStreams | None = None

    def api(self, routes: Sequence[ApiRoute], refusals: Refusals, *, is_public: bool = False) -> ApiApplication:
        """Return an API behind these gates. With `is_public`, pages of any origin may read public responses."""
        admit, visit = self.admit, self.access.visit
        if self.sessions is not None:
            gate = SessionAuthenticator(self.access, self.admit, self.sessions, is_public=is_public)
            admit, visit = gate.admit, gate.visit
        return ApiApplication(
            routes,
            admit=admit,
            visit=visit,
            usage=self.usage,
            refusals=refusals,
            audit=self.audit,
            standing=self.standing,
        )


class PublishedAgents:
    """The published agents in a store."""

    def __init__(self, settings: RegistrySettings, store: Store, roles: Roles, url: str) -> None:
        """Keep them in `store`, for callers who use `url`."""
        self._store = store
        self._roles = roles
        self._url = url
        self._registry = AgentDirectory(
            store, roles=roles, trust=trusted_signers(settings), signed_only=settings.signed_only
        )
        policy = Policy(allow_private=settings.allow_private, allow_hosts=frozenset(settings.allow_hosts))
        self._outbound = HttpSession.strict(policy)
        self._checks = AvailabilityChecks(store, registry_requester(self._outbound), every=settings.check_seconds)

    def served(self, gates: Gates, stack: AsyncExitStack) -> App:
        """Return the registry API of a server, and check agents until the stack is left."""
        stack.push_async_callback(self._outbound.close)
        self._checks.start()
        stack.push_async_callback(self._checks.stop)
        self._registry.on_news = self._checks.wake
        accepts_keys = any(isinstance(scheme, ApiKeyAccess) for scheme in gates.access.schemes)
        developers = DeveloperKeys(self._store, accepts_keys=accepts_keys, roles=self._roles)
        api = RegistryApi(self._registry, developers, self._checks)
        return gates.api(api.routes(), REFUSALS, is_public=True)

    @asynccontextmanager
    async def offline(self, caller: Caller) -> AsyncIterator[App]:
        """Yield the API without a server, for one caller. Agents are checked only on request."""

        async def admit(_presented: Presented) -> Caller:
            return caller

        async with self._outbound:
            api = RegistryApi(self._registry, DeveloperKeys(self._store, accepts_keys=False), self._checks)
            usage = CallerUsage(Quotas(rate=None))
            yield ApiApplication(api.routes(), admit=admit, visit=admit, usage=usage, refusals=REFUSALS)

    def catalog(self, access: Access) -> cards.FindPublished:
        """Return a function that finds the public agents."""
        anybody = Caller() if access.is_open else None
        known: dict[str, AgentCard] = {}

        async def published() -> dict[str, AgentCard]:
            nonlocal known
            try:
                found = await self._registry.catalog(anybody)
            except StoreUnavailable as error:  # the server's own agents are still listed
                log.warning("registry.unknown", extra={"reason": str(error)})
            else:
                known = {f"{self._url}{CARDS}/{id}/card": card for id, card in found.items()}
            return known

        return published


def catalog_of(
    own: Callable[[], dict[str, AgentCard]], published: PublishedAgents | None, access: Access
) -> Callable[[], Awaitable[dict[str, AgentCard]]]:
    """Return a function that finds a host's own and published agents by their cards' URLs."""
    others = None if published is None else published.catalog(access)

    async def every() -> dict[str, AgentCard]:
        return {**own(), **(await others() if others is not None else {})}

    return every


KEY_VARIABLE = "ACCORD_REGISTRY_KEY"
"""Variable with the key of a remote registry."""

STORE_REGISTRY_URL = "http://localhost"
"""URL of the registry in the store, where a registry needs one."""


async def resolve_name(name: str, *, registry: str | None = None) -> AgentCard:
    """Find an agent by its name, with the settings and environment of this process."""
    env = environment_of_process()
    store = env.get("ACCORD_STORE")  # as in `accord agents publish`
    async with name_resolver(env, store=store, registry=registry) as resolve:
        return await resolve(name)


@asynccontextmanager
async def name_resolver(
    env: Mapping[str, str], *, store: str | None = None, registry: str | None = None
) -> AsyncIterator[Resolve]:
    """Yield a function that finds agents by name. `registry` is the URL of one, `store` that of a store.

    It opens nothing before the first name, since most agents are called by URL.
    """

    async def resolve(name: str) -> AgentCard:
        try:
            async with open_registry(env, store=store, registry=registry) as found:
                return await found.resolve(name)
        except StoreUnavailable as error:
            raise NotAsked(f"{name}: {error}") from None
        except (BadSettings, BadAddress, StoreRefused) as error:
            raise UnknownName(f"{name}: {error}") from None

    yield resolve


@asynccontextmanager
async def open_registry(
    env: Mapping[str, str],
    *,
    store: str | None = None,
    registry: str | None = None,
    caller: Caller | None = None,
    writes: bool = False,
) -> AsyncIterator[RemoteRegistry]:
    """Yield a registry. In the store's own, the caller is `caller`, or one without a name."""
    settings = registry_of(env)
    url = registry or settings.url
    if url is None or url == STORE_REGISTRY:
        async with _store_registry(env, store, settings, caller or Caller(), writes=writes) as ask:
            yield _registry(STORE_REGISTRY_URL, ask, settings)
        return
    if not urls.is_http_url(url):
        raise BadSettings(f"registry: {INVALID_URL}")
    headers = {"Authorization": f"Bearer {env[KEY_VARIABLE]}"} if env.get(KEY_VARIABLE) else {}
    if headers and urls.split_url(url).scheme != "https" and not urls.is_loopback(urls.host_of(url)):
        raise BadSettings(f"The key of {KEY_VARIABLE} would travel in the clear to {url}: use https")
    # The user names the registry, also in a private network.
    async with HttpSession.strict(Policy(allow_private=True)) as outbound:
        yield _registry(url, registry_requester(outbound, headers), settings)


def _registry(url: str, ask: AskPort, settings: RegistrySettings) -> RemoteRegistry:
    return RemoteRegistry(url, ask, trust=trusted_signers(settings), signed_only=settings.signed_only)


@asynccontextmanager
async def _store_registry(
    env: Mapping[str, str], store: str | None, settings: RegistrySettings, caller: Caller, *, writes: bool
) -> AsyncIterator[AskPort]:
    url = store or store_of(env)
    address = parse_address(url) if url else default_address(env)
    is_file = isinstance(address, SqliteAddress)
    if isinstance(address, SqliteAddress) and not writes and not (address.path and address.path.exists()):
        raise StoreRefused(f"No registry at {address}: name one with --registry or ACCORD_REGISTRY_URL")
    async with open_store(address, read_only=not writes) as there:
        if is_file and writes:  # agents may be published before the first server starts
            await schema.upgrade_schema(there)
        else:
            await schema.check_schema(there)
        async with PublishedAgents(settings, there, Roles(), STORE_REGISTRY_URL).offline(caller) as api:
            yield exchanges.ask_in_process(api)
