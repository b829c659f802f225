"""Agent cards, derived from the server's behavior.

The addresses, capabilities and authentication of a card are derived. The provider and the documentation come from the
settings. `protocol.cards` encodes cards in each dialect.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from accord.auth.schemes import CardSecurity
from accord.engine.agent import Agent, Profile
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    SecurityRequirement,
    SecurityScheme,
)
from accord.protocol.extensions import IDEMPOTENT_SEND, NUMBERED_EVENTS
from accord.protocol.operations import DialectName
from accord.protocol.urls import slug
from accord.server.settings import Capability, CardSettings, Settings
from accord.server.settings_loader import BadSettings
from accord.service.service import Offers

AGENTS_PATH = "/agents/"
"""Path prefix of a host's agents, by name. The first of them is also at the root."""

VERSIONS = {DialectName.V1: "1.0", DialectName.V03: "0.3"}
"""The protocol versions that a card can name, in order of preference."""

OWN_EXTENSIONS = (
    AgentExtension(uri=IDEMPOTENT_SEND, description="The same message sent again is the same task"),
    AgentExtension(uri=NUMBERED_EVENTS, description="Streams go on after the event that Last-Event-ID names"),
)
"""Extensions that every agent supports, for clients that lost a connection."""


class Endpoints(NamedTuple):
    """The endpoints of an agent: `url` without a trailing slash, `grpc` as `host:port`."""

    url: str
    grpc: str | None = None


class CardFacts(NamedTuple):
    """The facts that all cards of a server share."""

    dialects: frozenset[DialectName]
    schemes: Mapping[str, SecurityScheme]
    requirements: tuple[SecurityRequirement, ...] = ()
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    extensions: tuple[AgentExtension, ...] = ()


def card_facts(settings: Settings, security: CardSecurity) -> CardFacts:
    """Return the shared facts from the settings and the enforced security schemes."""
    card = settings.card
    provider = card.provider
    schemes, requirements = security
    return CardFacts(
        dialects=frozenset(settings.server.dialects),
        schemes=schemes,
        requirements=requirements,
        provider=AgentProvider(organization=provider.organization, url=provider.url) if provider else None,
        documentation_url=card.documentation_url,
        icon_url=card.icon_url,
        extensions=card_extensions(card),
    )


def card_extensions(card: CardSettings) -> tuple[AgentExtension, ...]:
    """Return the extensions of all cards: those of the settings, and those of every server."""
    stated = (
        AgentExtension(uri=one.uri, description=one.description, required=one.required, params=one.params)
        for one in card.extensions
    )
    return (*stated, *OWN_EXTENSIONS)


def describe_agent(profile: Profile, endpoints: Endpoints, offers: Offers, facts: CardFacts) -> AgentCard:
    """Return the card of an agent."""
    return AgentCard(
        name=profile.name,
        description=profile.description,
        version=profile.version,
        supported_interfaces=card_interfaces(endpoints, facts.dialects),
        capabilities=AgentCapabilities(
            streaming=offers.streaming,
            push_notifications=offers.push,
            extended_agent_card=offers.extended_card,
            extensions=facts.extensions,
        ),
        default_input_modes=profile.input_modes,
        default_output_modes=profile.output_modes,
        skills=profile.skills,
        provider=facts.provider,
        documentation_url=facts.documentation_url,
        icon_url=facts.icon_url,
        security_schemes=dict(facts.schemes),
        security_requirements=facts.requirements,
    )


def extended_card(card: AgentCard, profile: Profile) -> AgentCard:
    """Return the card for authenticated callers, with the extended skills."""
    return replace(card, skills=(*card.skills, *profile.extended_skills))


def by_slug(agents: Sequence[Agent]) -> dict[str, Agent]:
    """Return agents by the name in their path. Raises BadSettings if two would have the same path."""
    found: dict[str, Agent] = {}
    for agent in agents:
        other = found.setdefault(slug(agent.profile.name), agent)
        if other is not agent:
            names = " and ".join(repr(one.profile.name) for one in (other, agent))
            raise BadSettings(f"Two agents cannot both be at {AGENTS_PATH}{slug(agent.profile.name)}: {names}")
    if not found:
        raise BadSettings("No agent to serve: name one")
    return found


def card_interfaces(endpoints: Endpoints, enabled: frozenset[DialectName]) -> tuple[AgentInterface, ...]:
    """Return an interface for each binding and version. Dialects without a version of their own use 0.3's."""
    versions = [version for dialect, version in VERSIONS.items() if dialect in enabled] or [VERSIONS[DialectName.V03]]
    rest = [version for dialect, version in VERSIONS.items() if dialect in enabled]
    places = [(endpoints.url + "/", "JSONRPC", versions), (endpoints.url, "HTTP+JSON", rest)]
    if endpoints.grpc is not None:
        places.append((endpoints.grpc, "GRPC", rest))
    return tuple(
        AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
        for url, binding, spoken in places
        for version in spoken
    )


def offers_of(settings: Settings) -> Offers:
    """Return the optional parts of A2A that the settings offer."""
    chosen = settings.server.capabilities
    if chosen is None:
        return Offers()
    return Offers(
        streaming=Capability.STREAMING in chosen,
        push=Capability.PUSH in chosen,
        extended_card=Capability.EXTENDED_CARD in chosen,
    )
