"""Credentials in the database: sealed, apart by tenant, and under a new key when there is one."""

from msgspec.structs import replace

from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewCredential, StoredCredential
from tests.storage.conftest import OTHER, TENANT, AnyStore

NEW = NewCredential(id="svc", key_id="k-1", kinds=("api_key", "ünïcode"), sealed=b"\x00sealed\xff")


async def test_a_credential_is_found_as_it_was_kept_by_its_tenant_alone(ready: AnyStore) -> None:
    await ready.do(authentication.put_credential, TENANT, NEW)
    found = await ready.read(authentication.find_credential, TENANT, "svc")
    assert found is not None
    assert found == StoredCredential(
        tenant=TENANT,
        id="svc",
        key_id="k-1",
        kinds=("api_key", "ünïcode"),
        sealed=NEW.sealed,
        created_at=found.created_at,
        updated_at=found.created_at,
    )
    assert await ready.read(authentication.find_credential, OTHER, "svc") is None
    assert await ready.read(authentication.list_credentials, OTHER) == []
    assert not await ready.do(authentication.remove_credential, OTHER, "svc")
    assert await ready.read(authentication.list_credentials, TENANT) == [found]


async def test_the_next_one_with_its_id_replaces_it(ready: AnyStore) -> None:
    for sealed in (b"1", b"2"):
        await ready.do(authentication.put_credential, TENANT, replace(NEW, sealed=sealed, kinds=(sealed.decode(),)))
    await ready.do(authentication.put_credential, TENANT, replace(NEW, id="a"))
    found = await ready.read(authentication.list_credentials, TENANT)
    assert [(one.id, one.sealed, one.kinds) for one in found] == [
        ("a", NEW.sealed, tuple(NEW.kinds)),
        ("svc", b"2", ("2",)),
    ]
    assert await ready.do(authentication.remove_credential, TENANT, "svc")
    assert not await ready.do(authentication.remove_credential, TENANT, "svc")


async def test_credentials_of_old_keys_are_resealed(ready: AnyStore) -> None:
    for tenant, id, key in ((TENANT, "a", "old"), (OTHER, "b", "older"), (TENANT, "c", "new")):
        await ready.do(authentication.put_credential, tenant, replace(NEW, id=id, key_id=key))
    old = await ready.read(authentication.list_credentials_to_reseal, "new", 10)
    assert [(one.tenant, one.id) for one in old] == [(TENANT, "a"), (OTHER, "b")]
    assert len(await ready.read(authentication.list_credentials_to_reseal, "new", 1)) == 1
    assert await ready.do(authentication.reseal_credential, old[0], "new", b"anew")
    await ready.do(authentication.put_credential, OTHER, replace(NEW, id="b", key_id="older", sealed=b"changed"))
    assert not await ready.do(authentication.reseal_credential, old[1], "new", b"anew")
    found = await ready.read(authentication.find_credential, TENANT, "a")
    assert found is not None
    assert (found.key_id, found.sealed, found.updated_at) == ("new", b"anew", old[0].updated_at)
