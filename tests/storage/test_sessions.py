"""Sessions of people: found by a hash, ended by the database's clock, by hand, or with the key they began with."""

from msgspec.structs import replace

from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewApiKey, NewSession, StoredSession
from accord.storage.store import Tx
from tests.storage.conftest import MINUTE, AnyStore

NEW = NewSession(
    hash="h-1", owner="alice", tenant="acme", roles=("user", "ünïcode"), scheme="basic", proof="p", lasts_ms=MINUTE
)
KEY = NewApiKey(id="k-1", hash="h", name="ci", owner="alice", tenant="acme", lasts_ms=2 * MINUTE)


async def pass_time(tx: Tx, milliseconds: int) -> None:
    """Make everything as old as if so much time had passed."""
    for table in ("session", "api_key"):
        await tx.run(f"UPDATE {table} SET expires_at = expires_at - :ms", ms=milliseconds)


async def test_a_session_is_found_by_its_hash_until_it_expires(ready: AnyStore) -> None:
    await ready.do(authentication.create_session, NEW)
    found = await ready.read(authentication.find_session, "h-1")
    assert found == StoredSession(
        owner="alice",
        tenant="acme",
        roles=("user", "ünïcode"),
        scheme="basic",
        key_id=None,
        proof="p",
        expires_at=found.expires_at if found else 0,
    )
    assert await ready.read(authentication.find_session, "H-1") is None
    await ready.do(pass_time, MINUTE)
    assert await ready.read(authentication.find_session, "h-1") is None


async def test_without_a_tenant_it_is_for_any(ready: AnyStore) -> None:
    await ready.do(authentication.create_session, replace(NEW, tenant=None))
    await ready.do(authentication.create_session, replace(NEW, hash="h-2", tenant=""))
    found = [await ready.read(authentication.find_session, hash) for hash in ("h-1", "h-2")]
    assert [one and one.tenant for one in found] == [None, ""]


async def test_it_is_ended_by_hand_alone(ready: AnyStore) -> None:
    await ready.do(authentication.create_session, NEW)
    await ready.do(authentication.create_session, replace(NEW, hash="h-2"))
    await ready.do(authentication.end_session, "h-1")
    await ready.do(authentication.end_session, "h-1")
    assert await ready.read(authentication.find_session, "h-1") is None
    assert await ready.read(authentication.find_session, "h-2") is not None


async def test_it_ends_with_its_key(ready: AnyStore) -> None:
    await ready.do(authentication.create_session, replace(NEW, key_id="k-1"))
    assert await ready.read(authentication.find_session, "h-1") is None, "there is no such key"
    await ready.do(authentication.create_api_key, KEY)
    assert await ready.read(authentication.find_session, "h-1") is not None
    await ready.do(authentication.revoke_api_key, "k-1")
    assert await ready.read(authentication.find_session, "h-1") is None


async def test_it_ends_when_its_key_expires(ready: AnyStore) -> None:
    await ready.do(authentication.create_api_key, KEY)
    await ready.do(authentication.create_session, replace(NEW, key_id="k-1", lasts_ms=10 * MINUTE))
    await ready.do(pass_time, 2 * MINUTE)
    assert await ready.read(authentication.find_session, "h-1") is None


async def test_the_expired_are_forgotten_in_batches(ready: AnyStore) -> None:
    for number in range(5):
        await ready.do(authentication.create_session, replace(NEW, hash=f"old-{number}"))
    await ready.do(pass_time, MINUTE)
    await ready.do(authentication.create_session, NEW)
    assert [await ready.do(authentication.purge_sessions, 3) for _ in range(3)] == [3, 2, 0]
    assert await ready.read(authentication.find_session, "h-1") is not None
