"""Authentication of requests by the schemes that a server enforces.

A stream ends with the key, session or token that opened it.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from accord.a2a import Admission, Caller
from accord.engine.clock import SYSTEM
from accord.errors import AgentUnavailable, AuthenticationFailed
from accord.model import SecurityScheme

REALM = "accord"

log = logging.getLogger("accord.access")

MAX_NAME = 256
"""Maximum characters of an owner or tenant. Both are keys in the store, whose length is limited."""


class BodyNeeded(Exception):
    """Authentication needs the request body, which has not been read yet. Repeat it with the body."""


class Presented(Struct, frozen=True, kw_only=True):
    """The parts of a request that authenticate its sender.

    Header names are lower-case. `target` is the path with its query. `certificate` is the client certificate in DER, as
    the TLS server received it. `peer` is the client address, and `proxy` the trusted proxy that reported it. `secure`
    is true for TLS. `body` stays None until a binding has read it.
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
        return f"Presented(method={self.method!r}, peer={self.peer!r})"  # all other fields may contain secrets

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None if it is missing or repeated."""
        lowered = name.lower().encode("latin-1")
        values = [value for key, value in self.headers if key == lowered]
        return values[0].decode("latin-1") if len(values) == 1 else None

    def credentials(self, scheme: str) -> str | None:
        """Return the credentials in `Authorization` for an HTTP scheme, whose name is case-insensitive, or None."""
        given_scheme, _, credentials = (self.header("authorization") or "").partition(" ")
        return credentials.strip() if given_scheme.lower() == scheme.lower() else None


class Identity(Struct, frozen=True, kw_only=True):
    """An authenticated owner. Without a `tenant` the caller may name any tenant in its requests.

    `ticket` is the admission that authenticated it, if that can end before the request.
    """

    owner: str
    tenant: str | None = ""
    roles: frozenset[str] = frozenset()
    ticket: Admission | None = None

    def __post_init__(self) -> None:
        """Refuse an empty owner, which stands for anonymous callers."""
        if not self.owner or max(len(self.owner), len(self.tenant or "")) > MAX_NAME:
            raise ValueError(f"The names of an owner and a tenant have up to {MAX_NAME} characters")


class Scheme(Protocol):
    """An authentication scheme."""

    @property
    def name(self) -> str:
        """The name in logs and the audit log."""

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """The scheme's entries on the card, as alternatives by name. If empty, the card uses name and challenge."""

    @property
    def challenge(self) -> str:
        """The `WWW-Authenticate` challenge of the scheme."""

    async def identify(self, presented: Presented) -> Identity | None:
        """Return the sender of a request, or None without credentials for this scheme.

        Raises AuthenticationFailed for wrong credentials, without details and optionally with its own challenge. Raises
        BodyNeeded if the scheme needs the request body.
        """


@runtime_checkable
class Revocable(Protocol):
    """A scheme whose admissions can be revoked. The `kind` of its admissions is the name of the scheme."""

    @property
    def name(self) -> str:
        """The name in logs and the audit log."""

    async def is_good(self, id: str) -> bool:
        """Whether an admission is still valid. The result may be cached for a moment."""


class Access:
    """The schemes that a server enforces. Without any, all callers are anonymous and may do everything."""

    def __init__(self, schemes: Sequence[Scheme] = (), *, is_optional: bool = False) -> None:
        """Enforce `schemes`: a caller must satisfy one.

        With `is_optional`, a caller without credentials is anonymous.
        """
        self.schemes = tuple(schemes)
        self.is_optional = bool(self.schemes) and is_optional
        self.is_open = not self.schemes or is_optional
        """Whether callers may send without credentials."""

    async def admit(self, presented: Presented) -> Caller:
        """Return the caller. Raises AuthenticationFailed with the challenges of all schemes."""
        caller = await self.visit(presented) if self.schemes else None
        if caller is None and self.is_open:
            return _anonymous(presented)
        if caller is None:
            raise self.failure()
        return caller

    def failure(self) -> AuthenticationFailed:
        """Return the error for a caller without credentials."""
        failure = AuthenticationFailed()
        failure.challenges = tuple(dict.fromkeys(scheme.challenge for scheme in self.schemes))
        return failure

    async def visit(self, presented: Presented) -> Caller | None:
        """Return the caller like `admit`, or None without credentials, for pages with public content."""
        if not self.schemes:
            return _anonymous(presented)
        failure: AuthenticationFailed | None = None
        challenges: dict[str, None] = {}  # ordered and unique: RFC 9110 allows several
        for scheme in self.schemes:
            try:
                identity = await scheme.identify(presented)
            except AuthenticationFailed as error:  # another scheme may accept the credentials
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
    all_parameters = {"realm": REALM, **parameters}
    return f"{scheme} " + ", ".join(f"{name}={_quoted(value)}" for name, value in all_parameters.items())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def refusal(scheme: str, reason: str, *challenges: str, **facts: str | None) -> AuthenticationFailed:
    """Log why credentials were refused, and return the error, which does not contain the reason."""
    log.info("access.refused", extra={"scheme": scheme, "reason": reason, **facts})
    failure = AuthenticationFailed()
    failure.challenges = challenges
    return failure


INVALID_TOKEN = challenge("Bearer", error="invalid_token")


def _anonymous(presented: Presented) -> Caller:
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
"""Seconds between checks of admissions: revocation takes effect soon, and a long stream costs few lookups."""

MESSAGE = "The credential that opened this stream has expired or was revoked"

T = TypeVar("T")

Look = Callable[[str], Awaitable[bool]]
"""Checks whether an admission is still valid, by its ID."""


class OpenStream:
    """A stream that is read in a task. `is_waiting` is true while the task waits for the next item."""

    __slots__ = ("_is_cancelled", "_task", "is_over", "is_waiting")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._is_cancelled = False
        self.is_over = False
        self.is_waiting = True

    def end(self) -> None:
        """End the stream now if it waits, otherwise at its next wait. The reader's own work is not interrupted."""
        self.is_over = True
        if self.is_waiting and not self._is_cancelled and self._task is not None:
            self._is_cancelled = self._task.cancel()

    def was_ended(self) -> bool:
        """Whether `end` canceled the task. If so, the cancellation is taken back, unless there are others."""
        return self._is_cancelled and self._task is not None and not self._task.uncancel()


class OpenStreams:
    """Open streams by the admission that opened them."""

    def __init__(self, looks: Mapping[str, Look] | None = None, now_ms: Callable[[], int] = SYSTEM.now_ms) -> None:
        """Check admissions with `looks`, by kind. Others end only by expiry."""
        self._looks = looks or {}
        self._now_ms = now_ms
        self._streams: dict[Admission, set[OpenStream]] = {}
        self._task: asyncio.Task[None] | None = None

    def kept(self, items: AsyncIterator[T], ticket: Admission | None) -> AsyncIterator[T]:
        """Return the stream so that it raises AuthenticationFailed when the admission ends. Unchanged without one."""
        return items if ticket is None else self._kept(items, ticket)

    async def stop(self) -> None:
        """Stop the checks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _kept(self, items: AsyncIterator[T], ticket: Admission) -> AsyncIterator[T]:
        stream = OpenStream()
        self._streams.setdefault(ticket, set()).add(stream)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="standing")
        try:
            while True:
                next_item = [await anext(items)]
                stream.is_waiting = False
                yield next_item.pop()  # release the item, which may be large, while the reader handles it
                if stream.is_over:
                    raise AuthenticationFailed(MESSAGE)
                stream.is_waiting = True
        except StopAsyncIteration:
            return
        except asyncio.CancelledError:
            if stream.was_ended():
                raise AuthenticationFailed(MESSAGE) from None
            raise
        finally:
            streams = self._streams[ticket]
            streams.discard(stream)
            if not streams:
                del self._streams[ticket]

    async def _run(self) -> None:
        while self._streams:
            await asyncio.sleep(LOOK_SECONDS)
            for ticket in list(self._streams):
                if not await self._is_good(ticket):
                    for stream in list(self._streams.get(ticket, ())):
                        stream.end()

    async def _is_good(self, ticket: Admission) -> bool:
        if ticket.until is not None and ticket.until <= self._now_ms():
            return False
        look = self._looks.get(ticket.kind)
        try:
            return look is None or await look(ticket.id)
        except AgentUnavailable:  # unknown at the moment: check again later
            return True
        except Exception:
            log.exception("access.not_looked_up", extra={"scheme": ticket.kind})
            return True


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """A cache of at most `size` values, each for at most `seconds`."""

    def __init__(self, size: int, seconds: float, clock: Callable[[], float]) -> None:
        """Create a cache whose entries expire by `clock`, in seconds."""
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return a value, or None if it is missing or expired."""
        entry = self._kept.get(key)
        if entry is None:
            return None
        if entry[0] <= self._clock():
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return entry[1]

    def put(self, key: K, value: V, until: float | None = None) -> None:
        """Store a value, until `until` if that is earlier than its usual expiry."""
        expires = self._clock() + self._seconds
        self._kept[key] = (expires if until is None else min(expires, until), value)
        self._kept.move_to_end(key)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)

    def forget(self, key: K) -> None:
        """Remove a value."""
        self._kept.pop(key, None)

    def __len__(self) -> int:
        return len(self._kept)
