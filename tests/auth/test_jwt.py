"""Bearer tokens: whom a good one names, and every known way to make a bad one look good."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey
from msgspec.structs import replace

from accord.a2a import Admission
from accord.auth.authentication import Identity
from accord.auth.jwt import LAST_SECOND, MAX_TOKEN, JwtAccess
from accord.auth.scheme_settings import Jwt
from accord.errors import AuthenticationFailed
from accord.protocol import jose
from tests.auth.conftest import Clock, bringing
from tests.auth.issuer import AT, DISCOVERY, KEYS, URL, Issuer, base64url, claims_of, encode, key

SETTINGS: dict[str, Any] = {"issuer": URL, "audience": ("accord", "https://accord.example.com")}
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
SECRET = "an HMAC key of at least thirty-two bytes"

pytestmark = pytest.mark.proves("4-26")


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


def accepting(issuer: Issuer, clock: Clock, **settings: Any) -> JwtAccess:
    return JwtAccess(Jwt(**SETTINGS | settings), issuer.fetch, now=clock, clock=clock)


@pytest.fixture
def access(issuer: Issuer, clock: Clock) -> JwtAccess:
    return accepting(issuer, clock)


async def let_in(access: JwtAccess, token: str) -> Identity:
    found = await access.identify(bringing(Authorization=f"Bearer {token}"))
    assert found is not None
    return replace(found, ticket=None)


async def refuse(access: JwtAccess, token: str) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        await access.identify(bringing(Authorization=f"Bearer {token}"))
    assert refused.value.message == "The credentials are missing or invalid"
    assert refused.value.challenges == ('Bearer realm="accord", error="invalid_token"',)


# --- good tokens ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("2-09", "2-10", "3-33")
async def test_a_good_token_names_its_subject(access: JwtAccess, issuer: Issuer) -> None:
    assert await let_in(access, issuer.token()) == Identity(owner="alice", tenant="", roles=frozenset())
    assert issuer.fetched == {DISCOVERY: 1, KEYS: 1}


@pytest.mark.parametrize(
    ("made", "alg"),
    [
        (RSA, "RS256"),
        (RSA, "RS512"),
        (RSA, "PS256"),
        (ECKey.generate_key("P-256"), "ES256"),
        (ECKey.generate_key("P-384"), "ES384"),
        (ECKey.generate_key("P-521"), "ES512"),
        (OKPKey.generate_key("Ed25519"), "EdDSA"),
        (OKPKey.generate_key("Ed25519"), "Ed25519"),
    ],
)
async def test_all_public_key_algorithms_are_supported(made: Key, alg: str, clock: Clock) -> None:
    issuer = Issuer(made)
    assert (await let_in(accepting(issuer, clock), issuer.token(alg=alg))).owner == "alice"


@pytest.mark.parametrize("typ", [None, "JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt"])
async def test_access_token_types_are_checked(typ: str | None, access: JwtAccess, issuer: Issuer) -> None:
    assert (await let_in(access, issuer.token(typ=typ))).owner == "alice"


async def test_one_of_several_audiences_is_enough(access: JwtAccess, issuer: Issuer) -> None:
    await let_in(access, issuer.token({"aud": ["other", "https://accord.example.com"]}))


@pytest.mark.parametrize("claims", [{"exp": AT - 29}, {"nbf": AT + 30}, {"iat": AT + 30}, {"exp": AT + 0.5}])
async def test_clocks_may_differ_a_little(claims: dict[str, Any], access: JwtAccess, issuer: Issuer) -> None:
    await let_in(access, issuer.token(claims))


@pytest.mark.parametrize(
    ("settings", "claims", "wanted"),
    [
        ({}, {"roles": ["a", "b"], "scope": "b c"}, Identity(owner="alice", roles=frozenset("abc"))),
        ({}, {"roles": [1, None, "a"], "scope": {"x": 1}}, Identity(owner="alice", roles=frozenset("a"))),
        ({"role_claims": ("realm.roles",)}, {"realm": {"roles": ["a"]}}, Identity(owner="alice", roles=frozenset("a"))),
        ({"role_claims": ("https://x.y/r",)}, {"https://x.y/r": "a"}, Identity(owner="alice", roles=frozenset("a"))),
        ({"role_claims": ("realm.roles",)}, {"realm": "roles"}, Identity(owner="alice")),
        ({"tenant_claim": "org"}, {"org": "acme"}, Identity(owner="alice", tenant="acme")),
        ({"tenant_claim": "org", "tenant": "*"}, {"org": "*"}, Identity(owner="alice", tenant="*")),
        ({"tenant": "acme"}, {"tenant": "globex"}, Identity(owner="alice", tenant="acme")),
        ({"tenant": "*"}, {}, Identity(owner="alice", tenant=None)),
        ({"owner_prefix": "corp:"}, {}, Identity(owner="corp:alice")),
        ({"owner_claim": "email"}, {"email": "a@b", "sub": None}, Identity(owner="a@b")),
    ],
)
async def test_claims_identify_the_caller(
    settings: dict[str, Any], claims: dict[str, Any], wanted: Identity, issuer: Issuer, clock: Clock
) -> None:
    assert await let_in(accepting(issuer, clock, **settings), issuer.token(claims)) == wanted


async def test_a_token_is_verified_once_in_a_while_and_never_after_its_end(issuer: Issuer, clock: Clock) -> None:
    access = accepting(issuer, clock, remember_seconds=1000, leeway_seconds=0)
    token = issuer.token()
    await let_in(access, token)
    issuer.keys = [key("k-2")]  # what is remembered needs no key
    clock.at += 299
    await let_in(access, token)
    clock.at += 1
    await refuse(access, token)


async def test_shared_secrets_verify_tokens(issuer: Issuer, clock: Clock) -> None:
    access = accepting(issuer, clock, secret=SECRET)
    signer = OctKey.import_key(SECRET)
    await let_in(access, issuer.token(key=signer, alg="HS256"))
    await refuse(access, issuer.token({"sub": "a"}, key=signer, alg="HS384"))
    await refuse(access, issuer.token(key=OctKey.generate_key(256), alg="HS256"))
    await refuse(access, issuer.token())
    assert issuer.fetched == {}


# --- left to others ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["Basic YTpi", "Bearer opaque", "Bearer ak_1_2", "Bearer a.b.c.d.e", "Bearer", ""])
async def test_unsigned_tokens_are_left_to_other_schemes(value: str, access: JwtAccess) -> None:
    assert await access.identify(bringing(Authorization=value)) is None
    assert await access.identify(bringing()) is None


async def test_tokens_of_other_issuers_are_left_to_other_schemes(access: JwtAccess, issuer: Issuer) -> None:
    for iss in (f"{URL}/", URL.upper(), "https://evil.example.com"):
        assert await access.identify(bringing(Authorization=f"Bearer {issuer.token({'iss': iss})}")) is None
    assert issuer.fetched == {}


# --- attacks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"exp": AT - 30},
        {"exp": "never"},
        {"exp": True},
        {"exp": []},
        {"nbf": AT + 31},
        {"nbf": "x"},
        {"iat": AT + 31},
        {"iat": False},
        {"aud": None},
        {"aud": "other"},
        {"aud": "Accord"},
        {"aud": []},
        {"aud": {}},
        {"aud": ["other"]},
        {"aud": [["accord"]]},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": ["alice"]},
        {"sub": "a" * 300},
        {"iss": None},
        {"iss": [URL]},
    ],
)
async def test_a_claim_that_is_missing_or_wrong(claims: dict[str, Any], access: JwtAccess, issuer: Issuer) -> None:
    await refuse(access, issuer.token(claims))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1e999"])
async def test_invalid_times_are_refused(number: str, access: JwtAccess, issuer: Issuer) -> None:
    payload = encode(claims_of({"exp": "@"})).replace(b'"@"', number.encode())
    await refuse(access, jose.sign_payload(payload, {"alg": "ES256", "kid": "k-1"}, issuer.keys[0]))


async def test_a_time_too_large_to_reckon_with_is_just_late(access: JwtAccess, issuer: Issuer) -> None:
    await let_in(access, issuer.token({"exp": 10**15}))


@pytest.mark.parametrize("claims", [{}, {"org": ""}, {"org": 7}, {"org": ["acme"]}, {"org": "t" * 300}])
async def test_a_token_without_the_tenant_it_must_have(claims: dict[str, Any], issuer: Issuer, clock: Clock) -> None:
    await refuse(accepting(issuer, clock, tenant_claim="org", tenant="*"), issuer.token(claims))


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", "", "HS256", "ES256K", "RSA-OAEP", "A128GCM"])
@pytest.mark.parametrize("signature", ["", "AA"])
async def test_no_algorithm_and_unknown_ones(alg: str, signature: str, access: JwtAccess) -> None:
    header = base64url(encode({"alg": alg, "kid": "k-1"}))
    await refuse(access, f"{header}.{base64url(encode(claims_of()))}.{signature}")


@pytest.mark.parametrize("stated", ["pem", "der", "jwk", "modulus"])
async def test_public_keys_are_not_shared_secrets(stated: str, clock: Clock) -> None:
    issuer = Issuer(RSA)
    member = RSA.as_dict(private=False)
    secret = {
        "pem": RSA.as_pem(private=False),
        "der": RSA.as_der(private=False),
        "jwk": json.dumps(member).encode(),
        "modulus": str(member["n"]).encode(),
    }[stated]
    for alg in ("HS256", "HS384", "HS512"):
        signed = f"{base64url(encode({'alg': alg, 'kid': 'rsa'}))}.{base64url(encode(claims_of()))}"
        digest = hmac.new(secret, signed.encode(), getattr(hashlib, f"sha{alg[2:]}")).digest()
        await refuse(accepting(issuer, clock), f"{signed}.{base64url(digest)}")


async def test_an_algorithm_that_is_not_allowed(clock: Clock) -> None:
    issuer = Issuer(RSA, key())
    access = accepting(issuer, clock, algorithms=("ES256",))
    await refuse(access, issuer.token(alg="RS256"))
    await let_in(access, issuer.token(key=issuer.keys[1]))


async def test_a_key_is_used_only_with_the_algorithm_it_is_for(clock: Clock) -> None:
    issuer = Issuer(RSAKey.import_key(RSA.as_dict(private=True), {"alg": "RS256"}))
    await let_in(accepting(issuer, clock), issuer.token(alg="RS256"))
    await refuse(accepting(issuer, clock), issuer.token(key=RSA, alg="PS256"))


async def test_keys_that_a_token_brings_are_not_looked_at(access: JwtAccess, issuer: Issuer) -> None:
    stranger = key("k-1")
    jwk = stranger.as_dict(private=False)
    for header in ({"jwk": jwk}, {"jku": "https://evil.example.com/keys"}, {"x5u": "https://evil.example.com"}):
        await refuse(access, issuer.token(key=stranger, **header))
    assert set(issuer.fetched) == {DISCOVERY, KEYS}


@pytest.mark.parametrize(
    "kid",
    [
        "../../../../dev/null",
        "/etc/passwd",
        "k-1\0",
        "k-1 ",
        "K-1",
        "' OR '1'='1",
        "k-1; DROP TABLE api_key",
        "",
        "%00",
    ],
)
async def test_the_name_of_a_key_is_nothing_but_a_name(kid: str, access: JwtAccess, issuer: Issuer) -> None:
    await refuse(access, issuer.token(kid=kid))
    assert set(issuer.fetched) == {DISCOVERY, KEYS}


@pytest.mark.parametrize("kid", [7, ["k-1"], {"k-1": 1}, True])
async def test_the_name_of_a_key_is_text(kid: Any, access: JwtAccess, issuer: Issuer) -> None:
    await refuse(access, issuer.token(kid=kid))


async def test_without_a_name_there_must_be_no_choice(clock: Clock) -> None:
    issuer = Issuer(key("a"))
    nameless = issuer.token(kid=None)
    await let_in(accepting(issuer, clock), nameless)
    issuer.keys.append(key("b"))
    await refuse(accepting(issuer, clock), nameless)


@pytest.mark.parametrize("typ", ["logout+jwt", "dpop+jwt", "secevent+jwt", "JOSE", "id+jwt"])
async def test_another_kind_of_token_with_the_same_key(typ: str, access: JwtAccess, issuer: Issuer) -> None:
    await refuse(access, issuer.token(typ=typ))


async def test_an_extension_that_must_be_understood(access: JwtAccess, issuer: Issuer) -> None:
    await refuse(access, issuer.token(crit=["exp"]))
    await refuse(access, issuer.token(crit=[]))


async def test_a_token_that_was_changed(access: JwtAccess, issuer: Issuer) -> None:
    header, payload, signature = issuer.token().split(".")
    for forged in (
        f"{header}.{base64url(encode(claims_of({'sub': 'root'})))}.{signature}",
        f"{base64url(encode({'alg': 'ES256', 'kid': 'k-1', 'x': 1}))}.{payload}.{signature}",
        f"{header}.{payload}.",
        f"{header}.{payload}.{signature[:-4]}",
        f"{header}.{payload}.{base64url(bytes(64))}",  # r = s = 0, which some implementations took for anything
        f"{header}.{payload}.!{signature[1:]}",
        f"{header}=.{payload}.{signature}",
        f".{payload}.{signature}",
        f"{header}..{signature}",
        "..",
    ):
        await refuse(access, forged)


async def test_foreign_keys_are_refused(access: JwtAccess, issuer: Issuer) -> None:
    await refuse(access, issuer.token(key=key("k-1")))


async def test_a_huge_token_costs_nothing(access: JwtAccess, issuer: Issuer) -> None:
    await refuse(access, issuer.token({"x": "a" * MAX_TOKEN}))
    await refuse(access, "a." * 2 + "a" * 10_000_000)
    assert issuer.fetched == {}


@pytest.mark.parametrize("levels", [500, 1000, 3000])
async def test_nesting_breaks_nothing(levels: int, access: JwtAccess, issuer: Issuer) -> None:
    deep = b"[" * levels + b"]" * levels
    header = b'{"alg":"ES256","kid":"k-1","x":' + deep + b"}"
    claims = encode(claims_of())[:-1] + b',"x":' + deep + b"}"
    signature = base64url(bytes(64))
    await refuse(access, f"{base64url(header)}.{base64url(encode(claims_of()))}.{signature}")
    await refuse(access, f"{base64url(encode({'alg': 'ES256', 'kid': 'k-1'}))}.{base64url(claims)}.{signature}")


@pytest.mark.parametrize("payload", [b"", b"null", b"[]", b'"x"', b"{", b"\xff\xfe", b'{"iss":"\\ud800"}'])
async def test_claims_that_are_no_object(payload: bytes, access: JwtAccess, issuer: Issuer) -> None:
    token = jose.sign_payload(payload, {"alg": "ES256", "kid": "k-1"}, issuer.keys[0])
    with pytest.raises(AuthenticationFailed):
        await access.identify(bringing(Authorization=f"Bearer {token}"))


# --- the card and settings --------------------------------------------------------------------------------------------


@pytest.mark.proves("2-10", "3-13")
def test_the_card_describes_token_retrieval(issuer: Issuer, clock: Clock) -> None:
    found = accepting(issuer, clock).security
    assert found["openIdConnect"].open_id_connect_security_scheme is not None
    assert found["openIdConnect"].open_id_connect_security_scheme.open_id_connect_url == DISCOVERY
    both = accepting(issuer, clock, token_url=f"{URL}/token", scopes={"a": "All"}).security
    assert list(both) == ["openIdConnect", "oauth2"]
    oauth = both["oauth2"].oauth2_security_scheme
    assert oauth is not None
    assert oauth.flows.client_credentials is not None
    assert (oauth.flows.client_credentials.token_url, oauth.flows.client_credentials.scopes) == (
        f"{URL}/token",
        {"a": "All"},
    )
    for more in ({"jwks_url": KEYS}, {"secret": SECRET}):
        (bearer,) = accepting(issuer, clock, **more).security.values()
        assert bearer.http_auth_security_scheme is not None
        assert bearer.http_auth_security_scheme.bearer_format == "JWT"


@pytest.mark.parametrize(
    "settings",
    [
        {"issuer": ""},
        {"issuer": "no url"},
        {"audience": ()},
        {"audience": ("",)},
        {"secret": SECRET, "jwks_url": KEYS},
        {"secret": "too short"},
        {"secret": SECRET, "algorithms": ("HS512",)},
        {"secret": SECRET, "algorithms": ("HS256", "RS256")},
        {"algorithms": ("HS256",)},
        {"algorithms": ("RS256", "none")},
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(settings: dict[str, Any], issuer: Issuer) -> None:
    with pytest.raises(ValueError, match="`"):
        JwtAccess(Jwt(**SETTINGS | settings), issuer.fetch)


def test_keys_cannot_be_had_without_a_way_to_fetch_them() -> None:
    with pytest.raises(ValueError, match="fetch"):
        JwtAccess(Jwt(**SETTINGS))


@pytest.mark.parametrize(("exp", "until"), [(AT + 300, AT + 300 + 7), (1e300, LAST_SECOND)])
async def test_token_admissions_carry_their_expiry(exp: float, until: int, issuer: Issuer, clock: Clock) -> None:
    access = accepting(issuer, clock, leeway_seconds=7)
    brought = bringing(Authorization=f"Bearer {issuer.token({'exp': exp})}")
    for _ in range(2):  # what is remembered has it too
        found = await access.identify(brought)
        assert found is not None
        assert found.ticket == Admission(kind="jwt", until=until * 1000)
