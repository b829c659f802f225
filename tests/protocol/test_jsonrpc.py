"""JSON-RPC framing: what is a call, what is refused with which code, and ids that come back as they went."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.errors import InvalidRequest, ParseError
from accord.protocol import jsonrpc
from accord.protocol.jsonrpc import Batch, ErrorObject, Rejected, RpcCall
from tests.cases import each
from tests.strategies import json_values

CALL = b'{"jsonrpc":"2.0","method":"x","params":{"a":1},"id":%b}'


@pytest.mark.proves("2-03", "2-04", "3-41", "4-42", "JSONRPC-FMT-001")
@each("identifier", [b'"a"', b'""', b"1", b"-7", b"1.5", b"1e400", b"null", b'"\\u00e9"'])
def test_ids_are_echoed_exactly(identifier: bytes) -> None:
    call = jsonrpc.decode(CALL % identifier)
    assert call == RpcCall("x", b'{"a":1}', identifier)
    assert jsonrpc.success(identifier, b"1") == b'{"jsonrpc":"2.0","id":%b,"result":1}' % identifier


@pytest.mark.proves("2-04", "C-03")
def test_a_call_without_an_id_is_a_notification() -> None:
    call = jsonrpc.decode(b'{"jsonrpc":"2.0","method":"x"}')
    assert isinstance(call, RpcCall)
    assert call.is_notification
    assert call.params == b"{}"
    null = jsonrpc.decode(CALL % b"null")
    assert isinstance(null, RpcCall)
    assert not null.is_notification


@pytest.mark.proves("2-30", "3-41", "JSONRPC-ERR-003")
@each(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","method":"x",}',
        b"[1,",
        b'{"a":"\x01"}',
        b"\xef\xbb\xbf{}",
        b'"abc" garbage',
        b"123abc",
        b"true,",
        b'{"jsonrpc":"2.0","method":"x","id":"\xff"}',
        b'{"jsonrpc":"2.0","method":"x","id":"\\ud800"}',
        b'{"jsonrpc":"2.0","method":"x","id":1,"future":"\xff"}',
        b'{"jsonrpc":"2.0","method":"x","id":1,"\xff":1}',
        b'{"jsonrpc":"2.0","method":"x","id":1,"params":{"future":{"a":["\xc3\x28"]}}}',
        b'[{"jsonrpc":"2.0","method":"x","id":1},{"jsonrpc":"2.0","method":"x","id":2,"future":"\xff"}]',
    ],
)
def test_invalid_json_is_a_parse_error(body: bytes) -> None:
    found = jsonrpc.decode(body)
    assert isinstance(found, Rejected)
    assert isinstance(found.error, ParseError)
    assert found.id == b"null"


@pytest.mark.proves("2-03", "2-30")
@each(
    ("body", "named"),
    [
        (b"5", "object"),
        (b'"text"', "object"),
        (b'{"method":"x","id":1}', "jsonrpc"),
        (b'{"jsonrpc":"1.0","method":"x","id":1}', "jsonrpc"),
        (b'{"jsonrpc":2.0,"method":"x","id":1}', "jsonrpc"),
        (b'{"jsonrpc":"2.0","id":1}', "method"),
        (b'{"jsonrpc":"2.0","method":"","id":1}', "method"),
        (b'{"jsonrpc":"2.0","method":5,"id":1}', "method"),
        (b'{"jsonrpc":"2.0","method":"x","id":1,"params":"text"}', "params"),
        (b'{"jsonrpc":"2.0","method":"x","id":true}', "id"),
        (b'{"jsonrpc":"2.0","method":"x","id":{}}', "id"),
    ],
)
def test_non_requests_are_refused_by_name(body: bytes, named: str) -> None:
    found = jsonrpc.decode(body)
    assert isinstance(found, Rejected)
    assert isinstance(found.error, InvalidRequest)
    assert named in found.error.message
    assert found.id in (b"1", b"null")


def test_deep_nesting_is_refused() -> None:
    found = jsonrpc.decode(b'{"jsonrpc":"2.0","method":"x","id":1,"params":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert isinstance(found, Rejected)
    assert "nested too deeply" in found.error.message


@pytest.mark.proves("C-03", "4-42")
def test_a_batch_keeps_its_entries_apart() -> None:
    found = jsonrpc.decode(b" [" + CALL % b"1" + b", 5, " + CALL % b'"two"' + b"]")
    assert isinstance(found, Batch)
    first, second, third = found.entries
    assert isinstance(first, RpcCall)
    assert isinstance(second, Rejected)
    assert isinstance(second.error, InvalidRequest)
    assert isinstance(third, RpcCall)
    assert jsonrpc.batch([b"1", b"2"]) == b"[1,2]"


@pytest.mark.proves("C-03")
@pytest.mark.parametrize("body", [b"[]", b"[" + b",".join([b"1"] * (jsonrpc.MAX_BATCH + 1)) + b"]"])
def test_an_empty_or_endless_batch_is_refused_as_a_whole(body: bytes) -> None:
    found = jsonrpc.decode(body)
    assert isinstance(found, Rejected)
    assert isinstance(found.error, InvalidRequest)


@pytest.mark.proves("2-05", "2-32")
def test_an_answer_has_a_result_or_an_error() -> None:
    assert jsonrpc.read_answer(jsonrpc.success(b"1", b'{"a":1}')) == b'{"a":1}'
    error = ErrorObject(-32001, "gone", {"why": "x"})
    written = jsonrpc.failure(b"1", error)
    assert jsonrpc.read_answer(written) == error
    assert json.loads(written) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32001, "message": "gone", "data": {"why": "x"}},
    }
    assert "data" not in json.loads(jsonrpc.failure(b"", ErrorObject(-32600, "no")))["error"]
    assert jsonrpc.read_answer(b'{"jsonrpc":"2.0","id":1,"result":null}') == b"null"


@given(st.text(), st.text(min_size=1), json_values)
def test_requests_round_trip(identifier: str, method: str, value: object) -> None:
    params = json.dumps({"v": value}).encode()
    try:
        body = jsonrpc.request(identifier, method, params)
    except UnicodeEncodeError:
        return  # lone surrogates cannot be sent in UTF-8
    call = jsonrpc.decode(body)
    assert isinstance(call, RpcCall)
    assert call.method == method
    assert json.loads(call.id) == identifier
    assert json.loads(call.params) == {"v": value}


@given(st.binary())
def test_no_bytes_raise(body: bytes) -> None:
    jsonrpc.decode(body)
