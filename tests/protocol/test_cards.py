"""The public card: one document for every dialect, strictly 1.0 when that is all there is."""

import json

import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format
from hypothesis import given, settings

from accord.errors import AccordError
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    ApiKeyScheme,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
)
from accord.protocol.cards import decode_card, encode_card
from accord.protocol.operations import DialectName
from tests import strategies
from tests.peers import judge

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


@pytest.mark.proves("B-03", "1-08", "3-22", "3-23", "3-24", "4-02")
def test_one_document_speaks_every_dialect() -> None:
    card = json.loads(encode_card(CARD, ALL))
    assert card["supportedInterfaces"][0]["protocolVersion"] == "1.0"
    assert (card["protocolVersion"], card["url"], card["preferredTransport"]) == (
        "0.3.0",
        "https://example.com/",
        "JSONRPC",
    )
    assert card["supportsAuthenticatedExtendedCard"] is True
    assert card["capabilities"]["streaming"] is True
    assert card["capabilities"]["extendedAgentCard"] is True
    assert card["capabilities"]["supportsPushNotifications"] is True
    assert card["capabilities"]["a2aVersion"]
    assert card["provider"]["organization"] == card["provider"]["name"] == "Acme"
    assert card["schemaVersion"]
    assert card["humanReadableId"]
    assert card["authSchemes"][0]["scheme"] == "apiKey"
    scheme = card["securitySchemes"]["key"]
    assert (scheme["type"], scheme["in"]) == ("apiKey", "header")
    assert scheme["apiKeySecurityScheme"] == {"location": "header", "name": "X-Api-Key"}
    (skill,) = card["skills"]
    assert skill["tags"] == ["travel"]
    assert skill["inputSchema"] == skill["parameters"] == skill["input_schema"] == {"type": "object"}


@pytest.mark.proves("B-03", "4-02")
def test_the_generic_dialect_gets_its_list_of_capabilities_when_it_asks() -> None:
    assert isinstance(json.loads(encode_card(CARD, ALL, GEN))["capabilities"], list)
    assert isinstance(json.loads(encode_card(CARD, {GEN}))["capabilities"], list)


@pytest.mark.proves("B-03")
@settings(max_examples=30)
@given(strategies.cards)
def test_the_public_card_is_read_back_as_1_0(card: AgentCard) -> None:
    assert decode_card(encode_card(card, ALL)).supported_interfaces == card.supported_interfaces


@pytest.mark.parametrize("dialect", DialectName)
def test_each_dialect_s_own_card_is_recognised(dialect: DialectName) -> None:
    read = decode_card(encode_card(CARD, ALL, dialect))
    assert (read.name, read.description, read.version) == ("Trips", "Plans trips", "2.1.0")


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
def test_what_is_no_card_is_refused(body: bytes) -> None:
    with pytest.raises(AccordError):
        decode_card(body)
