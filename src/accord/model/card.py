"""Agent cards.

The fields are A2A 1.0's, validated leniently because cards come from other servers. Members of other dialects are in
`CardProfile`, `AgentSkill.input_schema` and `output_schema`, which a strict 1.0 card leaves out.
"""

from typing import Any

from accord.model.base import A2AModel, Metadata, NonEmpty
from accord.model.security import SecurityRequirement, SecurityScheme


class AgentInterface(A2AModel):
    """One address of the agent, with the binding and protocol version it serves there."""

    url: NonEmpty
    protocol_binding: NonEmpty
    protocol_version: NonEmpty
    tenant: str | None = None


class AgentProvider(A2AModel):
    """The organization that offers the agent."""

    url: str
    organization: NonEmpty


class AgentExtension(A2AModel):
    """A protocol extension that the agent supports or requires."""

    uri: str | None = None
    description: str | None = None
    required: bool = False
    params: Metadata | None = None


class AgentCapabilities(A2AModel):
    """The optional parts of A2A that the agent offers."""

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None


class AgentSkill(A2AModel):
    """One skill of the agent."""

    id: NonEmpty
    name: NonEmpty
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_requirements: tuple[SecurityRequirement, ...] = ()
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None


class CardSignature(A2AModel):
    """A JSON Web Signature over the card."""

    protected: NonEmpty
    signature: NonEmpty
    header: Metadata | None = None


class CardProfile(A2AModel):
    """Fields of AgentVault's registry and the generic dialect that A2A does not have."""

    human_readable_id: str | None = None
    schema_version: str | None = None
    a2a_version: str | None = None
    mcp_version: str | None = None
    tee_details: Metadata | None = None
    support_contact: str | None = None
    service_identifiers: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    capability_names: tuple[str, ...] = ()
    privacy_policy_url: str | None = None
    terms_of_service_url: str | None = None
    last_updated: str | None = None
    state_transition_history: bool | None = None


class AgentCard(A2AModel):
    """An agent's public description: identity, addresses, capabilities and skills."""

    name: NonEmpty
    description: str
    version: str
    supported_interfaces: tuple[AgentInterface, ...]
    capabilities: AgentCapabilities
    default_input_modes: tuple[str, ...]
    default_output_modes: tuple[str, ...]
    skills: tuple[AgentSkill, ...]
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    security_schemes: dict[str, SecurityScheme] = {}
    security_requirements: tuple[SecurityRequirement, ...] = ()
    signatures: tuple[CardSignature, ...] = ()
    profile: CardProfile | None = None
