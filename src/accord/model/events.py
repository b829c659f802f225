"""Events of a task, as entries of its event log.

An event's `seq` starts at 1 and is gapless per task. A task that opens a stream has the `seq` of the last event it
includes, or 0. It is the `id:` of server-sent events and never part of a dialect's own objects. `protocol.lifecycle`
applies events to tasks.
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
    """An artifact was created, replaced or (with `append`) extended."""

    task_id: NonEmpty
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


class MessageUpdate(A2AModel):
    """A message was added to the task's history. A2A has no such stream event; AgentVault's profile does."""

    task_id: NonEmpty
    context_id: str
    message: Message


EventBody = Task | Message | StatusUpdate | ArtifactUpdate | MessageUpdate
"""Body of a stream event. A stream starts with the task, or with one message that replies without a task. Updates
follow.
"""


class Event(A2AModel):
    """One entry of a task's log, or of a stream made from it."""

    seq: int
    body: EventBody
    at: str | None = None
