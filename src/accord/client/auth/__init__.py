"""Ways to authenticate to agents, one file each, as generators that send nothing themselves.

`choice` picks one by what a card asks for, `driver` runs it. Credentials come from `client.keys`; the links above send.
"""

from accord.client.auth.certificates import Mtls
from accord.client.auth.choice import Chosen, NoCredentials, choose, chosen, ids_of
from accord.client.auth.driver import Driver
from accord.client.auth.flow import Auth, Flow
from accord.client.auth.oauth import ClientCredentials
from accord.client.auth.oidc import OpenIdConnect
from accord.client.auth.signed import Hmac
from accord.client.auth.stated import Anonymous, ApiKey, Basic, Bearer, CustomHeader
from accord.client.auth.together import Together, tls_of

__all__ = [
    "Anonymous",
    "ApiKey",
    "Auth",
    "Basic",
    "Bearer",
    "Chosen",
    "ClientCredentials",
    "CustomHeader",
    "Driver",
    "Flow",
    "Hmac",
    "Mtls",
    "NoCredentials",
    "OpenIdConnect",
    "Together",
    "choose",
    "chosen",
    "ids_of",
    "tls_of",
]
