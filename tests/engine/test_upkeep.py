"""Upkeep: what has ended long ago becomes small and goes, on every store; what lives is left alone."""

import pytest
from msgspec.structs import replace

from accord import Context, agent
from accord.agents.echo import echo
from accord.engine.retention import BATCH, Retention, RetentionLoop
from accord.errors import TaskNotFound
from accord.model import GetRequest, Part, SubscribeRequest, Task, TaskFilter, TaskState
from accord.storage.blobs import open_blobs
from accord.storage.commands import authentication, monitoring
from accord.storage.commands.authentication import NewSession
from accord.storage.commands.monitoring import AuditEntry, AuditLogQuery
from accord.storage.store import Tx
from tests.engine.conftest import ALICE, Hosting, all_of, saying, state


@agent
async def asking(ctx: Context) -> str:
    """Asks for a name."""
    return str(await ctx.ask("Who?"))


async def counted(tx: Tx) -> dict[str, int]:
    tables = ("task", "snapshot", "event", "step", "push", "job", "idempotency", "blob", "blob_ref")
    found = {}
    for table in tables:
        row = await tx.one(f"SELECT count(*) FROM {table}")
        found[table] = int(row[0]) if row else -1
    return found


async def age(tx: Tx, milliseconds: int) -> None:
    for table, column in (("task", "updated_at"), ("idempotency", "expires_at"), ("blob", "at")):
        await tx.run(f"UPDATE {table} SET {column} = {column} - :ms", ms=milliseconds)


async def test_ended_tasks_become_small_then_go_and_open_ones_stay(hosting: Hosting) -> None:
    host = await hosting(echo, asking)
    store = host.node.store
    upkeep = RetentionLoop(store, open_blobs("table:", store, {}), Retention(compact_after=60, purge_after=3600))
    large = Part(raw=b"x" * 100_000, media_type="image/png")
    done = await host.default.send(saying("", parts=(large, Part(text="a"))), ALICE)
    waiting = await host.services["asking"].send(saying("hi"), ALICE)
    assert isinstance(done, Task)
    assert isinstance(waiting, Task)
    await upkeep.once()
    before = await store.read(counted)
    assert before["event"] > 4

    await store.do(age, 120_000)
    await upkeep.once()
    compacted = await store.read(counted)
    assert compacted | {"event": before["event"]} == before
    assert compacted["event"] == 2, "what the open task has said"
    assert await host.default.get(GetRequest(id=done.id), ALICE) == done
    late = await all_of(host.default.subscribe(SubscribeRequest(id=done.id), ALICE, after=1))
    assert [event.body for event in late] == [done]

    await store.do(age, 2 * 24 * 3600 * 1000)
    await upkeep.once()
    purged = await store.read(counted)
    assert (purged["task"], purged["snapshot"], purged["blob"], purged["blob_ref"]) == (1, 1, 0, 0)
    with pytest.raises(TaskNotFound):
        await host.default.get(GetRequest(id=done.id), ALICE)
    assert (await host.default.list(TaskFilter(), ALICE)).total_size == 0
    answered = await host.services["asking"].send(saying("Ada", task_id=waiting.id), ALICE)
    assert state(answered) is TaskState.COMPLETED


async def test_it_is_done_again_and_again(hosting: Hosting) -> None:
    host = await hosting(echo)
    upkeep = RetentionLoop(host.node.store, keep=Retention(compact_after=0, purge_after=0, every=0.05))
    upkeep.start()
    for word in ("first", "second"):
        await host.default.send(saying(word), ALICE)
        while (await host.node.store.read(counted))["task"]:
            pass
    await upkeep.stop()


@pytest.mark.proves("4-32")
async def test_the_audit_log_is_kept_for_its_own_time(hosting: Hosting) -> None:
    host = await hosting(echo)
    store = host.node.store
    for age_ms in (3600_000, 0):
        at = host.node.now_ms() - age_ms
        entry = AuditEntry(tenant="acme", at=at, owner="alice", agent="echo", operation="GetTask", outcome=f"{age_ms}")
        await store.do(monitoring.append_audit, [entry] * (BATCH + 1))
    await RetentionLoop(store, keep=Retention(purge_audit_after=None)).once()
    assert len(await store.read(monitoring.find_audit, "acme", AuditLogQuery(limit=1000))) == 2 * (BATCH + 1)
    await RetentionLoop(store, keep=Retention(purge_audit_after=60)).once()
    assert {entry.outcome for entry in await store.read(monitoring.find_audit, "acme", AuditLogQuery(limit=1000))} == {
        "0"
    }


async def test_sessions_that_have_expired_are_forgotten(hosting: Hosting) -> None:
    store = (await hosting(echo)).node.store
    lasting = NewSession(hash="h", owner="alice", tenant="", roles=(), scheme="basic", lasts_ms=3_600_000)
    await store.do(authentication.create_session, lasting)
    await store.do(authentication.create_session, replace(lasting, hash="over", lasts_ms=0))
    await RetentionLoop(store).once()

    async def kept(tx: Tx) -> list[str]:
        return [row[0] for row in await tx.all("SELECT hash FROM session")]

    assert await store.read(kept) == ["h"]
