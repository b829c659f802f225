"""The writer of A2A 0.2 and 0.3: the model to the shapes of messages, tasks and events."""

from typing import Any, ClassVar

from msgspec import UNSET, Struct, field

from accord import model
from accord.model import Role, TaskState
from accord.protocol.codec import invalid_field
from accord.protocol.dialects.v03.reader import WRAPPED
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.states import LOWER

_USER = Role.USER
_FINAL = ENDED | INTERRUPTED
"""States with `final` in a 0.3 stream: no event follows until the caller sends another message."""


class V03Out(Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of all output structs: camelCase, without default values."""


class V03MessageOut(V03Out):
    """A message without `kind`."""

    message_id: str
    role: str
    parts: list[Any]
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class TaggedMessage(V03MessageOut, tag_field="kind", tag="message"):
    """A message."""


class V03ArtifactOut(V03Out):
    """An artifact."""

    artifact_id: str
    parts: list[Any]
    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()


class V03StatusOut(V03Out):
    """A task's status."""

    state: str
    message: Any = None
    timestamp: str | None = None


class V03TaskOut(V03Out):
    """A task without `kind`."""

    id: str
    context_id: str
    status: V03StatusOut
    artifacts: list[V03ArtifactOut] = []
    history: list[Any] = []
    metadata: dict[str, Any] | None = None


class TaggedTask(V03TaskOut, tag_field="kind", tag="task"):
    """A task."""


class V03StatusUpdateOut(V03Out):
    """A status event without `kind`."""

    task_id: str
    context_id: str
    status: V03StatusOut
    final: bool
    metadata: dict[str, Any] | None = None


class TaggedStatusUpdate(V03StatusUpdateOut, tag_field="kind", tag="status-update"):
    """A status event."""


class V03ArtifactUpdateOut(V03Out):
    """An artifact event without `kind`."""

    task_id: str
    context_id: str
    artifact: V03ArtifactOut
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


class TaggedArtifactUpdate(V03ArtifactUpdateOut, tag_field="kind", tag="artifact-update"):
    """An artifact event."""


class V03FileOut(V03Out):
    """The file of a file part."""

    raw: bytes | None = field(default=None, name="bytes")
    uri: str | None = None
    mime_type: str | None = None
    name: str | None = None


class V03TextPart(V03Out, tag_field="kind", tag="text"):
    """A text part."""

    text: str
    metadata: dict[str, Any] | None = None


class V03FilePart(V03Out, tag_field="kind", tag="file"):
    """A file part."""

    file: V03FileOut
    metadata: dict[str, Any] | None = None


class V03DataPart(V03Out, tag_field="kind", tag="data"):
    """A data part."""

    data: dict[str, Any]
    metadata: dict[str, Any] | None = None


class V03ConfigurationOut(V03Out):
    """Configuration of a send; `blocking` is always written, because 0.3 has no default for it."""

    blocking: bool
    accepted_output_modes: tuple[str, ...] = ()
    history_length: int | None = None
    push_notification_config: "V03PushOut | None" = None


class V03SendOut(V03Out):
    """Parameters of a send."""

    message: Any
    configuration: Any = None
    metadata: dict[str, Any] | None = None


class V03PushOut(V03Out):
    """A webhook, without its task."""

    url: str
    id: str | None = None
    token: str | None = None
    authentication: dict[str, Any] | None = None


def data_object(part: model.Part) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return a data part's data and metadata; 0.3 requires an object, so any other value is wrapped and marked."""
    if isinstance(part.data, dict):
        return part.data, part.metadata
    return {"value": part.data}, {**(part.metadata or {}), WRAPPED: True}


def push_out(config: model.PushConfig) -> V03PushOut:
    """Return a webhook in 0.3's form, without Accord's additions."""
    stated = config.authentication
    authentication: dict[str, Any] | None = None
    if stated is not None:
        authentication = {"schemes": [stated.scheme]}
        if stated.credentials is not None:
            authentication["credentials"] = stated.credentials
    return V03PushOut(config.url, config.id, config.token, authentication)


def without_none(**stated: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in stated.items() if value is not None}


class V03Writer:
    """Converts the model to the shapes of 0.3."""

    text_part: ClassVar[type[Any]] = V03TextPart
    file_part: ClassVar[type[Any]] = V03FilePart
    data_part: ClassVar[type[Any]] = V03DataPart
    message_shape: ClassVar[type[V03MessageOut]] = TaggedMessage
    task_shape: ClassVar[type[V03TaskOut]] = TaggedTask
    status_update_shape: ClassVar[type[V03StatusUpdateOut]] = TaggedStatusUpdate
    artifact_update_shape: ClassVar[type[V03ArtifactUpdateOut]] = TaggedArtifactUpdate

    def state(self, state: TaskState) -> str:
        """Return the name of a state."""
        return LOWER[state]

    def part(self, part: model.Part) -> Any:
        """Return a part's output struct."""
        if part.text is not None:
            return self.text_part(part.text, part.metadata)
        if part.data is not UNSET:
            return self.data_part(*data_object(part))
        return self.file_part(V03FileOut(part.raw, part.url, part.media_type, part.filename), part.metadata)

    def message(self, message: model.Message) -> Any:
        """Return a message's output struct."""
        return self.message_shape(
            message.message_id,
            "user" if message.role is _USER else "agent",
            self.parts(message.parts),
            message.context_id,
            message.task_id,
            message.metadata,
            message.extensions,
            message.reference_task_ids,
        )

    def parts(self, parts: tuple[model.Part, ...]) -> list[Any]:
        """Return the output structs of parts."""
        return [self.part(parts[0])] if len(parts) == 1 else [self.part(part) for part in parts]

    def artifact(self, artifact: model.Artifact) -> V03ArtifactOut:
        """Return an artifact's output struct."""
        return V03ArtifactOut(
            artifact.artifact_id,
            self.parts(artifact.parts),
            artifact.name,
            artifact.description,
            artifact.metadata,
            artifact.extensions,
        )

    def status(self, status: model.TaskStatus) -> V03StatusOut:
        """Return a status's output struct."""
        message = None if status.message is None else self.message(status.message)
        return V03StatusOut(self.state(status.state), message, status.timestamp)

    def task(self, task: model.Task) -> V03TaskOut:
        """Return a task's output struct; 0.3 requires a context id, so a missing one is written empty."""
        return self.task_shape(
            task.id,
            task.context_id or "",
            self.status(task.status),
            [self.artifact(artifact) for artifact in task.artifacts],
            [self.message(message) for message in task.history],
            task.metadata,
        )

    def body(self, body: model.EventBody) -> Any | None:
        """Return the output struct of a result or event, or None where 0.3 has no form for it."""
        match body:
            case model.Task():
                return self.task(body)
            case model.StatusUpdate():
                status, final = self.status(body.status), body.status.state in _FINAL
                return self.status_update_shape(body.task_id, body.context_id, status, final, body.metadata)
            case model.ArtifactUpdate():
                artifact = self.artifact(body.artifact)
                return self.artifact_update_shape(
                    body.task_id, body.context_id, artifact, body.append, body.last_chunk, body.metadata
                )
            case model.Message():
                return self.message(body)
            case _:
                return None

    def task_push(self, config: model.PushConfig) -> dict[str, Any]:
        """Return a webhook with its task."""
        return {"taskId": config.task_id or "", "pushNotificationConfig": push_out(config)}

    def page(self, page: model.TaskPage) -> dict[str, Any]:
        """Return a page of tasks: 0.3 has none, so the names are 1.0's."""
        return {
            "tasks": [self.task(task) for task in page.tasks],
            "nextPageToken": page.next_page_token,
            "pageSize": page.page_size,
            "totalSize": page.total_size,
        }

    def params(self, request: model.Request) -> Any:
        """Return the parameters of any operation."""
        match request:
            case model.SendRequest():
                return self.send(request)
            case model.PushConfig():
                return self.task_push(request)
            case model.TaskFilter():
                return self.filter(request)
            case model.GetRequest():
                return without_none(id=request.id, historyLength=request.history_length)
            case model.CancelRequest():
                return without_none(id=request.id, metadata=request.metadata)
            case model.PushDeleteRequest() if not request.id:
                raise invalid_field("pushNotificationConfigId", "A2A 0.3 removes a webhook by its id")
            case model.PushGetRequest() | model.PushDeleteRequest():
                return without_none(id=request.task_id, pushNotificationConfigId=request.id)
            case model.SubscribeRequest() | model.PushListRequest():
                return {"id": request.id if isinstance(request, model.SubscribeRequest) else request.task_id}
            case model.CardRequest():
                return {}

    def send(self, request: model.SendRequest) -> V03SendOut:
        """Return the parameters of a send."""
        return V03SendOut(self.message(request.message), self.configuration(request.configuration), request.metadata)

    def configuration(self, stated: model.SendConfiguration | None) -> Any:
        """Return the configuration of a send."""
        if stated is None:
            return None
        push = stated.task_push_notification_config
        return V03ConfigurationOut(
            not stated.return_immediately,
            stated.accepted_output_modes,
            stated.history_length,
            None if push is None else push_out(push),
        )

    def filter(self, request: model.TaskFilter) -> dict[str, Any]:
        """Return the parameters of listing tasks, with 1.0's names and this dialect's states."""
        return without_none(
            contextId=request.context_id,
            status=None if request.status is None else self.state(request.status),
            pageSize=request.page_size,
            pageToken=request.page_token,
            historyLength=request.history_length,
            statusTimestampAfter=request.status_timestamp_after,
            includeArtifacts=request.include_artifacts or None,
        )
