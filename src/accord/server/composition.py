"""Composition of a server: from settings and agents to a running host and its paths.

No decision is made here that a layer below could make. `application` starts, stops and routes.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from accord import __version__
from accord.a2a import Caller, HostedAgent
from accord.auth.audit import Audit
from accord.auth.authentication import Access, Look, OpenStreams, Presented, Revocable
from accord.auth.rate_limits import CallerUsage, counting
from accord.auth.roles import Roles
from accord.auth.schemes import Ports, build_scheme, security_of
from accord.console import API, CONSOLE, EVENTS, PAGES, RUNS
from accord.console.sessions import SESSION_TICKET, BrowserSessions, SignInMethods
from accord.console.static_files import RootRedirect, StaticFiles
from accord.engine.agent import Agent, AgentEnvironment, AgentWithMembers, Profile, with_members
from accord.engine.clock import SYSTEM, Clock
from accord.engine.hooks import Hooks
from accord.engine.retention import RetentionLoop
from accord.engine.subscriptions import Hub
from accord.engine.task_store import TaskStore
from accord.engine.webhook_secrets import SealPort
from accord.http.asgi import Admit, App
from accord.http.cards import CARD_PATH, CATALOG_PATH, CardPage, CatalogPage, SignCard
from accord.http.files import FILES_PATH, LINK_KEY_PURPOSE, FileLinks, FilePage
from accord.http.jsonrpc import JsonRpcBinding
from accord.http.openapi import ApiDocuments
from accord.http.operator_endpoints import HEALTH_PATH, METRICS_PATH, READY_PATH, HealthPage, MetricsPage, check_store
from accord.http.rest import RestBinding
from accord.http.webhooks import HttpWebhookSender
from accord.model import AgentCard
from accord.outbound import HttpSession, Policy
from accord.server import agents, cards
from accord.server.agents import start_agents
from accord.server.grace_period import GracePeriod
from accord.server.optional_services import (
    Instruments,
    card_signer,
    grpc_server,
    inspector_outbound,
    key_fetcher,
    trusted_signers,
)
from accord.server.pipeline import at_place, authentication, pipeline
from accord.server.registry import Gates, PublishedAgents, catalog_of
from accord.server.settings import Settings
from accord.server.settings_loader import BadSettings
from accord.server.sites import (
    AgentSite,
    CardAndDocuments,
    LazyApplication,
    Router,
    card_and_documents,
    choose_by_method,
)
from accord.service.host import Host
from accord.service.service import Service
from accord.service.storage_quotas import StorageQuotas, measuring
from accord.storage import schema
from accord.storage.address import Address, SqliteAddress, open_store
from accord.storage.blobs import Blobs, LargeParts, open_blobs
from accord.storage.store import Store
from accord.telemetry.exposition import Exposition, StoreFigures
from accord.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from accord.server.console import Console


PACKAGE = Path(__file__).parent.parent
BUILT, FALLBACK = PACKAGE / "_web", PACKAGE / "console" / "fallback"
"""The built pages of the console, and their fallback."""

ROOT_PLACE = ""
"""The place of the first agent at the root. Names in paths are never empty."""


class RunningServer(NamedTuple):
    """A running server. `links` signs URLs of files, if the node has a public URL."""

    host: Host
    router: Router
    links: FileLinks | None


class AccessRules(Struct, frozen=True):
    """Authentication and authorization, shared by all agents."""

    access: Access
    roles: Roles
    sign: SignCard | None
    ways: SignInMethods


class Composition:
    """Composes the parts of a server."""

    def __init__(
        self,
        settings: Settings,
        address: Address,
        agents: Mapping[str, Agent],
        url: str,
        env: Mapping[str, str],
        clock: Clock = SYSTEM,
    ) -> None:
        """Compose `agents`, by the name in their path, at `url`, over the store at `address`."""
        self._settings = settings
        self._address = address
        self._agents = agents
        self._url = url
        self._env = env
        self._clock = clock

    async def check(self) -> None:
        """Perform the steps that may fail because of the settings, and undo them."""
        async with AsyncExitStack() as stack:
            store = await self._store(stack, Hub())
            self._published(store, self._rules(store, stack))

    async def run(self, stack: AsyncExitStack, grace: GracePeriod) -> RunningServer:
        """Start all parts. Leaving `stack` stops them, within the rest of a `grace` period."""
        hub = Hub()
        store = await self._store(stack, hub)
        rules = self._rules(store, stack)
        audit = Audit(store, self._settings.audit, now_ms=self._clock.now_ms, clock=self._clock.monotonic)
        audit.start()
        stack.push_async_callback(audit.stop)
        everybody = with_members(self._agents.values())
        observed = Instruments(self._settings.telemetry, [agent.profile.name for agent in everybody], self._env, stack)
        host, links, reports = await self._start_host(store, hub, observed.hooks, stack, grace)
        usage = CallerUsage(self._settings.limits, count=counting(store), clock=self._clock.monotonic)
        storage = StorageQuotas(self._settings.limits, measuring(store), self._clock.monotonic)
        has_console = self._settings.console.enabled and bool(self._url)
        hours = self._settings.console.session_hours
        sessions = BrowserSessions(store, rules.ways.grounds, hours) if has_console else None
        standing = self._standing(rules.access, sessions, stack)
        required = frozenset(one.uri for one in self._settings.card.extensions if one.required)
        shared: dict[str, Any] = {
            "roles": rules.roles,
            "access": rules.access,
            "usage": usage,
            "storage": storage,
            "required": required,
            "streams": standing,
            "audit": audit,
            "metrics": observed.metrics,
            "tracing": observed.tracing,
        }
        guarded = {
            name: pipeline(self._service(host, agent.profile), name, label=agent.profile.name, **shared)
            for name, agent in self._agents.items()
        }
        admit = authentication(rules.access, audit, observed.metrics, observed.tracing)
        published = self._published(store, rules)
        placed = self._placed(host, guarded)
        running = self._addressed(host, links, placed, rules, admit, published)
        pages = running.router.pages
        pages.update(reports)
        pages[METRICS_PATH] = self._metrics_page(observed.metrics, store, rules.access, admit)
        gates = Gates(rules.access, admit, usage, audit, sessions, standing)
        if published is not None:
            pages[API] = published.served(gates, stack)
        pages.update(await self._triggers(host, guarded, rules, gates, stack))
        if has_console:
            await self._add_console(running, guarded, rules, gates, stack)
        if self._settings.server.grpc_port is not None:
            await grpc_server(stack, grace, self._settings, placed, admit, links)
        return running

    async def _start_host(
        self, store: Store, hub: Hub, hooks: Hooks, stack: AsyncExitStack, grace: GracePeriod
    ) -> tuple[Host, FileLinks | None, dict[str, App]]:
        """Start the agents and their host. The pages receive reports about remote tasks."""
        everybody = with_members(self._agents.values())
        elsewhere = await agents.prepare_remote_agents(everybody, stack)
        blobs = open_blobs(self._settings.blobs, store, self._env)
        stack.push_async_callback(blobs.close)
        parts = await LargeParts.open(store, blobs)
        links = self._links(parts)
        host = self._hosted(self._task_store(store, parts, links), blobs, links, hub, hooks, stack)
        reports = await agents.join_remote_agents(elsewhere, host.node, self._settings, self._url, stack)
        credential = await self._credentials(everybody)
        environment = AgentEnvironment(
            store=store,
            url=self._url,
            wake=host.default.wake,
            env=self._env,
            credential=credential,
            clock=self._clock,
            approvals=self._settings.approvals,
            files=self._address.files,
        )
        await start_agents(everybody, environment, stack)
        await host.start()
        stack.push_async_callback(lambda: host.stop(grace.left()))
        grace.at_end.append(host.node.dismiss)
        return host, links, reports

    async def _triggers(
        self, host: Host, guarded: Mapping[str, HostedAgent], rules: AccessRules, gates: Gates, stack: AsyncExitStack
    ) -> dict[str, App]:
        """Start the triggers of workflows, unless the node has no URL: such a node runs only its command's run."""
        if not self._url or not any(isinstance(agent, AgentWithMembers) for agent in self._agents.values()):
            return {}
        from accord.server.workflow_triggers import WorkflowTriggers

        triggers = WorkflowTriggers(self._agents, host, self._settings)
        triggers.start(stack)
        return await triggers.pages(guarded, rules.roles, gates, self._env)

    async def _add_console(
        self,
        running: RunningServer,
        guarded: Mapping[str, HostedAgent],
        rules: AccessRules,
        gates: Gates,
        stack: AsyncExitStack,
    ) -> None:
        """Add the console's pages and API. The API is loaded with its first request."""
        until_end = await stack.enter_async_context(AsyncExitStack())

        async def opened() -> App:
            await asyncio.to_thread(import_module, "accord.server.console")
            return self._console(running, guarded, rules, until_end).opened(gates, rules.ways, until_end)

        router, api, files = running.router, LazyApplication(opened), StaticFiles(BUILT, FALLBACK)
        pages, router.browsed = router.pages, RootRedirect(router.default)
        pages |= {PAGES: files, PAGES.rstrip("/"): files, CONSOLE: api}
        pages.pop(RUNS, None)  # it is part of the console's API
        given = pages.get(EVENTS)
        pages[EVENTS] = api if given is None else choose_by_method(GET=api, HEAD=api, rest=given)

    def _console(
        self, running: RunningServer, guarded: Mapping[str, HostedAgent], rules: AccessRules, stack: AsyncExitStack
    ) -> "Console":
        from accord.console.server_context import EndpointInfo
        from accord.server.console import Console

        facts = cards.card_facts(self._settings, security_of(rules.access))

        def card_of(name: str) -> AgentCard:
            profile = self._agents[name].profile
            endpoints = cards.Endpoints(self._url + cards.AGENTS_PATH + name)
            return cards.describe_agent(profile, endpoints, running.host.services[profile.name].offers, facts)

        def site_as(name: str, caller: Caller) -> App:
            async def admit(_presented: Presented) -> Caller:
                return caller

            service = running.host.services[self._agents[name].profile.name]
            card = card_of(name)
            here = at_place(guarded[name], card.supported_interfaces, service.offers)
            return self._site(here, service, self._described(card, rules.sign), facts, admit, running.links)

        served = EndpointInfo(
            dialects=frozenset(self._settings.server.dialects),
            site_as=site_as,
            schemes=frozenset(facts.schemes),
            is_open=rules.access.is_open,
            trust=trusted_signers(self._settings.registry),
            outbound=inspector_outbound(self._settings, stack),
        )
        return Console(self._settings, self._agents, running.host, guarded, card_of, served, rules.roles, self._url)

    # --- behind the paths -----------------------------------------------------------------------------------------

    async def _store(self, stack: AsyncExitStack, hub: Hub) -> Store:
        """Open the store.

        An empty or local one gets this version's schema, and a shared one must be upgraded by command.
        """
        store = await stack.enter_async_context(open_store(self._address, hub.heard))
        if isinstance(self._address, SqliteAddress) or not await store.read(schema.schema_version):
            await schema.upgrade_schema(store)
        else:
            await schema.check_schema(store)
        return store

    def _rules(self, store: Store, stack: AsyncExitStack) -> AccessRules:
        auth = self._settings.auth
        # The operator names the issuers, and they may be in a private network.
        issuers = HttpSession.strict(Policy(allow_private=True))
        stack.push_async_callback(issuers.close)
        with _naming_setting("auth"):
            ports = Ports(store=store, fetch=key_fetcher(issuers), now=self._clock.now, clock=self._clock.monotonic)
            access = Access(build_scheme(auth.schemes, ports), is_optional=auth.is_open)
            roles = Roles(auth.roles, default=auth.default_role)
            ways = SignInMethods(auth.schemes)
        with _naming_setting("card.signing_key"):
            return AccessRules(access, roles, card_signer(self._settings.card), ways)

    def _standing(self, access: Access, sessions: BrowserSessions | None, stack: AsyncExitStack) -> OpenStreams:
        looks: dict[str, Look] = {
            scheme.name: scheme.is_good for scheme in access.schemes if isinstance(scheme, Revocable)
        }
        if sessions is not None:
            looks[SESSION_TICKET] = sessions.is_good
        standing = OpenStreams(looks, self._clock.now_ms)
        stack.push_async_callback(standing.stop)
        return standing

    def _links(self, parts: LargeParts) -> FileLinks | None:
        hours = self._settings.server.file_hours
        return FileLinks(parts.key(LINK_KEY_PURPOSE), self._url, hours * 3600, self._clock.now) if self._url else None

    def _task_store(self, store: Store, parts: LargeParts, links: FileLinks | None) -> TaskStore:
        task_store = TaskStore(store, parts, self._seals())
        task_store.linker, task_store.inline_files = (
            None if links is None else links.link,
            self._settings.limits.inline_files,
        )
        return task_store

    def _hosted(
        self,
        task_store: TaskStore,
        blobs: Blobs,
        links: FileLinks | None,
        hub: Hub,
        hooks: Hooks,
        stack: AsyncExitStack,
    ) -> Host:
        settings = self._settings
        push = settings.push
        outbound = HttpSession.strict(Policy(allow_private=push.allow_private, allow_hosts=frozenset(push.allow_hosts)))
        stack.push_async_callback(outbound.close)
        return Host(
            task_store,
            hub,
            with_members(self._agents.values()),
            limits=settings.engine,
            hooks=hooks,
            sender=HttpWebhookSender(outbound, keys=push.signing_keys, links=links, clock=self._clock.now),
            offers=cards.offers_of(settings),
            upkeep=RetentionLoop(task_store.store, blobs, settings.retention),
            clock=self._clock,
        )

    def _seals(self) -> SealPort | None:
        if not (self._settings.credentials.keys or self._settings.credentials.key_file):
            return None
        from accord.client.credentials import KeyManagementError
        from accord.server.credentials import seals_of

        try:
            return seals_of(self._settings.credentials)
        except KeyManagementError as error:
            raise BadSettings(f"credentials.keys: {error}") from None

    async def _credentials(self, agents: Sequence[Agent]) -> Callable[[str], Any]:
        """Return a function that finds the server's credentials, for agents with remote members."""
        if not any(isinstance(agent, AgentWithMembers) for agent in agents):
            return lambda _: None
        from accord.server.credentials import own_keys

        return (await own_keys(self._settings, self._env)).find

    def _service(self, host: Host, profile: Profile) -> Service:
        """Return an agent's service. Without a setting, it offers an extended card if the agent has extended skills."""
        service = host.services[profile.name]
        if self._settings.server.capabilities is None:
            service.offers = replace(service.offers, extended_card=bool(profile.extended_skills))
        return service

    # --- at the paths ---------------------------------------------------------------------------------------------

    def _published(self, store: Store, rules: AccessRules) -> PublishedAgents | None:
        settings = self._settings.registry
        return PublishedAgents(settings, store, rules.roles, self._url) if settings.enabled else None

    def _addressed(
        self,
        host: Host,
        links: FileLinks | None,
        placed: Mapping[str, HostedAgent],
        rules: AccessRules,
        admit: Admit,
        published: PublishedAgents | None,
    ) -> RunningServer:
        facts = cards.card_facts(self._settings, security_of(rules.access))
        places = self._places()

        def card_of(place: str) -> AgentCard:
            profile = self._at(place).profile
            return cards.describe_agent(profile, places[place], host.services[profile.name].offers, facts)

        def extended(name: str) -> AgentCard:
            return cards.extended_card(card_of(name), self._agents[name].profile)

        def site_of(place: str) -> AgentSite:
            def described() -> CardAndDocuments:
                return self._described(card_of(place), rules.sign)

            agent = self._at(place)
            documents = card_and_documents(agent, described)
            return self._site(placed[place], host.services[agent.profile.name], documents, facts, admit, links)

        for name, agent in self._agents.items():
            host.services[agent.profile.name].extended = partial(extended, name)
        sites = {name: site_of(name) for name in self._agents}

        def listed() -> dict[str, AgentCard]:
            return {f"{places[name].url}{CARD_PATH}": card_of(name) for name in self._agents}

        pages: dict[str, App] = {
            HEALTH_PATH: HealthPage({}),
            READY_PATH: HealthPage({"store": check_store(host.node.store)}, {"store": lambda: host.node.losses.note}),
            CATALOG_PATH: CatalogPage(listed(), published=catalog_of(listed, published, rules.access)),
        }
        if links is not None:
            pages[FILES_PATH] = FilePage(host.node.task_store, links, self._settings.limits)
        return RunningServer(host, Router(sites=sites, default=site_of(ROOT_PLACE), pages=pages), links)

    def _metrics_page(self, metrics: Metrics, store: Store, access: Access, admit: Admit) -> App:
        """Return the metrics page. With several processes each has its own, labelled with its process id."""
        names = [agent.profile.name for agent in with_members(self._agents.values())]
        worker = str(os.getpid()) if self._settings.server.workers > 1 else None
        page = Exposition(metrics, StoreFigures(store, names), version=__version__, worker=worker)
        return MetricsPage(page, admit=None if access.is_open else admit)

    def _at(self, place: str) -> Agent:
        return self._agents.get(place, next(iter(self._agents.values())))

    def _placed(self, host: Host, guarded: Mapping[str, HostedAgent]) -> dict[str, HostedAgent]:
        dialects = frozenset(self._settings.server.dialects)
        first = next(iter(guarded.values()))
        return {
            place: at_place(
                guarded.get(place, first),
                cards.card_interfaces(endpoints, dialects),
                host.services[self._at(place).profile.name].offers,
            )
            for place, endpoints in self._places().items()
        }

    def _places(self) -> dict[str, cards.Endpoints]:
        """Return the endpoints of agents: each by its name, the first also at the root, where gRPC is."""
        port, name = self._settings.server.grpc_port, urlsplit(self._url).hostname or ""
        grpc = f"{f'[{name}]' if ':' in name else name}:{port}" if port is not None else None
        named = {name: cards.Endpoints(self._url + cards.AGENTS_PATH + name) for name in self._agents}
        return {ROOT_PLACE: cards.Endpoints(self._url, grpc), **named}

    def _described(self, card: AgentCard, sign: SignCard | None) -> CardAndDocuments:
        enabled = frozenset(self._settings.server.dialects)
        return CardPage(card, enabled=enabled, sign=sign), ApiDocuments(card, enabled=enabled)

    def _site(  # one argument per part of the site
        self,
        agent: HostedAgent,
        service: Service,
        described: CardAndDocuments,
        facts: cards.CardFacts,
        admit: Admit,
        links: FileLinks | None,
    ) -> AgentSite:
        enabled = frozenset(self._settings.server.dialects)
        known = frozenset(one.uri or "" for one in facts.extensions)
        quotas = self._settings.limits
        shared: dict[str, Any] = {"enabled": enabled, "admit": admit, "extensions": known, "quotas": quotas}
        card, documents = described
        return AgentSite(
            card=card,
            documents=documents,
            rpc=JsonRpcBinding(agent, origin=service.origin, links=links, agent=service.agent, **shared),
            rest=RestBinding(agent, links=links, **shared),
        )


@contextmanager
def _naming_setting(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise BadSettings(f"{name}: {error}") from None
