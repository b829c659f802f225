"""JSON-RPC 2.0: one body in, calls out; results and errors in, one body out.

It is independent of methods and dialects. Ids are stored as the bytes that the caller sent, so that they are echoed
exactly. Bindings are above, `codec` is below.
"""

from typing import Any

from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder

from accord.errors import AccordError, InvalidRequest, ParseError
from accord.protocol import codec

NO_ID = b""
NULL_ID = b"null"

MAX_ID = 1024
"""Maximum bytes of an id: it is echoed with every event of a stream."""

MAX_BATCH = 100
"""Maximum calls in one body: a batch is answered as a whole, and no client needs more."""


class RpcCall(Struct, frozen=True):
    """One request; without an id it is a notification, which gets no response."""

    method: str
    params: bytes
    id: bytes

    @property
    def is_notification(self) -> bool:
        """Whether the caller expects no response."""
        return self.id == NO_ID


class Rejected(Struct, frozen=True):
    """An entry that is not a request, and the id of its response."""

    error: AccordError
    id: bytes = NULL_ID


Entry = RpcCall | Rejected


class Batch(Struct, frozen=True):
    """Several entries of one body, which get one response."""

    entries: tuple[Entry, ...]


class _Wire(Struct):
    jsonrpc: Raw = Raw(b"")
    method: Raw = Raw(b"")
    params: Raw = Raw(b"{}")
    id: Raw = Raw(NO_ID)


class _Answer(Struct):
    result: Raw = Raw(NULL_ID)
    error: Raw = Raw(NULL_ID)


class ErrorObject(Struct, frozen=True, omit_defaults=True):
    """The `error` member of a response."""

    code: int
    message: str
    data: Any = None


_wire = Decoder(_Wire)
_raws = Decoder(list[Raw])
_anything: Decoder[Any] = Decoder(Any)
_string = Decoder(str)
_answer = Decoder(_Answer)
_error = Decoder(ErrorObject)


def decode(body: bytes) -> Entry | Batch:
    """Read one HTTP body. Errors are returned as `Rejected`, never raised."""
    try:
        codec.check_utf8(body)
        codec.check_form(body)
        return _entry(_wire.decode(body))
    except AccordError as error:
        return Rejected(error)
    except ValidationError:
        return _batch(body) if body.lstrip()[:1] == b"[" else _not_an_object(body)
    except (ValueError, RecursionError) as error:
        return Rejected(_unreadable(error))


def _not_an_object(body: bytes) -> Rejected:
    try:
        _anything.decode(body)
    except (ValueError, RecursionError) as error:
        return Rejected(_unreadable(error))
    return Rejected(InvalidRequest("The body is not an object"))


def _batch(body: bytes) -> Batch | Rejected:
    try:
        items = _raws.decode(body)
    except (ValueError, RecursionError) as error:
        return Rejected(_unreadable(error))
    if not items:
        return Rejected(InvalidRequest("The batch is empty"))
    if len(items) > MAX_BATCH:
        return Rejected(InvalidRequest(f"The batch has {len(items)} entries; at most {MAX_BATCH} are accepted"))
    return Batch(tuple(_batch_entry(bytes(item)) for item in items))


def _batch_entry(item: bytes) -> Entry:
    try:
        return _entry(_wire.decode(item))
    except (ValueError, RecursionError):
        return Rejected(InvalidRequest("An entry of the batch is not an object"))


def _entry(wire: _Wire) -> Entry:
    identifier, params = bytes(wire.id), bytes(wire.params)
    if not _is_id(identifier):
        return Rejected(InvalidRequest("`id` must be a string, a number or null, of at most 1,024 bytes"))
    answer_to = identifier or NULL_ID
    if bytes(wire.jsonrpc) != b'"2.0"':
        return Rejected(InvalidRequest('`jsonrpc` must be "2.0"'), answer_to)
    method = _text(bytes(wire.method))
    if not method:
        return Rejected(InvalidRequest("`method` must be a non-empty string"), answer_to)
    if params[:1] not in (b"{", b"[") and params != b"null":
        return Rejected(InvalidRequest("`params` must be an object"), answer_to)
    return RpcCall(method, b"{}" if params == b"null" else params, identifier)


def _is_id(raw: bytes) -> bool:
    return len(raw) <= MAX_ID and (raw in (NO_ID, NULL_ID) or raw[:1] in b'"-0123456789')


def _text(raw: bytes) -> str | None:
    try:
        return _string.decode(raw)
    except ValueError:
        return None


def _unreadable(error: Exception) -> AccordError:
    if isinstance(error, RecursionError):
        return codec.too_deep()
    return ParseError(f"The body is not valid JSON: {codec.plain(error)}")


def success(identifier: bytes, result: bytes) -> bytes:
    """Return the response with a result, already encoded as JSON."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (identifier or NULL_ID, result)


def around(identifier: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of such a response before and after its result."""
    whole = success(identifier, b"")
    return whole[:-1], whole[-1:]


def failure(identifier: bytes, error: ErrorObject) -> bytes:
    """Return the response with an error."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (identifier or NULL_ID, codec.encode(error))


def batch(answers: list[bytes]) -> bytes:
    """Return the response to a batch; an empty list has no response at all."""
    return b"[%b]" % b",".join(answers)


def request(identifier: str, method: str, params: bytes) -> bytes:
    """Return the body of a call."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (
        codec.encode(identifier),
        codec.encode(method),
        params,
    )


def read_answer(body: bytes) -> bytes | ErrorObject:
    """Return the result in a response as JSON, or its error object."""
    answer = codec.decode(body, _answer)
    if bytes(answer.error) != NULL_ID:
        return codec.decode(answer.error, _error)
    return bytes(answer.result)
