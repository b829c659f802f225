"""Which cards can be published: those of every dialect, and every objection to the others at once."""

import json
from typing import Any

import pytest

from accord.registry import cards, names
from accord.registry.cards import MAX_CARD, InvalidCard
from tests.cases import each
from tests.registry.conftest import GEN, V03, V1, VAULT, document


def findings(card: bytes, name: str | None = None) -> dict[str, str]:
    """What is wrong with a card, by field."""
    with pytest.raises(InvalidCard) as refused:
        cards.read(card, name)
    return dict(refused.value.findings)


def place(url: str, binding: str = "JSONRPC") -> dict[str, Any]:
    return {"supportedInterfaces": [{"url": url, "protocolBinding": binding, "protocolVersion": "1.0"}]}


@pytest.mark.parametrize(
    ("card", "handle", "tags", "tee"),
    [
        (VAULT, "acme/weather", ("weather", "public"), "intel sgx"),
        (V1, "trips-co/trip-planner", ("travel",), None),
        (V03, "localhost/adder", (), None),
        (GEN, "localhost/generic", (), None),
    ],
    ids=["vault", "v1", "v03", "gen"],
)
def test_cards_of_every_dialect(card: dict[str, Any], handle: str, tags: tuple[str, ...], tee: str | None) -> None:
    written = document(card)
    found = cards.read(written)
    assert (found.facts.handle, found.facts.tags, found.facts.tee) == (handle, tags, tee)
    assert (found.facts.name, found.card.name) == (card["name"], card["name"])
    assert found.facts.card.encode() == written
    assert card["description"].lower() in found.facts.words


def test_dialect_specific_fields_are_read_from_any_card() -> None:
    extra = {"humanReadableId": "Org/Own.Name_1", "tags": ["Nice"], "capabilities": {"teeDetails": {"type": "AMD SEV"}}}
    facts = cards.read(document(V1, **extra)).facts
    assert (facts.handle, facts.tags, facts.tee) == ("org/own.name_1", ("nice", "travel"), "amd sev")
    assert cards.read(document(V1, capabilities={"teeDetails": {}})).facts.tee == ""
    assert cards.read(document(V1, tags="no list", capabilities={"teeDetails": "no object"})).facts.tee is None
    assert cards.read(document(V1, **extra), "other/name").facts.handle == "other/name"


def test_a_card_of_0_3_may_have_a_name() -> None:
    found = cards.read(document(V03, humanReadableId="Org/Adder"))
    assert (found.facts.handle, found.card.supported_interfaces[0].protocol_version) == ("org/adder", "0.3")
    bare = {name: value for name, value in VAULT.items() if name != "authSchemes"}
    assert list(findings(document(bare))) == ["authSchemes"]  # still AgentVault's, with something missing


@pytest.mark.proves("2-01", "C-18")
@each("host", ["localhost", "a.localhost", "127.0.0.1", "127.8.8.8", "127.1", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]"])
def test_only_this_machine_may_be_reached_without_tls(host: str) -> None:
    url = f"http://{host}:8000/"
    for card in (document(V1, **place(url)), document(VAULT, url=url)):
        assert cards.read(card).card.supported_interfaces[0].url == url


@pytest.mark.proves("2-01")
@each(
    "url",
    [
        "http://agents.example/",
        "http://localhost.example/",
        "http://10.0.0.1/",
        "http://167772161/",
        "ftp://agents.example/",
        "//agents.example/",
        "agents.example",
        "https:///nowhere",
        "https://user:secret@agents.example/",
        "https://agents.example:99999/",
        "https://[half/",
        "https://agents.example/" + "x" * 2048,
    ],
)
def test_unsafe_addresses_are_objections(url: str) -> None:
    assert list(findings(document(V1, **place(url)))) == ["supportedInterfaces[0].url"]
    found = findings(document(VAULT, url=url))
    assert list(found) == ["url"]
    assert "secret" not in found["url"]


def test_grpc_has_addresses_of_its_own() -> None:
    found = cards.read(document(V1, **place("agents.example:443", "GRPC")))
    assert found.card.supported_interfaces[0].url == "agents.example:443"
    assert list(findings(document(V1, **place("user@agents.example:443", "GRPC")))) == ["supportedInterfaces[0].url"]
    assert list(findings(document(V1, **place(":443", "GRPC")))) == ["supportedInterfaces[0].url"]


@pytest.mark.proves("2-01")
@each(
    ("url", "is_fine"),
    [
        ("https://agents.example:50051", True),
        ("grpcs://agents.example:50051", True),
        ("http://localhost:50051", True),
        ("grpc://127.0.0.1:50051", True),
        ("localhost:50051", True),
        ("http://agents.example:50051", False),
        ("grpc://agents.example:50051", False),
        ("HTTP://agents.example:50051", False),
        ("http://localhost.example:50051", False),
        ("ftp://agents.example:50051", False),
        ("agents.example:99999", False),
        ("[half:50051", False),
    ],
)
def test_grpc_too_goes_without_tls_only_to_this_machine(url: str, is_fine: bool) -> None:
    card = document(V1, **place(url, "GRPC"))
    if is_fine:
        assert cards.read(card).card.supported_interfaces[0].url == url
    else:
        assert list(findings(card)) == ["supportedInterfaces[0].url"]


def test_all_objections_are_reported_at_once() -> None:
    wrong = document(
        VAULT,
        humanReadableId="nothing",
        url="http://agents.example/",
        iconUrl="javascript:alert(1)",
        privacyPolicyUrl="mailto:me",
        description="x" * 9000,
        tags=["x" * 100],
    )
    found = findings(wrong)
    assert set(found) == {"humanReadableId", "url", "iconUrl", "privacyPolicyUrl", "description", "tags"}
    assert "'nothing'" in found["humanReadableId"]


@each(
    ("card", "field"),
    [
        (document({name: value for name, value in VAULT.items() if name != "url"}), "url"),
        (document(VAULT, authSchemes=[{"scheme": "telepathy"}]), "authSchemes[0].scheme"),
        (document(VAULT, name=""), "name"),
        (document(VAULT, name="a\0b"), "name"),
        (document(V1, supportedInterfaces=[]), "supportedInterfaces"),
        (document(V1, humanReadableId=["no", "text"]), "humanReadableId"),
        (b'{"name": ', ""),
        (b"[1, 2]", ""),
        (b'{"name": "\xff"}', ""),
        (b'{"a":' * 200 + b"1" + b"}" * 200, ""),
        (document(VAULT, description="x" * MAX_CARD), ""),
    ],
)
def test_invalid_cards_name_the_location(card: bytes, field: str) -> None:
    assert field in findings(card)


def test_a_change_replaces_members_and_keeps_the_rest() -> None:
    changed = json.loads(cards.merged(json.dumps(VAULT), {"description": "New", "extra": [1]}))
    assert changed == VAULT | {"description": "New", "extra": [1]}


@pytest.mark.parametrize("text", ["org/agent", "Org/Agent", "a/b", "my-org.example/agent_1"])
def test_names(text: str) -> None:
    assert names.is_name(text)


@each(
    "text",
    ["", "agent", "/agent", "org/", "a/b/c", "../etc", "./card", "https://x/y", "a b/c", "örg/agent", "x/" + "y" * 128],
)
def test_invalid_names(text: str) -> None:
    assert not names.is_name(text)
