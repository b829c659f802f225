"""W3C's Trace Context: what is no valid parent is nothing, and what is kept comes out as it went in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.protocol.http_headers import MAX_TRACESTATE, join_trace, trace_headers, trace_ids, trace_variables
from tests.cases import each

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_parent_and_its_state_are_one_text() -> None:
    assert join_trace(PARENT) == PARENT
    assert join_trace(PARENT, "a=1, b=2") == f"{PARENT} a=1, b=2"
    assert trace_headers(f"{PARENT} a=1, b=2") == {"traceparent": PARENT, "tracestate": "a=1, b=2"}
    assert trace_headers(PARENT) == {"traceparent": PARENT}
    assert trace_variables(f"{PARENT} a=1") == {"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}
    assert trace_ids(f"{PARENT} a=1") == (TRACE, SPAN)


@each(
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
def test_invalid_traceparents_are_ignored(parent: str | None) -> None:
    assert join_trace(parent, "a=1") is None


@pytest.mark.parametrize("state", [None, "", "a" * (MAX_TRACESTATE + 1), "a=\n1", "a=ü", "a=\x00"])
def test_a_state_that_cannot_be_passed_on_is_left_out(state: str | None) -> None:
    assert join_trace(PARENT, state) == PARENT


def test_nothing_is_passed_on_of_nothing() -> None:
    assert (trace_headers(None), trace_variables(None), trace_ids(None), trace_ids("x")) == ({}, {}, None, None)


@given(st.text(), st.text())
def test_header_values_have_no_line_breaks(parent: str, state: str) -> None:
    for value in (
        *trace_headers(join_trace(parent, state)).values(),
        *trace_headers(join_trace(PARENT, state)).values(),
    ):
        assert value.isascii()
        assert value.isprintable()
