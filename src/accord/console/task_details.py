"""Details of one task: access, addresses of files, and the timeline.

Tasks of served agents go through their guarded services. Tasks of members, and of agents that are no longer served, are
read-only.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import A2A, Caller
from accord.api import queries
from accord.api.queries import ListedTask, StatusChange, StoredAttempt, StoredTask, TaskHead
from accord.console.server_context import ServerContext
from accord.console.task_rows import STATES, short_text
from accord.console.views import Lane, Segment, TaskRow
from accord.errors import TaskNotFound
from accord.model import Artifact, Message, Part, Task, TaskState
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.protocol.operations import Operation


class VisibleTask(NamedTuple):
    """A task in three forms: stored, as a list row, and decoded."""

    stored: StoredTask
    found: ListedTask
    task: Task


class TaskAccess:
    """Finds tasks that a caller may see."""

    def __init__(self, server: ServerContext) -> None:
        """Read from the store of `server`."""
        self._server = server

    async def head(self, task_id: str, caller: Caller, operation: Operation = Operation.GET) -> TaskHead:
        """Return the head of a task on which the caller may perform an operation. Raises TaskNotFound for any other.

        The guarded service checks roles again when the operation is called.
        """
        found = await queries.read_task_head(self._server.store, caller.tenant, task_id)
        return self._allowed(found, task_id, caller, operation)

    async def whole(self, task_id: str, caller: Caller) -> VisibleTask:
        """Return a task with its row."""
        both = await queries.read_task_with_row(self._server.store, caller.tenant, task_id)
        self._allowed(None if both is None else both[0], task_id, caller, Operation.GET)
        assert both is not None  # otherwise it is not allowed
        return VisibleTask(*both, await self._server.host.tasks.unpack(caller.tenant, both[0]))

    def _allowed(self, found: TaskHead | None, task_id: str, caller: Caller, operation: Operation) -> TaskHead:
        if found is None or not self._server.visibility.visible_tasks(caller, operation).sees(found.agent, found.owner):
            raise TaskNotFound(metadata={"taskId": task_id})
        return found

    def is_served(self, agent: str) -> bool:
        """Whether an agent has a path of its own on this server."""
        slug = self._server.visibility.slug(agent)
        return slug in self._server.agents and self._server.agents[slug].profile.name == agent

    def service(self, head: TaskHead, caller: Caller) -> tuple[A2A, Caller]:
        """Return the service of a task's agent, and the caller to use."""
        if self.is_served(head.agent):
            return self._server.services[self._server.visibility.slug(head.agent)], caller
        inner = self._server.host.services.get(head.agent)
        if inner is None:
            raise TaskNotFound("The agent of this task is not served any more")
        return inner, caller if head.owner == caller.owner else replace(caller, sees_all=True)


def task_with_urls(task: Task, base: str) -> dict[str, Any]:
    """Return a task in its A2A 1.0 form, with files replaced by URLs below `base`."""
    found: dict[str, Any] = msgspec.to_builtins(task)
    for artifact, made in zip(found.get("artifacts", ()), task.artifacts, strict=True):
        artifact["parts"] = _parts_with_urls(made, f"{base}/{quote(made.artifact_id, safe='')}")
    for turn, said in zip(found.get("history", ()), task.history, strict=True):
        turn["parts"] = _parts_with_urls(said, f"{base}/message/{quote(said.message_id, safe='')}")
    if task.status.message is not None:
        said = task.status.message
        found["status"]["message"]["parts"] = _parts_with_urls(
            said, f"{base}/message/{quote(said.message_id, safe='')}"
        )
    return found


def _parts_with_urls(of: Artifact | Message, base: str) -> list[Any]:
    return [part_with_url(part, f"{base}/{at}") for at, part in enumerate(of.parts)]


def part_with_url(part: Part, url: str | None) -> dict[str, Any]:
    """Return a part with its bytes replaced by a URL, or by their size alone."""
    found: dict[str, Any] = msgspec.to_builtins(part)
    if part.raw is not None:
        del found["raw"]
        found |= {"size": len(part.raw)} if url is None else {"url": url, "size": len(part.raw)}
    return found


def part_at(task: Task, artifact: str | None, message: str | None, at: int) -> Part:
    """Return a part of an artifact or a message, by its index."""
    messages = [*task.history, *([task.status.message] if task.status.message is not None else [])]
    holders: list[Artifact | Message] = [
        *(one for one in task.artifacts if one.artifact_id == artifact),
        *(one for one in messages if one.message_id == message),
    ]
    for holder in holders:
        if at < len(holder.parts):
            return holder.parts[at]
    raise TaskNotFound("The task has no such file")


_ENDED = frozenset(STATES[state] for state in lifecycle.ENDED)

LABELS = {
    TaskState.WORKING: ("attempt", "Run"),
    TaskState.INPUT_REQUIRED: ("wait", "Question"),
    TaskState.AUTH_REQUIRED: ("wait", "Credentials"),
}
"""State -> kind of its lane, and its label."""


class StateInterval(Struct, frozen=True):
    """A period in one state. Without an end it is current."""

    state: TaskState
    begin: int
    end: int | None
    label: str


def task_lanes(
    row: TaskRow,
    statuses: Sequence[StatusChange],
    children: Iterable[TaskRow],
    tried: Iterable[tuple[str, StoredAttempt]],
) -> list[Lane]:
    """Return the lanes of a task, its own first."""
    stays = _stays(row, statuses)
    own = Lane(
        id="task",
        label=row.title or row.agent,
        kind="task",
        parent=None,
        task_id=row.id,
        segments=[_segment(stay) for stay in stays],
    )
    return [own, *_turns(stays, row.id), *(_child(child) for child in children), *_deliveries(tried, row.id)]


def _stays(row: TaskRow, statuses: Sequence[StatusChange]) -> list[StateInterval]:
    """Return the periods of a task. Without a log the task has been in its current state only."""
    points = [(TaskState.SUBMITTED, _ms(row.created_at), "")]
    for one in statuses:
        state, said = one.status.state, short_text(one.status.message) or ""
        if state is points[-1][0] and state not in LABELS:
            continue  # a repeated end changes nothing
        if state is points[-1][0] is TaskState.WORKING:
            continue  # progress, not another execution
        points.append((state, max(one.at, points[-1][1]), said))
    if STATES[points[-1][0]] != row.status:
        state = next(state for state, name in STATES.items() if name == row.status)
        points.append((state, max(_ms(row.updated_at), points[-1][1]), row.status_message or ""))
    ends = [begin for _, begin, _ in points[1:]]
    last = points[-1]
    ends_at = last[1] if last[0] in lifecycle.ENDED else None
    return [
        StateInterval(state, begin, end, label)
        for (state, begin, label), end in zip(points, [*ends, ends_at], strict=True)
    ]


def _turns(stays: Sequence[StateInterval], task_id: str) -> list[Lane]:
    """Return a lane for each execution and each question."""
    found: list[Lane] = []
    counts: dict[str, int] = {}
    for stay in stays:
        if stay.state not in LABELS:
            continue
        kind, name = LABELS[stay.state]
        counts[name] = number = counts.get(name, 0) + 1
        found.append(
            Lane(
                id=f"{kind}-{name}-{number}",
                label=f"{name} {number}",
                kind="attempt" if kind == "attempt" else "wait",
                parent="task",
                task_id=task_id,
                segments=[_segment(stay)],
            )
        )
    return found


def _child(row: TaskRow) -> Lane:
    end = row.updated_at if row.status in _ENDED else None
    return Lane(
        id=f"child-{row.id}",
        label=row.agent,
        kind="child",
        parent="task",
        task_id=row.id,
        segments=[Segment(begin=row.created_at, end=end, state=row.status, label=row.title)],
    )


def _deliveries(tried: Iterable[tuple[str, StoredAttempt]], task_id: str) -> list[Lane]:
    by_push: dict[str, list[Segment]] = {}
    for push, one in sorted(tried, key=lambda found: found[1].id):
        state = "delivered" if one.error is None else "failed"
        end = timestamp_ms(one.at + one.duration_ms)
        label = f"event {one.seq}" + (f": {one.status or one.error}" if one.error else "")
        by_push.setdefault(push, []).append(Segment(begin=timestamp_ms(one.at), end=end, state=state, label=label))
    return [
        Lane(
            id=f"delivery-{push}",
            label=f"Webhook {push}",
            kind="delivery",
            parent="task",
            task_id=task_id,
            segments=all,
        )
        for push, all in by_push.items()
    ]


def _segment(stay: StateInterval) -> Segment:
    end = None if stay.end is None else timestamp_ms(stay.end)
    return Segment(begin=timestamp_ms(stay.begin), end=end, state=STATES[stay.state], label=stay.label)


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
