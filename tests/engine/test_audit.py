"""The audit log: what gets an entry, what is in it, and that no request ever waits for or fails with it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from accord.a2a import Caller
from accord.agents.echo import echo
from accord.auth import audit as auditing
from accord.auth.audit import ABANDONED, NOISE_BURST, OK, WRITES, Audit, Audited, watched
from accord.auth.authentication import Access, Presented
from accord.auth.rate_limits import CallerUsage, Quotas
from accord.errors import AccordError, AuthenticationFailed, PermissionDenied, RateLimited, TaskNotFound
from accord.model import Event, GetRequest, PushConfig, SendRequest, Task
from accord.protocol.operations import Operation
from accord.server.pipeline import pipeline
from accord.storage.commands import monitoring as audit_log
from accord.storage.commands.monitoring import AuditEntry, AuditLogQuery
from accord.storage.store import StoreUnavailable
from tests.engine.conftest import Hosting, saying
from tests.engine.doubles import until
from tests.engine.test_guard import REQUESTS, ask
from tests.http.scripted import EVENTS, TASK, Scripted

ALICE = Caller(tenant="acme", owner="alice", origin="v03", scheme="apikey", peer="192.0.2.7")
AT = 1_700_000_000_000


class Keeping:
    """A store that keeps what is appended, unless it is told to fail."""

    def __init__(self) -> None:
        self.kept: list[AuditEntry] = []
        self.batches: list[int] = []
        self.errors: list[Exception] = []
        self.is_held: asyncio.Event | None = None

    async def do(self, command: Any, entries: list[AuditEntry]) -> None:
        assert command is audit_log.append_audit
        if self.is_held is not None:
            await self.is_held.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.kept += entries
        self.batches.append(len(entries))


@pytest.fixture
def store() -> Keeping:
    return Keeping()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for company, nor long for a store."""
    monkeypatch.setattr(auditing, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr(auditing, "RETRY_SECONDS", 0.0)


def made(store: Any, audited: Audited = Audited.WRITES) -> Audit:
    return Audit(store, audited, now_ms=lambda: AT, clock=lambda: 0.0)


async def written(audit: Audit, store: Keeping) -> list[AuditEntry]:
    """Everything that was noted, once it is kept."""
    audit.start()
    await audit.stop()
    return store.kept


# --- what gets an entry ---------------------------------------------------------------------------------------------


@pytest.mark.proves("4-32")
@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("audited", Audited)
async def test_done_things_get_an_entry_as_set(operation: Operation, audited: Audited, store: Keeping) -> None:
    audit = made(store, audited)
    await ask(pipeline(Scripted(), "echo", audit=audit), operation, REQUESTS[operation], ALICE)
    wanted = {Audited.ALL: set(Operation), Audited.WRITES: WRITES, Audited.NONE: set()}[audited]
    entries = await written(audit, store)
    assert [(entry.operation, entry.outcome) for entry in entries] == [(operation.value, OK)] * (operation in wanted)


@pytest.mark.proves("4-32")
@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("audited", Audited)
async def test_refused_things_get_an_entry_unless_all_is_off(
    operation: Operation, audited: Audited, store: Keeping
) -> None:
    audit = made(store, audited)
    caller = replace(ALICE, roles=frozenset({"nobody"}))
    with pytest.raises(PermissionDenied):
        await ask(pipeline(Scripted(), "echo", audit=audit), operation, REQUESTS[operation], caller)
    is_on = audited is not Audited.NONE
    entries = await written(audit, store)
    assert [(entry.operation, entry.outcome) for entry in entries] == [(operation.value, "PERMISSION_DENIED")] * is_on


async def test_nothing_that_changes_something_is_taken_for_a_read() -> None:
    reads = {op for op in Operation if op.value.startswith(("Get", "List", "Subscribe"))}
    assert set(Operation) - WRITES == reads


@pytest.mark.proves("4-32")
async def test_entries_have_caller_operation_time_and_outcome(store: Keeping) -> None:
    audit = made(store)
    guarded = pipeline(Scripted(), "trips", audit=audit)
    await guarded.send(saying("x"), ALICE)
    await guarded.cancel(REQUESTS[Operation.CANCEL], replace(ALICE, owner="bob", scheme=None, peer=None))
    sent: dict[str, Any] = {
        "tenant": "acme",
        "at": AT,
        "owner": "alice",
        "scheme": "apikey",
        "peer": "192.0.2.7",
        "dialect": "v03",
    }
    cancelled: dict[str, Any] = sent | {"owner": "bob", "scheme": None, "peer": None}
    assert await written(audit, store) == [
        AuditEntry(**sent, agent="trips", operation="SendMessage", task_id=TASK.id, outcome=OK),
        AuditEntry(**cancelled, agent="trips", operation="CancelTask", task_id="t-1", outcome=OK),
    ]


@pytest.mark.parametrize("operation", Operation)
async def test_entries_name_the_task(operation: Operation, store: Keeping) -> None:
    audit = made(store, Audited.ALL)
    await ask(pipeline(Scripted(), "echo", audit=audit), operation, REQUESTS[operation], ALICE)
    (entry,) = await written(audit, store)
    assert entry.task_id == (None if operation in (Operation.LIST, Operation.EXTENDED_CARD) else "t-1")


async def test_a_refused_message_is_about_the_task_that_it_names(store: Keeping) -> None:
    audit = made(store)
    guarded = pipeline(Scripted(TaskNotFound()), "echo", audit=audit)
    for request in (saying("x", task_id="t-9"), saying("x")):
        with pytest.raises(TaskNotFound):
            await guarded.send(request, ALICE)
    assert [(entry.task_id, entry.outcome) for entry in await written(audit, store)] == [
        ("t-9", "TASK_NOT_FOUND"),
        (None, "TASK_NOT_FOUND"),
    ]


async def test_roaming_callers_are_noted_in_the_visited_tenant(store: Keeping) -> None:
    audit = made(store)
    request = replace(saying("x"), tenant="globex")
    await pipeline(Scripted(), "echo", audit=audit).send(request, Caller(roams=True))
    (entry,) = await written(audit, store)
    assert (entry.tenant, entry.owner) == ("globex", "")


async def test_failures_are_noted_without_their_text(store: Keeping) -> None:
    audit = made(store)
    with pytest.raises(RuntimeError):
        await pipeline(Scripted(RuntimeError("hunter2")), "echo", audit=audit).send(saying("x"), ALICE)
    (entry,) = await written(audit, store)
    assert entry.outcome == "INTERNAL_ERROR"
    assert "hunter2" not in str(entry)


async def test_a_caller_that_leaves_is_noted_as_such(store: Keeping) -> None:
    class Waits(Scripted):
        async def _wait(self, request: SendRequest, caller: Caller) -> Task:
            begun.set()
            await asyncio.Event().wait()
            return TASK

    audit, begun, inner = made(store), asyncio.Event(), Waits()
    inner.send = inner._wait
    sending = asyncio.create_task(pipeline(inner, "echo", audit=audit).send(saying("x"), ALICE))
    await begun.wait()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert [entry.outcome for entry in await written(audit, store)] == [ABANDONED]


async def test_a_stream_is_noted_when_it_begins_and_once(store: Keeping) -> None:
    audit = made(store)
    events = pipeline(Scripted(broken=TaskNotFound()), "echo", audit=audit).stream(saying("x"), ALICE)
    first = await anext(events)
    assert first == EVENTS[0]
    assert len(audit._waiting) == 1
    with pytest.raises(TaskNotFound):
        await _rest(events)
    assert [(entry.operation, entry.task_id, entry.outcome) for entry in await written(audit, store)] == [
        ("SendStreamingMessage", "t-1", OK)
    ]


async def _rest(events: AsyncIterator[Event]) -> None:
    async for _ in events:
        pass


@pytest.mark.proves("4-32")
async def test_entries_hold_no_content_or_credentials(store: Keeping) -> None:
    audit = made(store, Audited.ALL)
    guarded = pipeline(Scripted(), "echo", audit=audit)
    hook = PushConfig(url="https://example.com/?key=hunter2", token="hunter2", task_id="t-1")
    await guarded.send(saying("hunter2", metadata={"k": "hunter2"}), ALICE)
    await guarded.push_set(hook, ALICE)
    refused = watched(_refuse, audit)
    with pytest.raises(AuthenticationFailed):
        await refused(Presented(headers=[(b"authorization", b"Bearer hunter2")], target="/?k=hunter2", peer="::1"))
    entries = await written(audit, store)
    assert len(entries) == 3
    assert "hunter2" not in str(entries)


# --- who is not let in ----------------------------------------------------------------------------------------------


async def _refuse(presented: Presented) -> Caller:
    raise AuthenticationFailed


@pytest.mark.proves("4-32")
async def test_only_failed_authentication_is_noted(store: Keeping) -> None:
    audit = made(store)
    presented = Presented(peer="192.0.2.9")
    with pytest.raises(AuthenticationFailed):
        await watched(_refuse, audit)(presented)
    assert await watched(Access().admit, audit)(presented) == Caller(roams=True, peer="192.0.2.9")
    (entry,) = await written(audit, store)
    assert (entry.operation, entry.peer, entry.owner, entry.outcome) == (
        "Authenticate",
        "192.0.2.9",
        "",
        "UNAUTHENTICATED",
    )


async def test_with_the_log_off_no_entry_is_written(store: Keeping) -> None:
    audit = made(store, Audited.NONE)
    with pytest.raises(AuthenticationFailed):
        await watched(_refuse, audit)(Presented())
    assert await written(audit, store) == []


async def test_a_flood_of_refusals_does_not_wash_away_the_rest(store: Keeping) -> None:
    audit = made(store)
    usage = CallerUsage(Quotas(rate=1.0, burst=1), clock=lambda: 0.0)
    guarded = pipeline(Scripted(), "echo", usage=usage, audit=audit)
    await guarded.send(saying("x"), ALICE)
    for _ in range(NOISE_BURST * 3):
        with pytest.raises(RateLimited):
            await guarded.send(saying("x"), ALICE)
        with pytest.raises(AuthenticationFailed):
            await watched(_refuse, audit)(Presented(peer="192.0.2.9"))
    with pytest.raises(AuthenticationFailed):
        await watched(_refuse, audit)(Presented(peer="192.0.2.10"))
    await guarded.send(saying("x"), replace(ALICE, owner="bob"))
    outcomes = [entry.outcome for entry in await written(audit, store)]
    assert outcomes.count("RATE_LIMITED") == NOISE_BURST
    assert outcomes.count("UNAUTHENTICATED") == NOISE_BURST + 1
    assert outcomes.count(OK) == 2
    assert audit.lost == 0


# --- writing --------------------------------------------------------------------------------------------------------


def entry(number: int) -> AuditEntry:
    return AuditEntry(tenant="", at=number, owner="o", agent="a", operation="SendMessage", outcome=OK)


async def test_entries_are_written_in_order_and_in_batches(store: Keeping) -> None:
    audit = made(store)
    for number in range(auditing.BATCH * 2 + 1):
        audit.note(entry(number))
    assert [one.at for one in await written(audit, store)] == list(range(auditing.BATCH * 2 + 1))
    assert store.batches == [auditing.BATCH, auditing.BATCH, 1]


async def test_entries_are_written_without_a_stop(store: Keeping) -> None:
    audit = made(store)
    audit.start()
    audit.note(entry(1))

    async def is_kept() -> bool:
        return len(store.kept) == 1

    await until(is_kept)
    await audit.stop()
    assert (store.batches, audit.lost) == ([1], 0)


async def test_a_store_that_was_away_gets_everything_later(store: Keeping, caplog: pytest.LogCaptureFixture) -> None:
    audit = made(store)
    store.errors = [StoreUnavailable("away"), StoreUnavailable("still away")]
    audit.start()
    for number in range(3):
        audit.note(entry(number))

    async def is_kept() -> bool:
        return len(store.kept) == 3

    await until(is_kept)
    await audit.stop()
    assert [one.at for one in store.kept] == [0, 1, 2]
    assert audit.lost == 0
    assert caplog.text.count("audit.waits") == 2


async def test_dropped_entries_are_counted_and_logged(
    store: Keeping, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(auditing, "MAX_WAITING", 5)
    audit = made(store)
    with caplog.at_level(logging.ERROR):
        for number in range(8):
            audit.note(entry(number))
        assert caplog.messages == ["audit.losing"]
        assert len(await written(audit, store)) == 5
    assert audit.lost == 3
    assert caplog.messages[1:] == ["audit.lost"]


async def test_a_request_does_not_wait_for_a_store_that_hangs(store: Keeping) -> None:
    audit, store.is_held = made(store), asyncio.Event()
    audit.start()
    guarded = pipeline(Scripted(), "echo", audit=audit)
    for _ in range(3):
        await guarded.send(saying("x"), ALICE)
    store.is_held.set()
    await audit.stop()
    assert len(store.kept) == 3


async def test_shutdown_is_bounded_and_reports_lost_entries(
    store: Keeping, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(auditing, "STOP_SECONDS", 0.01)
    audit, store.is_held = made(store), asyncio.Event()
    audit.start()
    audit.note(entry(1))
    await audit.stop()
    assert audit.lost == 1
    assert "audit.lost" in caplog.messages


async def test_entries_that_cannot_be_written_do_not_hold_up_others(
    store: Keeping, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(auditing, "BATCH", 1)
    audit = made(store)
    store.errors = [ValueError("cannot be kept")]
    audit.note(entry(1))
    audit.note(entry(2))
    assert [one.at for one in await written(audit, store)] == [2]
    assert audit.lost == 1
    assert "audit.not_written" in caplog.messages


# --- on real stores -------------------------------------------------------------------------------------------------

BAD_IDS = ("\0", "a\0b", "x" * 100_000, "\ud800", "é" * 300)


@pytest.mark.proves("4-32")
async def test_entries_are_found_under_any_operation_name(hosting: Hosting) -> None:
    host = await hosting(echo)
    audit = Audit(host.node.store, Audited.ALL)
    audit.start()
    guarded = pipeline(host.default, "echo", audit=audit)
    task = await guarded.send(saying("hi"), ALICE)
    assert isinstance(task, Task)
    await guarded.get(GetRequest(id=task.id), ALICE)
    for bad in BAD_IDS:
        with pytest.raises(AccordError):
            await guarded.get(GetRequest(id=bad), ALICE)
    await audit.stop()
    found = await host.node.store.read(audit_log.find_audit, "acme", AuditLogQuery())
    assert audit.lost == 0
    assert len(found) == 2 + len(BAD_IDS)
    assert [(one.operation, one.task_id, one.outcome) for one in found[-2:]] == [
        ("GetTask", task.id, OK),
        ("SendMessage", task.id, OK),
    ]
    assert all(len(one.task_id or "") <= auditing.MAX_TEXT for one in found)
    assert {one.outcome for one in found[:-2]} <= {"TASK_NOT_FOUND", "INVALID_PARAMS"}
