"""Which addresses a card may name: those its host speaks for, and those that the caller trusts."""

import pytest
from msgspec.structs import replace

from accord.client.interfaces import CardHostTrust, describe_findings, keep_usable_interfaces
from accord.model import CardProfile, Scopes, SecurityRequirement
from tests.cases import each
from tests.client.pages import card

HOME = "https://agents.example/.well-known/agent-card.json"
PLAIN = HOME.replace("https:", "http:")
LOOPBACK = "http://127.0.0.1:8000/.well-known/agent-card.json"
TRUSTED, SIGNED = (
    CardHostTrust(allow_hosts=frozenset({"api.other.example", "*.wide.example"})),
    CardHostTrust(is_signed=True),
)

FINE = [
    (HOME, "https://agents.example/rpc", CardHostTrust()),
    (HOME, "https://agents.example:8443/rpc", CardHostTrust()),
    (HOME, "agents.example:50051", CardHostTrust()),
    (HOME, "https://eu.agents.example/rpc", CardHostTrust()),
    (PLAIN, "http://agents.example/rpc", CardHostTrust()),
    (LOOPBACK, "http://localhost:9000/", CardHostTrust()),
    (LOOPBACK, "http://[::1]:9000/", CardHostTrust()),
    (LOOPBACK, "http://[::ffff:127.0.0.1]:9000/", CardHostTrust()),
    (LOOPBACK, "http://a.localhost:9000/", CardHostTrust()),
    (HOME, "https://api.other.example/", TRUSTED),
    (HOME, "https://very.wide.example/", TRUSTED),
    (HOME, "https://anywhere.example/", SIGNED),
    (LOOPBACK, "https://api.other.example/", TRUSTED),
]

REFUSED = [
    (HOME, "https://evil.example/", CardHostTrust(), "may not name evil.example"),
    (HOME, "https://notagents.example/", CardHostTrust(), "may not name"),
    (HOME, "https://example/", CardHostTrust(), "may not name"),
    (HOME, "evil.example:50051", CardHostTrust(), "may not name"),
    (HOME, "https://agents.example.evil.example/", CardHostTrust(), "may not name"),
    (HOME, "http://localhost:8000/", CardHostTrust(), "may not name localhost"),
    (HOME, "http://169.254.169.254/", CardHostTrust(), "may not name"),
    (HOME, "http://agents.example/", CardHostTrust(), "not encrypted, but the card was"),
    (HOME, "http://api.other.example/", TRUSTED, "on another host than the card and not encrypted"),
    (HOME, "https://wide.example/", TRUSTED, "may not name"),
    (HOME, "http://anywhere.example/", SIGNED, "not encrypted"),
    (HOME, "ftp://agents.example/", CardHostTrust(), "not an http or https address"),
    (HOME, "https://user:secret@agents.example/", CardHostTrust(), "credentials do not belong"),
    (HOME, "https:///rpc", CardHostTrust(), "not an http or https address"),
    (HOME, "https://[x", CardHostTrust(), "is not an http or https address"),
    (HOME, "https://0.0.0.0:99999/", CardHostTrust(), "is not an http or https address"),
    (HOME, "https://agents.example:x/", CardHostTrust(), "is not an http or https address"),
]


@each(("served", "url", "trust"), FINE)
def test_these_are_used(served: str, url: str, trust: CardHostTrust) -> None:
    found, findings = keep_usable_interfaces(card(url), served, trust)
    assert [one.url for one in found.supported_interfaces] == [url]
    assert findings == ()


@pytest.mark.proves("4-23")
@each(("served", "url", "trust", "why"), REFUSED)
def test_these_are_not(served: str, url: str, trust: CardHostTrust, why: str) -> None:
    found, (finding,) = keep_usable_interfaces(card(url, "https://agents.example/"), served, trust)
    assert [one.url for one in found.supported_interfaces] == ["https://agents.example/"]
    assert why in finding.what
    assert str(finding).startswith("supportedInterfaces[0].url: ")


def test_wildcard_addresses_mean_the_card_s_host() -> None:
    found, findings = keep_usable_interfaces(
        card("http://0.0.0.0:9000/a2a", "0.0.0.0:50051", "/a2a"), PLAIN, CardHostTrust()
    )
    assert [one.url for one in found.supported_interfaces] == [
        "http://agents.example:9000/a2a",
        "agents.example:50051",
        "http://agents.example/a2a",
    ]
    assert len(findings) == 3


def test_card_oddities_are_reported() -> None:
    odd = replace(
        card("https://agents.example/", version="7.1"),
        skills=(),
        security_requirements=(SecurityRequirement(schemes={"oauth": Scopes()}),),
    )
    _, findings = keep_usable_interfaces(odd, HOME, CardHostTrust())
    assert [str(one) for one in findings] == [
        "skills: The card names no skill",
        "supportedInterfaces[0].protocolVersion: Unknown version '7.1'",
        "securityRequirements[0]: Scheme 'oauth' is required, but not described in securitySchemes",
    ]


def test_repeated_findings_are_reported_once() -> None:
    _, findings = keep_usable_interfaces(
        card("https://evil.example/", "https://evil.example/2", "http://0.0.0.0/"), HOME, CardHostTrust()
    )
    first, other = describe_findings(findings[:3])
    assert first.startswith("supportedInterfaces[0].url and 1 more: The card was served by agents.example, which may")
    assert other.startswith("supportedInterfaces[2].url: 0.0.0.0 is not an address that can be called")


@pytest.mark.proves("2-29")
@pytest.mark.parametrize(("version", "is_known"), [("0.2", True), ("0.2.1", True), ("1.0", True), ("0.3", False)])
def test_unknown_vault_versions_are_reported_and_tolerated(version: str, is_known: bool) -> None:
    stated = replace(card("https://agents.example/"), profile=CardProfile(a2a_version=version))
    found, findings = keep_usable_interfaces(stated, HOME, CardHostTrust())
    assert [one.where for one in findings] == ([] if is_known else ["capabilities.a2aVersion"])
    assert len(found.supported_interfaces) == 1
