"""Names as parts of addresses: what Latin names have become stays, and no other name loses its letters."""

import re
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from accord.protocol.urls import slug
from tests.cases import each


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Trip Planner", "trip-planner"),
        ("  GPT-4 / v2.1_beta ", "gpt-4-v2-1-beta"),
        ("Café Bot", "caf-bot"),
        ("Acme™ Nº 5", "acme-n-5"),
        ("🚀 Rocket", "rocket"),
        ("İstanbul", "i-stanbul"),
    ],
)
def test_a_latin_name_is_its_words(name: str, wanted: str) -> None:
    assert slug(name) == wanted


@each(
    ("name", "wanted"),
    [
        ("翻訳", "xn--pw0a62s"),
        ("要約", "xn--09zs9w"),
        ("Помощник", "xn--h1aeeedbe7f"),
        ("हिन्दी सहायक", "xn----uud3ch1b3cde9ben8m"),
        ("Weather 天气", "xn--weather--v00oo72m"),
        ("翻訳 v2", "xn---v2-zt0i494b"),
        ("要約 v2", "xn---v2-8c8hy64c"),
        ("🚀", "xn--158h"),
        ("É", "xn--9ca"),
    ],
)
def test_a_name_in_another_script_is_written_as_a_host_s_would_be(name: str, wanted: str) -> None:
    assert slug(name) == wanted
    assert wanted.removeprefix("xn--").encode().decode("punycode") == "-".join(name.lower().split())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("が", "か\u3099"),
        ("翻訳", "  翻訳!"),
        ("翻訳", "\u202e翻訳"),
        ("\uff21\uff29", "ai"),
    ],
)
def test_one_name_in_two_forms_is_the_same(one: str, other: str) -> None:
    assert one != other
    assert slug(one) == slug(other)


@pytest.mark.parametrize("name", ["", "!!!", " - ", "\ud800", "。"])
def test_a_name_with_nothing_to_read_still_has_an_address(name: str) -> None:
    assert slug(name) == "agent"


@given(st.text())
def test_it_needs_no_encoding(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9-]+", slug(name))


@given(st.text(string.printable))
def test_ascii_stays_as_it_was(name: str) -> None:
    assert slug(name) == (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "agent")


NAMES = st.text(st.characters(min_codepoint=0x3041, max_codepoint=0x3096), min_size=1)


@given(NAMES, NAMES)
def test_two_names_in_another_script_are_two(one: str, other: str) -> None:
    assume(one != other)
    assert slug(one) != slug(other)
