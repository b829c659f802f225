"""A2A 1.0 (1.0.1): the model's own JSON form, so almost nothing is converted.

It is ProtoJSON, whose readers also accept `history_length` for `historyLength`. Only names of A2A itself are accepted
in this form: metadata and data of callers are unchanged. Nothing is written under these names.
"""

import base64
import re
from typing import Any, ClassVar

import msgspec
from msgspec.json import Decoder
from msgspec.structs import replace

from accord import model
from accord.errors import AccordError, InvalidAgentResponse, InvalidParams, Row, Violation, for_code, for_reason
from accord.model import PushFormat, TaskState
from accord.model.base import A2AModel
from accord.protocol import codec
from accord.protocol.dialects.base import Dialect, read_violations
from accord.protocol.dialects.fields import EVENT_MEMBERS, camel_case, rename_members, task_page
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.operations import ROWS, TABLE, DialectName, Operation
from accord.protocol.parts import from_base64
from accord.protocol.sse import Frame

_SNAKE = re.compile(rb'"[a-z]+(?:_[a-z0-9]+)+"\s*:')
_SNAKE_END = re.compile(rb'_[a-z0-9]+"\s*:')
"""The end of every `_SNAKE` match. Searching for it is several times as fast: JSON is full of quotes, not of
underscores.
"""

_FREE_MEMBERS = frozenset({"metadata", "data", "params", "header"})
_ANY_OBJECT = Decoder(dict[str, Any])


def json_names(params: bytes) -> bytes:
    """Return the parameters with JSON names in place of proto names; where both are present, the JSON name wins."""
    only = params.find(b"_")
    if only == params.rfind(b"_") and params[only + 1 : only + 2].isupper():
        return params  # most messages: the only underscore is in `ROLE_USER`, and no name has a capital after it
    if not _SNAKE_END.search(params) or not _SNAKE.search(params):
        return params
    if codec.is_too_deep(params):
        raise InvalidParams("The JSON is nested too deeply")
    return codec.encode(rename_members(codec.decode(params, _ANY_OBJECT), camel_case, _FREE_MEMBERS))


_TYPE = "type.googleapis.com/google.rpc."


class StreamResponse(A2AModel):
    """The union of results and events in sends, streams and webhooks: exactly one member."""

    task: model.Task | None = None
    message: model.Message | None = None
    status_update: model.StatusUpdate | None = None
    artifact_update: model.ArtifactUpdate | None = None


class V1StreamedAnswer(A2AModel):
    """A JSON-RPC response that carries an event."""

    result: StreamResponse | None = None


class V1PageIn(A2AModel):
    """A page of tasks from other servers: over gRPC, and in JSON written by protobuf, zeros are left out."""

    tasks: tuple[model.Task, ...] = ()
    next_page_token: str = ""
    page_size: int | None = None
    total_size: int | None = None


_REQUESTS: dict[Operation, Decoder[Any]] = {row.operation: Decoder(row.request) for row in TABLE}
_RESULTS: dict[Operation, Decoder[Any]] = {
    Operation.SEND: Decoder(StreamResponse),
    Operation.GET: Decoder(model.Task),
    Operation.LIST: Decoder(V1PageIn),
    Operation.CANCEL: Decoder(model.Task),
    Operation.PUSH_SET: Decoder(model.PushConfig),
    Operation.PUSH_GET: Decoder(model.PushConfig),
    Operation.PUSH_LIST: Decoder(model.PushPage),
}
_EVENT = Decoder(StreamResponse)
_STREAMED = Decoder(V1StreamedAnswer)
_CARD = Decoder(model.AgentCard)
_ANYTHING: Decoder[Any] = Decoder(Any)
_NEEDS = {
    Operation.PUSH_SET: ("task_id", "taskId"),
    Operation.PUSH_GET: ("id", "id"),
    Operation.PUSH_DELETE: ("id", "id"),
}
"""Fields that A2A 1.0 requires, and the model leaves optional for other dialects or inside of a send."""

_TASK_IDS: dict[Operation, tuple[str, ...]] = {
    Operation.GET: ("id", "taskId", "task_id"),
    Operation.CANCEL: ("id", "taskId", "task_id"),
    Operation.SUBSCRIBE: ("id", "taskId", "task_id"),
    Operation.PUSH_SET: ("taskId", "task_id"),
    Operation.PUSH_GET: ("taskId", "task_id"),
    Operation.PUSH_LIST: ("taskId", "task_id", "id"),
    Operation.PUSH_DELETE: ("taskId", "task_id"),
}
"""A2A 1.0's name of the task's id, then its aliases (B-16). In webhook operations `id` is the webhook's."""


class V1(Dialect):
    """The identity dialect."""

    name: ClassVar = DialectName.V1
    push_format: ClassVar = PushFormat.EVENT
    push_media_type: ClassVar = "application/a2a+json"

    def decode_request(self, operation: Operation, params: bytes) -> model.Request:
        """Read the parameters of an operation."""
        params = json_names(params)
        try:
            return _complete(operation, codec.decode(params, _REQUESTS[operation]))
        except InvalidParams as refused:
            names = _TASK_IDS.get(operation, ())
            return _complete(operation, _look_again(params, refused, ROWS[operation].request, names))

    def encode_request(self, operation: Operation, request: model.Request) -> bytes:
        """Write the parameters of an operation."""
        if isinstance(request, model.SendRequest):
            wish = request.configuration
            if wish is not None and wish.task_push_notification_config is not None:
                plain = replace(wish, task_push_notification_config=_plain_push(wish.task_push_notification_config))
                request = replace(request, configuration=plain)
        elif isinstance(request, model.PushConfig):
            request = _plain_push(request)
        elif isinstance(request, model.PushDeleteRequest):
            if not request.id:
                raise codec.invalid_field("id", "A2A 1.0 removes a webhook by its id")
            request = replace(request, url=None)
        return codec.encode(request)

    def encode_result(self, operation: Operation, result: model.Result) -> bytes:
        """Write the result of an operation."""
        match result:
            case model.Task():
                return b'{"task":%b}' % codec.encode(result) if operation is Operation.SEND else codec.encode(result)
            case model.Message():
                return b'{"message":%b}' % codec.encode(result)
            case model.PushConfig():
                return codec.encode(_plain_push(result))
            case model.PushPage():
                return codec.encode(replace(result, configs=tuple(map(_plain_push, result.configs))))
            case model.AgentCard():
                return codec.encode(_plain_card(result))
            case int():
                return b"{}"
            case _:
                return codec.encode(result)

    def read_result(self, operation: Operation, result: bytes, request: model.Request) -> model.Result:
        """Read the result of an operation."""
        if operation is Operation.PUSH_DELETE:
            return 1
        if operation is Operation.EXTENDED_CARD:
            return self.decode_card(result)
        value = _read(result, _RESULTS[operation])
        if isinstance(value, StreamResponse):
            body = _body(value)
            if not isinstance(body, model.Task | model.Message):
                raise InvalidAgentResponse("The answer to a send holds neither a task nor a message")
            return body
        if isinstance(value, V1PageIn):
            return task_page(value.tasks, value.next_page_token, value.page_size, value.total_size)
        found: model.Result = value
        return found

    def encode_event(self, event: model.Event) -> Frame | None:
        """Write one stream event; a message added to the history has no form in A2A 1.0."""
        body = event.body
        name = EVENT_MEMBERS.get(type(body))
        return None if name is None else Frame(data=b'{"%b":%b}' % (name, codec.encode(body)))

    def read_event(self, frame: Frame) -> model.EventBody:
        """Read one stream event."""
        return _body(_read(frame.data, _EVENT))

    def decode_streamed(self, frame: Frame) -> model.EventBody:
        """Read one event in its JSON-RPC response, both at once; unusual ones take the slower, tolerant path."""
        try:
            result = _STREAMED.decode(frame.data).result
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            result = None
        if result is None:
            return super().decode_streamed(frame)
        return _body(result)

    def error_data(self, error: AccordError) -> Any:
        """Return the typed details that A2A 1.0 requires (9.5, 11.6)."""
        return error_details(error)

    def decode_error(self, error: ErrorObject) -> AccordError:
        """Read an error, by its ErrorInfo reason if present."""
        return read_error(error.code, error.message, error.data)

    def push_task(self, task: model.Task) -> bytes:
        """Write a webhook body with the task, which is a stream response as well."""
        return b'{"task":%b}' % codec.encode(task)

    def read_push(self, body: bytes) -> model.EventBody:
        """Read a webhook body."""
        return _body(_read(body, _EVENT))

    def encode_card(self, card: model.AgentCard) -> dict[str, Any]:
        """Write a card with only A2A 1.0's fields."""
        plain: dict[str, Any] = msgspec.json.decode(codec.encode(_plain_card(card)))
        return plain

    def decode_card(self, card: bytes) -> model.AgentCard:
        """Read a card."""
        plain = codec.decode(card, _ANYTHING)
        decoded: model.AgentCard = _read(codec.encode(_with_empties(_without_ours(plain))), _CARD)
        return decoded


def _complete(operation: Operation, request: model.Request) -> model.Request:
    if operation in _NEEDS:
        attribute, name = _NEEDS[operation]
        if not getattr(request, attribute):
            raise codec.invalid_field(name, "Required field is missing")
    return request


def error_details(error: AccordError) -> list[dict[str, Any]]:
    """Return the google.rpc details of an error: always ErrorInfo, and others that apply."""
    row: Row = error.row
    info: dict[str, Any] = {"@type": _TYPE + "ErrorInfo", "reason": row.reason, "domain": row.domain}
    if error.metadata:
        info["metadata"] = dict(error.metadata)
    details = [info]
    if error.violations:
        details.append(
            {"@type": _TYPE + "BadRequest", "fieldViolations": [violation._asdict() for violation in error.violations]}
        )
    if error.retry_after is not None:
        details.append({"@type": _TYPE + "RetryInfo", "retryDelay": f"{error.retry_after}s"})
    return details


def read_error(code: int, message: str, data: Any) -> AccordError:
    """Read an error from its code, message and typed details."""
    kind: type[AccordError] | None = None
    metadata = {"code": str(code)}
    violations: list[Violation] = []
    retry_after: int | None = None
    for detail in data if isinstance(data, list) else ():
        if not isinstance(detail, dict):
            continue
        kind = kind or for_reason(str(detail.get("reason")))
        metadata |= _strings(detail.get("metadata"))
        violations += read_violations(detail.get("fieldViolations"))
        delay = str(detail.get("retryDelay", "")).removesuffix("s").partition(".")[0]
        retry_after = int(delay) if delay.isascii() and delay.isdigit() and len(delay) < 10 else retry_after
    error = kind or for_code(code)
    return error(message, violations=tuple(violations), retry_after=retry_after, metadata=metadata)


def _strings(value: Any) -> dict[str, str]:
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else {}


def _body(response: StreamResponse) -> model.EventBody:
    for body in (response.status_update, response.artifact_update, response.task, response.message):
        if body is not None:
            return body
    raise InvalidAgentResponse("A stream response holds none of task, message, statusUpdate, artifactUpdate")


def _plain_push(config: model.PushConfig) -> model.PushConfig:
    return replace(config, payload_format=None, events=())


def _plain_card(card: model.AgentCard) -> model.AgentCard:
    skills = tuple(replace(skill, input_schema=None, output_schema=None) for skill in card.skills)
    schemes = {name: _one_flow(scheme) for name, scheme in card.security_schemes.items()}
    return replace(card, skills=skills, profile=None, security_schemes=schemes)


def _one_flow(scheme: model.SecurityScheme) -> model.SecurityScheme:
    """Return a scheme with its first OAuth flow only: 0.3 allows several, 1.0 one."""
    oauth = scheme.oauth2_security_scheme
    if oauth is None:
        return scheme
    names = [name for name in model.OAuthFlows.__struct_fields__ if getattr(oauth.flows, name) is not None]
    kept = model.OAuthFlows(**{name: getattr(oauth.flows, name) for name in names[:1]})
    return replace(scheme, oauth2_security_scheme=replace(oauth, flows=kept))


def _without_ours(card: Any) -> Any:
    """Remove the model's additions from a card: to a 1.0 reader those members are unknown, with any content."""
    if not isinstance(card, dict):
        return card
    skills = card.get("skills")
    if isinstance(skills, list):
        ours = ("inputSchema", "outputSchema")
        card["skills"] = [
            {key: value for key, value in skill.items() if key not in ours} if isinstance(skill, dict) else skill
            for skill in skills
        ]
    return {key: value for key, value in card.items() if key != "profile"}


_EMPTIES: dict[str, dict[str, Any]] = {
    "card": {
        "description": "",
        "version": "",
        "capabilities": {},
        "defaultInputModes": [],
        "defaultOutputModes": [],
        "skills": [],
    },
    "skill": {"description": "", "tags": []},
    "provider": {"url": ""},
    "flow": {"scopes": {}},
}
"""Required members of a card that protobuf leaves out when empty."""


def _with_empties(card: Any) -> Any:
    """Add the members to a card that are missing because they are empty; invalid ones are left for the decoder to
    report.
    """
    if not isinstance(card, dict):
        return card
    full = _EMPTIES["card"] | card
    if isinstance(full["skills"], list):
        full["skills"] = [_filled("skill", skill) for skill in full["skills"]]
    if "provider" in full:
        full["provider"] = _filled("provider", full["provider"])
    for scheme in _object(full.get("securitySchemes")).values():
        flows = _object(_object(_object(scheme).get("oauth2SecurityScheme")).get("flows"))
        flows.update({name: _filled("flow", flow) for name, flow in flows.items()})
    return full


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _filled(kind: str, value: Any) -> Any:
    return _EMPTIES[kind] | value if isinstance(value, dict) else value


# --- ProtoJSON beyond plain JSON ----------------------------------------------------------------------------------


def _read(data: bytes, decoder: Decoder[Any]) -> Any:
    try:
        return codec.decode(data, decoder)
    except InvalidParams as refused:
        return _look_again(data, refused, decoder.type)


def _look_again(data: bytes, refused: InvalidParams, to: Any, names: tuple[str, ...] = ()) -> Any:
    """Read refused data with ProtoJSON's tolerance, or raise the error.

    ProtoJSON allows null for an absent member, unpadded and URL-safe base64, and leaves out the zero of an enumeration.
    `names` are Accord's aliases of the task's id, A2A 1.0's name first.
    """
    if not refused.violations or refused.violations[0].description.endswith("out of range"):
        raise refused  # the decoder's limits, which hold for every spelling
    if codec.is_too_deep(data):
        raise InvalidParams("The JSON is nested too deeply")
    plain = codec.decode(data, _ANYTHING)
    relaxed = _relaxed(plain)
    if isinstance(relaxed, dict) and (task_id := next(filter(None, map(relaxed.get, names)), None)):
        relaxed[names[0]] = task_id
    if relaxed == plain:
        raise refused
    return codec.convert(relaxed, to)


def _relaxed(value: Any) -> Any:
    if isinstance(value, list):
        return [_relaxed(item) for item in value]
    if not isinstance(value, dict):
        return value
    relaxed = {
        key: item if key in _FREE_MEMBERS else _base64(item) if key == "raw" else _relaxed(item)
        for key, item in value.items()
        if item is not None or key == "data"
    }
    if isinstance(status := relaxed.get("status"), dict):
        status.setdefault("state", TaskState.UNKNOWN.value)
    return relaxed


def _base64(value: Any) -> Any:
    try:
        return base64.b64encode(from_base64(value)).decode() if isinstance(value, str) else value
    except ValueError:
        return value
