"""Signed requests: whole, of now, once."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.auth.authentication import BodyNeeded, Identity, Presented
from accord.auth.scheme_settings import Hmac, Secret
from accord.auth.schemes import Ports
from accord.auth.shared_secrets import HMAC, HmacAccess, UsedSignatures
from accord.errors import AgentUnavailable, AuthenticationFailed
from accord.protocol import http_headers
from accord.storage import schema
from accord.storage.sqlite.driver import SqliteStore
from tests.auth.conftest import Clock, presenting
from tests.engine.doubles import Meddler

SECRET, OTHER = "a secret that two parties share", "a secret of somebody else again"
AT = 1_700_000_000
BODY = b'{"jsonrpc":"2.0","id":1}'

pytestmark = pytest.mark.proves("4-30")


@pytest.fixture
def access(clock: Clock) -> HmacAccess:
    keys = {"partner": Secret(secret=SECRET, tenant="acme", roles=("user",)), "other": Secret(secret=OTHER, owner="o")}
    return HmacAccess(Hmac(keys=keys), clock)


def request(value: str, **more: Any) -> Presented:
    return presenting({"X-A2A-Signature": value}, **{"body": BODY, "method": "POST", "target": "/a?b=c", **more})


def signature(secret: str = SECRET, key_id: str = "partner", at: int = AT, body: bytes = BODY, **request: Any) -> str:
    signed = http_headers.SignedRequest(**{"method": "POST", "target": "/a?b=c", **request})
    return http_headers.sign_body(body, at, [secret.encode()], request=signed, key_id=key_id)


async def refuse(access: HmacAccess, presented: Presented) -> None:
    with pytest.raises(AuthenticationFailed):
        await access.identify(presented)


async def test_a_signed_request_is_of_whom_the_key_belongs_to(access: HmacAccess) -> None:
    assert await access.identify(request(signature())) == Identity(
        owner="partner", tenant="acme", roles=frozenset({"user"})
    )
    assert await access.identify(request(signature(OTHER, "other"))) == Identity(owner="o")
    assert await access.identify(presenting({})) is None
    assert (access.challenge, list(access.security)) == ('X-A2A-Signature realm="accord"', ["signature"])


async def test_the_only_key_needs_no_name(clock: Clock) -> None:
    access = HmacAccess(Hmac(keys={"partner": Secret(secret=SECRET)}), clock)
    assert await access.identify(request(signature(key_id=""))) == Identity(owner="partner")


@pytest.mark.parametrize(
    "more",
    [
        {"body": BODY + b" "},
        {"body": b""},
        {"method": "PUT"},
        {"target": "/a"},
        {"target": "/a?b=c&d=e"},
        {"target": "/b?b=c"},
    ],
)
async def test_a_request_that_was_changed_is_refused(more: dict[str, Any], access: HmacAccess) -> None:
    await refuse(access, request(signature(), **more))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "nonsense",
        signature(OTHER),
        signature(key_id="other"),
        signature(key_id="unknown"),
        signature(key_id=""),
        signature().replace(f"t={AT}", f"t={AT + 1}"),
        signature(nonce="a").replace("n=a", "n=b"),
        signature(nonce="a").replace("n=a,", ""),
        signature() + f",t={AT}",
        signature()[:-1],
        http_headers.sign_body(
            BODY, AT, [SECRET.encode()], key_id="partner"
        ),  # a webhook's signature is for no request
    ],
)
async def test_signatures_of_other_requests_are_refused(value: str, access: HmacAccess) -> None:
    await refuse(access, request(value))


@pytest.mark.parametrize(("age", "is_good"), [(0, True), (300, True), (301, False), (-300, True), (-301, False)])
async def test_a_signature_is_good_for_minutes(age: int, is_good: bool, access: HmacAccess, clock: Clock) -> None:
    clock.at = AT + age
    if is_good:
        assert await access.identify(request(signature())) is not None
    else:
        await refuse(access, request(signature()))


async def test_a_missing_body_is_requested_without_using_the_nonce(access: HmacAccess, clock: Clock) -> None:
    with pytest.raises(BodyNeeded):
        await access.identify(request(signature(), body=None))
    assert await access.identify(request(signature())) is not None
    clock.at = AT + 301
    await refuse(access, request(signature(), body=None))  # whatever it is, it would not help


async def test_the_same_request_is_refused_the_second_time(access: HmacAccess, clock: Clock) -> None:
    assert await access.identify(request(signature())) is not None
    for later in (0, 1, 299, 300):
        clock.at = AT + later
        await refuse(access, request(signature()))
    clock.at = AT + 300
    assert await access.identify(request(signature(at=AT + 300))) is not None


async def test_surrounding_whitespace_does_not_bypass_replay_checks(access: HmacAccess) -> None:
    value = signature()
    assert await access.identify(request(value)) is not None
    for disguised in (f"{value},v1={'0' * 64}", f"v0=x, {value}", value.replace(",", " , ")):
        await refuse(access, request(disguised))


async def test_a_nonce_makes_two_equal_requests_of_one_second_differ(access: HmacAccess) -> None:
    for nonce in ("", "a", "b"):
        assert await access.identify(request(signature(nonce=nonce))) is not None
        await refuse(access, request(signature(nonce=nonce)))


async def test_a_wrong_signature_does_not_use_up_the_right_one(access: HmacAccess) -> None:
    await refuse(access, request(signature(), body=b"tampered"))
    assert await access.identify(request(signature())) is not None


async def test_an_unknown_key_is_computed_with_too(access: HmacAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    proven: list[bytes] = []
    real = http_headers.find_digest

    def watched(signature: Any, body: bytes, secrets: tuple[bytes], **more: Any) -> str | None:
        proven.append(body)
        return real(signature, body, secrets, **more)

    monkeypatch.setattr(http_headers, "find_digest", watched)
    await refuse(access, request(signature(OTHER)))
    await refuse(access, request(signature(key_id="unknown")))
    assert proven == [BODY, BODY]


# --- several nodes ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def store() -> AsyncIterator[Meddler]:
    real = SqliteStore(None)
    await schema.upgrade_schema(real)
    yield Meddler(real)
    await real.close()


async def test_replays_are_refused_across_processes(store: Meddler, clock: Clock) -> None:
    settings = Hmac(keys={"partner": Secret(secret=SECRET), "again": Secret(secret=SECRET)})
    first, beside, next_one = (HMAC.build(settings, Ports(store=store, now=clock)) for _ in range(3))
    assert await first.identify(request(signature())) is not None
    for other in (first, beside, next_one):
        with pytest.raises(AuthenticationFailed):
            await other.identify(request(signature()))
    with pytest.raises(AuthenticationFailed):
        await beside.identify(request(signature(key_id="again")))  # nor is it another for another name of the key
    assert await beside.identify(request(signature(nonce="a"))) is not None
    with pytest.raises(AuthenticationFailed):
        await first.identify(request(signature(nonce="a")))


async def test_only_valid_new_signatures_are_stored(store: Meddler, clock: Clock) -> None:
    access = HmacAccess(Hmac(keys={"partner": Secret(secret=SECRET)}), clock, store)
    await refuse(access, request(signature(OTHER)))
    with pytest.raises(BodyNeeded):
        await access.identify(request(signature(), body=None))
    assert not store.begun
    await access.identify(request(signature()))
    await refuse(access, request(signature()))
    assert store.done == ["authentication.use_signature"]


async def test_store_outages_admit_no_signed_request(store: Meddler, clock: Clock) -> None:
    access = HmacAccess(Hmac(keys={"partner": Secret(secret=SECRET)}), clock, store)
    store.refuses = lambda _: True
    with pytest.raises(AgentUnavailable):
        await access.identify(request(signature()))


# --- what was seen ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abcdef"), st.integers(0, 3)), max_size=60))
def test_nothing_is_let_in_twice_however_little_is_remembered(steps: list[tuple[int, str, int]]) -> None:
    seen, accepted, now = UsedSignatures(size=5, window=10), set(), 100
    for offset, digest, passing in steps:
        now += passing
        at = now - 10 + offset
        if seen.add(at, digest, now):
            assert (at, digest) not in accepted
            accepted.add((at, digest))
        assert sum(map(len, seen._by_time.values())) == seen._count <= 5


def test_a_full_replay_cache_keeps_new_requests() -> None:
    seen = UsedSignatures(size=3, window=10)
    assert [seen.add(100 + at, "x", 100) for at in (0, 1, 2, 3)] == [True] * 4
    assert not seen.add(100, "y", 100)  # as old as what was given up: it may have been seen
    assert seen.add(101, "y", 100)
    assert seen.add(104, "y", 100)


def test_expired_signatures_are_forgotten() -> None:
    seen = UsedSignatures(size=1000, window=10)
    for now in range(100, 200):
        assert seen.add(now, "x", now)
    assert seen._count == 11
    assert sorted(seen._by_time) == list(range(189, 200))


def test_keys_are_needed() -> None:
    with pytest.raises(ValueError, match="keys"):
        HmacAccess(Hmac(keys={}))
