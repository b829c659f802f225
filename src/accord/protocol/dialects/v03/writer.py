"""The writer of A2A 0.2 and 0.3: the model to the shapes of messages, tasks and events."""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import UNSET, Struct, defstruct

from accord import model
from accord.model import Role, TaskState
from accord.protocol.codec import invalid_field
from accord.protocol.dialects.fields import FilterParams, without_none, write_fields
from accord.protocol.dialects.v03.reader import WRAPPED
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.states import LOWER, from_any

_USER = Role.USER
_FINAL = ENDED | INTERRUPTED
"""States with `final` in a 0.3 stream: no event follows until the caller sends another message."""


class V03Out(Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of all output structs: camelCase, without default values."""


_EMPTY: Mapping[str, Any] = {
    "extensions": (),
    "reference_task_ids": (),
    "accepted_output_modes": (),
    "artifacts": [],
    "history": [],
    "append": False,
    "last_chunk": False,
}
"""The fields that are left out where they are empty or false; all others where they are None."""


def out_shape(name: str, required: str, optional: str = "", **config: Any) -> Any:
    """Return a struct to encode, made by its fields in their order: required ones and those that may be left out."""
    fields = [(field, Any) for field in required.split()]
    left_out = [(field, Any, _EMPTY.get(field)) for field in optional.split()]
    return defstruct(name, [*fields, *left_out], bases=(V03Out,), **config)


def part_shapes(tag_field: str | None) -> tuple[Any, ...]:
    """Return the structs of text, file and data parts, which may be tagged with their kind."""
    tags = {kind: {"tag_field": tag_field, "tag": kind} if tag_field else {} for kind in ("text", "file", "data")}
    return tuple(out_shape(f"{kind}_part", kind, "metadata", **tag) for kind, tag in tags.items())


_MESSAGE = "message_id role parts", "context_id task_id metadata extensions reference_task_ids"
TASK = "id context_id status", "artifacts history metadata"
STATUS_UPDATE = "task_id context_id status final", "metadata"
ARTIFACT_UPDATE = "task_id context_id artifact", "append last_chunk metadata"
CONFIGURATION = "accepted_output_modes history_length"

_artifact = out_shape("artifact", "artifact_id parts", "name description metadata extensions")
_status = out_shape("status", "state", "message timestamp")
_push = out_shape("push", "url", "id token authentication")
_send = out_shape("send", "message", "configuration metadata")

UNTAGGED_MESSAGE = out_shape("message", *_MESSAGE)
FILE_NAMES = {"raw": "bytes", "uri": "uri", "mime_type": "mimeType", "name": "name"}

FILTER = FilterParams(from_any, absent=(None, ""))
"""Parameters of listing tasks: 0.3 has none, so the names are 1.0's."""

_PARAMS: Mapping[type, Mapping[str, str]] = {
    model.GetRequest: {"id": "id", "historyLength": "history_length"},
    model.CancelRequest: {"id": "id", "metadata": "metadata"},
    model.SubscribeRequest: {"id": "id"},
    model.PushGetRequest: {"id": "task_id", "pushNotificationConfigId": "id"},
    model.PushDeleteRequest: {"id": "task_id", "pushNotificationConfigId": "id"},
    model.PushListRequest: {"id": "task_id"},
    model.CardRequest: {},
}
"""Request -> its parameters, and the field of each."""


def push_out(config: model.PushConfig) -> Any:
    """Return a webhook in 0.3's form, without Accord's additions."""
    authentication = config.authentication
    schemes = (
        None
        if authentication is None
        else without_none(schemes=[authentication.scheme], credentials=authentication.credentials)
    )
    return _push(config.url, config.id, config.token, schemes)


class V03Writer:
    """Converts the model to the shapes of 0.3."""

    states: ClassVar[Mapping[TaskState, str]] = LOWER
    text_part, file_part, data_part = part_shapes("kind")
    file: ClassVar = out_shape("file", "", "raw uri mime_type name", rename=FILE_NAMES)
    message_shape: ClassVar = out_shape("tagged_message", *_MESSAGE, tag_field="kind", tag="message")
    task_shape: ClassVar = out_shape("tagged_task", *TASK, tag_field="kind", tag="task")
    status_update: ClassVar = out_shape("tagged_status", *STATUS_UPDATE, tag_field="kind", tag="status-update")
    artifact_update: ClassVar = out_shape("tagged_update", *ARTIFACT_UPDATE, tag_field="kind", tag="artifact-update")
    configuration_shape: ClassVar = out_shape("configuration", "blocking", f"{CONFIGURATION} push_notification_config")

    def part(self, part: model.Part) -> Any:
        """Return a part's output struct."""
        if part.text is not None:
            return self.text_part(part.text, part.metadata)
        if part.data is not UNSET:
            return self.data_part(*self.data(part))
        return self.file_part(self.file(part.raw, part.url, part.media_type, part.filename), part.metadata)

    def data(self, part: model.Part) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return a data part's data and metadata; 0.3 requires an object, so any other value is wrapped and marked."""
        if isinstance(part.data, dict):
            return part.data, part.metadata
        return {"value": part.data}, {**(part.metadata or {}), WRAPPED: True}

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

    def artifact(self, artifact: model.Artifact) -> Any:
        """Return an artifact's output struct."""
        return _artifact(
            artifact.artifact_id,
            self.parts(artifact.parts),
            artifact.name,
            artifact.description,
            artifact.metadata,
            artifact.extensions,
        )

    def status(self, status: model.TaskStatus) -> Any:
        """Return a status's output struct."""
        message = None if status.message is None else self.message(status.message)
        return _status(self.states[status.state], message, status.timestamp)

    def task(self, task: model.Task) -> Any:
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
                return self.status_update(body.task_id, body.context_id, status, final, body.metadata)
            case model.ArtifactUpdate():
                artifact = self.artifact(body.artifact)
                return self.artifact_update(
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
                return FILTER.write(request, self.states.__getitem__)
            case model.PushDeleteRequest() if not request.id:
                raise invalid_field("pushNotificationConfigId", "A2A 0.3 removes a webhook by its id")
        return write_fields(request, _PARAMS[type(request)])

    def send(self, request: model.SendRequest) -> Any:
        """Return the parameters of a send."""
        return _send(self.message(request.message), self.configuration(request.configuration), request.metadata)

    def configuration(self, configuration: model.SendConfiguration | None) -> Any:
        """Return the configuration of a send; `blocking` is always written, because 0.3 has no default for it."""
        if configuration is None:
            return None
        push = configuration.task_push_notification_config
        return self.configuration_shape(
            not configuration.return_immediately,
            configuration.accepted_output_modes,
            configuration.history_length,
            None if push is None else push_out(push),
        )
