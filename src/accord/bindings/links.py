"""Signed addresses of files, for dialects in which a file is only ever an address (B-02).

    <server>/files/<claim>.<signature>/[filename]

A claim says which file of which task of which tenant it is and until when; the signature is over it and the filename.
Whoever has the address may read the file, and can make no other address of it. Nothing is read or answered here: that
is `bindings.files`. Bindings that answer, and webhooks, have bytes replaced by such addresses before they are encoded.
"""

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import Caller
from accord.bindings import origins
from accord.engine.task_store import fingerprint
from accord.model import ArtifactUpdate, Event, MessageUpdate, Part, Request, StatusUpdate, Task, TaskPage
from accord.model.parts import with_parts

FILES = "/files/"
"""Below it the files of a host are."""

PURPOSE = "signed addresses of files"
"""What the key of a store is for, so that no other use of it makes signatures that hold here."""

STEPS = 24
"""An address is renewed when a 24th of its time is over, so that who asks again soon is given the same one."""

_PATH = re.compile(r"/files/(?P<claim>[A-Za-z0-9_-]+)\.(?P<signature>[A-Za-z0-9_-]+)/(?P<name>[A-Za-z0-9._-]*)")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
"""Names that mean the same everywhere; others are told by the answer, and left out of the address."""

T = TypeVar("T")


class Claim(Struct, frozen=True, array_like=True):
    """Which file an address is of; `expires` is in seconds of Unix time."""

    tenant: str
    task_id: str
    fingerprint: str
    expires: int


class Room:
    """How many bytes of files are left for one answer."""

    def __init__(self, left: int) -> None:
        """Begin with so many."""
        self._left = left

    def has(self, size: int) -> bool:
        """Take room for a file, if there is enough for it."""
        if size > self._left:
            return False
        self._left -= size
        return True


class NotSigned(Exception):
    """The address is not one that this server has made."""


class Expired(Exception):
    """The address was good, until its time was over."""


_CLAIM = msgspec.json.Decoder(Claim)


class Links:
    """Makes addresses of files, and reads them again."""

    def __init__(self, key: bytes, url: str, seconds: float, clock: Callable[[], float]) -> None:
        """Sign with a key that all nodes have, for callers who use `url`; addresses are good for so many seconds."""
        self._key = key
        self._url = url
        self._seconds = seconds
        self._clock = clock

    def linked(self, value: T, tenant: str, origin: str | None = None, most: int | None = None) -> T:
        """Return an answer, event or task in which files have addresses, or those that do not fit into `most` bytes.

        `origin` is the one that the caller used.
        """
        return cast(T, self._linked(value, tenant, origin, None if most is None else Room(most)))

    def _linked(self, value: Any, tenant: str, origin: str | None, room: "Room | None") -> Any:
        match value:
            case Task():
                return with_parts(value, partial(self._part, origin, tenant, value.id, room))
            case StatusUpdate() | ArtifactUpdate() | MessageUpdate():
                return with_parts(value, partial(self._part, origin, tenant, value.task_id, room))
            case Event():
                return replace(value, body=self._linked(value.body, tenant, origin, room))
            case TaskPage():
                return replace(value, tasks=tuple(self._linked(task, tenant, origin, room) for task in value.tasks))
        return value

    def _part(self, origin: str | None, tenant: str, task_id: str, room: "Room | None", part: Part) -> Part:
        if part.raw is None or (room is not None and room.has(len(part.raw))):
            return part
        return self.link(tenant, task_id, origin or "", part)

    def link(self, tenant: str, task_id: str, origin: str, part: Part, hash: str | None = None) -> Part:
        """Return a file part with an address; `hash` is that of its bytes, where the part does not have them."""
        claim = Claim(tenant, task_id, fingerprint(part, hash), self._expires())
        url = origins.at(self._url, origin or None) + self._path(claim, part.filename or "")
        return replace(part, raw=None, url=url)

    def _expires(self) -> int:
        step = self._seconds / STEPS
        return int((self._clock() // step + 1) * step + self._seconds)

    def _path(self, claim: Claim, filename: str) -> str:
        text = _text(msgspec.json.encode(claim))
        name = filename if _NAME.fullmatch(filename) else ""
        return f"{FILES}{text}.{self._signature(text, name)}/{name}"

    def _signature(self, claim: str, name: str) -> str:
        return _text(hmac.digest(self._key, f"{claim}/{name}".encode(), "sha256"))

    def read(self, path: str) -> Claim:
        """Return what a path below the mount claims, or raise NotSigned or Expired."""
        found = _PATH.fullmatch(path)
        # Texts are compared, not what they decode to: several texts may be the same bytes.
        if found is None or not hmac.compare_digest(self._signature(found["claim"], found["name"]), found["signature"]):
            raise NotSigned
        claim = _CLAIM.decode(urlsafe_b64decode(found["claim"] + "=" * (-len(found["claim"]) % 4)))
        if claim.expires <= self._clock():
            raise Expired
        return claim


def shortening(links: Links | None, request: Request, caller: Caller, most: int) -> Callable[[T], T]:
    """Return what puts addresses in the place of files that do not fit into one answer or event."""
    if links is None:
        return _unchanged
    return partial(links.linked, tenant=request.tenant or caller.tenant, origin=caller.files_at, most=most)


def _unchanged(value: T) -> T:
    return value


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
