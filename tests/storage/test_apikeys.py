"""Keys of callers: kept by id, expired and revoked by the database's clock."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewApiKey, NewSession, StoredApiKey
from accord.storage.store import Tx
from tests.storage.conftest import MINUTE, AnyStore

NEW = NewApiKey(id="k-1", hash="h", name="ci", owner="alice", tenant="acme", roles=("user", "ünïcode"), lasts_ms=MINUTE)


async def pass_time(tx: Tx, milliseconds: int) -> None:
    """Make every key as old as if so much time had passed."""
    for column in ("created_at", "expires_at", "used_at", "revoked_at"):
        await tx.run(f"UPDATE api_key SET {column} = {column} - :ms", ms=milliseconds)


async def test_a_key_is_found_by_its_id_as_it_was_made(ready: AnyStore) -> None:
    made = await ready.do(authentication.create_api_key, NEW)
    assert await ready.read(authentication.find_api_key, "k-1") == made
    assert made == StoredApiKey(
        id="k-1",
        hash="h",
        name="ci",
        owner="alice",
        tenant="acme",
        roles=("user", "ünïcode"),
        created_at=made.created_at,
        expires_at=made.created_at + MINUTE,
        used_at=None,
        revoked_at=None,
        is_live=True,
    )
    assert await ready.read(authentication.find_api_key, "k-2") is None
    assert await ready.read(authentication.find_api_key, "K-1") is None
    assert "'h'" not in repr(made)


async def test_without_a_tenant_it_is_for_any_and_without_an_end_for_ever(ready: AnyStore) -> None:
    await ready.do(authentication.create_api_key, replace(NEW, tenant=None, roles=(), lasts_ms=None))
    await ready.do(pass_time, 10 * 365 * 24 * 60 * MINUTE)
    found = await ready.read(authentication.find_api_key, "k-1")
    assert found is not None
    assert (found.tenant, found.roles, found.expires_at, found.is_live) == (None, (), None, True)
    await ready.do(authentication.create_api_key, replace(NEW, id="k-2", tenant=""))
    second = await ready.read(authentication.find_api_key, "k-2")
    assert second is not None
    assert second.tenant == ""


async def test_no_key_replaces_another(ready: AnyStore) -> None:
    await ready.do(authentication.create_api_key, NEW)
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        await ready.do(authentication.create_api_key, replace(NEW, hash="other", tenant="globex"))
    found = await ready.read(authentication.find_api_key, "k-1")
    assert found is not None
    assert found.hash == "h"


async def test_a_key_expires(ready: AnyStore) -> None:
    await ready.do(authentication.create_api_key, NEW)
    await ready.do(pass_time, MINUTE)
    found = await ready.read(authentication.find_api_key, "k-1")
    assert found is not None
    assert not found.is_live
    assert found.revoked_at is None


async def test_a_key_is_revoked_for_good(ready: AnyStore) -> None:
    for id in ("k-1", "k-2"):
        await ready.do(authentication.create_api_key, replace(NEW, id=id))
    assert await ready.do(authentication.revoke_api_key, "k-1") is True
    first = await ready.read(authentication.find_api_key, "k-1")
    assert first is not None
    assert (first.is_live, first.revoked_at is not None) == (False, True)
    await ready.do(pass_time, 1000)
    assert await ready.do(authentication.revoke_api_key, "k-1") is True
    again = await ready.read(authentication.find_api_key, "k-1")
    assert again is not None
    assert again.revoked_at == (first.revoked_at or 0) - 1000
    assert await ready.do(authentication.revoke_api_key, "nobody's") is False
    other = await ready.read(authentication.find_api_key, "k-2")
    assert other is not None
    assert other.is_live


async def test_use_is_noted_but_not_all_the_time(ready: AnyStore) -> None:
    await ready.do(authentication.create_api_key, NEW)

    async def used_at() -> int | None:
        found = await ready.read(authentication.find_api_key, "k-1")
        assert found is not None
        return found.used_at

    assert await used_at() is None
    await ready.do(authentication.touch_api_key, "k-1", MINUTE)
    first = await used_at()
    assert first is not None
    await ready.do(authentication.touch_api_key, "k-1", MINUTE)
    assert await used_at() == first
    await ready.do(pass_time, MINUTE + 1000)
    await ready.do(authentication.touch_api_key, "k-1", MINUTE)
    assert (await used_at() or 0) >= first
    await ready.do(authentication.touch_api_key, "nobody's", MINUTE)


async def test_keys_are_listed_the_newest_first(ready: AnyStore) -> None:
    for id in ("k-1", "k-2", "k-3"):
        await ready.do(pass_time, 1000)
        await ready.do(authentication.create_api_key, replace(NEW, id=id))
    await ready.do(authentication.revoke_api_key, "k-2")
    assert [(key.id, key.is_live) for key in await ready.read(authentication.list_api_keys)] == [
        ("k-3", True),
        ("k-2", False),
        ("k-1", True),
    ]


async def test_many_revoke_and_use_a_key_at_once(ready: AnyStore) -> None:
    await ready.do(authentication.create_api_key, NEW)
    work: list[Any] = [ready.do(authentication.revoke_api_key, "k-1") for _ in range(5)]
    work += [ready.do(authentication.touch_api_key, "k-1", 0) for _ in range(5)]
    assert (await asyncio.gather(*work))[:5] == [True] * 5
    found = await ready.read(authentication.find_api_key, "k-1")
    assert found is not None
    assert not found.is_live


async def test_owners_have_their_own_keys(ready: AnyStore) -> None:
    async def make(id: str, owner: str, tenant: str | None, lasts_ms: int | None = None) -> None:
        await ready.do(
            authentication.create_api_key,
            NewApiKey(id=id, hash="h", name="", owner=owner, tenant=tenant, lasts_ms=lasts_ms),
        )

    async def held(owner: str, tenant: str | None) -> list[str]:
        return sorted(key.id for key in await ready.read(authentication.list_owner_api_keys, owner, tenant))

    await make("a1", "alice", "acme")
    await make("a2", "alice", "acme")
    await make("a3", "alice", "acme", lasts_ms=-1)
    await make("a4", "alice", "globex")
    await make("a5", "alice", None)
    await make("b1", "bob", "acme")
    assert await held("alice", "acme") == ["a1", "a2"]
    assert await held("alice", None) == ["a5"]
    assert await held("alice", "") == []
    for id in ("a3", "a4", "a5", "b1", "nobody's"):
        assert not await ready.do(authentication.revoke_owner_api_key, id, "alice", "acme")
    assert await ready.do(authentication.revoke_owner_api_key, "a1", "alice", "acme")
    assert not await ready.do(authentication.revoke_owner_api_key, "a1", "alice", "acme")
    assert await held("alice", "acme") == ["a2"]
    assert await held("bob", "acme") == ["b1"]


async def test_a_key_is_good_as_long_as_all_that_it_comes_from(ready: AnyStore) -> None:
    line = ["a" * 16, "a" * 16 + "b" * 16, "a" * 16 + "b" * 16 + "c" * 16, "a" * 64]
    for id in (*line, "a" * 15 + "b"):
        await ready.do(authentication.create_api_key, replace(NEW, id=id))
    session = NewSession(hash="s", owner="alice", tenant="", roles=(), scheme="k", key_id=line[2], lasts_ms=MINUTE)
    await ready.do(authentication.create_session, session)

    async def live() -> list[str]:
        return sorted(key.id for key in await ready.read(authentication.list_api_keys) if key.is_live)

    assert await ready.read(authentication.find_session, "s") is not None
    assert await ready.do(authentication.revoke_api_key, line[1])
    assert await live() == sorted([line[0], line[3], "a" * 15 + "b"])
    assert await ready.read(authentication.find_session, "s") is None
    revoked = [await ready.read(authentication.find_api_key, id) for id in line[1:3]]
    assert len({key and key.revoked_at for key in revoked} - {None}) == 1
    assert await ready.do(authentication.revoke_api_key, line[0])
    assert await live() == ["a" * 15 + "b"]


async def test_keys_end_at_their_expiry(ready: AnyStore) -> None:
    first = await ready.do(authentication.create_api_key, NEW)
    bound = (first.expires_at or 0) + MINUTE
    for lasts, until in ((None, bound), (9 * MINUTE, bound), (None, None)):
        made = await ready.do(
            authentication.create_api_key, replace(NEW, id=f"{lasts}-{until}", lasts_ms=lasts, until=until)
        )
        assert made.expires_at == until
    short = await ready.do(authentication.create_api_key, replace(NEW, id="short", lasts_ms=1000, until=bound))
    assert short.expires_at == short.created_at + 1000
