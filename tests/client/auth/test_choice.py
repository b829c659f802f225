"""What is chosen by what a card asks for: the order, the ids that are looked up, and what is said when nothing fits."""

from typing import Any

import pytest
from msgspec.structs import replace

from accord.client.auth import (
    Anonymous,
    ApiKey,
    Basic,
    Bearer,
    ClientCredentials,
    CustomHeader,
    Hmac,
    Mtls,
    NoCredentials,
    OpenIdConnect,
    Together,
    choose,
    chosen,
    ids_of,
)
from accord.client.keys import Certificate, Credential, OAuthClient, SigningKey, User
from accord.client.wire import Outgoing
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    ApiKeyScheme,
    AuthorizationCodeFlow,
    CardProfile,
    ClientCredentialsFlow,
    HttpAuthScheme,
    MutualTlsScheme,
    OAuth2Scheme,
    OAuthFlows,
    OpenIdConnectScheme,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
)
from accord.protocol.cards import decode_card

TOKEN_URL = "https://id.example/token"
CODE = AuthorizationCodeFlow(authorization_url="https://id.example/auth", token_url=TOKEN_URL, scopes={})
SCHEMES = {
    "key": SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="query", name="k")),
    "odd": SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="body", name="k")),
    "bearer": SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="bearer")),
    "basic": SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="BASIC")),
    "oauth": SecurityScheme(
        oauth2_security_scheme=OAuth2Scheme(
            flows=OAuthFlows(client_credentials=ClientCredentialsFlow(token_url=TOKEN_URL, scopes={"a": "", "b": ""}))
        )
    ),
    "people": SecurityScheme(oauth2_security_scheme=OAuth2Scheme(flows=OAuthFlows(authorization_code=CODE))),
    "oidc": SecurityScheme(
        open_id_connect_security_scheme=OpenIdConnectScheme(open_id_connect_url="https://id.example/oidc")
    ),
    "mtls": SecurityScheme(mtls_security_scheme=MutualTlsScheme()),
}
EVERYTHING = Credential(
    api_key="k",
    bearer="t",
    oauth=OAuthClient(client_id="i", client_secret="s", parameters={"audience": "x"}),
    basic=User(username="u", password="p"),
    certificate=Certificate(file="f"),
)


REQUEST = Outgoing(method="POST", url="https://a.example/")


class Held(dict[str, Credential]):
    """Credentials by id."""

    def find(self, id: str) -> Credential | None:
        return self.get(id)


def card(*alternatives: str, profile: CardProfile | None = None, url: str = "https://a.example:8443/x") -> AgentCard:
    """A card with these alternatives; `a+b` asks for both, `-` for nothing."""
    names = [() if one == "-" else tuple(one.split("+")) for one in alternatives]
    return AgentCard(
        name="An agent",
        description="",
        version="1",
        supported_interfaces=(AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0"),),
        capabilities=AgentCapabilities(),
        default_input_modes=(),
        default_output_modes=(),
        skills=(),
        security_schemes={name: SCHEMES[name] for one in names for name in one if name in SCHEMES},
        security_requirements=tuple(SecurityRequirement(schemes={name: Scopes() for name in one}) for one in names),
        profile=profile,
    )


def held(credential: Credential = EVERYTHING, id: str = "a.example") -> Held:
    return Held({id: credential})


@pytest.mark.proves("2-06")
@pytest.mark.parametrize(
    ("alternatives", "kind"),
    [
        (["-", "mtls", "basic", "bearer", "oauth", "key"], ApiKey),
        (["-", "mtls", "basic", "bearer", "oauth"], ClientCredentials),
        (["bearer", "oidc"], OpenIdConnect),
        (["-", "mtls", "basic", "bearer"], Bearer),
        (["-", "mtls", "basic"], Basic),
        (["-", "mtls"], Mtls),
        (["people"], Bearer),
        (["-"], Anonymous),
        ([], Anonymous),
        (["mtls+key", "basic"], Basic),
        (["basic+key"], Together),
        (["nowhere", "basic"], Basic),
        (["odd", "basic"], Basic),
    ],
)
def test_the_order_is_agentvaults_and_not_the_cards(alternatives: list[str], kind: type[Any]) -> None:
    for order in (alternatives, alternatives[::-1]):
        assert type(choose(card(*order), held())) is kind


@pytest.mark.proves("2-06")
def test_each_way_is_taken_only_with_credentials_for_it() -> None:
    both = card("key", "bearer")
    assert isinstance(choose(both, held(Credential(bearer="t"))), Bearer)
    assert isinstance(choose(card("oauth"), held(Credential(bearer="t"))), Bearer)
    half = Credential(oauth=OAuthClient(client_id="i"))
    with pytest.raises(NoCredentials, match=r"an OAuth 2\.0 client of https://id\.example/token"):
        choose(card("oauth"), held(half))
    with pytest.raises(NoCredentials):
        choose(both)


@pytest.mark.proves("2-07")
def test_what_is_described_and_not_required_is_used_if_it_can_be() -> None:
    described = replace(card("key"), security_requirements=())
    assert isinstance(choose(described, held()), ApiKey)
    assert isinstance(choose(described), Anonymous)


@pytest.mark.proves("2-11")
def test_ids_are_the_services_then_the_agents_own_then_its_host() -> None:
    profile = CardProfile(human_readable_id="org/agent", service_identifiers={"key": "svc", "basic": "other"})
    asking = card("key", profile=profile)
    order = ["svc", "org/agent", "a.example:8443", "a.example"]
    for at, id in enumerate(order):
        keys = Held({one: Credential(api_key=one) for one in order[at:]} | {"other": Credential(api_key="no")})
        assert chosen(asking, keys).ids == (id,)
    assert ids_of(asking) == ("svc", "other", "org/agent", "a.example:8443", "a.example")
    assert chosen(asking, Held({one: EVERYTHING for one in [*order, "mine"]}), service="mine").ids == ("mine",)
    assert ids_of(asking, "mine") == ("mine",)
    with pytest.raises(NoCredentials, match="ACCORD_KEY_SVC"):
        choose(asking, Held({"other": Credential(api_key="no")}))


@pytest.mark.proves("2-06", "2-10", "2-11")
def test_a_card_of_agentvault() -> None:
    document = b"""{"schemaVersion": "1.0", "humanReadableId": "org/agent", "agentVersion": "1", "name": "n",
        "description": "d", "url": "https://a.example/a2a/", "provider": {"name": "p"},
        "capabilities": {"a2aVersion": "1.0"}, "authSchemes": [{"scheme": "none"},
        {"scheme": "oauth2", "tokenUrl": "https://id.example/token", "scopes": ["x", "y"], "service_identifier": "idp"},
        {"scheme": "apiKey", "service_identifier": "Svc"}]}"""
    found = decode_card(document)
    assert chosen(found, Held({"Svc": Credential(api_key="k"), "idp": EVERYTHING})).schemes == ("apiKey",)
    auth, schemes, ids = chosen(found, Held({"idp": EVERYTHING}))
    assert (schemes, ids) == (("oauth2",), ("idp",))
    assert isinstance(auth, ClientCredentials)
    assert b"scope=x+y" in (next(auth.prepare(REQUEST)).body or b"")
    assert isinstance(choose(found), Anonymous)


def test_a_credential_with_hosts_is_sent_to_no_other() -> None:
    only = replace(EVERYTHING, hosts=("A.example", "id.example"))
    assert isinstance(choose(card("oauth"), held(only)), ClientCredentials)
    assert isinstance(choose(card("key"), held(replace(only, hosts=("a.example:8443",)))), ApiKey)
    stolen = CardProfile(service_identifiers={"key": "svc", "oauth": "svc"})
    for asking in (
        card("key", profile=stolen, url="https://evil.example/"),
        card("key", profile=stolen, url="https://a.example.evil.example/"),
        card("key", profile=stolen, url="https://a.example@evil.example/"),
    ):
        with pytest.raises(NoCredentials, match=r"`svc` is not for .*evil\.example"):
            choose(asking, held(only, "svc"))
    elsewhere = card("oauth", profile=stolen)
    with pytest.raises(NoCredentials, match=r"is not for id\.example"):
        choose(elsewhere, held(replace(only, hosts=("a.example",)), "svc"))
    second = AgentInterface(url="https://evil.example/", protocol_binding="JSONRPC", protocol_version="1.0")
    two = replace(elsewhere, supported_interfaces=(*elsewhere.supported_interfaces, second))
    with pytest.raises(NoCredentials, match=r"is not for evil\.example"):
        choose(two, held(only, "svc"))


def test_an_agent_that_is_reached_safely_cannot_have_secrets_sent_in_the_clear() -> None:
    flow = ClientCredentialsFlow(token_url="http://id.example/token", scopes={})
    plain = SecurityScheme(oauth2_security_scheme=OAuth2Scheme(flows=OAuthFlows(client_credentials=flow)))
    asking = replace(card("oauth"), security_schemes={"oauth": plain})
    with pytest.raises(NoCredentials, match=r"is not for http://id\.example/token, which is not https"):
        choose(asking, held())
    inside = AgentInterface(url="http://a.example/", protocol_binding="JSONRPC", protocol_version="1.0")
    assert isinstance(choose(replace(asking, supported_interfaces=(inside,)), held()), ClientCredentials)


def test_what_a_card_does_not_mention() -> None:
    signs = Credential(hmac=SigningKey(secret="s", key_id="k"), api_key="k")
    assert isinstance(choose(card(), held(signs)), Hmac)
    assert isinstance(choose(card("basic"), held(signs)), Hmac)
    assert isinstance(choose(card("key"), held(signs)), ApiKey)
    assert isinstance(choose(card(), held(Credential(headers={"X-A": "b"}))), CustomHeader)
    # A secret that is sent as it is goes to who does not ask only if somebody says which.
    assert isinstance(choose(card(), held(Credential(bearer="t"))), Anonymous)
    for credential, kind in (
        (Credential(bearer="t"), Bearer),
        (Credential(api_key="t"), ApiKey),
        (Credential(basic=User(username="u", password="p")), Basic),
        (Credential(certificate=Certificate(file="f")), Anonymous),
    ):
        assert type(choose(card(), held(credential, "svc"), service="svc")) is kind


def test_what_cannot_be_sent_is_said_where_nothing_is_asked_for() -> None:
    with pytest.raises(NoCredentials, match=r"`a\.example` cannot be used: A credential is printable"):
        choose(card(), held(Credential(headers={"X-A": "s3cret\n"})))


def test_the_refusal_says_what_would_do_and_no_secret() -> None:
    unfit = Credential(api_key="s3cret\n")
    with pytest.raises(NoCredentials) as refused:
        choose(card("key", "mtls+bearer", "nowhere"), held(unfit))
    told = str(refused.value)
    assert told.startswith("An agent asks for an API key in the query k (what is kept under `a.example` cannot be used")
    assert "accord creds set a.example:8443 --kind api-key" in told
    assert "; or for a client certificate" in told
    assert " and a token for HTTP bearer" in told
    assert "`nowhere`, which its card does not describe" in told
    assert "s3cret" not in told
