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

from accord.bindings import origins
from accord.core.archive import fingerprint
from accord.model import ArtifactUpdate, Event, MessageUpdate, Part, StatusUpdate, Task, TaskPage
from accord.model.inside import with_parts

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

    def linked(self, value: T, tenant: str, origin: str | None = None) -> T:
        """Return an answer, event or task in which files have addresses; `origin` is the one that the caller used."""
        return cast(T, self._linked(value, tenant, origins.at(self._url, origin)))

    def _linked(self, value: Any, tenant: str, base: str) -> Any:
        match value:
            case Task():
                return with_parts(value, partial(self._part, base, tenant, value.id))
            case StatusUpdate() | ArtifactUpdate() | MessageUpdate():
                return with_parts(value, partial(self._part, base, tenant, value.task_id))
            case Event():
                return replace(value, body=self._linked(value.body, tenant, base))
            case TaskPage():
                return replace(value, tasks=tuple(self._linked(task, tenant, base) for task in value.tasks))
        return value

    def _part(self, base: str, tenant: str, task_id: str, part: Part) -> Part:
        if part.raw is None:
            return part
        claim = Claim(tenant, task_id, fingerprint(part), self._expires())
        return replace(part, raw=None, url=base + self._path(claim, part.filename or ""))

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


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
