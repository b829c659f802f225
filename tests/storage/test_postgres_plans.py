"""How PostgreSQL looks things up: by key from the first row on, because it keeps the plan that it made for few rows."""

from typing import Any

from accord.storage.store import Tx
from tests.storage.conftest import AnyStore, postgres_only


async def newest_indexes(tx: Tx) -> list[Any]:
    """Return for each table with a primary key the newest index that covers all rows, and whether it is the key."""
    return await tx.all(
        """SELECT DISTINCT ON (indexed.indrelid) relname::text, indexrelid::regclass::text, indisprimary
           FROM pg_index AS indexed JOIN pg_class ON pg_class.oid = indrelid
           WHERE relnamespace = 'public'::regnamespace AND indpred IS NULL
           ORDER BY indexed.indrelid, indexed.indexrelid DESC"""
    )


@postgres_only
async def test_the_primary_key_wins_on_an_empty_table(ready: AnyStore) -> None:
    found = {table: is_key for table, _, is_key in await ready.read(newest_indexes)}
    apart = {"audit", "job", "remote_token", "session"}  # their keys and their other columns have nothing in common
    assert {table for table, is_key in found.items() if not is_key} == apart
    assert {"task", "event", "snapshot", "idempotency", "push", "step", "blob_ref"} < set(found)


async def plan(tx: Tx, table: str, key: str) -> str:
    return str(await tx.all(f"EXPLAIN SELECT 1 FROM {table} WHERE tenant = 'a' AND {key} = 'b'"))


@postgres_only
async def test_an_empty_table_is_looked_up_by_its_key(ready: AnyStore) -> None:
    for table, key in (("task", "id"), ("idempotency", "key"), ("blob_ref", "task_id"), ("snapshot", "task_id")):
        assert f"{table}_pkey" in await ready.read(plan, table, key)


@postgres_only
async def test_an_empty_table_is_looked_up_by_parent(ready: AnyStore) -> None:
    assert "task_by_parent" in await ready.read(plan, "task", "parent_id")
