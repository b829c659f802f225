"""How a task changes: which state may follow which, and what each event does to it.

Pure functions of task and event; nothing is stored, sent or timed here. The engine commits what these return, clients
fold the streams they read with them, and the documentation's diagram is drawn from `TRANSITIONS`.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    EventBody,
    Message,
    MessageUpdate,
    Part,
    StatusUpdate,
    Task,
    TaskState,
)

S = TaskState

TERMINAL = frozenset({S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED})
"""States that nothing leaves."""

ENDED = TERMINAL | {S.UNKNOWN}
"""States that end streams and waits; only a late report may still leave `UNKNOWN`, for a terminal state."""

INTERRUPTED = frozenset({S.INPUT_REQUIRED, S.AUTH_REQUIRED})
"""States in which the task waits for its caller."""

TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    S.SUBMITTED: ENDED | INTERRUPTED | {S.SUBMITTED, S.WORKING},
    S.WORKING: ENDED | INTERRUPTED | {S.WORKING},
    S.INPUT_REQUIRED: ENDED | {S.INPUT_REQUIRED, S.WORKING},
    S.AUTH_REQUIRED: ENDED | {S.AUTH_REQUIRED, S.WORKING},
    S.UNKNOWN: ENDED,
    S.COMPLETED: frozenset({S.COMPLETED}),
    S.FAILED: frozenset({S.FAILED}),
    S.CANCELED: frozenset({S.CANCELED}),
    S.REJECTED: frozenset({S.REJECTED}),
}
"""State -> states that may follow. A state may repeat (progress); repeating a terminal state changes nothing."""


class IllegalTransition(ValueError):
    """A task cannot go from one state to another."""

    def __init__(self, before: TaskState, after: TaskState) -> None:
        """Name both states."""
        super().__init__(f"A task cannot go from {before.name} to {after.name}")
        self.before = before
        self.after = after


class TaskEnded(ValueError):
    """Something was added to a task that has reached a terminal state."""


class WrongTask(ValueError):
    """An event was applied to a task that it does not belong to."""


def apply(task: Task, body: EventBody) -> Task:
    """Return the task as it is after an event."""
    match body:
        case StatusUpdate():
            return _status(_owned(task, body.task_id), body)
        case ArtifactUpdate():
            return replace(task, artifacts=_placed(_open(task, body.task_id).artifacts, body))
        case MessageUpdate():
            return replace(task, history=(*_open(task, body.task_id).history, body.message))
        case Task():
            _follows(_owned(task, body.id).status.state, body.status.state)
            return body
        case Message():
            raise WrongTask("A message that answers without a task cannot change a task")


def fold(task: Task, events: Iterable[Event]) -> Task:
    """Return the task after many events: the same as applying each, but linear in the chunks of an artifact."""
    run: list[ArtifactUpdate] = []
    for event in events:
        body = event.body
        if isinstance(body, ArtifactUpdate) and body.append:
            if run and run[0].artifact.artifact_id != body.artifact.artifact_id:
                task, run = apply(task, _joined(run)), []
            _open(task, body.task_id)
            run.append(body)
            continue
        task, run = (apply(task, _joined(run)) if run else task), []
        task = apply(task, body)
    return apply(task, _joined(run)) if run else task


def limit_history(task: Task, length: int | None) -> Task:
    """Return the task with at most `length` of its latest messages: unset keeps all, 0 leaves history out."""
    if length is None or len(task.history) <= length:
        return task
    return replace(task, history=task.history[len(task.history) - length :])


def _owned(task: Task, task_id: str) -> Task:
    if task.id != task_id:
        raise WrongTask(f"An event of task {task_id} was applied to task {task.id}")
    return task


def _open(task: Task, task_id: str) -> Task:
    if _owned(task, task_id).status.state in TERMINAL:
        raise TaskEnded(f"Task {task.id} is {task.status.state.name} and does not change any more")
    return task


def _follows(before: TaskState, after: TaskState) -> None:
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(before, after)


def _status(task: Task, update: StatusUpdate) -> Task:
    before, after = task.status.state, update.status.state
    _follows(before, after)
    if before is after and before in TERMINAL:
        return task
    said = task.status.message
    history = task.history if said is None else (*task.history, said)
    return replace(task, status=update.status, history=history)


def _placed(artifacts: tuple[Artifact, ...], update: ArtifactUpdate) -> tuple[Artifact, ...]:
    """Put an artifact where it belongs: in place of, or at the end of, the one with its id; else last."""
    new = update.artifact
    for position, old in enumerate(artifacts):
        if old.artifact_id == new.artifact_id:
            kept = _extended(old, new) if update.append else new
            return (*artifacts[:position], kept, *artifacts[position + 1 :])
    return (*artifacts, new)


def _extended(old: Artifact, new: Artifact) -> Artifact:
    metadata = old.metadata if new.metadata is None else (old.metadata or {}) | new.metadata
    return replace(
        old,
        parts=old.parts + new.parts,
        name=new.name or old.name,
        description=new.description or old.description,
        metadata=metadata,
        extensions=tuple(dict.fromkeys(old.extensions + new.extensions)),
    )


def _joined(run: list[ArtifactUpdate]) -> ArtifactUpdate:
    """Merge consecutive chunks of one artifact into one chunk."""
    if len(run) == 1:
        return run[0]
    parts: list[Part] = []
    merged = run[0].artifact
    for chunk in run:
        parts.extend(chunk.artifact.parts)
        if chunk is not run[0]:
            merged = _extended(replace(merged, parts=()), replace(chunk.artifact, parts=()))
    return replace(run[-1], artifact=replace(merged, parts=tuple(parts)))
