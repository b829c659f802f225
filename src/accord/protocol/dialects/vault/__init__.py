"""AgentVault's profile 0.2: four methods, named stream events, upper-case states.

Output is limited to the forms that AgentVault's published models accept; reading is tolerant. `objects` contains
messages and tasks, `events` stream events, `card` the agent card. Accord decides where the profile is silent:

- A send returns at once with the task's id only, and the client reads the task itself.
- An agent's message is never a result of its own. It is in the task, where the client looks for it.
- A client can subscribe only after that, so a subscription begins with the events since the send (C-01).
- Listing tasks and webhooks is not in the profile; it is offered with A2A 1.0's field names.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from accord import model
from accord.errors import (
    AccordError,
    TaskNotCancelable,
)
from accord.model import TaskState
from accord.model.base import Count
from accord.protocol import codec
from accord.protocol.codec import invalid_field
from accord.protocol.dialects.base import ObjectDialect
from accord.protocol.dialects.fields import (
    AnyId,
    FilterParams,
    encode_without_none,
    page_shape,
    without_none,
    write_fields,
)
from accord.protocol.dialects.vault.card import read_card, write_card
from accord.protocol.dialects.vault.events import (
    agent_message,
    read_event,
    read_failure,
    read_stream_error,
    write_event,
    write_failure,
    write_stream_error,
)
from accord.protocol.dialects.vault.objects import (
    VaultMessageIn,
    VaultTaskIn,
    message_sentence,
    read_message,
    read_task,
    write_message,
    write_task,
)
from accord.protocol.operations import DialectName, Operation
from accord.protocol.sse import Frame
from accord.protocol.states import from_vault


class VaultSendIn(AnyId, rename="camel"):
    """Parameters of `tasks/send`; `id` is the task's."""

    message: VaultMessageIn
    webhook_url: str | None = None


class GetIn(AnyId, rename="camel"):
    """Parameters of `tasks/get`; the length is not in the profile."""

    history_length: Count | None = None


class VaultPushIn(AnyId, rename="camel"):
    """A webhook; `id` is its own."""

    url: str | None = None
    token: str | None = None
    authentication: Any = None
    payload_format: Any = None
    events: Any = ()
    page_size: Any = None
    page_token: Any = None


class CancelIn(Struct):
    """The result of `tasks/cancel`."""

    success: bool = True
    message: str | None = None


_ID, _GET, _SEND, _PUSH = Decoder(AnyId), Decoder(GetIn), Decoder(VaultSendIn), Decoder(VaultPushIn)
_TASK, _CANCEL = Decoder(VaultTaskIn), Decoder(CancelIn)
_OBJECT = Decoder(dict[str, Any])


_FILTER = FilterParams(from_vault, without=())
_PARAM_FIELDS: Mapping[type, Mapping[str, str]] = {
    model.GetRequest: {"id": "id"},
    model.CancelRequest: {"id": "id"},
    model.SubscribeRequest: {"id": "id"},
    model.PushGetRequest: {"taskId": "task_id", "id": "id"},
    model.PushDeleteRequest: {"taskId": "task_id", "id": "id", "url": "url"},
    model.PushListRequest: {"taskId": "task_id", "pageSize": "page_size", "pageToken": "page_token"},
    model.CardRequest: {},
}
"""Request -> its parameters, and the field of each."""


def _read_config(wire: VaultPushIn, task_id: str | None, identifier: str | None) -> model.PushConfig:
    if not wire.url:
        raise invalid_field("url", "Required field is missing")
    members = without_none(
        url=wire.url,
        id=identifier,
        taskId=task_id,
        token=wire.token,
        authentication=wire.authentication,
        payloadFormat=wire.payload_format,
        events=wire.events,
    )
    return codec.convert(members, model.PushConfig)


def _write_push(config: model.PushConfig) -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(replace(config, payload_format=None, events=(), tenant=None))
    return written


class Vault(ObjectDialect):
    """AgentVault's profile 0.2."""

    name: ClassVar = DialectName.VAULT
    error_column: ClassVar = "vault"
    wraps_events: ClassVar = False
    links_files: ClassVar = True
    partial_results: ClassVar = frozenset({Operation.SEND, Operation.CANCEL})
    replays: ClassVar = frozenset({Operation.SUBSCRIBE})
    reports_failures: ClassVar = True

    def knows_messages(self, _method: str) -> bool:
        """Return False: the result of a send is the id of a task."""
        return False

    # --- requests ---

    def decode_request(self, operation: Operation, params: bytes) -> model.Request:
        """Read the parameters of an operation."""
        match operation:
            case Operation.SEND | Operation.STREAM:
                return _read_send(codec.decode(params, _SEND), at_once=operation is Operation.SEND)
            case Operation.GET:
                get = codec.decode(params, _GET)
                return model.GetRequest(id=get.task("id"), history_length=get.history_length)
            case Operation.CANCEL:
                return model.CancelRequest(id=codec.decode(params, _ID).task("id"))
            case Operation.SUBSCRIBE:
                return model.SubscribeRequest(id=codec.decode(params, _ID).task("id"))
            case Operation.LIST:
                return _FILTER.read(params)
            case Operation.EXTENDED_CARD:
                codec.decode(params, _OBJECT)
                return model.CardRequest()
            case _:
                return _read_push(operation, codec.decode(params, _PUSH))

    def encode_request(self, operation: Operation, request: model.Request) -> bytes:
        """Write the parameters of an operation."""
        match request:
            case model.SendRequest():
                push = request.configuration and request.configuration.task_push_notification_config
                message = write_message(request.message)
                return encode_without_none(
                    id=request.message.task_id, message=message, webhookUrl=push.url if push else None
                )
            case model.TaskFilter():
                return codec.encode(_FILTER.write(request, lambda state: state.name))
            case model.PushConfig():
                return codec.encode(_write_push(request))
        return codec.encode(write_fields(request, _PARAM_FIELDS[type(request)]))

    # --- results ---

    page: ClassVar = page_shape(VaultTaskIn, VaultPushIn)
    last_page_token: ClassVar = None
    task_decoder: ClassVar = _TASK
    config_decoder: ClassVar = _PUSH
    write_task: ClassVar = staticmethod(write_task)
    read_task: ClassVar = staticmethod(read_task)
    write_config: ClassVar = staticmethod(_write_push)
    read_config: ClassVar = staticmethod(lambda wire: _read_config(wire, wire.own_task(), wire.id))

    def write_message(self, message: model.Message) -> dict[str, Any]:
        """Return a message as the result of an operation: only an id."""
        return {"id": message.task_id or message.message_id}

    def write_result(self, operation: Operation, result: model.Result) -> dict[str, Any]:
        """Return the result of an operation; sending and canceling return little."""
        if isinstance(result, model.Task) and operation is Operation.SEND:
            return {"id": result.id}
        if isinstance(result, model.Task) and operation is Operation.CANCEL:
            message = result.status.message
            return without_none(success=True, message=None if message is None else message_sentence(message))
        return super().write_result(operation, result)

    def read_result(self, operation: Operation, result: bytes, request: model.Request) -> model.Result:
        """Read the result of an operation; a send or cancel returns a task with few fields."""
        if operation is Operation.SEND:
            return _read_sent(result)
        if operation is Operation.CANCEL:
            return _read_cancel(codec.decode(result, _CANCEL), request)
        return super().read_result(operation, result, request)

    def error_as_result(self, operation: Operation, error: AccordError) -> bytes | None:
        """Write the refusal to cancel, which is a result in the profile (B-12)."""
        if operation is Operation.CANCEL and isinstance(error, TaskNotCancelable):
            return encode_without_none(success=False, message=error.message)
        return None

    # --- stream events ---

    def encode_event(self, event: model.Event) -> Frame:
        """Write one stream event."""
        name, data = write_event(event)
        return Frame(event=name, data=codec.encode(data))

    def decode_event(self, frame: Frame) -> model.EventBody:
        """Read one stream event; an `error` event is raised, unless it is the end of a failed task."""
        if frame.event == "error":
            error = read_stream_error(frame.data)
            if (failure := read_failure(error)) is None:
                raise error
            return failure
        return super().decode_event(frame)

    def read_event(self, frame: Frame) -> model.EventBody:
        """Read one stream event."""
        return read_event(frame.event, frame.data)

    def encode_stream_error(self, error: AccordError) -> Frame:
        """Write an `error` event."""
        return Frame(event="error", data=codec.encode(write_stream_error(error, self.error_data(error))))

    def encode_failure(self, event: model.Event) -> Frame | None:
        """Write the `error` event that follows the status of a failed task."""
        data = write_failure(event)
        return None if data is None else Frame(event="error", data=codec.encode(data))

    # --- errors, webhooks and cards ---

    def read_push(self, body: bytes) -> model.EventBody:
        """Read a webhook body with a task or the data of one event."""
        members = codec.decode(body, _OBJECT)
        return read_task(codec.decode(body, _TASK)) if "id" in members else read_event(None, body)

    encode_card: ClassVar = staticmethod(write_card)
    decode_card: ClassVar = staticmethod(read_card)


# --- requests and results -----------------------------------------------------------------------------------------


def _read_send(wire: VaultSendIn, *, at_once: bool) -> model.SendRequest:
    message, _ = read_message(wire.message, "message")
    push = model.PushConfig(url=wire.webhook_url) if wire.webhook_url else None
    configuration = model.SendConfiguration(task_push_notification_config=push, return_immediately=at_once)
    return model.SendRequest(
        message=replace(message, task_id=wire.id or wire.own_task()),
        configuration=configuration if at_once or push else None,
    )


def _read_push(operation: Operation, wire: VaultPushIn) -> model.Request:
    """Read the parameters of a webhook operation; `id` alone is the task's."""
    task_id = wire.own_task() or wire.task("taskId")
    identifier = wire.id or None if wire.own_task() else None
    match operation:
        case Operation.PUSH_GET:
            return model.PushGetRequest(task_id=task_id, id=identifier)
        case Operation.PUSH_DELETE:
            if not (identifier or wire.url):
                raise invalid_field("id", "Required field is missing")
            return model.PushDeleteRequest(task_id=task_id, id=identifier, url=wire.url)
        case Operation.PUSH_LIST:
            return codec.convert(
                {"taskId": task_id} | without_none(pageSize=wire.page_size, pageToken=wire.page_token),
                model.PushListRequest,
            )
    return _read_config(wire, task_id, identifier or task_id)  # a webhook set without an id replaces the one without


def _read_sent(result: bytes) -> model.Task:
    """Read the id of a task, or the whole task if the agent sends it."""
    if "state" in codec.decode(result, _OBJECT):
        return read_task(codec.decode(result, _TASK))
    return model.Task(id=codec.decode(result, _ID).task("id"), status=model.TaskStatus(state=TaskState.SUBMITTED))


def _read_cancel(wire: CancelIn, request: model.Request) -> model.Task:
    if not wire.success:
        raise TaskNotCancelable(wire.message)
    task_id = request.id if isinstance(request, model.CancelRequest) else ""
    message = None if wire.message is None else agent_message(wire.message, task_id)
    return model.Task(id=task_id, status=model.TaskStatus(state=TaskState.CANCELED, message=message))
