"""What requests bring in these tests, and a clock that only tests move."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from accord.core.access import Presented
from tests.core.conftest import bounded


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound every test of this folder."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent:
            item.obj = bounded(item.obj) if inspect.iscoroutinefunction(item.obj) else item.obj


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
