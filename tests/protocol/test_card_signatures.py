"""Signed cards: by us for everybody, by the official SDK for us, and nothing that was changed since."""

import base64
import json
from typing import Any

import pytest
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import a2a_pb2
from a2a.utils import signing as sdk
from google.protobuf import json_format
from hypothesis import assume, given, settings
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey
from jwt.api_jwk import PyJWK
from msgspec.structs import replace

from accord.errors import InvalidParams
from accord.model import AgentCard, Scopes, SecurityRequirement
from accord.protocol import card_signatures, jose
from accord.protocol.card_signatures import CardSigningKey, NotCanonical, UntrustedCard, encode_canonical
from accord.protocol.cards import decode_card, encode_card
from accord.protocol.operations import DialectName
from tests import strategies
from tests.cases import each
from tests.protocol.test_cards import CARD

NOW = 1_700_000_000.0
V1 = frozenset({DialectName.V1})
ALL = frozenset(DialectName)
NATIVE: Key = ECKey.generate_key("P-256", {"kid": "k-1", "use": "sig"})


def signing_key(key: Key = NATIVE, **more: Any) -> CardSigningKey:
    return card_signatures.read_signing_key(json.dumps(key.as_dict(private=True)).encode(), **more)


def public(*keys: CardSigningKey) -> tuple[Key, ...]:
    return tuple(key for one in keys for key in jose.read_keys(one.public()))


ES256 = signing_key()
TRUSTED = public(ES256)
SIGNED = card_signatures.sign_card(encode_card(CARD, V1), ES256)


def changed(document: bytes, **members: Any) -> bytes:
    return json.dumps(json.loads(document) | members).encode()


def header_of(document: bytes, at: int = 0) -> dict[str, Any]:
    protected = json.loads(document)["signatures"][at]["protected"]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(protected + "=="))
    return found


# --- by us ------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("CARD-SIGN-001", "CARD-SIGN-002", "CARD-SIGN-003")
@pytest.mark.parametrize(
    "key",
    [
        ECKey.generate_key("P-256"),
        ECKey.generate_key("P-384"),
        ECKey.generate_key("P-521"),
        OKPKey.generate_key("Ed25519"),
        RSAKey.generate_key(2048),
        RSAKey.generate_key(2048, {"alg": "PS256"}),
    ],
)
def test_a_signed_card_is_verified(key: Key) -> None:
    own = signing_key(key, jku="https://example.com/jwks.json")
    signed = card_signatures.sign_card(encode_card(CARD, V1), own)
    assert card_signatures.verify_card(signed, public(own), NOW).key == own.kid
    header = header_of(signed)
    assert len(header.pop("card_digest")) == 43
    assert header == {
        "alg": own.alg,
        "typ": "JOSE",
        "kid": key.thumbprint(),
        "jku": "https://example.com/jwks.json",
    }
    assert decode_card(signed).signatures
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(signed, TRUSTED, NOW)


def test_the_specification_s_fragment_keeps_required_fields() -> None:  # 8.4.1
    fragment = {
        "name": "Example Agent",
        "description": "",
        "capabilities": {"streaming": False, "pushNotifications": False, "extensions": []},
        "skills": [],
        "version": "1",
        "supportedInterfaces": [
            {"url": "u", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": ""},
        ],
        "defaultInputModes": [],
        "defaultOutputModes": ["text/plain"],
        "iconUrl": "",
        "securitySchemes": {"m": {"mtlsSecurityScheme": {"description": ""}}},
        "securityRequirements": [{"schemes": {"m": {}}}],
        "signatures": [{"protected": "x", "signature": "y"}],
    }
    specified, of_sdks, whole = card_signatures.payloads(json.dumps(fragment).encode())
    assert specified == (
        b'{"capabilities":{"pushNotifications":false,"streaming":false},"defaultInputModes":[],'
        b'"defaultOutputModes":["text/plain"],"description":"","iconUrl":"","name":"Example Agent",'
        b'"securityRequirements":[{"schemes":{"m":{}}}],"securitySchemes":{"m":{"mtlsSecurityScheme":{}}},"skills":[],'
        b'"supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"u"}],"version":"1"}'
    )
    assert b'"skills"' not in of_sdks
    assert b"security" not in of_sdks
    del fragment["signatures"]
    assert json.loads(whole) == fragment


@pytest.mark.proves("CARD-SIGN-002")
@given(strategies.cards)
@settings(max_examples=50)
def test_any_card_can_be_signed_and_signed_again(card: AgentCard) -> None:
    for dialects in (V1, ALL):
        try:
            once = card_signatures.sign_card(encode_card(card, dialects), ES256)
        except NotCanonical:
            assume(False)
        assert card_signatures.verify_card(once, TRUSTED, NOW).key == "k-1"
        other = signing_key(ECKey.generate_key("P-256", {"kid": "k-2"}))
        twice = card_signatures.sign_card(once, other)
        assert card_signatures.payloads(once) == card_signatures.payloads(twice)
        assert card_signatures.verify_card(twice, public(other), NOW).key == "k-2"
        assert card_signatures.verify_card(twice, TRUSTED, NOW).key == "k-1"


# --- the official SDK as a judge --------------------------------------------------------------------------------------


def of_sdk(document: bytes) -> a2a_pb2.AgentCard:
    found = a2a_pb2.AgentCard()
    json_format.Parse(document, found, ignore_unknown_fields=True)
    return found


def judge(card: a2a_pb2.AgentCard, key: CardSigningKey) -> None:
    """Let the SDK verify; it raises."""
    (member,) = json.loads(key.public())["keys"]
    verifier = sdk.create_signature_verifier(lambda kid, jku: PyJWK.from_dict(member), [key.alg])
    verifier(card)


@pytest.mark.proves("CARD-SIGN-001", "CARD-SIGN-003")
@given(strategies.cards)
@settings(max_examples=50)
def test_the_sdk_verifies_our_signatures(card: AgentCard) -> None:
    for dialects in (V1, ALL):
        try:
            document = card_signatures.sign_card(encode_card(card, dialects), ES256)
        except NotCanonical:
            assume(False)
        judge(of_sdk(document), ES256)
        tampered = of_sdk(document)
        tampered.name += "!"
        with pytest.raises(sdk.InvalidSignaturesError):
            judge(tampered, ES256)


@pytest.mark.proves("CARD-SIGN-001")
@given(strategies.cards)
@settings(max_examples=50)
def test_we_verify_the_sdk_s_signatures(card: AgentCard) -> None:
    sign = sdk.create_agent_card_signer(
        PyJWK.from_dict(NATIVE.as_dict(private=True) | {"alg": "ES256"}),
        {"kid": "k-1", "alg": "ES256", "typ": "JOSE", "jku": None},
    )
    theirs = of_sdk(encode_card(card, V1))
    del theirs.signatures[:]
    try:
        encode_canonical(json_format.MessageToDict(theirs))
    except NotCanonical:
        assume(False)
    document = json_format.MessageToJson(sign(theirs), indent=None).encode()
    try:
        decode_card(document)
    except InvalidParams:
        assume(False)  # theirs leaves out what is required and empty; what cannot be read is not trusted either
    assume(theirs.security_requirements or not theirs.security_schemes)  # or one may have been removed
    assert card_signatures.verify_card(document, TRUSTED, NOW).key == "k-1"
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(changed(document, version="tampered"), TRUSTED, NOW)


@pytest.mark.proves("CARD-SIGN-001")
def test_unsigned_fields_of_sdk_cards_are_ignored() -> None:
    sign = sdk.create_agent_card_signer(
        PyJWK.from_dict(NATIVE.as_dict(private=True) | {"alg": "ES256"}),
        {"kid": "k-1", "alg": "ES256", "typ": "JOSE", "jku": None},
    )
    theirs = of_sdk(encode_card(CARD, V1))
    served = agent_card_to_dict(sign(theirs))  # which adds what clients of 0.3 read
    assert {"url", "preferredTransport"} <= served.keys()
    found = card_signatures.verify_card(json.dumps(served).encode(), TRUSTED, NOW)
    assert not found.is_whole
    assert not {"url", "preferredTransport"} & json.loads(found.document).keys()
    assert decode_card(found.document).supported_interfaces == CARD.supported_interfaces
    judge(of_sdk(found.document), ES256)


# --- what is covered --------------------------------------------------------------------------------------------------

EVERYWHERE = card_signatures.sign_card(encode_card(CARD, ALL), ES256)
"""A card of all dialects."""

FOREIGN = {
    "url": "https://evil.example/",
    "additionalInterfaces": [{"url": "https://evil.example/", "transport": "JSONRPC"}],
    "authSchemes": [{"scheme": "oauth2", "tokenUrl": "https://evil.example/token"}],
    "humanReadableId": "somebody/else",
    "teeDetails": {"type": "SGX"},
}
"""Members that A2A 1.0 does not know, and others read."""


def unsigned(document: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document)
    del found["signatures"]
    return found


def test_fully_signed_cards_are_returned_whole() -> None:
    found = card_signatures.verify_card(EVERYWHERE, TRUSTED, NOW)
    assert found.is_whole
    assert json.loads(found.document) == json.loads(EVERYWHERE)


@pytest.mark.parametrize("name", FOREIGN)
def test_unsigned_fields_are_dropped(name: str) -> None:
    found = card_signatures.verify_card(changed(EVERYWHERE, **{name: FOREIGN[name]}), TRUSTED, NOW)
    assert not found.is_whole
    assert b"evil" not in found.document
    assert unsigned(found.document).keys() & FOREIGN.keys() == set()
    assert decode_card(found.document) == decode_card(EVERYWHERE)


ASKING = encode_card(replace(CARD, security_requirements=(SecurityRequirement(schemes={"key": Scopes()}),)), V1)
"""A card with a requirement that the SDKs leave out of what they sign."""


def of_an_sdk(document: bytes) -> bytes:
    sign = sdk.create_agent_card_signer(
        PyJWK.from_dict(NATIVE.as_dict(private=True) | {"alg": "ES256"}),
        {"kid": "k-1", "alg": "ES256", "typ": "JOSE", "jku": None},
    )
    return json_format.MessageToJson(sign(of_sdk(document)), indent=None).encode()


@each("requirements", [None, [], [{}], [{"schemes": {"other": {"list": []}}}]])
@each("kept", [slice(None), slice(0, 1), slice(1, 2)])
def test_a_card_whose_requirement_was_changed_is_not_trusted(requirements: Any, kept: slice) -> None:
    signed = json.loads(card_signatures.sign_card(ASKING, ES256))
    assert card_signatures.verify_card(json.dumps(signed).encode(), TRUSTED, NOW).is_whole
    some = signed | {"signatures": signed["signatures"][kept]}
    whole = card_signatures.verify_card(json.dumps(some).encode(), TRUSTED, NOW)
    assert decode_card(whole.document).security_requirements == decode_card(ASKING).security_requirements
    forged = some | {"securityRequirements": requirements}
    if requirements is None:
        del forged["securityRequirements"]
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(json.dumps(forged).encode(), TRUSTED, NOW)


@pytest.mark.parametrize("requirements", [None, []])
def test_a_card_of_an_sdk_without_its_requirement_is_not_trusted(requirements: Any) -> None:
    with pytest.raises(UntrustedCard, match="securityRequirements"):
        card_signatures.verify_card(changed(of_an_sdk(ASKING), securityRequirements=requirements), TRUSTED, NOW)
    open_to_all = of_an_sdk(encode_card(replace(CARD, security_schemes={}, security_requirements=()), V1))
    assert card_signatures.verify_card(open_to_all, TRUSTED, NOW).key == "k-1"


@pytest.mark.parametrize("requirements", [[{}], [{"schemes": {"other": {"list": []}}}]])
def test_fields_omitted_by_sdk_signatures_are_dropped(requirements: Any) -> None:
    found = card_signatures.verify_card(changed(of_an_sdk(ASKING), securityRequirements=requirements), TRUSTED, NOW)
    assert not found.is_whole
    assert decode_card(found.document).security_requirements == ()


@given(strategies.cards)
@settings(max_examples=50)
def test_verified_cards_can_be_verified_again(card: AgentCard) -> None:
    try:
        document = card_signatures.sign_card(encode_card(card, ALL), ES256)
    except NotCanonical:
        assume(False)
    *of_1_0, _of_all = json.loads(document)["signatures"]
    for one in of_1_0:
        some = changed(document, url="https://evil.example/", signatures=[one])
        found = card_signatures.verify_card(some, TRUSTED, NOW)
        try:
            decode_card(found.document)
        except InvalidParams:
            assume(False)  # what is required and empty is not there for the SDKs
        again = card_signatures.verify_card(found.document, TRUSTED, NOW)
        assert again.is_whole
        assert unsigned(again.document) == unsigned(found.document)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "members",
    [
        {"name": "Trips 2"},
        {"supportedInterfaces": [{"url": "https://evil", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]},
        {"capabilities": {}},
        {"securitySchemes": {}},
        {"skills": []},
    ],
)
def test_a_changed_card_is_not_trusted(members: dict[str, Any]) -> None:
    assert card_signatures.verify_card(SIGNED, TRUSTED, NOW).key == "k-1"
    with pytest.raises(UntrustedCard, match="no signature by a trusted key"):
        card_signatures.verify_card(changed(SIGNED, **members), TRUSTED, NOW)


def test_the_members_of_other_dialects_are_signed_too() -> None:
    document = card_signatures.sign_card(encode_card(CARD, ALL), ES256)
    *_, whole = card_signatures.payloads(document)
    assert json.loads(whole)["url"] == "https://example.com/"
    forged = changed(document, url="https://evil.example/", supportedInterfaces=None)
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(forged, TRUSTED, NOW)


def test_a_card_of_another_dialect_is_verified_as_it_stands() -> None:
    document = card_signatures.sign_card(encode_card(CARD, ALL, DialectName.V03), ES256)
    assert len(json.loads(document)["signatures"]) == 1
    assert card_signatures.verify_card(document, TRUSTED, NOW).key == "k-1"


@pytest.mark.proves("CARD-SIGN-004")
@pytest.mark.parametrize(
    "member",
    [
        {"exp": NOW - 1},
        {"exp": NOW},
        {"exp": "tomorrow"},
        {"revoked": {"revoked_at": 1}},
        {"kid": "k-2"},
        {"use": "enc"},
    ],
)
def test_expired_and_revoked_keys_verify_nothing(member: dict[str, Any]) -> None:
    keys = jose.read_keys(json.dumps({"keys": [NATIVE.as_dict(private=False) | member]}).encode())
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(SIGNED, keys, NOW)


def test_a_key_that_expires_later_still_verifies() -> None:
    keys = jose.read_keys(json.dumps({"keys": [NATIVE.as_dict(private=False) | {"exp": NOW + 1}]}).encode())
    assert card_signatures.verify_card(SIGNED, keys, NOW).key == "k-1"


def test_only_pinned_keys_are_used() -> None:
    stranger = ECKey.generate_key("P-256", {"kid": "k-1"})
    header = {"alg": "ES256", "kid": "k-1", "jwk": stranger.as_dict(private=False), "jku": "https://evil.example/"}
    token = jose.sign_payload(card_signatures.payloads(SIGNED)[0], header, stranger)  # type: ignore[arg-type] # an embedded key
    protected, _, signature = token.split(".")
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(
            changed(SIGNED, signatures=[{"protected": protected, "signature": signature}]), TRUSTED, NOW
        )


def test_a_signature_names_its_key() -> None:  # 8.4.2
    protected, _, signature = jose.sign_payload(card_signatures.payloads(SIGNED)[0], {"alg": "ES256"}, NATIVE).split(
        "."
    )
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(
            changed(SIGNED, signatures=[{"protected": protected, "signature": signature}]), TRUSTED, NOW
        )


@each("levels", [90, 150, 400, 700, 900, 960, 980, 990])
def test_nesting_breaks_nothing(levels: int) -> None:
    document = changed(SIGNED, capabilities={"extensions": [{"uri": "x", "params": {"deep": "@"}}]})
    document = document.replace(b'"@"', b"[" * levels + b"]" * levels)
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(document, TRUSTED, NOW)


def encoded(header: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")


@each(
    "signatures",
    [
        None,
        [],
        {},
        "x",
        [None],
        [{}],
        [{"protected": 1, "signature": 2}],
        [{"protected": "", "signature": ""}],
        [{"protected": "!", "signature": "!"}],
        [{"protected": encoded([]), "signature": "AA"}],
        [{"protected": encoded({"alg": "none", "kid": "k-1"}), "signature": ""}],
        [{"protected": encoded({"alg": "HS256", "kid": "k-1"}), "signature": "AA"}],
        [{"protected": encoded({"alg": "ES256"}), "signature": "AA"}],
        [{"protected": encoded({"alg": "ES256", "kid": "k-1"}), "signature": "AA"}],
        [{"protected": encoded({"alg": "ES256", "kid": "k-1"}), "signature": "A" * 86}],
        [{"protected": encoded({"alg": "ES256", "kid": "k-1", "crit": ["b64"], "b64": False}), "signature": "A" * 86}],
        [{"protected": "W" * 5000, "signature": "AA"}],
    ],
)
def test_invalid_signatures_are_not_trusted(signatures: Any) -> None:
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(changed(SIGNED, signatures=signatures), TRUSTED, NOW)


def test_only_so_many_signatures_are_looked_at() -> None:
    good = json.loads(SIGNED)["signatures"][0]
    bad = {"protected": encoded({"alg": "ES256", "kid": "nobody's"}), "signature": "AA"}
    assert card_signatures.verify_card(changed(SIGNED, signatures=[*[bad] * 15, good]), TRUSTED, NOW).key == "k-1"
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(changed(SIGNED, signatures=[*[bad] * 16, good]), TRUSTED, NOW)


@pytest.mark.parametrize("document", [b"", b"[]", b"null", b"[" * 100_000, b'{"a":' * 5000, b'{"n":1e999}', b"\xff"])
def test_invalid_cards_are_not_trusted(document: bytes) -> None:
    with pytest.raises(UntrustedCard):
        card_signatures.verify_card(document, TRUSTED, NOW)


@pytest.mark.parametrize(
    "jwk",
    [
        b"",
        b"[]",
        b"{}",
        b'{"kty":"EC"}',
        json.dumps(NATIVE.as_dict(private=False)).encode(),
        json.dumps(OctKey.generate_key(256).as_dict(private=True)).encode(),
        json.dumps(OKPKey.generate_key("X25519").as_dict(private=True)).encode(),
    ],
    ids=["nothing", "list", "empty", "type alone", "public", "symmetric", "exchange"],
)
def test_only_a_private_key_signs(jwk: bytes) -> None:
    with pytest.raises(ValueError, match="key"):
        card_signatures.read_signing_key(jwk)


def test_a_private_key_is_neither_served_nor_shown() -> None:
    secret = str(NATIVE.as_dict(private=True)["d"])
    assert "d" not in json.loads(ES256.public())["keys"][0]
    assert secret not in repr(ES256) + ES256.public().decode()
