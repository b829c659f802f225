"""W3C's Trace Context: what is no valid parent is nothing, and what is kept comes out as it went in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.protocol.trace_context import MAX_STATE, headers, ids, joined, variables

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_parent_and_its_state_are_one_text() -> None:
    assert joined(PARENT) == PARENT
    assert joined(PARENT, "a=1, b=2") == f"{PARENT} a=1, b=2"
    assert headers(f"{PARENT} a=1, b=2") == {"traceparent": PARENT, "tracestate": "a=1, b=2"}
    assert headers(PARENT) == {"traceparent": PARENT}
    assert variables(f"{PARENT} a=1") == {"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}
    assert ids(f"{PARENT} a=1") == (TRACE, SPAN)


@pytest.mark.parametrize(
    "parent",
    [
        None,
        "",
        "x",
        PARENT.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01\n",
        f" {PARENT}",
    ],
)
def test_what_is_no_parent_is_nothing(parent: str | None) -> None:
    assert joined(parent, "a=1") is None


@pytest.mark.parametrize("state", [None, "", "a" * (MAX_STATE + 1), "a=\n1", "a=ü", "a=\x00"])
def test_a_state_that_cannot_be_passed_on_is_left_out(state: str | None) -> None:
    assert joined(PARENT, state) == PARENT


def test_nothing_is_passed_on_of_nothing() -> None:
    assert (headers(None), variables(None), ids(None), ids("x")) == ({}, {}, None, None)


@given(st.text(), st.text())
def test_whatever_comes_no_header_gets_a_line_of_its_own(parent: str, state: str) -> None:
    for value in (*headers(joined(parent, state)).values(), *headers(joined(PARENT, state)).values()):
        assert value.isascii()
        assert value.isprintable()
