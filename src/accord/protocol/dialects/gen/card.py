"""The agent card of the generic dialect, to and from the model."""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from accord import model
from accord.model.base import Metadata, NonEmpty
from accord.protocol import codec

_MODES = ("text/plain", "application/json", "application/octet-stream")
"""Input types that every agent of this dialect accepts: its parts are text, data and files."""

VERSION = "gen"
"""The protocol version of an interface that was read from such a card."""


class GenSkillIn(Struct):
    """One thing the agent can do."""

    name: NonEmpty
    description: str = ""
    parameters: Metadata | None = None


class GenCardIn(Struct):
    """A card."""

    name: NonEmpty
    description: str
    version: str
    capabilities: list[str] = []
    skills: list[GenSkillIn] = []
    url: str | None = None


_CARD = Decoder(GenCardIn)


def write_card(card: model.AgentCard) -> dict[str, Any]:
    """Write a card."""
    skills = [
        {"name": skill.id, "description": skill.description, "parameters": skill.input_schema or {}}
        for skill in card.skills
    ]
    document = {
        "name": card.name,
        "description": card.description,
        "version": card.version,
        "capabilities": _names(card),
        "skills": skills,
    }
    address = _address(card)
    return document if address is None else document | {"url": address}


def _names(card: model.AgentCard) -> list[str]:
    can, profile = card.capabilities, card.profile or model.CardProfile()
    flags = {
        "streaming": can.streaming,
        "push_notifications": can.push_notifications,
        "extended_agent_card": can.extended_agent_card,
        "state_transition_history": profile.state_transition_history,
    }
    return list(dict.fromkeys([*(name for name, has in flags.items() if has), *profile.capability_names]))


def _address(card: model.AgentCard) -> str | None:
    interfaces = card.supported_interfaces
    wanted = [one for one in interfaces if one.protocol_version == VERSION]
    likely = [one for one in interfaces if one.protocol_binding == "JSONRPC"]
    return next((one.url for one in (*wanted, *likely, *interfaces)), None)


def read_card(card: bytes) -> model.AgentCard:
    """Read a card."""
    wire = codec.decode(card, _CARD)
    names = set(wire.capabilities)
    own = tuple(name for name in wire.capabilities if name not in _FLAGS)
    history = True if "state_transition_history" in names else None
    return model.AgentCard(
        name=wire.name,
        description=wire.description,
        version=wire.version,
        supported_interfaces=_interfaces(wire.url),
        capabilities=model.AgentCapabilities(
            streaming="streaming" in names or None,
            push_notifications="push_notifications" in names or None,
            extended_agent_card="extended_agent_card" in names or None,
        ),
        default_input_modes=_MODES,
        default_output_modes=_MODES,
        skills=tuple(_read_skill(skill) for skill in wire.skills),
        profile=model.CardProfile(capability_names=own, state_transition_history=history) if own or history else None,
    )


_FLAGS = frozenset({"streaming", "push_notifications", "extended_agent_card", "state_transition_history"})


def _interfaces(url: str | None) -> tuple[model.AgentInterface, ...]:
    return (model.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=VERSION),) if url else ()


def _read_skill(wire: GenSkillIn) -> model.AgentSkill:
    return model.AgentSkill(
        id=wire.name, name=wire.name, description=wire.description, tags=(), input_schema=wire.parameters or None
    )
