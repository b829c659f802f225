"""Which hosts are this machine, and what is the host of an address: in every form, and without a traceback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.protocol import urls
from tests.cases import each

LOOPBACK = [
    "127.0.0.1",
    "127.9.9.9",
    "::1",
    "[::1]",
    "0:0:0:0:0:0:0:1",
    "::ffff:127.0.0.1",
    "[::FFFF:127.0.0.1]",
    "::ffff:7f00:1",
    "localhost",
    "LocalHost",
    "localhost.",
    "a.localhost",
    "A.B.localhost.",
    "127.1",
    "127.0.1.",
    "0x7f.1",
    "0X7F000001",
    "0177.0.0.1",
    "017700000001",
    "2130706433",
    "\N{FULLWIDTH DIGIT ONE}27.0.0.1",
    "127\N{IDEOGRAPHIC FULL STOP}1",
    "\N{FULLWIDTH LATIN SMALL LETTER L}ocalhost",
]

ELSEWHERE = [
    "",
    ".",
    "10.0.0.1",
    "::ffff:10.0.0.1",
    "2001:db8::1",
    "localhost.example",
    "notlocalhost",
    "127.0.0.1.example",
    "127.example",
    "box.example",
    "[",
    "127.0.0.0.1",
    "127..1",
    "127.256.1",
    "127.0x1000000",
    "167772161",
    "08",
    "4294967296",
    "9" * 5000,
]

UNSPECIFIED = ["0.0.0.0", "::", "[::]", "::ffff:0.0.0.0", "0:0:0:0:0:0:0:0", "0", "0.0", "0x", "000"]


@pytest.mark.proves("C-18", "2-01")
@each("host", LOOPBACK)
def test_loopback_is_where_only_this_machine_can_call(host: str) -> None:
    assert urls.is_loopback(host)
    assert urls.is_this_machine(host)
    assert not urls.is_unspecified(host)


@pytest.mark.proves("C-18", "2-01")
@each("host", ELSEWHERE)
def test_public_hosts_are_not_local(host: str) -> None:
    assert not urls.is_loopback(host)
    assert not urls.is_this_machine(host)
    assert not urls.is_unspecified(host)


@each("host", UNSPECIFIED)
def test_only_loopback_addresses_are_local(host: str) -> None:
    assert urls.is_unspecified(host)
    assert urls.is_this_machine(host)
    assert not urls.is_loopback(host)


@each(
    ("url", "host"),
    [
        ("https://Agents.Example:8443/a?b#c", "agents.example"),
        ("https://me:secret@agents.example/", "agents.example"),
        ("http://[::1]:8000/", "::1"),
        ("agents.example:50051", "agents.example"),
        ("[::1]:50051", "::1"),
        ("localhost", "localhost"),
        ("org/agent", "org"),
        ("http://[::1", ""),
        ("http://[nonsense]/", ""),
        ("http://agents.example:99999/", ""),
        ("http://agents.example:x/", ""),
        ("https:///nowhere", ""),
        ("/nowhere", ""),
        ("", ""),
    ],
)
def test_the_host_of_an_address(url: str, host: str) -> None:
    assert urls.host_of(url) == host


@pytest.mark.parametrize("url", ["http://x", "HTTPS://x:1/y z", "https://[::1]:8000", "https://bücher.example/?q=1"])
def test_these_are_addresses(url: str) -> None:
    assert urls.is_http_url(url)


@each(
    "url",
    [
        "",
        "nonsense",
        "localhost:8000",
        "ftp://x",
        "http://",
        "http:///x",
        "http://[::1",
        "http://x:0x1",
        "http://a b/",
        " http://x",
        "http://x\n",
    ],
)
def test_these_are_none(url: str) -> None:
    assert not urls.is_http_url(url)


@given(st.text(alphabet=st.sampled_from("[]:/@%.#?ah1\N{FULLWIDTH NUMBER SIGN}\n")) | st.text())
def test_no_text_raises(text: str) -> None:
    for url in (text, f"http://{text}", f"http://[{text}"):
        assert isinstance(urls.is_this_machine(urls.host_of(url)), bool)
        assert isinstance(urls.is_http_url(url), bool)
    assert isinstance(urls.is_this_machine(text), bool)


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:1::5", "2001:0db8:0000:0001"),
        ("2001:db8:0:1:ffff::", "2001:0db8:0000:0001"),
        ("2001:db8:0:2::5", "2001:0db8:0000:0002"),
        ("a name", "a name"),
        ("", ""),
    ],
)
def test_one_client_is_an_address_or_a_network_of_64_bits(peer: str, network: str) -> None:
    assert urls.network_of(peer) == network
