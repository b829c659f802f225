"""The audit log on every engine: what is kept, found, in which order, and how it goes; and counting open tasks."""

from typing import Any, cast

import pytest

from accord.model import TaskState
from accord.storage.commands import monitoring, tasks
from accord.storage.commands.monitoring import AuditEntry, AuditLogQuery
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import Tx
from tests.storage.conftest import AT, MINUTE, OTHER, TENANT, AnyStore, new, table


def entry(number: int = 1, **fields: Any) -> AuditEntry:
    given: dict[str, Any] = {
        "tenant": TENANT,
        "at": AT + number,
        "owner": "alice",
        "agent": "echo",
        "operation": "GetTask",
    }
    return AuditEntry(**(given | {"task_id": f"t-{number}", "outcome": "ok"} | fields))


async def test_entries_are_kept_whole_and_found_newest_first(ready: AnyStore) -> None:
    full = entry(1, scheme="bearer", peer="192.0.2.1", dialect="v1", outcome="TASK_NOT_FOUND")
    bare = entry(2, task_id=None)
    await ready.do(monitoring.append_audit, [full, bare])
    newest, oldest = await ready.read(monitoring.find_audit, TENANT, AuditLogQuery())
    for kept, given in ((newest, bare), (oldest, full)):
        assert {name: getattr(kept, name) for name in AuditEntry.__struct_fields__} == {
            name: getattr(given, name) for name in AuditEntry.__struct_fields__
        }
    assert newest.id > oldest.id


@pytest.mark.parametrize("odd", ["\x1f", "\x1e", "a\x1d", "\x01\n\t", "ünï \N{GRINNING FACE}", "NULL", "{,}"])
async def test_odd_text_is_kept_as_it_is(ready: AnyStore, odd: str) -> None:
    await ready.do(monitoring.append_audit, [entry(1, owner=odd), entry(2, peer=odd)])
    second, first = await ready.read(monitoring.find_audit, TENANT, AuditLogQuery())
    assert (first.owner, first.peer, second.owner, second.peer) == (odd, None, "alice", odd)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (AuditLogQuery(owner="bob"), [2]),
        (AuditLogQuery(operation="CancelTask"), [3, 2]),
        (AuditLogQuery(task_id="t-1"), [1]),
        (AuditLogQuery(outcome="PERMISSION_DENIED"), [3]),
        (AuditLogQuery(since=AT + 2), [3, 2]),
        (AuditLogQuery(owner="alice", operation="CancelTask", since=AT + 2), [3]),
        (AuditLogQuery(owner="nobody"), []),
    ],
)
async def test_every_filter_narrows_it_down(ready: AnyStore, query: AuditLogQuery, found: list[int]) -> None:
    entries = [
        entry(1),
        entry(2, owner="bob", operation="CancelTask"),
        entry(3, operation="CancelTask", outcome="PERMISSION_DENIED"),
    ]
    await ready.do(monitoring.append_audit, entries)
    assert [one.at - AT for one in await ready.read(monitoring.find_audit, TENANT, query)] == found


async def test_pages_follow_each_other_without_gap_or_repetition(ready: AnyStore) -> None:
    await ready.do(monitoring.append_audit, [entry(number // 3, task_id=f"t-{number}") for number in range(10)])
    seen: list[str | None] = []
    before = None
    while page := await ready.read(monitoring.find_audit, TENANT, AuditLogQuery(before=before, limit=4)):
        seen += [one.task_id for one in page]
        before = page[-1].at, page[-1].id
    assert seen == [f"t-{number}" for number in reversed(range(10))]


async def test_a_tenant_finds_nothing_of_another(ready: AnyStore) -> None:
    await ready.do(monitoring.append_audit, [entry(1), entry(2, tenant=OTHER)])
    assert [one.at - AT for one in await ready.read(monitoring.find_audit, OTHER, AuditLogQuery())] == [2]
    assert await ready.read(monitoring.find_audit, "", AuditLogQuery()) == []


async def test_old_entries_go_in_batches_and_young_ones_stay(ready: AnyStore) -> None:
    await ready.do(monitoring.append_audit, [entry(number) for number in range(5)])
    now = await ready.read(_now)
    await ready.do(monitoring.append_audit, [entry(9, at=now, task_id="young")])
    assert [await ready.do(monitoring.purge_audit, MINUTE, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert [one.task_id for one in await ready.read(monitoring.find_audit, TENANT, AuditLogQuery())] == ["young"]


async def _now(tx: Tx) -> int:
    row = await tx.one("SELECT {now}")
    assert row is not None
    return int(row[0])


async def test_appending_nothing_is_nothing(ready: AnyStore) -> None:
    await ready.do(monitoring.append_audit, [])
    assert await ready.read(table, "audit") == []


# --- open tasks -----------------------------------------------------------------------------------------------------


async def test_open_tasks_are_counted_by_owner_and_tenant_up_to_a_limit(ready: AnyStore) -> None:
    for state in TaskState:
        await ready.do(tasks.create_task, TENANT, new(f"t-{state.name}", state=state))
    await ready.do(tasks.create_task, TENANT, new("bobs", owner="bob"))
    await ready.do(tasks.create_task, OTHER, new("theirs"))
    still_open = [S for S in TaskState if S.name in ("SUBMITTED", "WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED")]
    assert await ready.read(tasks.count_open, TENANT, "alice", 100) == len(still_open)
    assert await ready.read(tasks.count_open, TENANT, "alice", 3) == 3
    assert await ready.read(tasks.count_open, None, "alice", 100) == len(still_open) + 1
    assert await ready.read(tasks.count_open, TENANT, "bob", 100) == 1
    assert await ready.read(tasks.count_open, TENANT, "carol", 100) == 0


@pytest.mark.parametrize("tenant", [TENANT, None])
async def test_open_tasks_are_counted_through_their_index(tenant: str | None, ready: AnyStore) -> None:
    explain = "EXPLAIN QUERY PLAN" if isinstance(ready, SqliteStore) else "EXPLAIN"

    async def explained(tx: Tx) -> str:
        plans: list[Any] = []

        class Explaining:
            async def one(self, sql: str, /, **values: Any) -> None:
                plans.append(await tx.all(f"{explain} {sql}", **values))

        await tasks.count_open(cast(Tx, Explaining()), tenant, "alice", 9)
        return str(plans)

    assert "task_open" in await ready.read(explained)
