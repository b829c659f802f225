"""The objects that peers before A2A 1.0 send: JSON-RPC's, protobuf JSON's and mixtures of both.

These are only shapes to decode into, tolerant where deployed peers differ; `reader` turns them into the model. A member
that only other dialects define may be anything here: it is read if it is what they make of it, and else unknown.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from accord.model import PushFormat
from accord.model.base import Count, NonEmpty
from accord.model.requests import MAX_PAGE_SIZE
from accord.protocol.codec import invalid_field
from accord.protocol.parts import AnyFile, AnyPart
from accord.protocol.task_ids import AnyId

MISSING = "Required field is missing"


def text(value: Any) -> str | None:
    """Return a member that may be anything, if it is text."""
    return value if isinstance(value, str) else None


class FileIn(AnyFile, rename="camel", gc=False):
    """The file of a part; two of its members are protobuf JSON's."""

    file_with_bytes: Any = None
    file_with_uri: Any = None


class PartIn(AnyPart, gc=False):
    """A part: `text`, `file`, `data`, `metadata` and either `kind` or `type` are its own."""

    kind: Any = None
    type: Any = None
    file: FileIn | None = None
    url: Any = None
    raw: Any = None
    name: Any = None
    filename: Any = None
    media_type: Any = field(default=None, name="mediaType")
    mime_type: Any = None
    schema: Any = None


class MessageIn(Struct, rename="camel", gc=False):
    """A message; protobuf JSON calls its parts `content`."""

    role: str = ""
    message_id: str | None = None
    parts: list[PartIn] | None = None
    content: Any = None
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class ContentIn(Struct):
    """The one member of a message that only protobuf JSON has."""

    content: list[PartIn] | None = None


class StatusIn(Struct, gc=False):
    """A task's status."""

    state: str | None = None
    message: MessageIn | None = None
    timestamp: str | None = None


class ArtifactIn(Struct, rename="camel", gc=False):
    """An artifact."""

    artifact_id: NonEmpty
    parts: list[PartIn] | None = None
    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] | None = None


class BodyIn(MessageIn):
    """A task, a message or an update: what answers and streams hold."""

    kind: str | None = None
    id: str | None = None
    status: StatusIn | str | None = None
    artifacts: list[ArtifactIn] | None = None
    history: list[MessageIn] | None = None
    artifact: ArtifactIn | None = None
    append: bool | None = None
    last_chunk: bool | None = None


class AnswerIn(BodyIn):
    """A body, or an object that has one as its member, as protobuf JSON and 1.0 write it."""

    task: BodyIn | None = None
    message: BodyIn | None = None
    msg: BodyIn | None = None
    status_update: BodyIn | None = None
    artifact_update: BodyIn | None = None


_SHARED = ("kind", "contextId", "metadata")
MEMBERS: dict[str, frozenset[str]] = {
    "task": frozenset({*_SHARED, "id", "status", "artifacts", "history"}),
    "message": frozenset({*_SHARED, "role", "messageId", "parts", "taskId", "extensions", "referenceTaskIds"}),
    "status-update": frozenset({*_SHARED, "taskId", "status"}),
    "artifact-update": frozenset({*_SHARED, "taskId", "artifact", "append", "lastChunk"}),
}
"""What each kind of body has of its own."""


class AuthenticationIn(Struct):
    """How a webhook wants to be called: a list of schemes in 0.x, one in 1.0."""

    schemes: tuple[str, ...] | None = None
    scheme: Any = None
    credentials: str | None = None


class PushIn(Struct, rename="camel"):
    """A webhook, without its task."""

    url: NonEmpty
    id: str | None = None
    token: str | None = None
    authentication: AuthenticationIn | None = None
    payload_format: PushFormat | None = None
    events: tuple[str, ...] | None = None


class ConfigurationIn(Struct, rename="camel"):
    """How a send is to be answered."""

    blocking: bool | None = None
    accepted_output_modes: tuple[str, ...] | None = None
    history_length: Count | None = None
    push_notification_config: PushIn | None = None


class SendIn(Struct):
    """Parameters of a send."""

    message: MessageIn
    configuration: ConfigurationIn | None = None
    metadata: dict[str, Any] | None = None


class ListIn(Struct, rename="camel"):
    """Parameters of listing tasks: 0.3 has none, so the names are 1.0's."""

    context_id: str | None = None
    status: str | None = None
    page_size: Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)] | None = None
    page_token: str | None = None
    history_length: Count | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None


class PageIn(Struct, rename="camel"):
    """A page of tasks."""

    tasks: list[BodyIn]
    next_page_token: str | None = None
    page_size: int | None = None
    total_size: int | None = None


class ByTask(AnyId, rename="camel"):
    """Members that name a task; only `id` is 0.3's own, protobuf JSON names resources."""

    task_id: Any = field(default=None, name="task_id")
    camel_id: Any = field(default=None, name="taskId")
    name: Any = None
    parent: Any = None

    def own_task(self) -> str | None:
        """Return the task's id where `id` is the id of something else."""
        return text(self.task_id) or text(self.camel_id) or None

    def target(self) -> str:
        """Return the task's id, however it is spelled."""
        found = self.own_task() or text(self.id) or task_of(text(self.name) or text(self.parent))
        if not found:
            raise invalid_field("id", MISSING)
        return found


class TaskParams(ByTask):
    """Parameters of every operation that names a task."""

    metadata: dict[str, Any] | None = None


class GetParams(TaskParams, rename="camel"):
    """Parameters of reading a task."""

    history_length: Count | None = None


class PushParams(TaskParams, rename="camel"):
    """Parameters that name a webhook of a task."""

    push_notification_config_id: str | None = None
    url: Any = None

    def webhook(self) -> str | None:
        """Return the webhook's id; `id` means it only where another field names the task."""
        beside = self.id if self.own_task() else None
        return self.push_notification_config_id or beside or config_of(text(self.name)) or None


class PushSetIn(ByTask, rename="camel"):
    """A webhook with its task, as parameters and as result; 0.1 calls the task `id`."""

    id: Any = None
    camel_id: str | None = field(default=None, name="taskId")
    push_notification_config: PushIn | None = None


class PushesIn(Struct, rename="camel"):
    """A page of webhooks; over JSON-RPC 0.3 answers a mere list."""

    configs: list[PushSetIn] = []
    next_page_token: str | None = None


def task_of(name: str | None) -> str:
    """Return the task's id in a resource name, `tasks/{id}` with anything below it."""
    return (name or "").removeprefix("tasks/").partition(_CONFIGS)[0]


def config_of(name: str | None) -> str:
    """Return the webhook's id in a resource name, `tasks/{id}/pushNotificationConfigs/{id}`."""
    return (name or "").partition(_CONFIGS)[2]


_CONFIGS = "/pushNotificationConfigs/"
