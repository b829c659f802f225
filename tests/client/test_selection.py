"""From a card to the ways to talk to its agent."""

import pytest
from msgspec.structs import replace

from accord.client.interfaces import AgentEndpoint, NoUsableEndpoint, usable_endpoints
from accord.model import AgentCard, AgentInterface, CardProfile
from accord.protocol.cards import decode_card
from accord.protocol.operations import DialectName
from tests.client.pages import card, written

V1, V03, VAULT, GEN, RELAY = DialectName
URL = "https://agents.example/"


def offering(*interfaces: tuple[str, str]) -> AgentCard:
    stated = tuple(
        AgentInterface(url=f"{URL}{at}", protocol_binding=binding, protocol_version=version)
        for at, (binding, version) in enumerate(interfaces)
    )
    return replace(card(), supported_interfaces=stated)


def pairs(found: tuple[AgentEndpoint, ...]) -> list[tuple[str, DialectName]]:
    return [(way.binding, way.dialect) for way in found]


MANY = offering(("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("JSONRPC", "1.0.1"), ("WEBSOCKET", "1.0"), ("GRPC", "1.0"))


def test_the_agents_own_order_is_kept_and_the_unknown_left_out() -> None:
    assert pairs(usable_endpoints(MANY)) == [("HTTP+JSON", V1), ("JSONRPC", V03), ("JSONRPC", V1), ("GRPC", V1)]


def test_a_caller_may_narrow_it() -> None:
    assert pairs(usable_endpoints(MANY, binding="rest")) == [("HTTP+JSON", V1)]
    assert pairs(usable_endpoints(MANY, dialect=V03)) == [("JSONRPC", V03)]
    assert pairs(usable_endpoints(MANY, binding="jsonrpc", dialect=V1)) == [("JSONRPC", V1)]
    assert pairs(usable_endpoints(MANY, dialect=RELAY)) == [("JSONRPC", RELAY), ("JSONRPC", RELAY)]


def test_without_its_extra_grpc_is_only_used_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.client.interfaces._has_grpc", lambda: False)
    assert ("GRPC", V1) not in pairs(usable_endpoints(MANY))
    assert pairs(usable_endpoints(MANY, binding="grpc")) == [("GRPC", V1)]
    assert pairs(usable_endpoints(offering(("GRPC", "1.0")))) == [("GRPC", V1)]


@pytest.mark.parametrize("dialect", [V1, V03, VAULT, GEN])
def test_every_dialects_card_leads_to_that_dialect(dialect: DialectName) -> None:
    (way,) = usable_endpoints(decode_card(written(URL, dialect=dialect)))
    assert (way.binding, way.dialect, way.url) == ("JSONRPC", dialect, URL)


def test_agentvaults_own_version_numbers_mean_its_profile() -> None:
    stated = replace(offering(("JSONRPC", "1.0")), profile=CardProfile(a2a_version="1.0"))
    assert pairs(usable_endpoints(stated)) == [("JSONRPC", VAULT)]


def test_interfaces_name_their_tenant() -> None:
    stated = card(URL)
    (interface,) = stated.supported_interfaces
    (way,) = usable_endpoints(replace(stated, supported_interfaces=(replace(interface, tenant="acme"),)))
    assert way.tenant == "acme"


def test_missing_interfaces_are_explained() -> None:
    with pytest.raises(NoUsableEndpoint, match=r"'Trips' supports no known protocol; its card offers JSONRPC 9\.0"):
        usable_endpoints(offering(("JSONRPC", "9.0")))
    with pytest.raises(NoUsableEndpoint, match=r"does not support GRPC; its card offers JSONRPC 1\.0"):
        usable_endpoints(card(URL), binding="grpc")
    with pytest.raises(NoUsableEndpoint, match="no interface at all"):
        usable_endpoints(card())
    with pytest.raises(NoUsableEndpoint, match="no binding 'soap'"):
        usable_endpoints(card(URL), binding="soap")
