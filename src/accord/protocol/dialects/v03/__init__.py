"""A2A 0.2 and 0.3 over JSON-RPC, the version of most deployed agents.

`rest` contains the HTTP+JSON and gRPC bindings. `shapes` are the input structs, `reader` converts them to the model,
and `writer` contains the output structs. `card` is the agent card. `V03Members` is for callers that leave `kind` out. A
fact without a field in 0.3 is left out, never sent under a name that a strict 0.3 peer refuses.
"""

from typing import Any, ClassVar

from msgspec.json import Decoder
from msgspec.structs import replace

from accord import model
from accord.errors import InvalidAgentResponse, InvalidParams
from accord.protocol import codec
from accord.protocol.codec import invalid_field
from accord.protocol.dialects.base import Dialect
from accord.protocol.dialects.fields import EVENT_MEMBERS, task_page
from accord.protocol.dialects.v03.card import read_card, write_card
from accord.protocol.dialects.v03.params import (
    BY_TASK,
    V03PageIn,
    V03PushesIn,
    V03PushSetIn,
    V03SendIn,
    config_of,
    read_configuration,
    read_push,
    read_set,
    task_of,
)
from accord.protocol.dialects.v03.reader import (
    EMPTY_PARTS,
    KIND_MEMBERS,
    MISSING,
    V03AnswerIn,
    V03Reader,
    read_list,
    read_member,
    text_or_none,
)
from accord.protocol.dialects.v03.writer import FILTER, V03Writer
from accord.protocol.operations import DialectName, Operation
from accord.protocol.sse import Frame

_SEND = Decoder(V03SendIn)
_PUSH_SET = Decoder(V03PushSetIn)
_PUSHES: Decoder[list[V03PushSetIn] | V03PushesIn] = Decoder(list[V03PushSetIn] | V03PushesIn)
_ANSWER = Decoder(V03AnswerIn)
_OBJECT = Decoder(dict[str, Any])
_PAGE = Decoder(V03PageIn)


class V03(Dialect):
    """A2A 0.2.x and 0.3 JSON-RPC."""

    name: ClassVar = DialectName.V03
    refuses_by_event: ClassVar = True  # the official 0.3 clients fail on any other response without reading it
    reader: ClassVar = V03Reader()
    writer: ClassVar = V03Writer()

    # --- requests ---

    def decode_request(self, operation: Operation, params: bytes) -> model.Request:
        """Read the parameters of an operation."""
        match operation:
            case Operation.SEND | Operation.STREAM:
                return self.read_send(params)
            case Operation.LIST:
                return FILTER.read(params)
            case Operation.PUSH_SET:
                wire = codec.decode(params, _PUSH_SET)
                if wire.push_notification_config is None:
                    raise invalid_field("pushNotificationConfig", MISSING)
                return read_set(wire.push_notification_config, wire.target())
            case Operation.EXTENDED_CARD:
                return model.CardRequest()
            case _:
                return self.read_by_task(operation, params)

    def read_by_task(self, operation: Operation, params: bytes) -> model.Request:
        """Read the parameters of an operation that names a task."""
        decoder, read = BY_TASK[operation]
        return read(codec.decode(params, decoder))

    def read_send(self, params: bytes) -> model.SendRequest:
        """Read the parameters of a send; without `blocking` the caller waits (B-08)."""
        wire = codec.decode(params, _SEND)
        return self.send_request(wire, read_configuration(wire.configuration))

    def send_request(self, wire: V03SendIn, configuration: model.SendConfiguration | None) -> model.SendRequest:
        """Return the request for a message and its configuration."""
        message = read_member("message", self.reader.message, wire.message)
        if message.parts is EMPTY_PARTS:
            raise invalid_field("message.parts", "Expected at least one part")
        return model.SendRequest(message=message, configuration=configuration, metadata=wire.metadata)

    def encode_request(self, operation: Operation, request: model.Request) -> bytes:
        """Write the parameters of an operation."""
        return codec.encode(self.writer.params(request))

    # --- results ---

    def encode_result(self, operation: Operation, result: model.Result) -> bytes:
        """Write the result of an operation."""
        match result:
            case model.Task() | model.Message():
                return codec.encode(self.writer.body(result))
            case model.TaskPage():
                return codec.encode(self.writer.page(result))
            case model.PushConfig():
                return codec.encode(self.writer.task_push(result))
            case model.PushPage():
                return codec.encode([self.writer.task_push(config) for config in result.configs])
            case model.AgentCard():
                return codec.encode(self.encode_card(result))
            case _:
                return b"null"

    def read_result(self, operation: Operation, result: bytes, request: model.Request) -> model.Result:
        """Read the result of an operation; errors name the field as for invalid parameters."""
        match operation:
            case Operation.PUSH_DELETE:
                return 1
            case Operation.LIST:
                found = codec.decode(result, _PAGE)
                tasks = read_list("tasks", self.reader.task, found.tasks)
                return task_page(tasks, found.next_page_token, found.page_size, found.total_size)
            case Operation.PUSH_SET | Operation.PUSH_GET:
                return self.read_task_push(codec.decode(result, _PUSH_SET), request)
            case Operation.PUSH_LIST:
                pushes = codec.decode(result, _PUSHES)
                page = V03PushesIn(configs=pushes) if isinstance(pushes, list) else pushes
                configs = [self.read_task_push(wire, request) for wire in page.configs]
                return model.PushPage(configs=tuple(configs), next_page_token=page.next_page_token or "")
            case Operation.EXTENDED_CARD:
                return read_card(result)
        body = self._answer(result)
        if isinstance(body, model.Task) or (isinstance(body, model.Message) and operation is Operation.SEND):
            return body
        raise InvalidAgentResponse(f"The answer to {operation.value} is neither a task nor a message")

    def read_task_push(self, wire: V03PushSetIn, request: model.Request) -> model.PushConfig:
        """Read a webhook with its task, whose id is the request's if the result has none."""
        if wire.push_notification_config is None:
            raise invalid_field("pushNotificationConfig", MISSING)
        requested_task = (
            request.task_id
            if isinstance(request, model.PushConfig | model.PushGetRequest | model.PushListRequest)
            else None
        )
        name = text_or_none(wire.name)
        task_id = wire.own_task() or text_or_none(wire.id) or task_of(name) or requested_task
        return read_push(wire.push_notification_config, task_id, config_of(name))

    def _answer(self, data: bytes) -> model.EventBody:
        """Read a task, a message or an update; where `kind` states the type, members of other types are ignored."""
        try:
            wire = codec.decode(data, _ANSWER)
        except InvalidParams as refused:
            plain = codec.decode(data, _OBJECT)
            members = KIND_MEMBERS.get(text_or_none(plain.get("kind")) or "")
            if members is None:
                raise refused
            wire = codec.convert({name: value for name, value in plain.items() if name in members}, V03AnswerIn)
        return self.reader.answer(wire)

    # --- stream events and webhooks ---

    def encode_event(self, event: model.Event) -> Frame | None:
        """Write one stream event; a message added to the history has no form in 0.3."""
        body = self.writer.body(event.body)
        return None if body is None else Frame(data=codec.encode(body))

    def read_event(self, frame: Frame) -> model.EventBody:
        """Read one stream event."""
        return self._answer(frame.data)

    def push_task(self, task: model.Task) -> bytes:
        """Write a webhook body with the task."""
        return codec.encode(self.writer.task(task))

    def read_push(self, body: bytes) -> model.EventBody:
        """Read a webhook body with a task or one event."""
        return self._answer(body)

    # --- errors and cards ---

    encode_card: ClassVar = staticmethod(write_card)
    decode_card: ClassVar = staticmethod(read_card)


class V03Members(V03):
    """A2A 0.3 whose results of a send also contain themselves as a named member."""

    def encode_result(self, operation: Operation, result: model.Result) -> bytes:
        """Write the result of an operation."""
        data = super().encode_result(operation, result)
        return (
            _twice(data, result)
            if operation is Operation.SEND and isinstance(result, model.Task | model.Message)
            else data
        )

    def encode_event(self, event: model.Event) -> Frame | None:
        """Write one stream event."""
        frame = super().encode_event(event)
        return None if frame is None else replace(frame, data=_twice(frame.data, event.body))


def _twice(data: bytes, body: model.EventBody) -> bytes:
    """Return an object that is also a member of itself."""
    return b'%b,"%b":%b}' % (data[:-1], EVENT_MEMBERS[type(body)], data)
