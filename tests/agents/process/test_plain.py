"""What a terminal would show, as text, however the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.agents.process.output import MAX_SEQUENCE, TerminalText, terminal_text, text_tail
from tests.cases import each

SHOWN = [
    ("colours", "\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mtoo\x1b[m", "red too"),
    ("titles and links", "\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
    ("device strings", "\x1bPq#0;1\x1b\\a\x1b_x\x1b\\b", "ab"),
    ("charsets and keypads", "\x1b(B\x1b=\x1b7a\x1b8", "a"),
    ("modes", "\x1b[?25l\x1b[?2004ha\x1b[?25h", "a"),
    ("one-byte introducers", "\x9b31ma", "a"),
    ("progress", "10%\r20%\r100%\ndone", "100%\ndone"),
    ("a shorter line over a longer one", "loading\rok\x1b[K\n", "ok\n"),
    ("an erased line", "loading\x1b[2K\rok\n", "ok\n"),
    ("a column", "loading\x1b[1Gok\x1b[0K\n", "ok\n"),
    ("backspaces", "passx\bword\n", "password\n"),
    ("line ends of a terminal", "a\r\nb\r\n", "a\nb\n"),
    ("controls", "a\x00\x07\x0e\x7f\x85b", "ab"),
    ("blanks that are no controls", "a\tb\u00a0\u3000👩\u200d💻", "a\tb\u00a0\u3000👩\u200d💻"),
    ("half a sequence at the end", "a\x1b[3", "a"),
    ("bytes that are no text", "a\ufffdb", "a\ufffdb"),
]


@each(("given", "shown"), [row[1:] for row in SHOWN])
def test_it_shows(given: str, shown: str) -> None:
    assert terminal_text(given) == shown


@each(("given", "shown"), [row[1:] for row in SHOWN])
def test_it_shows_the_same_last_line_byte_by_byte(given: str, shown: str) -> None:
    stream = TerminalText()
    said = "".join(stream.feed(bytes([byte])) for byte in given.encode()) + stream.settle()
    assert said.splitlines()[-1:] == shown.splitlines()[-1:]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])), st.data())
def test_text_without_controls_is_left_alone(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    at = data.draw(st.integers(0, len(raw)))
    stream = TerminalText()
    assert stream.feed(raw[:at]) + stream.feed(raw[at:]) + stream.settle() == text


@given(st.binary(max_size=2000))
def test_any_input_is_accepted_without_control_characters(raw: bytes) -> None:
    stream = TerminalText()
    said = stream.feed(raw) + stream.settle()
    assert not [one for one in said if one < " " and one not in "\n\t"]
    assert "\x7f" not in said


def test_screen_updates_yield_only_changes() -> None:
    stream = TerminalText()
    assert [stream.feed(part) for part in (b"10%", b"\r20%", b"\r30%")] == ["10%", "", ""]
    assert stream.settle() == "\n30%"
    assert stream.settle() == ""
    assert stream.feed(b"\r30%\n") == "\n"


def test_a_sequence_without_an_end_does_not_swallow_everything() -> None:
    stream = TerminalText()
    said = stream.feed(b"\x1b]0;" + b"x" * 5000) + stream.feed(b" end")
    assert said.endswith("x end")


@pytest.mark.parametrize("start", ["\x1bP", "\x1b]", "\x1b[", "\x1b_"])
def test_sequences_without_an_end_take_linear_time(start: str) -> None:
    shown = terminal_text(start * 200_000 + "x" * 2 * MAX_SEQUENCE)
    assert (shown.endswith("xxx"), "\x1b" in shown) == (True, False)


def test_a_tail_begins_with_a_line() -> None:
    assert text_tail("a\n" * 3, 100) == "a\na\na"
    assert text_tail("first\nsecond\nthird", 10) == "…third"
    assert text_tail("x" * 30, 10) == "…" + "x" * 10
