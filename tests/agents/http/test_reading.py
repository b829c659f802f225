"""What flows say, wherever their answers are cut and whatever is in them."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accord.agents.http.responses import FlowResponse, failure_reason, parse_event, parse_response, response_reader

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["output", "text", "json", "status", "files", "usage", "data", "x"]), inner)
    ),
    max_leaves=12,
)

ANSWERS = [
    ("text/plain; charset=utf-8", "Grüße, 你好, 🎉!".encode()),
    ("text/event-stream", 'data: Grüße\r\n\r\n: x\n\nevent: x\ndata: {"text": " 你"}\n\ndata: 好\n\n'.encode()),
    ("application/x-ndjson", '{"text": "Grüße"}\r\n\n{"content": " 你好"}'.encode()),
    ("application/json", '{"type": "begin"}\n{"type": "item", "content": "Grüße 🎉"}\n{"type": "end"}\n'.encode()),
    ("application/json", '{\n "output": "Grüße\\n🎉"\n}\n'.encode()),
    ("application/json", b'[{"json": {"output": "one"}}]'),
    ("", "Grüße".encode()),
    ("application/pdf", b"%PDF\x00\xff\n\n"),
]


def read(media_type: str, pieces: list[bytes]) -> list[FlowResponse]:
    reads = response_reader(media_type)
    return [said for piece in pieces for said in reads.feed(piece)] + list(reads.end())


def told(said: list[FlowResponse]) -> tuple[str, list[Any]]:
    """What was said, however it was divided."""
    parts = [part for one in said for part in one.parts]
    return "".join(part.text or "" for part in parts), [part for part in parts if part.text is None]


@pytest.mark.parametrize(("media_type", "answer"), ANSWERS)
@given(data=st.data())
def test_answers_parse_equally_however_they_are_split(media_type: str, answer: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=6).map(sorted))
    pieces = [answer[start:end] for start, end in pairwise([0, *cuts, len(answer)])]
    whole = told(read(media_type, [answer]))
    assert told(read(media_type, pieces)) == whole
    assert whole != ("", [])


@example({"files": [{"data": "\x80"}]})
@given(JSON)
def test_any_json_answer_is_accepted(value: Any) -> None:
    for said in (parse_response(value), parse_event(value)):
        assert sum(one is not None for one in (said.question, said.failure, said.progress)) <= 1
    told = failure_reason(value)
    assert told is None or ("\n" not in told and 0 < len(told) <= 300)


@given(st.binary(max_size=40), st.sampled_from(["", "text/plain", "image/png", "text/event-stream"]))
def test_any_bytes_are_read_without_a_crash(answer: bytes, media_type: str) -> None:
    read(media_type, [answer])
