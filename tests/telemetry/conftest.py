"""Hosts to watch, and what their numbers are."""

import pytest

from accord import Context, agent
from accord.telemetry.metrics import Metrics
from tests.engine.conftest import hosting, postgres

__all__ = ["hosting", "postgres"]


@agent
async def parrot(ctx: Context) -> str:
    """Say it again."""
    return ctx.text


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()
