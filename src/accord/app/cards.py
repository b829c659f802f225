"""An agent's card, derived from what is really served: its addresses, its capabilities, and how callers authenticate.

Nothing is said by hand that could turn out untrue; what a card cannot know of itself (who offers it, where it is
documented) comes from the settings. How it looks in each dialect is `protocol.cards`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from accord.auth.schemes import CardSecurity
from accord.config.files import BadSettings
from accord.config.settings import Card, Settings
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
from accord.service.service import Offers

AGENTS = "/agents/"
"""Where the agents of a host are, by name; the first of them is at the root as well."""

VERSIONS = {DialectName.V1: "1.0", DialectName.V03: "0.3"}
"""The protocol versions that a card can name, in order of preference."""

PROMISES = (
    AgentExtension(uri=IDEMPOTENT_SEND, description="The same message sent again is the same task"),
    AgentExtension(uri=NUMBERED_EVENTS, description="Streams go on after the event that Last-Event-ID names"),
)
"""What every agent served here keeps, for clients that lost a connection."""


class Endpoints(NamedTuple):
    """Where an agent listens: `url` without a slash at its end, `grpc` as `host:port`."""

    url: str
    grpc: str | None = None


class Facts(NamedTuple):
    """What a server knows about all its cards."""

    dialects: frozenset[DialectName]
    schemes: Mapping[str, SecurityScheme]
    requirements: tuple[SecurityRequirement, ...] = ()
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    extensions: tuple[AgentExtension, ...] = ()


def facts(settings: Settings, security: CardSecurity) -> Facts:
    """Return what the settings, and the schemes that are enforced, say about all cards."""
    card = settings.card
    provider = card.provider
    schemes, requirements = security
    return Facts(
        dialects=frozenset(settings.server.dialects),
        schemes=schemes,
        requirements=requirements,
        provider=AgentProvider(organization=provider.organization, url=provider.url) if provider else None,
        documentation_url=card.documentation_url,
        icon_url=card.icon_url,
        extensions=extensions(card),
    )


def extensions(card: Card) -> tuple[AgentExtension, ...]:
    """Return the extensions of all cards: those of the settings, and what every server promises."""
    stated = (
        AgentExtension(uri=one.uri, description=one.description, required=one.required, params=one.params)
        for one in card.extensions
    )
    return (*stated, *PROMISES)


def describe(profile: Profile, endpoints: Endpoints, offers: Offers, facts: Facts) -> AgentCard:
    """Return the card of an agent."""
    return AgentCard(
        name=profile.name,
        description=profile.description,
        version=profile.version,
        supported_interfaces=interfaces(endpoints, facts.dialects),
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


def extended(card: AgentCard, profile: Profile) -> AgentCard:
    """Return the card for those who have said who they are: with the skills that are not shown to everybody."""
    return replace(card, skills=(*card.skills, *profile.extended_skills))


def by_slug(agents: Sequence[Agent]) -> dict[str, Agent]:
    """Return agents by the name in their path, or refuse those that would be at the same one."""
    found: dict[str, Agent] = {}
    for agent in agents:
        other = found.setdefault(slug(agent.profile.name), agent)
        if other is not agent:
            names = " and ".join(repr(one.profile.name) for one in (other, agent))
            raise BadSettings(f"Two agents cannot both be at {AGENTS}{slug(agent.profile.name)}: {names}")
    if not found:
        raise BadSettings("There is no agent to serve")
    return found


def interfaces(endpoints: Endpoints, enabled: frozenset[DialectName]) -> tuple[AgentInterface, ...]:
    """Return an interface for each binding and version; dialects without a version of their own read 0.3's."""
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
