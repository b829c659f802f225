"""Reports of remote agents, and the events that they cause.

Pure functions of the link, the task and the report.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.model import (
    Artifact,
    ArtifactUpdate,
    EventBody,
    Message,
    MessageUpdate,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.model.base import Metadata, timestamp_ms
from accord.model.metadata_keys import USAGE
from accord.protocol import lifecycle
from accord.storage.commands.remote_tasks import RemoteLink

REMOTE_TASK, REMOTE_CONTEXT = "remoteTaskId", "remoteContextId"
"""Metadata keys of the status that records an acknowledgement: the remote ids of the task and its context."""

OTHER_CONTEXT = "contextIdMismatch"
"""Metadata key of the first status after an agent named another context: the context that it was sent."""

SKEW_MS = 60_000
"""Tolerated clock skew of a remote agent, in milliseconds."""

S = TaskState


class ForeignReport(Exception):
    """A report concerns another task than its sender may report on."""


class Report(Struct, frozen=True, kw_only=True):
    """A report of a remote agent on a task."""

    body: EventBody
    seq: int | None = None
    """Remote sequence number of the event, if any."""
    is_last: bool = False
    """Whether the status is final, without artifacts, and the agent has none to add."""
    insists: bool = False
    """Whether the agent repeats a state although it had time to change it."""
    sent: int | None = None
    """Number of the caller's messages that the agent has accepted, if this report acknowledges one."""
    looked: int | None = None
    """Number of polls that this report answers."""


class LocalTask(Struct, frozen=True, kw_only=True):
    """The local state of a task. `task` is loaded only for a report that needs it.

    `usage` is its usage in the form that tasks show, if the report included one.
    """

    task_id: str
    context_id: str
    state: TaskState
    task: Task | None = None
    usage: Metadata | None = None


class ReportEffect(Struct, frozen=True, kw_only=True):
    """The effect of a report: events, the changed link, and whether the agent must be polled for missing content.

    With `asks` the link counts the poll.
    """

    link: RemoteLink
    bodies: tuple[EventBody, ...] = ()
    asks: bool = False
    has_other_context: bool = False


def needs_task(body: EventBody) -> bool:
    """Whether computing a report's effect needs the whole task."""
    match body:
        case StatusUpdate():
            return body.status.state in lifecycle.ENDED
        case ArtifactUpdate() | MessageUpdate():
            return False
        case _:
            return True


def leaves_out(body: EventBody) -> bool:
    """Whether a report lacks artifacts or a question, so that the agent must be polled for them."""
    if not isinstance(body, StatusUpdate):
        return False
    status = body.status
    return status.state in lifecycle.TERMINAL or (status.state in lifecycle.INTERRUPTED and status.message is None)


def report_effect(report: Report, link: RemoteLink, here: LocalTask, now_ms: int) -> ReportEffect:
    """Return the effect of a report."""
    bound = _updated_link(report, link, now_ms)
    other = link.context_id if link.context_id not in (None, bound.context_id) else None
    if here.state in lifecycle.TERMINAL or _is_stale(report, bound, now_ms):
        return ReportEffect(link=bound, has_other_context=other is not None)
    bound = replace(bound, seq=bound.seq if report.seq is None else report.seq)
    effect = _ReportReader(report, bound, here, now_ms, other).read()
    moved = replace(effect.link, polls=0) if effect.bodies else effect.link
    return replace(effect, link=moved, has_other_context=other is not None)


# --- origin and order of a report -------------------------------------------------------------------------------------


def _updated_link(report: Report, link: RemoteLink, now_ms: int) -> RemoteLink:
    """Return the link updated with the report. An agent may use another context than it was sent."""
    task_id, context_id = _names(report.body)
    if task_id is not None and link.remote_id not in (None, task_id):
        if report.sent is None:
            raise ForeignReport(f"The report is about {task_id}, and not about {link.remote_id}")
        link = replace(link, remote_id=task_id, seq=None, stamp=None, mark=None)  # it continues in another remote task
    return replace(
        link,
        remote_id=link.remote_id or task_id,
        context_id=context_id or link.context_id,
        heard_at=now_ms,
        sent=link.sent if report.sent is None else max(link.sent, report.sent),
        tries=0 if report.sent is not None else link.tries,
        polls=0 if report.sent is not None else link.polls,
        looked=link.looked if report.looked is None else report.looked,
    )


def _names(body: EventBody) -> tuple[str | None, str | None]:
    """Return the ids of a report's task and context."""
    match body:
        case Task():
            return body.id, body.context_id
        case Message():
            return body.task_id or None, body.context_id
        case _:
            return body.task_id, body.context_id


def _is_stale(report: Report, link: RemoteLink, now_ms: int) -> bool:
    """Whether a report is a duplicate or older than a previous one. A final state is never stale."""
    if report.seq is not None and link.seq is not None:
        return report.seq <= link.seq
    status = _status(report.body)
    if status is None or status.state in lifecycle.TERMINAL:
        return False
    stamp = _stamp(status, now_ms)
    return stamp is not None and link.stamp is not None and stamp < link.stamp


def _status(body: EventBody) -> TaskStatus | None:
    return body.status if isinstance(body, Task | StatusUpdate) else None


def _stamp(status: TaskStatus, now_ms: int) -> int | None:
    """Return when a status was entered, in epoch milliseconds, by the reporter's clock.

    A future time is replaced by the current time, so that later reports do not count as stale.
    """
    if status.timestamp is None:
        return None
    stated = round(datetime.fromisoformat(status.timestamp).timestamp() * 1000)
    return stated if stated <= now_ms + SKEW_MS else now_ms


# --- content of a report ----------------------------------------------------------------------------------------------


class _ReportReader:
    """Derives the effect of one report that is not stale."""

    def __init__(self, report: Report, link: RemoteLink, here: LocalTask, now_ms: int, other: str | None) -> None:
        self._report = report
        self._link = link
        self._here = here
        self._now_ms = now_ms
        self._metadata: Metadata = {}
        if report.sent is not None and link.remote_id is not None:
            self._metadata = {REMOTE_TASK: link.remote_id, REMOTE_CONTEXT: link.context_id or ""}
        if other is not None:
            self._metadata[OTHER_CONTEXT] = other
        if here.usage is not None:
            self._metadata[USAGE] = here.usage

    def read(self) -> ReportEffect:
        match self._report.body:
            case Task() as task:
                task = _with_last_message(task)
                made: list[EventBody] = [*self._artifacts(task.artifacts), *self._messages(task)]
                return self._with_status(task.status, tuple(made))
            case StatusUpdate(status=status):
                if leaves_out(self._report.body) and not self._report.is_last:
                    return self._asking()
                return self._with_status(status)
            case ArtifactUpdate() as update:
                return ReportEffect(link=self._link, bodies=(self._piece(update),))
            case MessageUpdate(message=message):
                return ReportEffect(link=self._link, bodies=(self._message_update(message),))
            case Message() as answer:
                return self._with_status(TaskStatus(state=S.COMPLETED, message=answer))

    def _with_status(self, status: TaskStatus, before: tuple[EventBody, ...] = ()) -> ReportEffect:
        mark = _digest(status)
        stamp = _stamp(status, self._now_ms)
        link = replace(self._link, state=status.state, stamp=stamp or self._link.stamp, mark=mark)
        if mark == self._link.mark and not self._asks_again(status):
            return ReportEffect(link=link, bodies=before)
        if self._is_doubtful(status):
            return self._asking(before)
        return ReportEffect(link=link, bodies=(*before, *self._statuses(status)))

    def _asking(self, bodies: tuple[EventBody, ...] = ()) -> ReportEffect:
        return ReportEffect(link=replace(self._link, asks=self._link.asks + 1), bodies=bodies, asks=True)

    def _asks_again(self, status: TaskStatus) -> bool:
        """Whether an agent still waits although it had time to process the answer, so that its question is repeated."""
        return self._report.insists and self._here.state is S.WORKING and status.state in lifecycle.INTERRUPTED

    def _is_doubtful(self, status: TaskStatus) -> bool:
        """Whether the order of a working status and the agent's question is unknown."""
        stamp = _stamp(status, self._now_ms)
        is_undated = self._report.seq is None and (stamp is None or stamp == self._link.stamp)
        is_news = self._report.looked is not None  # it was just polled for
        return (
            is_undated
            and not is_news
            and self._here.state in lifecycle.INTERRUPTED
            and status.state in (S.SUBMITTED, S.WORKING)
        )

    def _statuses(self, status: TaskStatus) -> Iterable[StatusUpdate]:
        """Return the transitions from the local state to the reported state. An unknown state adds none."""
        before, after = self._here.state, status.state
        if after is S.SUBMITTED and before is not S.SUBMITTED:
            after = S.WORKING
        if after is S.UNKNOWN or (before is S.UNKNOWN and after not in lifecycle.TERMINAL):
            return ()
        message = None if status.message is None else self._message(status.message)
        update = self._update(after, message, self._metadata or None)
        if after in lifecycle.TRANSITIONS[before]:
            return (update,)
        return (self._update(S.WORKING, None, None), update)

    def _update(self, state: TaskState, message: Message | None, metadata: Metadata | None) -> StatusUpdate:
        status = TaskStatus(state=state, message=message, timestamp=timestamp_ms(self._now_ms))
        return StatusUpdate(
            task_id=self._here.task_id, context_id=self._here.context_id, status=status, metadata=metadata
        )

    # --- artifacts and messages -----------------------------------------------------------------------------------

    def _artifacts(self, artifacts: Iterable[Artifact]) -> Iterable[ArtifactUpdate]:
        """Return updates for the artifacts that are missing here or differ."""
        known = {artifact.artifact_id: artifact for artifact in self._here.task.artifacts} if self._here.task else {}
        return [self._whole(artifact) for artifact in artifacts if known.get(artifact.artifact_id) != artifact]

    def _whole(self, artifact: Artifact) -> ArtifactUpdate:
        here = self._here
        return ArtifactUpdate(task_id=here.task_id, context_id=here.context_id, artifact=artifact, last_chunk=True)

    def _piece(self, update: ArtifactUpdate) -> ArtifactUpdate:
        return replace(update, task_id=self._here.task_id, context_id=self._here.context_id)

    def _messages(self, task: Task) -> Iterable[MessageUpdate]:
        """Return the agent's messages that are missing here.

        They are compared by their parts, because not every dialect has ids. The caller's messages are not compared:
        an agent may answer with the text of the question.
        """
        known = Counter(_words(message) for message in _agent_messages(self._here.task))
        known.update(_words(said) for said in ([task.status.message] if task.status.message else ()))
        for said in task.history:
            words = _words(said)
            if said.role is Role.USER:
                continue
            if known[words] > 0:
                known[words] -= 1
            else:
                yield self._message_update(said)

    def _message_update(self, message: Message) -> MessageUpdate:
        return MessageUpdate(
            task_id=self._here.task_id, context_id=self._here.context_id, message=self._message(message)
        )

    def _message(self, message: Message) -> Message:
        """Return a message as sent by the local agent.

        A missing id is replaced by an id that is unique in this turn.
        """
        identifier = message.message_id or f"{self._here.task_id}-{self._link.sent}-{_words(message)[:16]}"
        return replace(
            message,
            message_id=identifier,
            role=Role.AGENT,
            task_id=self._here.task_id,
            context_id=self._here.context_id,
        )


def _with_last_message(task: Task) -> Task:
    """Return a task whose last message becomes the status message, if the status lacks its question or answer.

    A stream of A2A 1.0 has no event for a message of the history, so its callers see only the status message.
    """
    last = task.history[-1] if task.history else None
    is_ended = task.status.state in lifecycle.ENDED and not task.artifacts
    is_bare = (is_ended or task.status.state in lifecycle.INTERRUPTED) and task.status.message is None
    if not is_bare or last is None or last.role is not Role.AGENT:
        return task
    return replace(task, status=replace(task.status, message=last), history=task.history[:-1])


def _agent_messages(task: Task | None) -> Iterable[Message]:
    """Return the agent's messages of a task, including the status message."""
    if task is None:
        return ()
    current = () if task.status.message is None else (task.status.message,)
    return (message for message in (*task.history, *current) if message.role is Role.AGENT)


def _words(message: Message) -> str:
    return hashlib.sha256(msgspec.json.encode(message.parts)).hexdigest()


def _digest(status: TaskStatus) -> str:
    """Return a digest that distinguishes one status from another.

    A working status does not change with its timestamp alone. A repeated question with a later timestamp is a new
    status.
    """
    message = status.message
    at = status.timestamp if status.state in lifecycle.INTERRUPTED else None
    told = (status.state, at, message.parts if message else None)
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:32]
