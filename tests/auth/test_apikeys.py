"""API keys: who holds one, what is remembered, and how little is kept."""

import hashlib
import hmac
import re
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from accord.a2a import Admission
from accord.auth import api_keys as scheme_module
from accord.auth.api_keys import ApiKeyAccess, new_key
from accord.auth.authentication import Identity, Presented
from accord.auth.scheme_settings import ApiKeys
from accord.errors import AgentUnavailable, AuthenticationFailed
from accord.storage import schema
from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewApiKey, StoredApiKey
from accord.storage.sqlite.driver import SqliteStore
from tests.auth.conftest import Clock, bringing, whom
from tests.engine.doubles import Meddler

MADE = new_key()
NEW = NewApiKey(id=MADE.id, hash=MADE.hash, name="ci", owner="alice", tenant="acme", roles=("user", "reader"))
ALICE = Identity(owner="alice", tenant="acme", roles=frozenset({"user", "reader"}))
WRONG = MADE.key[:-43] + "A" * 43
UNKNOWN = new_key().key

pytestmark = pytest.mark.proves("4-27")


@pytest.fixture
async def store() -> AsyncIterator[Meddler]:
    """A store with one key, which notes what is asked of it."""
    real = SqliteStore(None)
    await schema.upgrade_schema(real)
    await real.do(authentication.create_api_key, NEW)
    yield Meddler(real)
    await real.close()


@pytest.fixture
def access(store: Meddler, clock: Clock) -> ApiKeyAccess:
    return ApiKeyAccess(ApiKeys(), store, clock)


async def refused(access: ApiKeyAccess, presented: Presented) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as failure:
        await access.identify(presented)
    return failure.value


async def kept(store: Meddler) -> StoredApiKey:
    found = await store.real.read(authentication.find_api_key, MADE.id)
    assert found is not None
    return found


def test_a_key_is_recognizable_random_and_kept_as_a_hash() -> None:
    first, second = new_key(), new_key()
    assert re.fullmatch(r"ak_[0-9a-f]{16}_[A-Za-z0-9_-]{43}", first.key)  # 43 characters of base64 are 256 bits
    assert first.id in first.key
    assert first.hash == hashlib.sha256(first.key[-43:].encode()).hexdigest()
    assert len({first.id, second.id, first.key, second.key}) == 4
    assert first.key[-43:] not in repr(first)


@pytest.mark.proves("2-08", "2-09", "3-33")
async def test_a_key_is_taken_from_its_header_or_as_a_bearer_token(access: ApiKeyAccess) -> None:
    assert await whom(access, bringing(X_API_Key=MADE.key)) == ALICE
    assert await whom(access, bringing(x_api_key=f" {MADE.key} ")) == ALICE
    assert await whom(access, bringing(Authorization=f"Bearer {MADE.key}")) == ALICE


@pytest.mark.proves("4-28")
async def test_the_header_can_have_another_name(store: Meddler, clock: Clock) -> None:
    access = ApiKeyAccess(ApiKeys(header="X-Acme-Key"), store, clock)
    assert await whom(access, bringing(X_Acme_Key=MADE.key)) == ALICE
    assert await access.identify(bringing(X_API_Key=MADE.key)) is None
    assert access.security["apiKey"].api_key_security_scheme is not None
    assert access.security["apiKey"].api_key_security_scheme.name == "X-Acme-Key"


async def test_other_values_are_left_to_other_schemes(access: ApiKeyAccess, store: Meddler) -> None:
    for presented in (bringing(), bringing(Authorization="Bearer a.b.c"), bringing(Authorization="Basic ak_x")):
        assert await access.identify(presented) is None
    assert store.begun == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ak_",
        "nonsense",
        MADE.key + "x",
        MADE.key[:-1],
        MADE.key.upper(),
        MADE.key.replace("ak_", "AK_", 1),
        MADE.key.replace(MADE.id, "../" + MADE.id[3:]),
        MADE.key.replace(MADE.id, "' OR 1=1 --   x"),
        "ak_" + "0" * 100_000,
    ],
    ids=("nothing", "prefix", "word", "longer", "shorter", "upper", "upper-prefix", "path", "quote", "huge"),
)
async def test_malformed_keys_are_refused_without_the_store(text: str, access: ApiKeyAccess, store: Meddler) -> None:
    await refused(access, bringing(X_API_Key=text))
    assert store.begun == []


@pytest.mark.proves("3-21")
async def test_a_wrong_key_is_refused_like_an_unknown_one(access: ApiKeyAccess) -> None:
    failures = [await refused(access, bringing(X_API_Key=key)) for key in (WRONG, UNKNOWN, "nonsense")]
    assert {(failure.message, failure.challenges) for failure in failures} == {
        ("The credentials are missing or invalid", ('Bearer realm="accord", error="invalid_token"',))
    }


async def test_wrong_and_unknown_keys_take_the_same_path(access: ApiKeyAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for key in (WRONG, UNKNOWN, WRONG, UNKNOWN):
        await refused(access, bringing(X_API_Key=key))
    assert len(compared) == 4
    assert {len(text) for pair in compared for text in pair} == {64}


async def test_a_hot_key_is_read_once_in_a_while(access: ApiKeyAccess, store: Meddler, clock: Clock) -> None:
    for _ in range(100):
        assert await whom(access, bringing(X_API_Key=MADE.key)) == ALICE
    assert store.begun.count("authentication.find_api_key") == 1
    clock.at += 5
    assert await whom(access, bringing(X_API_Key=MADE.key)) == ALICE
    assert store.begun.count("authentication.find_api_key") == 2


async def test_a_key_that_is_remembered_is_compared_all_the_same(access: ApiKeyAccess) -> None:
    assert await whom(access, bringing(X_API_Key=MADE.key)) == ALICE
    await refused(access, bringing(X_API_Key=WRONG))
    assert await whom(access, bringing(X_API_Key=MADE.key)) == ALICE


async def test_a_revoked_key_is_refused_within_seconds(access: ApiKeyAccess, store: Meddler, clock: Clock) -> None:
    assert await whom(access, bringing(X_API_Key=MADE.key)) == ALICE
    await store.real.do(authentication.revoke_api_key, MADE.id)
    clock.at += 5
    await refused(access, bringing(X_API_Key=MADE.key))


async def test_an_expired_key_is_refused(store: Meddler, clock: Clock) -> None:
    made = new_key()
    await store.real.do(authentication.create_api_key, replace(NEW, id=made.id, hash=made.hash, lasts_ms=-1))
    await refused(ApiKeyAccess(ApiKeys(), store, clock), bringing(X_API_Key=made.key))


async def test_guessing_neither_asks_twice_nor_pushes_out_real_keys(
    access: ApiKeyAccess, store: Meddler, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(scheme_module, "UNKNOWN", 10)
    access = ApiKeyAccess(ApiKeys(), store, clock)
    assert await whom(access, bringing(X_API_Key=MADE.key)) == ALICE
    for _ in range(3):
        await refused(access, bringing(X_API_Key=UNKNOWN))
    assert store.begun.count("authentication.find_api_key") == 2
    for _ in range(50):
        await refused(access, bringing(X_API_Key=new_key().key))
    assert store.begun.count("authentication.find_api_key") == 52
    assert len(access._unknown) == 10
    assert await whom(access, bringing(X_API_Key=MADE.key)) == ALICE
    assert store.begun.count("authentication.find_api_key") == 52


async def test_use_is_noted_once_in_an_hour_and_only_of_the_right_key(
    access: ApiKeyAccess, store: Meddler, clock: Clock
) -> None:
    await refused(access, bringing(X_API_Key=WRONG))
    assert (await kept(store)).used_at is None
    for _ in range(3):
        await access.identify(bringing(X_API_Key=MADE.key))
        clock.at += 60
    assert (await kept(store)).used_at is not None
    assert store.begun.count("authentication.touch_api_key") == 1
    clock.at += 3600
    await access.identify(bringing(X_API_Key=MADE.key))
    assert store.begun.count("authentication.touch_api_key") == 2


async def test_store_outages_are_503_and_not_401(access: ApiKeyAccess, store: Meddler, clock: Clock) -> None:
    store.refuses = lambda name: name == "authentication.find_api_key"
    for _ in range(2):
        with pytest.raises(AgentUnavailable) as failure:
            await access.identify(bringing(X_API_Key=MADE.key))
        assert failure.value.retry_after == 1
    store.refuses = lambda name: name == "authentication.touch_api_key"
    assert await whom(access, bringing(X_API_Key=MADE.key)) == ALICE


async def test_a_key_of_no_tenant_roams(store: Meddler, clock: Clock) -> None:
    made = new_key()
    await store.real.do(authentication.create_api_key, replace(NEW, id=made.id, hash=made.hash, tenant=None, roles=()))
    found = await whom(ApiKeyAccess(ApiKeys(), store, clock), bringing(X_API_Key=made.key))
    assert found == Identity(owner="alice", tenant=None, roles=frozenset())


async def test_admissions_carry_key_and_expiry(store: Meddler, clock: Clock) -> None:
    made = new_key()
    key = await store.real.do(authentication.create_api_key, replace(NEW, id=made.id, hash=made.hash, lasts_ms=60_000))
    access = ApiKeyAccess(ApiKeys(remember_seconds=0), store, clock)
    found = await access.identify(bringing(X_API_Key=made.key))
    assert found is not None
    assert found.ticket == Admission(kind="api-keys", id=made.id, until=key.expires_at, key_id=made.id)
    assert await access.is_good(made.id)
    await store.real.do(authentication.revoke_api_key, made.id)
    assert not await access.is_good(made.id)
    assert not await access.is_good("0" * 16)
