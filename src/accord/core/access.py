"""Who a request comes from: the ways to authenticate that a server enforces, tried in order.

A way is a `Scheme`; the schemes are in `core.schemes`, and what they ask of the network or the store comes to them as
ports. What an authenticated caller may do is `core.guard`; the card says what is enforced here, never anything else.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from accord.core.interface import Caller, Ticket
from accord.errors import AuthenticationFailed
from accord.model import SecurityScheme

REALM = "accord"

MAX_NAME = 256
"""Characters of an owner or a tenant: both are keys in the store, whose length is limited."""


class BodyNeeded(Exception):
    """Who sends a request can only be said with its body, which has not been read yet: ask again with it."""


class Presented(Struct, frozen=True, kw_only=True):
    """What a request brings to say who sends it: header names are lower-case, `target` is the path with its query.

    `certificate` is the client's own in DER, as the server that ended TLS saw it, and `peer` the address it came from;
    `proxy` is the address of a trusted proxy that told it; `secure` is whether it came over TLS. `body` is None where a
    binding has not read it yet.
    """

    headers: Iterable[tuple[bytes, bytes]] = ()
    method: str = "POST"
    target: str = "/"
    body: bytes | None = None
    peer: str = ""
    proxy: str = ""
    certificate: bytes | None = None
    secure: bool = False

    def __repr__(self) -> str:
        return f"Presented(method={self.method!r}, peer={self.peer!r})"  # everything else may be a secret

    def header(self, name: str) -> str | None:
        """Return the only value of a header; one that is repeated says nothing."""
        wanted = name.lower().encode("latin-1")
        found = [value for key, value in self.headers if key == wanted]
        return found[0].decode("latin-1") if len(found) == 1 else None

    def credentials(self, scheme: str) -> str | None:
        """Return what `Authorization` holds for an HTTP authentication scheme, whose name has no case."""
        stated, _, credentials = (self.header("authorization") or "").partition(" ")
        return credentials.strip() if stated.lower() == scheme.lower() else None


class Identity(Struct, frozen=True, kw_only=True):
    """Who somebody turned out to be; without a `tenant` of its own it may name any in its requests.

    `ticket` is what it was found out by, if that may end before what was asked for does.
    """

    owner: str
    tenant: str | None = ""
    roles: frozenset[str] = frozenset()
    ticket: Ticket | None = None

    def __post_init__(self) -> None:
        """Refuse a nameless owner: that is whom everybody is where nobody has to say who they are."""
        if not self.owner or max(len(self.owner), len(self.tenant or "")) > MAX_NAME:
            raise ValueError(f"The names of an owner and a tenant have up to {MAX_NAME} characters")


class Scheme(Protocol):
    """One way to authenticate."""

    @property
    def name(self) -> str:
        """What logs and the audit call it."""

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """How the card describes it: alternatives by name; with none, by its name and what it asks for."""

    @property
    def challenge(self) -> str:
        """The value of `WWW-Authenticate` that asks for it."""

    async def identify(self, presented: Presented) -> Identity | None:
        """Return who sends the request, or None if it brings nothing for this scheme.

        What it brings and is wrong is `AuthenticationFailed`, in words that tell nothing about what would be right; it
        may have a challenge of its own. What cannot be told without a body that is still to come is `BodyNeeded`.
        """


@runtime_checkable
class Revocable(Protocol):
    """A scheme with something that can be taken back; its tickets are of the kind of its name."""

    @property
    def name(self) -> str:
        """What logs and the audit call it."""

    async def is_good(self, id: str) -> bool:
        """Whether what a ticket names is good still, as far as is known for a moment."""


class Access:
    """The schemes that a server enforces; with none, everybody is the same nameless caller who may do everything."""

    def __init__(self, schemes: Sequence[Scheme] = (), *, is_optional: bool = False) -> None:
        """Enforce `schemes`: a caller must satisfy one; if `is_optional`, a caller without credentials is anonymous."""
        self.schemes = tuple(schemes)
        self.is_optional = bool(self.schemes) and is_optional
        self.is_open = not self.schemes or is_optional
        """Whether callers may send without credentials."""

    async def admit(self, presented: Presented) -> Caller:
        """Return the caller, or raise AuthenticationFailed with what could have been brought."""
        caller = await self.visit(presented) if self.schemes else None
        if caller is None and self.is_open:
            return _nobody(presented)
        if caller is None:
            raise self.failure()
        return caller

    def failure(self) -> AuthenticationFailed:
        """Return the refusal of a caller without credentials."""
        failure = AuthenticationFailed()
        failure.challenges = tuple(dict.fromkeys(scheme.challenge for scheme in self.schemes))
        return failure

    async def visit(self, presented: Presented) -> Caller | None:
        """Do the same where strangers may look at something: None is somebody who brings nothing at all."""
        if not self.schemes:
            return _nobody(presented)
        failure: AuthenticationFailed | None = None
        challenges: dict[str, None] = {}  # in order, each once: RFC 9110 allows several
        for scheme in self.schemes:
            try:
                identity = await scheme.identify(presented)
            except AuthenticationFailed as error:  # what is wrong for one may be right for the next
                failure = failure or error
                challenges |= dict.fromkeys(error.challenges or (scheme.challenge,))
                continue
            if identity is not None:
                return _caller(identity, scheme.name, presented.peer)
            challenges[scheme.challenge] = None
        if failure is None:
            return None
        failure.challenges = tuple(challenges)
        raise failure


def challenge(scheme: str, **parameters: str) -> str:
    """Return a challenge of an authentication scheme in this server's realm (RFC 9110, 11.6.1)."""
    stated = {"realm": REALM, **parameters}
    return f"{scheme} " + ", ".join(f"{name}={_quoted(value)}" for name, value in stated.items())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _nobody(presented: Presented) -> Caller:
    """Return whom everybody is where nobody has to say who they are."""
    return Caller(roams=True, peer=presented.peer or None)


def _caller(identity: Identity, scheme: str, peer: str) -> Caller:
    return Caller(
        owner=identity.owner,
        tenant=identity.tenant or "",
        roams=identity.tenant is None,
        roles=identity.roles,
        ticket=identity.ticket,
        scheme=scheme,
        peer=peer or None,
    )
