"""Stores for servers, as addresses."""

import asyncio
from pathlib import Path

import pytest

from tests.databases import dropped, postgres

__all__ = ["postgres"]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/accord.db"
    return asyncio.run(dropped(request.getfixturevalue("postgres")))
