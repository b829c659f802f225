"""The public card: one document for every dialect, strictly 1.0 when that is all there is."""

import json
from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format
from hypothesis import given, settings
from msgspec.structs import replace

from accord.errors import AccordError, InvalidParams
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    ApiKeyScheme,
    CardSignature,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
)
from accord.protocol.cards import decode_card, encode_card, encode_catalog
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName
from tests import strategies
from tests.environments import judge

ALL = frozenset(DialectName)
V1, V03, VAULT, GEN, RELAY = DialectName

CARD = AgentCard(
    name="Trips",
    description="Plans trips",
    version="2.1.0",
    supported_interfaces=(
        AgentInterface(url="https://example.com/", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url="https://example.com/", protocol_binding="JSONRPC", protocol_version="0.3"),
    ),
    capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
    default_input_modes=("text/plain",),
    default_output_modes=("text/plain",),
    skills=(
        AgentSkill(id="plan", name="Plan", description="Plans", tags=("travel",), input_schema={"type": "object"}),
    ),
    provider=AgentProvider(url="https://example.com", organization="Acme"),
    security_schemes={"key": SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="header", name="X-Api-Key"))},
    security_requirements=(SecurityRequirement(schemes={"key": Scopes()}),),
)


@pytest.mark.proves("B-03", "CARD-STRUCT-001", "CARD-PROTO-002")
@given(strategies.cards)
def test_with_only_1_0_enabled_the_card_is_strictly_1_0(card: AgentCard) -> None:
    json_format.Parse(encode_card(card, {V1}), a2a_pb2.AgentCard(), ignore_unknown_fields=False)


PUBLIC: dict[str, Any] = {
    "name": "Trips",
    "description": "Plans trips",
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    # 1.0
    "version": "2.1.0",
    "supportedInterfaces": [
        {"url": "https://example.com/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "https://example.com/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
    ],
    "securityRequirements": [{"schemes": {"key": {}}}],
    # 0.3
    "protocolVersion": "0.3.0",
    "url": "https://example.com/",
    "preferredTransport": "JSONRPC",
    "security": [{"key": []}],
    "supportsAuthenticatedExtendedCard": True,
    # AgentVault
    "schemaVersion": "1.0",
    "humanReadableId": "acme/trips",
    "agentVersion": "2.1.0",
    "authSchemes": [{"scheme": "apiKey"}],
    "tags": ["travel"],
    # Several
    "capabilities": {
        "streaming": True,
        "pushNotifications": True,
        "extendedAgentCard": True,
        "a2aVersion": "0.2",
        "supportedMessageParts": ["text"],
        "supportsPushNotifications": True,
    },
    "provider": {"organization": "Acme", "name": "Acme", "url": "https://example.com"},
    "securitySchemes": {
        "key": {
            "apiKeySecurityScheme": {"location": "header", "name": "X-Api-Key"},
            "type": "apiKey",
            "name": "X-Api-Key",
            "in": "header",
        }
    },
    "skills": [
        {
            "id": "plan",
            "name": "Plan",
            "description": "Plans",
            "tags": ["travel"],
            "inputModes": ["text/plain"],
            "outputModes": ["text/plain"],
            "input_schema": {"type": "object"},
            "parameters": {"type": "object"},
            "inputSchema": {"type": "object"},
        }
    ],
}


@pytest.mark.proves("B-03", "1-08", "3-22", "3-23", "3-24", "4-02")
def test_one_document_speaks_every_dialect() -> None:
    assert json.loads(encode_card(CARD, ALL)) == PUBLIC


@pytest.mark.proves("B-03")
def test_disabled_features_are_not_in_the_document() -> None:
    public = set(PUBLIC)
    assert public - json.loads(encode_card(CARD, ALL - {V1})).keys() == {
        "supportedInterfaces",
        "securityRequirements",
    }
    assert public - json.loads(encode_card(CARD, ALL - {VAULT})).keys() == {
        "schemaVersion",
        "humanReadableId",
        "agentVersion",
        "authSchemes",
        "tags",
    }
    assert encode_card(CARD, {RELAY}) == encode_card(CARD, {V03})
    assert encode_card(CARD, ALL - {V03}) == encode_card(CARD, ALL - {RELAY}) == encode_card(CARD, ALL)
    old = {"protocolVersion", "preferredTransport", "security", "supportsAuthenticatedExtendedCard"}
    assert public - json.loads(encode_card(CARD, ALL - {V03, RELAY})).keys() == old
    (skill,) = json.loads(encode_card(CARD, ALL - {GEN}))["skills"]
    assert PUBLIC["skills"][0].keys() - skill.keys() == {"parameters", "inputSchema"}


@pytest.mark.proves("B-03", "2-09")
def test_missing_providers_are_added_only_for_vault() -> None:
    card = replace(CARD, provider=None)
    assert json.loads(encode_card(card, ALL))["provider"] == {
        "organization": "example.com",
        "name": "example.com",
        "url": "https://example.com/",
    }
    assert "provider" not in json.loads(encode_card(card, ALL - {VAULT}))
    assert "provider" in json.loads(encode_card(replace(card, supported_interfaces=()), ALL))


@pytest.mark.proves("B-03")
@pytest.mark.parametrize("provider", [CARD.provider, None])
def test_every_card_gives_one_registry_name(provider: AgentProvider | None) -> None:
    card = replace(CARD, provider=provider)
    every, alone = json.loads(encode_card(card, ALL)), json.loads(encode_card(card, ALL, VAULT))
    assert every["humanReadableId"] == alone["humanReadableId"]
    assert every["provider"]["name"] == alone["provider"]["name"]


@pytest.mark.proves("B-03", "4-02")
@pytest.mark.proves("B-13")
@pytest.mark.parametrize("only", [None, V03, RELAY])
def test_cards_of_0_3_offer_the_extended_card_with_authentication(only: DialectName | None) -> None:
    def offers(card: AgentCard) -> Any:
        return json.loads(encode_card(card, ALL, only)).get("supportsAuthenticatedExtendedCard")

    key = SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="header", name="X-API-Key"))
    assert offers(replace(CARD, security_schemes={"key": key})) is True
    assert offers(replace(CARD, security_schemes={})) is None
    assert json.loads(encode_card(replace(CARD, security_schemes={}), ALL))["capabilities"]["extendedAgentCard"] is True


def test_skills_merge_and_keep_stated_schemas() -> None:
    plain = AgentSkill(id="book", name="Book", description="Books", tags=("travel",))
    skills = json.loads(encode_card(replace(CARD, skills=(plain, *CARD.skills)), ALL))["skills"]
    assert [(skill["id"], skill["name"]) for skill in skills] == [("book", "Book"), ("plan", "Plan")]
    assert skills[1] == PUBLIC["skills"][0]
    assert skills[0]["parameters"] == {}
    assert skills[0].keys() & {"inputSchema", "input_schema"} == set()


@pytest.mark.proves("B-03", "4-02")
def test_gen_cards_list_capabilities() -> None:
    able = ["streaming", "push_notifications", "extended_agent_card"]
    assert json.loads(encode_card(CARD, ALL, GEN))["capabilities"] == able
    assert json.loads(encode_card(CARD, {GEN}))["capabilities"] == able


@pytest.mark.proves("B-03")
@settings(max_examples=30)
@given(strategies.cards)
def test_the_public_card_is_read_back_as_1_0(card: AgentCard) -> None:
    assert decode_card(encode_card(card, ALL)).supported_interfaces == card.supported_interfaces


@pytest.mark.parametrize("dialect", DialectName)
def test_each_dialect_s_own_card_is_recognized(dialect: DialectName) -> None:
    card = encode_card(CARD, ALL, dialect)
    assert decode_card(card) == DIALECTS[dialect].decode_card(card)
    assert decode_card(card).name == "Trips"


@pytest.mark.proves("B-03")
@pytest.mark.parametrize("lacking", ["authSchemes", "humanReadableId"])
def test_vault_cards_are_recognized_by_either_field(lacking: str) -> None:
    card = json.loads(encode_card(CARD, ALL, VAULT))
    del card[lacking]
    with pytest.raises(InvalidParams, match=lacking):
        decode_card(json.dumps(card).encode())


@pytest.mark.proves("B-03")
def test_every_family_of_clients_accepts_the_public_card() -> None:
    public = json.loads(encode_card(CARD, ALL))
    assert judge("a2a-sdk-03", "v03.py", [{"type": "AgentCard", "json": public, "strict": False}]) == [None]
    assert judge("agentvault", "vault.py", [{"type": "AgentCard", "json": public, "strict": False}]) == [None]
    lenient = json_format.ParseDict(public, a2a_pb2.AgentCard(), ignore_unknown_fields=True)
    assert lenient.supported_interfaces[0].protocol_version == "1.0"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"supportedInterfaces":[]}', b'{"capabilities":[]}', b'{"authSchemes":1}']
)
def test_invalid_cards_are_refused(body: bytes) -> None:
    with pytest.raises(AccordError):
        decode_card(body)


@pytest.mark.proves("B-03")
def test_signatures_are_written_only_with_signed_content() -> None:
    signed = replace(CARD, signatures=(CardSignature(protected="eyJ", signature="abc"),))
    written = [{"protected": "eyJ", "signature": "abc"}]
    assert json.loads(encode_card(signed, {V1}))["signatures"] == written
    assert json.loads(encode_card(signed, ALL, V1))["signatures"] == written
    assert encode_card(signed, ALL) == encode_card(CARD, ALL)
    for other in (V03, VAULT, GEN, RELAY):
        assert encode_card(signed, {other}) == encode_card(CARD, {other})
        assert encode_card(signed, {V1, other}) == encode_card(CARD, {V1, other})
        assert encode_card(signed, ALL, other) == encode_card(CARD, ALL, other)


# The catalog


def test_the_catalog_of_many_agents() -> None:
    silent = replace(CARD, name="My \u00e9cho/1", description="", skills=(), provider=None, version="1.0.0")
    cards = {"https://example.com/trips/card.json": CARD, "https://example.com/echo/card.json": silent}
    assert json.loads(encode_catalog(cards)) == {
        "specVersion": "1.0",
        "host": {"displayName": "Acme", "identifier": "example.com"},
        "entries": [
            {
                "identifier": "urn:air:example.com:a2a:Trips",
                "displayName": "Trips",
                "type": "application/a2a-agent-card+json",
                "url": "https://example.com/trips/card.json",
                "version": "2.1.0",
                "description": "Plans trips",
                "tags": ["travel"],
            },
            {
                "identifier": "urn:air:example.com:a2a:My%20%C3%A9cho%2F1",
                "displayName": "My \u00e9cho/1",
                "type": "application/a2a-agent-card+json",
                "url": "https://example.com/echo/card.json",
                "version": "1.0.0",
            },
        ],
    }


def test_hosts_without_a_provider_use_their_name() -> None:
    alone = replace(CARD, provider=None)
    written = json.loads(encode_catalog({"http://[::1]:8000/card.json": alone}))
    assert written["host"] == {"displayName": "::1", "identifier": "::1"}
    assert written["entries"][0]["identifier"] == "urn:air:%3A%3A1:a2a:Trips"
    assert json.loads(encode_catalog({})) == {"specVersion": "1.0", "entries": []}
