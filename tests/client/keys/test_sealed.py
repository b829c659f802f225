"""Credentials that a server keeps: nothing in the database opens them, and only their own place does."""

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from accord.client.auth import ApiKey, choose_auth
from accord.client.credentials import Credential, KeyManagementError, OAuthClient
from accord.client.credentials.sealed import CredentialSealer, SealedCredentials
from accord.storage import schema
from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewCredential
from accord.storage.sqlite.driver import SqliteStore
from tests.client.auth.test_choice import card

SECRET = "s3cret-that-nobody-may-see"
CREDENTIAL = Credential(api_key=SECRET, oauth=OAuthClient(client_id="i", client_secret=SECRET), hosts=("a.example",))
TENANT, OTHER = "acme", "globex"


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    found = SqliteStore(tmp_path / "accord.db")
    await schema.upgrade_schema(found)
    yield found
    await found.close()


async def test_sealed_credentials_are_scoped_to_their_tenant(store: SqliteStore) -> None:
    keys = SealedCredentials(store, CredentialSealer([new_key()]))
    await keys.put(TENANT, "A.example", CREDENTIAL)
    assert await keys.get(TENANT, "a.EXAMPLE") == CREDENTIAL
    assert await keys.get(OTHER, "a.example") is None
    asking = card("key")
    assert isinstance(choose_auth(asking, await keys.every(TENANT)), ApiKey)
    assert (await keys.every(OTHER)).find("a.example") is None
    assert await keys.remove(TENANT, "a.Example")
    assert await keys.get(TENANT, "a.example") is None
    for wrong in (("", CREDENTIAL), ("svc", Credential())):
        with pytest.raises(KeyManagementError):
            await keys.put(TENANT, *wrong)


@pytest.mark.proves("4-33")
async def test_nothing_of_it_is_in_the_database_a_list_or_a_repr(store: SqliteStore, tmp_path: Path) -> None:
    key = new_key()
    keys = SealedCredentials(store, CredentialSealer([key]))
    for _ in range(2):
        await keys.put(TENANT, "svc", CREDENTIAL)
    listed = await keys.listed(TENANT)
    assert [(one.id, one.kinds) for one in listed] == [("svc", ("api_key", "oauth", "hosts"))]
    known = await keys.every(TENANT)
    shown = f"{listed} {known!r} {known.find('svc')!r} {keys!r} {CredentialSealer([key])!r}"
    assert SECRET not in shown
    assert key not in shown
    kept = everything_in(tmp_path)
    assert b"svc" in kept
    assert SECRET.encode() not in kept
    assert base64.b64decode(key) not in kept


async def test_sealing_is_randomized_and_bound_to_its_place() -> None:
    seals = CredentialSealer([new_key()])
    first, second = (seals.seal(b"text", ("acme", "svc")) for _ in range(2))
    assert first != second
    assert seals.open(first, seals.newest, ("acme", "svc")) == b"text"
    damaged = [first[:at] + bytes([first[at] ^ 1]) + first[at + 1 :] for at in range(len(first))]
    for sealed, place in [
        (first, ("acme", "other")),
        (first, ("globex", "svc")),
        (first, ("acmes", "vc")),
        (first, ("acme",)),
        *((one, ("acme", "svc")) for one in [*damaged, b"", first[:-1], first + b"x"]),
    ]:
        with pytest.raises(KeyManagementError, match="changed, or moved to another place"):
            seals.open(sealed, seals.newest, place)


async def test_a_row_that_is_moved_to_another_tenant_does_not_open(store: SqliteStore) -> None:
    keys = SealedCredentials(store, CredentialSealer([new_key()]))
    await keys.put(TENANT, "svc", CREDENTIAL)
    stored = await store.read(authentication.find_credential, TENANT, "svc")
    assert stored is not None
    stolen = NewCredential(id="svc", key_id=stored.key_id, kinds=stored.kinds, sealed=stored.sealed)
    await store.do(authentication.put_credential, OTHER, stolen)
    with pytest.raises(KeyManagementError, match="another place"):
        await keys.get(OTHER, "svc")


async def test_keys_are_changed_without_a_gap(store: SqliteStore) -> None:
    old, new = new_key(), new_key()
    before, during, after = (
        SealedCredentials(store, CredentialSealer([old])),
        SealedCredentials(store, CredentialSealer([new, old])),
        SealedCredentials(store, CredentialSealer([new])),
    )
    for tenant in (TENANT, OTHER):
        for number in range(120):
            await before.put(tenant, f"svc-{number}", replace(CREDENTIAL, api_key=f"{tenant}-{number}"))
    await during.put(TENANT, "newer", CREDENTIAL)
    assert await during.get(TENANT, "svc-1") == await before.get(TENANT, "svc-1")
    with pytest.raises(KeyManagementError, match=r"newer: Unknown sealing key"):
        await before.get(TENANT, "newer")
    with pytest.raises(KeyManagementError, match="Unknown sealing key"):
        await after.get(TENANT, "svc-1")
    assert await during.rotate() == 240
    assert await during.rotate() == 0
    for tenant in (TENANT, OTHER):
        found = await after.get(tenant, "svc-119")
        assert found is not None
        assert found.api_key == f"{tenant}-119"


async def test_without_the_key_credentials_are_not_overwritten(store: SqliteStore) -> None:
    await SealedCredentials(store, CredentialSealer([new_key()])).put(TENANT, "svc", CREDENTIAL)
    with pytest.raises(KeyManagementError, match="Unknown sealing key"):
        await SealedCredentials(store, CredentialSealer([new_key()])).rotate()


def test_keys_are_32_bytes_in_base64_or_hex() -> None:
    raw = bytes(range(224, 256))
    spelled = [
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode().rstrip("=") + "\n",
        raw.hex(),
    ]
    assert len({CredentialSealer([text]).newest for text in spelled}) == 1
    for wrong in ("", "password", base64.b64encode(raw[:31]).decode(), "!" * 44, "g" * 64):
        with pytest.raises(KeyManagementError, match="32 random bytes") as refused:
            CredentialSealer([wrong])
        assert not wrong or wrong not in str(refused.value)
    with pytest.raises(KeyManagementError, match="ACCORD_CREDENTIALS__KEYS"):
        CredentialSealer([])
