"""The store: whether it opens, has a schema that fits, keeps what it is told, and has room.

A database is looked at and not written to. How long its disk takes is measured beside it: for SQLite with a file that
is gone again, for PostgreSQL with an empty message in its log.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from accord.app.doctor.findings import Check, Finding, Patient, failed, ok, warning
from accord.auth.rate_limits import Quotas
from accord.storage import schema
from accord.storage.address import MOUNTS, PostgresAddress, SqliteAddress, file_system, open_store, refuse_network
from accord.storage.blobs.blob_store import TABLE, open_backend
from accord.storage.commands import monitoring
from accord.storage.commands.monitoring import StoredTotal
from accord.storage.store import Store, StoreRefused, StoreUnavailable, Tx

SLOW_MS = 50.0
"""A commit that takes longer than a spinning disk: every message waits for one."""

MiB = 1024 * 1024
ROOM, LITTLE_ROOM = 1024 * MiB, 100 * MiB
"""Free space below which to think, and below which a server will soon stand still."""

NEAR = 0.8
"""The part of a quota from which on its operator should know."""

MAX_OWNERS = 10_000
"""Owners whose storage is compared with their quotas, those who store most."""

FLEETING = {
    "tmpfs": "it is in memory, and gone when the machine restarts: choose a disk",
    "ramfs": "it is in memory, and gone when the machine restarts: choose a disk",
    "overlay": "it is in a container's own layer, and gone with the container: mount a volume",
}
"""Kinds of file systems that do not keep what is on them."""

UNSAFE = ("fsync", "full_page_writes", "synchronous_commit")
"""Settings of PostgreSQL without which what was answered for may be lost."""


def checks(patient: Patient) -> Iterator[Check]:
    """Yield what to look at."""
    if isinstance(patient.address, PostgresAddress):
        yield Check("store", _postgres)
    else:
        yield Check("store", _sqlite)
    if urlsplit(patient.settings.blobs).scheme in ("", "dir"):
        yield Check("files", _files)
    elif patient.settings.blobs != TABLE:
        yield Check("files", _shelf)


async def _sqlite(patient: Patient) -> list[Finding]:
    address = patient.address
    assert isinstance(address, SqliteAddress)
    if address.path is None:
        remedy = "name a file or a database with --store"
        return [warning("store", "everything is forgotten when the server stops: it is in memory", remedy)]
    path = address.path.absolute()
    try:
        refuse_network(path)
        if not await asyncio.to_thread(path.exists):
            return await asyncio.to_thread(_unmade, path, own=address.own_directory)
        async with open_store(address, read_only=True) as store:
            found = [await _schema(store, address), *await _stored(store, patient.settings.limits)]
    except (StoreRefused, StoreUnavailable) as error:
        return [failed("store", f"{address}: {error}", "choose another with --store, or restore it from a backup")]
    return [*found, *await asyncio.to_thread(_disk, path.parent)]


def _unmade(path: Path, *, own: bool) -> list[Finding]:
    """Say whether a database that is not there can be made; the directory of the default one is made with it."""
    folder = _there(path.parent) if own else path.parent
    if not folder.is_dir():
        return [failed("store", f"There is no directory {folder}", f"make it: mkdir -p {folder}")]
    return [ok("store", f"{path} is made when the server starts"), *_disk(folder)]


def _there(folder: Path) -> Path:
    """Return a directory, or where it would be made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


async def _schema(store: Store, address: Any) -> Finding:
    engine, found = await store.read(schema.database_version), await store.read(schema.schema_version)
    told = f"{address}: {engine}, schema {found}"
    try:
        await schema.check_schema(store)
    except schema.SchemaTooOld as error:
        if found and isinstance(address, PostgresAddress):
            return failed("store", f"{told}: {error}", "run `accord db upgrade`")
        return ok("store", f"{told}, which becomes {schema.known_migrations()[-1].number} when the server starts")
    except schema.SchemaTooNew as error:
        return failed("store", f"{told}: {error}", "install the version of accord that upgraded it")
    return ok("store", told)


async def _stored(store: Store, quotas: Quotas) -> list[Finding]:
    """Compare what owners and tenants store with their quotas."""
    try:
        await schema.check_schema(store)
    except (schema.SchemaTooOld, schema.SchemaTooNew):
        return []  # said beside it
    total = await store.read(monitoring.stored_total, None, None)
    told = f"{total.tasks} tasks store {_size(total.bytes)}"
    limits = {
        "owner": StoredTotal(tasks=quotas.owner_tasks, bytes=quotas.owner_bytes),
        "tenant": StoredTotal(tasks=quotas.tenant_tasks, bytes=quotas.tenant_bytes),
    }
    if not any(limit.tasks or limit.bytes for limit in limits.values()):
        return [ok("storage", f"{told}; no quota is set (limits.owner_bytes, limits.tenant_bytes)")]
    accounts: dict[tuple[str, str], StoredTotal] = {}
    for one in await store.read(monitoring.stored_by_owner, None, MAX_OWNERS):
        accounts["owner", f"{one.owner or '(no name)'} of tenant {one.tenant or '(none)'}"] = one
        tenant = "tenant", one.tenant or "(none)"
        before = accounts.get(tenant, StoredTotal(tasks=0, bytes=0))
        accounts[tenant] = StoredTotal(tasks=before.tasks + one.tasks, bytes=before.bytes + one.bytes)
    near = [
        warning("storage", f"{kind} {name} stores {used}", "delete tasks sooner (retention), or raise the quota")
        for (kind, name), stored in accounts.items()
        if (used := _nearly(stored, limits[kind]))
    ]
    return near or [ok("storage", f"{told}; no owner or tenant is near its quota")]


def _nearly(stored: StoredTotal, limit: StoredTotal) -> str | None:
    """Return what is stored of a limit, once that is most of it."""
    if limit.tasks and stored.tasks >= NEAR * limit.tasks:
        return f"{stored.tasks} tasks of {limit.tasks}"
    if limit.bytes and stored.bytes >= NEAR * limit.bytes:
        return f"{_size(stored.bytes)} of {_size(limit.bytes)}"
    return None


def _size(count: int) -> str:
    return f"{count / MiB / 1024:.1f} GiB" if count >= ROOM else f"{count / MiB:.1f} MiB"


# --- its disk ---------------------------------------------------------------------------------------------------------


def _disk(folder: Path) -> list[Finding]:
    return [_written(folder, "store"), _room(folder, "store"), *_lasting(folder)]


def _written(folder: Path, check: str) -> Finding:
    """Measure a write that is there for good, in a file that is not."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".accord-doctor-") as file:
            file.write(bytes(4096))
            file.flush()
            before = time.perf_counter()
            os.fsync(file.fileno())
            took = (time.perf_counter() - before) * 1000
    except OSError as error:
        remedy = "give it to the user who runs the server, and see that the disk is not full or read-only"
        return failed(check, f"{folder} cannot be written to: {error.strerror}", remedy)
    return _timed(took, check)


def _timed(took: float, check: str) -> Finding:
    told = f"a write is on the disk after {took:.1f} ms"
    return (
        warning(check, told, "choose a faster disk: every message waits for one") if took > SLOW_MS else ok(check, told)
    )


def _room(folder: Path, check: str) -> Finding:
    free = shutil.disk_usage(folder).free
    told = f"{free / MiB / 1024:.1f} GiB are free at {folder}"
    if free >= ROOM:
        return ok(check, told)
    remedy = "make room, or keep ended tasks for fewer days (keep_days)"
    return warning(check, told, remedy) if free >= LITTLE_ROOM else failed(check, told, remedy)


def _lasting(folder: Path) -> Iterator[Finding]:
    """Say if a file system does not keep what is on it; SQLite's log is beside the database."""
    try:
        kind = file_system(folder.resolve(), MOUNTS.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return  # only Linux says it this way
    if kind in FLEETING:
        detail, _, remedy = FLEETING[kind].rpartition(": ")
        yield warning("store", f"{folder} is on {kind}: {detail}", remedy)


async def _files(patient: Patient) -> list[Finding]:
    return await asyncio.to_thread(_folder, Path(urlsplit(patient.settings.blobs).path))


def _folder(folder: Path) -> list[Finding]:
    """Look at the directory for large files, or at where it is made when the server starts."""
    there = _there(folder)
    return [_written(there, "files"), _room(there, "files")]


async def _shelf(patient: Patient) -> list[Finding]:
    """Look for something that is not there: a place that says so can be reached, and lets us in."""
    try:
        shelf = open_backend(patient.settings.blobs, patient.env)
        try:
            await shelf.read("accord/doctor/nothing")
        finally:
            await shelf.close()
    except (StoreRefused, StoreUnavailable) as error:
        return [failed("files", error, "see that the place for large parts is there, and its credentials are right")]
    return [ok("files", f"the place for large parts answers: {urlsplit(patient.settings.blobs).netloc}")]


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


async def _postgres(patient: Patient) -> list[Finding]:
    address = patient.address
    assert isinstance(address, PostgresAddress)
    try:
        async with open_store(replace(address, listen=False, signals=()), read_only=True) as store:
            found = [await _schema(store, address), *await _durable(store)]
            found += await _stored(store, patient.settings.limits)
            before = time.time()
            at = await store.read(_now)
            patient.dates["the database"] = at / 1000 - (before + time.time()) / 2
            return found
    except (StoreRefused, StoreUnavailable) as error:
        return [failed("store", error, "see that PostgreSQL runs, and that address and password are right")]


async def _durable(store: Store) -> list[Finding]:
    """Say whether what PostgreSQL has committed is there for good, and how long that takes."""
    settings = await store.read(_settings)
    if settings["pg_is_in_recovery"] == "true":
        return [failed("store", "the database is a replica, which takes no writes", "name the primary")]
    found = [
        warning("store", f"{name} is off: what was answered for may be lost in a crash", f"set {name} = on")
        for name in UNSAFE
        if settings[name] == "off"
    ]
    before = time.perf_counter()
    await store.do(_message)
    return [*found, _timed((time.perf_counter() - before) * 1000, "store")]


async def _settings(tx: Tx) -> dict[str, str]:
    row = await tx.one(
        "SELECT " + ", ".join(f"current_setting('{name}')" for name in UNSAFE) + ", pg_is_in_recovery()::text"
    )
    return dict(zip((*UNSAFE, "pg_is_in_recovery"), row or (), strict=True))


async def _message(tx: Tx) -> None:
    """Write a message that nobody reads: it changes no table, and its commit waits for the disk like any other."""
    await tx.one("SELECT pg_logical_emit_message(true, 'accord', '')")


async def _now(tx: Tx) -> int:
    row = await tx.one("SELECT {now}")
    return int(row[0]) if row else 0
