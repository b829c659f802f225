"""Large parts: every place keeps the same promises, and what is stored without them is read back with them."""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import boto3  # type: ignore[import-untyped]
import moto.settings
import msgspec
import pytest
from moto.server import ThreadedMotoServer

from accord.model import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from accord.storage import schema
from accord.storage.blobs import BlobCorrupt, BlobMissing, Blobs, LargeParts, open_blobs, sweep
from accord.storage.blobs.blob_store import BackendBlobs, Shelf, open_backend
from accord.storage.commands.blobs import (
    add_references,
    begin_removal,
    list_unreferenced,
    put_blob_row,
    read_blob,
    release_references,
    sizes,
)
from accord.storage.store import StoreUnavailable, Tx
from tests.server.examined import FAILED, OK, examined
from tests.storage.conftest import AnyStore

TENANT = "acme"
BOUND_SECONDS = 60
BUCKET = "parts"
DATA = bytes(range(256)) * 300
HASH = hashlib.sha256(DATA).hexdigest()
ABSENT = hashlib.sha256(b"never put").hexdigest()
TENANTS = ["acme", "ACME", "", "..", "../acme", "a/b", "/", "ä\n", "x" * 300]

every_place = pytest.mark.parametrize(
    ("store", "place"),
    [
        ("sqlite-file", "table"),
        ("sqlite-memory", "table"),
        ("postgres", "table"),
        ("sqlite-file", "directory"),
        ("postgres", "directory"),
        ("sqlite-memory", "s3"),
        ("postgres", "s3"),
    ],
    indirect=["store"],
)
in_memory = pytest.mark.parametrize("store", ["sqlite-memory"], indirect=True)


class Server(NamedTuple):
    """An S3 that checks signatures, and who may use it."""

    endpoint: str
    env: Mapping[str, str]

    def url(self, prefix: str = "") -> str:
        return f"s3://{BUCKET}/{prefix}?endpoint={self.endpoint}&region=eu-west-1"


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    before = moto.settings.INITIAL_NO_AUTH_ACTION_COUNT
    env = _user(endpoint)
    moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = 0  # from here on every signature is checked
    try:
        yield Server(endpoint, env)
    finally:
        moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = before
        server.stop()


def _user(endpoint: str) -> Mapping[str, str]:
    """Make a bucket and a user who may use it."""
    anybody = {"endpoint_url": endpoint, "aws_access_key_id": "x", "aws_secret_access_key": "x"}
    boto3.client("s3", region_name="us-east-1", **anybody).create_bucket(Bucket=BUCKET)
    iam = boto3.client("iam", region_name="us-east-1", **anybody)
    iam.create_user(UserName="accord")
    allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_user_policy(UserName="accord", PolicyName="all", PolicyDocument=json.dumps(allowed))
    key = iam.create_access_key(UserName="accord")["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}


@pytest.fixture
async def ready(store: AnyStore) -> AnyStore:
    await schema.upgrade_schema(store)
    return store


@pytest.fixture
def address(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Mapping[str, str]]:
    """Where an empty place of each kind is."""
    if place == "s3":
        server: Server = request.getfixturevalue("s3")
        return server.url(tmp_path.name), server.env
    return (f"dir://{tmp_path}/blobs" if place == "directory" else "table:"), {}


@pytest.fixture
async def blobs(ready: AnyStore, address: tuple[str, Mapping[str, str]]) -> AsyncIterator[Blobs]:
    """A place from which bytes may be removed at once."""
    found = open_blobs(address[0], ready, address[1], grace_ms=0)
    yield found
    await found.close()


@pytest.fixture
async def reopened(ready: AnyStore, address: tuple[str, Mapping[str, str]]) -> AsyncIterator[Blobs]:
    """The same place, as it is opened usually."""
    found = open_blobs(address[0], ready, address[1])
    yield found
    await found.close()


async def has(blobs: Blobs, hash: str, tenant: str = TENANT) -> bool:
    try:
        return hashlib.sha256(await blobs.get(tenant, hash)).hexdigest() == hash
    except BlobMissing:
        return False


# What every place promises


@every_place
async def test_bytes_are_found_by_their_hash(blobs: Blobs) -> None:
    assert await blobs.put(TENANT, DATA) == HASH
    assert await blobs.get(TENANT, HASH) == DATA
    assert await blobs.put(TENANT, DATA) == HASH
    assert await blobs.get(TENANT, await blobs.put(TENANT, b"")) == b""


@every_place
async def test_megabytes_are_kept(blobs: Blobs) -> None:
    data = os.urandom(5_000_000)
    assert await blobs.get(TENANT, await blobs.put(TENANT, data)) == data


@every_place
async def test_many_may_put_the_same_bytes_at_once(blobs: Blobs) -> None:
    assert set(await asyncio.gather(*(blobs.put(TENANT, DATA) for _ in range(20)))) == {HASH}
    assert await blobs.get(TENANT, HASH) == DATA


@every_place
async def test_unwritten_blobs_are_missing(blobs: Blobs) -> None:
    for hash in (ABSENT, "", "../../etc/passwd", HASH.upper()):
        with pytest.raises(BlobMissing):
            await blobs.get(TENANT, hash)
        await blobs.delete(TENANT, hash)


@every_place
async def test_every_tenant_has_its_own(blobs: Blobs) -> None:
    for at, tenant in enumerate(TENANTS):
        assert [await has(blobs, HASH, name) for name in TENANTS] == [True] * at + [False] * (len(TENANTS) - at)
        await blobs.put(tenant, DATA)
    await blobs.delete(TENANTS[0], HASH)
    assert [await has(blobs, HASH, name) for name in TENANTS] == [False] + [True] * (len(TENANTS) - 1)


@every_place
async def test_only_unreferenced_blobs_are_removed(blobs: Blobs, ready: AnyStore) -> None:
    shared, mine, yours = [await blobs.put(TENANT, name) for name in (b"shared", b"mine", b"yours")]
    await blobs.put("another", b"mine")
    await ready.do(add_references, TENANT, "t-1", [shared, mine, mine])
    await ready.do(add_references, TENANT, "t-2", [shared, yours])
    await ready.do(add_references, TENANT, "t-2", [shared])
    await ready.do(add_references, "another", "t-1", [mine])
    for hash in (shared, mine, yours):
        await blobs.delete(TENANT, hash)
    assert [await has(blobs, hash) for hash in (shared, mine, yours)] == [True, True, True]

    assert await remove_task(ready, blobs, "t-1") == [mine]
    assert [await has(blobs, hash) for hash in (shared, mine, yours)] == [True, False, True]
    assert await has(blobs, mine, "another")
    assert await remove_task(ready, blobs, "t-1") == []
    assert await remove_task(ready, blobs, "t-2") == sorted([shared, yours])
    assert [await has(blobs, hash) for hash in (shared, mine, yours)] == [False, False, False]
    assert await ready.read(list_unreferenced, 10, 0) == []


async def remove_task(store: AnyStore, blobs: Blobs, task_id: str) -> list[str]:
    freed = await store.do(release_references, TENANT, task_id, grace_ms=0)
    for hash in freed:
        await blobs.delete(TENANT, hash)
    return freed


async def long_ago(tx: Tx) -> None:
    await tx.run("UPDATE blob SET at = at - 2 * 3600 * 1000")


@every_place
@pytest.mark.parametrize("again", [True, False])
async def test_new_blobs_are_not_removed(ready: AnyStore, blobs: Blobs, reopened: Blobs, again: bool) -> None:
    await blobs.put(TENANT, DATA)
    await ready.do(add_references, TENANT, "t-1", [HASH])
    await ready.do(long_ago)
    if again:
        await blobs.put(TENANT, DATA)  # by another task, which is about to refer to it
    assert await ready.do(release_references, TENANT, "t-1") == [HASH]
    await reopened.delete(TENANT, HASH)
    await sweep(ready, reopened)
    assert await has(blobs, HASH) is again


@every_place
async def test_unreferenced_blobs_are_collected(blobs: Blobs, ready: AnyStore) -> None:
    lost = [await blobs.put(TENANT, str(at).encode()) for at in range(3)]
    await blobs.put(TENANT, DATA)
    await ready.do(add_references, TENANT, "t-1", [HASH])
    assert await sweep(ready, blobs, grace_ms=0) == len(lost)
    assert [await has(blobs, hash) for hash in (*lost, HASH)] == [False, False, False, True]
    assert await sweep(ready, blobs, grace_ms=0) == 0


@every_place
async def test_a_task_is_stored_without_its_large_parts_and_read_with_them(blobs: Blobs, ready: AnyStore) -> None:
    parts = await LargeParts.open(ready, blobs)
    large = (Part(raw=DATA, media_type="image/png"), Part(text="and"), Part(raw=DATA[1:]), Part(raw=DATA))
    task = Task(
        id="t-1",
        status=TaskStatus(state=TaskState.COMPLETED, message=message(Part(raw=DATA[2:]))),
        artifacts=(Artifact(artifact_id="a", parts=large), Artifact(artifact_id="b", parts=(Part(text="small"),))),
        history=(message(Part(raw=b"small")), message(Part(raw=DATA[3:]))),
    )
    stored, hashes = await parts.detach(TENANT, task)
    assert sorted(hashes) == sorted(hashlib.sha256(DATA[at:]).hexdigest() for at in range(4))
    text = msgspec.json.encode(stored).decode()
    assert parts.marker in text
    assert len(text) < 2000
    assert (await parts.detach(TENANT, stored))[1] == hashes, "a stored value still says what it refers to"
    assert (await parts.detach(TENANT, stored))[0] is stored
    assert await parts.attach(TENANT, msgspec.json.decode(text, type=Task)) == task
    with pytest.raises(BlobMissing):
        await parts.attach("another", stored)


def message(*parts: Part) -> Message:
    return Message(message_id="m", role=Role.USER, parts=parts)


# The table


async def test_the_tables_bytes_go_with_the_transaction_that_releases_them(ready: AnyStore) -> None:
    blobs = open_blobs("table:", ready, {})
    await blobs.put(TENANT, DATA)
    await ready.do(add_references, TENANT, "t-1", [HASH])

    async def release_and_fail(tx: Tx) -> None:
        assert await release_references(tx, TENANT, "t-1", grace_ms=0) == [HASH]
        assert await read_blob(tx, TENANT, HASH) is None
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await ready.do(release_and_fail)
    assert await blobs.get(TENANT, HASH) == DATA
    assert await ready.do(release_references, TENANT, "t-1", grace_ms=0) == [HASH]
    assert await ready.read(read_blob, TENANT, HASH) is None


async def test_the_last_released_task_frees_shared_blobs(ready: AnyStore) -> None:
    tasks = [f"t-{at}" for at in range(6)]
    await asyncio.gather(*(ready.do(add_references, TENANT, task, [HASH, ABSENT]) for task in tasks))
    freed = await asyncio.gather(*(ready.do(release_references, TENANT, task) for task in tasks))
    assert sorted(map(len, freed)) == [0, 0, 0, 0, 0, 2]


@in_memory
async def test_bytes_that_changed_in_the_table_are_found_out(ready: AnyStore) -> None:
    blobs = open_blobs("table:", ready, {})
    await blobs.put(TENANT, DATA)

    async def change(tx: Tx) -> None:
        await tx.run("UPDATE blob SET data = :data", data=DATA[1:])

    await ready.do(change)
    with pytest.raises(BlobCorrupt, match=HASH):
        await blobs.get(TENANT, HASH)


# Outside of the store


class Gate:
    """A shelf in memory whose removals wait, or fail."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.removing = asyncio.Event()
        self.may_remove = asyncio.Event()
        self.broken = False

    async def write(self, name: str, data: bytes, hash: str) -> None:
        self.kept[name] = data

    async def read(self, name: str) -> bytes | None:
        return self.kept.get(name)

    async def remove(self, name: str) -> None:
        self.removing.set()
        await asyncio.wait_for(self.may_remove.wait(), BOUND_SECONDS)
        if self.broken:
            raise StoreUnavailable("no")
        self.kept.pop(name, None)

    async def close(self) -> None:
        pass


async def test_bytes_that_are_put_while_they_are_being_removed_are_not_lost(ready: AnyStore) -> None:
    shelf = Gate()
    blobs = BackendBlobs(ready, shelf, grace_ms=0)
    await blobs.put(TENANT, DATA)
    removal = asyncio.create_task(blobs.delete(TENANT, HASH))
    await asyncio.wait_for(shelf.removing.wait(), BOUND_SECONDS)
    again = asyncio.create_task(blobs.put(TENANT, DATA))
    await blobs.put(TENANT, b"something else")  # by when the other one has found the removal, or will
    assert not again.done()
    shelf.may_remove.set()
    await asyncio.wait_for(asyncio.gather(removal, again), BOUND_SECONDS)
    assert await blobs.get(TENANT, HASH) == DATA


async def test_a_removal_that_was_cut_off_is_finished_by_the_next_sweep(ready: AnyStore) -> None:
    shelf = Gate()
    shelf.may_remove.set()
    blobs = BackendBlobs(ready, shelf, grace_ms=0)
    await blobs.put(TENANT, DATA)
    shelf.broken = True
    with pytest.raises(StoreUnavailable):
        await blobs.delete(TENANT, HASH)
    shelf.broken = False
    assert await sweep(ready, blobs) == 1, "without a grace period: the removal has begun"
    assert shelf.kept == {}


async def test_stale_removals_block_nothing(ready: AnyStore) -> None:
    await ready.do(put_blob_row, TENANT, HASH, len(DATA))
    assert await ready.do(begin_removal, TENANT, HASH, grace_ms=0) is not None

    async def a_minute_passes(tx: Tx) -> None:
        await tx.run("UPDATE blob SET at = at + 61000")  # a time below zero: this is earlier

    await ready.do(a_minute_passes)
    blobs = BackendBlobs(ready, Gate())
    await blobs.put(TENANT, DATA)
    assert await blobs.get(TENANT, HASH) == DATA


@in_memory
async def test_table_blobs_stay_readable_after_a_move(ready: AnyStore, tmp_path: Path) -> None:
    await open_blobs("table:", ready, {}).put(TENANT, DATA)
    blobs = open_blobs(str(tmp_path), ready, {}, grace_ms=0)
    assert await blobs.get(TENANT, HASH) == DATA
    await blobs.put(TENANT, DATA)
    assert sum(len(files) for _, _, files in os.walk(tmp_path)) == 0, "the table has them already"
    await blobs.delete(TENANT, HASH)
    assert not await has(blobs, HASH)


# S3


def bucket(server: Server, name: str = BUCKET, secret_key: str = "", prefix: str = "") -> Shelf:
    env = {**server.env, "AWS_SECRET_ACCESS_KEY": secret_key or server.env["AWS_SECRET_ACCESS_KEY"]}
    return open_backend(f"s3://{name}/{quote(prefix)}?endpoint={server.endpoint}&region=r", env)


async def test_a_prefix_may_hold_anything(s3: Server) -> None:
    shelf = bucket(s3, prefix="ä b+c/$(d)%41~")
    await shelf.write("t/aa/bb", DATA, HASH)
    assert await shelf.read("t/aa/bb") == DATA
    await shelf.remove("t/aa/bb")
    await shelf.remove("t/aa/bb")
    assert await shelf.read("t/aa/bb") is None
    await shelf.close()


async def test_a_bucket_that_cannot_be_used_is_unavailable_not_empty(s3: Server) -> None:
    for shelf, reason in (
        (bucket(s3, secret_key="guessed"), "SignatureDoesNotMatch"),
        (bucket(s3, name="nowhere"), "NoSuchBucket"),
    ):
        for work in (shelf.read("t/aa/bb"), shelf.write("t/aa/bb", DATA, HASH)):
            with pytest.raises(StoreUnavailable, match=reason):
                await work
        await shelf.close()


async def test_a_doctor_finds_out_whether_a_bucket_can_be_used(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (await examined(blobs=s3.url(), env=dict(s3.env))).one("files")[0] is OK
    guessed = {**s3.env, "AWS_SECRET_ACCESS_KEY": "guessed"}
    for url, env, reason in ((s3.url(), guessed, "SignatureDoesNotMatch"), (s3.url(), {}, "AWS_ACCESS_KEY_ID")):
        status, told = (await examined(blobs=url, env=dict(env))).one("files")
        assert status is FAILED
        assert reason in told


async def test_sizes_count_the_tenant_s_bytes(ready: AnyStore) -> None:
    await ready.do(put_blob_row, TENANT, HASH, 7)
    await ready.do(put_blob_row, "other", ABSENT, 8)
    assert await ready.read(sizes, TENANT, [HASH, ABSENT]) == {HASH: 7}
