"""`/api/agents`: the agents of a server, their health, activity and cards.

An agent is visible to callers who may send to it or list its tasks. Its card is fetched as by a client, and differences
from the server's behavior are findings.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from accord.a2a import Caller
from accord.api import RANDOM_BYTES, Agent, Offers, queries, uuid7
from accord.api.directory import SignedBy, TrustedKeys
from accord.api.directory import cards as publishing
from accord.api.remote import ContactPort, RemoteContact
from accord.client.interfaces import CardHostTrust, keep_usable_interfaces
from accord.console.exchanges import fetch_in_process
from accord.console.routing import ApiRequest, route, time_of, view_of
from accord.console.server_context import ServerSection
from accord.console.views import View
from accord.errors import AccordError, InvalidParams, TaskNotFound
from accord.http.cards import card_at_origin, request_origin
from accord.model import AgentCard, AgentSkill
from accord.protocol.cards import decode_card, encode_card
from accord.protocol.operations import DialectName


class FindingView(View, frozen=True, kw_only=True):
    """A finding about a card. `where` is the member."""

    severity: Literal["error", "warning", "info"]
    where: str
    text: str


class SkillView(View, frozen=True, kw_only=True):
    """A skill of an agent. `schema` is the JSON Schema of its input, if known."""

    id: str
    name: str
    description: str
    tags: list[str]
    examples: list[str]
    schema: dict[str, Any] | None


class HealthView(View, frozen=True, kw_only=True):
    """The availability of an agent."""

    state: Literal["up", "down", "unknown"]
    detail: str | None
    checked_at: str | None


class AgentRow(View, frozen=True, kw_only=True):
    """An agent in a list. `remote` is the URL of a remote agent, and `rate` its number of new tasks per minute."""

    slug: str
    name: str
    description: str
    version: str
    kind: str
    is_default: bool
    remote: str | None
    health: HealthView
    bindings: list[str]
    dialects: list[str]
    skills: list[SkillView]
    rate: float
    open: int


class AgentList(View, frozen=True, kw_only=True):
    """The agents that the caller may use."""

    items: list[AgentRow]
    feed: int


class AgentView(AgentRow, frozen=True, kw_only=True):
    """An agent with all details: its card in each dialect, and the findings about it."""

    url: str
    cards: dict[str, dict[str, Any]]
    findings: list[FindingView]


class ServedAs(Struct, frozen=True, kw_only=True):
    """The actual behavior of a server, to compare a card with.

    `schemes` are the enforced schemes, by their names in cards. `origin` is the origin that the caller used. With
    `has_extended` the agent has skills for authenticated callers. `contact` is the last contact with a remote agent.
    """

    offers: Offers
    origin: str = ""
    has_extended: bool = False
    schemes: frozenset[str] = frozenset()
    is_open: bool = True
    trust: TrustedKeys
    contact: RemoteContact | None = None


class ReadCard(Struct, frozen=True, kw_only=True):
    """A card: its document, URL and decoded form."""

    document: bytes
    url: str
    card: AgentCard


def card_findings(document: bytes, url: str, server: ServedAs) -> list[FindingView]:
    """Return the findings about the card served at `url`, most severe first."""
    try:
        card = decode_card(document)
    except AccordError as error:
        violations = [_error(field, problem) for field, problem in error.violations]
        return violations or [_error("", f"The card cannot be read: {error.message}")]
    read = ReadCard(document=document, url=url, card=card)
    findings = dict.fromkeys(finding for check in CARD_CHECKS for finding in check(read, server))
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


# --- findings of card readers -----------------------------------------------------------------------------------------


def _client_findings(read: ReadCard, _server: ServedAs) -> Iterator[FindingView]:
    """Yield findings of clients. Addresses that a client would not use count as missing."""
    kept, findings = keep_usable_interfaces(read.card, read.url, CardHostTrust())
    lost = len(read.card.supported_interfaces) - len(kept.supported_interfaces)
    for finding in findings:
        is_lost = finding.what.endswith("it is not used")
        yield (_error if is_lost else _warning)(finding.where, finding.what)
    if lost and not kept.supported_interfaces:
        yield _error("supportedInterfaces", "Clients that read the card at this address find no usable interface")


def _host_findings(read: ReadCard, server: ServedAs) -> Iterator[FindingView]:
    """Yield a finding if the caller's host is not the card's: clients do not follow a card to other hosts."""
    here, there = urlsplit(server.origin).hostname, urlsplit(read.url).hostname
    if here and here != there:
        text = f"You reach the server as {here}, but the card leads to {there}: clients that read it here refuse that"
        yield _warning("supportedInterfaces", f"{text}, so publish the address at {there}")


def _registry_findings(read: ReadCard, _server: ServedAs) -> Iterator[FindingView]:
    try:
        publishing.read(read.document)
    except publishing.InvalidCard as error:
        for field, problem in error.findings:
            yield _info(field, f"Not to be published in a registry as it is: {problem}")


def _reader_findings(read: ReadCard, _server: ServedAs) -> Iterator[FindingView]:
    """Yield what people and models need to choose the agent and the card lacks."""
    card = read.card
    if not card.description.strip():
        yield _warning("description", "The card has no description: readers cannot choose the agent by its purpose")
    for at, skill in enumerate(card.skills):
        where = f"skills[{at}]"
        if not skill.description.strip():
            yield _warning(f"{where}.description", f"The skill {skill.name!r} has no description")
        elif skill.description.strip() == card.description.strip() and len(card.skills) > 1:
            yield _info(f"{where}.description", f"The skill {skill.name!r} is described like the agent as a whole")
        if not skill.tags:
            yield _info(f"{where}.tags", f"The skill {skill.name!r} has no tags: searches by topic do not find it")
        if not skill.examples:
            yield _info(f"{where}.examples", f"The skill {skill.name!r} has no examples of its input")
    if card.provider is None:
        yield _info("provider", "The card does not name the provider of the agent")


def _signed(read: ReadCard, server: ServedAs) -> Iterator[FindingView]:
    verdict = server.trust.judge(read.document)
    if verdict.state is SignedBy.UNSIGNED:
        yield _info("signatures", "The card is not signed: readers cannot detect changes")
    else:
        yield _info("signatures", verdict.detail)


# --- differences between card and server ------------------------------------------------------------------------------


def _capabilities(read: ReadCard, server: ServedAs) -> Iterator[FindingView]:
    capabilities, offers = read.card.capabilities, server.offers
    for member, is_stated, is_offered in (
        ("streaming", capabilities.streaming, offers.streaming),
        ("pushNotifications", capabilities.push_notifications, offers.push),
        ("extendedAgentCard", capabilities.extended_agent_card, offers.extended_card),
    ):
        if is_stated and not is_offered:
            yield _error(f"capabilities.{member}", "The card offers it, and the server refuses it")
        elif is_offered and not is_stated:
            yield _warning(
                f"capabilities.{member}",
                "The server supports it, but the card is_offered not state it",
            )
    if offers.extended_card and not server.has_extended:
        yield _info("capabilities.extendedAgentCard", "The extended card has no more than the public one")


def _security(read: ReadCard, server: ServedAs) -> Iterator[FindingView]:
    names = frozenset(read.card.security_schemes)
    for name in sorted(names - server.schemes):
        yield _error(f"securitySchemes.{name}", "The card names it, but the server does not accept it")
    for name in sorted(server.schemes - names):
        yield _warning(f"securitySchemes.{name}", "The server accepts it, but the card does not name it")
    if server.is_open:
        yield _info("securityRequirements", "The server has no authentication: any client may use the agent")


def _unreachable(_read: ReadCard, server: ServedAs) -> Iterator[FindingView]:
    contact = server.contact
    if contact is not None:
        if not contact.is_up:
            yield _error("", f"The card describes a remote agent that cannot be reached: {contact.detail}")
        for finding in contact.findings:
            yield _warning("", f"Its own card: {finding}")


def _error(where: str, text: str) -> FindingView:
    return FindingView(severity="error", where=where, text=text)


def _warning(where: str, text: str) -> FindingView:
    return FindingView(severity="warning", where=where, text=text)


def _info(where: str, text: str) -> FindingView:
    return FindingView(severity="info", where=where, text=text)


CARD_CHECKS: tuple[Callable[[ReadCard, ServedAs], Iterator[FindingView]], ...] = (
    _unreachable,
    _capabilities,
    _security,
    _client_findings,
    _host_findings,
    _registry_findings,
    _reader_findings,
    _signed,
)

_ORDER = ("error", "warning", "info")


MINUTES = 5
"""Minutes of tasks that count as activity: long enough to be steady, short enough to be current."""

AGENT = "/api/agents/(?P<slug>[^/]+)"
CARD = "/.well-known/agent-card.json"

PUBLIC = "public"
"""Key of the card that is served if no dialect is named."""

UP = HealthView(state="up", detail=None, checked_at=None)
"""An agent of this process is available as long as the process runs."""


class AgentsApi(ServerSection):
    """Agents, their cards and health."""

    @route("GET", "/api/agents/?")
    async def agents(self, request: ApiRequest) -> AgentList:
        """List the agents that the caller may use."""
        feed, caller = self._server.feed.seq, request.caller
        activity = await self._activity(caller)
        items = [self._row(slug, activity) for slug in self._server.agents if self._is_visible(caller, slug)]
        return AgentList(items=items, feed=feed)

    @route("GET", AGENT)
    async def agent(self, request: ApiRequest) -> AgentView:
        """Show an agent: its card in every dialect, and the findings about it."""
        caller, slug, served = request.caller, self._slug(request), self._server.served
        origin = request_origin(request.scope) or self._server.url
        card = card_at_origin(self._server.card_of(slug), origin)
        url = card.supported_interfaces[0].url
        public = (await fetch_in_process(served.site_as(slug, caller), "GET", CARD, request.scope)).body
        cards = {dialect.value: encode_card(card, served.dialects, dialect) for dialect in self._dialects()}
        return view_of(
            AgentView,
            self._row(slug, await self._activity(caller)),
            url=url,
            cards={name: msgspec.json.decode(document) for name, document in ({PUBLIC: public} | cards).items()},
            findings=card_findings(public, f"{url.rstrip('/')}{CARD}", self._served_as(slug, origin)),
        )

    @route("POST", f"{AGENT}/check")
    async def check(self, request: ApiRequest) -> HealthView:
        """Check whether a remote agent is reachable."""
        slug = self._slug(request)
        agent = self._server.agents[slug]
        if not isinstance(agent, ContactPort):
            raise InvalidParams("Only remote agents can be checked: this one is available while the server runs")
        health = _health(await agent.check())
        body = {"slug": slug, "health": msgspec.to_builtins(health)}
        self._server.feed.send("agent", body, tenant=None, owner=None, agent=agent.profile.name)
        return health

    # --- visibility -----------------------------------------------------------------------------------------------

    def _is_visible(self, caller: Caller, slug: str) -> bool:
        return self._server.visibility.shows_agent(caller, self._server.agents[slug].profile.name)

    def _slug(self, request: ApiRequest) -> str:
        slug = request.parts["slug"]
        if slug not in self._server.agents or not self._is_visible(request.caller, slug):
            raise TaskNotFound("There is no such agent")
        return slug

    # --- views ----------------------------------------------------------------------------------------------------

    def _row(self, slug: str, activity: "AgentActivity") -> AgentRow:
        agent, card = self._server.agents[slug], self._server.card_of(slug)
        profile, remote = agent.profile, agent if isinstance(agent, ContactPort) else None
        return view_of(
            AgentRow,
            profile,
            slug=slug,
            kind=agent_type_of(agent),
            is_default=slug == next(iter(self._server.agents)),
            remote=None if remote is None else remote.url,
            health=UP if remote is None else _health(remote.contact()),
            bindings=list(dict.fromkeys(interface.protocol_binding for interface in card.supported_interfaces)),
            dialects=[dialect.value for dialect in self._dialects()],
            skills=[_skill(skill) for skill in profile.skills],
            rate=activity.rate(profile.name),
            open=activity.open.get(profile.name, 0),
        )

    def _dialects(self) -> list[DialectName]:
        return [dialect for dialect in DialectName if dialect in self._server.served.dialects]

    def _served_as(self, slug: str, origin: str) -> ServedAs:
        agent, served = self._server.agents[slug], self._server.served
        return ServedAs(
            offers=self._server.host.services[agent.profile.name].offers,
            origin=origin,
            has_extended=bool(agent.profile.extended_skills),
            schemes=served.schemes,
            is_open=served.is_open,
            trust=served.trust,
            contact=agent.contact() if isinstance(agent, ContactPort) else None,
        )

    async def _activity(self, caller: Caller) -> "AgentActivity":
        now, visible = self._server.now_ms(), self._server.visibility.visible_tasks(caller)
        span = MINUTES * 60_000
        since, until = uuid7(now - span, bytes(RANDOM_BYTES)), uuid7(now + span, bytes(RANDOM_BYTES))
        counts = await queries.activity_by_agent(self._server.store, caller.tenant, visible, since, until)
        if counts.first is not None:
            span = max(1, now - _created_at(counts.first))
        return AgentActivity(begun=counts.begun, open=counts.open, minutes=span / 60_000)


class AgentActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks by agent: those created within `minutes` (`begun`), and those that are `open`."""

    begun: dict[str, int]
    open: dict[str, int]
    minutes: float

    def rate(self, agent: str) -> float:
        """Return the number of tasks that an agent starts per minute."""
        return round(self.begun.get(agent, 0) / self.minutes, 1)


def agent_type_of(agent: Agent) -> str:
    """Return the agent's type: the name of its adapter, or `custom` if it is not one of Accord's."""
    inner = getattr(agent, "agent", agent)  # a wrapper overrides the profile of its agent
    top, *rest = type(inner).__module__.split(".")
    match rest:
        case ["workflows", *_] if top == _OWN_PACKAGE:
            return "workflow"
        case ["agents", name, *_] if top == _OWN_PACKAGE:
            return name.replace("_", "-")
    return "custom"


_OWN_PACKAGE = __name__.partition(".")[0]


def _skill(skill: AgentSkill) -> SkillView:
    return view_of(SkillView, skill, tags=list(skill.tags), examples=list(skill.examples), schema=skill.input_schema)


def _health(contact: RemoteContact | None) -> HealthView:
    if contact is None:
        return HealthView(state="unknown", detail="It has not been contacted yet", checked_at=None)
    return HealthView(
        state="up" if contact.is_up else "down", detail=contact.detail or None, checked_at=time_of(contact.at)
    )


def _created_at(id: str) -> int:
    """Return the creation time of a UUIDv7."""
    return int(id[:8] + id[9:13], 16)
