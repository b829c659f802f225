"""`/api/agents`: the agents of a server, their health, activity and cards.

An agent is visible to callers who may send to it or list its tasks. Its card is fetched as by a client, and differences
from the server's behavior are findings.
"""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from accord.a2a import Caller
from accord.api import RANDOM_BYTES, Agent, Offers, queries, uuid7
from accord.api.directory import SignedBy, TrustedKeys
from accord.api.directory import cards as publishing
from accord.api.remote import ContactPort, RemoteContact
from accord.client.interfaces import CardHostTrust as Naming
from accord.client.interfaces import keep_usable_interfaces
from accord.console.exchanges import fetch_in_process
from accord.console.routing import ApiReply, ApiRequest, ApiRoute, time_of
from accord.console.server_context import ServerContext
from accord.console.views import AgentList, AgentRow, AgentView, Finding, HealthView, SkillView
from accord.errors import AccordError, InvalidParams, TaskNotFound
from accord.http.cards import card_at_origin, request_origin
from accord.model import AgentCard, AgentSkill
from accord.protocol.cards import decode_card, encode_card
from accord.protocol.operations import DialectName, Operation


class ServedAs(Struct, frozen=True, kw_only=True):
    """The actual behavior of a server, to compare a card with.

    `schemes` are the enforced schemes, by their names in cards. `asked` is the origin that the caller used. With
    `has_extended` the agent has skills for authenticated callers. `contact` is the last contact with a remote agent.
    """

    offers: Offers
    asked: str = ""
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


def card_findings(document: bytes, url: str, doing: ServedAs) -> list[Finding]:
    """Return the findings about the card served at `url`, most severe first."""
    try:
        card = decode_card(document)
    except AccordError as error:
        stated = [_error(field, problem) for field, problem in error.violations]
        return stated or [_error("", f"The card cannot be read: {error.message}")]
    read = ReadCard(document=document, url=url, card=card)
    every = [finding for look in CARD_CHECKS for finding in look(read, doing)]
    once = dict.fromkeys((one.severity, one.where, one.text) for one in every)
    found = [Finding(severity=severity, where=where, text=text) for severity, where, text in once]
    return sorted(found, key=lambda one: _ORDER.index(one.severity))


# --- findings of card readers -----------------------------------------------------------------------------------------


def _as_clients(read: ReadCard, _doing: ServedAs) -> Iterator[Finding]:
    """Yield findings of clients. Addresses that a client would not use count as missing."""
    kept, found = keep_usable_interfaces(read.card, read.url, Naming())
    lost = len(read.card.supported_interfaces) - len(kept.supported_interfaces)
    for one in found:
        yield _error(one.where, one.what) if one.what.endswith("it is not used") else _warning(one.where, one.what)
    if lost and not kept.supported_interfaces:
        yield _error("supportedInterfaces", "Clients that read the card at this address find no way to the agent")


def _as_asked(read: ReadCard, doing: ServedAs) -> Iterator[Finding]:
    """Yield a finding if the caller's host is not the card's: clients do not follow a card to other hosts."""
    here, there = urlsplit(doing.asked).hostname, urlsplit(read.url).hostname
    if here and here != there:
        text = f"You reach the server as {here}, but the card leads to {there}: clients that read it here refuse that"
        yield _warning("supportedInterfaces", f"{text}, and everybody should be given the address at {there}")


def _as_registries(read: ReadCard, _doing: ServedAs) -> Iterator[Finding]:
    try:
        publishing.read(read.document)
    except publishing.InvalidCard as error:
        for field, problem in error.findings:
            yield _info(field, f"Not to be published in a registry as it is: {problem}")


def _as_people(read: ReadCard, _doing: ServedAs) -> Iterator[Finding]:
    """Yield what people and models need to choose the agent and the card lacks."""
    card = read.card
    if not card.description.strip():
        yield _warning("description", "There is no description: nobody can tell what the agent is for")
    for at, skill in enumerate(card.skills):
        where = f"skills[{at}]"
        if not skill.description.strip():
            yield _warning(f"{where}.description", f"The skill {skill.name!r} has no description")
        elif skill.description.strip() == card.description.strip() and len(card.skills) > 1:
            yield _info(f"{where}.description", f"The skill {skill.name!r} is described like the agent as a whole")
        if not skill.tags:
            yield _info(f"{where}.tags", f"The skill {skill.name!r} has no tags: searches by topic do not find it")
        if not skill.examples:
            yield _info(f"{where}.examples", f"The skill {skill.name!r} has no examples: people have to guess")
    if card.provider is None:
        yield _info("provider", "The card does not say who offers the agent")


def _signed(read: ReadCard, doing: ServedAs) -> Iterator[Finding]:
    verdict = doing.trust.judge(read.document)
    if verdict.state is SignedBy.UNSIGNED:
        yield _info("signatures", "The card is not signed: readers cannot tell whether somebody changed it")
    else:
        yield _info("signatures", verdict.detail)


# --- differences between card and server ------------------------------------------------------------------------------


def _capabilities(read: ReadCard, doing: ServedAs) -> Iterator[Finding]:
    stated, offers = read.card.capabilities, doing.offers
    for member, says, does in (
        ("streaming", stated.streaming, offers.streaming),
        ("pushNotifications", stated.push_notifications, offers.push),
        ("extendedAgentCard", stated.extended_agent_card, offers.extended_card),
    ):
        if says and not does:
            yield _error(f"capabilities.{member}", "The card offers it, and the server refuses it")
        elif does and not says:
            yield _warning(f"capabilities.{member}", "The server does it, but the card does not say so: few will ask")
    if offers.extended_card and not doing.has_extended:
        yield _info("capabilities.extendedAgentCard", "The extended card has nothing that the public one has not")


def _security(read: ReadCard, doing: ServedAs) -> Iterator[Finding]:
    stated = frozenset(read.card.security_schemes)
    for name in sorted(stated - doing.schemes):
        yield _error(f"securitySchemes.{name}", "The card names it, but the server does not take it")
    for name in sorted(doing.schemes - stated):
        yield _warning(f"securitySchemes.{name}", "The server takes it, but the card does not name it")
    if doing.is_open:
        yield _info("securityRequirements", "Whoever reaches the server may use the agent: it asks nobody who they are")


def _unreachable(_read: ReadCard, doing: ServedAs) -> Iterator[Finding]:
    contact = doing.contact
    if contact is not None:
        if not contact.is_up:
            yield _error("", f"The card describes an agent elsewhere that is not there: {contact.detail}")
        for finding in contact.findings:
            yield _warning("", f"Its own card: {finding}")


def _error(where: str, text: str) -> Finding:
    return Finding(severity="error", where=where, text=text)


def _warning(where: str, text: str) -> Finding:
    return Finding(severity="warning", where=where, text=text)


def _info(where: str, text: str) -> Finding:
    return Finding(severity="info", where=where, text=text)


CARD_CHECKS: tuple[Callable[[ReadCard, ServedAs], Iterator[Finding]], ...] = (
    _unreachable,
    _capabilities,
    _security,
    _as_clients,
    _as_asked,
    _as_registries,
    _as_people,
    _signed,
)

_ORDER = ("error", "warning", "info")


MINUTES = 5
"""Minutes of tasks that count as activity: long enough to be steady, short enough to be current."""

CARD = "/.well-known/agent-card.json"

PUBLIC = "public"
"""Key of the card that is served if no dialect is named."""

UP = HealthView(state="up", detail=None, checked_at=None)
"""An agent of this process is available as long as the process runs."""


class AgentsApi:
    """Agents, their cards and health."""

    def __init__(self, house: ServerContext) -> None:
        """Create the handlers for `house`."""
        self._house = house

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        one = "/api/agents/(?P<slug>[^/]+)"
        return (
            ApiRoute("GET", "/api/agents/?", self._list, gives=AgentList),
            ApiRoute("GET", one, self._get, gives=AgentView),
            ApiRoute("POST", f"{one}/check", self._check, gives=HealthView),
        )

    async def _list(self, asked: ApiRequest) -> ApiReply:
        """List the agents that the caller may use."""
        feed, caller = self._house.feed.seq, asked.known
        busy = await self._busy(caller)
        items = [self._row(slug, busy) for slug in self._house.agents if self._shows(caller, slug)]
        return ApiReply(body=AgentList(items=items, feed=feed))

    async def _get(self, asked: ApiRequest) -> ApiReply:
        """Show an agent: its card in every dialect, and the findings about it."""
        caller, slug = asked.known, self._named(asked)
        origin = request_origin(asked.scope) or self._house.url
        card = card_at_origin(self._house.card_of(slug), origin)
        served = await fetch_in_process(self._house.served.site_as(slug, caller), "GET", CARD, asked.scope)
        cards = {PUBLIC: msgspec.json.decode(served.body)} | self._dialects(card)
        about = card_findings(
            served.body, f"{card.supported_interfaces[0].url.rstrip('/')}{CARD}", self._doing(slug, origin)
        )
        row = self._row(slug, await self._busy(caller))
        url = card.supported_interfaces[0].url
        return ApiReply(body=AgentView(**msgspec.structs.asdict(row), url=url, cards=cards, findings=about))

    async def _check(self, asked: ApiRequest) -> ApiReply:
        """Check whether a remote agent is reachable."""
        slug = self._named(asked)
        agent = self._house.agents[slug]
        if not isinstance(agent, ContactPort):
            raise InvalidParams("This agent is not elsewhere: it is there as long as the server is")
        health = _health(await agent.check())
        told = {"slug": slug, "health": msgspec.to_builtins(health)}
        self._house.feed.tell("agent", told, tenant=None, owner=None, agent=agent.profile.name)
        return ApiReply(body=health)

    # --- visibility -----------------------------------------------------------------------------------------------

    def _shows(self, caller: Caller, slug: str) -> bool:
        name, sight = self._house.agents[slug].profile.name, self._house.sight
        return any(sight.may(caller, name, operation) for operation in (Operation.SEND, Operation.LIST))

    def _named(self, asked: ApiRequest) -> str:
        slug = asked.parts["slug"]
        if slug not in self._house.agents or not self._shows(asked.known, slug):
            raise TaskNotFound("There is no such agent")
        return slug

    # --- views ----------------------------------------------------------------------------------------------------

    def _row(self, slug: str, busy: "AgentActivity") -> AgentRow:
        agent, card = self._house.agents[slug], self._house.card_of(slug)
        profile = agent.profile
        spoken = {interface.protocol_binding: None for interface in card.supported_interfaces}
        return AgentRow(
            slug=slug,
            name=profile.name,
            description=profile.description,
            version=profile.version,
            kind=agent_type_of(agent),
            is_default=slug == next(iter(self._house.agents)),
            remote=agent.url if isinstance(agent, ContactPort) else None,
            health=_health(agent.contact()) if isinstance(agent, ContactPort) else UP,
            bindings=list(spoken),
            dialects=[dialect.value for dialect in DialectName if dialect in self._house.served.dialects],
            skills=[_skill(skill) for skill in profile.skills],
            rate=busy.rate(profile.name),
            open=busy.open.get(profile.name, 0),
        )

    def _dialects(self, card: AgentCard) -> dict[str, dict[str, object]]:
        enabled = self._house.served.dialects
        written = {one.value: encode_card(card, enabled, one) for one in DialectName if one in enabled}
        return {name: msgspec.json.decode(document) for name, document in written.items()}

    def _doing(self, slug: str, origin: str) -> ServedAs:
        agent, served = self._house.agents[slug], self._house.served
        contact = agent.contact() if isinstance(agent, ContactPort) else None
        return ServedAs(
            offers=self._house.host.services[agent.profile.name].offers,
            asked=origin,
            has_extended=bool(agent.profile.extended_skills),
            schemes=served.schemes,
            is_open=served.is_open,
            trust=served.trust,
            contact=contact,
        )

    async def _busy(self, caller: Caller) -> "AgentActivity":
        now, seen = self._house.now_ms(), self._house.sight.seen(caller)
        span = MINUTES * 60_000
        since, until = uuid7(now - span, bytes(RANDOM_BYTES)), uuid7(now + span, bytes(RANDOM_BYTES))
        found = await queries.activity_by_agent(self._house.store, caller.tenant, seen, since, until)
        if found.first is not None:
            span = max(1, now - _created_at(found.first))
        return AgentActivity(begun=found.begun, open=found.open, minutes=span / 60_000)


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
    return SkillView(
        id=skill.id,
        name=skill.name,
        description=skill.description,
        tags=list(skill.tags),
        examples=list(skill.examples),
        schema=skill.input_schema,
    )


def _health(contact: RemoteContact | None) -> HealthView:
    if contact is None:
        return HealthView(state="unknown", detail="Nobody has talked to it yet", checked_at=None)
    return HealthView(
        state="up" if contact.is_up else "down", detail=contact.detail or None, checked_at=time_of(contact.at)
    )


def _created_at(id: str) -> int:
    """Return the creation time of a UUIDv7."""
    return int(id[:8] + id[9:13], 16)
