"""Workflow runs: their journals, their list, their shared values, and schedules.

Everything that a run writes at once (events, journal entries, child tasks) is one transaction.
"""

from collections.abc import Sequence

from msgspec import Struct

from accord.model import TaskState
from accord.storage.commands import steps
from accord.storage.commands.jobs import EXECUTE_TASK
from accord.storage.commands.task_lifecycle import Acceptance, AcceptRequest, accept_task
from accord.storage.commands.task_lists import VisibleTasks
from accord.storage.commands.tasks import Append, extend
from accord.storage.encoding import from_row, state_name, state_of
from accord.storage.store import Tx, Value

ORIGIN_STEP = "flow-run"
"""The step in which a run stores its origin.

It distinguishes runs from other tasks, and the database has an index on it.
"""


class JournalRequest(Struct, frozen=True, kw_only=True):
    """The new events of a run, its journal entries by key, and the tasks that it starts."""

    last: Append
    entries: tuple[tuple[str, str], ...] = ()
    calls: tuple[AcceptRequest, ...] = ()


async def write_journal(tx: Tx, tenant: str, request: JournalRequest) -> list[Acceptance]:
    """Write events, entries and tasks under the fence; return the result of each call.

    Existing entries are not changed.
    """
    last = request.last
    await extend(tx, tenant, last)
    if request.entries:
        await steps.put_steps(tx, tenant, last.task_id, request.entries, last.at)
    return [await accept_task(tx, tenant, call) for call in request.calls]


class ListedRun(Struct, frozen=True, kw_only=True):
    """A run in a list. `origin` is the stored origin, `begun_at` the time of its storage."""

    tenant: str
    task_id: str
    agent: str
    owner: str
    parent_id: str | None
    state: TaskState
    last_seq: int
    updated_at: int
    origin: str
    begun_at: int


class RunListQuery(Struct, frozen=True, kw_only=True):
    """Filters of a run list. Unset fields match everything. `inner` includes runs that are child tasks.

    `before` is the task at which the previous page ended.
    """

    tenant: str | None = None
    seen: VisibleTasks | None = None
    task_id: str | None = None
    agents: tuple[str, ...] = ()
    states: tuple[TaskState, ...] = ()
    inner: bool = False
    before: str | None = None
    limit: int = 50


async def list_runs(tx: Tx, wanted: RunListQuery) -> list[ListedRun]:
    """Return runs, latest started first."""
    where, given = _conditions(wanted)
    rows = await tx.all(
        f"""SELECT task.tenant, task.id, task.agent, task.owner, task.parent_id, task.state, task.last_seq,
                   task.updated_at, step.output, step.at
            FROM step JOIN task ON task.tenant = step.tenant AND task.id = step.task_id
            WHERE {" AND ".join(where)} ORDER BY step.task_id DESC LIMIT :limit""",
        **given,
        limit=wanted.limit,
    )
    return [from_row(ListedRun, row, state=state_of) for row in rows]


def _conditions(wanted: RunListQuery) -> tuple[list[str], dict[str, Value]]:
    """Return SQL conditions on `step` and `task`, and their values."""
    where, given = ([], {}) if wanted.seen is None else wanted.seen.condition()
    where.append("step.key = 'flow-run'")
    for column, name, value in (
        ("task.tenant =", "tenant", wanted.tenant),
        ("step.task_id =", "task_id", wanted.task_id),
        ("step.task_id <", "before", wanted.before),
    ):
        if value is not None:
            where.append(f"{column} :{name}")
            given[name] = value
    for column, kind, values in (
        ("task.state", "state", tuple(map(state_name, wanted.states))),
        ("task.agent", "agent", wanted.agents),
    ):
        if values:
            places = {f"{kind}{at}": value for at, value in enumerate(values)}
            where.append(f"{column} IN ({', '.join(f':{place}' for place in places)})")
            given.update(places)
    if not wanted.inner:
        where.append("task.parent_id IS NULL")
    return where, given


class JobStatus(Struct, frozen=True):
    """The status of a task's job."""

    is_parked: bool
    """Whether the job is suspended or not yet due."""
    is_held: bool
    """Whether a live node holds the job."""
    is_helped: bool
    """Whether a child task is submitted or working."""
    node: str | None = None
    """The node that claimed the job, alive or not."""

    @property
    def is_left(self) -> bool:
        """Whether the job is due but no live node holds it."""
        return not self.is_parked and not self.is_held

    @property
    def rests(self) -> bool:
        """Whether the job is suspended and no child task is working."""
        return self.is_parked and not self.is_helped


async def job_status(tx: Tx, tenant: str, task_id: str) -> JobStatus | None:
    """Return the status of a task's job, or None if it has no job."""
    row = await tx.one(
        """SELECT job.node IS NULL AND (job.parked = 1 OR job.run_at > {now}),
                  EXISTS (SELECT 1 FROM node WHERE node.id = job.node AND node.expires_at >= {now}),
                  EXISTS (SELECT 1 FROM task WHERE task.tenant = job.tenant AND task.parent_id = job.key
                                                   AND task.state IN ('submitted', 'working')),
                  job.node
           FROM job WHERE job.tenant = :tenant AND job.kind = :kind AND job.key = :task_id""",
        tenant=tenant,
        kind=EXECUTE_TASK,
        task_id=task_id,
    )
    return None if row is None else JobStatus(bool(row[0]), bool(row[1]), bool(row[2]), row[3])


class ValueNamespace(Struct, frozen=True):
    """The owner and the workflows that share values."""

    owner: str
    namespace: str


async def load_values(tx: Tx, tenant: str, shelf: ValueNamespace) -> dict[str, str]:
    """Return the values that have not expired."""
    rows = await tx.all(
        """SELECT key, value FROM shared_value WHERE tenant = :tenant AND owner = :owner AND namespace = :namespace
           AND (expires_at IS NULL OR expires_at > {now})""",
        tenant=tenant,
        owner=shelf.owner,
        namespace=shelf.namespace,
    )
    return dict(rows)


async def put_values(
    tx: Tx, tenant: str, shelf: ValueNamespace, values: dict[str, str], at: int, ttl_ms: int | None
) -> None:
    """Store values of time `at` unless newer ones exist, and delete expired values."""
    whose = {"tenant": tenant, "owner": shelf.owner, "namespace": shelf.namespace}
    await tx.run(
        """DELETE FROM shared_value WHERE tenant = :tenant AND owner = :owner AND namespace = :namespace
           AND expires_at <= {now}""",
        **whose,
    )
    await tx.many(
        """INSERT INTO shared_value (tenant, owner, namespace, key, value, at, expires_at)
           VALUES (:tenant, :owner, :namespace, :key, :value, :at, :expires_at)
           ON CONFLICT (tenant, owner, namespace, key) DO UPDATE
           SET value = excluded.value, at = excluded.at, expires_at = excluded.expires_at
           WHERE excluded.at >= shared_value.at""",
        [
            {**whose, "key": key, "value": value, "at": at, "expires_at": None if ttl_ms is None else at + ttl_ms}
            for key, value in sorted(values.items())
        ],
    )


async def schedule_positions(tx: Tx, agent: str, names: Sequence[str], at: int) -> dict[str, int]:
    """Return the time up to which each schedule of an agent was processed. A new schedule starts at `at`."""
    await tx.many(
        """INSERT INTO schedule (agent, name, seen_at) VALUES (:agent, :name, :at)
           ON CONFLICT (agent, name) DO NOTHING""",
        [{"agent": agent, "name": name, "at": at} for name in names],
    )
    rows = await tx.all("SELECT name, seen_at FROM schedule WHERE agent = :agent", agent=agent)
    found = {str(name): int(seen_at) for name, seen_at in rows}
    return {name: found[name] for name in names}


async def advance_schedule(tx: Tx, agent: str, name: str, at: int) -> None:
    """Record that a schedule was processed up to a time."""
    await tx.run(
        "UPDATE schedule SET seen_at = :at WHERE agent = :agent AND name = :name AND seen_at < :at",
        agent=agent,
        name=name,
        at=at,
    )
