"""An issuer's keys: found, kept, changed, and good while it cannot be reached."""

import asyncio
import json
import warnings
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, RSAKey

from accord.auth.jwt import AGAIN_SECONDS, FRESH_SECONDS, MAX_BYTES, STALE_SECONDS, Jwks
from accord.errors import AgentUnavailable
from accord.protocol import jose
from tests.auth.conftest import Clock
from tests.auth.issuer import DISCOVERY, KEYS, URL, Issuer, base64url, key
from tests.cases import each

pytestmark = pytest.mark.proves("4-26")


@pytest.fixture
def issuer() -> Issuer:
    return Issuer(key("a"))


@pytest.fixture
def jwks(issuer: Issuer, clock: Clock) -> Jwks:
    return Jwks(issuer.fetch, URL, clock=clock)


async def kid(jwks: Jwks, kid: str | None = "a") -> str | None:
    """The name of the key that is found."""
    found = await jwks.find("ES256", kid)
    return found.kid if found else None


async def answered(jwks: Jwks) -> None:
    """Wait for a question that is asked while nobody waits."""
    if jwks._asking is not None:
        await jwks._asking


async def test_keys_are_found_by_discovery_and_kept(jwks: Jwks, issuer: Issuer, clock: Clock) -> None:
    for _ in range(50):
        assert await kid(jwks) == "a"
    clock.at += FRESH_SECONDS - 1
    assert await kid(jwks) == "a"
    assert issuer.fetched == {DISCOVERY: 1, KEYS: 1}


async def test_a_configured_jwks_url_needs_no_discovery(issuer: Issuer, clock: Clock) -> None:
    jwks = Jwks(issuer.fetch, URL, KEYS, clock)
    assert await kid(jwks) == "a"
    assert issuer.fetched == {KEYS: 1}


async def test_unknown_key_ids_refresh_the_jwks(jwks: Jwks, issuer: Issuer, clock: Clock) -> None:
    assert await kid(jwks) == "a"
    issuer.keys = [key("b")]
    clock.at += AGAIN_SECONDS
    assert await kid(jwks, "b") == "b"
    assert issuer.fetched[KEYS] == 2
    clock.at += AGAIN_SECONDS
    assert await kid(jwks, "a") is None  # withdrawn


async def test_invented_names_do_not_make_it_ask_all_the_time(jwks: Jwks, issuer: Issuer, clock: Clock) -> None:
    assert await kid(jwks) == "a"
    for number in range(100):
        assert await kid(jwks, f"invented-{number}") is None
        clock.at += AGAIN_SECONDS / 50
    assert issuer.fetched[KEYS] <= 3
    assert await kid(jwks) == "a"


async def test_cached_keys_are_used_during_a_refresh(jwks: Jwks, issuer: Issuer, clock: Clock) -> None:
    assert await kid(jwks) == "a"
    issuer.keys = [key("a"), key("b")]
    issuer.held = asyncio.Event()
    clock.at += FRESH_SECONDS
    assert await kid(jwks) == "a"  # did not wait
    issuer.held.set()
    await answered(jwks)
    assert await kid(jwks, "b") == "b"
    assert issuer.fetched[KEYS] == 2


async def test_cached_keys_survive_issuer_outages(
    jwks: Jwks, issuer: Issuer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    assert await kid(jwks) == "a"
    issuer.is_away = True
    start = clock.at
    while clock.at + FRESH_SECONDS < start + STALE_SECONDS:
        clock.at += FRESH_SECONDS
        assert await kid(jwks) == "a"
        await answered(jwks)
    assert "access.issuer_unreadable" in caplog.text
    clock.at = start + STALE_SECONDS
    for _ in range(3):
        with pytest.raises(AgentUnavailable) as failure:
            await kid(jwks)
        assert failure.value.retry_after == AGAIN_SECONDS
    issuer.is_away = False
    clock.at += AGAIN_SECONDS
    assert await kid(jwks) == "a"


async def test_without_keys_verification_is_unavailable(jwks: Jwks, issuer: Issuer, clock: Clock) -> None:
    issuer.is_away = True
    for _ in range(3):
        with pytest.raises(AgentUnavailable):
            await kid(jwks)
    assert issuer.fetched == {DISCOVERY: 1}
    issuer.is_away = False
    clock.at += AGAIN_SECONDS
    assert await kid(jwks) == "a"


async def test_many_callers_ask_once(jwks: Jwks, issuer: Issuer) -> None:
    issuer.held = asyncio.Event()
    asking = [asyncio.create_task(kid(jwks)) for _ in range(20)]
    await issuer.asked.wait()
    issuer.held.set()
    assert await asyncio.gather(*asking) == ["a"] * 20
    assert issuer.fetched == {DISCOVERY: 1, KEYS: 1}


async def test_a_disconnected_caller_does_not_stop_the_refresh(jwks: Jwks, issuer: Issuer) -> None:
    issuer.held = asyncio.Event()
    first = asyncio.create_task(kid(jwks))
    await issuer.asked.wait()
    second = asyncio.create_task(kid(jwks))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    issuer.held.set()
    assert await second == "a"


@pytest.mark.parametrize(
    "answers",
    [
        {DISCOVERY: {"issuer": "https://evil.example.com", "jwks_uri": KEYS}},
        {DISCOVERY: {"issuer": f"{URL}/", "jwks_uri": KEYS}},
        {DISCOVERY: {"issuer": URL, "jwks_uri": "http://id.example.com/keys"}},
        {DISCOVERY: {"issuer": URL, "jwks_uri": "file:///etc/passwd"}},
        {DISCOVERY: {"issuer": URL}},
        {DISCOVERY: []},
        {DISCOVERY: b"<html>"},
        {DISCOVERY: b"[" * 100_000},
        {KEYS: b"<html>"},
        {KEYS: {}},
        {KEYS: {"keys": []}},
        {KEYS: {"keys": {}}},
        {KEYS: {"keys": [7]}},
        {KEYS: b"{" + b" " * MAX_BYTES + b'"keys":[]}'},
    ],
)
async def test_invalid_jwks_answers_yield_no_keys(answers: dict[str, Any], jwks: Jwks, issuer: Issuer) -> None:
    issuer.answers |= answers
    with pytest.raises(AgentUnavailable):
        await kid(jwks)


async def test_a_bad_answer_does_not_replace_good_keys(jwks: Jwks, issuer: Issuer, clock: Clock) -> None:
    assert await kid(jwks) == "a"
    issuer.answers[KEYS] = {"keys": []}
    clock.at += AGAIN_SECONDS
    assert await kid(jwks, "b") is None
    assert await kid(jwks) == "a"


async def test_an_answer_that_is_too_large_is_not_read(jwks: Jwks, issuer: Issuer) -> None:
    own = {"keys": [one.as_dict(private=False) for one in issuer.keys]}
    issuer.answers[KEYS] = json.dumps(own).encode() + b" " * MAX_BYTES
    with pytest.raises(AgentUnavailable):
        await kid(jwks)


@each("text", ["ab!c", "abc=", "ab c", "abcde", "äbcd", "ab\nc", "abc\n", "ab+/"])
def test_only_base64url_is_base64url(text: str) -> None:
    with pytest.raises(jose.BadSignature):
        jose.from_base64url(text)


def usable(*members: dict[str, Any]) -> list[str | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in a server: it is not the warning that keeps a weak key out
        return [found.kid for found in jose.read_keys(json.dumps({"keys": members}).encode())]


def test_keys_that_cannot_verify_signatures_are_left_out() -> None:
    good = key("good").as_dict(private=False)
    with pytest.warns(UserWarning, match="2048"):
        weak = RSAKey.generate_key(1024, {"kid": "weak"}).as_dict(private=False)
    assert usable(
        OctKey.generate_key(256, {"kid": "shared"}).as_dict(private=True),
        {**good, "kid": "for encryption", "use": "enc"},
        {**good, "kid": "not for this", "key_ops": ["encrypt"]},
        {"kty": "AKP", "kid": "of tomorrow", "alg": "ML-DSA-44", "pub": "AA"},
        {"kty": "EC", "kid": "broken", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "RSA", "kid": "broken too", "n": 7},
        {"kid": "nothing"},
        {**good, "kid": "no list", "key_ops": 7},
        {**good, "kty": ["EC"]},
        {**good, "x": None},
        {**good, "kid": 7},
        weak,
        good,
        {**good, "kid": "for signatures", "use": "sig", "key_ops": ["verify"]},
    ) == ["good", "for signatures"]


def test_a_key_is_for_the_algorithm_that_it_names() -> None:
    member = RSAKey.generate_key(2048, {"kid": "x"}).as_dict(private=False)
    (named,) = jose.read_keys(json.dumps({"keys": [{**member, "alg": "RS256"}]}).encode())
    (free,) = jose.read_keys(json.dumps({"keys": [member]}).encode())
    assert jose.find_key([named], "RS256", "x") is named
    assert jose.find_key([named], "PS256", "x") is None
    assert jose.find_key([free], "PS256", "x") is free


def test_a_large_header_is_not_read() -> None:
    header = base64url(json.dumps({"alg": "ES256", "x": "a" * jose.MAX_HEADER}).encode())
    with pytest.raises(jose.BadSignature, match="too large"):
        jose.read_header(header)


def test_a_curve_is_for_its_own_algorithm() -> None:
    (found,) = jose.read_keys(
        json.dumps({"keys": [ECKey.generate_key("P-384", {"kid": "x"}).as_dict(private=False)]}).encode()
    )
    assert jose.find_key([found], "ES384", "x") is found
    for alg in ("ES256", "ES512", "RS256", "EdDSA", "HS256", "none", ""):
        assert jose.find_key([found], alg, "x") is None
