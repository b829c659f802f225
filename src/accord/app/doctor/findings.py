"""What a check has found, and whom it is about.

Types only; what is looked at is the business of the checks beside this file.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct, field

from accord.config.load import Loaded
from accord.config.settings import Settings
from accord.storage.address import Address


class Status(Enum):
    """How it is: fine, worth a thought, or in the way."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at: how it is, and what to do about it if it is not fine."""

    check: str
    status: Status
    detail: str
    remedy: str | None = None


class Patient(Struct, frozen=True, kw_only=True):
    """A server as it would be started.

    `dates` has how far the clocks of others are ahead of ours, in seconds, and `named` the agents by their paths.
    """

    loaded: Loaded
    targets: tuple[str, ...]
    address: Address
    url: str
    env: Mapping[str, str]
    dates: dict[str, float] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """Its settings."""
        return self.loaded.settings


class Check(NamedTuple):
    """Something to look at by itself: what it is called, and how."""

    name: str
    look: Callable[[Patient], Awaitable[list[Finding]]]


def ok(check: str, detail: str) -> Finding:
    """Return that something is fine."""
    return Finding(check=check, status=Status.OK, detail=_line(detail))


def warning(check: str, detail: str, remedy: str) -> Finding:
    """Return that something is worth a thought."""
    return Finding(check=check, status=Status.WARNING, detail=_line(detail), remedy=_line(remedy))


def failed(check: str, detail: object, remedy: str) -> Finding:
    """Return that something is in the way."""
    return Finding(check=check, status=Status.FAILED, detail=_line(detail), remedy=_line(remedy))


def host_of(url: str) -> str:
    """Return the host of an address, with its port."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _line(text: Any) -> str:
    return " ".join(str(text).split())
