"""Places of credentials: the user's key file, the system's keyring, a server's store."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accord.client.credentials import Credential, KeyManager
    from accord.client.credentials.sealed import SealedCredentials


def key_file(given: Path | None, env: Mapping[str, str]) -> Path:
    """Return the user's key file: the named one, else the default in the user's configuration directory."""
    named = _named(given, env)
    if named is not None:
        return named
    home = Path(env.get("HOME") or Path.home())
    base = Path(env.get("XDG_CONFIG_HOME") or env.get("APPDATA") or home / ".config")
    return base / "accord" / "credentials.json"


def _named(given: Path | None, env: Mapping[str, str]) -> Path | None:
    from accord.client.credentials.credential import KEY_FILE_VARIABLE

    return given or (Path(env[KEY_FILE_VARIABLE]).expanduser() if env.get(KEY_FILE_VARIABLE) else None)


def user_keys(given: Path | None = None) -> "KeyManager":
    """Return the user's credentials: of the key file, variables and keyring."""
    from accord.cli.failures import command_error
    from accord.client.credentials import KeyManagementError, KeyManager

    env = os.environ
    path = key_file(given, env)
    is_meant = _named(given, env) is not None  # then a missing file is an error
    try:
        return KeyManager(
            path if is_meant or path.exists() else None,
            use_keyring=find_spec("keyring") is not None,
            env=env,
        )
    except KeyManagementError as error:
        raise command_error(str(error)) from None


class FilePlace:
    """A key file."""

    def __init__(self, path: Path) -> None:
        """Use the file at `path`."""
        self._path = path
        self.name = str(path)

    async def get(self, id: str) -> "Credential | None":
        """Return an entry."""
        from accord.client.credentials import files
        from accord.client.credentials.credential import normalize_id

        return files.read_key_file(self._path).get(normalize_id(id)) if self._path.exists() else None

    async def put(self, id: str, credential: "Credential") -> None:
        """Write an entry."""
        from accord.client.credentials import files

        files.write_entry(self._path, id, credential)

    async def remove(self, id: str) -> bool:
        """Remove an entry."""
        from accord.client.credentials import files

        is_there = await self.get(id) is not None
        if is_there:
            files.write_entry(self._path, id, None)
        return is_there


class KeyringPlace:
    """The operating system's keyring."""

    name = "the keyring"

    def __init__(self) -> None:
        """Load the keyring module."""
        from accord.client.credentials.key_manager import OsKeyring

        self._keyring = OsKeyring()

    async def get(self, id: str) -> "Credential | None":
        """Return the entry of an id."""
        return self._keyring.find(id)

    async def put(self, id: str, credential: "Credential") -> None:
        """Store the entry of an id."""
        self._keyring.put(id, credential)

    async def remove(self, id: str) -> bool:
        """Remove the entry of an id."""
        return self._keyring.remove(id)


class StorePlace:
    """A server's store, with sealed credentials."""

    name = "the store"

    def __init__(self, keys: "SealedCredentials", tenant: str) -> None:
        """Use the credentials of one tenant."""
        self.keys = keys
        self.tenant = tenant

    async def get(self, id: str) -> "Credential | None":
        """Open a credential."""
        return await self.keys.get(self.tenant, id)

    async def put(self, id: str, credential: "Credential") -> None:
        """Seal and store a credential."""
        await self.keys.put(self.tenant, id, credential)

    async def remove(self, id: str) -> bool:
        """Remove a credential."""
        return await self.keys.remove(self.tenant, id)


CredentialPlace = FilePlace | KeyringPlace | StorePlace
"""A storage of credentials, by ID; `name` is for people."""


@asynccontextmanager
async def store_place(url: str | None, tenant: str) -> AsyncIterator[StorePlace]:
    """Open a server's store, with the keys of its settings."""
    from accord.cli.database import open_existing_store
    from accord.server.credentials import sealed_keys
    from accord.server.settings_loader import credentials_of

    settings = credentials_of(os.environ)
    async with open_existing_store(url) as store:
        yield StorePlace(sealed_keys(store, settings), tenant)
