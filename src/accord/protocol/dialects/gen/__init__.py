"""The generic dialect: A2A's operations in snake case, with its own error codes and data.

`objects` contains messages, tasks and stream events. Where its founding document defines no
shape, ours is:

- Send: `{message, task_config: {timeout, priority}, stream_config: {include_intermediates, buffer_size}, metadata}`.
- Webhooks: subscribe `{task_id, url, token, authentication, events}` returns `{config_id}`, unsubscribe `{task_id,
  config_id or url}` returns `{removed}`. Reading and listing return the webhook with its `config_id`.
- Errors: `data` has the `agent_id` and `details` of every error of a served agent, `retry_after` and `task_id` where
  known, `violations` where fields are invalid, and `reason`, which distinguishes errors with the same code.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from accord import model
from accord.errors import AccordError, TaskNotFound
from accord.model import PushFormat, Role, TaskState, metadata_keys
from accord.model.base import Count, Metadata, NonEmpty
from accord.protocol import codec
from accord.protocol.codec import invalid_field
from accord.protocol.dialects.base import ObjectDialect, read_flat_error
from accord.protocol.dialects.fields import (
    AnyId,
    FilterParams,
    address_of_version,
    fill,
    page_shape,
    without_none,
    write_fields,
)
from accord.protocol.dialects.gen.objects import (
    GenMessageIn,
    GenTaskIn,
    finer_state,
    read_event,
    read_message,
    read_task,
    write_event,
    write_message,
    write_task,
)
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.operations import DialectName, Operation
from accord.protocol.sse import Frame
from accord.protocol.states import GEN, LOWER, from_gen

Positive = Annotated[int, Meta(ge=1, le=2**53 - 1)]


class TaskConfig(Struct, omit_defaults=True):
    """Execution settings of a task: timeout in milliseconds and priority in the queue."""

    timeout: Positive | None = None
    priority: Literal["low", "normal", "high"] | None = None


class StreamConfig(Struct, omit_defaults=True):
    """Stream settings: whether to send more than final events, and the largest chunk in bytes."""

    include_intermediates: bool | None = None
    buffer_size: Positive | None = None


class GenSendIn(Struct):
    """Parameters of a send."""

    message: GenMessageIn
    task_config: TaskConfig | None = None
    stream_config: StreamConfig | None = None
    metadata: Metadata | None = None


class GenTaskParams(AnyId):
    """Parameters that name a task."""

    history_length: Count | None = None
    reason: str | None = None
    metadata: Metadata | None = None


class GenPushIn(AnyId):
    """A webhook or the parameters that name one; `config_id` or, beside a task's id, `id` is the webhook's id."""

    config_id: str | None = None
    url: str | None = None
    token: str | None = None
    authentication: model.Authentication | None = None
    events: tuple[str, ...] = ()
    payload_format: PushFormat | None = None
    page_size: Count | None = None
    page_token: str | None = None

    def own_id(self) -> str | None:
        """Return the webhook's id."""
        return self.config_id or (self.id if self.own_task() else None) or None


class GenBodyIn(Struct):
    """The members that distinguish results and events."""

    type: str | None = None
    status: str | None = None


_SEND, _PARAMS, _PUSH = Decoder(GenSendIn), Decoder(GenTaskParams), Decoder(GenPushIn)
_TASK, _MESSAGE, _BODY = Decoder(GenTaskIn), Decoder(GenMessageIn), Decoder(GenBodyIn)
_OBJECT = Decoder(dict[str, Any])
_CONFIGS: dict[str, Any] = {metadata_keys.TASK_CONFIG: TaskConfig, metadata_keys.STREAM_CONFIG: StreamConfig}


# --- cards --------------------------------------------------------------------------------------------------------

_MODES = ("text/plain", "application/json", "application/octet-stream")
"""Input types that every agent of this dialect accepts: its parts are text, data and files."""

VERSION = "gen"
"""The protocol version of an interface that was read from such a card."""


class GenSkillIn(Struct):
    """One thing the agent can do."""

    name: NonEmpty
    description: str = ""
    parameters: Metadata | None = None


class GenCardIn(Struct):
    """A card."""

    name: NonEmpty
    description: str
    version: str
    capabilities: list[str] = []
    skills: list[GenSkillIn] = []
    url: str | None = None


_CARD = Decoder(GenCardIn)


def write_card(card: model.AgentCard) -> dict[str, Any]:
    """Write a card."""
    skills = [
        {"name": skill.id, "description": skill.description, "parameters": skill.input_schema or {}}
        for skill in card.skills
    ]
    document = {
        "name": card.name,
        "description": card.description,
        "version": card.version,
        "capabilities": _names(card),
        "skills": skills,
    }
    address = address_of_version(card, VERSION)
    return document if address is None else document | {"url": address}


def _names(card: model.AgentCard) -> list[str]:
    can, profile = card.capabilities, card.profile or model.CardProfile()
    flags = {
        "streaming": can.streaming,
        "push_notifications": can.push_notifications,
        "extended_agent_card": can.extended_agent_card,
        "state_transition_history": profile.state_transition_history,
    }
    return list(dict.fromkeys([*(name for name, has in flags.items() if has), *profile.capability_names]))


def read_card(card: bytes) -> model.AgentCard:
    """Read a card."""
    wire = codec.decode(card, _CARD)
    names = set(wire.capabilities)
    own = tuple(name for name in wire.capabilities if name not in _FLAGS)
    history = True if "state_transition_history" in names else None
    return model.AgentCard(
        name=wire.name,
        description=wire.description,
        version=wire.version,
        supported_interfaces=_interfaces(wire.url),
        capabilities=model.AgentCapabilities(
            streaming="streaming" in names or None,
            push_notifications="push_notifications" in names or None,
            extended_agent_card="extended_agent_card" in names or None,
        ),
        default_input_modes=_MODES,
        default_output_modes=_MODES,
        skills=tuple(_read_skill(skill) for skill in wire.skills),
        profile=model.CardProfile(capability_names=own, state_transition_history=history) if own or history else None,
    )


_FLAGS = frozenset({"streaming", "push_notifications", "extended_agent_card", "state_transition_history"})


def _interfaces(url: str | None) -> tuple[model.AgentInterface, ...]:
    return (model.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=VERSION),) if url else ()


def _read_skill(wire: GenSkillIn) -> model.AgentSkill:
    return fill(model.AgentSkill, wire, id=wire.name, tags=(), input_schema=wire.parameters or None)


# --- the dialect --------------------------------------------------------------------------------------------------

FILTER = FilterParams(from_gen, rename=None)
_PUSH_FIELDS = {
    "task_id": "task_id",
    "config_id": "id",
    "url": "url",
    "token": "token",
    "authentication": "authentication",
}
_PARAM_FIELDS: Mapping[type, Mapping[str, str]] = {
    model.GetRequest: {"task_id": "id"},
    model.SubscribeRequest: {"task_id": "id"},
    model.PushGetRequest: {"task_id": "task_id", "config_id": "id"},
    model.PushDeleteRequest: {"task_id": "task_id", "config_id": "id", "url": "url"},
    model.PushListRequest: {"task_id": "task_id", "page_size": "page_size", "page_token": "page_token"},
    model.CardRequest: {},
}
"""Request -> its parameters, and the field of each."""

PARAMETERS = frozenset(
    name for shape in (GenSendIn, GenTaskParams, GenPushIn) for name in shape.__struct_encode_fields__ if "_" in name
) | frozenset(name for name in FILTER.names if "_" in name)
"""The names of parameters that only this dialect has."""


def _read_config(wire: GenPushIn, task_id: str | None) -> model.PushConfig:
    if not wire.url:
        raise invalid_field("url", "Required field is missing")
    return model.PushConfig(
        url=wire.url,
        id=wire.own_id(),
        task_id=task_id,
        token=wire.token,
        authentication=wire.authentication,
        payload_format=wire.payload_format,
        events=wire.events,
    )


def _write_push(config: model.PushConfig) -> dict[str, Any]:
    return write_fields(config, _PUSH_FIELDS) | ({"events": config.events} if config.events else {})


class Gen(ObjectDialect):
    """The generic dialect."""

    name: ClassVar = DialectName.GEN
    error_column: ClassVar = "gen"
    partial_results: ClassVar = frozenset({Operation.CANCEL})

    # --- requests ---

    def decode_request(self, operation: Operation, params: bytes) -> model.Request:
        """Read the parameters of an operation."""
        match operation:
            case Operation.SEND | Operation.STREAM:
                return _read_send(codec.decode(params, _SEND))
            case Operation.GET | Operation.CANCEL | Operation.SUBSCRIBE:
                return _read_params(operation, codec.decode(params, _PARAMS))
            case Operation.LIST:
                return FILTER.read(params)
            case Operation.EXTENDED_CARD:
                codec.decode(params, _OBJECT)
                return model.CardRequest()
            case _:
                return _read_push(operation, codec.decode(params, _PUSH))

    def encode_request(self, operation: Operation, request: model.Request) -> bytes:
        """Write the parameters of an operation."""
        match request:
            case model.SendRequest():
                return codec.encode(_write_send(request))
            case model.TaskFilter():
                return codec.encode(FILTER.write(request, _filter_state))
            case model.PushConfig():
                return codec.encode(_write_push(request))
            case model.CancelRequest():
                return codec.encode(_write_cancel(request))
        return codec.encode(write_fields(request, _PARAM_FIELDS[type(request)]))

    # --- results ---

    page: ClassVar = page_shape(GenTaskIn, GenPushIn, None)
    task_decoder: ClassVar = _TASK
    config_decoder: ClassVar = _PUSH
    write_task: ClassVar = staticmethod(write_task)
    read_task: ClassVar = staticmethod(read_task)
    write_config: ClassVar = staticmethod(_write_push)
    read_config: ClassVar = staticmethod(lambda wire: _read_config(wire, wire.own_task()))

    def write_message(self, message: model.Message) -> dict[str, Any]:
        """Return a message as the result of an operation."""
        return write_message(message)

    def write_result(self, operation: Operation, result: model.Result) -> dict[str, Any]:
        """Return the result of an operation; canceling and subscribing return little."""
        if isinstance(result, model.Task) and operation is Operation.CANCEL:
            return {"task_id": result.id, "status": GEN[result.status.state]}
        if isinstance(result, model.PushConfig) and operation is Operation.PUSH_SET:
            return without_none(config_id=result.id)
        return super().write_result(operation, result)

    def read_result(self, operation: Operation, result: bytes, request: model.Request) -> model.Result:
        """Read the result of an operation; fields that subscribing does not return are taken from the request."""
        if operation is Operation.PUSH_SET and isinstance(request, model.PushConfig):
            return replace(request, id=codec.decode(result, _PUSH).config_id or request.id)
        if operation is Operation.SEND and codec.decode(result, _BODY).status is None:
            return read_message(codec.decode(result, _MESSAGE), "message", default=Role.AGENT)[0]
        return super().read_result(operation, result, request)

    # --- stream events, errors, webhooks and cards ---

    def encode_event(self, event: model.Event) -> Frame:
        """Write one stream event."""
        return Frame(data=codec.encode(write_event(event)))

    def read_event(self, frame: Frame) -> model.EventBody:
        """Read one stream event."""
        return read_event(frame.data)

    def encode_error(self, error: AccordError, agent: str = "") -> ErrorObject:
        """Write an error; its data names the agent and, without other details, repeats the message."""
        wire = super().encode_error(error)
        return wire if not agent else replace(wire, data={"agent_id": agent, "details": error.message} | wire.data)

    def error_data(self, error: AccordError) -> dict[str, Any]:
        """Return the facts of an error, with the task under this dialect's name."""
        data: dict[str, Any] = super().error_data(error)
        if "taskId" in data:
            data["task_id"] = data.pop("taskId")
        return data

    def decode_error(self, error: ErrorObject) -> AccordError:
        """Read an error; -32602 with a task in its data is a task that does not exist (B-15)."""
        names_task = error.code == TaskNotFound().row.gen and isinstance(error.data, dict) and "task_id" in error.data
        return read_flat_error(error, "gen", TaskNotFound if names_task else None)

    def read_push(self, body: bytes) -> model.EventBody:
        """Read a webhook body with a task or one event."""
        is_event = codec.decode(body, _BODY).type is not None
        return read_event(body) if is_event else read_task(codec.decode(body, _TASK))

    encode_card: ClassVar = staticmethod(write_card)
    decode_card: ClassVar = staticmethod(read_card)


# --- requests -----------------------------------------------------------------------------------------------------


def _read_send(wire: GenSendIn) -> model.SendRequest:
    message, _ = read_message(wire.message, "message")
    spent = 0
    for at, part in enumerate(message.parts):
        if part.schema is not None:
            from accord.protocol.json_schema import check

            where = f"message.parts[{at}]"
            spent = check(part.data, part.schema, f"{where}.content", f"{where}.schema", spent)
    configs = without_none(
        **{metadata_keys.TASK_CONFIG: wire.task_config, metadata_keys.STREAM_CONFIG: wire.stream_config}
    )
    metadata = (wire.metadata or {}) | msgspec.to_builtins(configs)
    return model.SendRequest(message=message, metadata=metadata if configs else wire.metadata)


def _write_send(request: model.SendRequest) -> dict[str, Any]:
    own = dict(request.metadata or {})
    configs = {name: own.pop(name) for name, kind in _CONFIGS.items() if _is_exactly(own.get(name), kind)}
    empty: Metadata | None = {} if request.metadata == {} else None
    return without_none(message=write_message(request.message), **configs, metadata=own or empty)


def _is_exactly(value: Any, kind: type[TaskConfig] | type[StreamConfig]) -> bool:
    """Whether a metadata value can be written as the parameter that it came from."""
    try:
        return value is not None and bool(msgspec.to_builtins(msgspec.convert(value, kind)) == value)
    except (msgspec.ValidationError, RecursionError):
        return False


def _read_params(operation: Operation, wire: GenTaskParams) -> model.Request:
    task_id = wire.own_task() or wire.task("task_id")
    if operation is Operation.GET:
        return model.GetRequest(id=task_id, history_length=wire.history_length)
    if operation is Operation.SUBSCRIBE:
        return model.SubscribeRequest(id=task_id)
    reason = {} if wire.reason is None else {metadata_keys.REASON: wire.reason}
    return model.CancelRequest(id=task_id, metadata=(wire.metadata or {}) | reason if reason else wire.metadata)


def _write_cancel(request: model.CancelRequest) -> dict[str, Any]:
    metadata = request.metadata or {}
    own = {key: value for key, value in metadata.items() if key != metadata_keys.REASON or request.reason is None}
    kept = request.metadata is not None and (own or request.reason is None)
    return without_none(task_id=request.id, reason=request.reason, metadata=own if kept else None)


def _filter_state(state: TaskState) -> str:
    """Return the name of a state in a filter; a state that shares its generic name keeps A2A's own."""
    return LOWER[state] if finer_state(state) else GEN[state]


def _read_push(operation: Operation, wire: GenPushIn) -> model.Request:
    """Read the parameters of a webhook operation; `id` alone is the task's."""
    task_id = wire.own_task() or wire.task("task_id")
    match operation:
        case Operation.PUSH_GET:
            return model.PushGetRequest(task_id=task_id, id=wire.own_id())
        case Operation.PUSH_DELETE:
            return model.PushDeleteRequest(task_id=task_id, id=wire.own_id(), url=wire.url)
        case Operation.PUSH_LIST:
            return model.PushListRequest(task_id=task_id, page_size=wire.page_size, page_token=wire.page_token)
    return _read_config(wire, task_id)
