"""What a dialect is: a pair of pure codecs between the model and one version of the wire.

A dialect knows shapes, never framing (JSON-RPC envelopes, HTTP, SSE lines are above) and never meaning. The server uses
the halves that decode requests and encode answers, the client the other two, so one table of tests covers both.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from accord.errors import AccordError, Row, for_code
from accord.model import (
    AgentCard,
    Event,
    EventBody,
    PushFormat,
    Request,
    Result,
    Task,
)
from accord.protocol import codec
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.operations import DialectName, Operation
from accord.protocol.sse import Frame


class Dialect(ABC):
    """One version of the A2A wire. Every method is pure; every refusal is an `AccordError`."""

    name: ClassVar[DialectName]

    wraps_events: ClassVar[bool] = True
    """Whether a JSON-RPC stream carries each event as a JSON-RPC answer, or bare."""

    partial_results: ClassVar[frozenset[Operation]] = frozenset()
    """Operations whose answer holds less than the task, so that a client reads the task again."""

    push_format: ClassVar[PushFormat] = PushFormat.TASK
    """What a webhook body of this dialect holds unless the webhook asks for something else."""

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

    @abstractmethod
    def decode_result(self, operation: Operation, result: bytes, request: Request) -> Result:
        """Read the answer to `request`."""

    def error_as_result(self, operation: Operation, error: AccordError) -> bytes | None:
        """Write the result that stands for an error, where the dialect answers so."""
        return None

    # --- stream events ------------------------------------------------------------------------------------------

    @abstractmethod
    def encode_event(self, event: Event) -> Frame | None:
        """Write one stream event, or None if the dialect has no form for it. `Frame.id` is left to the binding."""

    @abstractmethod
    def decode_event(self, frame: Frame) -> EventBody:
        """Read one stream event; a JSON-RPC envelope has been taken off."""

    def encode_stream_error(self, error: AccordError) -> Frame:
        """Write an error that ends a stream, for dialects whose events are bare."""
        return Frame(data=codec.encode(self.encode_error(error)))

    # --- errors -------------------------------------------------------------------------------------------------

    def encode_error(self, error: AccordError) -> ErrorObject:
        """Write an error as a JSON-RPC error object."""
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

    @abstractmethod
    def encode_push(self, event: Event, task: Task, form: PushFormat | None = None) -> bytes:
        """Write a webhook body for `event`, after which the task is `task`."""

    @abstractmethod
    def decode_push(self, body: bytes) -> EventBody:
        """Read a webhook body."""

    # --- cards --------------------------------------------------------------------------------------------------

    @abstractmethod
    def encode_card(self, card: AgentCard) -> dict[str, Any]:
        """Write a card as plain data; `protocol.cards` puts several dialects' cards into one document."""

    @abstractmethod
    def decode_card(self, card: bytes) -> AgentCard:
        """Read a card."""
