"""Details of one task: access, addresses of files, and the timeline.

Tasks of served agents go through their guarded services. Tasks of members, and of agents that are no longer served, are
read-only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from accord.a2a import A2A, Caller
from accord.api import queries
from accord.api.queries import ListedTask, StatusChange, StoredAttempt, StoredTask, TaskHead
from accord.console.routing import time_of
from accord.console.server_context import ServerContext
from accord.console.views import STATES, Lane, Segment, TaskRow, short_text
from accord.errors import TaskNotFound
from accord.model import Artifact, Message, Part, Task, TaskState
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.protocol.operations import Operation


class VisibleTask(NamedTuple):
    """A task in three forms: stored, as a list row, and decoded."""

    stored: StoredTask
    listed: ListedTask
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
        head = await queries.read_task_head(self._server.store, caller.tenant, task_id)
        if head is None or not self._server.visibility.visible_tasks(caller, operation).sees(head.agent, head.owner):
            raise TaskNotFound(metadata={"taskId": task_id})
        return head

    async def whole(self, task_id: str, caller: Caller) -> VisibleTask:
        """Return a task with its row. Raises TaskNotFound if the caller may not see it."""
        pair = await queries.read_task_with_row(self._server.store, caller.tenant, task_id)
        visible = self._server.visibility.visible_tasks(caller, Operation.GET)
        if pair is None or not visible.sees(pair[0].agent, pair[0].owner):
            raise TaskNotFound(metadata={"taskId": task_id})
        return VisibleTask(*pair, await self._server.host.node.task_store.unpack(caller.tenant, pair[0]))

    def is_served(self, agent: str) -> bool:
        """Whether an agent has a path of its own on this server."""
        slug = self._server.visibility.slug(agent)
        return slug in self._server.agents and self._server.agents[slug].profile.name == agent

    def service(self, head: TaskHead, caller: Caller) -> tuple[A2A, Caller]:
        """Return the service of a task's agent, and the caller to use."""
        if self.is_served(head.agent):
            return self._server.services[self._server.visibility.slug(head.agent)], caller
        member = self._server.host.services.get(head.agent)
        if member is None:
            raise TaskNotFound("The agent of this task is no longer served")
        return member, caller if head.owner == caller.owner else replace(caller, sees_all=True)


# --- files ------------------------------------------------------------------------------------------------------------


def task_with_urls(task: Task, base: str) -> dict[str, Any]:
    """Return a task in its A2A 1.0 form, with files replaced by URLs below `base`."""
    encoded: dict[str, Any] = msgspec.to_builtins(task)
    pairs = [*zip(encoded.get("history", ()), task.history, strict=True)]
    if task.status.message is not None:
        pairs.append((encoded["status"]["message"], task.status.message))
    for encoded_message, message in pairs:
        place = f"{base}/message/{quote(message.message_id, safe='')}"
        encoded_message["parts"] = _parts_with_urls(message, place)
    for encoded_artifact, artifact in zip(encoded.get("artifacts", ()), task.artifacts, strict=True):
        encoded_artifact["parts"] = _parts_with_urls(artifact, f"{base}/{quote(artifact.artifact_id, safe='')}")
    return encoded


def _parts_with_urls(content: Artifact | Message, base: str) -> list[Any]:
    return [part_with_url(part, f"{base}/{at}") for at, part in enumerate(content.parts)]


def part_with_url(part: Part, url: str | None) -> dict[str, Any]:
    """Return a part with its bytes replaced by a URL, or by their size alone."""
    encoded: dict[str, Any] = msgspec.to_builtins(part)
    if part.raw is not None:
        del encoded["raw"]
        encoded |= {"size": len(part.raw)} if url is None else {"url": url, "size": len(part.raw)}
    return encoded


def part_at(task: Task, artifact_id: str | None, message_id: str | None, at: int) -> Part:
    """Return a part of an artifact or a message, by its index."""
    messages = [*task.history, *([task.status.message] if task.status.message is not None else [])]
    parts = [artifact.parts for artifact in task.artifacts if artifact.artifact_id == artifact_id]
    parts += [message.parts for message in messages if message.message_id == message_id]
    part = next((some[at] for some in parts if at < len(some)), None)
    if part is None:
        raise TaskNotFound("The task has no such file")
    return part


# --- timeline ---------------------------------------------------------------------------------------------------------

_ENDED = frozenset(STATES[state] for state in lifecycle.ENDED)
_STATE_OF = {name: state for state, name in STATES.items()}

LABELS: Mapping[TaskState, tuple[Literal["attempt", "wait"], str]] = {
    TaskState.WORKING: ("attempt", "Run"),
    TaskState.INPUT_REQUIRED: ("wait", "Question"),
    TaskState.AUTH_REQUIRED: ("wait", "Credentials"),
}
"""State -> kind of its lane, and its label."""


def task_lanes(
    row: TaskRow,
    statuses: Sequence[StatusChange],
    children: Iterable[TaskRow],
    attempts: Iterable[tuple[str, StoredAttempt]],
) -> list[Lane]:
    """Return the lanes of a task, its own first."""
    intervals = _intervals(row, statuses)
    segments = [segment for _, segment in intervals]
    own = Lane(id="task", label=row.title or row.agent, kind="task", parent=None, task_id=row.id, segments=segments)
    lanes = [own]
    counts: Counter[str] = Counter()
    for state, segment in intervals:  # a lane for each execution and each question
        if state in LABELS:
            kind, name = LABELS[state]
            counts[name] += 1
            key, label = f"{kind}-{name}-{counts[name]}", f"{name} {counts[name]}"
            lanes.append(_lane(key, label, kind, row.id, [segment]))
    for child in children:
        end = child.updated_at if child.status in _ENDED else None
        segment = Segment(begin=child.created_at, end=end, state=child.status, label=child.title)
        lanes.append(_lane(f"child-{child.id}", child.agent, "child", child.id, [segment]))
    by_webhook: dict[str, list[Segment]] = {}
    for webhook, attempt in sorted(attempts, key=lambda pair: pair[1].id):
        by_webhook.setdefault(webhook, []).append(_delivery_segment(attempt))
    deliveries = by_webhook.items()
    return lanes + [_lane(f"delivery-{id}", f"Webhook {id}", "delivery", row.id, all) for id, all in deliveries]


def _lane(
    id: str, label: str, kind: Literal["attempt", "wait", "child", "delivery"], task_id: str, segments: list[Segment]
) -> Lane:
    return Lane(id=id, label=label, kind=kind, parent="task", task_id=task_id, segments=segments)


def _intervals(row: TaskRow, statuses: Sequence[StatusChange]) -> list[tuple[TaskState, Segment]]:
    """Return the states of a task with their periods. Without a log the task has been in its current state only."""
    points = [(TaskState.SUBMITTED, _ms(row.created_at), "")]
    for change in statuses:
        state, text = change.status.state, short_text(change.status.message) or ""
        # A repeated end changes nothing, and a repeated working state is progress, not another execution.
        if state is not points[-1][0] or state in LABELS.keys() - {TaskState.WORKING}:
            points.append((state, max(change.at, points[-1][1]), text))
    if STATES[points[-1][0]] != row.status:
        at = max(_ms(row.updated_at), points[-1][1])
        points.append((_STATE_OF[row.status], at, row.status_message or ""))
    last_state, last_at, _ = points[-1]
    ends = [*(begin for _, begin, _ in points[1:]), last_at if last_state in lifecycle.ENDED else None]
    return [
        (state, Segment(begin=timestamp_ms(begin), end=time_of(end), state=STATES[state], label=label))
        for (state, begin, label), end in zip(points, ends, strict=True)
    ]


def _delivery_segment(attempt: StoredAttempt) -> Segment:
    is_delivered = attempt.error is None
    label = f"event {attempt.seq}" + ("" if is_delivered else f": {attempt.status or attempt.error}")
    end, state = timestamp_ms(attempt.at + attempt.duration_ms), "delivered" if is_delivered else "failed"
    return Segment(begin=timestamp_ms(attempt.at), end=end, state=state, label=label)


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
