"""Credentials of a client, from files, variables, the system's keyring or a server's database.

`client.auth` sends them.
"""

from accord.client.credentials.credential import (
    Certificate,
    Credential,
    HmacKey,
    KeyManagementError,
    Keys,
    OAuthClient,
    UserPassword,
)
from accord.client.credentials.key_manager import KeyManager

__all__ = [
    "Certificate",
    "Credential",
    "HmacKey",
    "KeyManagementError",
    "KeyManager",
    "Keys",
    "OAuthClient",
    "UserPassword",
]
