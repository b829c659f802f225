"""A credential, and its form in environment variables.

Its JSON is an entry of a key file (AgentVault's `apiKey` and `oauth`, and more), its `repr` has no secrets. The
variables are `ACCORD_KEY_<ID>` and the like, and AgentVault's own names. In a `.env` file every other name is the id of
an API key.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from accord.protocol import urls


class SecretStruct(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of secrets. Its `repr` names only the fields that are set."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(kinds_of(self))})"


class OAuthClient(SecretStruct, frozen=True, kw_only=True):
    """An OAuth client. `parameters`, such as an audience, are sent to the token endpoint."""

    client_id: str | None = None
    client_secret: str | None = None
    parameters: dict[str, str] = {}


class UserPassword(SecretStruct, frozen=True, kw_only=True):
    """A user name with a password."""

    username: str
    password: str


class HmacKey(SecretStruct, frozen=True, kw_only=True):
    """A signing secret, and the agent's name for it."""

    secret: str
    key_id: str = ""


class Certificate(SecretStruct, frozen=True, kw_only=True):
    """The files of a client certificate, its key and the servers' authority, and the key's password.

    Without `ca`, the system's authorities apply.
    """

    file: str
    key: str | None = None
    password: str | None = None
    ca: str | None = None


class Credential(SecretStruct, frozen=True, kw_only=True):
    """All secrets under one id. With `hosts`, a card cannot have it sent to any other host."""

    api_key: str | None = None
    bearer: str | None = None
    oauth: OAuthClient | None = None
    basic: UserPassword | None = None
    hmac: HmacKey | None = None
    headers: dict[str, str] = {}
    certificate: Certificate | None = None
    hosts: tuple[str, ...] = ()


class Keys(Protocol):
    """A source of credentials."""

    def find(self, id: str) -> Credential | None:
        """Return the credential under an id. Case is ignored."""


class KeyManagementError(Exception):
    """Credentials could not be read or stored. The message has no secrets."""


def kinds_of(credential: Struct) -> list[str]:
    """Return the names of the set fields."""
    return [name for name in credential.__struct_fields__ if getattr(credential, name)]


def normalize_id(id: str) -> str:
    """Return an id in the form used for lookups."""
    return id.strip().lower()


def host_ids(url: str) -> list[str]:
    """Return the host of an address, with its port if it states one, then without."""
    parts = urls.split_url(url)
    host = (parts.hostname or "").removesuffix(".")
    return [] if not host else [host] if parts.port is None else [_with_port(host, parts.port), host]


def host_names(url: str) -> set[str]:
    """Return every name of an address's host: without a port, and with the stated or the default port."""
    names = host_ids(url)
    default = {"http": 80, "https": 443}.get(urls.split_url(url).scheme)
    return {*names, _with_port(names[0], default)} if len(names) == 1 and default else {*names}


def _with_port(host: str, port: int) -> str:
    """Return a host with a port. Without brackets, `::1` at port 80 would equal the host `::1:80`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_host_allowed(allowed: Collection[str], url: str) -> bool:
    """Whether an address is on one of a credential's hosts."""
    return not host_names(url).isdisjoint(host.lower() for host in allowed)


OWN_PREFIX = "ACCORD_"
"""Prefix of Accord's variable names. They take precedence over AgentVault's."""

AGENTVAULT_KEY, AGENTVAULT_OAUTH = "AGENTVAULT_KEY_", "AGENTVAULT_OAUTH_"

CLIENT_SUFFIXES = {"_CLIENT_ID": "client_id", "_CLIENT_SECRET": "client_secret"}
"""Suffixes of the variable names for an OAuth client's two parts."""

ReadVariable = Callable[[str], Mapping[str, Any]]


class VariablePrefixes(NamedTuple):
    """Prefixes of variable names besides `ACCORD_`."""

    key: str = AGENTVAULT_KEY
    oauth: str = AGENTVAULT_OAUTH

    @property
    def token(self) -> str:
        """The prefix of tokens, derived from the keys' prefix. AgentVault itself has none (C-14)."""
        return self.key.removesuffix("KEY_") + "TOKEN_"


def _basic(text: str) -> Mapping[str, Any]:
    username, _, password = text.partition(":")
    return {"basic": UserPassword(username=username, password=password)}


def _hmac(text: str) -> Mapping[str, Any]:
    key_id, colon, secret = text.rpartition(":")
    return {"hmac": HmacKey(key_id=key_id if colon else "", secret=secret)}


OWN_KEY, OWN_TOKEN, OWN_OAUTH = f"{OWN_PREFIX}KEY_", f"{OWN_PREFIX}TOKEN_", f"{OWN_PREFIX}OAUTH_"

OWN_NAMES: Mapping[str, ReadVariable] = {
    OWN_KEY: lambda text: {"api_key": text},
    OWN_TOKEN: lambda text: {"bearer": text},
    f"{OWN_PREFIX}BASIC_": _basic,
    f"{OWN_PREFIX}HMAC_": _hmac,
    f"{OWN_PREFIX}HOSTS_": lambda text: {"hosts": tuple(host.strip() for host in text.split(",") if host.strip())},
}
"""Prefix of an Accord variable -> the reader of its value; the id follows. OAuth's two parts are separate."""

KEY_FILE_VARIABLE = f"{OWN_PREFIX}KEYS"
"""The variable that names a key file to commands and servers. A `KeyManager` gets the path as an argument."""


def read_variables(
    variables: Mapping[str, str], naming: VariablePrefixes, *, others_are_keys: bool = False
) -> dict[str, Credential]:
    """Return the credentials by id.

    With `others_are_keys`, as in a file, every other name is the id of an API key.
    """
    plain: dict[str, ReadVariable] = {naming.key: OWN_NAMES[OWN_KEY], naming.token: OWN_NAMES[OWN_TOKEN], **OWN_NAMES}
    oauth = (naming.oauth, OWN_OAUTH)
    fields_by_id: dict[str, dict[str, Any]] = {}
    if others_are_keys:
        prefixes = (*plain, *oauth)
        others = {name: text for name, text in variables.items() if not name.startswith(prefixes)}
        _add(fields_by_id, others, "", OWN_NAMES[OWN_KEY])
    for begins, reading in plain.items():  # later entries replace earlier ones, and ours are last
        _add(fields_by_id, variables, begins, reading)
    clients: dict[str, dict[str, Any]] = {}
    for begins in oauth:
        for ends, part in CLIENT_SUFFIXES.items():
            for id, text in _matching_variables(variables, begins, ends):
                clients.setdefault(id, {})[part] = text
    for id, parts in clients.items():
        fields_by_id.setdefault(id, {})["oauth"] = OAuthClient(**parts)
    return {id: Credential(**fields) for id, fields in fields_by_id.items()}


def variable_suffix(id: str) -> str:
    """Return an id as a part of a variable name: characters that a shell does not allow become underscores."""
    return re.sub(r"[^a-z0-9_]", "_", normalize_id(id))


def _add(found: dict[str, dict[str, Any]], variables: Mapping[str, str], begins: str, reading: ReadVariable) -> None:
    for id, text in _matching_variables(variables, begins):
        found.setdefault(id, {}).update(reading(text))


def _matching_variables(variables: Mapping[str, str], begins: str, ends: str = "") -> list[tuple[str, str]]:
    """Return the ids and values of the variables with this prefix and suffix. Empty values are ignored."""
    cut = len(begins), -len(ends) or None
    return [
        (normalize_id(name[slice(*cut)]), text)
        for name, text in variables.items()
        if text and name.startswith(begins) and name.endswith(ends) and len(name) > len(begins) + len(ends)
    ]
