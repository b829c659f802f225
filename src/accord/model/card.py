"""Agent cards, and the security schemes and requirements that they state.

The fields are A2A 1.0's, validated leniently because cards come from other servers. Members of other dialects are in
`CardProfile`, `AgentSkill.input_schema` and `output_schema`, which a strict 1.0 card leaves out.
`auth.authentication` enforces security schemes, `client` satisfies them.
"""

from typing import Any

from accord.model.base import A2AModel, Metadata, NonEmpty


class ApiKeyScheme(A2AModel):
    """A key in a header, query parameter or cookie."""

    location: NonEmpty
    name: NonEmpty
    description: str | None = None


class HttpAuthScheme(A2AModel):
    """An HTTP authentication scheme such as `Bearer` or `Basic`."""

    scheme: NonEmpty
    bearer_format: str | None = None
    description: str | None = None


class AuthorizationCodeFlow(A2AModel):
    """OAuth 2.0 authorization code."""

    authorization_url: NonEmpty
    token_url: NonEmpty
    scopes: dict[str, str]
    refresh_url: str | None = None
    pkce_required: bool = False


class ClientCredentialsFlow(A2AModel):
    """OAuth 2.0 client credentials."""

    token_url: NonEmpty
    scopes: dict[str, str]
    refresh_url: str | None = None


class ImplicitFlow(A2AModel):
    """OAuth 2.0 implicit; deprecated by A2A 1.0, still read."""

    authorization_url: str | None = None
    scopes: dict[str, str] = {}
    refresh_url: str | None = None


class PasswordFlow(A2AModel):
    """OAuth 2.0 password; deprecated by A2A 1.0, still read."""

    token_url: str | None = None
    scopes: dict[str, str] = {}
    refresh_url: str | None = None


class DeviceCodeFlow(A2AModel):
    """OAuth 2.0 device code."""

    device_authorization_url: NonEmpty
    token_url: NonEmpty
    scopes: dict[str, str]
    refresh_url: str | None = None


class OAuthFlows(A2AModel):
    """Exactly one flow in A2A 1.0; 0.3 allows several."""

    authorization_code: AuthorizationCodeFlow | None = None
    client_credentials: ClientCredentialsFlow | None = None
    implicit: ImplicitFlow | None = None
    password: PasswordFlow | None = None
    device_code: DeviceCodeFlow | None = None


class OAuth2Scheme(A2AModel):
    """OAuth 2.0."""

    flows: OAuthFlows
    oauth2_metadata_url: str | None = None
    description: str | None = None


class OpenIdConnectScheme(A2AModel):
    """OpenID Connect by discovery."""

    open_id_connect_url: NonEmpty
    description: str | None = None


class MutualTlsScheme(A2AModel):
    """A client certificate."""

    description: str | None = None


class SecurityScheme(A2AModel):
    """Exactly one way to authenticate."""

    api_key_security_scheme: ApiKeyScheme | None = None
    http_auth_security_scheme: HttpAuthScheme | None = None
    oauth2_security_scheme: OAuth2Scheme | None = None
    open_id_connect_security_scheme: OpenIdConnectScheme | None = None
    mtls_security_scheme: MutualTlsScheme | None = None

    def __post_init__(self) -> None:
        """Refuse a scheme without a form or with several."""
        if sum(getattr(self, name) is not None for name in self.__struct_fields__) != 1:
            raise ValueError("A security scheme needs exactly one of its five forms")


class Scopes(A2AModel):
    """The required scopes of one scheme."""

    list: tuple[str, ...] = ()


class SecurityRequirement(A2AModel):
    """Schemes that are required together; a list of requirements offers alternatives."""

    schemes: dict[str, Scopes] = {}


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
