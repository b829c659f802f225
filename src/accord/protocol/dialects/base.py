"""What a dialect is: a pair of pure codecs between the model and one version of the wire.

A dialect knows shapes, never framing (JSON-RPC envelopes, HTTP, SSE lines are above) and never meaning. The server uses
the halves that decode requests and encode answers, the client the other two, so one table of tests covers both.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from accord.errors import AccordError, InvalidAgentResponse, InvalidParams, ParseError, RemoteError, Row, for_code
from accord.model import (
    AgentCard,
    Event,
    EventBody,
    PushFormat,
    Request,
    Result,
    Task,
    TaskPage,
)
from accord.protocol import codec
from accord.protocol.jsonrpc import ErrorObject, read_answer
from accord.protocol.operations import DialectName, Operation
from accord.protocol.simple_push import is_simple, read_simple, simple_payload
from accord.protocol.sse import Frame


class Dialect(ABC):
    """One version of the A2A wire. Every method is pure; every refusal is an `AccordError`."""

    name: ClassVar[DialectName]

    wraps_events: ClassVar[bool] = True
    """Whether a JSON-RPC stream carries each event as a JSON-RPC answer, or bare."""

    refuses_by_event: ClassVar[bool] = False
    """Whether clients that ask for events read nothing else, so that only an event can tell them they get no stream."""

    partial_results: ClassVar[frozenset[Operation]] = frozenset()
    """Operations whose answer holds less than the task, so that a client reads the task again."""

    replays: ClassVar[frozenset[Operation]] = frozenset()
    """Streams that begin with the task's first event, where the caller does not say which event it saw last."""

    links_files: ClassVar[bool] = False
    """Whether a file is only ever an address in it, so that a server which answers in it gives bytes one (B-02)."""

    push_format: ClassVar[PushFormat] = PushFormat.TASK
    """What a webhook body of this dialect holds unless the webhook asks for something else."""

    push_media_type: ClassVar[str] = "application/json"
    """What a webhook body of this dialect is called, unless it is the simple one, which is plain JSON."""

    def knows_messages(self, _method: str) -> bool:
        """Whether who calls a method understands an answer that is a message alone; others are shown its task."""
        return True

    # --- requests -----------------------------------------------------------------------------------------------

    @abstractmethod
    def decode_request(self, operation: Operation, params: bytes) -> Request:
        """Read the parameters of an operation; unknown fields are ignored, missing ones refused by path."""

    @abstractmethod
    def encode_request(self, operation: Operation, request: Request) -> bytes:
        """Write the parameters of an operation."""

    # --- answers ------------------------------------------------------------------------------------------------

    @abstractmethod
    def encode_result(self, operation: Operation, result: Result) -> bytes:
        """Write the answer of a non-streaming operation."""

    def decode_result(self, operation: Operation, result: bytes, request: Request) -> Result:
        """Read the answer to `request`; what is wrong with it is the agent's fault."""
        try:
            return self.read_result(operation, result, request)
        except (InvalidParams, ParseError) as error:
            raise _invalid_answer(error) from None

    @abstractmethod
    def read_result(self, operation: Operation, result: bytes, request: Request) -> Result:
        """Read an answer; what is wrong with it is named like a wrong parameter."""

    def error_as_result(self, operation: Operation, error: AccordError) -> bytes | None:
        """Write the result that stands for an error, where the dialect answers so."""
        return None

    # --- stream events ------------------------------------------------------------------------------------------

    @abstractmethod
    def encode_event(self, event: Event) -> Frame | None:
        """Write one stream event, or None if the dialect has no form for it. `Frame.id` is left to the binding."""

    def decode_event(self, frame: Frame) -> EventBody:
        """Read one stream event, whose JSON-RPC envelope has been taken off."""
        try:
            return self.read_event(frame)
        except (InvalidParams, ParseError) as error:
            raise _invalid_answer(error) from None

    @abstractmethod
    def read_event(self, frame: Frame) -> EventBody:
        """Read one stream event; what is wrong with it is named like a wrong parameter."""

    def decode_streamed(self, frame: Frame) -> EventBody:
        """Read one event of a JSON-RPC stream as it came; an error that ends the stream is raised."""
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
    """Whether a stream has an error event after the status of a task that failed."""

    def encode_failure(self, event: Event) -> Frame | None:
        """Write the error event that follows the status of a failed task, in dialects that report failures."""
        return None

    # --- errors -------------------------------------------------------------------------------------------------

    def encode_error(self, error: AccordError, agent: str = "") -> ErrorObject:
        """Write an error of the named agent as a JSON-RPC error object."""
        return ErrorObject(self.code(error.row), error.message, self.error_data(error))

    def code(self, row: Row) -> int:
        """Return the dialect's JSON-RPC code for an error."""
        return row.code

    def error_data(self, error: AccordError) -> Any:
        """Return what a dialect puts in `error.data`, or None."""
        found: dict[str, Any] = {"reason": error.row.reason, **error.metadata}
        if error.violations:
            found["violations"] = [violation._asdict() for violation in error.violations]
        if error.retry_after is not None:
            found["retry_after"] = error.retry_after
        return found

    def decode_error(self, error: ErrorObject) -> AccordError:
        """Read a JSON-RPC error object of another server."""
        return for_code(error.code)(error.message, metadata={"code": str(error.code)})

    # --- webhooks -----------------------------------------------------------------------------------------------

    def encode_push(self, event: Event, task: Task, form: PushFormat | None = None) -> bytes:
        """Write a webhook body for `event`, after which the task is `task`."""
        form = form or self.push_format
        if form is PushFormat.SIMPLE:
            return simple_payload(task)
        frame = self.encode_event(event) if form is PushFormat.EVENT else None
        return self.push_task(task) if frame is None else frame.data

    @abstractmethod
    def push_task(self, task: Task) -> bytes:
        """Write a webhook body that holds the whole task."""

    def decode_push(self, body: bytes) -> EventBody:
        """Read a webhook body in any of its three forms."""
        return read_simple(body) if is_simple(body) else self.read_push(body)

    @abstractmethod
    def read_push(self, body: bytes) -> EventBody:
        """Read a webhook body that holds a task or one event."""

    # --- cards --------------------------------------------------------------------------------------------------

    @abstractmethod
    def encode_card(self, card: AgentCard) -> dict[str, Any]:
        """Write a card as plain data; `protocol.cards` puts several dialects' cards into one document."""

    @abstractmethod
    def decode_card(self, card: bytes) -> AgentCard:
        """Read a card."""


class RestDialect(Dialect):
    """A version of A2A as its HTTP+JSON binding speaks it: parameters from body, query and path; bare events."""

    wraps_events: ClassVar = False

    media_types: ClassVar[tuple[str, ...]]
    """What its answers may be called, the best first."""

    @abstractmethod
    def encode_http_error(self, error: AccordError) -> bytes:
        """Write an error as the body of an answer."""

    @abstractmethod
    def decode_http_error(self, body: bytes) -> AccordError | None:
        """Read the body of an answer that is an error, or return None if it is not the dialect's."""

    def answering(self, _operation: Operation, _params: bytes) -> "RestDialect":
        """Return how to answer who asked so: in most versions it makes no difference."""
        return self

    def decode_streamed(self, frame: Frame) -> EventBody:
        """Read one event of a stream as it came; an error that ends the stream is raised."""
        if frame.event == "error":
            raise self.decode_http_error(frame.data) or RemoteError()
        return self.decode_event(frame)

    def encode_stream_error(self, error: AccordError) -> Frame:
        """Write an error that ends a stream, under the event name that the official clients look for."""
        return Frame(event="error", data=self.encode_http_error(error))


def task_page(tasks: tuple[Task, ...], token: str | None, size: int | None, total: int | None) -> TaskPage:
    """Return a page of tasks; an agent that does not say how many there are has no more than these."""
    count = len(tasks)
    return TaskPage(
        tasks=tasks,
        next_page_token=token or "",
        page_size=count if size is None else size,
        total_size=count if total is None else total,
    )


def stated(**members: Any) -> dict[str, Any]:
    """Return an object without the members that are None."""
    return {name: value for name, value in members.items() if value is not None}


def encoded(**members: Any) -> bytes:
    """Write an object without the members that are None."""
    return codec.encode(stated(**members))


def _invalid_answer(error: AccordError) -> InvalidAgentResponse:
    return InvalidAgentResponse(f"The agent's answer is invalid: {error.message}")
