"""The same commands, in any order, give the same answers and leave the same rows on SQLite and on PostgreSQL.

There are few tenants, tasks and nodes, so that commands meet. Time is not waited for: before each command everything
becomes older by a step, so far that what the clocks of the engines measure between two commands does not matter.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import apsw
import asyncpg
import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from accord.model import Event, EventBody, TaskState, TaskStatus
from accord.protocol import lifecycle
from accord.storage import schema
from accord.storage.commands import (
    jobs,
    steps,
    task_endings,
    task_lifecycle,
    task_lists,
    tasks,
    webhook_deliveries,
    webhooks,
)
from accord.storage.commands.jobs import DEADLINE, SLA, TIMERS, NewJob
from accord.storage.commands.steps import ParentExecution, StepResult
from accord.storage.commands.task_endings import EndRequest, TaskTimer
from accord.storage.commands.task_lifecycle import JobOptions, SettleRequest, TaskSignal
from accord.storage.commands.task_lists import TaskListQuery
from accord.storage.commands.tasks import StoredTask
from accord.storage.postgres.driver import PostgresStore
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import Row, Tx
from tests.storage.conftest import (
    AT,
    MINUTE,
    AnyStore,
    accepting,
    appending,
    chunk,
    new,
    pass_time,
    saying,
    status,
    webhook,
)

TABLES = ("node", "task", "snapshot", "event", "idempotency", "job", "push", "step")
STEP_MS = 50 * MINUTE
QUEUE = "work"
SYNTHETIC = AT + 10_000_000_000
"""Times after this are the database's own."""

tenants = st.sampled_from(["a", "b"])
task_ids = st.sampled_from(["t-0", "t-1", "t-2"])
owners = st.sampled_from([None, None, None, "alice", "eve"])
nodes = st.sampled_from(["n-0", "n-1"])
some_node = st.none() | nodes
keys = st.sampled_from(["k-0", "k-1"])
some_key = st.none() | keys
states = st.sampled_from(TaskState)
delays = st.sampled_from([0, STEP_MS + STEP_MS // 2, 3 * STEP_MS + STEP_MS // 2])
some_delay = st.none() | delays
offsets = st.sampled_from([(0, 0), (0, 0), (0, 0), (1, 0), (0, 1)])
"""How far a writer's epoch and its last event are behind: mostly not."""

picks = st.integers(0, 9)
hooks = st.builds(webhook, st.sampled_from(["w-0", "w-1"]), st.sampled_from(["https://a", "https://b"]))


class Pair(NamedTuple):
    """The same thing as either engine knows it."""

    sqlite: Any
    postgres: Any


class Refused(NamedTuple):
    """A command that raised."""

    kind: str


def plain(value: Any) -> Any:
    """Return an answer without what may differ: numbers of jobs and times of the database's clock."""
    if isinstance(value, dict):
        if value and all(isinstance(key, int) for key in value):
            return sorted(value.values())  # what a node holds, by the numbers of its jobs
        return {key: plain(found) for key, found in value.items() if not (key == "id" and isinstance(found, int))}
    if isinstance(value, list | tuple):
        return [plain(found) for found in value]
    if isinstance(value, str):
        return re.sub(r"20(2[4-9]|[3-9]\d)-\d\d-\d\dT[\d:.]+Z", "now", value)
    if isinstance(value, int) and value > SYNTHETIC:
        return "now"
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.to_builtins(value))
    return value


async def dump(tx: Tx) -> dict[str, list[Any]]:
    """Return every row of every table: times as steps from now, numbers of jobs as their order."""
    row = await tx.one("SELECT {now}")
    now = int(row[0]) if row else 0
    found = {}
    for table in TABLES:
        rows = await tx.all(f"SELECT * FROM {table} ORDER BY 1, 2, 3")
        found[table] = [_normal(row[1:] if table == "job" else row, now) for row in rows]
    return found


def _normal(row: Row, now: int) -> list[Any]:
    return [
        (value - now + STEP_MS // 4) // STEP_MS if isinstance(value, int) and value > SYNTHETIC else plain(value)
        for value in row
    ]


async def clear(tx: Tx) -> None:
    for table in TABLES:
        await tx.run(f"DELETE FROM {table}")


class Both:
    """Both stores, asked the same."""

    def __init__(self, sqlite: SqliteStore, postgres: PostgresStore, runner: asyncio.Runner) -> None:
        self._stores: tuple[AnyStore, AnyStore] = (sqlite, postgres)
        self._runner = runner

    def do(self, command: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **kwargs: Any) -> Pair:
        """Run a command on both, compare the answers and return them."""
        found = Pair(*(self._outcome(at, command, args, kwargs) for at in range(2)))
        assert plain(found.sqlite) == plain(found.postgres), command.__name__
        return found

    def _outcome(self, at: int, command: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mine = [given[at] if isinstance(given, Pair) else given for given in args]
        try:
            return self._runner.run(self._one_step_later(self._stores[at], command, mine, kwargs))
        except (apsw.ConstraintError, asyncpg.IntegrityConstraintViolationError):
            return Refused("constraint")
        except (
            tasks.Fenced,
            tasks.Behind,
            task_endings.NoSuchTask,
            task_endings.TaskHasEnded,
            task_lifecycle.AlreadySignaled,
        ) as error:
            return Refused(repr(error))
        except lifecycle.TaskEnded as error:
            return Refused(repr(error))

    async def _one_step_later(self, store: AnyStore, command: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        await store.do(pass_time, STEP_MS)
        return await store.do(command, *args, **kwargs)

    def compare(self) -> None:
        """Compare everything that is kept."""
        sqlite, postgres = (self._runner.run(store.do(dump)) for store in self._stores)
        for table in TABLES:
            assert sqlite[table] == postgres[table], table

    def clear(self) -> None:
        """Forget everything."""
        for store in self._stores:
            self._runner.run(store.do(clear))


class Machine(RuleBasedStateMachine):
    """Any commands in any order."""

    def __init__(self, both: Both) -> None:
        super().__init__()
        both.clear()
        self.both = both
        self.jobs: list[Pair] = []
        self.due: list[Pair] = []
        self.steps = 0

    @invariant()
    def tick(self) -> None:
        self.steps += 1

    def teardown(self) -> None:
        self.both.compare()

    @property
    def at(self) -> int:
        """The time of what happens now; several things happen at the same time."""
        return AT + self.steps // 4

    def stored(self, tenant: str, task_id: str) -> StoredTask | None:
        found = self.both.do(tasks.read_task, tenant, task_id).sqlite
        assert found is None or isinstance(found, StoredTask)
        return found

    def hold(self, found: Pair) -> None:
        """Remember the jobs of an answer."""
        self.jobs += [Pair(*both) for both in zip(*found, strict=True) if None not in both]

    def forget(self, *name: str) -> None:
        """Leave alone what is done: the same work, added again, may get the same number on SQLite."""
        self.jobs = [job for job in self.jobs if (job.sqlite.tenant, job.sqlite.kind, job.sqlite.key) != name]

    def bodies(self, stored: StoredTask, state: TaskState | None) -> list[EventBody]:
        """A chunk, or a change of state that is allowed."""
        before = stored.task_state
        if state is not None and state in lifecycle.TRANSITIONS[before]:
            return [status(state, stored.id, self.at)]
        return [] if before in lifecycle.TERMINAL else [chunk("x", stored.id)]

    # --- tasks ------------------------------------------------------------------------------------------------------

    @initialize(begins=st.lists(st.tuples(tenants, some_node, st.none() | hooks, some_delay), min_size=3, max_size=3))
    def begin(self, begins: list[tuple[str, Any, Any, Any]]) -> None:
        """There are nodes and tasks to begin with."""
        for node in ("n-0", "n-1"):
            self.heartbeat(node, 9 * STEP_MS + STEP_MS // 2)
        for at, (tenant, node, hook, deadline) in enumerate(begins):
            self.accept(tenant, f"t-{at}", node, None, hook, deadline)

    @rule(tenant=tenants, task_id=task_ids, node=some_node, key=some_key, hook=st.none() | hooks, deadline=some_delay)
    def accept(self, tenant: str, task_id: str, node: Any, key: Any, hook: Any, deadline: Any) -> None:
        request = accepting(
            new=new(task_id, at=self.at, agent=QUEUE),
            work=JobOptions(queue=QUEUE, node=node, max_attempts=2),
            key=key,
            working=status(TaskState.WORKING, task_id, self.at),
            push=hook,
            deadline_ms=deadline,
        )
        found = self.both.do(task_lifecycle.accept_task, tenant, request)
        if not isinstance(found.sqlite, Refused):
            self.hold(Pair([found.sqlite.job], [found.postgres.job]))

    @rule(pick=picks, task_id=task_ids, node=some_node, key=keys)
    def call(self, pick: int, task_id: str, node: Any, key: str) -> None:
        for job in self.jobs[-1 - pick :][:1]:
            parent = ParentExecution(task_id=job.sqlite.key, epoch=job.sqlite.epoch, step=f"child:{key}")
            request = accepting(
                new=new(task_id, at=self.at, agent=QUEUE, parent_id=parent.task_id),
                work=JobOptions(queue=QUEUE, node=node, max_attempts=2),
                parent=parent,
            )
            found = self.both.do(task_lifecycle.accept_task, job.sqlite.tenant, request)
            if not isinstance(found.sqlite, Refused):
                self.hold(Pair([found.sqlite.job], [found.postgres.job]))

    @rule(tenant=tenants, task_id=task_ids, node=some_node, key=some_key, owner=owners)
    def say(self, tenant: str, task_id: str, node: Any, key: Any, owner: Any) -> None:
        found = self.both.do(
            task_lifecycle.add_message,
            tenant,
            saying(task_id, str(self.steps), node=node, key=key, owner=owner, at=self.at),
        )
        if not isinstance(found.sqlite, Refused):
            self.hold(Pair([found.sqlite.job], [found.postgres.job]))

    @rule(tenant=tenants, task_id=task_ids, state=st.none() | states, off=offsets)
    def append(self, tenant: str, task_id: str, state: Any, off: tuple[int, int]) -> None:
        if stored := self.stored(tenant, task_id):
            bodies = self.bodies(stored, state)
            epoch, after = stored.epoch - off[0], stored.last_seq - off[1]
            moved = lifecycle.fold(stored.task(), [Event(seq=0, body=body) for body in bodies])
            snapshot = moved if self.steps % 2 else None
            request = appending(task_id, *bodies, epoch=epoch, after=after, at=self.at, snapshot=snapshot)
            self.both.do(tasks.append, tenant, request)

    @rule(tenant=tenants, task_id=task_ids, seq=st.integers(0, 3), limit=st.integers(1, 3))
    def read(self, tenant: str, task_id: str, seq: int, limit: int) -> None:
        self.both.do(tasks.events_after, tenant, task_id, seq, limit=limit)
        self.both.do(tasks.lock_task, tenant, task_id)

    @rule(
        tenant=tenants,
        owner=owners,
        state=st.sampled_from([TaskState.SUBMITTED, TaskState.WORKING, TaskState.COMPLETED, TaskState.REJECTED]),
        since=st.none() | st.integers(AT, AT + 9),
        before=st.none() | st.tuples(st.integers(AT, AT + 9), task_ids),
        limit=st.integers(1, 3),
    )
    def list_tasks(self, tenant: str, **filters: Any) -> None:
        # Those that failed, and children that ended with them, got their time and so their place from the database.
        before_at, before = filters.pop("before") or (None, None)
        query = TaskListQuery(states=(filters.pop("state"),), before=before, before_at=before_at, **filters)
        self.both.do(task_lists.list_tasks, tenant, query)

    @rule(tenant=tenants, task_id=task_ids, state=states)
    def end(self, tenant: str, task_id: str, state: TaskState) -> None:
        if state in lifecycle.ENDED:
            ending = EndRequest(task_id=task_id, status=TaskStatus(state=state), at=self.at)
            self.both.do(task_endings.end_task, tenant, ending)

    # --- work -------------------------------------------------------------------------------------------------------

    @rule(tenant=tenants, key=keys, node=some_node, priority=st.integers(-1, 1), delay=delays)
    def enqueue(self, tenant: str, key: str, node: Any, priority: int, delay: int) -> None:
        job = NewJob(kind="mail", key=key, queue=QUEUE, node=node, priority=priority, delay_ms=delay)
        found = self.both.do(jobs.enqueue, tenant, job)
        self.hold(Pair([found.sqlite], [found.postgres]))

    @rule(node=nodes, count=st.integers(1, 3), limit=st.none() | st.integers(1, 3))
    def claim(self, node: str, count: int, limit: int | None) -> None:
        self.hold(self.both.do(jobs.claim, node, QUEUE, count, limit))

    @rule(pick=picks, delay=delays, counts=st.booleans())
    def release(self, pick: int, delay: int, counts: bool) -> None:
        for job in self.jobs[-1 - pick :][:1]:
            self.both.do(jobs.release, job, delay, counts=counts)

    @rule(pick=picks, delay=some_delay)
    def park(self, pick: int, delay: int | None) -> None:
        for job in self.jobs[-1 - pick :][:1]:
            self.both.do(jobs.park, job, delay)

    @rule(pick=picks)
    def finish(self, pick: int) -> None:
        for job in self.jobs[-1 - pick :][:1]:
            self.both.do(jobs.finish, job)
            self.forget(job.sqlite.tenant, job.sqlite.kind, job.sqlite.key)

    @rule(pick=picks)
    def give_up(self, pick: int) -> None:
        for job in self.jobs[-1 - pick :][:1]:
            self.both.do(task_endings.give_up_job, job)
            self.forget(job.sqlite.tenant, job.sqlite.kind, job.sqlite.key)

    @rule(pick=picks)
    def let_go(self, pick: int) -> None:
        for job in self.jobs[-1 - pick :][:1]:
            self.both.do(task_endings.release_ended_job, job)
            self.forget(job.sqlite.tenant, job.sqlite.kind, job.sqlite.key)

    @rule(pick=picks, state=states, child=task_ids)
    def pass_on(self, pick: int, state: TaskState, child: str) -> None:
        for job in self.jobs[-1 - pick :][:1]:
            if stored := self.stored(job.sqlite.tenant, job.sqlite.key):
                last = appending(
                    stored.id, *self.bodies(stored, state), epoch=job.sqlite.epoch, after=stored.last_seq, at=self.at
                )
                requests = (
                    SettleRequest(last=last, job=one, parks=True, child=child, parent_id=stored.parent_id)
                    for one in job
                )
                self.both.do(task_lifecycle.settle_execution, job.sqlite.tenant, Pair(*requests))

    @rule(pick=picks, state=states, parks=st.booleans(), delay=some_delay, awaited=some_key)
    def settle(self, pick: int, state: TaskState, parks: bool, delay: Any, awaited: Any) -> None:
        for job in self.jobs[-1 - pick :][:1]:
            stored = self.stored(job.sqlite.tenant, job.sqlite.key)
            if stored is None:
                continue
            last = appending(
                stored.id, *self.bodies(stored, state), epoch=job.sqlite.epoch, after=stored.last_seq, at=self.at
            )
            requests = (SettleRequest(last=last, job=one, parks=parks, delay_ms=delay, awaited=awaited) for one in job)
            self.both.do(task_lifecycle.settle_execution, job.sqlite.tenant, Pair(*requests))

    @rule(tenant=tenants, task_id=task_ids, key=keys)
    def wake(self, tenant: str, task_id: str, key: str) -> None:
        self.both.do(
            task_lifecycle.deliver_signal,
            tenant,
            TaskSignal(task_id=task_id, key=key, output=str(self.steps), at=self.at),
        )

    @rule(tenant=tenants, task_id=task_ids, key=keys, off=st.integers(0, 1))
    def commit(self, tenant: str, task_id: str, key: str, off: int) -> None:
        if stored := self.stored(tenant, task_id):
            step = StepResult(task_id=task_id, epoch=stored.epoch - off, key=key, output=str(self.steps), at=self.at)
            self.both.do(steps.commit_step, tenant, step)
            self.both.do(steps.load_steps, tenant, task_id)

    @rule(tenant=tenants, task_id=task_ids, kind=st.sampled_from([DEADLINE, SLA]), delay=delays)
    def set_timer(self, tenant: str, task_id: str, kind: str, delay: int) -> None:
        self.both.do(task_endings.set_timer, tenant, TaskTimer(task_id=task_id, kind=kind, delay_ms=delay))
        self.forget(tenant, kind, task_id)

    @rule(node=nodes)
    def claim_timers(self, node: str) -> None:
        self.hold(self.both.do(jobs.claim, node, TIMERS, 9))

    @rule(pick=picks)
    def expire(self, pick: int) -> None:
        timers = [job for job in self.jobs if job.sqlite.queue == TIMERS]
        for timer in timers[-1 - pick :][:1]:
            self.both.do(task_endings.expire_timer, timer, TaskStatus(state=TaskState.FAILED), self.at)
            self.forget(timer.sqlite.tenant, timer.sqlite.kind, timer.sqlite.key)

    # --- nodes ------------------------------------------------------------------------------------------------------

    @rule(node=nodes, lease=delays, beats=picks)
    def heartbeat(self, node: str, lease: int, beats: int = 1) -> None:
        self.both.do(jobs.heartbeat, node, lease, beats)

    @rule(node=nodes, counts=st.booleans())
    def leave(self, node: str, counts: bool) -> None:
        self.both.do(jobs.forget_node, node, counts=counts)

    @rule(node=nodes, beats=picks)
    def reap(self, node: str, beats: int) -> None:
        self.both.do(task_endings.reap_nodes, {node: beats})

    # --- webhooks ---------------------------------------------------------------------------------------------------

    @rule(tenant=tenants, task_id=task_ids, hook=hooks, after=st.none() | st.integers(0, 2))
    def put_hook(self, tenant: str, task_id: str, hook: Any, after: int | None) -> None:
        self.both.do(webhooks.put, tenant, task_id, hook, "v1", after=after)

    @rule(tenant=tenants, task_id=task_ids, id=st.sampled_from([None, "w-0"]), url=st.sampled_from([None, "https://a"]))
    def delete_hook(self, tenant: str, task_id: str, id: str | None, url: str | None) -> None:
        self.both.do(webhooks.delete, tenant, task_id, id=id, url=url)
        self.both.do(webhooks.list_webhooks, tenant, task_id)

    @rule(node=nodes)
    def claim_hooks(self, node: str) -> None:
        async def in_order(tx: Tx) -> Any:  # webhooks of one task are due at the same time
            return sorted(
                await webhook_deliveries.claim_webhooks(tx, node, 99), key=lambda due: (due.tenant, due.task_id, due.id)
            )

        self.due += [Pair(*both) for both in zip(*self.both.do(in_order), strict=True)]

    @rule(pick=picks, more=st.integers(0, 2), keeps=st.booleans())
    def advance(self, pick: int, more: int, keeps: bool) -> None:
        for due in self.due[-1 - pick :][:1]:
            self.both.do(webhooks.advance, due, due.sqlite.cursor + more, keeps=keeps)

    @rule(pick=picks, delay=some_delay)
    def fail(self, pick: int, delay: int | None) -> None:
        for due in self.due[-1 - pick :][:1]:
            self.both.do(webhooks.fail, due, "503", delay)

    @rule(tenant=tenants, task_id=task_ids, id=st.sampled_from(["w-0", "w-1"]), after=st.none() | st.integers(0, 2))
    def redeliver(self, tenant: str, task_id: str, id: str, after: int | None) -> None:
        self.both.do(webhooks.redeliver, tenant, task_id, id, after)


def test_both_engines_answer_alike_and_keep_the_same(postgres: str) -> None:
    given = settings(
        settings(),
        max_examples=max(25, settings().max_examples // 40),
        stateful_step_count=40,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    with asyncio.Runner() as runner:
        sqlite, server = SqliteStore(None), PostgresStore(f"{postgres}&synchronous_commit=off", listen=False)
        runner.run(server.open())
        try:
            for store in (sqlite, server):
                runner.run(schema.upgrade_schema(store))
            run_state_machine_as_test(partial(Machine, Both(sqlite, server, runner)), settings=given)  # type: ignore[arg-type]
        finally:
            for store in (sqlite, server):
                runner.run(store.close())
