"""The dialect interfaces, and code shared by several dialects.

A dialect is a pair of pure codecs between the model and one version of the wire. Shared code covers:

- the task id under any of its names (B-16)
- flat error data
- the webhook body `{taskId, status, result}`, which belongs to no dialect
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct
from msgspec.json import Decoder

from accord import model
from accord.errors import (
    TABLE,
    AccordError,
    InvalidAgentResponse,
    InvalidParams,
    ParseError,
    RemoteError,
    Row,
    Violation,
    for_code,
    for_reason,
)
from accord.model import PushFormat, TaskState
from accord.protocol import codec
from accord.protocol.dialects.fields import task_page, without_none
from accord.protocol.jsonrpc import ErrorObject, read_answer
from accord.protocol.operations import DialectName, Operation
from accord.protocol.sse import Frame
from accord.protocol.states import LOWER, from_lower

_FIELDS = frozenset({"reason", "violations", "retry_after"})


def read_flat_error(error: ErrorObject, column: str, likely: type[AccordError] | None = None) -> AccordError:
    """Return the error for `data.reason` if it matches the code, else `likely`, else the error of the code.

    `column` is the dialect's column in the table of errors. A code that is not the error's own is kept in the metadata.
    """
    data = error.data if isinstance(error.data, dict) else {}
    kind = for_reason(str(data.get("reason")))
    if kind is None or getattr(TABLE[kind], column) != error.code:
        kind = likely or for_code(error.code, column)
    own = getattr(TABLE[kind], column) == error.code
    return error_from_facts(kind, error.message, data if own else data | {"code": str(error.code)})


def error_from_facts(kind: type[AccordError], message: str, data: dict[str, Any]) -> AccordError:
    """Create an error from its message and flat data."""
    seconds = data.get("retry_after")
    return kind(
        message,
        violations=read_violations(data.get("violations")),
        retry_after=seconds if isinstance(seconds, int) and not isinstance(seconds, bool) else None,
        metadata={key: value for key, value in data.items() if key not in _FIELDS and isinstance(value, str)},
    )


def read_violations(violations: Any) -> tuple[Violation, ...]:
    """Return the invalid fields of an error, from a list of objects; anything else is ignored."""
    items = [item for item in violations if isinstance(item, dict)] if isinstance(violations, list) else []
    return tuple(Violation(str(item.get("field", "")), str(item.get("description", ""))) for item in items)


class SimplePush(Struct, rename="camel"):
    """The simple webhook body."""

    task_id: str
    status: str
    result: Any = UNSET


class _SimpleLook(Struct, rename="camel"):
    task_id: Any = None
    status: Any = None


_SIMPLE = Decoder(SimplePush)
_SIMPLE_LOOK = Decoder(_SimpleLook)


def result_of(task: model.Task) -> Any:
    """Return a task's result: the data of its last artifact, else all text of its artifacts, else None."""
    if not task.artifacts:
        return None
    parts = task.artifacts[-1].parts
    structured = [part.data for part in parts if part.data is not UNSET]
    if structured:
        return structured[0] if len(structured) == 1 else structured
    texts = [part.text for artifact in task.artifacts for part in artifact.parts if part.text is not None]
    return "".join(texts) if texts else None


def simple_payload(task: model.Task) -> bytes:
    """Write the simple webhook body of a task."""
    return codec.encode({"taskId": task.id, "status": LOWER[task.status.state], "result": result_of(task)})


def is_simple(body: bytes) -> bool:
    """Whether a webhook body is the simple one: it has the task's id, and its state as one word."""
    look = codec.decode(body, _SIMPLE_LOOK)
    return isinstance(look.task_id, str) and isinstance(look.status, str)


def read_simple(body: bytes) -> model.Task:
    """Read the simple webhook body as a task with at most one artifact."""
    simple = codec.decode(body, _SIMPLE)
    state: TaskState = from_lower(simple.status, "status")
    return model.Task(id=simple.task_id, status=model.TaskStatus(state=state), artifacts=_artifacts(simple.result))


def _artifacts(result: Any) -> tuple[model.Artifact, ...]:
    if result is UNSET or result is None:
        return ()
    part = model.Part(text=result) if isinstance(result, str) else model.Part(data=result)
    return (model.Artifact(artifact_id="result", parts=(part,)),)


_OBJECT = Decoder(dict[str, Any])


class Dialect(ABC):
    """One version of the A2A wire. Every method is pure; every refusal is an `AccordError`."""

    name: ClassVar[DialectName]

    wraps_events: ClassVar[bool] = True
    """Whether a JSON-RPC stream carries each event as a JSON-RPC response, or bare."""

    refuses_by_event: ClassVar[bool] = False
    """Whether clients that accept events read nothing else, so that only an event can report a refused stream."""

    partial_results: ClassVar[frozenset[Operation]] = frozenset()
    """Operations whose response contains less than the task, so that a client reads the task again."""

    replays: ClassVar[frozenset[Operation]] = frozenset()
    """Streams that start with the task's first event, where the caller does not state the last event it received."""

    links_files: ClassVar[bool] = False
    """Whether files are always URLs in this dialect, so that a server replaces bytes by URLs (B-02)."""

    push_format: ClassVar[PushFormat] = PushFormat.TASK
    """The default format of a webhook body in this dialect."""

    push_media_type: ClassVar[str] = "application/json"
    """The media type of a webhook body in this dialect, except the simple one, which is plain JSON."""

    def knows_messages(self, _method: str) -> bool:
        """Whether callers of a method accept a message as the result; others are sent its task."""
        return True

    # --- requests -----------------------------------------------------------------------------------------------

    @abstractmethod
    def decode_request(self, operation: Operation, params: bytes) -> model.Request:
        """Read the parameters of an operation; unknown fields are ignored, missing ones refused by path."""

    @abstractmethod
    def encode_request(self, operation: Operation, request: model.Request) -> bytes:
        """Write the parameters of an operation."""

    # --- results ------------------------------------------------------------------------------------------------

    @abstractmethod
    def encode_result(self, operation: Operation, result: model.Result) -> bytes:
        """Write the result of a non-streaming operation."""

    def decode_result(self, operation: Operation, result: bytes, request: model.Request) -> model.Result:
        """Read the result of `request`; an invalid one raises InvalidAgentResponse."""
        try:
            return self.read_result(operation, result, request)
        except (InvalidParams, ParseError) as error:
            raise _invalid_answer(error) from None

    @abstractmethod
    def read_result(self, operation: Operation, result: bytes, request: model.Request) -> model.Result:
        """Read a result; errors name the field as for invalid parameters."""

    def error_as_result(self, operation: Operation, error: AccordError) -> bytes | None:
        """Write the result that represents an error, where the dialect has one."""
        return None

    # --- stream events ------------------------------------------------------------------------------------------

    @abstractmethod
    def encode_event(self, event: model.Event) -> Frame | None:
        """Write one stream event, or None if the dialect has no form for it. The binding sets `Frame.id`."""

    def decode_event(self, frame: Frame) -> model.EventBody:
        """Read one stream event without its JSON-RPC envelope."""
        try:
            return self.read_event(frame)
        except (InvalidParams, ParseError) as error:
            raise _invalid_answer(error) from None

    @abstractmethod
    def read_event(self, frame: Frame) -> model.EventBody:
        """Read one stream event; errors name the field as for invalid parameters."""

    def decode_streamed(self, frame: Frame) -> model.EventBody:
        """Read one event of a JSON-RPC stream as received; an error that ends the stream is raised."""
        if not self.wraps_events:
            return self.decode_event(frame)
        try:
            answer = read_answer(frame.data)
        except (InvalidParams, ParseError) as error:
            raise _invalid_answer(error) from None
        if isinstance(answer, ErrorObject):
            raise self.decode_error(answer)
        return self.decode_event(Frame(data=answer, event=frame.event))

    def encode_stream_error(self, error: AccordError) -> Frame:
        """Write an error that ends a stream, for dialects whose events are bare."""
        return Frame(data=codec.encode(self.encode_error(error)))

    reports_failures: ClassVar[bool] = False
    """Whether a stream has an error event after the status of a failed task."""

    def encode_failure(self, event: model.Event) -> Frame | None:
        """Write the error event that follows the status of a failed task, in dialects that report failures."""
        return None

    # --- errors -------------------------------------------------------------------------------------------------

    def encode_error(self, error: AccordError, agent: str = "") -> ErrorObject:
        """Write an error of the named agent as a JSON-RPC error object."""
        return ErrorObject(self.code(error.row), error.message, self.error_data(error))

    error_column: ClassVar[Literal["code", "vault", "gen"]] = "code"
    """The column of the dialect's JSON-RPC codes in the table of errors."""

    def code(self, row: Row) -> int:
        """Return the dialect's JSON-RPC code for an error."""
        return int(getattr(row, self.error_column))

    def error_data(self, error: AccordError) -> Any:
        """Return the content of `error.data` in this dialect, or None."""
        data: dict[str, Any] = {"reason": error.row.reason, **error.metadata}
        if error.violations:
            data["violations"] = [violation._asdict() for violation in error.violations]
        if error.retry_after is not None:
            data["retry_after"] = error.retry_after
        return data

    def decode_error(self, error: ErrorObject) -> AccordError:
        """Read a JSON-RPC error object of another server, by the reason in its data where that matches the code."""
        return read_flat_error(error, self.error_column)

    # --- webhooks -----------------------------------------------------------------------------------------------

    def encode_push(self, event: model.Event, task: model.Task, form: PushFormat | None = None) -> bytes:
        """Write a webhook body for `event`; `task` is the task after it."""
        form = form or self.push_format
        if form is PushFormat.SIMPLE:
            return simple_payload(task)
        frame = self.encode_event(event) if form is PushFormat.EVENT else None
        return self.push_task(task) if frame is None else frame.data

    @abstractmethod
    def push_task(self, task: model.Task) -> bytes:
        """Write a webhook body with the whole task."""

    def decode_push(self, body: bytes) -> model.EventBody:
        """Read a webhook body in any of its three forms."""
        return read_simple(body) if is_simple(body) else self.read_push(body)

    @abstractmethod
    def read_push(self, body: bytes) -> model.EventBody:
        """Read a webhook body with a task or one event."""

    # --- cards --------------------------------------------------------------------------------------------------

    @abstractmethod
    def encode_card(self, card: model.AgentCard) -> dict[str, Any]:
        """Write a card as plain data; `protocol.cards` merges several dialects' cards into one document."""

    @abstractmethod
    def decode_card(self, card: bytes) -> model.AgentCard:
        """Read a card."""


class RestDialect(Dialect):
    """A version of A2A for its HTTP+JSON binding: parameters from body, query and path; bare events."""

    wraps_events: ClassVar = False

    media_types: ClassVar[tuple[str, ...]]
    """Media types of its responses, the preferred one first."""

    @abstractmethod
    def encode_http_error(self, error: AccordError) -> bytes:
        """Write an error as the body of a response."""

    @abstractmethod
    def decode_http_error(self, body: bytes) -> AccordError | None:
        """Read the body of an error response, or return None if it is not the dialect's."""

    def answering(self, _operation: Operation, _params: bytes) -> "RestDialect":
        """Return the dialect of the response to these parameters; in most versions they make no difference."""
        return self

    def decode_streamed(self, frame: Frame) -> model.EventBody:
        """Read one event of a stream as received; an error that ends the stream is raised."""
        if frame.event == "error":
            raise self.decode_http_error(frame.data) or RemoteError()
        return self.decode_event(frame)

    def encode_stream_error(self, error: AccordError) -> Frame:
        """Write an error that ends a stream, under the event name that the official clients look for."""
        return Frame(event="error", data=self.encode_http_error(error))


class ObjectDialect(Dialect):
    """A dialect with objects of its own: functions write and read a task, a message, a webhook and the card."""

    page: ClassVar[Any]
    """The struct of a page, made by `page_shape`."""

    last_page_token: ClassVar[str | None] = ""
    """The token of the last page of webhooks, or None where it has none."""

    task_decoder: ClassVar[Decoder[Any]]
    config_decoder: ClassVar[Decoder[Any]]
    write_task: ClassVar[Any]
    read_task: ClassVar[Any]
    write_config: ClassVar[Any]
    read_config: ClassVar[Any]

    def encode_result(self, operation: Operation, result: model.Result) -> bytes:
        """Write the result of an operation."""
        return codec.encode(self.write_result(operation, result))

    def write_result(self, operation: Operation, result: model.Result) -> dict[str, Any]:
        """Return the result of an operation as plain data."""
        match result:
            case model.Task():
                found: dict[str, Any] = self.write_task(result)
            case model.Message():
                found = self.write_message(result)
            case model.PushConfig():
                found = self.write_config(result)
            case model.TaskPage():
                names = dict(zip(self.page.__struct_encode_fields__, self.page.__struct_fields__, strict=True))
                written = {wire: getattr(result, name) for wire, name in names.items() if name != "configs"}
                found = written | {"tasks": [self.write_task(task) for task in result.tasks]}
            case model.PushPage():
                token = {self.page.__struct_encode_fields__[2]: result.next_page_token or self.last_page_token}
                found = without_none(configs=[self.write_config(config) for config in result.configs], **token)
            case model.AgentCard():
                found = self.encode_card(result)
            case _:
                found = {"removed": result}
        return found

    @abstractmethod
    def write_message(self, message: model.Message) -> dict[str, Any]:
        """Return a message as the result of an operation."""

    def read_result(self, operation: Operation, result: bytes, request: model.Request) -> model.Result:
        """Read the result of an operation."""
        match operation:
            case Operation.PUSH_SET | Operation.PUSH_GET:
                found: model.Result = self.read_config(codec.decode(result, self.config_decoder))
            case Operation.LIST:
                page = codec.decode(result, Decoder(self.page))
                tasks = tuple(self.read_task(task, f"tasks[{at}].") for at, task in enumerate(page.tasks))
                found = task_page(tasks, page.next_page_token, page.page_size, page.total_size)
            case Operation.PUSH_LIST:
                page = codec.decode(result, Decoder(self.page))
                configs = tuple(self.read_config(config) for config in page.configs)
                found = model.PushPage(configs=configs, next_page_token=page.next_page_token or "")
            case Operation.PUSH_DELETE:
                removed = codec.decode(result, _OBJECT).get("removed")
                found = removed if isinstance(removed, int) else 1
            case Operation.EXTENDED_CARD:
                found = self.decode_card(result)
            case _:
                found = self.read_task(codec.decode(result, self.task_decoder))
        return found

    def push_task(self, task: model.Task) -> bytes:
        """Write a webhook body with the task."""
        return codec.encode(self.write_task(task))


def _invalid_answer(error: AccordError) -> InvalidAgentResponse:
    return InvalidAgentResponse(f"The agent's answer is invalid: {error.message}")
