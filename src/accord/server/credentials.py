"""Credentials of a server for remote agents: key file, variables, and sealed ones in its store.

It reads the files that settings and variables name. `client.credentials` looks up, seals and opens credentials. This
module is imported only where there are remote agents.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from accord.client.credentials import Credential, KeyManager, Keys
from accord.client.credentials.credential import KEY_FILE_VARIABLE
from accord.client.credentials.sealed import CredentialSealer, SealedCredentials
from accord.engine.webhook_secrets import WebhookSecrets
from accord.server.settings import CredentialSettings, Settings
from accord.server.settings_loader import BadSettings
from accord.storage.address import PostgresAddress, SqliteAddress, default_address, open_store, parse_address
from accord.storage.store import Store

TENANT = ""
"""Tenant of a server's own credentials: the remote agents in its settings are for all tenants."""


class KeySources:
    """Credentials from several sources, of which the first with an id counts."""

    def __init__(self, *places: Keys) -> None:
        """Search `places` in this order."""
        self._places = places

    def find(self, id: str) -> Credential | None:
        """Return the credential with an id, or None."""
        return next((found for one in self._places if (found := one.find(id)) is not None), None)


async def own_keys(settings: Settings, env: Mapping[str, str]) -> Keys:
    """Return a server's current credentials. Raises KeyManagementError if they cannot be read or opened."""
    own = KeyManager(env.get(KEY_FILE_VARIABLE) or None, env=env)
    address = parse_address(settings.store) if settings.store else default_address(env)
    is_kept = not isinstance(address, SqliteAddress) or address.path is not None  # a new store in memory has none
    if not is_kept or not (settings.credentials.keys or settings.credentials.key_file):
        return own
    if isinstance(address, PostgresAddress):
        address = replace(address, listen=False, signals=())
    async with open_store(address, read_only=True) as store:
        return KeySources(own, await sealed_keys(store, settings.credentials).every(TENANT))


def sealed_keys(store: Store, settings: CredentialSettings) -> SealedCredentials:
    """Return the credentials of a store.

    Invalid or missing keys raise KeyManagementError, and a file that cannot be read raises BadSettings.
    """
    return SealedCredentials(store, seals_of(settings))


def seals_of(settings: CredentialSettings) -> CredentialSealer:
    """Return the sealer with the keys of the settings. Raises the errors of `sealed_keys`."""
    return CredentialSealer([*_in_file(settings.key_file), *settings.keys])


async def rotate_keys(store: Store, settings: CredentialSettings) -> int:
    """Seal credentials and webhook secrets with the newest key. Returns the number that were resealed."""
    seals = seals_of(settings)
    return await SealedCredentials(store, seals).rotate() + await WebhookSecrets(seals).reseal(store)


def _in_file(name: str | None) -> list[str]:
    if name is None:
        return []
    try:
        lines = Path(name).read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not base64"
        raise BadSettings(f"credentials.key_file: {name} cannot be read: {reason}") from None
    return [line for line in lines if line.strip()]
