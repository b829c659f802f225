"""Credentials in variables: `ACCORD_KEY_<ID>` and the like, and the names that AgentVault gave them.

A table of names says what each is; a `.env` file has the same names, and there everything else is the id of a key. The
environment itself is passed in.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from accord.client.keys.credential import Credential, OAuthClient, SigningKey, User, normalized

OWN = "ACCORD_"
"""What our own names begin with; where both have a value, ours counts."""

AGENTVAULT_KEY, AGENTVAULT_OAUTH = "AGENTVAULT_KEY_", "AGENTVAULT_OAUTH_"

CLIENT = {"_CLIENT_ID": "client_id", "_CLIENT_SECRET": "client_secret"}
"""How the names of OAuth's two parts end."""

Read = Callable[[str], Mapping[str, Any]]


class Naming(NamedTuple):
    """What the names of variables begin with, besides our own."""

    key: str = AGENTVAULT_KEY
    oauth: str = AGENTVAULT_OAUTH

    @property
    def token(self) -> str:
        """What goes with the name of keys; AgentVault itself has none (C-14)."""
        return self.key.removesuffix("KEY_") + "TOKEN_"


def _key(text: str) -> Mapping[str, Any]:
    return {"api_key": text}


def _token(text: str) -> Mapping[str, Any]:
    return {"bearer": text}


def _basic(text: str) -> Mapping[str, Any]:
    username, _, password = text.partition(":")
    return {"basic": User(username=username, password=password)}


def _hmac(text: str) -> Mapping[str, Any]:
    key_id, colon, secret = text.rpartition(":")
    return {"hmac": SigningKey(key_id=key_id if colon else "", secret=secret)}


def _hosts(text: str) -> Mapping[str, Any]:
    return {"hosts": tuple(host.strip() for host in text.split(",") if host.strip())}


OWN_NAMES: Mapping[str, Read] = {
    f"{OWN}KEY_": _key,
    f"{OWN}TOKEN_": _token,
    f"{OWN}BASIC_": _basic,
    f"{OWN}HMAC_": _hmac,
    f"{OWN}HOSTS_": _hosts,
}
"""What our names begin with, and what each says about the id that follows; OAuth's have two parts and are apart."""

OWN_OAUTH = f"{OWN}OAUTH_"

KEY_FILE = f"{OWN}KEYS"
"""The variable that names a key file to commands and servers; a `KeyManager` is told."""


def read(variables: Mapping[str, str], naming: Naming, *, others_are_keys: bool = False) -> dict[str, Credential]:
    """Return the credentials by id; in a file, names of no other meaning are ids of keys."""
    plain: dict[str, Read] = {naming.key: _key, naming.token: _token, **OWN_NAMES}
    oauth = (naming.oauth, OWN_OAUTH)
    found: dict[str, dict[str, Any]] = {}
    if others_are_keys:
        known = (*plain, *oauth)
        others = {name: text for name, text in variables.items() if not name.startswith(known)}
        _add(found, others, "", _key)
    for begins, reading in plain.items():  # later ones count, and ours are last
        _add(found, variables, begins, reading)
    clients: dict[str, dict[str, Any]] = {}
    for begins in oauth:
        for ends, part in CLIENT.items():
            for id, text in _named(variables, begins, ends):
                clients.setdefault(id, {})[part] = text
    for id, parts in clients.items():
        found.setdefault(id, {})["oauth"] = OAuthClient(**parts)
    return {id: Credential(**fields) for id, fields in found.items()}


def spelled(id: str) -> str:
    """Return an id as a variable can name it: what no shell takes in a name is an underscore."""
    return re.sub(r"[^a-z0-9_]", "_", normalized(id))


def _add(found: dict[str, dict[str, Any]], variables: Mapping[str, str], begins: str, reading: Read) -> None:
    for id, text in _named(variables, begins):
        found.setdefault(id, {}).update(reading(text))


def _named(variables: Mapping[str, str], begins: str, ends: str = "") -> list[tuple[str, str]]:
    """Return the ids and the values of the variables whose names begin and end so; empty ones say nothing."""
    cut = len(begins), -len(ends) or None
    return [
        (normalized(name[slice(*cut)]), text)
        for name, text in variables.items()
        if text and name.startswith(begins) and name.endswith(ends) and len(name) > len(begins) + len(ends)
    ]
