"""Where credentials are kept: files, variables, the operating system's keyring, and, sealed, a server's database.

It says nothing about how they are sent, which is `client.auth`.
"""

from accord.client.keys.credential import (
    Certificate,
    Credential,
    KeyManagementError,
    Keys,
    OAuthClient,
    SigningKey,
    User,
)
from accord.client.keys.lookup import KeyManager

__all__ = [
    "Certificate",
    "Credential",
    "KeyManagementError",
    "KeyManager",
    "Keys",
    "OAuthClient",
    "SigningKey",
    "User",
]
