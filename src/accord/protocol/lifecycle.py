"""The lifecycle of a task: the states that may follow each other, and the effect of each event.

These are pure functions of task and event; nothing is stored, sent or timed here. The engine commits their results,
clients fold the streams they read with them, and the documentation's diagram is drawn from `TRANSITIONS`.

An artifact event creates or replaces the whole artifact. With `append` it adds to the artifact with its id, or creates
it if missing. `last_chunk` tells subscribers that the artifact is complete, and changes nothing here. A2A (1.0, 4.2.2)
specifies no more, and a task does not record it, so refusing later chunks would depend on where a snapshot was taken. A
chunk after the last is therefore added like any other, and no agent output is lost. An empty text adds nothing: it
marks an artifact as complete after its last chunk was sent. Of a status's metadata the task keeps `usage`, its usage so
far.
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
from accord.model.base import Metadata
from accord.model.metadata_keys import USAGE

S = TaskState

TERMINAL = frozenset({S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED})
"""Final states."""

ENDED = TERMINAL | {S.UNKNOWN}
"""States that end streams and waits. Only a late report may change `UNKNOWN`, to a terminal state."""

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
"""State -> states that may follow. A state may repeat (progress); repeating one of `ENDED` changes nothing."""


NOTHING = Part(text="")
"""The part of a chunk that only marks the end of an artifact; A2A (1.0, 4.1.7) requires a part in every artifact."""


class IllegalTransition(ValueError):
    """A transition between two states that is not allowed."""

    def __init__(self, before: TaskState, after: TaskState) -> None:
        """Set both states."""
        super().__init__(f"A task cannot go from {before.name} to {after.name}")
        self.before = before
        self.after = after


class TaskEnded(ValueError):
    """An event was added to a task in a terminal state."""


class WrongTask(ValueError):
    """An event was applied to a task that it does not belong to."""


def check(before: TaskState, after: TaskState) -> None:
    """Raise if a transition is not allowed."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(before, after)


def apply(task: Task, body: EventBody) -> Task:
    """Return the task after an event."""
    draft = _Draft(task)
    draft.add(body)
    return draft.finished()


def fold(task: Task, events: Iterable[Event]) -> Task:
    """Return the task after many events: the same as applying each, but linear in their size."""
    return extended(task, (event.body for event in events))


def extended(task: Task, bodies: Iterable[EventBody]) -> Task:
    """Return the task after many event bodies, as `fold` does for events."""
    draft = _Draft(task)
    for body in bodies:
        draft.add(body)
    return draft.finished()


def limit_history(task: Task, length: int | None) -> Task:
    """Return the task with at most `length` of its latest messages: unset keeps all, 0 leaves history out."""
    if length is None or len(task.history) <= length:
        return task
    return replace(task, history=task.history[len(task.history) - length :])


class _Draft:
    """A task to which events are added: changes are collected, and combined once at the end."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._status = task.status
        self._usage: object = None
        self._said: list[Message] = []
        self._chunks: dict[str, list[Artifact]] = {}
        self._replaced: set[str] = set()

    def add(self, body: EventBody) -> None:
        """Add an event, or raise and leave the draft as it was."""
        if isinstance(body, Message):
            raise WrongTask("A message that answers without a task cannot change a task")
        task_id = body.id if isinstance(body, Task) else body.task_id
        if self._task.id != task_id:
            raise WrongTask(f"An event of task {task_id} was applied to task {self._task.id}")
        match body:
            case StatusUpdate():
                self._set_status(body)
            case ArtifactUpdate():
                self._accepts(task_id)
                self._set_artifact(body)
            case MessageUpdate():
                self._accepts(task_id)
                self._said.append(body.message)
            case Task():
                check(self._status.state, body.status.state)
                _Draft.__init__(self, body)

    def finished(self) -> Task:
        """Return the task, or the same one if nothing has changed."""
        task = self._task
        if self._status is task.status and not self._said and not self._chunks:
            return task
        return replace(
            task,
            status=self._status,
            metadata=task.metadata if self._usage is None else {**(task.metadata or {}), USAGE: self._usage},
            history=(*task.history, *self._said) if self._said else task.history,
            artifacts=self._artifacts() if self._chunks else task.artifacts,
        )

    def _accepts(self, task_id: str) -> None:
        if self._status.state in TERMINAL:
            raise TaskEnded(f"Task {task_id} is {self._status.state.name} and does not change any more")

    def _set_status(self, update: StatusUpdate) -> None:
        before, after = self._status.state, update.status.state
        check(before, after)
        if before is after and before in ENDED:
            return
        if self._status.message is not None:
            self._said.append(self._status.message)
        self._status = update.status
        if update.metadata is not None and isinstance(found := update.metadata.get(USAGE), dict):
            self._usage = found

    def _set_artifact(self, update: ArtifactUpdate) -> None:
        identifier = update.artifact.artifact_id
        if update.append:
            self._chunks.setdefault(identifier, []).append(update.artifact)
            return
        self._chunks[identifier] = [update.artifact]
        self._replaced.add(identifier)

    def _artifacts(self) -> tuple[Artifact, ...]:
        """Return the artifacts: existing ones replaced or extended in place, then new ones."""
        left = dict(self._chunks)
        found: list[Artifact] = []
        for old in self._task.artifacts:
            # An agent may have sent a task in which two artifacts share an id: the first one changes.
            chunks = left.pop(old.artifact_id, None)
            if chunks is None:
                found.append(old)
            else:
                found.append(_joined(chunks if old.artifact_id in self._replaced else [old, *chunks]))
        found.extend(_joined(chunks) for chunks in left.values())
        return tuple(found)


def _joined(chunks: list[Artifact]) -> Artifact:
    """Return one artifact from its chunks: all parts and extensions, metadata by key, the last name and description."""
    first = chunks[0]
    if len(chunks) == 1:
        return first
    metadata: Metadata | None = None
    for chunk in chunks:
        if chunk.metadata is not None:
            metadata = {} if metadata is None else metadata
            metadata.update(chunk.metadata)
    return replace(
        first,
        parts=first.parts + tuple(part for chunk in chunks[1:] for part in chunk.parts if part != NOTHING),
        name=next((chunk.name for chunk in reversed(chunks) if chunk.name), first.name),
        description=next((chunk.description for chunk in reversed(chunks) if chunk.description), first.description),
        metadata=metadata,
        extensions=tuple(dict.fromkeys(extension for chunk in chunks for extension in chunk.extensions)),
    )
