"""Credentials by id: from a key file, else from variables, else from the operating system's keyring.

    keys = KeyManager(key_file_path="keys.json", use_keyring=True)
    keys.get_key("some-service")

Its constructor and methods are those of AgentVault's `KeyManager`, so code written for that works; `find` is ours and
gives everything at once. What a server keeps in its database is `sealed`; what a card asks for is `client.auth.choice`.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from accord.client.keys import files, variables
from accord.client.keys.credential import Credential, KeyManagementError, OAuthClient, kinds_of, normalized
from accord.client.keys.os_keyring import OsKeyring
from accord.client.keys.variables import AGENTVAULT_KEY, AGENTVAULT_OAUTH, Naming, spelled

FILE, ENV, KEYRING = "file", "env", "keyring"

ById = Mapping[str, Credential]


class KeyManager:
    """Looks credentials up; ids have no case."""

    def __init__(
        self,
        key_file_path: str | Path | None = None,
        use_env_vars: bool = True,
        use_keyring: bool = False,
        env_prefix: str | None = AGENTVAULT_KEY,
        oauth_env_prefix: str | None = AGENTVAULT_OAUTH,
        *,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Read the file and the variables now; the keyring is asked when an id is found nowhere else.

        The names that begin with `ACCORD_` are read beside those of the prefixes. `env` takes the environment's place.
        """
        self.key_file_path = None if key_file_path is None else Path(key_file_path).resolve()
        self.use_env_vars = use_env_vars
        self.use_keyring = use_keyring
        self.env_prefix = AGENTVAULT_KEY if env_prefix is None else env_prefix
        self.oauth_env_prefix = AGENTVAULT_OAUTH if oauth_env_prefix is None else oauth_env_prefix
        naming = Naming(self.env_prefix, self.oauth_env_prefix)
        self._file: ById = files.read(self.key_file_path, naming) if self.key_file_path else {}
        self._env: ById = variables.read(os.environ if env is None else env, naming) if use_env_vars else {}
        self._keyring = OsKeyring() if use_keyring else None

    def __repr__(self) -> str:
        return f"KeyManager(key_file_path={self.key_file_path}, ids={self.ids()})"

    # --- AgentVault's ------------------------------------------------------------------------------------------------

    def get_key(self, service_id: str) -> str | None:
        """Return the API key of a service."""
        return self._part(service_id, "api_key")[0].api_key

    def get_key_source(self, service_id: str) -> str | None:
        """Return where the API key of a service is from: `file`, `env` or `keyring`; the latter once it was asked."""
        return self._part(service_id, "api_key", asks=False)[1]

    def set_key_in_keyring(self, service_id: str, key_value: str) -> None:
        """Keep an API key in the keyring."""
        self._put(service_id, Credential(api_key=_stated(key_value, "key_value")))

    def get_oauth_client_id(self, service_id: str) -> str | None:
        """Return the OAuth client id for a service."""
        oauth = self._part(service_id, "oauth")[0].oauth
        return oauth.client_id if oauth else None

    def get_oauth_client_secret(self, service_id: str) -> str | None:
        """Return the OAuth client secret for a service."""
        oauth = self._part(service_id, "oauth")[0].oauth
        return oauth.client_secret if oauth else None

    def get_oauth_config_status(self, service_id: str) -> str:
        """Say for a person whether there is an OAuth client for a service."""
        found, source = self._part(service_id, "oauth")
        oauth = found.oauth or OAuthClient()
        there = [part for part in (oauth.client_id, oauth.client_secret) if part]
        if not there or source is None:
            return "Not Configured"
        return f"{'Configured' if len(there) == 2 else 'Partially Configured'} (Source: {source.upper()})"

    def set_oauth_creds_in_keyring(self, service_id: str, client_id: str, client_secret: str) -> None:
        """Keep an OAuth client in the keyring."""
        id, secret = _stated(client_id, "client_id"), _stated(client_secret, "client_secret")
        self._put(service_id, Credential(oauth=OAuthClient(client_id=id, client_secret=secret)))

    # --- bearer tokens, named as AgentVault would have (C-14) ---------------------------------------------------------

    def get_token(self, service_id: str) -> str | None:
        """Return the bearer token for a service."""
        return self._part(service_id, "bearer")[0].bearer

    def get_token_source(self, service_id: str) -> str | None:
        """Return where the bearer token for a service is from."""
        return self._part(service_id, "bearer", asks=False)[1]

    def set_token_in_keyring(self, service_id: str, token: str) -> None:
        """Keep a bearer token in the keyring."""
        self._put(service_id, Credential(bearer=_stated(token, "token")))

    # --- everything at once -------------------------------------------------------------------------------------------

    def find(self, id: str) -> Credential | None:
        """Return everything known under an id; each part is from the first place that has it."""
        found = Credential()
        for name in Credential.__struct_fields__:
            found = replace(found, **{name: getattr(self._part(id, name)[0], name)})
        return found if kinds_of(found) else None

    def sources(self, id: str) -> dict[str, str]:
        """Return where each part that is known under an id is from."""
        found = {name: self._part(id, name)[1] for name in Credential.__struct_fields__}
        return {name: source for name, source in found.items() if source is not None}

    def ids(self) -> list[str]:
        """Return the ids in the file and the variables; a keyring cannot be listed."""
        return sorted({*self._file, *self._env})

    def _part(self, id: str, name: str, *, asks: bool = True) -> tuple[Credential, str | None]:
        """Return the first credential that has a part, and where it is from."""
        for source, found in self._places(id, asks):
            if found is not None and getattr(found, name):
                return found, source
        return Credential(), None

    def _places(self, id: str, asks: bool) -> Iterable[tuple[str, Credential | None]]:
        id = normalized(id)
        for source, known in ((FILE, self._file), (ENV, self._env)):
            yield source, known.get(id, _spelled(known, id))
        if self._keyring is not None:
            yield KEYRING, self._keyring.find(id) if asks else self._keyring.asked(id)

    def _put(self, id: str, credential: Credential) -> None:
        if self._keyring is None:
            raise KeyManagementError("The keyring is not in use: make the KeyManager with use_keyring=True")
        self._keyring.put(id, credential)


def _spelled(known: ById, id: str) -> Credential | None:
    """Return what a variable's name has for an id.

    Many hosts share one spelling. `_` is read as `.` or `:`, so a host with a hyphen needs ACCORD_HOSTS as well: the
    key of `api.good.example` is not for `api-good.example`.
    """
    found = known.get(spelled(id))
    is_plain = "/" in id or not ("." in id or ":" in id) or re.fullmatch(r"[a-z0-9.:]*", id)
    return found if found is None or found.hosts or is_plain else None


def _stated(value: Any, name: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError(f"{name} must be a non-empty string")
