"""Everything that reads bytes from a stranger, behind one function: any exception but ours escapes and is a finding."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from accord.errors import AccordError
from accord.model import CardRequest
from accord.protocol import jsonrpc
from accord.protocol.cards import decode_card
from accord.protocol.dialects import DIALECTS, REST_DIALECTS, decode_webhook
from accord.protocol.dialects.base import Dialect
from accord.protocol.dialects.fields import params_from_body, params_from_query
from accord.protocol.jsonrpc import RpcCall
from accord.protocol.negotiation import Inquiry, negotiate
from accord.protocol.operations import Operation, match_rest
from accord.protocol.sse import Decoder, Frame, FrameTooLarge

CODECS = [*DIALECTS.values(), *REST_DIALECTS.values()]
EVENT_NAMES = (None, "task_status", "task_message", "task_artifact", "error")
ANSWERED = [operation for operation in Operation if operation not in (Operation.STREAM, Operation.SUBSCRIBE)]


def _readers() -> list[Callable[[bytes], object]]:
    readers: list[Callable[[bytes], object]] = [jsonrpc.read_answer, decode_card, decode_webhook, _call, _frames]
    readers += [partial(_rest, codec, operation) for codec in REST_DIALECTS.values() for operation in Operation]
    for codec in CODECS:
        readers += [codec.decode_push, codec.decode_card]
        readers += [partial(codec.decode_request, operation) for operation in Operation]
        readers += [partial(_result, codec, operation) for operation in ANSWERED]
        readers += [partial(_event, codec, name) for name in EVENT_NAMES]
    return readers


def _result(codec: Dialect, operation: Operation, data: bytes) -> None:
    codec.decode_result(operation, data, CardRequest())


def _event(codec: Dialect, name: str | None, data: bytes) -> None:
    codec.decode_event(Frame(data=data, event=name))


def _call(data: bytes) -> None:
    entry = jsonrpc.decode(data)
    if isinstance(entry, RpcCall):
        negotiate(Inquiry(method=entry.method, params=entry.params, version=entry.method[:4], dialect=entry.method[:3]))
    match_rest("GET", "/" + data.decode("latin-1"))


def _rest(codec: Dialect, operation: Operation, data: bytes) -> None:
    named = data[:8].decode("latin-1")
    for values in ({}, {"id": named}, {"taskId": named, "id": named, "tenant": named}):
        with suppress(AccordError):
            codec.decode_request(operation, params_from_body(data, values))
        pairs = [piece.partition("=")[::2] for piece in data.decode("latin-1").split("&")]
        with suppress(AccordError):
            codec.decode_request(operation, params_from_query(pairs, values))


def _frames(data: bytes) -> None:
    with suppress(FrameTooLarge):
        Decoder(max_bytes=1024).feed(data)


READERS = _readers()


def read(reader: int, data: bytes) -> None:
    """Read bytes in one of the many ways; what is refused properly is no finding."""
    try:
        READERS[reader % len(READERS)](data)
    except AccordError as error:
        for codec in CODECS:
            codec.encode_error(error)
        for codec in REST_DIALECTS.values():
            codec.encode_http_error(error)


def read_everywhere(data: bytes) -> None:
    """Read bytes in every way."""
    for reader in range(len(READERS)):
        read(reader, data)
