"""Bad input: whatever is wrong with the bytes, the refusal names it and nothing else is raised."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import Decoder

from accord.errors import InvalidParams, ParseError
from accord.model import SendRequest, Task, TaskFilter
from accord.protocol import codec
from accord.protocol.dialects import REST_DIALECTS
from accord.protocol.dialects.base import Dialect
from accord.protocol.operations import Operation
from tests.cases import each

SEND = Decoder(SendRequest)


def with_parts(parts: str) -> str:
    return '{"message":{"messageId":"m","role":"ROLE_USER"' + parts + "}}"


@pytest.mark.proves("3-07", "DM-SERIAL-002")
@each(
    ("body", "field", "reason"),
    [
        ("{}", "message", "missing"),
        ("[]", "", "Expected `object`"),
        ('{"message":5}', "message", "Expected `object`"),
        ('{"message":{}}', "message.messageId", "missing"),
        (
            '{"message":{"messageId":5,"role":"ROLE_USER","parts":[{"text":"x"}]}}',
            "message.messageId",
            "Expected `str`",
        ),
        ('{"message":{"messageId":"","role":"ROLE_USER","parts":[{"text":"x"}]}}', "message.messageId", "length >= 1"),
        ('{"message":{"messageId":"m","role":"boss","parts":[{"text":"x"}]}}', "message.role", "boss"),
        (with_parts(""), "message.parts", "missing"),
        (with_parts(',"parts":[]'), "message.parts", "length >= 1"),
        (with_parts(',"parts":[{"text":"x"},{}]'), "message.parts[1]", "exactly one"),
        (with_parts(',"parts":[{"raw":"?"}]'), "message.parts[0].raw", "base64"),
        (with_parts(',"parts":[{"data":1e999}]'), "message.parts[0].data", "out of range"),
    ],
)
def test_a_wrong_shape_is_refused_with_the_field_s_path(body: str, field: str, reason: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        codec.decode(body.encode(), SEND)
    (violation,) = caught.value.violations
    assert violation.field == field
    assert reason in violation.description
    assert reason in caught.value.message


DIGITS = "9" * 5000  # more than Python turns into an integer


@pytest.mark.proves("3-07")
@each("number", ["1e999", "-1e999", DIGITS])
@each(
    ("body", "field"),
    [
        ('{"configuration":{"historyLength":%s}}', "configuration.historyLength"),
        (with_parts(',"parts":[{"text":"x"},{"data":%s}]'), "message.parts[1].data"),
        (with_parts(',"parts":[{"data":{"a":[1,{"b":%s}]}}]'), "message.parts[0].data.a[1].b"),
        ('{"metadata":{"one":[0],"two":{"one":{}},"other words":{"one":%s}}}', "metadata.other words.one"),
        ('{"future":{"one":1e999},"metadata":{"one":%s}}', "metadata.one"),
        ('{"metadata":{"one":%s,"one":1}}', "metadata.one"),
        ('{"metadata":{"' + "k" * 50 + '":%s}}', "metadata." + "k" * 40),
    ],
)
def test_a_number_out_of_range_is_refused_with_its_whole_path(body: str, field: str, number: str) -> None:
    data = (body % number).encode()
    for read in (lambda: codec.decode(data, SEND), lambda: codec.decode(msgspec.Raw(data), SEND)):
        with pytest.raises(InvalidParams, match="out of range") as caught:
            read()
        assert caught.value.violations[0].field == field
        assert f"`{field}`" in caught.value.message


def test_a_number_of_one_s_own_is_as_large_as_one_likes() -> None:
    assert codec.decode(b'{"a":%d}' % 10**400, Decoder(dict)) == {"a": 10**400}


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"a":1e999},',
        b'{"metadata":{"a":1e999},"b":"' + b"x" * codec.MAX_REREAD + b'"}',
        b'{"metadata":' + b'{"a":' * 400 + b"1e999" + b"}" * 400 + b"}",
    ],
    ids=["not JSON", "too large", "too deep"],
)
def test_invalid_input_is_refused_on_every_read(body: bytes) -> None:
    with pytest.raises(InvalidParams) as caught:
        codec.decode(body, SEND)
    assert caught.value.violations[0].field.startswith("metadata")


@pytest.mark.parametrize("body", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b'{"a":1,"\xc3\x28":2}'])
def test_bytes_that_are_not_utf8_are_refused(body: bytes) -> None:
    with pytest.raises(ParseError, match="not UTF-8"):
        codec.check_utf8(body)


@pytest.mark.proves("3-41")
@each("dialect", REST_DIALECTS.values())
@each("operation", Operation)
def test_a_rest_body_that_is_not_utf8_is_refused_wherever_that_sits(dialect: Dialect, operation: Operation) -> None:
    with pytest.raises(ParseError):
        dialect.decode_request(operation, b'{"future":{"a":["\xff"]}}')


def test_utf8_is_welcome() -> None:
    for text in ("", '{"a":1}', '{"a":"é漢😀"}'):
        codec.check_utf8(text.encode())


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"message":}', b"\xff", b'{"message":{"messageId":"\xff"}}', b'{"message":{"messageId":"\\ud800"}}'],
)
def test_invalid_json_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError):
        codec.decode(body, SEND)


def test_huge_numbers_are_refused_or_kept_never_cut() -> None:
    decoder = Decoder(TaskFilter)
    with pytest.raises(InvalidParams, match="historyLength"):
        codec.decode(b'{"historyLength":99999999999}', decoder)
    with pytest.raises(InvalidParams, match="pageSize"):
        codec.decode(b'{"pageSize":101}', decoder)
    with pytest.raises(InvalidParams, match="pageSize"):
        codec.decode(b'{"pageSize":1.5}', decoder)


def test_deep_nesting_is_refused() -> None:
    deep = b'{"message":{"metadata":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}}"
    with pytest.raises(InvalidParams, match="nested too deeply"):
        codec.decode(deep, SEND)


def test_query_values_are_read_from_text() -> None:
    query = {"pageSize": "10", "includeArtifacts": "true", "historyLength": "0"}
    found = codec.convert(query, TaskFilter, strict=False)
    assert (found.page_size, found.include_artifacts, found.history_length) == (10, True, 0)
    with pytest.raises(InvalidParams, match="pageSize"):
        codec.convert({"pageSize": "ten"}, TaskFilter, strict=False)


def test_messages_show_neither_values_nor_internals() -> None:
    with pytest.raises(InvalidParams) as caught:
        codec.decode(b'{"message":{"messageId":{"secret":"s3cr3t"},"role":"ROLE_USER","parts":[]}}', SEND)
    assert "s3cr3t" not in caught.value.message
    assert "msgspec" not in caught.value.message


def test_encoding_is_compact() -> None:
    assert codec.encode({"a": [1, None]}) == b'{"a":[1,null]}'


@each(
    ("body", "too_deep"),
    [
        (b"[" * 100 + b"]" * 100, False),
        (b"[" * 101 + b"]" * 101, True),
        (b'{"a":' * 101 + b"1" + b"}" * 101, True),
        (b'[{"a":' * 50 + b"1" + b"}]" * 50, False),
        (b'[{"a":' * 50 + b"[1]" + b"}]" * 50, True),
        (b"[" + b"[]," * 500 + b"[]]", False),
        (b'["' + b"[" * 500 + b'"]', False),
        (b'["\\"' + b"[" * 500 + b'"]', False),
        (b"[" * 101 + b'"]"' + b"]" * 101, True),
    ],
)
def test_depth_is_counted_outside_of_strings(body: bytes, too_deep: bool) -> None:
    assert codec.is_too_deep(body) is too_deep


@each(
    ("body", "too_many"),
    [
        (b"[" + b"0," * 9 + b"0]", False),  # a bracket and nine commas
        (b"[" + b"0," * 10 + b"0]", True),
        (b'["' + b"a, [b] {c}, " * 50 + b'"]', False),
        (b'["' + b'\\\\\\",' * 50 + b'"]', False),
        (b'["\\\\",' + b"0," * 20 + b'"\\\\"]', True),
        (b'["a,","b,",' + b'"c,","' + b"," * 50 + b'"]', False),
        (b'{"a[":"[b",' + b'"c":"",' * 20 + b'"d":1}', True),
        (b"[" + b"{}," * 6 + b"{}]", True),
        (b'["",' + b'"",' * 30 + b'""]', True),
    ],
)
def test_values_are_counted_outside_of_strings(body: bytes, too_many: bool) -> None:
    assert json.loads(body)
    assert codec.has_too_many(body, 10) is too_many


@given(
    st.recursive(
        st.none() | st.text(alphabet='",[]{}\\\\ab'), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_the_count_equals_the_json_values(value: object) -> None:
    def members(found: object) -> int:
        items = list(found.values() if isinstance(found, dict) else found) if isinstance(found, dict | list) else []
        own = max(1, len(items)) if isinstance(found, dict | list) else 0
        return own + sum(map(members, items))

    body = json.dumps(value).encode() + b" " * 1000
    count = members(value)
    assert not codec.has_too_many(body, max(1, count))
    assert count == 0 or codec.has_too_many(body, count - 1)


def test_a_wrong_timestamp_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidParams) as caught:
        codec.decode(b'{"statusTimestampAfter":"soon"}', Decoder(TaskFilter))
    assert caught.value.violations[0].field == "statusTimestampAfter"
    with pytest.raises(InvalidParams) as caught:
        codec.decode(b'{"id":"t","status":{"state":"TASK_STATE_WORKING","timestamp":"soon"}}', Decoder(Task))
    assert caught.value.violations[0].field == "status.timestamp"
