"""Which addresses a card may name: those its host speaks for, and those that the caller trusts."""

import pytest
from msgspec.structs import replace

from accord.client.findings import Trust, told, usable
from accord.model import CardProfile, Scopes, SecurityRequirement
from tests.client.pages import card

HOME = "https://agents.example/.well-known/agent-card.json"
PLAIN = HOME.replace("https:", "http:")
LOOPBACK = "http://127.0.0.1:8000/.well-known/agent-card.json"
TRUSTED, SIGNED = Trust(allow_hosts=frozenset({"api.other.example", "*.wide.example"})), Trust(is_signed=True)

FINE = [
    (HOME, "https://agents.example/rpc", Trust()),
    (HOME, "https://agents.example:8443/rpc", Trust()),
    (HOME, "agents.example:50051", Trust()),
    (HOME, "https://eu.agents.example/rpc", Trust()),
    (PLAIN, "http://agents.example/rpc", Trust()),
    (LOOPBACK, "http://localhost:9000/", Trust()),
    (LOOPBACK, "http://[::1]:9000/", Trust()),
    (LOOPBACK, "http://[::ffff:127.0.0.1]:9000/", Trust()),
    (LOOPBACK, "http://a.localhost:9000/", Trust()),
    (HOME, "https://api.other.example/", TRUSTED),
    (HOME, "https://very.wide.example/", TRUSTED),
    (HOME, "https://anywhere.example/", SIGNED),
    (LOOPBACK, "https://api.other.example/", TRUSTED),
]

REFUSED = [
    (HOME, "https://evil.example/", Trust(), "does not speak for evil.example"),
    (HOME, "https://notagents.example/", Trust(), "does not speak for"),
    (HOME, "https://example/", Trust(), "does not speak for"),
    (HOME, "evil.example:50051", Trust(), "does not speak for"),
    (HOME, "https://agents.example.evil.example/", Trust(), "does not speak for"),
    (HOME, "http://localhost:8000/", Trust(), "does not speak for localhost"),
    (HOME, "http://169.254.169.254/", Trust(), "does not speak for"),
    (HOME, "http://agents.example/", Trust(), "not encrypted, but the card was"),
    (HOME, "http://api.other.example/", TRUSTED, "on another host than the card and not encrypted"),
    (HOME, "https://wide.example/", TRUSTED, "does not speak for"),
    (HOME, "http://anywhere.example/", SIGNED, "not encrypted"),
    (HOME, "ftp://agents.example/", Trust(), "no http or https address"),
    (HOME, "https://user:secret@agents.example/", Trust(), "credentials do not belong"),
    (HOME, "https:///rpc", Trust(), "no http or https address"),
    (HOME, "https://[x", Trust(), "is no http or https address"),
    (HOME, "https://0.0.0.0:99999/", Trust(), "is no http or https address"),
    (HOME, "https://agents.example:x/", Trust(), "is no http or https address"),
]


@pytest.mark.parametrize(("served", "url", "trust"), FINE)
def test_these_are_used(served: str, url: str, trust: Trust) -> None:
    found, findings = usable(card(url), served, trust)
    assert [one.url for one in found.supported_interfaces] == [url]
    assert findings == ()


@pytest.mark.proves("4-23")
@pytest.mark.parametrize(("served", "url", "trust", "why"), REFUSED)
def test_these_are_not(served: str, url: str, trust: Trust, why: str) -> None:
    found, (finding,) = usable(card(url, "https://agents.example/"), served, trust)
    assert [one.url for one in found.supported_interfaces] == ["https://agents.example/"]
    assert why in finding.what
    assert str(finding).startswith("supportedInterfaces[0].url: ")


def test_an_address_to_listen_on_means_the_host_that_says_it() -> None:
    found, findings = usable(card("http://0.0.0.0:9000/a2a", "0.0.0.0:50051", "/a2a"), PLAIN, Trust())
    assert [one.url for one in found.supported_interfaces] == [
        "http://agents.example:9000/a2a",
        "agents.example:50051",
        "http://agents.example/a2a",
    ]
    assert len(findings) == 3


def test_what_is_odd_about_a_card_is_said() -> None:
    odd = replace(
        card("https://agents.example/", version="7.1"),
        skills=(),
        security_requirements=(SecurityRequirement(schemes={"oauth": Scopes()}),),
    )
    _, findings = usable(odd, HOME, Trust())
    assert [str(one) for one in findings] == [
        "skills: The card names no skill",
        "supportedInterfaces[0].protocolVersion: Version '7.1' is not known here",
        "securityRequirements[0]: Scheme 'oauth' is required, but not described in securitySchemes",
    ]


def test_what_is_in_several_places_is_said_once() -> None:
    _, findings = usable(card("https://evil.example/", "https://evil.example/2", "http://0.0.0.0/"), HOME, Trust())
    first, other = told(findings[:3])
    assert first.startswith("supportedInterfaces[0].url and 1 more: The card was served by agents.example, which does")
    assert other.startswith("supportedInterfaces[2].url: 0.0.0.0 is no address to call")


@pytest.mark.proves("2-29")
@pytest.mark.parametrize(("version", "is_known"), [("0.2", True), ("0.2.1", True), ("1.0", True), ("0.3", False)])
def test_a_version_of_agentvaults_profile_that_is_not_known_is_said_and_tolerated(version: str, is_known: bool) -> None:
    stated = replace(card("https://agents.example/"), profile=CardProfile(a2a_version=version))
    found, findings = usable(stated, HOME, Trust())
    assert [one.where for one in findings] == ([] if is_known else ["capabilities.a2aVersion"])
    assert len(found.supported_interfaces) == 1
