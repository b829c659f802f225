"""`/api/agents`: the agents of a server as people look at them: whether each is there, what it does, how busy it is.

An agent is shown to whoever may send to it or list its tasks. Its card is read as a client would read it, from its own
address, and what is to be said about it is `cardfindings`. Publishing cards of others is `registry`.
"""

import msgspec

from accord.a2a import Caller
from accord.bindings import origins
from accord.console.directory.exchanges import whole
from accord.console.directory.findings import Doing, findings
from accord.console.house import House
from accord.console.routing import Asked, Reply, Route, time_of
from accord.console.views import AgentList, AgentRow, AgentView, HealthView, SkillView
from accord.engine.agent import Agent
from accord.engine.ids import RANDOM_BYTES, uuid7
from accord.errors import InvalidParams, TaskNotFound
from accord.model import AgentCard, AgentSkill
from accord.protocol.cards import encode_card
from accord.protocol.operations import DialectName, Operation
from accord.remote.tasks import ContactPort, RemoteContact
from accord.storage.commands import activity

MINUTES = 5
"""How far back tasks count that make an agent busy: long enough to be steady, short enough to be now."""

CARD = "/.well-known/agent-card.json"

PUBLIC = "public"
"""What the card is called that everybody gets who names no dialect."""

UP = HealthView(state="up", detail=None, checked_at=None)
"""An agent of this process is there as long as the process is."""


class AgentsApi:
    """The handlers."""

    def __init__(self, house: House) -> None:
        """Answer about `house`."""
        self._house = house

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        one = "/api/agents/(?P<slug>[^/]+)"
        return (
            Route("GET", "/api/agents/?", self._list, gives=AgentList),
            Route("GET", one, self._get, gives=AgentView),
            Route("POST", f"{one}/check", self._check, gives=HealthView),
        )

    async def _list(self, asked: Asked) -> Reply:
        """List the agents that one may use."""
        feed, caller = self._house.feed.seq, asked.known
        busy = await self._busy(caller)
        items = [self._row(slug, busy) for slug in self._house.agents if self._shows(caller, slug)]
        return Reply(body=AgentList(items=items, feed=feed))

    async def _get(self, asked: Asked) -> Reply:
        """Show an agent: its card in every dialect, and what is to be said about it."""
        caller, slug = asked.known, self._named(asked)
        origin = origins.asked(asked.scope) or self._house.url
        card = origins.moved(self._house.card_of(slug), origin)
        served = await whole(self._house.served.site_as(slug, caller), "GET", CARD, asked.scope)
        cards = {PUBLIC: msgspec.json.decode(served.body)} | self._dialects(card)
        about = findings(
            served.body, f"{card.supported_interfaces[0].url.rstrip('/')}{CARD}", self._doing(slug, origin)
        )
        row = self._row(slug, await self._busy(caller))
        url = card.supported_interfaces[0].url
        return Reply(body=AgentView(**msgspec.structs.asdict(row), url=url, cards=cards, findings=about))

    async def _check(self, asked: Asked) -> Reply:
        """Look whether an agent elsewhere is there."""
        slug = self._named(asked)
        agent = self._house.agents[slug]
        if not isinstance(agent, ContactPort):
            raise InvalidParams("This agent is not elsewhere: it is there as long as the server is")
        health = _health(await agent.check())
        told = {"slug": slug, "health": msgspec.to_builtins(health)}
        self._house.feed.tell("agent", told, tenant=None, owner=None, agent=agent.profile.name)
        return Reply(body=health)

    # --- who sees what ------------------------------------------------------------------------------------------------

    def _shows(self, caller: Caller, slug: str) -> bool:
        name, sight = self._house.agents[slug].profile.name, self._house.sight
        return any(sight.may(caller, name, operation) for operation in (Operation.SEND, Operation.LIST))

    def _named(self, asked: Asked) -> str:
        slug = asked.parts["slug"]
        if slug not in self._house.agents or not self._shows(asked.known, slug):
            raise TaskNotFound("There is no such agent")
        return slug

    # --- what is shown ------------------------------------------------------------------------------------------------

    def _row(self, slug: str, busy: "Busy") -> AgentRow:
        agent, card = self._house.agents[slug], self._house.card_of(slug)
        profile = agent.profile
        spoken = {interface.protocol_binding: None for interface in card.supported_interfaces}
        return AgentRow(
            slug=slug,
            name=profile.name,
            description=profile.description,
            version=profile.version,
            kind=kind_of(agent),
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

    def _doing(self, slug: str, origin: str) -> Doing:
        agent, served = self._house.agents[slug], self._house.served
        contact = agent.contact() if isinstance(agent, ContactPort) else None
        return Doing(
            offers=self._house.host.services[agent.profile.name].offers,
            asked=origin,
            has_extended=bool(agent.profile.extended_skills),
            schemes=served.schemes,
            is_open=served.is_open,
            trust=served.trust,
            contact=contact,
        )

    async def _busy(self, caller: Caller) -> "Busy":
        now, seen = self._house.now_ms(), self._house.sight.seen(caller)
        span = MINUTES * 60_000
        since, until = uuid7(now - span, bytes(RANDOM_BYTES)), uuid7(now + span, bytes(RANDOM_BYTES))
        found = await self._house.store.read(activity.by_agent, caller.tenant, seen, since, until)
        if found.first is not None:
            span = max(1, now - _made_at(found.first))
        return Busy(begun=found.begun, open=found.open, minutes=span / 60_000)


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks by agent: those that have `begun` within so many minutes, and those that are `open`."""

    begun: dict[str, int]
    open: dict[str, int]
    minutes: float

    def rate(self, agent: str) -> float:
        """Return how many tasks an agent begins in a minute."""
        return round(self.begun.get(agent, 0) / self.minutes, 1)


def kind_of(agent: Agent) -> str:
    """Return what kind of agent one is, by where it is written: ours by the name of the kind, others are `custom`."""
    inner = getattr(agent, "agent", agent)  # one that is described otherwise than it does itself
    top, *rest = type(inner).__module__.split(".")
    match rest:
        case ["workflows", *_] if top == _OURS:
            return "workflow"
        case ["agents", name, *_] if top == _OURS:
            return name.replace("_", "-")
    return "custom"


_OURS = __name__.partition(".")[0]


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


def _made_at(id: str) -> int:
    """Return when a UUIDv7 was made."""
    return int(id[:8] + id[9:13], 16)
