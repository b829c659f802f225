"""Lists of the tasks that a caller may see: search, filters, pages, and changes since the last look."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from accord.model import Message, Role, StatusUpdate, Task, TaskState, TaskStatus
from accord.model.base import Metadata
from accord.storage.commands.jobs import RUN
from accord.storage.commands.tasks import StoredTask, index_conditions, log_lengths, read_task
from accord.storage.encoding import state_name, state_of
from accord.storage.store import Row, Tx, Value

MAX_COUNTED = 1000
"""Up to where tasks are counted: whoever sees more of them narrows the list down instead of reading on."""

MAX_SEARCHED = 2000
"""Tasks whose titles one search looks through, newest first; the page after it goes on from there."""

MAX_LOOKED_BACK = 1000
"""Events from the end of a log among which the latest status is looked for: streams say much between two of them."""

TITLE_LENGTH = 120
"""Characters of a title."""


class VisibleTasks(Struct, frozen=True, kw_only=True):
    """Which tasks of a tenant are seen: those of an owner, or with `sees_all` everybody's.

    For tasks of the agents `others` it is the other way round, and tasks of `hidden` ones are not seen at all.
    """

    owner: str
    sees_all: bool = False
    others: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def sees(self, agent: str, owner: str) -> bool:
        """Whether a task is seen, by its agent and its owner."""
        if agent in self.hidden:
            return False
        return owner == self.owner or self.sees_all != (agent in self.others)

    def condition(self, owner: str = "task.owner") -> tuple[list[str], dict[str, Value]]:
        """Return what a statement on the table `task` has to say, and its values; `owner` is how it has the owner."""
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


class TaskSearch(Struct, frozen=True, kw_only=True):
    """Which of them are wanted; unset members do not matter. `before` is the id at which the last page ended.

    `since` is about the latest status. `words` are looked for in titles and ids, whatever their case: what looks like
    the beginning of an id finds the tasks whose ids begin so; anything else goes through the titles of the newest
    `SEARCHED` tasks that are wanted otherwise, and the next page through those before them.
    """

    states: tuple[TaskState, ...] = ()
    agents: tuple[str, ...] | None = None
    context_id: str | None = None
    parent_id: str | None = None
    is_top: bool = False
    since: int | None = None
    words: str = ""
    before: str | None = None
    limit: int = 50


class ListedTask(Struct, frozen=True, kw_only=True):
    """A task in a list; `seq` is its last event's number. One that is `held` does not begin until it is executed."""

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
    is_held: bool
    seq: int


class ListedTaskPage(Struct, frozen=True, kw_only=True):
    """A page, newest first; `next` is where the one after it begins. `total` counts as far as `COUNTED`.

    In a search by title it is what the page has found.
    """

    items: list[ListedTask]
    next: str | None
    total: int


class StatusChange(Struct, frozen=True):
    """A status that a task was given, by the number of its event, and whether it is a run of a workflow by now."""

    task_id: str
    seq: int
    status: TaskStatus
    at: int
    is_run: bool


class TaskChanges(Struct, frozen=True, kw_only=True):
    """What happened to tasks: rows of those nobody knew, statuses in order, and the numbers of their last events."""

    fresh: list[ListedTask]
    changes: list[StatusChange]
    last: dict[str, int]


async def list_page(tx: Tx, tenant: str, seen: VisibleTasks, wanted: TaskSearch) -> ListedTaskPage:
    """Return a page of tasks, those that were created last first.

    Few tasks are found by whatever index suits them and put in order here; many are walked through in their order.
    Neither engine could know beforehand which of the two is quick.
    """
    beginning = wanted.words.lower() if _ID.fullmatch(wanted.words) else None
    if wanted.words and beginning is None:
        return await _search(tx, tenant, seen, wanted)
    where, values = _conditions(tenant, seen, wanted, beginning)
    few = await tx.all(f"SELECT task.id FROM task WHERE {where} LIMIT :most", **values, most=MAX_COUNTED + 1)
    if beginning is not None and not few:
        return await _search(tx, tenant, seen, wanted)
    if len(few) <= MAX_COUNTED:
        ids = sorted((row[0] for row in few if wanted.before is None or row[0] < wanted.before), reverse=True)
        ids = ids[: wanted.limit + 1]
    else:
        ids = await _walk(tx, tenant, seen, wanted, beginning, wanted.limit + 1)
    items = await rows(tx, tenant, ids[: wanted.limit])
    return ListedTaskPage(
        items=items, next=ids[wanted.limit - 1] if len(ids) > wanted.limit else None, total=min(len(few), MAX_COUNTED)
    )


async def _search(tx: Tx, tenant: str, seen: VisibleTasks, wanted: TaskSearch) -> ListedTaskPage:
    """Return the tasks with words in their titles or ids among the next ones."""
    ids = await _walk(tx, tenant, seen, wanted, None, MAX_SEARCHED)
    words = wanted.words.lower()
    found = [one for one in await rows(tx, tenant, ids) if words in one.title.lower() or words in one.id]
    items = found[: wanted.limit]
    is_cut, is_all = len(found) > wanted.limit, len(ids) < MAX_SEARCHED
    goes_on = items[-1].id if is_cut else None if is_all else ids[-1]
    return ListedTaskPage(items=items, next=goes_on, total=len(found))


async def _walk(
    tx: Tx, tenant: str, seen: VisibleTasks, wanted: TaskSearch, beginning: str | None, limit: int
) -> list[str]:
    """Return ids in their order, by walking through the tasks of a tenant."""
    where, values = _conditions(tenant, seen, wanted, beginning, walks=True)
    if wanted.before is not None:
        where += " AND task.id < :before"
        values["before"] = wanted.before
    found = await tx.all(
        f"SELECT task.id FROM task WHERE {where} ORDER BY task.id DESC LIMIT :most", **values, most=limit
    )
    return [row[0] for row in found]


def _conditions(
    tenant: str, seen: VisibleTasks, wanted: TaskSearch, beginning: str | None, *, walks: bool = False
) -> tuple[str, dict[str, Value]]:
    """Return what a statement has to say; one that walks through ids must not be led elsewhere by other indexes."""
    as_it_is = " || ''" if walks else ""
    found, values = seen.condition(f"task.owner{as_it_is}")
    found.insert(0, "task.tenant = :tenant")
    values["tenant"] = tenant
    for condition, name, value in (
        ("task.context_id = :context_id", "context_id", wanted.context_id),
        ("task.parent_id = :parent_id", "parent_id", wanted.parent_id),
        ("task.updated_at >= :since", "since", wanted.since),
        ("task.id >= :beginning", "beginning", beginning),
        ("task.id < :beyond", "beyond", None if beginning is None else beginning + "~"),
    ):
        if value is not None:
            found.append(condition)
            values[name] = value
    if wanted.is_top:
        found.append("task.parent_id IS NULL")
    if wanted.agents is not None:
        places = _placeholders("a", wanted.agents, values)
        found.append(f"task.agent IN ({places})" if places else "1 = 0")
    if wanted.states:
        names = [f"'{state_name(state)}'" for state in wanted.states]
        found.append(f"task.state{as_it_is} IN ({', '.join(names)})")
        found += [] if walks else index_conditions(wanted.states)
    return " AND ".join(found), values


def _placeholders(kind: str, names: Iterable[str], values: dict[str, Value]) -> str:
    """Return places for names in a statement, and add them to its values."""
    places = {f"seen_{kind}{at}": name for at, name in enumerate(names)}
    values.update(places)
    return ", ".join(f":{place}" for place in places)


_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f-]*)?")
"""What looks like the beginning of an id made here."""


# --- rows -------------------------------------------------------------------------------------------------------------


class _PartText(Struct, frozen=True):
    """A part, of which only text matters."""

    text: str | None = None
    filename: str | None = None


class _MessageText(Struct, frozen=True):
    """A message, of which only what somebody says matters."""

    role: Role
    parts: tuple[_PartText, ...]


class _SnapshotOutline(Struct, frozen=True):
    """A snapshot without what makes it long: the decoder passes over the rest."""

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
               SELECT 1 FROM job WHERE tenant = task.tenant AND kind = '{RUN}' AND key = task.id AND parked = 1
                 AND epoch = 0)
    FROM task JOIN snapshot ON snapshot.tenant = task.tenant AND snapshot.task_id = task.id
    WHERE task.tenant = :tenant AND task.id IN (SELECT key FROM {{pairs}} :ids {{end}})"""


async def rows(tx: Tx, tenant: str, ids: Sequence[str]) -> list[ListedTask]:
    """Return tasks by their ids, in the order of those; one that is not there is left out."""
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
    """Return what a task is about in one line: as stated, or as its first message begins, or the file that it has."""
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


# --- what has changed -------------------------------------------------------------------------------------------------


async def changes_since(
    tx: Tx, tenant: str, known: Mapping[str, int], unknown: Sequence[str], since: int
) -> TaskChanges:
    """Return what happened to tasks after these events, and to others since a time."""
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
    """Return every status that tasks were given after these events, of each task in order."""
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
    """Return tasks that were given a status since a time, the latest first, with the numbers of their last events."""
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
    """Return a task, and as a list shows it, at the same moment."""
    stored = await read_task(tx, tenant, task_id)
    return None if stored is None else (stored, (await rows(tx, tenant, [task_id]))[0])


async def list_waiting(
    tx: Tx, tenant: str, seen: VisibleTasks, states: Sequence[TaskState], limit: int
) -> list[ListedTask]:
    """Return tasks in some of the states in which work has not ended, those that are in them for longest first."""
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
