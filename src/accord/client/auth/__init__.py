"""Authentication to agents.

`choice` picks a method that satisfies the card, `exchange` applies it. Credentials come from `client.credentials`.
"""

from accord.client.auth.choice import ChosenAuth, NoCredentials, choose_auth, choose_auth_with_ids, credential_ids
from accord.client.auth.oauth import ClientCredentials, OpenIdConnect
from accord.client.auth.schemes import (
    Anonymous,
    ApiKey,
    BasicAuth,
    Bearer,
    CombinedAuth,
    CustomHeader,
    HmacAuth,
    MtlsAuth,
    tls_of,
)
from accord.client.exchange import AuthDriver, AuthFlow, ClientAuth

__all__ = [
    "Anonymous",
    "ApiKey",
    "AuthDriver",
    "AuthFlow",
    "BasicAuth",
    "Bearer",
    "ChosenAuth",
    "ClientAuth",
    "ClientCredentials",
    "CombinedAuth",
    "CustomHeader",
    "HmacAuth",
    "MtlsAuth",
    "NoCredentials",
    "OpenIdConnect",
    "choose_auth",
    "choose_auth_with_ids",
    "credential_ids",
    "tls_of",
]
