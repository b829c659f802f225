"""Credentials by id: from a key file, else variables, else the system's keyring.

    keys = KeyManager(key_file_path="keys.json", use_keyring=True)
    keys.get_key("some-service")

Constructor and methods are those of AgentVault's `KeyManager`, and the names in the keyring are AgentVault's. `find`
is an addition and returns all secrets of an id at once.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from msgspec.structs import replace

from accord.client.credentials import credential, files
from accord.client.credentials.credential import (
    AGENTVAULT_KEY,
    AGENTVAULT_OAUTH,
    Credential,
    KeyManagementError,
    OAuthClient,
    VariablePrefixes,
    kinds_of,
    normalize_id,
    variable_suffix,
)

log = logging.getLogger("accord.keys")

MISSING = "The keyring needs an extra: pip install 'accord[keyring]'"
ID, SECRET = "clientId", "clientSecret"

_credential = msgspec.json.Decoder(Credential)


class NoKeyring(KeyManagementError):
    """This machine has no keyring."""


class OsKeyring:
    """Credentials in the keyring. Each id is read once and cached."""

    def __init__(self) -> None:
        self._known: dict[str, Credential | None] = {}

    def find_cached(self, id: str) -> Credential | None:
        """Return the cached credential of an id, without reading the keyring."""
        return self._known.get(normalize_id(id))

    def find(self, id: str) -> Credential | None:
        """Return the keyring's credential for an id.

        A keyring that fails counts as empty, and the failure is logged.
        """
        id = normalize_id(id)
        if id not in self._known:
            try:
                self._known[id] = _read(_keyring(), id)
            except NoKeyring as error:  # as on most servers: an absent keyring is not an error
                log.debug("keys.no_keyring", extra={"reason": str(error)})
                self._known[id] = None
            except KeyManagementError as error:
                log.warning("keys.keyring_failed", extra={"id": id, "reason": str(error)})
                self._known[id] = None
        return self._known[id]

    def put(self, id: str, credential: Credential) -> None:
        """Store a credential. Raises KeyManagementError if that fails."""
        id, keyring = normalize_id(id), _keyring()
        for service, user, secret in _places(id, credential):
            _call(keyring, "set_password", service, user, secret)
        rest = replace(credential, api_key=None, bearer=None, oauth=None)
        if kinds_of(rest):
            text = msgspec.json.encode(rest).decode()
            _call(keyring, "set_password", f"accord:{id}", id, text)
        self._known.pop(id, None)

    def remove(self, id: str) -> bool:
        """Remove all entries of an id. Returns False if there were none."""
        id, keyring = normalize_id(id), _keyring()
        everything = Credential(api_key="-", bearer="-", oauth=OAuthClient(client_id="-", client_secret="-"))
        places = [(service, user) for service, user, _ in _places(id, everything)] + [(f"accord:{id}", id)]
        there = [place for place in places if _call(keyring, "get_password", *place) is not None]
        for place in there:
            _call(keyring, "delete_password", *place)
        self._known.pop(id, None)
        return bool(there)


def _places(id: str, credential: Credential) -> list[tuple[str, str, str]]:
    """Return AgentVault's keyring entries for a credential: service, user, secret."""
    oauth = credential.oauth or OAuthClient()
    places = [
        (f"agentvault:{id}", id, credential.api_key),
        (f"agentvault:bearer:{id}", id, credential.bearer),
        (f"agentvault:oauth:{id}", ID, oauth.client_id),
        (f"agentvault:oauth:{id}", SECRET, oauth.client_secret),
    ]
    return [(service, user, secret) for service, user, secret in places if secret]


def _read(keyring: ModuleType, id: str) -> Credential | None:
    def ask(service: str, user: str) -> str | None:
        found: str | None = _call(keyring, "get_password", service, user)
        return found or None

    rest = ask(f"accord:{id}", id)
    try:
        found = _credential.decode(rest) if rest else Credential()
    except msgspec.MsgspecError:
        raise KeyManagementError(f"What the keyring has for accord:{id} is not a credential") from None
    client = OAuthClient(
        client_id=ask(f"agentvault:oauth:{id}", ID), client_secret=ask(f"agentvault:oauth:{id}", SECRET)
    )
    is_whole = client.client_id and client.client_secret  # half of it is useless, and AgentVault ignores it as well
    found = replace(
        found,
        api_key=ask(f"agentvault:{id}", id),
        bearer=ask(f"agentvault:bearer:{id}", id),
        oauth=client if is_whole else None,
    )
    return found if kinds_of(found) else None


def _keyring() -> ModuleType:
    try:
        import keyring
    except ImportError:
        raise KeyManagementError(MISSING) from None
    return keyring


def _call(keyring: ModuleType, function: str, *arguments: str) -> Any:
    """Call the keyring. Any exception of its backend becomes a KeyManagementError."""
    try:
        return getattr(keyring, function)(*arguments)
    except keyring.errors.NoKeyringError:
        raise NoKeyring("This machine has no keyring") from None
    except Exception as error:
        raise KeyManagementError(f"The keyring does not work: {type(error).__name__}") from error


FILE, ENV, KEYRING = "file", "env", "keyring"

ById = Mapping[str, Credential]


class KeyManager:
    """Looks credentials up by id. Case is ignored."""

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
        """Read the file and the variables. The keyring is read when an id is not found in them.

        Names with the prefix `ACCORD_` are read besides those with the given prefixes. `env` replaces the
        environment.
        """
        self.key_file_path = None if key_file_path is None else Path(key_file_path).resolve()
        self.use_env_vars = use_env_vars
        self.use_keyring = use_keyring
        self.env_prefix = AGENTVAULT_KEY if env_prefix is None else env_prefix
        self.oauth_env_prefix = AGENTVAULT_OAUTH if oauth_env_prefix is None else oauth_env_prefix
        naming = VariablePrefixes(self.env_prefix, self.oauth_env_prefix)
        self._file: ById = files.read_key_file(self.key_file_path, naming) if self.key_file_path else {}
        self._env: ById = credential.read_variables(os.environ if env is None else env, naming) if use_env_vars else {}
        self._keyring = OsKeyring() if use_keyring else None

    def __repr__(self) -> str:
        return f"KeyManager(key_file_path={self.key_file_path}, ids={self.ids()})"

    def get_key(self, service_id: str) -> str | None:
        """Return the API key of a service."""
        return self._part(service_id, "api_key")[0].api_key

    def get_key_source(self, service_id: str) -> str | None:
        """Return the source of a service's API key: `file`, `env` or `keyring`.

        `keyring` is returned only after the keyring was read.
        """
        return self._part(service_id, "api_key", asks=False)[1]

    def set_key_in_keyring(self, service_id: str, key_value: str) -> None:
        """Store an API key in the keyring."""
        self._put(service_id, Credential(api_key=_require_text(key_value, "key_value")))

    def get_oauth_client_id(self, service_id: str) -> str | None:
        """Return the OAuth client id for a service."""
        return self._oauth(service_id)[0].client_id

    def get_oauth_client_secret(self, service_id: str) -> str | None:
        """Return the OAuth client secret for a service."""
        return self._oauth(service_id)[0].client_secret

    def get_oauth_config_status(self, service_id: str) -> str:
        """Return a readable status of a service's OAuth client."""
        oauth, source = self._oauth(service_id)
        there = [part for part in (oauth.client_id, oauth.client_secret) if part]
        if not there or source is None:
            return "Not Configured"
        return f"{'Configured' if len(there) == 2 else 'Partially Configured'} (Source: {source.upper()})"

    def set_oauth_creds_in_keyring(self, service_id: str, client_id: str, client_secret: str) -> None:
        """Store an OAuth client in the keyring."""
        id, secret = _require_text(client_id, "client_id"), _require_text(client_secret, "client_secret")
        self._put(service_id, Credential(oauth=OAuthClient(client_id=id, client_secret=secret)))

    # --- bearer tokens, named like AgentVault's methods (C-14) --------------------------------------------------------

    def get_token(self, service_id: str) -> str | None:
        """Return the bearer token for a service."""
        return self._part(service_id, "bearer")[0].bearer

    def get_token_source(self, service_id: str) -> str | None:
        """Return the source of a service's bearer token."""
        return self._part(service_id, "bearer", asks=False)[1]

    def set_token_in_keyring(self, service_id: str, token: str) -> None:
        """Store a bearer token in the keyring."""
        self._put(service_id, Credential(bearer=_require_text(token, "token")))

    def find(self, id: str) -> Credential | None:
        """Return all parts stored under an id, each from the first source that has it."""
        merged = Credential()
        for name in Credential.__struct_fields__:
            merged = replace(merged, **{name: getattr(self._part(id, name)[0], name)})
        return merged if kinds_of(merged) else None

    def sources(self, id: str) -> dict[str, str]:
        """Return the source of each part stored under an id."""
        source_by_part = {name: self._part(id, name)[1] for name in Credential.__struct_fields__}
        return {name: source for name, source in source_by_part.items() if source is not None}

    def ids(self) -> list[str]:
        """Return the ids in the file and the variables. A keyring cannot be listed."""
        return sorted({*self._file, *self._env})

    def _oauth(self, id: str) -> tuple[OAuthClient, str | None]:
        found, source = self._part(id, "oauth")
        return found.oauth or OAuthClient(), source

    def _part(self, id: str, name: str, *, asks: bool = True) -> tuple[Credential, str | None]:
        """Return the first credential that has a part, and its source."""
        for source, found in self._places(id, asks):
            if found is not None and getattr(found, name):
                return found, source
        return Credential(), None

    def _places(self, id: str, asks: bool) -> Iterable[tuple[str, Credential | None]]:
        id = normalize_id(id)
        for source, known in ((FILE, self._file), (ENV, self._env)):
            yield source, known.get(id, _spelling_of(known, id))
        if self._keyring is not None:
            yield KEYRING, self._keyring.find(id) if asks else self._keyring.find_cached(id)

    def _put(self, id: str, credential: Credential) -> None:
        if self._keyring is None:
            raise KeyManagementError("The keyring is not in use: create the KeyManager with use_keyring=True")
        self._keyring.put(id, credential)


def _spelling_of(known: ById, id: str) -> Credential | None:
    """Return the credential of a variable whose name is a spelling of an id.

    Many hosts share one spelling. `_` is read as `.` or `:`, so a host with a hyphen needs ACCORD_HOSTS as well: the
    key of `api.good.example` is not for `api-good.example`.
    """
    found = known.get(variable_suffix(id))
    is_plain = "/" in id or not ("." in id or ":" in id) or re.fullmatch(r"[a-z0-9.:]*", id)
    return found if found is None or found.hosts or is_plain else None


def _require_text(value: Any, name: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError(f"{name} must be a non-empty string")
