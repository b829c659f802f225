"""Lists of the tasks that a caller may see: search, filters, pages, and changes since a cursor."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from accord.model import Message, Role, StatusUpdate, Task, TaskState, TaskStatus
from accord.model.base import Metadata
from accord.storage.commands.jobs import EXECUTE_TASK
from accord.storage.commands.tasks import COLUMNS, StoredTask, log_lengths, read_task, with_events
from accord.storage.encoding import state_name, state_of
from accord.storage.sql import MACROS
from accord.storage.store import Row, Tx, Value

MAX_COUNTED = 1000
"""Maximum of exact counts. A larger result is narrowed down with filters."""

MAX_SEARCHED = 2000
"""Maximum number of task titles per search page, newest first. The next page continues after them."""

MAX_LOOKED_BACK = 1000
"""Number of last events in which the latest status is searched. Streams write many events between two statuses."""

TITLE_LENGTH = 120
"""Maximum characters of a title."""


class VisibleTasks(Struct, frozen=True, kw_only=True):
    """Selects the tasks that a caller may see: its own, or with `sees_all` those of all owners.

    The rule is inverted for tasks of the agents in `others`. Tasks of agents in `hidden` are excluded.
    """

    owner: str
    sees_all: bool = False
    others: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def sees(self, agent: str, owner: str) -> bool:
        """Whether a task is visible, by its agent and owner."""
        if agent in self.hidden:
            return False
        return owner == self.owner or self.sees_all != (agent in self.others)

    def condition(self, owner: str = "task.owner") -> tuple[list[str], dict[str, Value]]:
        """Return SQL conditions on the table `task` and their values. `owner` is the expression of the owner."""
        found: list[str] = []
        values: dict[str, Value] = {}
        hidden, others = (
            _placeholders(kind, names, values) for kind, names in (("h", self.hidden), ("o", self.others))
        )
        if self.hidden:
            found.append(f"task.agent NOT IN ({hidden})")
        if self.sees_all and not self.others:
            return found, values
        values["seen_owner"] = self.owner
        own = f"{owner} = :seen_owner"
        if not self.others:
            found.append(own)
        else:
            found.append(f"({own} OR task.agent {'NOT IN' if self.sees_all else 'IN'} ({others}))")
        return found, values


class TaskListQuery(Struct, frozen=True, kw_only=True):
    """Filters and page of a task list. Unset fields match everything."""

    owner: str | None = None
    agents: tuple[str, ...] | None = None
    states: tuple[TaskState, ...] = ()
    context_id: str | None = None
    parent_id: str | None = None
    is_top: bool = False
    """Leaves out child tasks."""
    since: int | None = None
    """The earliest time of the latest status, in epoch milliseconds."""
    words: str = ""
    """Text in titles and IDs, ignoring case. Only `list_page` searches.

    Text that looks like an ID prefix matches task IDs. Other text is searched in the titles of the newest
    `MAX_SEARCHED` tasks that match the other filters. The next page searches the tasks before them.
    """
    before: str | None = None
    """The last ID of the previous page."""
    before_at: int | None = None
    """The time of that task's latest status, in lists that are ordered by it."""
    limit: int = 50


class ListedTask(Struct, frozen=True, kw_only=True):
    """A task in a list."""

    id: str
    context_id: str
    agent: str
    owner: str
    parent_id: str | None
    title: str
    state: TaskState
    message: Message | None
    created_at: str | None
    updated_at: int
    is_run: bool
    """Whether the task is a workflow run."""
    is_held: bool
    """Whether the task waits to be started."""
    seq: int
    """The sequence number of its last event."""


class ListedTaskPage(Struct, frozen=True, kw_only=True):
    """A page of tasks, newest first. `next` is the cursor of the next page. `total` is at most `MAX_COUNTED`.

    In a title search `total` is the number of matches among the searched tasks.
    """

    items: list[ListedTask]
    next: str | None
    total: int


class StatusChange(Struct, frozen=True):
    """A status change, with its event's sequence number. `is_run` marks workflow runs."""

    task_id: str
    seq: int
    status: TaskStatus
    at: int
    is_run: bool


class TaskChanges(Struct, frozen=True, kw_only=True):
    """Changes of tasks: rows of new tasks, statuses in order, and the last sequence numbers."""

    fresh: list[ListedTask]
    changes: list[StatusChange]
    last: dict[str, int]


async def list_tasks(tx: Tx, tenant: str, query: TaskListQuery) -> tuple[list[StoredTask], int]:
    """Return a page of tasks, latest status first, and the number of tasks on all pages."""
    where, values = _conditions(tenant, query, None)
    total = await tx.one(f"SELECT count(*) FROM task WHERE {where}", **values)
    if query.before is not None:
        where += " AND (task.updated_at, task.id) < (:before_at, :before)"
        values |= {"before_at": query.before_at, "before": query.before}
    found = await tx.all(
        f"SELECT {COLUMNS} WHERE {where} ORDER BY task.updated_at DESC, task.id DESC LIMIT :limit",
        **values,
        limit=query.limit,
    )
    return [await with_events(tx, tenant, row) for row in found], int(total[0]) if total else 0


async def list_page(tx: Tx, tenant: str, seen: VisibleTasks, query: TaskListQuery) -> ListedTaskPage:
    """Return a page of tasks, latest created first.

    Up to `MAX_COUNTED` tasks are selected by any suitable index and sorted here. More are read in ID order. Neither
    engine can predict which plan is faster.
    """
    beginning = query.words.lower() if _ID.fullmatch(query.words) else None
    if query.words and beginning is None:
        return await _search(tx, tenant, seen, query)
    where, values = _conditions(tenant, query, seen, beginning)
    few = await tx.all(f"SELECT task.id FROM task WHERE {where} LIMIT :most", **values, most=MAX_COUNTED + 1)
    if beginning is not None and not few:
        return await _search(tx, tenant, seen, query)
    if len(few) <= MAX_COUNTED:
        ids = sorted((row[0] for row in few if query.before is None or row[0] < query.before), reverse=True)
        ids = ids[: query.limit + 1]
    else:
        ids = await _walk(tx, tenant, seen, query, beginning, query.limit + 1)
    items = await rows(tx, tenant, ids[: query.limit])
    return ListedTaskPage(
        items=items, next=ids[query.limit - 1] if len(ids) > query.limit else None, total=min(len(few), MAX_COUNTED)
    )


async def _search(tx: Tx, tenant: str, seen: VisibleTasks, query: TaskListQuery) -> ListedTaskPage:
    """Return tasks with the words in their title or ID, among the next `MAX_SEARCHED` tasks."""
    ids = await _walk(tx, tenant, seen, query, None, MAX_SEARCHED)
    words = query.words.lower()
    found = [one for one in await rows(tx, tenant, ids) if words in one.title.lower() or words in one.id]
    items = found[: query.limit]
    is_cut, is_all = len(found) > query.limit, len(ids) < MAX_SEARCHED
    goes_on = items[-1].id if is_cut else None if is_all else ids[-1]
    return ListedTaskPage(items=items, next=goes_on, total=len(found))


async def _walk(
    tx: Tx, tenant: str, seen: VisibleTasks, query: TaskListQuery, beginning: str | None, limit: int
) -> list[str]:
    """Return matching IDs, read in descending order from the tenant's tasks."""
    where, values = _conditions(tenant, query, seen, beginning, walks=True)
    if query.before is not None:
        where += " AND task.id < :before"
        values["before"] = query.before
    found = await tx.all(
        f"SELECT task.id FROM task WHERE {where} ORDER BY task.id DESC LIMIT :most", **values, most=limit
    )
    return [row[0] for row in found]


def _conditions(
    tenant: str, query: TaskListQuery, seen: VisibleTasks | None, beginning: str | None = None, *, walks: bool = False
) -> tuple[str, dict[str, Value]]:
    """Return SQL conditions and their values. With `walks` they disable other indexes than the ID order."""
    as_it_is = " || ''" if walks else ""
    found, values = ([], {}) if seen is None else seen.condition(f"task.owner{as_it_is}")
    found.insert(0, "task.tenant = :tenant")
    values["tenant"] = tenant
    for condition, name, value in (
        ("task.owner = :owner", "owner", query.owner),
        ("task.context_id = :context_id", "context_id", query.context_id),
        ("task.parent_id = :parent_id", "parent_id", query.parent_id),
        ("task.updated_at >= :since", "since", query.since),
        ("task.id >= :beginning", "beginning", beginning),
        ("task.id < :beyond", "beyond", None if beginning is None else beginning + "~"),
    ):
        if value is not None:
            found.append(condition)
            values[name] = value
    if query.is_top:
        found.append("task.parent_id IS NULL")
    if query.agents is not None:
        places = _placeholders("a", query.agents, values)
        found.append(f"task.agent IN ({places})" if places else "1 = 0")
    if query.states:
        names = [f"'{state_name(state)}'" for state in query.states]
        found.append(f"task.state{as_it_is} IN ({', '.join(names)})")
        if not walks:  # neither engine infers the condition of an index from the states
            found += [f"{{{index}}}" for index in ("open", "amiss") if all(name in MACROS[index][0] for name in names)]
    return " AND ".join(found), values


def _placeholders(kind: str, names: Iterable[str], values: dict[str, Value]) -> str:
    """Return placeholders for names in a statement, and add the names to its values."""
    places = {f"seen_{kind}{at}": name for at, name in enumerate(names)}
    values.update(places)
    return ", ".join(f":{place}" for place in places)


_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f-]*)?")
"""Matches the beginning of an ID made by Accord."""


# --- rows -------------------------------------------------------------------------------------------------------------


class _PartText(Struct, frozen=True):
    """The text and file name of a part."""

    text: str | None = None
    filename: str | None = None


class _MessageText(Struct, frozen=True):
    """The role and text parts of a message."""

    role: Role
    parts: tuple[_PartText, ...]


class _SnapshotOutline(Struct, frozen=True):
    """The short fields of a snapshot. The decoder skips everything else."""

    status: TaskStatus
    history: tuple[_MessageText, ...] = ()
    metadata: Metadata | None = None


_outline = msgspec.json.Decoder(_SnapshotOutline)
_update = msgspec.json.Decoder(StatusUpdate)

_OF_TASK = "tenant = task.tenant AND task_id = task.id"
_ROWS = f"""
    SELECT task.id, task.context_id, task.agent, task.owner, task.parent_id, task.state, task.updated_at, task.last_seq,
           snapshot.doc,
           (SELECT data FROM event WHERE {_OF_TASK} AND seq > snapshot.seq AND seq > task.last_seq - :back
                AND kind = 'status' ORDER BY seq DESC LIMIT 1),
           EXISTS (SELECT 1 FROM step WHERE {_OF_TASK} AND key = 'flow-run'),
           task.state = 'submitted' AND EXISTS (
               SELECT 1 FROM job WHERE tenant = task.tenant AND kind = '{EXECUTE_TASK}' AND key = task.id
                 AND parked = 1 AND epoch = 0)
    FROM task JOIN snapshot ON snapshot.tenant = task.tenant AND snapshot.task_id = task.id
    WHERE task.tenant = :tenant AND task.id IN (SELECT key FROM {{pairs}} :ids {{end}})"""


async def rows(tx: Tx, tenant: str, ids: Sequence[str]) -> list[ListedTask]:
    """Return tasks in the order of their IDs. Missing tasks are omitted."""
    if not ids:
        return []
    found = await tx.all(_ROWS, tenant=tenant, ids=_object(dict.fromkeys(ids, 0)), back=MAX_LOOKED_BACK)
    by_id = {row[0]: _task_row(row) for row in found}
    return [by_id[id] for id in ids if id in by_id]


def _task_row(row: Row) -> ListedTask:
    outline = _outline.decode(row[8])
    status = outline.status if row[9] is None else _update.decode(row[9]).status
    return ListedTask(
        id=row[0],
        context_id=row[1],
        agent=row[2],
        owner=row[3],
        parent_id=row[4],
        title=_title(outline),
        state=state_of(row[5]),
        message=status.message,
        created_at=Task(id=row[0], status=status, metadata=outline.metadata).created_at,
        updated_at=row[6],
        is_run=bool(row[10]),
        is_held=bool(row[11]),
        seq=row[7],
    )


def _title(outline: _SnapshotOutline) -> str:
    """Return a one-line title: from the metadata, the first message, or its first file name."""
    stated = (outline.metadata or {}).get("title")
    if isinstance(stated, str) and stated.strip():
        return _line(stated)
    first = next((turn.parts for turn in outline.history if turn.role is Role.USER), ())
    texts = (part.text for part in first if part.text and not part.text.isspace())
    files = (part.filename for part in first if part.filename)
    return _line(next(texts, None) or next(files, ""))


def _line(text: str) -> str:
    line = " ".join(text[: TITLE_LENGTH * 4].split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def _object(value: Mapping[str, Any]) -> str:
    return msgspec.json.encode(value).decode()


# --- changes since a cursor -------------------------------------------------------------------------------------------


async def changes_since(
    tx: Tx, tenant: str, known: Mapping[str, int], unknown: Sequence[str], since: int
) -> TaskChanges:
    """Return changes of known tasks after their sequence numbers, and of unknown tasks since a time."""
    last = await log_lengths(tx, dict.fromkeys(known, tenant))
    fresh = await rows(tx, tenant, unknown)
    after = {id: known[id] for id, seq in last.items() if seq > known[id]}
    after |= {row.id: max(0, row.seq - MAX_LOOKED_BACK) for row in fresh}
    changes = await statuses(tx, tenant, after)
    return TaskChanges(
        fresh=fresh,
        changes=[one for one in changes if one.task_id in known or one.at >= since],
        last=last | {row.id: row.seq for row in fresh},
    )


async def statuses(tx: Tx, tenant: str, after: Mapping[str, int]) -> list[StatusChange]:
    """Return all status changes after these sequence numbers, in order per task."""
    if not after:
        return []
    found = await tx.all(
        """SELECT event.task_id, event.seq, event.data, event.at, EXISTS (
                      SELECT 1 FROM step WHERE tenant = event.tenant AND task_id = event.task_id AND key = 'flow-run')
           FROM {pairs} :after {end} AS wanted JOIN event ON event.tenant = :tenant AND event.task_id = wanted.key
                AND event.seq > CAST(wanted.value AS {int}) AND event.kind = 'status'
           ORDER BY event.task_id, event.seq""",
        tenant=tenant,
        after=_object(after),
    )
    return [StatusChange(row[0], row[1], _update.decode(row[2]).status, row[3], bool(row[4])) for row in found]


async def recently_changed(tx: Tx, tenant: str, seen: VisibleTasks, since: int, limit: int) -> dict[str, int]:
    """Return tasks with a new status since a time, latest first, with their last sequence numbers."""
    where, values = seen.condition()
    found = await tx.all(
        f"""SELECT id, last_seq FROM task WHERE {" AND ".join(["tenant = :tenant", "updated_at >= :since", *where])}
            ORDER BY updated_at DESC, id DESC LIMIT :limit""",
        **values,
        tenant=tenant,
        since=since,
        limit=limit,
    )
    return {id: seq for id, seq in found}


async def read_with_row(tx: Tx, tenant: str, task_id: str) -> tuple[StoredTask, ListedTask] | None:
    """Return a task and its list row from the same snapshot."""
    stored = await read_task(tx, tenant, task_id)
    return None if stored is None else (stored, (await rows(tx, tenant, [task_id]))[0])


async def list_waiting(
    tx: Tx, tenant: str, seen: VisibleTasks, states: Sequence[TaskState], limit: int
) -> list[ListedTask]:
    """Return visible open tasks in these states, longest waiting first."""
    where, values = seen.condition()
    names = ", ".join(f"'{state_name(state)}'" for state in states)
    found = await tx.all(
        f"""SELECT id FROM task
            WHERE {" AND ".join(["tenant = :tenant", f"state IN ({names})", "{open}", *where])}
            ORDER BY updated_at, id LIMIT :limit""",
        **values,
        tenant=tenant,
        limit=limit,
    )
    return await rows(tx, tenant, [row[0] for row in found])
