"""Bad input: whatever is wrong with the bytes, the refusal names it and nothing else is raised."""

import pytest
from msgspec.json import Decoder

from accord.errors import InvalidParams, ParseError
from accord.model import SendRequest, Task, TaskFilter
from accord.protocol import codec

SEND = Decoder(SendRequest)


def with_parts(parts: str) -> str:
    return '{"message":{"messageId":"m","role":"ROLE_USER"' + parts + "}}"


@pytest.mark.proves("3-07", "DM-SERIAL-002")
@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"message":}', b"\xff", b'{"message":{"messageId":"\xff"}}', b'{"message":{"messageId":"\\ud800"}}'],
)
def test_what_is_not_json_is_a_parse_error(body: bytes) -> None:
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


@pytest.mark.parametrize(
    ("body", "too_deep"),
    [
        (b"[" * 100 + b"]" * 100, False),
        (b"[" * 101 + b"]" * 101, True),
        (b'{"a":' * 101 + b"1" + b"}" * 101, True),
        (b"[" + b"[]," * 500 + b"[]]", False),
        (b'["' + b"[" * 500 + b'"]', False),
        (b'["\\"' + b"[" * 500 + b'"]', False),
        (b"[" * 101 + b'"]"' + b"]" * 101, True),
    ],
)
def test_depth_is_counted_outside_of_strings(body: bytes, too_deep: bool) -> None:
    assert codec.is_too_deep(body) is too_deep


def test_a_wrong_timestamp_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidParams) as caught:
        codec.decode(b'{"statusTimestampAfter":"soon"}', Decoder(TaskFilter))
    assert caught.value.violations[0].field == "statusTimestampAfter"
    with pytest.raises(InvalidParams) as caught:
        codec.decode(b'{"id":"t","status":{"state":"TASK_STATE_WORKING","timestamp":"soon"}}', Decoder(Task))
    assert caught.value.violations[0].field == "status.timestamp"
