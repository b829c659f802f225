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
from msgspec.structs import replace

from accord import model
from accord.model.base import A2AModel, NonEmpty
from accord.protocol import codec
from accord.protocol.codec import invalid_field
from accord.protocol.dialects.fields import fill, shape_like, without_none

DEFAULT_VERSION = "0.3"
"""The default version of a card: our 0.3 serves every 0.2 as well."""

DEFAULT_TRANSPORT = "JSONRPC"
"""The default transport of a card, as for all cards before 0.2.4 (5.5.5 of the 0.3 specification)."""

Plain = dict[str, Any]


# --- writing ------------------------------------------------------------------------------------------------------


def write_card(card: model.AgentCard) -> Plain:
    """Write a card with only 0.3's fields; those that 1.0 has as well are written alike."""
    main, others = _addresses(card.supported_interfaces)
    history = None if card.profile is None else card.profile.state_transition_history
    can = replace(card.capabilities, extended_agent_card=None, extensions=())
    extensions = [{"uri": "", **_plain(extension)} for extension in card.capabilities.extensions]
    shared = replace(card, supported_interfaces=(), skills=(), security_requirements=(), profile=None)
    return without_none(
        **_plain(shared)
        | {
            "protocolVersion": _patched(main.protocol_version),
            "url": main.url,
            "preferredTransport": main.protocol_binding,
            "additionalInterfaces": [{"url": at.url, "transport": at.protocol_binding} for at in others] or None,
            "capabilities": _plain(can) | without_none(stateTransitionHistory=history, extensions=extensions or None),
            "securitySchemes": {name: _scheme(stated) for name, stated in card.security_schemes.items()} or None,
            "security": _security(card.security_requirements),
            "skills": [_skill(skill, card) for skill in card.skills],
            "supportsAuthenticatedExtendedCard": card.capabilities.extended_agent_card,
            "supportedInterfaces": None,
        }
    )


def _addresses(interfaces: tuple[model.AgentInterface, ...]) -> tuple[model.AgentInterface, list[model.AgentInterface]]:
    """Return the card's own address and the additional ones.

    A 0.3 card has one version. Where addresses of 0.x are stated, only they are listed. Otherwise all are, because a
    server that writes this card serves both versions there.
    """
    legacy = [at for at in interfaces if at.protocol_version.startswith("0.")]
    listed = list({(at.url, at.protocol_binding): at for at in reversed(legacy or interfaces)}.values())[::-1]
    newest = (at for at in listed if at.protocol_version.startswith("0.3"))
    jsonrpc = (at for at in listed if at.protocol_binding == DEFAULT_TRANSPORT)
    nowhere = model.AgentInterface(url="", protocol_binding=DEFAULT_TRANSPORT, protocol_version=DEFAULT_VERSION)
    main = next(newest, None) or next(jsonrpc, None) or next(iter(listed), nowhere)
    return main, [at for at in listed if at is not main]


def _patched(version: str) -> str:
    """Return a version in the form of 0.x, with its patch number."""
    if not version.startswith("0."):
        version = DEFAULT_VERSION
    return f"{version}.0" if version.count(".") == 1 else version


def _skill(skill: model.AgentSkill, card: model.AgentCard) -> Plain:
    """Write a skill; its modes are always included, because fasta2a's client refuses a card without them."""
    shared = replace(
        skill,
        input_modes=skill.input_modes or card.default_input_modes,
        output_modes=skill.output_modes or card.default_output_modes,
        security_requirements=(),
        input_schema=None,
        output_schema=None,
    )
    modes = {"inputModes": shared.input_modes, "outputModes": shared.output_modes}
    return without_none(**_plain(shared) | modes, security=_security(skill.security_requirements))


def _security(requirements: Iterable[model.SecurityRequirement]) -> list[Plain] | None:
    return [
        {name: list(scopes.list) for name, scopes in requirement.schemes.items()} for requirement in requirements
    ] or None


def _scheme(stated: model.SecurityScheme) -> Plain:
    ((member, scheme),) = _plain(stated).items()
    if member == "apiKeySecurityScheme":
        scheme["in"] = scheme.pop("location")
    if member == "oauth2SecurityScheme":
        scheme["flows"] = _flows(scheme["flows"])
    return {"type": _TYPES[member], **scheme}


def _flows(oauth_flows: Plain) -> Plain:
    """Write the flows of 0.3, with every field that it requires; it has neither device codes nor PKCE."""
    flows = {name: required | oauth_flows[name] for name, required in _FLOWS.items() if name in oauth_flows}
    for flow in flows.values():
        flow.pop("pkceRequired", None)
    return flows


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


def _plain(value: A2AModel) -> Plain:
    plain: Plain = msgspec.to_builtins(value)
    return plain


# --- reading ------------------------------------------------------------------------------------------------------


class _Interface(Struct):
    url: NonEmpty
    transport: str | None = None


_EXTENSION = shape_like(model.AgentExtension)
_CAPABILITIES = shape_like(
    model.AgentCapabilities,
    without=["extended_agent_card"],
    extensions=[_EXTENSION],
    state_transition_history=bool,
)
_SKILL = shape_like(
    model.AgentSkill,
    required=["id"],
    without=["input_schema", "output_schema", "security_requirements"],
    name=str,
    security=list[Plain],
)
_CARD = Decoder(
    shape_like(
        model.AgentCard,
        required=["name", "url"],
        without=["supported_interfaces", "security_requirements", "profile"],
        url=NonEmpty,
        protocol_version=str,
        preferred_transport=str,
        additional_interfaces=list[_Interface],
        provider=shape_like(model.AgentProvider, organization=str),
        capabilities=_CAPABILITIES,
        security_schemes=dict[str, Plain],
        security=list[Plain],
        skills=[_SKILL],
        supports_authenticated_extended_card=bool,
    )
)


def read_card(card: bytes) -> model.AgentCard:
    """Read a card of 0.2 or 0.3."""
    wire: Any = codec.decode(card, _CARD)
    can = wire.capabilities or _CAPABILITIES()
    history, provider = can.state_transition_history, wire.provider
    schemes = (wire.security_schemes or {}).items()
    return fill(
        model.AgentCard,
        wire,
        description=wire.description or "",
        version=wire.version or "",
        supported_interfaces=_interfaces(wire),
        capabilities=fill(
            model.AgentCapabilities,
            can,
            extensions=tuple(fill(model.AgentExtension, extension) for extension in can.extensions or ()),
            extended_agent_card=wire.supports_authenticated_extended_card,
        ),
        default_input_modes=wire.default_input_modes or (),
        default_output_modes=wire.default_output_modes or (),
        skills=tuple(_read_skill(skill, f"skills[{at}]") for at, skill in enumerate(wire.skills or ())),
        provider=fill(model.AgentProvider, provider, url=provider.url or "")
        if provider and provider.organization
        else None,
        documentation_url=wire.documentation_url or None,
        icon_url=wire.icon_url or None,
        security_schemes={name: _read_scheme(stated, f"securitySchemes.{name}") for name, stated in schemes},
        security_requirements=_read_security(wire.security, "security"),
        profile=None if history is None else model.CardProfile(state_transition_history=history),
    )


def _interfaces(wire: Any) -> tuple[model.AgentInterface, ...]:
    """Return the card's addresses without repetition; versions are compared by major and minor number only."""
    version = ".".join((wire.protocol_version or DEFAULT_VERSION).split(".")[:2])
    addresses = [(wire.url, wire.preferred_transport)]
    addresses += [(at.url, at.transport) for at in wire.additional_interfaces or ()]
    return tuple(
        model.AgentInterface(url=url, protocol_binding=transport, protocol_version=version)
        for url, transport in dict.fromkeys((url, transport or DEFAULT_TRANSPORT) for url, transport in addresses)
    )


def _read_skill(wire: Any, where: str) -> model.AgentSkill:
    return fill(
        model.AgentSkill,
        wire,
        name=wire.name or wire.id,
        description=wire.description or "",
        tags=wire.tags or (),
        security_requirements=_read_security(wire.security, f"{where}.security"),
    )


def _read_security(stated: list[Plain] | None, where: str) -> tuple[model.SecurityRequirement, ...]:
    """Read security requirements: `{name: [scopes]}`, or `{"schemes": {name: {"list": [scopes]}}}`."""
    requirements = []
    for at, requirement in enumerate(stated or ()):
        schemes = requirement["schemes"] if isinstance(requirement.get("schemes"), dict) else requirement
        scopes = {name: value if isinstance(value, dict) else {"list": value} for name, value in schemes.items()}
        try:
            requirements.append(model.SecurityRequirement(schemes=msgspec.convert(scopes, dict[str, model.Scopes])))
        except msgspec.ValidationError as error:
            raise invalid_field(f"{where}[{at}]", str(error).partition(" - at ")[0]) from None
    return tuple(requirements)


def _read_scheme(scheme: Plain, where: str) -> model.SecurityScheme:
    """Read a security scheme: by its `type`, or in the form of 1.0 and protobuf JSON."""
    if "type" in scheme:
        kind = str(scheme["type"])
        if kind not in _MEMBERS:
            raise invalid_field(f"{where}.type", f"Unknown security scheme {kind[:40]!r}")
        scheme = {_MEMBERS[kind]: {"location": scheme.get("in"), **scheme} if kind == "apiKey" else scheme}
    try:
        return msgspec.convert(_with_scopes(scheme), model.SecurityScheme)
    except msgspec.ValidationError as error:
        raise invalid_field(where, str(error).partition(" - at ")[0]) from None


def _with_scopes(scheme: Plain) -> Plain:
    """Return a scheme whose flows all have scopes, which protobuf leaves out when empty."""
    oauth = scheme.get("oauth2SecurityScheme")
    flows = oauth.get("flows") if isinstance(oauth, dict) else None
    if not isinstance(oauth, dict) or not isinstance(flows, dict):
        return scheme
    full = {name: {"scopes": {}} | flow if isinstance(flow, dict) else flow for name, flow in flows.items()}
    return scheme | {"oauth2SecurityScheme": oauth | {"flows": full}}


_MEMBERS = {kind: member for member, kind in _TYPES.items()}
