"""Hot commands by sets on PostgreSQL: what the portable commands do, with few commits, and nobody in another's way."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest
from msgspec.structs import replace

from accord.model import TaskState
from accord.storage import schema
from accord.storage.commands import jobs, steps, task_endings, task_lifecycle, tasks, webhook_deliveries, webhooks
from accord.storage.commands.jobs import ClaimedJob
from accord.storage.commands.task_endings import EndRequest, TaskHasEnded
from accord.storage.commands.task_lifecycle import Acceptance, AlreadySignaled, SettleRequest, TaskSignal
from accord.storage.commands.tasks import Append, Behind, Fenced, Rewound
from accord.storage.postgres import batch
from accord.storage.postgres.batch import FEW_ITEMS, LINE_SEPARATOR, NULL_VALUE, VALUE_SEPARATOR
from accord.storage.postgres.driver import PostgresStore
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import BadValue, StoreUnavailable, Tx
from tests.databases import emptied
from tests.storage.conftest import (
    AT,
    BOUND_SECONDS,
    MINUTE,
    TENANT,
    AnyStore,
    Heard,
    accepting,
    appending,
    chunk,
    new,
    saying,
    status,
    webhook,
)

NODE = "n-1"
BEYOND = 2**63
"""A number that no engine keeps."""

REFUSED = "store.batch_refused"
LOST = "store.race_lost"

S = TaskState
Call = tuple[Callable[..., Coroutine[Any, Any, Any]], tuple[Any, ...]]


@asynccontextmanager
async def opened(address: str, heard: Heard) -> AsyncIterator[PostgresStore]:
    """A store with empty tables."""
    store = PostgresStore(await emptied(address), heard, listen=False)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def store(postgres: str, heard: Heard) -> AsyncIterator[PostgresStore]:
    async with opened(postgres, heard) as store:
        yield store


async def gathered(store: AnyStore, calls: Sequence[Call]) -> list[Any]:
    """Run commands at the same time and return what came of each."""
    running = (store.do(command, *args) for command, args in calls)
    async with asyncio.timeout(BOUND_SECONDS):
        return list(await asyncio.gather(*running, return_exceptions=True))


async def portably(store: AnyStore, *calls: Call) -> list[Any]:
    """Run commands as they are written, one after the other, under a name that no driver knows."""

    async def unknown(tx: Tx, call: Call) -> Any:
        command, args = call
        return await command(tx, *args)

    found: list[Any] = []
    async with asyncio.timeout(BOUND_SECONDS):
        for call in calls:
            found += await asyncio.gather(store.do(unknown, call), return_exceptions=True)
    return found


# The same as the portable commands


async def fill(store: AnyStore) -> dict[str, ClaimedJob]:
    """Tasks that this node runs, some with webhooks and all with a deadline, and what was sent before."""
    for number in range(24):
        hook = webhook() if number % 3 == 0 else None
        request = accepting(f"t-{number:02}", node=NODE, deadline_ms=MINUTE, push=hook)
        await portably(store, (task_lifecycle.accept_task, (TENANT, request)))
    await portably(
        store,
        (tasks.append, (TENANT, adding(10, "first"))),
        (steps.put_step, (TENANT, "t-17", "answer", "42", AT)),
        (task_lifecycle.accept_task, (TENANT, accepting("first", key="known"))),
        (task_lifecycle.accept_task, (TENANT, accepting("early", key="expired"))),
    )

    async def prepare(tx: Tx) -> list[Any]:
        await tx.run("UPDATE idempotency SET expires_at = 1 WHERE key = 'expired'")
        await tx.run("UPDATE job SET node = 'n-2' WHERE kind = 'deadline' AND key = 't-12'")
        return await tx.all(
            "SELECT id, tenant, queue, kind, key, arg, epoch, attempts, max_attempts FROM job WHERE kind = 'run'"
        )

    rows = await store.do(prepare)
    return {row[4]: ClaimedJob(**dict(zip(ClaimedJob.__struct_fields__, row, strict=True))) for row in rows}


def adding(number: int, *texts: str, **fields: Any) -> Append:
    task_id = f"t-{number:02}"
    return appending(task_id, *(chunk(text, task_id) for text in texts), **{"epoch": 1, **fields})


def moving(number: int, state: TaskState) -> Append:
    task_id, at = f"t-{number:02}", AT + 5
    bodies = (chunk("last", task_id), status(state, task_id, at))
    return appending(task_id, *bodies, epoch=1, at=at, snapshot=new(task_id, at=at, state=state).task)


ODD = ("nul\0", "half a pair \ud800", f"a{VALUE_SEPARATOR}b", f"a{LINE_SEPARATOR}b", NULL_VALUE)
"""What cannot be kept, and what cannot be in a line."""

NOTES = (("a:1:ended", "1"), ("b:1:ended", "2"))


def log_calls(held: dict[str, ClaimedJob]) -> list[Call]:
    """Appends and settlings: right, fenced, behind, awaited in vain, with what cannot be kept."""
    appends = [
        *(adding(number, *"abc"[: number % 3 + 1]) for number in range(6)),
        adding(6),
        adding(7, "with a snapshot", snapshot=new("t-07").task),
        moving(8, S.WORKING),
        adding(9, "fenced", epoch=7),
        adding(10, "behind"),
        adding(11, "on top of events that the store lost", after=3),
        adding(99, "no such task"),
        *(replace(adding(11, "a bad name"), task_id=key) for key in ODD),
    ]
    settles = [
        SettleRequest(last=moving(12, S.COMPLETED), job=held["t-12"], entries=NOTES),
        SettleRequest(last=moving(13, S.UNKNOWN), job=held["t-13"], entries=NOTES[:1]),
        SettleRequest(
            last=moving(14, S.INPUT_REQUIRED), job=held["t-14"], entries=tuple((key, key) for key in ODD[-2:])
        ),
        SettleRequest(last=moving(15, S.INPUT_REQUIRED), job=held["t-15"], parks=True),
        SettleRequest(last=adding(16, "waits"), job=held["t-16"], parks=True, awaited="answer"),
        SettleRequest(last=adding(17, "was woken"), job=held["t-17"], parks=True, awaited="answer", entries=NOTES),
        SettleRequest(last=adding(18, "sleeps"), job=held["t-18"], parks=True, delay_ms=MINUTE),
        SettleRequest(last=adding(19, "sleeps not"), job=held["t-19"], parks=True, delay_ms=0),
        SettleRequest(last=adding(20, "fenced", epoch=2), job=held["t-20"], entries=NOTES),
        SettleRequest(last=adding(21, "its job is another's"), job=replace(held["t-21"], epoch=9)),
    ]
    return [(tasks.append, (TENANT, one)) for one in appends] + [
        (task_lifecycle.settle_execution, (TENANT, one)) for one in settles
    ]


def other_calls(held: dict[str, ClaimedJob]) -> list[Call]:
    """New tasks, some of them sent before, and jobs that are done, one of them by another."""
    everything: dict[str, Any] = {
        "push": webhook(),
        "deadline_ms": MINUTE,
        "key": "one",
        "working": status(S.WORKING, "new-1"),
    }
    accepts = [
        accepting("new-0"),
        accepting("new-1", node=NODE, **everything),
        accepting("new-2", push=webhook(), working=status(S.WORKING, "new-2")),
        accepting("new-3", key="known"),
        accepting("new-4", key="expired", node=NODE),
        *(accepting(f"odd-{place}", key=key) for place, key in enumerate(ODD)),
        accepting("new-6", new=new("new-6", parent_id="t-00", deadline_at=AT, context_id=None)),
    ]
    finished = [held["t-22"], replace(held["t-23"], epoch=9)]
    return [
        *((task_lifecycle.accept_task, (TENANT, one)) for one in accepts),
        *((jobs.finish, (one,)) for one in finished),
    ]


def poison(held: dict[str, ClaimedJob]) -> list[list[Call]]:
    """One for each batch, because of which the server, or the driver, refuses all of it."""
    return [
        [(tasks.append, (TENANT, replace(adding(11, "too late"), at=BEYOND)))],
        [(task_lifecycle.accept_task, (TENANT, accepting("t-00"))), (jobs.finish, (replace(held["t-23"], id=BEYOND),))],
    ]


def told(outcome: Any) -> Any:
    """What must be equal: a result but for the number of its job, or an error by its kind and, if it is ours, text."""
    match outcome:
        case Acceptance(job=ClaimedJob() as job):
            return replace(outcome, job=replace(job, id=0))
        case asyncpg.IntegrityConstraintViolationError() | apsw.ConstraintError():
            return "constraint"
        case BadValue():
            return "bad value"
        case BaseException():
            return (type(outcome), str(outcome))
    return outcome


async def everything(tx: Tx) -> dict[str, list[Any]]:
    """Return all rows but for what clocks and counters gave them."""
    columns = {
        "job": "tenant, kind, key, queue, arg, priority, parked, node, epoch, attempts, max_attempts",
        "push": "tenant, task_id, id, config, dialect, cursor, attempts, due_at IS NULL, dead_at, node, epoch",
        "idempotency": "tenant, key, task_id",
    }
    names = ("task", "snapshot", "event", "job", "push", "step", "idempotency")
    return {name: sorted(await tx.all(f"SELECT {columns.get(name, '*')} FROM {name}"), key=repr) for name in names}


async def played(store: AnyStore, heard: Heard, *, by_sets: bool, poisoned: bool) -> dict[str, Any]:
    """Run all of it, at the same time or one after the other, and return what can be seen of it."""
    held = await fill(store)
    heard.clear()
    outcomes = []
    phases = [log_calls(held), other_calls(held)]
    if poisoned:
        phases = [[*bad, *calls] for bad, calls in zip(poison(held), phases, strict=True)]
    for calls in phases:
        outcomes += await gathered(store, calls) if by_sets else await portably(store, *calls)
    return {"outcomes": list(map(told, outcomes)), "hints": set(heard), **await store.read(everything)}


@pytest.mark.parametrize("poisoned", [False, True])
async def test_batches_equal_the_portable_commands(
    postgres: str, tmp_path: Path, heard: Heard, caplog: pytest.LogCaptureFixture, poisoned: bool
) -> None:
    async with opened(postgres, heard) as store:
        portable = await played(store, heard, by_sets=False, poisoned=poisoned)
    assert REFUSED not in caplog.messages
    async with opened(postgres, heard) as store:
        by_sets = await played(store, heard, by_sets=True, poisoned=poisoned)
    assert caplog.messages.count(REFUSED) == 3 * poisoned
    file = SqliteStore(tmp_path / "accord.db", heard)
    await schema.upgrade_schema(file)
    in_file = await played(file, heard, by_sets=True, poisoned=poisoned)
    await file.close()

    errors = {outcome[0] for outcome in portable["outcomes"] if isinstance(outcome, tuple)}
    assert errors == {Fenced, Behind, Rewound, AlreadySignaled}
    assert portable["outcomes"].count("bad value") == 4 + 2 * poisoned
    assert portable["outcomes"].count("constraint") == poisoned
    for seen, expected in portable.items():
        assert by_sets[seen] == expected, seen
        assert in_file[seen] == expected, seen


# Together, and in nobody's way


async def create(store: AnyStore, count: int) -> list[str]:
    """Make tasks that nobody runs."""
    ids = [f"t-{number:02}" for number in range(count)]
    await portably(store, *((tasks.create_task, (TENANT, new(task_id))) for task_id in ids))
    return ids


async def logs(tx: Tx) -> dict[str, list[int]]:
    """Return every task's sequence numbers."""
    found: dict[str, list[int]] = {}
    for task_id, seq in await tx.all("SELECT task_id, seq FROM event ORDER BY task_id, seq"):
        found.setdefault(task_id, []).append(seq)
    return found


async def test_concurrent_commands_share_a_commit(store: PostgresStore) -> None:
    ids = await create(store, 64)
    before = store.commits
    calls: list[Call] = [(tasks.append, (TENANT, appending(task_id, chunk("x", task_id)))) for task_id in ids]
    assert await gathered(store, calls) == [1] * 64
    assert store.commits - before == 2, "one is under way while the answers to the other are read"


async def test_a_second_append_to_a_task_waits_for_the_next_transaction(store: PostgresStore) -> None:
    await create(store, 1)
    before = store.commits
    calls: list[Call] = [(tasks.append, (TENANT, adding(0, "x", epoch=0, after=after))) for after in range(5)]
    assert await gathered(store, calls) == [1, 2, 3, 4, 5]
    assert store.commits - before == 5


async def test_single_commands_run_at_once_and_later_ones_batch(store: PostgresStore) -> None:
    ids = await create(store, 1 + FEW_ITEMS)
    before = store.commits
    calls: list[Call] = [(tasks.append, (TENANT, appending(task_id, chunk("x", task_id)))) for task_id in ids]
    async with locked(store, ids[0]):
        first = asyncio.create_task(gathered(store, calls[:1]))
        await somebody_waits(store)
        others = asyncio.create_task(gathered(store, calls[1:]))
        await asyncio.sleep(0)
    assert await first == [1]
    assert await others == [1] * FEW_ITEMS
    assert store.commits - before == 3  # with the one that held the task


async def test_the_same_send_twice_at_once_makes_one_task(store: PostgresStore, heard: Heard) -> None:
    calls: list[Call] = [
        (task_lifecycle.accept_task, (TENANT, accepting(f"t-{number}", key="same"))) for number in range(8)
    ]
    accepted = await gathered(store, calls)
    assert accepted == [Acceptance(task_id="t-0"), *[Acceptance(task_id="t-0", is_repeated=True)] * 7]
    assert heard.count("queue:echo") == 1


async def test_much_text_is_sent_in_parts(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await create(store, 12)
    monkeypatch.setattr(batch, "MAX_CHARACTERS", 30_000)
    before = store.commits
    calls: list[Call] = [(tasks.append, (TENANT, appending(one, chunk("x" * 10_000, one)))) for one in ids]
    assert await gathered(store, calls) == [1] * 12
    assert store.commits - before == 4


async def test_batches_and_portable_commands_never_deadlock(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "accord.postgres")
    ids = [f"t-{number:02}" for number in range(12)]
    for task_id in ids:
        await store.do(task_lifecycle.accept_task, TENANT, accepting(task_id, node=NODE, push=webhook()))

    async def append(task_id: str) -> None:
        for _ in range(15):
            stored = await store.read(tasks.read_task, TENANT, task_id)
            assert stored is not None
            try:
                one = appending(task_id, chunk("x", task_id), epoch=stored.epoch, after=stored.last_seq)
                await store.do(tasks.append, TENANT, one)
            except (Behind, Fenced):
                pass

    async def say(task_id: str) -> None:
        for number in range(8):
            try:
                await store.do(task_lifecycle.add_message, TENANT, saying(task_id, f"{task_id}-{number}"))
            except TaskHasEnded:
                return

    async def end(task_id: str) -> None:
        for _ in range(20):
            await store.read(tasks.read_task, TENANT, task_id)
        await store.do(
            task_endings.end_task, TENANT, EndRequest(task_id=task_id, status=status(S.CANCELED).status, at=AT)
        )

    async with asyncio.timeout(2 * BOUND_SECONDS):
        await asyncio.gather(*(play(one) for one in reversed(ids) for play in (append, say)), *map(end, ids[:6]))
    assert not {LOST, REFUSED} & set(caplog.messages)
    for task_id, numbers in (await store.read(logs)).items():
        stored = await store.read(tasks.read_task, TENANT, task_id)
        assert stored is not None
        assert numbers == list(range(1, stored.last_seq + 1))


@asynccontextmanager
async def locked(store: PostgresStore, task_id: str) -> AsyncIterator[Tx]:
    """Hold a task in a transaction that commits at the end, while somebody waits for it."""
    begun, commit = asyncio.Event(), asyncio.Event()
    inside: list[Tx] = []

    async def hold(tx: Tx) -> None:
        await tasks.lock_task(tx, TENANT, task_id)
        inside.append(tx)
        begun.set()
        await commit.wait()

    holding = asyncio.create_task(store.do(hold))
    async with asyncio.timeout(BOUND_SECONDS):
        await begun.wait()
        yield inside[0]
        commit.set()
        await holding


async def somebody_waits(store: PostgresStore, count: int = 1) -> None:
    async def waits(tx: Tx) -> bool:
        return len(await tx.all("SELECT 1 FROM pg_locks WHERE NOT granted")) >= count

    while not await store.read(waits):
        pass


async def test_batches_of_two_nodes_lock_tasks_in_the_same_order(
    postgres: str, store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    await create(store, 3)
    other = PostgresStore(postgres, listen=False)
    await other.open()
    calls: list[Call] = [(tasks.append, (TENANT, adding(number, "x", epoch=0))) for number in range(3)]
    async with locked(store, "t-01"):
        one = asyncio.create_task(gathered(store, calls))
        await somebody_waits(store)
        two = asyncio.create_task(gathered(other, calls[::-1]))
        await somebody_waits(store, 2)
    assert await one == [1, 1, 1]
    assert [type(outcome) for outcome in await two] == [Behind] * 3
    assert REFUSED not in caplog.messages
    await other.close()


async def test_concurrent_duplicate_messages_make_one_task(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Call] = [
        (task_lifecycle.accept_task, (TENANT, accepting(f"t-{key}", key=key))) for key in ("a", "b", "c")
    ]
    await create(store, 1)
    async with locked(store, "t-00") as tx:
        await task_lifecycle.accept_task(tx, TENANT, accepting("t-elsewhere", key="b"))
        keeping = asyncio.create_task(gathered(store, calls))
        await somebody_waits(store)
    kept = [("t-a", False), ("t-elsewhere", True), ("t-c", False)]
    assert [(one.task_id, one.is_repeated) for one in await keeping] == kept
    assert REFUSED in caplog.messages


async def test_canceled_callers_do_not_affect_the_batch(store: PostgresStore) -> None:
    await create(store, 3)
    async with locked(store, "t-00"):
        first, second = (
            asyncio.create_task(store.do(tasks.append, TENANT, adding(number, "x", epoch=0))) for number in range(2)
        )
        await somebody_waits(store)
        late = asyncio.create_task(store.do(tasks.append, TENANT, adding(2, "x", epoch=0)))
        await asyncio.sleep(0)
        first.cancel()
        late.cancel()
    assert await second == 1
    assert await store.do(tasks.append, TENANT, adding(1, "y", epoch=0, after=1)) == 2
    assert await store.read(logs) == {"t-00": [1], "t-01": [1, 2]}


async def test_batches_do_not_overwrite_concurrent_writes(store: PostgresStore) -> None:
    await create(store, 2)
    calls = [adding(0, "late", epoch=0), adding(1, "in time", epoch=0)]
    async with locked(store, "t-00") as tx:
        writing = asyncio.create_task(gathered(store, [(tasks.append, (TENANT, call)) for call in calls]))
        await somebody_waits(store)
        await tasks.append(tx, TENANT, adding(0, "first", epoch=0))
    behind, last = await writing
    assert isinstance(behind, Behind)
    assert last == 1
    assert await store.read(logs) == {"t-00": [1], "t-01": [1]}


async def test_a_webhook_set_while_the_batch_waits_for_its_task_is_due(store: PostgresStore) -> None:
    await create(store, 2)
    calls: list[Call] = [(tasks.append, (TENANT, adding(number, "x", epoch=0))) for number in range(2)]
    async with locked(store, "t-00") as tx:
        writing = asyncio.create_task(gathered(store, calls))
        await somebody_waits(store)
        await webhooks.put(tx, TENANT, "t-00", webhook(), "v1")
    assert await writing == [1, 1]
    assert [due.cursor for due in await store.do(webhook_deliveries.claim_webhooks, NODE, 10)] == [0]


@pytest.mark.parametrize("others", [0, 1])
async def test_jobs_resumed_during_a_batch_are_not_suspended(store: PostgresStore, others: int) -> None:
    accepted = await store.do(task_lifecycle.accept_task, TENANT, accepting("t-00", node=NODE))
    assert accepted.job is not None
    await portably(store, (tasks.create_task, (TENANT, new("t-01"))))
    parking = SettleRequest(last=adding(0, "waits"), job=accepted.job, parks=True, awaited="answer")
    calls: list[Call] = [
        (task_lifecycle.settle_execution, (TENANT, parking)),
        (tasks.append, (TENANT, adding(1, "x", epoch=0))),
    ]
    async with locked(store, "t-00") as tx:
        writing = asyncio.create_task(gathered(store, calls[: 1 + others]))
        await somebody_waits(store)
        await task_lifecycle.deliver_signal(tx, TENANT, TaskSignal(task_id="t-00", key="answer", output="42", at=AT))
    woken, *rest = await writing
    assert isinstance(woken, AlreadySignaled)
    assert rest == [1] * others
    assert await store.do(jobs.held_jobs, NODE) == {accepted.job.id: 1}


async def test_closing_finishes_accepted_commands_and_refuses_more(
    postgres: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "CLOSE_SECONDS", 10 * BOUND_SECONDS)
    ids = await create(store, 40)
    closing = PostgresStore(postgres, listen=False)
    await closing.open()

    async def append_for_ever(task_id: str) -> int:
        after = 0
        try:
            while True:
                after = await closing.do(tasks.append, TENANT, appending(task_id, chunk("x", task_id), after=after))
        except StoreUnavailable:
            return after

    running = [asyncio.create_task(append_for_ever(task_id)) for task_id in ids]
    await asyncio.sleep(0)
    async with asyncio.timeout(BOUND_SECONDS):
        await closing.close()
        last = dict(zip(ids, await asyncio.gather(*running), strict=True))
    assert min(last.values()) >= 1
    assert {task_id: len(numbers) for task_id, numbers in (await store.read(logs)).items()} == last


async def test_closing_does_not_wait_for_ever(
    postgres: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "CLOSE_SECONDS", 0.01)
    await create(store, 2)
    closing = PostgresStore(postgres, listen=False)
    await closing.open()
    async with locked(store, "t-00"):
        calls = [adding(0, "x", epoch=0), adding(1, "x", epoch=0), adding(0, "later", epoch=0)]
        running = asyncio.create_task(gathered(closing, [(tasks.append, (TENANT, call)) for call in calls]))
        await somebody_waits(store)
        await closing.close()
    assert [type(outcome) for outcome in await running] == [StoreUnavailable] * 3
    assert await store.read(logs) == {}


async def test_unopened_stores_are_errors(postgres: str) -> None:
    with pytest.raises(StoreUnavailable):
        await PostgresStore(postgres, listen=False).do(tasks.append, TENANT, adding(0, "x"))
