"""Security schemes and requirements of a card, in A2A 1.0's form.

`auth.authentication` enforces them, `client` satisfies them. Other dialects have two other spellings.
"""

from accord.model.base import A2AModel, NonEmpty


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
