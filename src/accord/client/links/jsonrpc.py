"""An agent over JSON-RPC, in any of the five dialects: every operation is a POST to one address.

It knows the envelope only; `http` sends it, the dialect writes and reads what is inside.
"""

from typing import ClassVar

import msgspec
from msgspec import Struct

from accord.client.links.http import JSON, HttpLink, lacking
from accord.client.wire import Outgoing, Reply
from accord.engine.ids import new_id
from accord.errors import AccordError, InvalidAgentResponse, InvalidParams, ParseError
from accord.model import EventBody, Request, Result
from accord.protocol import jsonrpc
from accord.protocol.dialects import DIALECTS
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.operations import DialectName, Operation, method_name
from accord.protocol.sse import Frame

KIND = b'"kind"'
"""By which objects of 0.3 say what they are; 1.0 has no such member, though data may have."""


class _Tagged(Struct):
    kind: str


class _Answer(Struct):
    result: _Tagged


class JsonRpcLink(HttpLink):
    """One agent over JSON-RPC."""

    binding: ClassVar = "JSONRPC"
    codecs: ClassVar = DIALECTS

    def outgoing(self, operation: Operation, request: Request, seconds: float | None) -> Outgoing:
        """Return the call of an operation."""
        method = method_name(operation, self.dialect)
        if method is None:
            raise lacking(operation, self.dialect)
        params = self.codec.encode_request(operation, request)
        body = jsonrpc.request(new_id(), method, params)
        return Outgoing(method="POST", url=self.url, headers=(JSON, *self.headers), body=body, seconds=seconds)

    def result(self, operation: Operation, body: bytes, request: Request) -> Result:
        """Read the result of an answer, or raise its error."""
        return self.codec.decode_result(operation, self._answer(body), request)

    def streamed(self, frame: Frame) -> EventBody:
        """Read one event of a stream; some servers begin one as 1.0 does and go on in the shapes of 0.3."""
        if self.dialect is DialectName.V1 and KIND in frame.data and _is_tagged(frame.data):
            return DIALECTS[DialectName.V03].decode_streamed(frame)
        return super().streamed(frame)

    def whole_event(self, body: bytes) -> EventBody:
        """Read the result of an answer as the only event."""
        return self.codec.decode_event(Frame(data=self._answer(body)))

    def stated_error(self, reply: Reply, request: Request) -> AccordError | None:
        """Read the error object of an answer."""
        try:
            answer = jsonrpc.read_answer(reply.body)
        except (InvalidParams, ParseError):
            return None
        return self.codec.decode_error(answer) if isinstance(answer, ErrorObject) else None

    def _answer(self, body: bytes) -> bytes:
        try:
            answer = jsonrpc.read_answer(body)
        except (InvalidParams, ParseError) as error:
            raise InvalidAgentResponse(f"The answer is not JSON-RPC: {error.message}") from None
        if isinstance(answer, ErrorObject):
            raise self.codec.decode_error(answer)
        return answer


def _is_tagged(data: bytes) -> bool:
    """Whether the result of an answer says what it is, as 0.3 does."""
    try:
        msgspec.json.decode(data, type=_Answer)
    except msgspec.MsgspecError:
        return False
    return True
