"""AgentVault's agent card, to and from the model.

Members that its registry requires and a card lacks are derived: the id from provider and name, the provider from the
address. Security schemes become one of AgentVault's four:

- an API key
- client credentials, its only OAuth flow
- bearer, for every other way to a token
- none, only for an agent that accepts everyone

Other schemes (keys outside a header, Basic, signatures, client certificates) are left out if there is an alternative.
If not, the nearest scheme represents them and its description states the actual one.
"""

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.json import Decoder

from accord import model
from accord.model.base import Metadata, NonEmpty
from accord.protocol import codec, http_headers
from accord.protocol.codec import invalid_field
from accord.protocol.dialects.fields import address_of_version, fill, without_none, write_fields
from accord.protocol.dialects.vault.objects import is_http
from accord.protocol.urls import slug

SCHEMA_VERSION = "1.0"
PROFILE_VERSION = "0.2"
API_KEY_HEADER = "X-Api-Key"

_TEE = frozenset({"type", "attestationEndpoint", "publicKey", "description"})
_PART_MODES = {"text": "text/plain", "data": "application/json", "file": "application/octet-stream"}


class ProviderIn(Struct):
    """The provider of the agent."""

    name: NonEmpty
    url: str | None = None
    support_contact: str | None = None


class CapabilitiesIn(Struct, rename="camel"):
    """Capabilities of the agent's endpoint."""

    a2a_version: str = field(name="a2aVersion")
    mcp_version: str | None = None
    supported_message_parts: list[str] | None = None
    tee_details: Metadata | None = None
    supports_push_notifications: bool | None = None


class AuthIn(Struct):
    """One authentication scheme."""

    scheme: str
    description: str | None = None
    token_url: str | None = field(default=None, name="tokenUrl")
    scopes: list[str] | None = None
    service_identifier: str | None = None


class VaultSkillIn(Struct):
    """One thing the agent can do."""

    id: NonEmpty
    name: NonEmpty
    description: str
    input_schema: Metadata | None = None
    output_schema: Metadata | None = None


class VaultCardIn(Struct, rename="camel"):
    """A card."""

    schema_version: str
    human_readable_id: str
    agent_version: str
    name: NonEmpty
    description: str
    url: NonEmpty
    provider: ProviderIn
    capabilities: CapabilitiesIn
    auth_schemes: list[AuthIn]
    skills: list[VaultSkillIn] | None = None
    tags: list[str] | None = None
    privacy_policy_url: str | None = None
    terms_of_service_url: str | None = None
    icon_url: str | None = None
    last_updated: str | None = None


_CARD = Decoder(VaultCardIn)
_SKILL = {name: name for name in VaultSkillIn.__struct_fields__}


# --- writing ------------------------------------------------------------------------------------------------------


def write_card(card: model.AgentCard) -> dict[str, Any]:
    """Write a card."""
    profile = card.profile or model.CardProfile()
    url = address_of_version(card, profile.a2a_version or PROFILE_VERSION) or ""
    owner = card.provider.organization if card.provider else urlsplit(url).hostname or card.name
    tags = profile.tags or tuple(dict.fromkeys(tag for skill in card.skills for tag in skill.tags))
    return without_none(
        schemaVersion=profile.schema_version or SCHEMA_VERSION,
        humanReadableId=profile.human_readable_id or f"{slug(owner)}/{slug(card.name)}",
        agentVersion=card.version,
        name=card.name,
        description=card.description,
        url=url,
        provider=without_none(
            name=owner,
            url=_http(card.provider.url if card.provider else None),
            support_contact=profile.support_contact,
        ),
        capabilities=without_none(
            a2aVersion=profile.a2a_version or PROFILE_VERSION,
            mcpVersion=profile.mcp_version,
            supportedMessageParts=_message_parts(card.default_input_modes) or None,
            teeDetails=_write_tee(profile.tee_details),
            supportsPushNotifications=card.capabilities.push_notifications,
        ),
        authSchemes=_write_auth(card, profile),
        skills=[write_fields(skill, _SKILL) for skill in card.skills] or None,
        tags=list(tags) or None,
        privacyPolicyUrl=_http(profile.privacy_policy_url),
        termsOfServiceUrl=_http(profile.terms_of_service_url),
        iconUrl=_http(card.icon_url),
        lastUpdated=profile.last_updated,
    )


def _http(url: str | None) -> str | None:
    return url if is_http(url) else None


def _message_parts(modes: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(_part_of(mode) for mode in modes))


def _part_of(mode: str) -> str:
    if mode.startswith("text/") or mode == "text":
        return "text"
    return "data" if mode.endswith("json") else "file"


def _write_tee(details: Metadata | None) -> dict[str, Any] | None:
    """Write AgentVault's fields of a trusted execution environment, if its type is known."""
    members = {name: value for name, value in (details or {}).items() if name in _TEE and isinstance(value, str)}
    if not is_http(members.get("attestationEndpoint")):
        members.pop("attestationEndpoint", None)
    return members if "type" in members else None


def _write_auth(card: model.AgentCard, profile: model.CardProfile) -> list[dict[str, Any]]:
    schemes = card.security_schemes
    required = dict.fromkeys(name for requirement in card.security_requirements for name in requirement.schemes)
    written_schemes = {
        name: written_scheme for name, scheme in schemes.items() if (written_scheme := _write_scheme(scheme))
    }
    ways_in = written_schemes or {name: _write_nearest(name, schemes.get(name)) for name in schemes or required}
    written = [
        way | without_none(service_identifier=profile.service_identifiers.get(name)) for name, way in ways_in.items()
    ]
    optional = any(not requirement.schemes for requirement in card.security_requirements)
    return [*written, {"scheme": "none"}] if optional or not written else written


def _write_scheme(scheme: model.SecurityScheme) -> dict[str, Any] | None:
    if key := scheme.api_key_security_scheme:
        is_key = key.location == "header" and not http_headers.is_signature_scheme(key)
        return without_none(scheme="apiKey", description=key.description) if is_key else None
    if http := scheme.http_auth_security_scheme:
        bearer = http.scheme.lower() == "bearer"
        return without_none(scheme="bearer", description=http.description) if bearer else None
    if oauth := scheme.oauth2_security_scheme:
        flow = oauth.flows.client_credentials
        if flow is None or not is_http(flow.token_url):
            return without_none(scheme="bearer", description=oauth.description)
        return without_none(
            scheme="oauth2",
            description=oauth.description,
            tokenUrl=flow.token_url,
            scopes=list(flow.scopes) or None,
        )
    if connect := scheme.open_id_connect_security_scheme:
        return without_none(scheme="bearer", description=connect.description)
    return None


def _write_nearest(name: str, scheme: model.SecurityScheme | None) -> dict[str, Any]:
    """Write the nearest scheme where AgentVault has no equivalent.

    A key remains a key, in any place. For the others bearer is nearest: AgentVault's own client does not support it, so
    it reports that it cannot authenticate instead of sending a key that was not requested.
    """
    if scheme is None:
        return {"scheme": "bearer", "description": f"{name}, which the card does not describe"}
    if key := scheme.api_key_security_scheme:
        if http_headers.is_signature_scheme(key):
            return {
                "scheme": "bearer",
                "description": _named_modes(f"A signature in the header {key.name}", key.description),
            }
        place = "query parameter" if key.location == "query" else key.location
        return {
            "scheme": "apiKey",
            "description": _named_modes(f"The key goes into the {place} {key.name}", key.description),
        }
    if http := scheme.http_auth_security_scheme:
        return {"scheme": "bearer", "description": _named_modes(f"HTTP {http.scheme} authentication", http.description)}
    certificate = scheme.mtls_security_scheme
    own = certificate.description if certificate else None
    return {"scheme": "bearer", "description": _named_modes("Mutual TLS with a client certificate", own)}


def _named_modes(meaning: str, own: str | None) -> str:
    return f"{meaning}: {own}" if own else meaning


# --- reading ------------------------------------------------------------------------------------------------------


def read_card(card: bytes) -> model.AgentCard:
    """Read a card."""
    wire = codec.decode(card, _CARD)
    names, schemes, requirements = _read_auth(wire.auth_schemes)
    can = wire.capabilities
    modes = tuple(_PART_MODES.get(part, part) for part in can.supported_message_parts or ())
    return model.AgentCard(
        name=wire.name,
        description=wire.description,
        version=wire.agent_version,
        supported_interfaces=(
            model.AgentInterface(url=wire.url, protocol_binding="JSONRPC", protocol_version=can.a2a_version),
        ),
        capabilities=model.AgentCapabilities(streaming=True, push_notifications=can.supports_push_notifications),
        default_input_modes=modes,
        default_output_modes=modes,
        skills=tuple(fill(model.AgentSkill, skill, tags=()) for skill in wire.skills or ()),
        provider=model.AgentProvider(organization=wire.provider.name, url=wire.provider.url or ""),
        icon_url=wire.icon_url,
        security_schemes=schemes,
        security_requirements=requirements,
        profile=_read_profile(wire, names),
    )


def _read_profile(wire: VaultCardIn, service_identifiers: dict[str, str]) -> model.CardProfile:
    fields = {
        "a2a_version": wire.capabilities.a2a_version,
        "mcp_version": wire.capabilities.mcp_version,
        "tee_details": wire.capabilities.tee_details,
        "support_contact": wire.provider.support_contact,
        "tags": tuple(wire.tags or ()),
    }
    return fill(model.CardProfile, wire, service_identifiers=service_identifiers, **fields)


def _read_auth(
    wire: list[AuthIn],
) -> tuple[dict[str, str], dict[str, model.SecurityScheme], tuple[model.SecurityRequirement, ...]]:
    """Return service identifiers and schemes by name, and one requirement for each scheme."""
    identifiers: dict[str, str] = {}
    schemes: dict[str, model.SecurityScheme] = {}
    requirements: list[model.SecurityRequirement] = []
    for at, auth in enumerate(wire):
        scheme = _read_scheme(auth, f"authSchemes[{at}]")
        if scheme is None:
            requirements.append(model.SecurityRequirement())
            continue
        name = auth.scheme if auth.scheme not in schemes else f"{auth.scheme}{at + 1}"
        schemes[name] = scheme
        requirements.append(model.SecurityRequirement(schemes={name: model.Scopes(list=tuple(auth.scopes or ()))}))
        if auth.service_identifier is not None:
            identifiers[name] = auth.service_identifier
    return identifiers, schemes, tuple(requirements) if schemes else ()


def _read_scheme(wire: AuthIn, where: str) -> model.SecurityScheme | None:
    match wire.scheme:
        case "none":
            return None
        case "apiKey":
            key = model.ApiKeyScheme(location="header", name=API_KEY_HEADER, description=wire.description)
            return model.SecurityScheme(api_key_security_scheme=key)
        case "bearer":
            return model.SecurityScheme(
                http_auth_security_scheme=model.HttpAuthScheme(scheme="Bearer", description=wire.description)
            )
        case "oauth2":
            if not wire.token_url:
                raise invalid_field(f"{where}.tokenUrl", "Required field is missing")
            flow = model.ClientCredentialsFlow(token_url=wire.token_url, scopes=dict.fromkeys(wire.scopes or (), ""))
            oauth = model.OAuth2Scheme(flows=model.OAuthFlows(client_credentials=flow), description=wire.description)
            return model.SecurityScheme(oauth2_security_scheme=oauth)
    raise invalid_field(f"{where}.scheme", f"Unknown scheme {wire.scheme[:40]!r}")
