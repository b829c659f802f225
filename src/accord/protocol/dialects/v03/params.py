"""The parameters of A2A before 1.0: names, ids of tasks and webhooks, and the requests that they mean.

Fields of the protobuf definition are read under their own names and under their JSON names.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from msgspec import Struct, field
from msgspec.json import Decoder

from accord import model
from accord.errors import InvalidParams
from accord.model import PushFormat
from accord.model.base import Count, NonEmpty
from accord.protocol import codec
from accord.protocol.codec import invalid_field
from accord.protocol.dialects.fields import AnyId, camel_case, rename_members
from accord.protocol.dialects.v03.reader import MISSING, V03BodyIn, V03MessageIn, text_or_none
from accord.protocol.operations import Operation

_JSON_NAMES = {
    name: camel_case(name)
    for name in (
        "accepted_output_modes",
        "config_id",
        "context_id",
        "file_with_bytes",
        "file_with_uri",
        "history_length",
        "message_id",
        "mime_type",
        "page_size",
        "page_token",
        "push_notification",
        "push_notification_config",
        "task_id",
    )
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
    renamed = rename_members(codec.decode(params, _ANY), _json_name, _FREE)
    if isinstance(renamed, dict) and "request" in renamed:
        renamed.setdefault("message", renamed.pop("request"))  # the field of a send whose JSON name is another word
    return codec.encode(renamed)


def has_field_names(params: bytes) -> bool:
    """Whether parameters have field names of the definition, not their JSON names."""
    if not _HAS_FIELD_NAME.search(params):
        return False
    members = codec.decode(params, _ANY)
    return bool(rename_members(members, _json_name, _FREE) != members)


def with_field_names(answer: bytes) -> bytes:
    """Return a response with the definition's field names, except where the JSON name is another word: readers accept
    both.
    """
    return codec.encode(rename_members(codec.decode(answer, _ANY), _field_name, _FREE))


def _json_name(name: str) -> str:
    return _JSON_NAMES.get(name, name)


@lru_cache(256)  # outside of free data, responses have only our own names
def _field_name(name: str) -> str:
    return _CAPITAL.sub(lambda found: "_" + found[0].lower(), name)


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
        task_id = (
            self.own_task() or text_or_none(self.id) or task_of(text_or_none(self.name) or text_or_none(self.parent))
        )
        if not task_id:
            raise invalid_field("id", MISSING)
        return task_id


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


def read_configuration(wire: V03ConfigurationIn | None) -> model.SendConfiguration | None:
    """Read a send configuration; without `blocking` the caller waits (B-08)."""
    if wire is None:
        return None
    push = wire.push_notification_config
    return model.SendConfiguration(
        accepted_output_modes=wire.accepted_output_modes or (),
        task_push_notification_config=None if push is None else read_push(push),
        history_length=wire.history_length,
        return_immediately=wire.blocking is False,
    )


def read_push(wire: V03PushIn, task_id: str | None = None, config_id: str | None = None) -> model.PushConfig:
    """Read a webhook; of several authentication schemes the first is used."""
    return model.PushConfig(
        url=wire.url,
        id=wire.id or config_id or None,
        task_id=task_id,
        token=wire.token or None,
        authentication=_authentication(wire.authentication),
        payload_format=wire.payload_format,
        events=wire.events or (),
    )


def read_set(wire: V03PushIn, task_id: str, config_id: str | None = None) -> model.PushConfig:
    """Read a webhook to set. It replaces an earlier one with the same id; the default id is the task's.

    The official SDK has the same default.
    """
    return read_push(wire, task_id, config_id or task_id)


def _authentication(wire: V03AuthenticationIn | None) -> model.Authentication | None:
    if wire is None:
        return None
    scheme = next(iter(wire.schemes or ()), text_or_none(wire.scheme))
    return model.Authentication(scheme=scheme, credentials=wire.credentials or None) if scheme else None


_PARAMS = Decoder(V03TaskParams)
_GET = Decoder(V03GetParams)
_PUSH = Decoder(V03PushParams)


def _read_delete(params: V03PushParams) -> model.PushDeleteRequest:
    task_id, config_id, url = params.target(), params.webhook(), text_or_none(params.url)
    if not (config_id or url):
        raise invalid_field("pushNotificationConfigId", MISSING)
    return model.PushDeleteRequest(task_id=task_id, id=config_id, url=url)


BY_TASK: dict[Operation, tuple[Decoder[Any], Callable[[Any], model.Request]]] = {
    Operation.GET: (_GET, lambda p: model.GetRequest(id=p.target(), history_length=p.history_length)),
    Operation.CANCEL: (_PARAMS, lambda p: model.CancelRequest(id=p.target(), metadata=p.metadata)),
    Operation.SUBSCRIBE: (_PARAMS, lambda p: model.SubscribeRequest(id=p.target())),
    Operation.PUSH_GET: (_PUSH, lambda p: model.PushGetRequest(task_id=p.target(), id=p.webhook())),
    Operation.PUSH_LIST: (_PARAMS, lambda p: model.PushListRequest(task_id=p.target())),
    Operation.PUSH_DELETE: (_PUSH, _read_delete),
}
"""Decoder and reader of the parameters of each operation that names a task."""
