"""Which peers are trusted proxies, in either form of their address."""

import pytest

from accord.protocol.urls import is_in_networks, parse_networks
from tests.cases import each


@each(
    ("peer", "trusted", "is_one"),
    [
        ("127.0.0.1", "127.0.0.0/8", True),
        ("::ffff:127.0.0.1", "127.0.0.0/8", True),  # as a server says it that listens for IPv6 and IPv4
        ("::ffff:10.1.2.3", "10.0.0.0/8", True),
        ("::ffff:10.1.2.3", "10.1.2.3", True),
        ("::ffff:10.1.2.3", "::ffff:10.1.2.3", True),
        ("10.1.2.3", "::ffff:10.0.0.0/104", True),
        ("::ffff:11.1.2.3", "::ffff:10.0.0.0/104", False),
        ("::ffff:203.0.113.9", "10.0.0.0/8", False),
        ("::ffff:203.0.113.9", "*", True),
        ("2001:db8::1", "*", True),
        ("::1", "127.0.0.0/8", False),
        ("::1", "::1", True),
        ("proxy.example", "*", False),
        ("", "*", False),
    ],
)
def test_trusted_proxies_are_matched_by_network(peer: str, trusted: str, is_one: bool) -> None:
    assert is_in_networks(peer, parse_networks([trusted])) is is_one


@pytest.mark.parametrize("text", ["x", "10.0.0.0/33", "::ffff:10.0.0.0/129"])
def test_invalid_networks_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_networks([text])
