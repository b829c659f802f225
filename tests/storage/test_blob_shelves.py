"""Where large parts are kept outside of the store: how a directory and a bucket fail, and how they are addressed."""

import asyncio
import base64
import errno
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from accord.storage import schema
from accord.storage.blobs import BlobCorrupt, BlobMissing, open_blobs
from accord.storage.blobs.blob_store import DirectoryBackend, open_backend
from accord.storage.blobs.object_storage import MAX_ATTEMPTS
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
async def test_changed_blobs_are_detected_and_truncated_rewritten(ready: AnyStore, tmp_path: Path) -> None:
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


def test_unfinished_blobs_are_removed_after_a_day(tmp_path: Path) -> None:
    DirectoryBackend(tmp_path)
    old, new = tmp_path / "unfinished" / "old", tmp_path / "unfinished" / "new"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 100_000, time.time() - 100_000))
    DirectoryBackend(tmp_path)
    assert files(tmp_path) == [new]


# S3


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
            return web.Response(status=200, headers={"etag": '"1"'})
        if self.failure is None and request.transport is not None:
            request.transport.abort()
        return web.Response(status=self.failure or 200)

    async def write(self) -> None:
        """Write an object to it, with temporary credentials."""
        app = web.Application()
        app.router.add_route("*", "/storage/{path:.*}", self.answer)
        async with TestServer(app) as server:
            env = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_SESSION_TOKEN": "temporary"}
            shelf = open_backend(f"s3://b?endpoint={server.make_url('/storage/')}&region=r", env)
            try:
                await asyncio.wait_for(shelf.write("t/aa/bb", DATA, HASH), BOUND_SECONDS)
            finally:
                await shelf.close()


@pytest.mark.parametrize("failure", [500, 503, 429, None], ids=str)
async def test_failing_blob_servers_are_retried(failure: int | None) -> None:
    server = Flaky(failure, MAX_ATTEMPTS - 1)
    await server.write()
    assert server.seen[0] == ("HEAD", "temporary", b"")
    assert server.seen[1:] == [("PUT", "temporary", DATA)] * len(server.seen[1:])
    assert failure is None or len(server.seen[1:]) == MAX_ATTEMPTS  # a dropped connection is also tried again below us


@pytest.mark.parametrize(("failure", "reason"), [(500, "500"), (None, "sending request")], ids=str)
async def test_persistent_blob_failures_are_unavailable(failure: int | None, reason: str) -> None:
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


class Objects:
    """Object storage that keeps what is put, by path, and notes who asks."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.authorizations: set[str] = set()

    async def answer(self, request: web.Request) -> web.Response:
        self.authorizations.add(request.headers.get("authorization", "").partition(" ")[0])
        if request.method == "PUT":
            self.kept[request.path] = await request.read()
            return web.Response(status=201, headers={"etag": '"1"'})
        if request.method == "DELETE":
            return web.Response(status=202 if self.kept.pop(request.path, None) is not None else 404)
        if request.query.get("comp") == "batch":
            return self.delete_all(await request.text())
        body, headers = self.kept.get(request.path), {"etag": '"1"', "last-modified": "Fri, 20 Nov 2026 00:00:00 GMT"}
        return web.Response(status=404) if body is None else web.Response(body=body, headers=headers)

    def delete_all(self, body: str) -> web.Response:
        """Delete what a batch of Azure names: a list of requests, answered by a list of answers."""
        for path in re.findall(r"^DELETE (\S+) HTTP", body, re.MULTILINE):
            del self.kept[unquote(path)]
        lines = ("--b", "Content-Type: application/http", "Content-ID: 0", "", "HTTP/1.1 202 Accepted", "", "", "--b--")
        headers = {"content-type": "multipart/mixed; boundary=b"}
        return web.Response(status=202, body="\r\n".join((*lines, "")).encode(), headers=headers)


def azure(endpoint: str, _tmp_path: Path) -> tuple[str, dict[str, str]]:
    key = base64.b64encode(b"secret").decode()
    return f"az://parts/in?account=someone&endpoint={endpoint}", {"AZURE_STORAGE_ACCOUNT_KEY": key}


def _private_key() -> str:
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return rsa.generate_private_key(65537, 2048).private_bytes(*form).decode()


def google(endpoint: str, tmp_path: Path) -> tuple[str, dict[str, str]]:
    fields = {"client_email": "someone", "private_key": _private_key(), "private_key_id": "1"}
    (tmp_path / "gcs.json").write_text(json.dumps({**fields, "type": "service_account"}))
    return f"gs://parts/in?endpoint={endpoint}", {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "gcs.json")}


@in_memory
@pytest.mark.parametrize(("address", "authorization"), [(azure, "SharedKey"), (google, "Bearer")])
async def test_azure_and_google_keep_blobs(
    ready: AnyStore, tmp_path: Path, address: Callable[[str, Path], tuple[str, dict[str, str]]], authorization: str
) -> None:
    objects, app = Objects(), web.Application()
    app.router.add_route("*", "/{path:.*}", objects.answer)
    async with TestServer(app) as server:
        url, env = address(str(server.make_url("/")), tmp_path)
        blobs = open_blobs(url, ready, env, grace_ms=0)
        hash = await blobs.put(TENANT, DATA)
        assert await blobs.get(TENANT, hash) == DATA
        assert b"".join([piece async for piece in blobs.pieces(TENANT, hash)]) == DATA
        ((path, data),) = objects.kept.items()
        assert (path.endswith(f"{hash[:2]}/{hash[2:]}"), "parts/in/" in path, data) == (True, True, DATA)
        await blobs.delete(TENANT, hash)
        with pytest.raises(BlobMissing):
            await blobs.get(TENANT, hash)
        await blobs.close()
    assert objects.kept == {}
    assert objects.authorizations == {authorization}


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
        "gs:///x",
        "az://c?endpoint=host",
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
    for url, name in (("gs://b", "GOOGLE_APPLICATION_CREDENTIALS"), ("az://b", "AZURE_STORAGE_ACCOUNT_KEY")):
        with pytest.raises(StoreRefused, match=name):
            open_blobs(url, ready, {})
