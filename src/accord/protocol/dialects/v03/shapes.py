"""Structs to decode the messages of peers before A2A 1.0, and their field names.

They cover JSON-RPC, protobuf JSON and mixtures of both, tolerant where deployed peers differ. `reader` converts them to
the model. A member that only other dialects define may have any type here. Fields of the protobuf definition are read
under their own names and under their JSON names.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from msgspec import Struct, field
from msgspec.json import Decoder

from accord.errors import InvalidParams
from accord.model import PushFormat
from accord.model.base import Count, NonEmpty
from accord.protocol import codec
from accord.protocol.codec import invalid_field
from accord.protocol.dialects.fields import AnyId
from accord.protocol.parts import AnyFile, AnyPart

_JSON_NAMES = {
    "accepted_output_modes": "acceptedOutputModes",
    "config_id": "configId",
    "context_id": "contextId",
    "file_with_bytes": "fileWithBytes",
    "file_with_uri": "fileWithUri",
    "history_length": "historyLength",
    "message_id": "messageId",
    "mime_type": "mimeType",
    "page_size": "pageSize",
    "page_token": "pageToken",
    "push_notification": "pushNotification",
    "push_notification_config": "pushNotificationConfig",
    "task_id": "taskId",
}
"""The definition's fields and their JSON names. Readers of protobuf JSON accept both, and some clients send the first.
"""

_FREE = frozenset({"data", "metadata"})
_HAS_FIELD_NAME = re.compile(rb'"(?:request|%b)"\s*:' % "|".join(_JSON_NAMES).encode())
_CAPITAL = re.compile("[A-Z]")
_ANY: Decoder[Any] = Decoder(Any)


def with_json_names(params: bytes) -> bytes:
    """Return the parameters with JSON names in place of field names; free data is unchanged."""
    if not _HAS_FIELD_NAME.search(params):
        return params
    if codec.is_too_deep(params):
        raise InvalidParams("The JSON is nested too deeply")
    stated = _renamed(codec.decode(params, _ANY), _json_name)
    if isinstance(stated, dict) and "request" in stated:
        stated.setdefault("message", stated.pop("request"))  # the field of a send whose JSON name is another word
    return codec.encode(stated)


def has_field_names(params: bytes) -> bool:
    """Whether parameters have field names of the definition, not their JSON names."""
    if not _HAS_FIELD_NAME.search(params):
        return False
    stated = codec.decode(params, _ANY)
    return bool(_renamed(stated, _json_name) != stated)


def with_field_names(answer: bytes) -> bytes:
    """Return a response with the definition's field names, except where the JSON name is another word: readers accept
    both.
    """
    return codec.encode(_renamed(codec.decode(answer, _ANY), _field_name))


def _json_name(name: str) -> str:
    return _JSON_NAMES.get(name, name)


@lru_cache(256)  # outside of free data, responses have only our own names
def _field_name(name: str) -> str:
    return _CAPITAL.sub(lambda found: "_" + found[0].lower(), name)


def _renamed(value: Any, named: Callable[[str], str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, named) for item in value]
    if not isinstance(value, dict):
        return value
    return {named(name): item if name in _FREE else _renamed(item, named) for name, item in value.items()}


MISSING = "Required field is missing"


def text_or_none(value: Any) -> str | None:
    """Return a value if it is text, else None."""
    return value if isinstance(value, str) else None


class V03FileIn(AnyFile, rename="camel", gc=False):
    """The file of a part; two of its members are protobuf JSON's."""

    file_with_bytes: Any = None
    file_with_uri: Any = None


class V03PartIn(AnyPart, gc=False):
    """A part: `text`, `file`, `data`, `metadata` and either `kind` or `type` are its own."""

    kind: Any = None
    type: Any = None
    file: V03FileIn | None = None
    url: Any = None
    raw: Any = None
    name: Any = None
    filename: Any = None
    media_type: Any = field(default=None, name="mediaType")
    mime_type: Any = None
    schema: Any = None


class V03MessageIn(Struct, rename="camel", gc=False):
    """A message; in protobuf JSON its parts are `content`."""

    role: str = ""
    message_id: str | None = None
    parts: list[V03PartIn] | None = None
    content: Any = None
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class V03ContentIn(Struct):
    """The member of a message that only protobuf JSON has."""

    content: list[V03PartIn] | None = None


class V03StatusIn(Struct, gc=False):
    """A task's status."""

    state: str | None = None
    message: V03MessageIn | None = None
    timestamp: str | None = None


class V03ArtifactIn(Struct, rename="camel", gc=False):
    """An artifact."""

    artifact_id: NonEmpty
    parts: list[V03PartIn] | None = None
    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] | None = None


class V03BodyIn(V03MessageIn):
    """A task, a message or an update: the content of results and streams."""

    kind: str | None = None
    id: str | None = None
    status: V03StatusIn | str | None = None
    artifacts: list[V03ArtifactIn] | None = None
    history: list[V03MessageIn] | None = None
    artifact: V03ArtifactIn | None = None
    append: bool | None = None
    last_chunk: bool | None = None


class V03AnswerIn(V03BodyIn):
    """A body, or an object with one as its member, as in protobuf JSON and 1.0."""

    task: V03BodyIn | None = None
    message: V03BodyIn | None = None
    msg: V03BodyIn | None = None
    status_update: V03BodyIn | None = None
    artifact_update: V03BodyIn | None = None


_SHARED = ("kind", "contextId", "metadata")
KIND_MEMBERS: dict[str, frozenset[str]] = {
    "task": frozenset({*_SHARED, "id", "status", "artifacts", "history"}),
    "message": frozenset({*_SHARED, "role", "messageId", "parts", "taskId", "extensions", "referenceTaskIds"}),
    "status-update": frozenset({*_SHARED, "taskId", "status"}),
    "artifact-update": frozenset({*_SHARED, "taskId", "artifact", "append", "lastChunk"}),
}
"""The members of each kind of body."""


class V03AuthenticationIn(Struct):
    """Authentication of a webhook: a list of schemes in 0.x, one in 1.0."""

    schemes: tuple[str, ...] | None = None
    scheme: Any = None
    credentials: str | None = None


class V03PushIn(Struct, rename="camel"):
    """A webhook, without its task."""

    url: NonEmpty
    id: str | None = None
    token: str | None = None
    authentication: V03AuthenticationIn | None = None
    payload_format: PushFormat | None = None
    events: tuple[str, ...] | None = None


class V03ConfigurationIn(Struct, rename="camel"):
    """Configuration of a send."""

    blocking: bool | None = None
    accepted_output_modes: tuple[str, ...] | None = None
    history_length: Count | None = None
    push_notification_config: V03PushIn | None = None


class V03SendIn(Struct):
    """Parameters of a send."""

    message: V03MessageIn
    configuration: V03ConfigurationIn | None = None
    metadata: dict[str, Any] | None = None


class V03PageIn(Struct, rename="camel"):
    """A page of tasks."""

    tasks: list[V03BodyIn]
    next_page_token: str | None = None
    page_size: int | None = None
    total_size: int | None = None


class V03TaskIdParams(AnyId, rename="camel"):
    """Members that name a task; only `id` is 0.3's own, protobuf JSON names resources."""

    task_id: Any = field(default=None, name="task_id")
    camel_id: Any = field(default=None, name="taskId")
    name: Any = None
    parent: Any = None

    def own_task(self) -> str | None:
        """Return the task's id where `id` is the id of another object."""
        return text_or_none(self.task_id) or text_or_none(self.camel_id) or None

    def target(self) -> str:
        """Return the task's id, from any of its members."""
        found = (
            self.own_task() or text_or_none(self.id) or task_of(text_or_none(self.name) or text_or_none(self.parent))
        )
        if not found:
            raise invalid_field("id", MISSING)
        return found


class V03TaskParams(V03TaskIdParams):
    """Parameters of every operation that names a task."""

    metadata: dict[str, Any] | None = None


class V03GetParams(V03TaskParams, rename="camel"):
    """Parameters of reading a task."""

    history_length: Count | None = None


class V03PushParams(V03TaskParams, rename="camel"):
    """Parameters that name a webhook of a task."""

    push_notification_config_id: str | None = None
    url: Any = None

    def webhook(self) -> str | None:
        """Return the webhook's id; `id` means it only where another field names the task."""
        beside = self.id if self.own_task() else None
        return self.push_notification_config_id or beside or config_of(text_or_none(self.name)) or None


class V03PushSetIn(V03TaskIdParams, rename="camel"):
    """A webhook with its task, as parameters and as result; in 0.1 the task's id is `id`."""

    id: Any = None
    camel_id: str | None = field(default=None, name="taskId")
    push_notification_config: V03PushIn | None = None


class V03PushesIn(Struct, rename="camel"):
    """A page of webhooks; over JSON-RPC 0.3 returns a plain list."""

    configs: list[V03PushSetIn] = []
    next_page_token: str | None = None


def task_of(name: str | None) -> str:
    """Return the task's id in a resource name, `tasks/{id}` with anything below it."""
    return (name or "").removeprefix("tasks/").partition(_CONFIGS)[0]


def config_of(name: str | None) -> str:
    """Return the webhook's id in a resource name, `tasks/{id}/pushNotificationConfigs/{id}`."""
    return (name or "").partition(_CONFIGS)[2]


_CONFIGS = "/pushNotificationConfigs/"
