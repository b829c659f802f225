"""The ways to sign in to the console, which are those of the server's own schemes that a person can use by hand.

Only what settings say: which headers a key goes into, who has a password, at which issuers people sign in, and what
sessions rest on. Trying credentials is the schemes' work, behind `core.access`.
"""

import base64
import json
from collections.abc import Sequence

from accord.auth.api_keys import PREFIX
from accord.auth.scheme_settings import AnyScheme, ApiKeys, Basic, Grant, Header, Jwt, SignIn
from accord.bindings.http import Headers

KEYS, PASSWORDS, SECRETS, ISSUERS = "api-keys", "basic", "header", "jwt"
"""The schemes, as callers are said to have used them."""


class Ways:
    """What there is."""

    def __init__(self, schemes: Sequence[AnyScheme]) -> None:
        """Read it from the settings of a server's schemes; what cannot work is a ValueError."""
        self.issuers: dict[str, tuple[Jwt, SignIn]] = {}
        self._headers: list[str] = []
        self._grounds: dict[str, dict[str, str]] = {}
        for scheme in schemes:
            self._add(scheme)

    def _add(self, scheme: AnyScheme) -> None:
        match scheme:
            case ApiKeys():
                self._headers.append(scheme.header)
                self._grounds[KEYS] = {}  # the store knows which keys there are
            case Header():
                self._headers.append(scheme.name)
                found = self._grounds.setdefault(SECRETS, {})
                found |= {one.secret: _ground(one.secret, one) for one in scheme.secrets}
            case Basic():
                found = self._grounds.setdefault(PASSWORDS, {})
                found |= {name: _ground(user.password, user) for name, user in scheme.users.items()}
            case Jwt(sign_in=SignIn() as sign_in):
                if sign_in.name in self.issuers:
                    raise ValueError("Issuers to sign in with need a `sign_in.name` each: it is in their addresses")
                self.issuers[sign_in.name] = scheme, sign_in
                found = self._grounds.setdefault(ISSUERS, {})
                found[sign_in.name] = json.dumps([scheme.issuer, sign_in.client_id])

    @property
    def takes_keys(self) -> bool:
        """Whether one signs in with a key or a secret."""
        return bool(self._headers)

    @property
    def takes_passwords(self) -> bool:
        """Whether one signs in with a name and a password."""
        return PASSWORDS in self._grounds

    @property
    def grounds(self) -> dict[str, tuple[str, ...]]:
        """What sessions may rest on, by scheme."""
        return {scheme: tuple(found.values()) for scheme, found in self._grounds.items()}

    def ground(self, scheme: str, name: str) -> str:
        """Return what the sessions of a user, a secret or an issuer rest on."""
        return self._grounds[scheme][name]

    def with_key(self, key: str) -> Headers:
        """Return the headers that present a key to every scheme that takes one."""
        return [(name.lower().encode("latin-1"), key.encode()) for name in self._headers]


def with_password(name: str, password: str) -> Headers:
    """Return the header that presents a name and a password."""
    return [(b"authorization", b"Basic " + base64.b64encode(f"{name}:{password}".encode()))]


def key_id(key: str) -> str:
    """Return the id of a key of the store."""
    return key.removeprefix(PREFIX).partition("_")[0]


def _ground(secret: str, grant: Grant) -> str:
    """Return what sessions rest on: a secret and what it grants, so that they end when either changes."""
    return json.dumps([secret, grant.owner, grant.tenant, grant.roles])
