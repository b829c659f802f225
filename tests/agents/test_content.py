"""Parts as models and frameworks take them."""

from typing import Any

import pytest

from accord.agents.messages import data_url, describe_part, file_parts, is_linked, media_kind, openai_content, prompt
from accord.model import Part
from accord.model.metadata_keys import REFERENCE

PNG = Part(raw=b"\x89PNG", media_type="image/png", filename="dot.png")


def test_a_prompt_has_texts_as_they_are_and_everything_else_in_words() -> None:
    parts = (
        Part(text="look at "),
        Part(text="this:"),
        Part(data={"a": [1, None]}),
        Part(raw=b"# Title", media_type="text/markdown", filename="a.md"),
        PNG,
        Part(url="https://example.com/x", media_type="application/pdf"),
        Part(text="please"),
    )
    assert prompt(parts) == (
        'look at this:\n{"a":[1,null]}\nFile a.md (text/markdown):\n# Title\nFile dot.png (image/png)\n'
        "File unnamed (application/pdf): https://example.com/x\nplease"
    )


def test_binary_data_declared_as_text_is_named() -> None:
    assert describe_part(Part(raw=b"\xff\xfe", media_type="text/plain", filename="x")) == "File x (text/plain)"


def test_text_alone_stays_a_text() -> None:
    assert openai_content((Part(text="one "), Part(text="two"), Part(data=[1]))) == "one two\n[1]"
    assert openai_content(()) == ""


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (PNG, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}),
        (
            Part(url="https://example.com/a.png", media_type="image/png"),
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        ),
        (
            Part(raw=b"ab", media_type="audio/mpeg"),
            {"type": "input_audio", "input_audio": {"data": "YWI=", "format": "mp3"}},
        ),
        (
            Part(raw=b"ab", media_type="audio/ogg", filename="a.ogg"),
            {"type": "file", "file": {"filename": "a.ogg", "file_data": "data:audio/ogg;base64,YWI="}},
        ),
        (
            Part(raw=b"%PDF", media_type="application/pdf", filename="a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        ),
    ],
)
def test_files_map_to_api_content(part: Part, expected: dict[str, Any]) -> None:
    assert openai_content((Part(text="see"), part)) == [{"type": "text", "text": "see"}, expected]


def test_files_that_are_text_are_read_out() -> None:
    part = Part(raw=b'{"a":1}', media_type="application/geo+json; charset=utf-8", filename="m")
    assert openai_content((Part(text="see"), part)) == ('see\nFile m (application/geo+json; charset=utf-8):\n{"a":1}')


def test_non_image_links_become_text() -> None:
    link = Part(url="https://example.com/x.pdf", filename="x.pdf")
    assert openai_content((link,)) == "File x.pdf: https://example.com/x.pdf"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.com/a.png", "data:image/png;base64,AA=="])
def test_only_addresses_on_the_web_are_passed_on(url: str) -> None:
    assert openai_content((Part(url=url, media_type="image/png"),)) == f"File unnamed (image/png): {url}"
    assert not is_linked(Part(url=url))
    assert not is_linked(Part(url="https://example.com/", metadata={REFERENCE: True}))


def test_files_are_found_and_sorted() -> None:
    assert file_parts((Part(text="a"), PNG, Part(data=1))) == (PNG,)
    assert [media_kind(Part(raw=b"", media_type=kind)) for kind in ("IMAGE/PNG", "audio/wav", "text/x", None)] == [
        "image",
        "audio",
        "text",
        "other",
    ]
    assert data_url(Part(raw=b"")) == "data:application/octet-stream;base64,"
