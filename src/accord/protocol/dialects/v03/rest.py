"""A2A 0.3 over HTTP+JSON and gRPC: the protobuf JSON of 0.3's own definition.

It is neither 0.3's JSON-RPC form nor 1.0. Clients mix the spellings of both, so both are read. Over gRPC the card has
security objects as in A2A 1.0, and an error's message begins with its name, because 0.3's clients look for it there.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from accord import model
from accord.errors import APPLICATION, TABLE, AccordError, InvalidParams, ParseError, RemoteError
from accord.model import PushFormat
from accord.model.base import Count
from accord.protocol import codec
from accord.protocol.codec import invalid_field
from accord.protocol.dialects.base import RestDialect
from accord.protocol.dialects.fields import EVENT_MEMBERS, convert_query_values, without_none
from accord.protocol.dialects.v03 import V03
from accord.protocol.dialects.v03.card import write_card
from accord.protocol.dialects.v03.params import (
    BY_TASK,
    V03ConfigurationIn,
    V03PushIn,
    V03PushSetIn,
    V03SendIn,
    V03TaskIdParams,
    V03TaskParams,
    has_field_names,
    read_configuration,
    read_set,
    with_field_names,
    with_json_names,
)
from accord.protocol.dialects.v03.reader import MISSING, V03Reader, check_text_member
from accord.protocol.dialects.v03.writer import (
    ARTIFACT_UPDATE,
    CONFIGURATION,
    STATUS_UPDATE,
    TASK,
    V03Writer,
    out_shape,
    part_shapes,
    push_out,
)
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.operations import Operation
from accord.protocol.sse import Frame
from accord.protocol.states import PROTO_03

# --- shapes -------------------------------------------------------------------------------------------------------


class ProtoConfigurationIn(V03ConfigurationIn, rename="camel"):
    """Configuration of a send; the webhook is called `pushNotification`."""

    push_notification: V03PushIn | None = None


class ProtoSendIn(V03SendIn):
    """Parameters of a send."""

    configuration: ProtoConfigurationIn | None = None


class ProtoPageParams(V03TaskParams, rename="camel"):
    """Parameters of listing a task's webhooks; over JSON-RPC they have no pages."""

    page_size: Count | None = None
    page_token: str | None = None


class ProtoCreateIn(V03PushSetIn, rename="camel"):
    """Setting a webhook: the Python client sends `config`, the JavaScript client its content."""

    config_id: str | None = None
    config: V03PushSetIn | None = None
    url: Any = None


# --- writing ------------------------------------------------------------------------------------------------------


class ProtoWriter(V03Writer):
    """Converts the model to the shapes of 0.3's protobuf JSON."""

    states: ClassVar = PROTO_03
    text_part, file_part, data_part = part_shapes(None)
    file: ClassVar = out_shape("file", "", "file_with_bytes file_with_uri mime_type name")
    message_shape: ClassVar = out_shape("message", "message_id role content", "context_id task_id metadata extensions")
    task_shape: ClassVar = out_shape("task", *TASK)
    status_update: ClassVar = out_shape("status_update", *STATUS_UPDATE)
    artifact_update: ClassVar = out_shape("artifact_update", *ARTIFACT_UPDATE)
    configuration_shape: ClassVar = out_shape("configuration", "blocking", f"{CONFIGURATION} push_notification")

    def data(self, part: model.Part) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return a data part's data, whose object is one level deeper, and its metadata."""
        data, metadata = super().data(part)
        return {"data": data}, metadata

    def message(self, message: model.Message) -> Any:
        """Return a message's output struct, whose parts are its content. It cannot refer to other tasks."""
        return self.message_shape(
            message.message_id,
            message.role.value,
            self.parts(message.parts),
            message.context_id,
            message.task_id,
            message.metadata,
            message.extensions,
        )

    def task_push(self, config: model.PushConfig) -> dict[str, Any]:
        """Return a webhook with its resource name."""
        name = f"tasks/{config.task_id or ''}/pushNotificationConfigs/{config.id or ''}"
        return {"name": name, "pushNotificationConfig": push_out(config)}

    def configuration(self, configuration: model.SendConfiguration | None) -> Any:
        """Return the send configuration, always, because without it the server would not wait."""
        return super().configuration(configuration or model.SendConfiguration())

    def params(self, request: model.Request) -> Any:
        """Return the request message of any operation; tasks and webhooks are identified by resource names."""
        match request:
            case model.GetRequest():
                return without_none(name=f"tasks/{request.id}", historyLength=request.history_length)
            case model.CancelRequest() | model.SubscribeRequest():
                return {"name": f"tasks/{request.id}"}
            case model.PushConfig():
                return without_none(
                    parent=f"tasks/{request.task_id or ''}", configId=request.id, config=self.task_push(request)
                )
            case model.PushDeleteRequest() if not request.id:
                return super().params(request)
            case model.PushGetRequest() | model.PushDeleteRequest():
                return {"name": f"tasks/{request.task_id}/pushNotificationConfigs/{request.id or ''}"}
            case model.PushListRequest():
                parent = f"tasks/{request.task_id}"
                return without_none(parent=parent, pageSize=request.page_size, pageToken=request.page_token)
            case _:
                return super().params(request)


# --- the dialect --------------------------------------------------------------------------------------------------

_SEND = Decoder(ProtoSendIn)
_PAGE = Decoder(ProtoPageParams)
_CREATE = Decoder(ProtoCreateIn)
_BARE = Decoder(V03PushIn)
_JSON = V03()


class V03Rest(V03, RestDialect):
    """A2A 0.3 HTTP+JSON."""

    media_types: ClassVar = ("application/json",)
    reader: ClassVar = V03Reader(proto=True)
    writer: ClassVar = ProtoWriter()

    def answering(self, operation: Operation, params: bytes) -> RestDialect:
        """Return the dialect of the response: a caller that sends `message_id` expects `context_id`.

        For webhooks the same clients write one name and read the other.
        """
        is_said = operation in (Operation.SEND, Operation.STREAM)
        return _BY_FIELD_NAME if is_said and has_field_names(params) else self

    def decode_request(self, operation: Operation, params: bytes) -> model.Request:
        """Read the body, query and path values of an operation, joined in one object."""
        params = convert_query_values(operation, with_json_names(params))
        if operation is Operation.PUSH_SET:
            return _read_create(params)
        return super().decode_request(operation, params)

    def read_by_task(self, operation: Operation, params: bytes) -> model.Request:
        """Read the parameters of an operation that names a task; its webhooks are listed in pages."""
        if operation is Operation.PUSH_LIST:
            page = _named(codec.decode(params, _PAGE))
            return model.PushListRequest(task_id=page.target(), page_size=page.page_size, page_token=page.page_token)
        decoder, read = BY_TASK[operation]
        return read(_named(codec.decode(params, decoder)))

    def read_send(self, params: bytes) -> model.SendRequest:
        """Read the parameters of a send; protobuf JSON leaves `blocking` out when it is false."""
        wire = codec.decode(params, _SEND)
        configuration = wire.configuration
        if configuration is None:
            return self.send_request(wire, None)
        configuration.push_notification_config = (
            configuration.push_notification_config or configuration.push_notification
        )
        if wire.message.content is not None:
            configuration.blocking = configuration.blocking is True
        return self.send_request(wire, read_configuration(configuration))

    def encode_result(self, operation: Operation, result: model.Result) -> bytes:
        """Write the result of an operation."""
        match result:
            case model.Task() | model.Message() if operation is Operation.SEND:
                return _as_member(result, self.writer.body(result))
            case model.PushPage():
                configs = [self.writer.task_push(config) for config in result.configs]
                return codec.encode(without_none(configs=configs, nextPageToken=result.next_page_token or None))
            case int():
                return b"{}"
            case _:
                return super().encode_result(operation, result)

    def encode_event(self, event: model.Event) -> Frame | None:
        """Write one stream event."""
        written = self.writer.body(event.body)
        return None if written is None else Frame(data=_as_member(event.body, written))

    def encode_http_error(self, error: AccordError) -> bytes:
        """Write an error: clients of 0.3 show its `message` or use `code`, the client of 1.0 uses `type`."""
        plain = super().encode_error(error)
        return codec.encode(
            without_none(type=error_name(error), code=plain.code, message=plain.message, data=plain.data)
        )

    def decode_http_error(self, body: bytes) -> AccordError | None:
        """Read an error by its `type`, or by its code if the type is unknown."""
        try:
            body_error = codec.decode(body, _ERROR)
        except (InvalidParams, ParseError):
            return None
        error = ErrorObject(body_error.code, body_error.message, body_error.data)
        by_code = self.decode_error(error) if body_error.code else RemoteError(body_error.message)
        kind = _BY_NAME.get(body_error.type)
        if kind is None or isinstance(by_code, kind):
            return by_code
        return kind(body_error.message, violations=by_code.violations, retry_after=by_code.retry_after)

    def encode_push(self, event: model.Event, task: model.Task, form: PushFormat | None = None) -> bytes:
        """Write a webhook body: 0.3 has one form for all bindings."""
        return _JSON.encode_push(event, task, form)

    def read_push(self, body: bytes) -> model.EventBody:
        """Read a webhook body."""
        return _JSON.read_push(body)


def _as_member(body: model.EventBody, written: Any) -> bytes:
    """Return a result or event as the only member of an object."""
    return b'{"%b":%b}' % (EVENT_MEMBERS[type(body)], codec.encode(written))


class V03RestByFieldName(V03Rest):
    """A2A 0.3 HTTP+JSON whose responses have the definition's field names, for clients that read no others."""

    def encode_result(self, operation: Operation, result: model.Result) -> bytes:
        """Write the result of an operation."""
        return with_field_names(super().encode_result(operation, result))

    def encode_event(self, event: model.Event) -> Frame | None:
        """Write one stream event."""
        frame = super().encode_event(event)
        return None if frame is None else Frame(data=with_field_names(frame.data))


_BY_FIELD_NAME = V03RestByFieldName()


class ProtoErrorIn(Struct):
    """An error of a 0.3 server; servers set different subsets of these members."""

    message: str
    code: int = 0
    type: str | None = None
    data: Any = None


def error_name(error: AccordError) -> str | None:
    """Return 0.3's name of an error (8.2 of its specification), from which 1.0 also derives its reasons."""
    if error.row.code == APPLICATION:
        return None
    if isinstance(error, ParseError):
        return "JSONParseError"
    return error.row.reason.removesuffix("_ERROR").title().replace("_", "") + "Error"


def named_error(sentence: str) -> tuple[type[AccordError] | None, str]:
    """Return the error whose name a message begins with, as in 0.3 over gRPC, and the remaining message."""
    name, _, rest = sentence.partition(": ")
    kind = _BY_NAME.get(name)
    return (None, sentence) if kind is None else (kind, rest)


_ERROR = Decoder(ProtoErrorIn)
_BY_NAME: dict[str | None, type[AccordError]] = {error_name(kind()): kind for kind in reversed(TABLE)}
_BY_NAME.pop(None)  # errors without a name in 0.3

Named = TypeVar("Named", bound=V03TaskIdParams)


def _named(wire: Named) -> Named:
    """Refuse resource names that are not text: in JSON-RPC they are ignored, here the definition has them."""
    check_text_member(wire, "name", "name")
    check_text_member(wire, "parent", "parent")
    return wire


def _read_create(params: bytes) -> model.PushConfig:
    wire = _named(codec.decode(params, _CREATE))
    config = (wire.config or wire).push_notification_config
    if config is not None:
        return read_set(config, wire.target(), wire.config_id)
    if wire.url is None:
        raise invalid_field("config.pushNotificationConfig", MISSING)
    return read_set(codec.decode(params, _BARE), wire.target())


Plain = dict[str, Any]


class V03Grpc(V03Rest):
    """A2A 0.3 gRPC."""

    def encode_card(self, card: model.AgentCard) -> Plain:
        """Write a card as the protobuf JSON of 0.3."""
        plain = write_card(card)
        plain["capabilities"].pop("stateTransitionHistory", None)  # 0.3's JSON has it, its protobuf does not
        schemes: Plain = plain.get("securitySchemes", {})
        plain["securitySchemes"] = {name: _scheme(card.security_schemes[name], schemes[name]) for name in schemes}
        plain["security"] = _security(card.security_requirements)
        for skill, stated in zip(plain["skills"], card.skills, strict=True):
            skill["security"] = _security(stated.security_requirements)
        return plain

    def encode_error(self, error: AccordError, agent: str = "") -> ErrorObject:
        """Write an error, with its name where 0.3 has one."""
        plain, name = super().encode_error(error, agent), error_name(error)
        return plain if name is None else replace(plain, message=f"{name}: {plain.message}")


def _scheme(scheme: model.SecurityScheme, written: Plain) -> Plain:
    """Write a security scheme; of the OAuth flows of 0.3, protobuf has room for one."""
    plain: Plain = msgspec.to_builtins(scheme)
    if "flows" in written:
        plain["oauth2SecurityScheme"]["flows"] = dict(list(written["flows"].items())[:1])
    return plain


def _security(requirements: Iterable[model.SecurityRequirement]) -> list[Plain]:
    return [msgspec.to_builtins(requirement) for requirement in requirements]
