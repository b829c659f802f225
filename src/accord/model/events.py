"""Events of a task, as entries of its event log.

An event's `seq` is gapless per task and starts at 1; a task that begins a stream has the `seq` of the last event it
includes, 0 if none. It is the `id:` of server-sent events and never part of a dialect's own objects. How an event
changes a task is `protocol.lifecycle`.
"""

from accord.model.base import A2AModel, Metadata, NonEmpty
from accord.model.message import Artifact, Message
from accord.model.task import Task, TaskStatus


class StatusUpdate(A2AModel):
    """The task's status changed."""

    task_id: NonEmpty
    context_id: str
    status: TaskStatus
    metadata: Metadata | None = None


class ArtifactUpdate(A2AModel):
    """An artifact was made, replaced or (with `append`) extended."""

    task_id: NonEmpty
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


class MessageUpdate(A2AModel):
    """A message joined the task's history. A2A has no such stream event; AgentVault's profile does."""

    task_id: NonEmpty
    context_id: str
    message: Message


EventBody = Task | Message | StatusUpdate | ArtifactUpdate | MessageUpdate
"""A stream carries the task itself first, or one message that answers without a task, then updates."""


class Event(A2AModel):
    """One entry of a task's log, or of a stream made from it."""

    seq: int
    body: EventBody
    at: str | None = None
