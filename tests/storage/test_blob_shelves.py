"""Where large parts are kept outside of the store: how a directory and a bucket fail, and how they are addressed."""

import asyncio
import errno
import hashlib
import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from accord.storage import schema
from accord.storage.blobs import BlobCorrupt, open_blobs
from accord.storage.blobs.blob_store import DirectoryBackend
from accord.storage.blobs.s3 import ATTEMPTS, AwsCredentials, S3Backend, UnsignedRequest, signed_headers
from accord.storage.store import StoreFull, StoreRefused, StoreUnavailable
from tests.storage.conftest import AnyStore

TENANT = "acme"
BOUND_SECONDS = 60
DATA = bytes(range(256)) * 300
HASH = hashlib.sha256(DATA).hexdigest()
TENANTS = ["acme", "ACME", "", "..", "../acme", "a/b", "/", "ä\n", "x" * 300]

in_memory = pytest.mark.parametrize("store", ["sqlite-memory"], indirect=True)


@pytest.fixture
async def ready(store: AnyStore) -> AnyStore:
    await schema.upgrade_schema(store)
    return store


# A directory


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@in_memory
async def test_files_are_named_by_their_hash_and_stay_below_the_directory(ready: AnyStore, tmp_path: Path) -> None:
    blobs = open_blobs(str(tmp_path / "a" / "b"), ready, {})
    for tenant in TENANTS:
        await blobs.put(tenant, DATA)
    found = files(tmp_path)
    assert len(found) == len(TENANTS)
    assert all(path.is_relative_to(tmp_path / "a" / "b") for path in found)
    assert {"".join(path.parts[-2:]) for path in found} == {HASH}
    assert all(path.read_bytes() == DATA for path in found)


@in_memory
async def test_a_file_that_changed_is_found_out_and_a_cut_one_is_written_again(ready: AnyStore, tmp_path: Path) -> None:
    blobs = open_blobs(f"dir:{tmp_path}", ready, {})
    await blobs.put(TENANT, DATA)
    (path,) = files(tmp_path)
    path.write_bytes(DATA[:-1] + b"?")
    with pytest.raises(BlobCorrupt, match=HASH):
        await blobs.get(TENANT, HASH)
    path.write_bytes(DATA[:-1])
    await blobs.put(TENANT, DATA)
    assert await blobs.get(TENANT, HASH) == DATA


@pytest.mark.parametrize(("failure", "expected"), [(errno.ENOSPC, StoreFull), (errno.EIO, StoreUnavailable)])
async def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int, expected: type[StoreUnavailable]
) -> None:
    shelf = DirectoryBackend(tmp_path)

    def fail(_descriptor: int) -> None:
        raise OSError(failure, "no")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(expected):
        await shelf.write("tenant/aa/bb", DATA, HASH)
    assert files(tmp_path) == []


async def test_a_directory_that_is_gone_is_not_an_empty_one(tmp_path: Path) -> None:
    shelf = DirectoryBackend(tmp_path / "blobs")
    (tmp_path / "blobs").rename(tmp_path / "unmounted")
    with pytest.raises(StoreUnavailable):
        await shelf.read("tenant/aa/bb")
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable):
        DirectoryBackend(tmp_path / "file" / "blobs")


def modes_below(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


async def test_a_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    await DirectoryBackend(tmp_path / "blobs").write("tenant/aa/bb", DATA, HASH)
    made = modes_below(tmp_path)
    assert made.pop("blobs/tenant/aa/bb") == 0o600
    assert made == dict.fromkeys(("blobs", "blobs/tenant", "blobs/tenant/aa", "blobs/unfinished"), 0o700)


def test_what_a_crash_left_unfinished_is_removed_after_a_day(tmp_path: Path) -> None:
    DirectoryBackend(tmp_path)
    old, new = tmp_path / "unfinished" / "old", tmp_path / "unfinished" / "new"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 100_000, time.time() - 100_000))
    DirectoryBackend(tmp_path)
    assert files(tmp_path) == [new]


# S3


KEYS = AwsCredentials(access_key="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


@pytest.mark.parametrize(
    ("method", "path", "headers", "payload", "signature"),
    [
        (
            "GET",
            "/test.txt",
            {"range": "bytes=0-9"},
            b"",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test%24file.text",
            {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            b"Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
    ],
)
def test_signatures_are_those_of_awss_examples(
    method: str, path: str, headers: dict[str, str], payload: bytes, signature: str
) -> None:
    """The examples of "Authenticating Requests: Using the Authorization Header" in the S3 API reference."""
    request = UnsignedRequest(
        method=method,
        path=path,
        headers={"host": "examplebucket.s3.amazonaws.com", **headers},
        payload_hash=hashlib.sha256(payload).hexdigest(),
    )
    signed = signed_headers(request, KEYS, "us-east-1", datetime(2013, 5, 24, tzinfo=UTC))
    assert signed["authorization"].startswith(
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders="
    )
    assert signed["authorization"].endswith(f", Signature={signature}")


class Flaky:
    """An S3 whose first answers to PUT are failures: a status, or None for a dropped connection."""

    def __init__(self, failure: int | None, times: int) -> None:
        self.failure, self.times = failure, times
        self.seen: list[tuple[str, str | None, bytes]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append((request.method, request.headers.get("x-amz-security-token"), await request.read()))
        if request.method == "HEAD":
            return web.Response(status=404)
        self.times -= 1
        if self.times < 0:
            return web.Response(status=200)
        if self.failure is None and request.transport is not None:
            request.transport.abort()
        return web.Response(status=self.failure or 200)

    async def write(self) -> None:
        """Write an object to it, with temporary credentials."""
        app = web.Application()
        app.router.add_route("*", "/storage/{path:.*}", self.answer)
        async with TestServer(app) as server:
            keys = AwsCredentials(access_key="x", secret_key="y", session_token="temporary")
            endpoint = str(server.make_url("/storage/"))
            shelf = S3Backend(endpoint=endpoint, bucket="b", region="r", credentials=keys, pause_seconds=0)
            try:
                await asyncio.wait_for(shelf.write("t/aa/bb", DATA, HASH), BOUND_SECONDS)
            finally:
                await shelf.close()


@pytest.mark.parametrize("failure", [500, 503, 429, None], ids=str)
async def test_a_server_that_fails_is_asked_again(failure: int | None) -> None:
    server = Flaky(failure, ATTEMPTS - 1)
    await server.write()
    assert server.seen[0] == ("HEAD", "temporary", b"")
    assert server.seen[1:] == [("PUT", "temporary", DATA)] * len(server.seen[1:])
    assert failure is None or len(server.seen[1:]) == ATTEMPTS  # a dropped connection is also tried again below us


@pytest.mark.parametrize(("failure", "reason"), [(500, "500"), (None, "(?i)disconnected|reset")], ids=str)
async def test_a_server_that_goes_on_failing_is_unavailable(failure: int | None, reason: str) -> None:
    with pytest.raises(StoreUnavailable, match=reason):
        await Flaky(failure, 1000).write()


async def test_a_request_that_is_refused_is_not_repeated() -> None:
    server = Flaky(403, 1000)
    with pytest.raises(StoreUnavailable, match="403"):
        await server.write()
    assert [method for method, _, _ in server.seen] == ["HEAD", "PUT"]


@in_memory
async def test_a_server_that_is_down_is_unavailable(ready: AnyStore) -> None:
    env = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    blobs = open_blobs("s3://parts?endpoint=http://127.0.0.1:1", ready, env)
    for work in (blobs.put(TENANT, DATA), blobs.get(TENANT, HASH)):
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
            await work
    await blobs.close()


# Addresses


@in_memory
@pytest.mark.parametrize(
    "url",
    [
        "",
        "tables:",
        "dir:",
        "dir://var/blobs",
        "ftp://x/y",
        "s3:///x",
        "s3://key:hidden@b",
        "s3://b?endpoint=host",
        "s3://b?endpoint=http://key:hidden@host",
        "s3://b?colour=1",
    ],
)
async def test_an_address_that_means_nothing_is_refused(ready: AnyStore, url: str) -> None:
    with pytest.raises(StoreRefused, match="address") as refused:
        open_blobs(url, ready, {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"})
    assert "hidden" not in str(refused.value)


@in_memory
async def test_s3_needs_credentials(ready: AnyStore) -> None:
    with pytest.raises(StoreRefused, match="AWS_SECRET_ACCESS_KEY"):
        open_blobs("s3://bucket", ready, {"AWS_ACCESS_KEY_ID": "x"})
