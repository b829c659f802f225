"""Hosts to watch, and what their numbers are."""

import inspect
from pathlib import Path

import pytest

from accord import Context, agent
from accord.telemetry.metrics import Metrics
from tests.core.conftest import bounded, hosting, postgres

__all__ = ["hosting", "postgres"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound every test of this folder."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent:
            item.obj = bounded(item.obj) if inspect.iscoroutinefunction(item.obj) else item.obj


@agent
async def parrot(ctx: Context) -> str:
    """Say it again."""
    return ctx.text


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()
