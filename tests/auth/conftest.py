"""What requests bring in these tests, and a clock that only tests move."""

from typing import Any

import pytest
from msgspec.structs import replace

from accord.auth.authentication import Identity, Presented, Scheme


class Clock:
    """A time that tests move."""

    def __init__(self, at: float = 1_700_000_000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


def bringing(**headers: str) -> Presented:
    """A request with these headers; underscores are dashes."""
    return presenting({name.replace("_", "-"): value for name, value in headers.items()})


def presenting(headers: dict[str, str], **more: Any) -> Presented:
    """A request with these headers, and whatever else is said."""
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Presented(headers=raw, **more)


async def whom(scheme: Scheme, presented: Presented) -> Identity | None:
    """Who sends a request, without what may end about it."""
    found = await scheme.identify(presented)
    return None if found is None else replace(found, ticket=None)
