"""What is attached to a message, in the order of the flags."""

import io
import os
from pathlib import Path

import pytest
import typer

from accord.cli import message_parts
from accord.cli.message_parts import GivenPart, given_parts, parse_object, parts_of
from accord.model import Part


def piped(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """Let standard input be this."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(said)))


def test_media_type_flags_apply_to_the_preceding_part() -> None:
    order = ["agent_card", "file", "data", "media_type", "file", "texts", "output"]
    values = {"file": ["a", "b"], "data": ["{}"], "texts": ["t"], "media_type": ["application/x"]}
    assert given_parts(order, values) == [
        GivenPart("file", "a"),
        GivenPart("data", "{}", "application/x"),
        GivenPart("file", "b"),
        GivenPart("texts", "t"),
    ]


@pytest.mark.parametrize("order", [["media_type", "file"], ["file", "media_type", "media_type"]])
def test_a_media_type_without_a_part_is_a_mistake(order: list[str]) -> None:
    with pytest.raises(typer.BadParameter, match="must follow the part"):
        given_parts(order, {"file": ["a"], "media_type": ["x", "y"]})


def test_files_are_read_and_addresses_passed_on(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"PDF")
    (tmp_path / "odd").write_bytes(b"\x00")
    files = [str(tmp_path / "a.pdf"), str(tmp_path / "odd"), "https://x.example/y/b.png?k=1"]
    assert parts_of("hi", [GivenPart("file", file) for file in files]) == (
        Part(text="hi"),
        Part(raw=b"PDF", filename="a.pdf", media_type="application/pdf"),
        Part(raw=b"\x00", filename="odd", media_type="application/octet-stream"),
        Part(url="https://x.example/y/b.png?k=1", filename="b.png", media_type="image/png"),
    )
    stated = GivenPart("file", str(tmp_path / "a.pdf"), "text/x")
    assert parts_of(None, [stated]) == (Part(raw=b"PDF", filename="a.pdf", media_type="text/x"),)


def test_data_is_json_from_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.json").write_text("[1]")
    piped(monkeypatch, b'{"b": 2}')
    given = [GivenPart("data", '{"a": 1}'), GivenPart("data", str(tmp_path / "d.json")), GivenPart("data", "-")]
    assert [part.data for part in parts_of(None, given)] == [{"a": 1}, [1], {"b": 2}]


def test_a_text_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, b"long\ntext\n")
    assert parts_of("-", []) == (Part(text="long\ntext\n"),)


def test_a_file_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, b"\xff\x00")
    assert parts_of(None, [GivenPart("file", "-", "image/png")]) == (Part(raw=b"\xff\x00", media_type="image/png"),)


def test_a_line_of_a_conversation_is_taken_as_it_is() -> None:
    assert parts_of(None, [GivenPart("line", "-")]) == (Part(text="-"),)


@pytest.mark.parametrize("flag", ["file", "data"])
def test_only_finite_files_are_read(tmp_path: Path, flag: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for odd in (str(pipe), "/dev/zero", str(tmp_path)):
        with pytest.raises(typer.BadParameter, match=r"is not a regular file\. Use - for standard input"):
            parts_of(None, [GivenPart(flag, odd)])


def test_oversized_files_are_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(message_parts.MAX_BYTES + 1)
    with pytest.raises(typer.BadParameter, match=r"sparse is larger than 64 MiB\. Send an https URL instead"):
        parts_of(None, [GivenPart("file", str(tmp_path / "sparse"))])
    monkeypatch.setattr(message_parts, "MAX_BYTES", 3)
    for text, given in (("-", []), (None, [GivenPart("file", "-")]), (None, [GivenPart("data", "-")])):
        piped(monkeypatch, b"1234")
        with pytest.raises(typer.BadParameter, match="Standard input is larger"):
            parts_of(text, given)
    piped(monkeypatch, b"123")
    assert parts_of("-", []) == (Part(text="123"),)


def test_binary_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, b"\xff")
    with pytest.raises(typer.BadParameter, match="UTF-8"):
        parts_of("-", [])
    piped(monkeypatch, b'"\xff"')
    with pytest.raises(typer.BadParameter, match="not valid JSON"):
        parts_of(None, [GivenPart("data", "-")])


@pytest.mark.parametrize(("text", "given"), [("\udcff", []), (None, [GivenPart("texts", "\udcff")])])
def test_bytes_that_are_no_text_are_refused(text: str | None, given: list[GivenPart]) -> None:
    with pytest.raises(typer.BadParameter, match="UTF-8"):
        parts_of(text, given)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (GivenPart("file", "/nowhere/at/all"), "No such file"),
        (GivenPart("file", "/no\0where"), "embedded null"),
        (GivenPart("data", "/nowhere/at/all"), "No such file"),
        (GivenPart("data", "{oops"), "not valid JSON"),
    ],
)
def test_unreadable_files_are_reported(given: GivenPart, why: str) -> None:
    with pytest.raises(typer.BadParameter, match=why):
        parts_of(None, [given])


def test_there_is_something_to_send() -> None:
    for text, given in ((None, []), ("", []), (None, [GivenPart("texts", "")])):
        with pytest.raises(typer.BadParameter, match="The message is empty"):
            parts_of(text, given)
    assert parts_of("", [GivenPart("data", "[1]"), GivenPart("texts", "")]) == (Part(data=[1]),)


def test_metadata_is_an_object() -> None:
    assert parse_object('{"a": [1]}') == {"a": [1]}
    with pytest.raises(typer.BadParameter, match="not a JSON object"):
        parse_object("[1]")
