"""Searches in what agents say: as Python does them, and none without an end."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.workflows.searching import SHORT, Endless, search
from accord.workflows.values import Unresolved, Values


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("b", "abc", True),
        ("^b$", "a\nb\nc", True),
        ("x+y*z{2}", "xzz", True),
        ("x+y*z{2}", "xz", False),
        ("end$", "x" * 10 * SHORT + "end", True),
        ("end$", "x" * 10 * SHORT, False),
        ("a+b+", "\ud800ab\0", True),
        ("ü+ß+", "üß", True),
    ],
)
def test_what_is_there_is_found(pattern: str, text: str, expected: bool) -> None:
    assert search(pattern, text) is expected


@settings(max_examples=10, deadline=None)
@given(st.text("ab\n", max_size=20), st.sampled_from(["a+b+", "^a*b*$", "(ab)+a{2}"]))
def test_another_process_finds_the_same(text: str, pattern: str) -> None:
    assert search(pattern, text) is (re.search(pattern, text, re.MULTILINE) is not None)


@pytest.mark.proves("C-17")
@pytest.mark.parametrize(("pattern", "text"), [("(a+)+$", "a" * 100 + "!"), (r"\s+$", " " * 1_000_000 + "!")])
def test_a_search_that_would_not_end_is_ended(pattern: str, text: str) -> None:
    with pytest.raises(Endless, match="took longer than 1 seconds"):
        search(pattern, text, 1)


@pytest.mark.proves("C-17")
def test_a_condition_whose_search_would_not_end_has_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.workflows.searching.search.__defaults__", (1,))
    with pytest.raises(Unresolved, match="took longer"):
        Values(input="a" * 100 + "!").holds("input matches '(a+)+$'")


def test_what_is_no_pattern_is_said() -> None:
    with pytest.raises(re.error):
        search("[", "x")
