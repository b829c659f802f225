"""What runs have in common: the latest value of each key counts, for its own tenant, caller and namespace."""

import time

from accord.storage.commands import workflow_runs
from accord.storage.commands.workflow_runs import ValueNamespace
from tests.storage.conftest import MINUTE, OTHER, TENANT, AnyStore, table

SHELF = ValueNamespace("alice", "release")


async def test_the_latest_value_wins_within_its_scope(ready: AnyStore) -> None:
    now = time.time_ns() // 1_000_000
    await ready.do(workflow_runs.put_values, TENANT, SHELF, {"a": "1", "b": "1"}, now, None)
    await ready.do(workflow_runs.put_values, TENANT, SHELF, {"a": "2"}, now + 1, None)
    await ready.do(workflow_runs.put_values, TENANT, SHELF, {"a": "late"}, now, None)
    assert await ready.read(workflow_runs.load_values, TENANT, SHELF) == {"a": "2", "b": "1"}
    for tenant, shelf in (
        (OTHER, SHELF),
        (TENANT, ValueNamespace("bob", "release")),
        (TENANT, ValueNamespace("alice", "other")),
    ):
        assert await ready.read(workflow_runs.load_values, tenant, shelf) == {}


async def test_expired_values_are_hidden_and_deleted(ready: AnyStore) -> None:
    now = time.time_ns() // 1_000_000
    await ready.do(workflow_runs.put_values, TENANT, SHELF, {"a": "1"}, now - MINUTE, 1000)
    await ready.do(workflow_runs.put_values, TENANT, SHELF, {"b": "1"}, now, MINUTE)
    assert await ready.read(workflow_runs.load_values, TENANT, SHELF) == {"b": "1"}
    assert [key for key, _ in await ready.read(table, "shared_value", "key, value")] == ["b"]
