"""Authenticates requests by the schemes that a server enforces.

A stream ends when the key, session or token ends that it was opened with.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from accord.a2a import Admission, Caller
from accord.engine.clock import SYSTEM
from accord.errors import AgentUnavailable, AuthenticationFailed
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
    ticket: Admission | None = None

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
            return _anonymous(presented)
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
            return _anonymous(presented)
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


def _anonymous(presented: Presented) -> Caller:
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


LOOK_SECONDS = 2.0
"""How often it is asked: a person who ends something sees it end, and a stream of hours costs a lookup now and then."""

MESSAGE = "What this was opened with is not good any more"

log = logging.getLogger("accord.access")

T = TypeVar("T")

Look = Callable[[str], Awaitable[bool]]
"""Finds out whether what somebody came with is good still, by its id."""


class OpenStream:
    """One stream, from when it is read in a task; `is_waiting` while that waits for what comes next."""

    __slots__ = ("_is_cancelled", "_task", "is_over", "is_waiting")

    def __init__(self) -> None:
        """Begin in the task that reads it."""
        self._task = asyncio.current_task()
        self._is_cancelled = False
        self.is_over = False
        self.is_waiting = True

    def end(self) -> None:
        """End it where it waits, or else when it would wait again: what its reader does meanwhile is not disturbed."""
        self.is_over = True
        if self.is_waiting and not self._is_cancelled and self._task is not None:
            self._is_cancelled = self._task.cancel()

    def was_ended(self) -> bool:
        """Whether that was why its task was cancelled, which is taken back then; others may have had reasons too."""
        return self._is_cancelled and self._task is not None and not self._task.uncancel()


class OpenStreams:
    """Those who stay, by what they came with."""

    def __init__(self, looks: Mapping[str, Look] | None = None, now_ms: Callable[[], int] = SYSTEM.now_ms) -> None:
        """Ask `looks`, by the kinds of tickets; others end by their time alone."""
        self._looks = looks or {}
        self._now_ms = now_ms
        self._stays: dict[Admission, set[OpenStream]] = {}
        self._task: asyncio.Task[None] | None = None

    def kept(self, items: AsyncIterator[T], ticket: Admission | None) -> AsyncIterator[T]:
        """Return a stream that ends with AuthenticationFailed when a ticket does; where there is none, as it is."""
        return items if ticket is None else self._kept(items, ticket)

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _kept(self, items: AsyncIterator[T], ticket: Admission) -> AsyncIterator[T]:
        stay = self._begun(ticket)
        try:
            while True:
                held = [await anext(items)]
                stay.is_waiting = False
                yield held.pop()  # which may be large, and is not held while its reader takes its time
                if stay.is_over:
                    raise AuthenticationFailed(MESSAGE)
                stay.is_waiting = True
        except StopAsyncIteration:
            return
        except asyncio.CancelledError:
            if stay.was_ended():
                raise AuthenticationFailed(MESSAGE) from None
            raise
        finally:
            self._left(ticket, stay)

    def _begun(self, ticket: Admission) -> OpenStream:
        stay = OpenStream()
        self._stays.setdefault(ticket, set()).add(stay)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="standing")
        return stay

    def _left(self, ticket: Admission, stay: OpenStream) -> None:
        stays = self._stays[ticket]
        stays.discard(stay)
        if not stays:
            del self._stays[ticket]

    async def _run(self) -> None:
        while self._stays:
            await asyncio.sleep(LOOK_SECONDS)
            for ticket in list(self._stays):
                if not await self._is_good(ticket):
                    for stay in list(self._stays.get(ticket, ())):
                        stay.end()

    async def _is_good(self, ticket: Admission) -> bool:
        if ticket.until is not None and ticket.until <= self._now_ms():
            return False
        look = self._looks.get(ticket.kind)
        try:
            return look is None or await look(ticket.id)
        except AgentUnavailable:  # nobody knows at the moment: it is asked again
            return True
        except Exception:
            log.exception("a credential could not be looked up again", extra={"scheme": ticket.kind})
            return True
