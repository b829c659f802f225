"""Event streams: what is written can be read, however it was cut, and no bytes can break the reader."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accord.protocol.sse import (
    KEEP_ALIVE,
    MAX_EVENT_BYTES,
    MAX_RETRY,
    Decoder,
    Frame,
    FrameTooLarge,
    comment,
    encode,
)
from tests.cases import each

pytestmark = pytest.mark.proves("2-22")


def decode(stream: bytes, *cuts: int) -> list[Frame]:
    """The frames of a stream that arrives in pieces cut at these offsets."""
    decoder = Decoder()
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    return [frame for start, end in pairwise(edges) for frame in decoder.feed(stream[start:end])]


def texts(stream: bytes) -> list[bytes]:
    """Only the data of a stream's frames."""
    return [frame.data for frame in decode(stream)]


# What servers may send, weighted towards the bytes that mean something.
FIELDS = [b"data", b"id", b"event", b"retry"]
MARKS = [b":", b": ", b" ", b"\r", b"\n", b"\r\n", b"\0", b"7", b"\xef\xbb\xbf"]
streams = st.lists(st.sampled_from(FIELDS + MARKS) | st.binary(max_size=4), max_size=60).map(b"".join)
one_line = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n\0"))
frames = st.builds(
    Frame,
    data=st.text().map(lambda text: text.encode(errors="replace")) | st.binary(),
    event=st.none() | one_line.filter(bool),
    id=st.none() | one_line,
    retry=st.none() | st.integers(0, MAX_RETRY),
)


def by_the_book(stream: bytes) -> list[Frame]:
    """The rules of the standard read literally, over the whole decoded text at once."""
    text = stream.decode(errors="replace").removeprefix("\ufeff")
    *lines, _unfinished = re.split("\r\n|\r|\n", text)
    received: list[Frame] = []
    data, event, last_id, retry = "", "", None, None
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "" if line == "":
                if data:
                    own = data.removesuffix("\n").encode()
                    received.append(Frame(data=own, event=event or None, id=last_id, retry=retry))
                data, event, retry = "", "", None
            case "data":
                data += value + "\n"
            case "event":
                event = value
            case "id" if "\0" not in value:
                last_id = value
            case "retry" if re.fullmatch("[0-9]{1,15}", value):
                retry = int(value)
    return received


# Writing


def test_fields_have_a_fixed_order() -> None:
    frame = Frame(data=b'{"a":1}', event="task_status", id="41", retry=1500)
    assert encode(frame) == b'id: 41\nevent: task_status\nretry: 1500\ndata: {"a":1}\n\n'


@pytest.mark.parametrize(
    ("frame", "wire"),
    [
        (Frame(data=b"{}"), b"data: {}\n\n"),
        (Frame(data=b"{}", id="7"), b"id: 7\ndata: {}\n\n"),
        (Frame(data=b"{}", event="error"), b"event: error\ndata: {}\n\n"),
        (Frame(), b"data: \n\n"),
        (Frame(id=""), b"id: \ndata: \n\n"),
        (Frame(retry=0), b"retry: 0\ndata: \n\n"),
        (Frame(data="ü€😀".encode(), id="ü"), "id: ü\ndata: ü€😀\n\n".encode()),
    ],
)
def test_absent_fields_are_not_written(frame: Frame, wire: bytes) -> None:
    assert encode(frame) == wire


def test_data_is_split_at_every_kind_of_line_end() -> None:
    assert encode(Frame(data=b"a\nb\rc\r\nd\n\r\n", id="1")) == (
        b"id: 1\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \ndata: \n\n"
    )


@each("bad", ["a\nb", "a\rb", "a\0b", "\n", "1\ndata: forged"])
@each("field", ["id", "event"])
def test_a_value_that_could_forge_fields_is_refused(field: str, bad: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} must not contain"):
        encode(Frame(data=b"{}", **{field: bad}))  # type: ignore[arg-type]  # the field's name is the parameter


@pytest.mark.parametrize("retry", [-1, MAX_RETRY + 1])
def test_a_retry_that_no_reader_takes_is_refused(retry: int) -> None:
    with pytest.raises(ValueError, match=f"not {retry}$"):
        encode(Frame(retry=retry))


@given(one_line)
@example("\u2028\x85\x0b tab\t")
def test_any_other_character_is_welcome_in_an_id(value: str) -> None:
    assert decode(encode(Frame(id=value))) == [Frame(id=value)]


@pytest.mark.proves("2-27")
def test_comments_are_invisible_to_readers() -> None:
    assert comment("still here") == b": still here\n\n"
    one, two = encode(Frame(data=b"1")), encode(Frame(data=b"2"))
    assert texts(KEEP_ALIVE + one + comment("") + b":\n" + comment(":") + two) == [b"1", b"2"]


@pytest.mark.proves("2-27")
@pytest.mark.parametrize("text", ["a\nb", "a\r", "\ndata: forged"])
def test_a_comment_of_several_lines_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="comment must not contain"):
        comment(text)


# Round trips


@given(frames)
def test_events_round_trip(frame: Frame) -> None:
    logical = re.sub(rb"\r\n|\r", b"\n", frame.data).decode(errors="replace").encode()
    (read,) = decode(encode(frame))
    assert read == Frame(data=logical, event=frame.event, id=frame.id, retry=frame.retry)


@given(st.lists(frames, max_size=5), st.lists(st.integers(0, 200)))
def test_frames_survive_any_cuts(sent: list[Frame], cuts: list[int]) -> None:
    stream = KEEP_ALIVE.join(encode(frame) for frame in sent)
    received = decode(stream, *cuts)
    assert [(one.event, one.retry) for one in received] == [(one.event, one.retry) for one in sent]
    in_force = None
    for before, after in zip(sent, received, strict=True):
        in_force = in_force if before.id is None else before.id
        assert after.id == in_force


@pytest.mark.proves("2-27")
@given(streams)
@example(b"data: a\r\n\r\ndata: b\r\r\ndata: c\n\r\n: x\r\n\r\n")
@example(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata:\xef\xbb\xbf\n\n")
@example("data: €\n\n".encode())
def test_cutting_at_any_byte_changes_nothing(stream: bytes) -> None:
    whole = decode(stream)
    assert whole == by_the_book(stream)
    assert decode(stream, *range(1, len(stream))) == whole
    for cut in range(1, len(stream)):
        assert decode(stream, cut) == whole, cut


# Reading: the rules, one by one


def test_lines_of_data_are_joined_with_lf() -> None:
    assert texts(b"data: GOOG\ndata: +3\ndata: 1250\n\n") == [b"GOOG\n+3\n1250"]


@pytest.mark.proves("2-27")
def test_the_tour_of_a_stream() -> None:
    """A comment, an event with id, one that clears the id, and one cut off by the end."""
    decoder = Decoder()
    assert decoder.feed(b": hello\n\ndata: one\nid: 1\n\n") == [Frame(data=b"one", id="1")]
    assert decoder.feed(b"data:two\nid\n\n") == [Frame(data=b"two", id="")]
    assert decoder.feed(b"data:  three") == []
    assert decoder.last_event_id == ""


def test_an_empty_line_of_data_is_still_data() -> None:
    assert texts(b"data\n\ndata\ndata\n\ndata:") == [b"", b"\n"]


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert texts(b"data:x\n\ndata: x\n\ndata:  x \n\ndata:\tx\n\n") == [b"x", b"x", b" x ", b"\tx"]


def test_a_value_may_hold_colons() -> None:
    assert decode(b'event: a:b\ndata: {"a":"b: c"}\n\n') == [Frame(event="a:b", data=b'{"a":"b: c"}')]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_all_line_ends_are_supported(end: bytes) -> None:
    stream = end.join([b"id: 1", b"data: a", b"data: b", b"", b"data: c", b"", b""])
    assert decode(stream) == [Frame(data=b"a\nb", id="1"), Frame(data=b"c", id="1")]


def test_a_cr_ends_its_line_without_waiting_for_an_lf() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\r") == [Frame(data=b"a")]
    assert decoder.feed(b"\ndata: b\n") == []
    assert decoder.feed(b"\n") == [Frame(data=b"b")]


def test_an_lf_is_swallowed_only_right_after_the_cr() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"data: b\n") == []
    assert decoder.feed(b"\n") == [Frame(data=b"a\nb")]


def test_a_byte_order_mark_is_dropped_once_and_only_at_the_start() -> None:
    bom = b"\xef\xbb\xbf"
    assert texts(bom + b"data: a\n\n" + bom + b"data: b\n\n") == [b"a"]
    assert texts(bom + bom + b"data: a\n\n") == []
    assert texts(b"data:" + bom + b"\n\n") == [bom]


def test_an_event_without_data_is_not_an_event_but_its_id_counts() -> None:
    decoder = Decoder()
    assert decoder.feed(b"event: task_status\nid: 5\nretry: 10\n\n") == []
    assert (decoder.last_event_id, decoder.retry) == ("5", 10)
    assert decoder.feed(b"data: x\n\n") == [Frame(data=b"x", id="5")]


def test_an_id_takes_force_when_its_event_ends() -> None:
    decoder = Decoder()
    decoder.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")
    assert decoder.last_event_id == "1"
    assert decoder.feed(b"\n") == [Frame(data=b"b", id="2")]
    assert decoder.last_event_id == "2"


def test_the_last_id_holds_for_later_events() -> None:
    stream = b"data: a\n\nid: 9\ndata: b\n\ndata: c\n\nid:\ndata: d\n\n"
    assert [frame.id for frame in decode(stream)] == [None, "9", "9", ""]


def test_an_id_with_nul_is_ignored() -> None:
    assert [frame.id for frame in decode(b"id: 1\ndata: a\n\nid: 2\x003\ndata: b\n\n")] == ["1", "1"]


def test_the_event_type_lasts_for_one_event_and_the_last_one_wins() -> None:
    stream = b"event: a\nevent: b\ndata: 1\n\ndata: 2\n\nevent:\ndata: 3\n\n"
    assert [frame.event for frame in decode(stream)] == ["b", None, None]


@each(
    ("value", "retry"),
    [
        (b"250", 250),
        (b"0", 0),
        (b"007", 7),
        (b"", None),
        (b"-1", None),
        (b"+1", None),
        (b"1.5", None),
        (b"1e3", None),
        (b" 1", None),
        (b"1_0", None),
        ("٣".encode(), None),
        (b"9" * 15, MAX_RETRY),
        (b"9" * 16, None),
        (b"9" * 10_000, None),
    ],
)
def test_a_retry_is_ascii_digits_only(value: bytes, retry: int | None) -> None:
    decoder = Decoder()
    assert decoder.feed(b"retry: " + value + b"\ndata: x\n\n") == [Frame(data=b"x", retry=retry)]
    assert decoder.retry == retry


def test_unknown_fields_and_other_cases_are_ignored() -> None:
    assert texts(b"foo: bar\nDATA: no\ndata : no\n data: no\ndata: yes\nnonsense\n\n") == [b"yes"]


@pytest.mark.parametrize("broken", [b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98"])
def test_broken_utf_8_is_replaced(broken: bytes) -> None:
    (frame,) = decode(b"id: " + broken + b"\nevent: " + broken + b"\ndata: a" + broken + b"\ndata: b\n\n")
    assert frame.data.decode().startswith("a\ufffd")
    assert frame.data.endswith(b"\nb")
    assert frame.id is not None
    assert frame.event is not None
    assert set(frame.id) == set(frame.event) == {"\ufffd"}


# Limits and abuse


def outcome(stream: bytes, size: int, limit: int) -> tuple[list[Frame], bool]:
    """All frames of a stream fed in pieces of this size, and whether it broke the limit."""
    decoder = Decoder(max_bytes=limit)
    received: list[Frame] = []
    try:
        for start in range(0, len(stream), size):
            received += decoder.feed(stream[start : start + size])
    except FrameTooLarge as error:
        return received + error.frames, True
    return received, False


def test_one_event_may_be_exactly_as_large_as_the_limit() -> None:
    assert outcome(b"data: 4567890\n\n", 100, limit=13) == ([Frame(data=b"4567890")], False)
    assert outcome(b"data: 4567890\n\n", 100, limit=12) == ([], True)


@each("stream", [b"data: " + b"x" * 200, b"data: x\n" * 200, b"data\n" * 200, b":" + b"x" * 200, b"id: " + b"1" * 200])
@each("size", [1, 7, 10_000])
def test_neither_a_long_line_nor_many_lines_outgrow_the_limit(stream: bytes, size: int) -> None:
    assert outcome(stream, size, limit=100) == ([], True)


def test_the_limit_is_for_one_event_and_not_for_the_stream() -> None:
    received, broken = outcome((encode(Frame(data=b"x" * 80)) + KEEP_ALIVE) * 1000, 4096, limit=100)
    assert (len(received), broken) == (1000, False)


def test_the_refusal_names_the_limit_and_stays() -> None:
    decoder = Decoder(max_bytes=10)
    with pytest.raises(FrameTooLarge, match="10 bytes") as caught:
        decoder.feed(b"data: a\n\ndata: 12345678\n\n")
    assert caught.value.limit == 10
    assert caught.value.frames == [Frame(data=b"a")]
    with pytest.raises(FrameTooLarge):
        decoder.feed(b"data: b\n\n")


def test_the_default_limit_takes_a_large_task() -> None:
    frame = Frame(data=b"x" * (MAX_EVENT_BYTES - len(b"data: ")))
    assert decode(encode(frame)) == [frame]


def test_a_long_line_may_come_byte_by_byte() -> None:
    """A decoder that copied the line for every byte would move 45 GB here and hang the suite."""
    decoder = Decoder()
    for _ in range(300_000):
        decoder.feed(b"x")
    assert decoder.feed(b"\ndata: end\n\n") == [Frame(data=b"end")]


@given(streams | st.binary(), st.integers(1, 20))
def test_the_limit_falls_on_the_same_event_however_the_stream_is_cut(stream: bytes, limit: int) -> None:
    expected = outcome(stream, max(1, len(stream)), limit)
    assert outcome(stream, 1, limit) == expected
    assert outcome(stream, 3, limit) == expected


@given(st.lists(st.binary()), st.integers(0, 64))
def test_no_bytes_break_the_decoder(chunks: list[bytes], limit: int) -> None:
    decoder = Decoder(max_bytes=limit)
    for chunk in chunks:
        try:
            received = decoder.feed(chunk)
        except FrameTooLarge as error:
            received = error.frames
        for frame in received:
            frame.data.decode()
            assert b"\r" not in frame.data
