"""Stores for servers, as addresses."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from tests.storage.conftest import postgres

__all__ = ["postgres"]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/accord.db"
    address: str = request.getfixturevalue("postgres")

    async def empty() -> None:
        connection = await asyncpg.connect(address)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await connection.close()

    asyncio.run(empty())
    return address
