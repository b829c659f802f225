"""What is known about how to get in somewhere, under one id: a key, a token, a client's id and secret, and so on.

Its JSON is that of an entry in a key file (AgentVault's `apiKey` and `oauth`, and more beside them), its `repr` has no
secrets. Where it comes from is for the other files of this folder, what a card asks for `client.auth.choice`.
"""

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from accord.protocol import hosts


class Private(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of what must not be shown: its `repr` says which of its fields are there."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(kinds_of(self))})"


class OAuthClient(Private, frozen=True, kw_only=True):
    """Who this client is to a token endpoint; `parameters` are sent along, such as an audience."""

    client_id: str | None = None
    client_secret: str | None = None
    parameters: dict[str, str] = {}


class User(Private, frozen=True, kw_only=True):
    """A name with a password."""

    username: str
    password: str


class SigningKey(Private, frozen=True, kw_only=True):
    """A secret to sign with, and the name by which the agent knows it."""

    secret: str
    key_id: str = ""


class Certificate(Private, frozen=True, kw_only=True):
    """The files of a client certificate, of its key and of the authority that servers are vouched for by (else the
    system's), and what unlocks the key.
    """

    file: str
    key: str | None = None
    password: str | None = None
    ca: str | None = None


class Credential(Private, frozen=True, kw_only=True):
    """Everything under one id. If there are `hosts`, it is for those alone: a card cannot have it sent elsewhere."""

    api_key: str | None = None
    bearer: str | None = None
    oauth: OAuthClient | None = None
    basic: User | None = None
    hmac: SigningKey | None = None
    headers: dict[str, str] = {}
    certificate: Certificate | None = None
    hosts: tuple[str, ...] = ()


class Keys(Protocol):
    """Where credentials are looked up."""

    def find(self, id: str) -> Credential | None:
        """Return what is known under an id, whose case does not matter."""


class KeyManagementError(Exception):
    """Credentials could not be read or kept; the message has no secrets."""


def kinds_of(credential: Struct) -> list[str]:
    """Return the names of what is there."""
    return [name for name in credential.__struct_fields__ if getattr(credential, name)]


def normalized(id: str) -> str:
    """Return an id as it is looked up."""
    return id.strip().lower()


def host_ids(url: str) -> list[str]:
    """Return the host of an address, with its port if it states one, then without."""
    parts = hosts.split(url)
    host = (parts.hostname or "").removesuffix(".")
    return [] if not host else [host] if parts.port is None else [_with_port(host, parts.port), host]


def host_names(url: str) -> set[str]:
    """Return every name of an address's host: without a port, and with the stated or the default one."""
    names = host_ids(url)
    default = {"http": 80, "https": 443}.get(hosts.split(url).scheme)
    return {*names, _with_port(names[0], default)} if len(names) == 1 and default else {*names}


def _with_port(host: str, port: int) -> str:
    """Return a host with a port. Without brackets, `::1` at port 80 would be the same as the host `::1:80`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_for(allowed: Collection[str], url: str) -> bool:
    """Whether an address is on one of the hosts of a credential."""
    return not host_names(url).isdisjoint(host.lower() for host in allowed)
