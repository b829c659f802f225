"""What is chosen by what a card asks for: the order, the ids that are looked up, and what is said when nothing fits."""

import json
import shlex
from typing import Any

import pytest
from msgspec.structs import replace

from accord.client.auth import (
    Anonymous,
    ApiKey,
    BasicAuth,
    Bearer,
    ClientCredentials,
    CombinedAuth,
    CustomHeader,
    HmacAuth,
    MtlsAuth,
    NoCredentials,
    OpenIdConnect,
    choose_auth,
    choose_auth_with_ids,
    credential_ids,
)
from accord.client.credentials import Certificate, Credential, HmacKey, KeyManager, OAuthClient, UserPassword
from accord.errors import AuthenticationFailed
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
from accord.outbound import HttpReply, HttpRequest
from accord.protocol.cards import decode_card
from tests.cases import each

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
    basic=UserPassword(username="u", password="p"),
    certificate=Certificate(file="f"),
)


REQUEST = HttpRequest(method="POST", url="https://a.example/")


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
@each(
    ("alternatives", "kind"),
    [
        (["-", "mtls", "basic", "bearer", "oauth", "key"], ApiKey),
        (["-", "mtls", "basic", "bearer", "oauth"], ClientCredentials),
        (["bearer", "oidc"], OpenIdConnect),
        (["-", "mtls", "basic", "bearer"], Bearer),
        (["-", "mtls", "basic"], BasicAuth),
        (["-", "mtls"], MtlsAuth),
        (["people"], Bearer),
        (["-"], Anonymous),
        ([], Anonymous),
        (["mtls+key", "basic"], BasicAuth),
        (["basic+key"], CombinedAuth),
        (["nowhere", "basic"], BasicAuth),
        (["odd", "basic"], BasicAuth),
    ],
)
def test_the_order_is_agentvaults_and_not_the_cards(alternatives: list[str], kind: type[Any]) -> None:
    for order in (alternatives, alternatives[::-1]):
        assert type(choose_auth(card(*order), held(), origin="https://a.example:8443/")) is kind


@pytest.mark.proves("2-06")
def test_each_way_is_taken_only_with_credentials_for_it() -> None:
    both = card("key", "bearer")
    assert isinstance(choose_auth(both, held(Credential(bearer="t"))), Bearer)
    assert isinstance(choose_auth(card("oauth"), held(Credential(bearer="t"))), Bearer)
    half = Credential(oauth=OAuthClient(client_id="i"))
    with pytest.raises(NoCredentials, match=r"an OAuth 2\.0 client of https://id\.example/token"):
        choose_auth(card("oauth"), held(half))
    with pytest.raises(NoCredentials):
        choose_auth(both)


@pytest.mark.proves("2-07")
def test_optional_schemes_are_used_if_possible() -> None:
    described = replace(card("key"), security_requirements=())
    assert isinstance(choose_auth(described, held()), ApiKey)
    assert isinstance(choose_auth(described), Anonymous)


@pytest.mark.proves("2-11")
def test_ids_are_the_services_then_the_agents_own_then_its_host() -> None:
    profile = CardProfile(human_readable_id="org/agent", service_identifiers={"key": "svc", "basic": "other"})
    asking = card("key", profile=profile)
    order = ["svc", "org/agent", "a.example:8443", "a.example"]
    for at, id in enumerate(order):
        keys = Held({one: Credential(api_key=one, hosts=("a.example",)) for one in order[at:]})
        keys |= {"other": Credential(api_key="no")}
        assert choose_auth_with_ids(asking, keys).ids == (id,)
    assert credential_ids(asking) == ("svc", "other", "org/agent", "a.example:8443", "a.example")
    assert choose_auth_with_ids(asking, Held({one: EVERYTHING for one in [*order, "mine"]}), service="mine").ids == (
        "mine",
    )
    assert credential_ids(asking, "mine") == ("mine",)
    with pytest.raises(NoCredentials, match="ACCORD_KEY_SVC"):
        choose_auth(asking, Held({"other": Credential(api_key="no")}))


@pytest.mark.proves("2-06", "2-10", "2-11")
def test_a_card_of_agentvault() -> None:
    document = b"""{"schemaVersion": "1.0", "humanReadableId": "org/agent", "agentVersion": "1", "name": "n",
        "description": "d", "url": "https://a.example/a2a/", "provider": {"name": "p"},
        "capabilities": {"a2aVersion": "1.0"}, "authSchemes": [{"scheme": "none"},
        {"scheme": "oauth2", "tokenUrl": "https://id.example/token", "scopes": ["x", "y"], "service_identifier": "idp"},
        {"scheme": "apiKey", "service_identifier": "Svc"}]}"""
    found = decode_card(document)
    idp = replace(EVERYTHING, hosts=("a.example", "id.example"))
    svc = Credential(api_key="k", hosts=("a.example",))
    assert choose_auth_with_ids(found, Held({"Svc": svc, "idp": idp})).schemes == ("apiKey",)
    auth, schemes, ids = choose_auth_with_ids(found, Held({"idp": idp}))
    assert (schemes, ids) == (("oauth2",), ("idp",))
    assert isinstance(auth, ClientCredentials)
    assert b"scope=x+y" in (next(auth.prepare(REQUEST)).body or b"")
    assert isinstance(choose_auth(found), Anonymous)


def test_a_credential_with_hosts_is_sent_to_no_other() -> None:
    only = replace(EVERYTHING, hosts=("A.example", "id.example"))
    assert isinstance(choose_auth(card("oauth"), held(only)), ClientCredentials)
    assert isinstance(choose_auth(card("key"), held(replace(only, hosts=("a.example:8443",)))), ApiKey)
    stolen = CardProfile(service_identifiers={"key": "svc", "oauth": "svc"})
    for asking in (
        card("key", profile=stolen, url="https://evil.example/"),
        card("key", profile=stolen, url="https://a.example.evil.example/"),
        card("key", profile=stolen, url="https://a.example@evil.example/"),
    ):
        with pytest.raises(NoCredentials, match=r"`svc` is not for .*evil\.example"):
            choose_auth(asking, held(only, "svc"))
    elsewhere = card("oauth", profile=stolen)
    with pytest.raises(NoCredentials, match=r"is not for id\.example"):
        choose_auth(elsewhere, held(replace(only, hosts=("a.example",)), "svc"))
    second = AgentInterface(url="https://evil.example/", protocol_binding="JSONRPC", protocol_version="1.0")
    two = replace(elsewhere, supported_interfaces=(*elsewhere.supported_interfaces, second))
    with pytest.raises(NoCredentials, match=r"is not for evil\.example"):
        choose_auth(two, held(only, "svc"))


def test_https_agents_cannot_redirect_secrets_to_http() -> None:
    flow = ClientCredentialsFlow(token_url="http://id.example/token", scopes={})
    plain = SecurityScheme(oauth2_security_scheme=OAuth2Scheme(flows=OAuthFlows(client_credentials=flow)))
    asking = replace(card("oauth"), security_schemes={"oauth": plain})
    with pytest.raises(NoCredentials, match=r"is not for http://id\.example/token, which is not https"):
        choose_auth(asking, held(), origin="https://a.example:8443/")
    inside = AgentInterface(url="http://a.example/", protocol_binding="JSONRPC", protocol_version="1.0")
    asking = replace(asking, supported_interfaces=(inside,))
    assert isinstance(choose_auth(asking, held(), origin="http://a.example/"), ClientCredentials)


@pytest.mark.parametrize("id", ["good.example", "svc", "org/agent", "evil", "example"])
def test_card_cannot_choose_another_hosts_credential(id: str) -> None:
    """A card names an id; its own host was not stored for it."""
    named = CardProfile(human_readable_id=id, service_identifiers={"key": id, "oauth": id, "basic": id})
    signs = replace(EVERYTHING, hmac=HmacKey(secret="s"), headers={"X-A": "s"})
    for url in ("https://evil.example/", "https://good.example.evil.example/", "https://good.example@evil.example/"):
        for way in ("key", "oauth", "basic", "mtls", "bearer"):
            with pytest.raises(NoCredentials):
                choose_auth(card(way, profile=named, url=url), held(signs, id), origin=url)
        assert isinstance(choose_auth(card(profile=named, url=url), held(signs, id), origin=url), Anonymous)
        assert isinstance(choose_auth(card("key", profile=named, url=url), held(signs, id), service=id), ApiKey)


def test_refusal_names_the_command_that_allows_the_host() -> None:
    named = CardProfile(service_identifiers={"key": "svc"})
    with pytest.raises(NoCredentials) as refused:
        choose_auth(card("key", profile=named, url="https://a.example:8443/x"), held(id="svc"))
    allowing = "`accord creds set svc --kind hosts --host a.example:8443` or set ACCORD_HOSTS_SVC=a.example:8443"
    assert allowing in str(refused.value)
    with pytest.raises(NoCredentials, match=r"--host a\.example --host id\.example`"):
        choose_auth(card("oauth"), held())


@pytest.mark.parametrize("is_stored", [True, False])
def test_ids_and_hosts_of_cards_are_quoted_in_commands(is_stored: bool) -> None:
    named = CardProfile(service_identifiers={"key": "svc;reboot"})
    asking = card("key", profile=named, url="https://a$(id).example/")
    with pytest.raises(NoCredentials) as refused:
        choose_auth(asking, held(id="svc;reboot" if is_stored else "other"))
    command = str(refused.value).rpartition("run `")[2].partition("`")[0]
    words = ["--kind", "hosts", "--host", "a$(id).example"] if is_stored else ["--kind", "api-key"]
    assert shlex.split(command) == ["accord", "creds", "set", "svc;reboot", *words]
    assert "'svc;reboot'" in command


@each(
    ("id", "url", "origin", "is_sent"),
    [
        ("a.example", "https://a.example/", "https://a.example/", True),
        ("a.example", "https://a.example:50051/", "https://a.example/", True),
        ("a.example:443", "https://a.example/", "", False),  # it is not looked up, but named by no card either
        ("a.example:8000", "https://a.example:8000/", "", True),
        ("a.example:8000", "https://a.example:8000/", "https://a.example:9000/", True),
        ("a.example", "https://b.a.example/", "https://a.example/", False),
        ("[fd00::1]:8000", "http://[fd00::1]:8000/", "http://[fd00::1]:8000/", True),
        ("fd00::1", "http://[fd00::1]:8000/", "http://[fd00::1]:8000/", True),
        ("[fd00::1]:8000", "http://[fd00::1:8000]/", "http://[fd00::1:8000]/", False),
        ("fd00::1:80", "http://[fd00::1]/", "http://[fd00::1]/", False),  # another host, and no port
    ],
)
def test_host_id_is_bound_to_its_host(id: str, url: str, origin: str, is_sent: bool) -> None:
    asking = card("key", url=url)
    if is_sent:
        assert isinstance(choose_auth(asking, held(id=id), origin=origin), ApiKey)
    else:
        with pytest.raises(NoCredentials):
            choose_auth(asking, held(id=id), origin=origin)


def test_host_may_name_its_token_endpoint_and_further_ports() -> None:
    """Only the card that the host of the id serves: one from another place names neither."""
    grpc = AgentInterface(url="https://a.example:50051", protocol_binding="GRPC", protocol_version="1.0")
    asking = card("oauth", url="https://a.example:8443/x")
    asking = replace(asking, supported_interfaces=(*asking.supported_interfaces, grpc))
    keys = held(id="a.example:8443")
    assert isinstance(choose_auth(asking, keys, origin="https://a.example:8443/card.json"), ClientCredentials)
    for origin in ("", "https://evil.example/", "https://a.example:9000/", "https://sub.a.example:8443/"):
        with pytest.raises(NoCredentials, match=r"is not for a\.example:50051 and id\.example"):
            choose_auth(asking, keys, origin=origin)


def test_variable_of_one_host_is_not_for_a_host_that_is_spelled_alike() -> None:
    env = {"ACCORD_KEY_API_GOOD_EXAMPLE": "k"}
    assert isinstance(choose_auth(card("key", url="https://api.good.example/"), KeyManager(env=env)), ApiKey)
    asking = card("key", url="https://api-good.example/")
    with pytest.raises(NoCredentials):
        choose_auth(asking, KeyManager(env=env))
    named = CardProfile(service_identifiers={"key": "api_good_example"})
    with pytest.raises(NoCredentials, match=r"is not for api-good\.example"):
        choose_auth(replace(asking, profile=named), KeyManager(env=env))
    env["ACCORD_HOSTS_API_GOOD_EXAMPLE"] = "api-good.example"
    assert isinstance(choose_auth(asking, KeyManager(env=env)), ApiKey)


def test_discovered_token_endpoint_must_be_among_the_hosts() -> None:
    auth = choose_auth(card("oidc"), held(replace(EVERYTHING, hosts=("a.example", "id.example"))))
    for endpoint, is_sent in (("https://id.example/token", True), ("https://evil.example/token", False)):
        flow = auth.prepare(REQUEST)
        next(flow)
        reply = HttpReply(status=200, headers={}, body=json.dumps({"token_endpoint": endpoint}).encode())
        if is_sent:
            assert flow.send(reply).url == endpoint
            auth = choose_auth(card("oidc"), held(replace(EVERYTHING, hosts=("a.example", "id.example"))))
        else:
            with pytest.raises(AuthenticationFailed, match="not among the credential's hosts"):
                flow.send(reply)


def test_undeclared_schemes_are_not_used() -> None:
    signs = Credential(hmac=HmacKey(secret="s", key_id="k"), api_key="k")
    assert isinstance(choose_auth(card(), held(signs)), HmacAuth)
    assert isinstance(choose_auth(card("basic"), held(signs)), HmacAuth)
    assert isinstance(choose_auth(card("key"), held(signs)), ApiKey)
    assert isinstance(choose_auth(card(), held(Credential(headers={"X-A": "b"}))), CustomHeader)
    # A secret that is sent as it is goes to who does not ask only if somebody says which.
    assert isinstance(choose_auth(card(), held(Credential(bearer="t"))), Anonymous)
    for credential, kind in (
        (Credential(bearer="t"), Bearer),
        (Credential(api_key="t"), ApiKey),
        (Credential(basic=UserPassword(username="u", password="p")), BasicAuth),
        (Credential(certificate=Certificate(file="f")), Anonymous),
    ):
        assert type(choose_auth(card(), held(credential, "svc"), service="svc")) is kind


def test_unusable_credentials_are_reported_for_open_agents() -> None:
    with pytest.raises(NoCredentials, match=r"`a\.example` cannot be used: A credential is printable"):
        choose_auth(card(), held(Credential(headers={"X-A": "s3cret\n"})))


def test_the_error_names_accepted_schemes_without_secrets() -> None:
    unfit = Credential(api_key="s3cret\n")
    with pytest.raises(NoCredentials) as refused:
        choose_auth(card("key", "mtls+bearer", "nowhere"), held(unfit))
    told = str(refused.value)
    assert told.startswith("An agent asks for an API key in the query k (what is kept under `a.example` cannot be used")
    assert "accord creds set a.example:8443 --kind api-key" in told
    assert "; or for a client certificate" in told
    assert " and a token for HTTP bearer" in told
    assert "`nowhere`, which its card does not describe" in told
    assert "s3cret" not in told
