"""What a run that does many things at once has written down: what it says, notes and begins is one transaction.

Entries are steps like any other (`steps`), only ever added; tasks that it begins are `runs.accept`'s.
"""

from msgspec import Struct

from accord.model import TaskState
from accord.storage.commands import steps
from accord.storage.commands.browsing import Seen
from accord.storage.commands.jobs import RUN
from accord.storage.commands.runs import Accept, Accepted, accept
from accord.storage.commands.tasks import Append, extend
from accord.storage.records import state_name, state_of
from accord.storage.store import Tx, Value

ORIGIN = "flow-run"
"""The key under which a run notes where it comes from when it begins: by it runs are told from other tasks, and the
database has an index of it."""


class Advance(Struct, frozen=True, kw_only=True):
    """The events that a run has said, the entries that it writes down, by key, and the tasks that it begins."""

    last: Append
    entries: tuple[tuple[str, str], ...] = ()
    calls: tuple[Accept, ...] = ()


async def advance(tx: Tx, tenant: str, request: Advance) -> list[Accepted]:
    """Write everything down under the fence, and return what became of each call; an entry that is there stays."""
    last = request.last
    await extend(tx, tenant, last)
    if request.entries:
        await steps.note(tx, tenant, last.task_id, request.entries, last.at)
    return [await accept(tx, tenant, call) for call in request.calls]


class Begun(Struct, frozen=True, kw_only=True):
    """A task that noted where it comes from, as a list shows it: `origin` is what it noted, `begun_at` is when."""

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


class Runs(Struct, frozen=True, kw_only=True):
    """Which of them are wanted; unset members do not matter. Those that others have begun are `inner`.

    `before` is the task where the last page ended.
    """

    tenant: str | None = None
    seen: Seen | None = None
    task_id: str | None = None
    agents: tuple[str, ...] = ()
    states: tuple[TaskState, ...] = ()
    inner: bool = False
    before: str | None = None
    limit: int = 50


async def begun(tx: Tx, wanted: Runs) -> list[Begun]:
    """Return tasks that noted where they come from, those that began last first."""
    where, given = _conditions(wanted)
    rows = await tx.all(
        f"""SELECT task.tenant, task.id, task.agent, task.owner, task.parent_id, task.state, task.last_seq,
                   task.updated_at, step.output, step.at
            FROM step JOIN task ON task.tenant = step.tenant AND task.id = step.task_id
            WHERE {" AND ".join(where)} ORDER BY step.task_id DESC LIMIT :limit""",
        **given,
        limit=wanted.limit,
    )
    return [
        Begun(
            tenant=row[0],
            task_id=row[1],
            agent=row[2],
            owner=row[3],
            parent_id=row[4],
            state=state_of(row[5]),
            last_seq=row[6],
            updated_at=row[7],
            origin=row[8],
            begun_at=row[9],
        )
        for row in rows
    ]


def _conditions(wanted: Runs) -> tuple[list[str], dict[str, Value]]:
    """Return what a statement on `step` and `task` has to say, and its values."""
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


class Held(Struct, frozen=True):
    """Who is at work on a task: whether its work waits for something, and a node that lives has it, or its children."""

    is_parked: bool
    is_held: bool
    is_helped: bool
    node: str | None = None
    """The node that has claimed it, whether it lives or not."""

    @property
    def is_left(self) -> bool:
        """Whether there is something to do that nobody does."""
        return not self.is_parked and not self.is_held

    @property
    def rests(self) -> bool:
        """Whether nobody works: everything waits."""
        return self.is_parked and not self.is_helped


async def held(tx: Tx, tenant: str, task_id: str) -> Held | None:
    """Return who is at work on a task; None for one that has no more work."""
    row = await tx.one(
        """SELECT job.node IS NULL AND (job.parked = 1 OR job.run_at > {now}),
                  EXISTS (SELECT 1 FROM node WHERE node.id = job.node AND node.expires_at >= {now}),
                  EXISTS (SELECT 1 FROM task WHERE task.tenant = job.tenant AND task.parent_id = job.key
                                                   AND task.state IN ('submitted', 'working')),
                  job.node
           FROM job WHERE job.tenant = :tenant AND job.kind = :kind AND job.key = :task_id""",
        tenant=tenant,
        kind=RUN,
        task_id=task_id,
    )
    return None if row is None else Held(bool(row[0]), bool(row[1]), bool(row[2]), row[3])
