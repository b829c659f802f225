"""Credentials of a server for remote agents: key file, variables, and sealed ones in its store.

It reads the files that settings and variables name; `client.credentials` looks up, seals and opens. It is imported only
where there are remote agents.
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
"""Whose credentials a server's own are: the agents elsewhere that its settings name are every tenant's."""


class KeySources:
    """What the first place that knows an id has."""

    def __init__(self, *places: Keys) -> None:
        """Ask `places` in this order."""
        self._places = places

    def find(self, id: str) -> Credential | None:
        """Return what is known under an id."""
        return next((found for one in self._places if (found := one.find(id)) is not None), None)


async def own_keys(settings: Settings, env: Mapping[str, str]) -> Keys:
    """Return what a server has now; what it may not read, or cannot open, is a KeyManagementError."""
    own = KeyManager(env.get(KEY_FILE_VARIABLE) or None, env=env)
    address = parse_address(settings.store) if settings.store else default_address(env)
    is_kept = not isinstance(address, SqliteAddress) or address.path is not None  # memory has nothing from before
    if not is_kept or not (settings.credentials.keys or settings.credentials.key_file):
        return own
    if isinstance(address, PostgresAddress):
        address = replace(address, listen=False, signals=())
    async with open_store(address, read_only=True) as store:
        return KeySources(own, await sealed_keys(store, settings.credentials).every(TENANT))


def sealed_keys(store: Store, settings: CredentialSettings) -> SealedCredentials:
    """Return the credentials of a store.

    Keys that are none, or missing, are a KeyManagementError; a file that cannot be read is BadSettings.
    """
    return SealedCredentials(store, seals_of(settings))


def seals_of(settings: CredentialSettings) -> CredentialSealer:
    """Return the keys that settings have for what the store keeps sealed; raises what `sealed_keys` does."""
    return CredentialSealer([*_in_file(settings.key_file), *settings.keys])


async def rotate_keys(store: Store, settings: CredentialSettings) -> int:
    """Seal credentials and the secrets of webhooks with the newest key; return how many were not."""
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
