"""The registry of a server: its agents, its API, and who looks whether they are there.

It only puts the pieces together; what the registry does is `core.registry`, its API is `console.registry`.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from accord.a2a import Caller
from accord.app.outside import asking, trusting
from accord.auth.api_keys import ApiKeyAccess
from accord.auth.audit import Audit
from accord.auth.authentication import Access, OpenStreams, Presented
from accord.auth.rate_limits import CallerUsage, Quotas
from accord.auth.roles import Roles
from accord.bindings import wellknown
from accord.bindings.http import Admit, App
from accord.config.settings import Registry as RegistrySettings
from accord.console.registry import CARDS, REFUSALS, RegistryApi
from accord.console.routing import ApiApplication, ApiRoute, Refusals
from accord.console.sessions import BrowserSessions, SessionAuthenticator
from accord.model import AgentCard
from accord.outbound import Outbound, Policy
from accord.registry.availability import AvailabilityChecks
from accord.registry.directory import AgentDirectory, DeveloperKeys
from accord.storage.store import Store, StoreUnavailable

log = logging.getLogger("accord.registry")


class Gates(NamedTuple):
    """Who is let in, how much they may ask for, and the record of it: those of the whole server.

    With a console, people who have signed in there come in as well where an API is made with `api`.
    """

    access: Access
    admit: Admit
    usage: CallerUsage
    audit: Audit
    sessions: BrowserSessions | None = None
    standing: OpenStreams | None = None

    def api(self, routes: Sequence[ApiRoute], refusals: Refusals, *, is_public: bool = False) -> ApiApplication:
        """Return an API behind these gates; if it `is_public`, pages of any origin may read what strangers may."""
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


class Published:
    """The agents that are published in a store."""

    def __init__(self, settings: RegistrySettings, store: Store, roles: Roles, url: str) -> None:
        """Keep them in `store`, for callers who use `url`."""
        self._store = store
        self._roles = roles
        self._url = url
        self._registry = AgentDirectory(store, roles=roles, trust=trusting(settings), signed_only=settings.signed_only)
        policy = Policy(allow_private=settings.allow_private, allow_hosts=frozenset(settings.allow_hosts))
        self._outbound = Outbound(policy)
        self._checks = AvailabilityChecks(store, asking(self._outbound), every=settings.check_seconds)

    def served(self, gates: Gates, stack: AsyncExitStack) -> App:
        """Return the API of a server, and look for agents until the stack is left."""
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
        """Give the API without a server, to one caller; agents are looked for only if it asks for that."""

        async def admit(_presented: Presented) -> Caller:
            return caller

        async with self._outbound:
            api = RegistryApi(self._registry, DeveloperKeys(self._store, accepts_keys=False), self._checks)
            usage = CallerUsage(Quotas(rate=None))
            yield ApiApplication(api.routes(), admit=admit, visit=admit, usage=usage, refusals=REFUSALS)

    def catalog(self, access: Access) -> wellknown.Published:
        """Return what finds the agents that anybody may see."""
        anybody = Caller() if access.is_open else None
        known: dict[str, AgentCard] = {}

        async def published() -> dict[str, AgentCard]:
            nonlocal known
            try:
                found = await self._registry.catalog(anybody)
            except StoreUnavailable as error:  # the server's own agents are listed all the same
                log.warning("published agents are not known at the moment", extra={"reason": str(error)})
            else:
                known = {f"{self._url}{CARDS}/{id}/card": card for id, card in found.items()}
            return known

        return published


def catalog_of(
    own: Callable[[], dict[str, AgentCard]], published: Published | None, access: Access
) -> Callable[[], Awaitable[dict[str, AgentCard]]]:
    """Return what finds the agents of a host by their cards' addresses: its own as they are by now, and published."""
    others = None if published is None else published.catalog(access)

    async def every() -> dict[str, AgentCard]:
        return {**own(), **(await others() if others is not None else {})}

    return every
