"""A2A 0.3 over gRPC: what differs from HTTP+JSON, as the official SDK's 0.3 definition and client have it."""

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf.json_format import ParseDict
from hypothesis import given
from msgspec.structs import replace

from accord.errors import TABLE, AuthenticationFailed, RemoteError, for_code
from accord.model import AgentCapabilities, AgentCard, OAuthFlows, SecurityScheme
from accord.model.card import (
    AuthorizationCodeFlow,
    CardProfile,
    ClientCredentialsFlow,
    DeviceCodeFlow,
    OAuth2Scheme,
)
from accord.protocol.dialects.v03.rest import V03Grpc, V03Rest
from tests import strategies
from tests.cases import each

GRPC = V03Grpc()


@pytest.mark.proves("B-03")
@given(strategies.cards)
def test_the_definition_has_every_member_of_a_card(card: AgentCard) -> None:
    message = ParseDict(GRPC.encode_card(card), a2a_v0_3_pb2.AgentCard(), ignore_unknown_fields=False)
    assert set(message.security_schemes) == set(card.security_schemes)
    for name, scheme in card.security_schemes.items():
        (member,) = (field for field in scheme.__struct_fields__ if getattr(scheme, field) is not None)
        assert message.security_schemes[name].WhichOneof("scheme") == member
    wanted = [{name: list(scopes.list) for name, scopes in one.schemes.items()} for one in card.security_requirements]
    assert [{name: list(one.schemes[name].list) for name in one.schemes} for one in message.security] == wanted
    for skill, stated in zip(message.skills, card.skills, strict=True):
        assert [set(one.schemes) for one in skill.security] == [
            set(one.schemes) for one in stated.security_requirements
        ]


def test_the_first_oauth_flow_of_0_3_is_written() -> None:
    device = DeviceCodeFlow(device_authorization_url="https://e.com/d", token_url="https://e.com/t", scopes={})
    code = AuthorizationCodeFlow(
        authorization_url="https://e.com/a", token_url="https://e.com/t", scopes={"read": "r"}, pkce_required=True
    )
    flows = OAuthFlows(
        device_code=device,
        authorization_code=code,
        client_credentials=ClientCredentialsFlow(token_url="https://e.com/t", scopes={}),
    )
    card = AgentCard(
        name="a",
        description="",
        version="1",
        supported_interfaces=(),
        capabilities=AgentCapabilities(),
        default_input_modes=(),
        default_output_modes=(),
        skills=(),
        security_schemes={"oauth": SecurityScheme(oauth2_security_scheme=OAuth2Scheme(flows=flows))},
        profile=CardProfile(state_transition_history=True),
    )
    said = ParseDict(GRPC.encode_card(card), a2a_v0_3_pb2.AgentCard()).security_schemes["oauth"].oauth2_security_scheme
    assert said.flows.WhichOneof("flow") == "authorization_code"
    assert dict(said.flows.authorization_code.scopes) == {"read": "r"}
    only = SecurityScheme(oauth2_security_scheme=OAuth2Scheme(flows=OAuthFlows(device_code=device)))
    alone = replace(card, security_schemes={"oauth": only})
    found = ParseDict(GRPC.encode_card(alone), a2a_v0_3_pb2.AgentCard()).security_schemes["oauth"]
    assert found.oauth2_security_scheme.flows.WhichOneof("flow") is None


@pytest.mark.proves("B-15")
@each("theirs", JSON_RPC_ERROR_CODE_MAP)
def test_errors_start_with_the_official_name(theirs: type[A2AError]) -> None:
    ours = for_code(JSON_RPC_ERROR_CODE_MAP[theirs])
    assert GRPC.encode_error(ours("why: so")).message == f"{theirs.__name__}: why: so"


def test_errors_unknown_in_0_3_are_text_only() -> None:
    assert GRPC.encode_error(AuthenticationFailed("why")).message == "why"
    assert GRPC.encode_error(RemoteError("why")).message == "why"
    for kind in TABLE:
        said, plain = GRPC.encode_error(kind("why")), V03Rest().encode_error(kind("why"))
        assert (said.code, said.data) == (plain.code, plain.data)
