"""Signatures with a shared secret: what is signed, what is refused, and that nothing else can be read into one."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from accord.protocol import http_headers
from accord.protocol.http_headers import HmacSignature, SignedRequest
from tests.cases import each

SECRET, OLD = b"a secret that two parties share", b"the secret that they had before"
AT = 1_700_000_000
BODY = b'{"jsonrpc":"2.0"}'
REQUEST = SignedRequest(method="POST", target="/a?b=c", nonce="n1")

pytestmark = pytest.mark.proves("4-30")


def digest(secret: bytes, text: bytes) -> str:
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def parsed(value: str) -> HmacSignature:
    found = http_headers.parse_signature(value)
    assert found is not None
    return found


@pytest.mark.proves("B-09")
def test_a_webhook_signs_its_time_and_body() -> None:
    assert http_headers.sign_body(BODY, AT, [SECRET]) == f"t={AT},v1={digest(SECRET, b'1700000000.' + BODY)}"


def test_a_request_signs_where_it_goes_as_well() -> None:
    wanted = digest(SECRET, b"1700000000.n1\nPOST /a?b=c\n" + BODY)
    assert http_headers.sign_body(BODY, AT, [SECRET], request=REQUEST, key_id="me") == f"t={AT},k=me,n=n1,v1={wanted}"


def test_both_secrets_verify_during_rotation() -> None:
    value = http_headers.sign_body(BODY, AT, [OLD, SECRET], request=REQUEST)
    for secrets in ([OLD], [SECRET], [b"a third", SECRET]):
        assert http_headers.is_signed_by(parsed(value), BODY, secrets, request=REQUEST)
    assert not http_headers.is_signed_by(parsed(value), BODY, [b"a third"], request=REQUEST)
    assert (
        http_headers.find_digest(parsed(value), BODY, [OLD], request=REQUEST)
        == value.partition("v1=")[2].partition(",")[0]
    )


@pytest.mark.parametrize(
    "request_",
    [
        replace(REQUEST, method="GET"),
        replace(REQUEST, target="/a?b=d"),
        replace(REQUEST, target="/"),
        replace(REQUEST, nonce="n2"),
        replace(REQUEST, nonce=""),
        None,
    ],
)
def test_a_signature_is_for_one_request_only(request_: SignedRequest | None) -> None:
    signature = parsed(http_headers.sign_body(BODY, AT, [SECRET], request=REQUEST))
    assert http_headers.is_signed_by(signature, BODY, [SECRET], request=REQUEST)
    assert not http_headers.is_signed_by(signature, BODY, [SECRET], request=request_)


def test_neither_body_nor_time_can_be_changed() -> None:
    signature = parsed(http_headers.sign_body(BODY, AT, [SECRET]))
    assert not http_headers.is_signed_by(signature, BODY + b" ", [SECRET])
    assert not http_headers.is_signed_by(replace(signature, timestamp=AT + 1), BODY, [SECRET])


TEXT = st.text("abc/?=.~-_ 09", max_size=8)


@given(TEXT, TEXT, TEXT, st.binary(max_size=8), TEXT, TEXT, TEXT, st.binary(max_size=8))
def test_two_different_requests_are_never_signed_alike(
    m1: str, t1: str, n1: str, b1: bytes, m2: str, t2: str, n2: str, b2: bytes
) -> None:
    first = SignedRequest(method=m1.replace(" ", ""), target=t1, nonce=n1.replace(".", ""))
    second = SignedRequest(method=m2.replace(" ", ""), target=t2, nonce=n2.replace(".", ""))
    if (first, b1) != (second, b2):
        assert first.signed() + b1 != second.signed() + b2


@each(
    "value",
    [
        "",
        "t=1",
        "v1=" + "0" * 64,
        "t=1,v1=",
        "t=1,v1=" + "0" * 63,
        "t=1,v1=" + "G" * 64,
        "t=1,v1=" + "A" * 64,
        "t=-1,v1=" + "0" * 64,
        "t=1.5,v1=" + "0" * 64,
        "t=٣,v1=" + "0" * 64,
        "t=1,t=2,v1=" + "0" * 64,
        "t=1,k=a,k=b,v1=" + "0" * 64,
        "t=1,k=,v1=" + "0" * 64,
        "t=1,k=../a,v1=" + "0" * 64,
        "t=1,n=a\nb,v1=" + "0" * 64,
        "t=1,n=" + "a" * 129 + ",v1=" + "0" * 64,
        "t=1," + ("v1=" + "0" * 64 + ",") * 20,
    ],
)
def test_invalid_signatures_are_none(value: str) -> None:
    assert http_headers.parse_signature(value) is None


def test_unknown_members_and_spaces_are_ignored() -> None:
    assert parsed(f"t=1, v0=x, v1={'0' * 64}, v2=y").digests == ("0" * 64,)


@pytest.mark.parametrize("name", ["a b", "a,v1=0", "a.b", "ä", "a" * 129])
def test_a_name_that_could_not_be_read_back_is_not_written(name: str) -> None:
    with pytest.raises(ValueError, match="letters"):
        http_headers.sign_body(BODY, AT, [SECRET], key_id=name)
    with pytest.raises(ValueError, match="letters"):
        http_headers.sign_body(BODY, AT, [SECRET], request=replace(REQUEST, nonce=name))


@given(st.binary(max_size=50), st.integers(0, 10**12 - 1), st.from_regex(r"[A-Za-z0-9_~-]{0,20}", fullmatch=True))
def test_signatures_round_trip(body: bytes, at: int, nonce: str) -> None:
    request = replace(REQUEST, nonce=nonce)
    signature = parsed(http_headers.sign_body(body, at, [SECRET], request=request, key_id="me"))
    assert (signature.timestamp, signature.nonce, signature.key_id) == (at, nonce, "me")
    assert http_headers.is_signed_by(signature, body, [SECRET], request=request)


def test_every_digest_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    signature = parsed(http_headers.sign_body(BODY, AT, [SECRET, OLD]))
    assert http_headers.is_signed_by(signature, BODY, [SECRET, OLD, b"another"])
    assert len(compared) == 6
