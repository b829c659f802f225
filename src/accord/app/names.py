"""The registry that a client or a command asks: one elsewhere if that is set, else the one in the store.

Both are asked in the same way, the one in the store without a network. It only chooses and puts together; what a
registry does is `core.registry`. Whoever takes a `resolve` function is above.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from accord.a2a import Caller
from accord.agents.command_environment import environment_of_process
from accord.app.outside import asking, trusting
from accord.app.registry import Published
from accord.auth.roles import Roles
from accord.config.files import BadSettings
from accord.config.load import registry_of, store_of
from accord.config.settings import NO_URL, STORE
from accord.config.settings import Registry as RegistrySettings
from accord.console import exchanges
from accord.model import AgentCard
from accord.outbound import Outbound, Policy
from accord.protocol import urls
from accord.registry.availability import AskPort
from accord.registry.names import NotAsked, Resolve, UnknownName
from accord.registry.remote import RemoteRegistry
from accord.storage import schema
from accord.storage.address import BadAddress, SqliteAddress, default_address, open_store, parse_address
from accord.storage.store import StoreRefused, StoreUnavailable

KEY = "ACCORD_REGISTRY_KEY"
"""The variable with the key that a registry elsewhere wants."""

HERE = "http://localhost"
"""What the registry in the store is called, where a registry has to have an address."""


async def resolved(name: str, *, registry: str | None = None) -> AgentCard:
    """Find an agent by its name as the settings and the environment of this process say."""
    env = environment_of_process()
    store = env.get("ACCORD_STORE")  # as `accord agents publish` reads it
    async with resolving(env, store=store, registry=registry) as resolve:
        return await resolve(name)


@asynccontextmanager
async def resolving(
    env: Mapping[str, str], *, store: str | None = None, registry: str | None = None
) -> AsyncIterator[Resolve]:
    """Give a function that finds agents by their names; `registry` is the address of one, `store` that of a store.

    Nothing is read or opened before the first name: most agents are called by their addresses.
    """

    async def resolve(name: str) -> AgentCard:
        try:
            async with opened(env, store=store, registry=registry) as found:
                return await found.resolve(name)
        except StoreUnavailable as error:
            raise NotAsked(f"{name}: {error}") from None
        except (BadSettings, BadAddress, StoreRefused) as error:
            raise UnknownName(f"{name}: {error}") from None

    yield resolve


@asynccontextmanager
async def opened(
    env: Mapping[str, str],
    *,
    store: str | None = None,
    registry: str | None = None,
    caller: Caller | None = None,
    writes: bool = False,
) -> AsyncIterator[RemoteRegistry]:
    """Give a registry; in the one of the store it is `caller` who asks, or else somebody without a name."""
    settings = registry_of(env)
    url = registry or settings.url
    if url is None or url == STORE:
        async with _here(env, store, settings, caller or Caller(), writes=writes) as ask:
            yield _registry(HERE, ask, settings)
        return
    if not urls.is_http_url(url):
        raise BadSettings(f"registry: {NO_URL}")
    headers = {"Authorization": f"Bearer {env[KEY]}"} if env.get(KEY) else {}
    if headers and urls.split_url(url).scheme != "https" and not urls.is_loopback(urls.host_of(url)):
        raise BadSettings(f"The key of {KEY} would travel in the clear to {url}: use https")
    async with Outbound(Policy(allow_private=True)) as outbound:  # the user names it, and it may well be next door
        yield _registry(url, asking(outbound, headers), settings)


def _registry(url: str, ask: AskPort, settings: RegistrySettings) -> RemoteRegistry:
    return RemoteRegistry(url, ask, trust=trusting(settings), signed_only=settings.signed_only)


@asynccontextmanager
async def _here(
    env: Mapping[str, str], store: str | None, settings: RegistrySettings, caller: Caller, *, writes: bool
) -> AsyncIterator[AskPort]:
    url = store or store_of(env)
    address = parse_address(url) if url else default_address(env)
    is_file = isinstance(address, SqliteAddress)
    if isinstance(address, SqliteAddress) and not writes and not (address.path and address.path.exists()):
        raise StoreRefused(f"There is no registry at {address}: name one with --registry or ACCORD_REGISTRY_URL")
    async with open_store(address, read_only=not writes) as there:
        if is_file and writes:  # agents may be published before the first server is started
            await schema.upgrade_schema(there)
        else:
            await schema.check_schema(there)
        async with Published(settings, there, Roles(), HERE).offline(caller) as api:
            yield exchanges.ask_in_process(api)
