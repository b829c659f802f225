"""RFC 8785: its own examples, and the properties that a canonical form must have."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.protocol import card_signatures
from tests.cases import each

pytestmark = pytest.mark.proves("CARD-SIGN-001")

NUMBERS = [  # RFC 8785, appendix B: the bits of a double, and how it is written
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@each(("bits", "written"), NUMBERS)
def test_numbers_are_written_as_the_rfc_lists_them(bits: str, written: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert card_signatures.encode_canonical(value).decode() == written


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_number_means_the_same_number(value: float) -> None:
    written = card_signatures.encode_canonical(value)
    assert float(written) == value
    assert len(written) <= 25


def test_the_example_of_the_rfc() -> None:  # 3.2.2 to 3.2.4
    document = json.loads(
        r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
             "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"""
    )
    assert card_signatures.encode_canonical(document).hex() == (
        "7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a5b333333"
        "3333333333332e333333333333332c31652b33302c342e352c302e3030322c31652d32375d2c22737472696e"
        "67223a22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f227d"
    )


def test_names_are_in_the_order_of_utf_16() -> None:  # 3.2.3
    document = json.loads(
        r"""{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
             "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
             "\u00f6": "Latin Small Letter O With Diaeresis"}"""
    )
    assert list(json.loads(card_signatures.encode_canonical(document)).values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e30, 1e30) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_the_canonical_form_is_stable_and_means_the_same(value: Any) -> None:
    written = card_signatures.encode_canonical(value)
    assert json.loads(written, parse_int=float) == value
    assert card_signatures.encode_canonical(json.loads(written)) == written


@given(st.dictionaries(st.text(), st.integers(0, 9), min_size=2))
def test_the_order_in_which_members_were_given_is_lost(members: dict[str, int]) -> None:
    assert card_signatures.encode_canonical(members) == card_signatures.encode_canonical(
        dict(reversed(members.items()))
    )


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@each(
    "value",
    [
        float("nan"),
        float("inf"),
        2**53 + 1,
        -(2**53) - 1,
        10**21,
        10**400,
        "\ud800",
        {"\udc00": 1},
        {1: 2},
        [object()],
        b"bytes",
        deep(101),
        deep(100_000),
    ],
)
def test_ambiguous_values_have_no_canonical_form(value: Any) -> None:
    with pytest.raises(card_signatures.NotCanonical):
        card_signatures.encode_canonical(value)


def test_as_deep_as_allowed() -> None:
    assert card_signatures.encode_canonical(deep(100)) == b"[" * 100 + b"]" * 100
