"""The agent card of A2A 0.2 and 0.3, in both directions.

It is separate from the other parts of `v03` because it shares no code with messages and tasks. Cards are untrusted and
read leniently: only a name and an address are required. The security objects of 1.0 and of protobuf JSON are read as
well.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from accord import model
from accord.model.base import A2AModel, NonEmpty
from accord.protocol import codec
from accord.protocol.codec import invalid_field

DEFAULT_VERSION = "0.3"
"""The default version of a card: our 0.3 serves every 0.2 as well."""

DEFAULT_TRANSPORT = "JSONRPC"
"""The default transport of a card, as for all cards before 0.2.4 (5.5.5 of the 0.3 specification)."""

Plain = dict[str, Any]


# --- writing ------------------------------------------------------------------------------------------------------


def write_card(card: model.AgentCard) -> Plain:
    """Write a card with only 0.3's fields."""
    main, others = _addresses(card.supported_interfaces)
    found = {
        "protocolVersion": _patched(main.protocol_version),
        "name": card.name,
        "description": card.description,
        "url": main.url,
        "preferredTransport": main.protocol_binding,
        "additionalInterfaces": [{"url": at.url, "transport": at.protocol_binding} for at in others] or None,
        "iconUrl": card.icon_url,
        "provider": None if card.provider is None else _plain(card.provider),
        "version": card.version,
        "documentationUrl": card.documentation_url,
        "capabilities": _capabilities(card),
        "securitySchemes": {name: _scheme(stated) for name, stated in card.security_schemes.items()} or None,
        "security": _security(card.security_requirements),
        "defaultInputModes": list(card.default_input_modes),
        "defaultOutputModes": list(card.default_output_modes),
        "skills": [_skill(skill, card) for skill in card.skills],
        "supportsAuthenticatedExtendedCard": card.capabilities.extended_agent_card,
        "signatures": [_plain(signature) for signature in card.signatures] or None,
    }
    return _present(found)


def _addresses(stated: tuple[model.AgentInterface, ...]) -> tuple[model.AgentInterface, list[model.AgentInterface]]:
    """Return the card's own address and the additional ones.

    A 0.3 card has one version. Where addresses of 0.x are stated, only they are listed. Otherwise all are, because a
    server that writes this card serves both versions there.
    """
    old = [at for at in stated if at.protocol_version.startswith("0.")]
    listed = list({(at.url, at.protocol_binding): at for at in reversed(old or stated)}.values())[::-1]
    newest = (at for at in listed if at.protocol_version.startswith("0.3"))
    spoken = (at for at in listed if at.protocol_binding == DEFAULT_TRANSPORT)
    nowhere = model.AgentInterface(url="", protocol_binding=DEFAULT_TRANSPORT, protocol_version=DEFAULT_VERSION)
    main = next(newest, None) or next(spoken, None) or next(iter(listed), nowhere)
    return main, [at for at in listed if at is not main]


def _patched(version: str) -> str:
    """Return a version in the form of 0.x, with its patch number."""
    if not version.startswith("0."):
        version = DEFAULT_VERSION
    return f"{version}.0" if version.count(".") == 1 else version


def _capabilities(card: model.AgentCard) -> Plain:
    stated, profile = card.capabilities, card.profile
    return _present(
        {
            "streaming": stated.streaming,
            "pushNotifications": stated.push_notifications,
            "stateTransitionHistory": None if profile is None else profile.state_transition_history,
            "extensions": [{"uri": "", **_plain(extension)} for extension in stated.extensions] or None,
        }
    )


def _skill(skill: model.AgentSkill, card: model.AgentCard) -> Plain:
    """Write a skill; its modes are always included, because fasta2a's client refuses a card without them."""
    return _present(
        {
            "id": skill.id,
            "name": skill.name,
            "description": skill.description,
            "tags": list(skill.tags),
            "examples": list(skill.examples) or None,
            "inputModes": list(skill.input_modes or card.default_input_modes),
            "outputModes": list(skill.output_modes or card.default_output_modes),
            "security": _security(skill.security_requirements),
        }
    )


def _security(stated: Iterable[model.SecurityRequirement]) -> list[Plain] | None:
    return [{name: list(found.list) for name, found in one.schemes.items()} for one in stated] or None


def _scheme(stated: model.SecurityScheme) -> Plain:
    ((member, found),) = _plain(stated).items()
    if member == "apiKeySecurityScheme":
        found["in"] = found.pop("location")
    if member == "oauth2SecurityScheme":
        found["flows"] = _flows(found["flows"])
    return {"type": _TYPES[member], **found}


def _flows(stated: Plain) -> Plain:
    """Write the flows of 0.3, with every field that it requires; it has neither device codes nor PKCE."""
    found = {name: required | stated[name] for name, required in _FLOWS.items() if name in stated}
    for flow in found.values():
        flow.pop("pkceRequired", None)
    return found


_TYPES = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}
"""The member of a scheme in 1.0 -> its `type` in 0.3; the objects themselves differ only in `in`."""

_FLOWS: dict[str, Plain] = {
    "authorizationCode": {},
    "clientCredentials": {},
    "implicit": {"authorizationUrl": "", "scopes": {}},
    "password": {"tokenUrl": "", "scopes": {}},
}
"""The flows of 0.3, and the fields each requires that are optional in our model."""


def _plain(stated: A2AModel) -> Plain:
    found: Plain = msgspec.to_builtins(stated)
    return found


def _present(stated: Plain) -> Plain:
    return {name: value for name, value in stated.items() if value is not None}


# --- reading ------------------------------------------------------------------------------------------------------


class _Interface(Struct):
    url: NonEmpty
    transport: str | None = None


class _Extension(Struct):
    uri: str | None = None
    description: str | None = None
    required: bool | None = None
    params: Plain | None = None


class _Capabilities(Struct, rename="camel"):
    streaming: bool | None = None
    push_notifications: bool | None = None
    state_transition_history: bool | None = None
    extensions: list[_Extension] | None = None


class _Skill(Struct, rename="camel"):
    id: NonEmpty
    name: str | None = None
    description: str | None = None
    tags: tuple[str, ...] | None = None
    examples: tuple[str, ...] | None = None
    input_modes: tuple[str, ...] | None = None
    output_modes: tuple[str, ...] | None = None
    security: list[Plain] | None = None


class _Provider(Struct):
    organization: str | None = None
    url: str | None = None


class _Card(Struct, rename="camel"):
    name: NonEmpty
    url: NonEmpty
    description: str | None = None
    version: str | None = None
    protocol_version: str | None = None
    preferred_transport: str | None = None
    additional_interfaces: list[_Interface] | None = None
    icon_url: str | None = None
    provider: _Provider | None = None
    documentation_url: str | None = None
    capabilities: _Capabilities | None = None
    security_schemes: dict[str, Plain] | None = None
    security: list[Plain] | None = None
    default_input_modes: tuple[str, ...] | None = None
    default_output_modes: tuple[str, ...] | None = None
    skills: list[_Skill] | None = None
    supports_authenticated_extended_card: bool | None = None
    signatures: tuple[model.CardSignature, ...] | None = None


_CARD = Decoder(_Card)


def read_card(data: bytes) -> model.AgentCard:
    """Read a card of 0.2 or 0.3."""
    wire = codec.decode(data, _CARD)
    capabilities = wire.capabilities or _Capabilities()
    history = capabilities.state_transition_history
    return model.AgentCard(
        name=wire.name,
        description=wire.description or "",
        version=wire.version or "",
        supported_interfaces=_interfaces(wire),
        capabilities=model.AgentCapabilities(
            streaming=capabilities.streaming,
            push_notifications=capabilities.push_notifications,
            extensions=tuple(_read_extension(extension) for extension in capabilities.extensions or ()),
            extended_agent_card=wire.supports_authenticated_extended_card,
        ),
        default_input_modes=wire.default_input_modes or (),
        default_output_modes=wire.default_output_modes or (),
        skills=tuple(_read_skill(skill, f"skills[{at}]") for at, skill in enumerate(wire.skills or ())),
        provider=_read_provider(wire.provider),
        documentation_url=wire.documentation_url or None,
        icon_url=wire.icon_url or None,
        security_schemes={
            name: _read_scheme(stated, f"securitySchemes.{name}")
            for name, stated in (wire.security_schemes or {}).items()
        },
        security_requirements=_read_security(wire.security, "security"),
        signatures=wire.signatures or (),
        profile=None if history is None else model.CardProfile(state_transition_history=history),
    )


def _interfaces(wire: _Card) -> tuple[model.AgentInterface, ...]:
    """Return the card's addresses without repetition; versions are compared by major and minor number only."""
    version = ".".join((wire.protocol_version or DEFAULT_VERSION).split(".")[:2])
    stated = [(wire.url, wire.preferred_transport)]
    stated += [(at.url, at.transport) for at in wire.additional_interfaces or ()]
    return tuple(
        model.AgentInterface(url=url, protocol_binding=transport, protocol_version=version)
        for url, transport in dict.fromkeys((url, transport or DEFAULT_TRANSPORT) for url, transport in stated)
    )


def _read_extension(wire: _Extension) -> model.AgentExtension:
    return model.AgentExtension(
        uri=wire.uri, description=wire.description, required=wire.required or False, params=wire.params
    )


def _read_provider(wire: _Provider | None) -> model.AgentProvider | None:
    if wire is None or not wire.organization:
        return None
    return model.AgentProvider(url=wire.url or "", organization=wire.organization)


def _read_skill(wire: _Skill, where: str) -> model.AgentSkill:
    return model.AgentSkill(
        id=wire.id,
        name=wire.name or wire.id,
        description=wire.description or "",
        tags=wire.tags or (),
        examples=wire.examples or (),
        input_modes=wire.input_modes or (),
        output_modes=wire.output_modes or (),
        security_requirements=_read_security(wire.security, f"{where}.security"),
    )


def _read_security(stated: list[Plain] | None, where: str) -> tuple[model.SecurityRequirement, ...]:
    """Read security requirements: `{name: [scopes]}`, or `{"schemes": {name: {"list": [scopes]}}}`."""
    found = []
    for at, one in enumerate(stated or ()):
        schemes = one["schemes"] if isinstance(one.get("schemes"), dict) else one
        scopes = {name: value if isinstance(value, dict) else {"list": value} for name, value in schemes.items()}
        try:
            found.append(model.SecurityRequirement(schemes=msgspec.convert(scopes, dict[str, model.Scopes])))
        except msgspec.ValidationError as error:
            raise invalid_field(f"{where}[{at}]", str(error).partition(" - at ")[0]) from None
    return tuple(found)


def _read_scheme(stated: Plain, where: str) -> model.SecurityScheme:
    """Read a security scheme: by its `type`, or in the form of 1.0 and protobuf JSON."""
    if "type" in stated:
        kind = str(stated["type"])
        if kind not in _MEMBERS:
            raise invalid_field(f"{where}.type", f"Unknown security scheme {kind[:40]!r}")
        stated = {_MEMBERS[kind]: {"location": stated.get("in"), **stated} if kind == "apiKey" else stated}
    try:
        return msgspec.convert(_with_scopes(stated), model.SecurityScheme)
    except msgspec.ValidationError as error:
        raise invalid_field(where, str(error).partition(" - at ")[0]) from None


def _with_scopes(stated: Plain) -> Plain:
    """Return a scheme whose flows all have scopes, which protobuf leaves out when empty."""
    oauth = stated.get("oauth2SecurityScheme")
    flows = oauth.get("flows") if isinstance(oauth, dict) else None
    if not isinstance(oauth, dict) or not isinstance(flows, dict):
        return stated
    full = {name: {"scopes": {}} | flow if isinstance(flow, dict) else flow for name, flow in flows.items()}
    return stated | {"oauth2SecurityScheme": oauth | {"flows": full}}


_MEMBERS = {kind: member for member, kind in _TYPES.items()}
