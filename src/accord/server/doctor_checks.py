"""Findings of `accord doctor`, and its checks of the store, of agents and of clocks.

A database is read and not written to, and agents are created and not started. `doctor` has the other checks and runs
all of them.
"""

import asyncio
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct, field

from accord.agents.loader import NotAnAgent, load
from accord.auth.rate_limits import Quotas
from accord.client.interfaces import CardHostTrust, keep_usable_interfaces
from accord.engine.agent import Agent
from accord.errors import AccordError
from accord.protocol.cards import decode_card, encode_card
from accord.protocol.urls import slug
from accord.server import cards
from accord.server.agents import agent_of
from accord.server.settings import Settings
from accord.server.settings_loader import BadSettings, LoadedSettings
from accord.service.service import Offers
from accord.storage import schema
from accord.storage.address import (
    MOUNTS,
    Address,
    PostgresAddress,
    SqliteAddress,
    file_system,
    open_store,
    refuse_network,
)
from accord.storage.blobs.blob_store import TABLE, open_backend
from accord.storage.commands import monitoring
from accord.storage.commands.monitoring import StoredTotal
from accord.storage.store import Store, StoreRefused, StoreUnavailable, Tx


class CheckStatus(Enum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class CheckFinding(Struct, frozen=True, kw_only=True):
    """One finding: its check, status and detail, and a remedy unless it is OK."""

    check: str
    status: CheckStatus
    detail: str
    remedy: str | None = None


class ExaminedServer(Struct, frozen=True, kw_only=True):
    """A server as it would be started.

    `dates` are the offsets of other clocks from ours in seconds, and `named` the agents by their paths.
    """

    loaded: LoadedSettings
    targets: tuple[str, ...]
    address: Address
    url: str
    env: Mapping[str, str]
    dates: dict[str, float] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The loaded settings."""
        return self.loaded.settings


class ServerCheck(NamedTuple):
    """A check: its name and function. Findings without a name of their own get this one."""

    name: str
    look: Callable[[ExaminedServer], Awaitable[list[CheckFinding]]]


def ok(detail: str, check: str = "") -> CheckFinding:
    """Return a finding without a problem."""
    return CheckFinding(check=check, status=CheckStatus.OK, detail=_line(detail))


def warning(detail: str, remedy: str, check: str = "") -> CheckFinding:
    """Return a finding that should be looked at."""
    return CheckFinding(check=check, status=CheckStatus.WARNING, detail=_line(detail), remedy=_line(remedy))


def failed(detail: object, remedy: str, check: str = "") -> CheckFinding:
    """Return a finding that keeps a server from working."""
    return CheckFinding(check=check, status=CheckStatus.FAILED, detail=_line(detail), remedy=_line(remedy))


def netloc_of(url: str) -> str:
    """Return the host of a URL, with its port."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _line(text: Any) -> str:
    return " ".join(str(text).split())


T = TypeVar("T")


async def run_in_daemon_thread(work: Callable[[], T]) -> T:
    """Run possibly endless work in a daemon thread, which does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return  # it timed out
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # without an error there is a result

    def run() -> None:
        result, raised = None, None
        try:
            result = work()
        except BaseException as error:  # raised again by the awaiting check
            raised = error
        with suppress(RuntimeError):  # the loop is closed, so there is no waiter
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=run, name="accord-doctor", daemon=True).start()
    return await done


CLOCK_OFF_SECONDS = 5.0
"""Seconds of clock difference that count as wrong: more than a request takes, and a `Date` without fractions."""

CLOCK_WRONG_SECONDS = 30.0
"""Seconds of clock difference that tokens tolerate, unless the settings change it."""

CLOCK_FIX = "let something keep the time (chrony, systemd-timesyncd), here or there"


def compare_clocks(patient: ExaminedServer) -> list[CheckFinding]:
    """Return findings about the noted clocks of other hosts, or none without such hosts."""
    far = {name: skew for name, skew in patient.dates.items() if abs(skew) > CLOCK_OFF_SECONDS}
    if not far:
        return [ok(f"agrees with {', '.join(sorted(patient.dates))}", check="clock")] if patient.dates else []
    found = []
    for name, skew in sorted(far.items()):
        finding = failed if abs(skew) > CLOCK_WRONG_SECONDS else warning
        told = f"{name} is {abs(skew):.0f} seconds {'ahead of' if skew > 0 else 'behind'} this machine"
        found.append(finding(told, CLOCK_FIX, check="clock"))
    return found


SLOW_MS = 50.0
"""Milliseconds above which a commit is slow, as on a spinning disk: every message waits for one."""

MiB = 1024 * 1024
ROOM, LITTLE_ROOM = 1024 * MiB, 100 * MiB
"""Free space below which a finding is a warning, and below which it is a failure."""

QUOTA_WARNING = 0.8
"""Fraction of a quota above which a finding is a warning."""

MAX_OWNERS = 10_000
"""Maximum number of owners compared with their quotas, largest storage first."""

FLEETING_FILE_SYSTEMS = {
    "tmpfs": "it is in memory, and gone when the machine restarts: choose a disk",
    "ramfs": "it is in memory, and gone when the machine restarts: choose a disk",
    "overlay": "it is in a container's own layer, and gone with the container: mount a volume",
}
"""File systems that lose their files -> finding and remedy."""

DURABILITY_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")
"""Settings of PostgreSQL without which committed data may be lost."""


def store_checks(patient: ExaminedServer) -> Iterator[ServerCheck]:
    """Yield the checks of the store."""
    if isinstance(patient.address, PostgresAddress):
        yield ServerCheck("store", _postgres)
    else:
        yield ServerCheck("store", _sqlite)
    if urlsplit(patient.settings.blobs).scheme in ("", "dir"):
        yield ServerCheck("files", _files)
    elif patient.settings.blobs != TABLE:
        yield ServerCheck("files", _shelf)


async def _sqlite(patient: ExaminedServer) -> list[CheckFinding]:
    address = patient.address
    assert isinstance(address, SqliteAddress)
    if address.path is None:
        remedy = "name a file or a database with --store"
        return [warning("everything is forgotten when the server stops: it is in memory", remedy)]
    path = address.path.absolute()
    try:
        refuse_network(path)
        if not await asyncio.to_thread(path.exists):
            return await asyncio.to_thread(_missing_database, path, own=address.own_directory)
        async with open_store(address, read_only=True) as store:
            found = [await _schema(store, address), *await _quota_findings(store, patient.settings.limits)]
    except (StoreRefused, StoreUnavailable) as error:
        return [failed(f"{address}: {error}", "choose another with --store, or restore it from a backup")]
    return [*found, *await asyncio.to_thread(_disk, path.parent)]


def _missing_database(path: Path, *, own: bool) -> list[CheckFinding]:
    """Check that a missing database can be created. The directory of the default one is created with it."""
    folder = _existing_folder(path.parent) if own else path.parent
    if not folder.is_dir():
        return [failed(f"The directory {folder} does not exist", f"make it: mkdir -p {folder}")]
    return [ok(f"{path} is made when the server starts"), *_disk(folder)]


def _existing_folder(folder: Path) -> Path:
    """Return a directory, or its nearest existing parent."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


async def _schema(store: Store, address: Any) -> CheckFinding:
    engine, found = await store.read(schema.database_version), await store.read(schema.schema_version)
    told = f"{address}: {engine}, schema {found}"
    try:
        await schema.check_schema(store)
    except schema.SchemaTooOld as error:
        if found and isinstance(address, PostgresAddress):
            return failed(f"{told}: {error}", "run `accord db upgrade`")
        return ok(f"{told}, which becomes {schema.known_migrations()[-1].number} when the server starts")
    except schema.SchemaTooNew as error:
        return failed(f"{told}: {error}", "install the version of accord that upgraded it")
    return ok(told)


async def _quota_findings(store: Store, quotas: Quotas) -> list[CheckFinding]:
    try:
        await schema.check_schema(store)
    except (schema.SchemaTooOld, schema.SchemaTooNew):
        return []  # reported by the schema's finding
    total = await store.read(monitoring.stored_total, None, None)
    told = f"{total.tasks} tasks store {_size(total.bytes)}"
    limits = {
        "owner": StoredTotal(tasks=quotas.owner_tasks, bytes=quotas.owner_bytes),
        "tenant": StoredTotal(tasks=quotas.tenant_tasks, bytes=quotas.tenant_bytes),
    }
    if not any(limit.tasks or limit.bytes for limit in limits.values()):
        return [ok(f"{told}; no quota is set (limits.owner_bytes, limits.tenant_bytes)", check="storage")]
    accounts: dict[tuple[str, str], StoredTotal] = {}
    for one in await store.read(monitoring.stored_by_owner, None, MAX_OWNERS):
        accounts["owner", f"{one.owner or '(no name)'} of tenant {one.tenant or '(none)'}"] = one
        tenant = "tenant", one.tenant or "(none)"
        before = accounts.get(tenant, StoredTotal(tasks=0, bytes=0))
        accounts[tenant] = StoredTotal(tasks=before.tasks + one.tasks, bytes=before.bytes + one.bytes)
    near = [
        warning(f"{kind} {name} stores {used}", "delete tasks sooner (retention), or raise the quota", check="storage")
        for (kind, name), stored in accounts.items()
        if (used := _nearly_used(stored, limits[kind]))
    ]
    return near or [ok(f"{told}; no owner or tenant is near its quota", check="storage")]


def _nearly_used(stored: StoredTotal, limit: StoredTotal) -> str | None:
    """Return the used part of a limit, if it is above `QUOTA_WARNING`."""
    if limit.tasks and stored.tasks >= QUOTA_WARNING * limit.tasks:
        return f"{stored.tasks} tasks of {limit.tasks}"
    if limit.bytes and stored.bytes >= QUOTA_WARNING * limit.bytes:
        return f"{_size(stored.bytes)} of {_size(limit.bytes)}"
    return None


def _size(count: int) -> str:
    return f"{count / MiB / 1024:.1f} GiB" if count >= ROOM else f"{count / MiB:.1f} MiB"


# --- disk -------------------------------------------------------------------------------------------------------------


def _disk(folder: Path) -> list[CheckFinding]:
    return [_time_disk(folder), _room(folder), *_fleeting_findings(folder)]


def _time_disk(folder: Path) -> CheckFinding:
    """Time a synced write, in a temporary file."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".accord-doctor-") as file:
            file.write(bytes(4096))
            file.flush()
            before = time.perf_counter()
            os.fsync(file.fileno())
            took = (time.perf_counter() - before) * 1000
    except OSError as error:
        remedy = "give it to the user who runs the server, and see that the disk is not full or read-only"
        return failed(f"{folder} cannot be written to: {error.strerror}", remedy)
    return _commit_finding(took)


def _commit_finding(took: float) -> CheckFinding:
    told = f"a write is on the disk after {took:.1f} ms"
    return warning(told, "choose a faster disk: every message waits for one") if took > SLOW_MS else ok(told)


def _room(folder: Path) -> CheckFinding:
    free = shutil.disk_usage(folder).free
    told = f"{free / MiB / 1024:.1f} GiB are free at {folder}"
    if free >= ROOM:
        return ok(told)
    remedy = "make room, or keep ended tasks for fewer days (keep_days)"
    return warning(told, remedy) if free >= LITTLE_ROOM else failed(told, remedy)


def _fleeting_findings(folder: Path) -> Iterator[CheckFinding]:
    """Yield a warning if the file system does not persist. SQLite's log is beside the database."""
    try:
        kind = file_system(folder.resolve(), MOUNTS.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return  # only Linux has this file
    if kind in FLEETING_FILE_SYSTEMS:
        detail, _, remedy = FLEETING_FILE_SYSTEMS[kind].rpartition(": ")
        yield warning(f"{folder} is on {kind}: {detail}", remedy)


async def _files(patient: ExaminedServer) -> list[CheckFinding]:
    """Check the directory for large files, or its nearest existing parent."""
    folder = _existing_folder(Path(urlsplit(patient.settings.blobs).path))
    return [await asyncio.to_thread(_time_disk, folder), _room(folder)]


async def _shelf(patient: ExaminedServer) -> list[CheckFinding]:
    """Read a missing blob: a "not found" shows that the backend is reachable and accepts the credentials."""
    try:
        shelf = open_backend(patient.settings.blobs, patient.env)
        try:
            await shelf.read("accord/doctor/nothing")
        finally:
            await shelf.close()
    except (StoreRefused, StoreUnavailable) as error:
        return [failed(error, "see that the place for large parts is there, and its credentials are right")]
    return [ok(f"the place for large parts answers: {urlsplit(patient.settings.blobs).netloc}")]


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


async def _postgres(patient: ExaminedServer) -> list[CheckFinding]:
    address = patient.address
    assert isinstance(address, PostgresAddress)
    try:
        async with open_store(replace(address, listen=False, signals=()), read_only=True) as store:
            found = [await _schema(store, address), *await _durability_findings(store)]
            found += await _quota_findings(store, patient.settings.limits)
            before = time.time()
            at = await store.read(_database_ms)
            patient.dates["the database"] = at / 1000 - (before + time.time()) / 2
            return found
    except schema.ForeignDatabase as error:
        return [failed(f"{address}: {error}", "choose another with --store, or give accord a schema of its own")]
    except (StoreRefused, StoreUnavailable) as error:
        return [failed(error, "see that PostgreSQL runs, and that address and password are right")]


async def _durability_findings(store: Store) -> list[CheckFinding]:
    """Check whether PostgreSQL's commits are durable, and how long they take."""
    settings = await store.read(_postgres_settings)
    if settings["pg_is_in_recovery"] == "true":
        return [failed("the database is a replica, which takes no writes", "name the primary")]
    found = [
        warning(f"{name} is off: what was answered for may be lost in a crash", f"set {name} = on")
        for name in DURABILITY_SETTINGS
        if settings[name] == "off"
    ]
    before = time.perf_counter()
    await store.do(_log_message)
    return [*found, _commit_finding((time.perf_counter() - before) * 1000)]


async def _postgres_settings(tx: Tx) -> dict[str, str]:
    row = await tx.one(
        "SELECT "
        + ", ".join(f"current_setting('{name}')" for name in DURABILITY_SETTINGS)
        + ", pg_is_in_recovery()::text"
    )
    return dict(zip((*DURABILITY_SETTINGS, "pg_is_in_recovery"), row or (), strict=True))


async def _log_message(tx: Tx) -> None:
    """Emit a logical message: it changes no table, and its commit waits for the disk like any other."""
    await tx.one("SELECT pg_logical_emit_message(true, 'accord', '')")


async def _database_ms(tx: Tx) -> int:
    row = await tx.one("SELECT {now}")
    return int(row[0]) if row else 0


INSTALL_COMMAND = "pip install"


def agent_checks(patient: ExaminedServer) -> Iterator[ServerCheck]:
    """Yield a check per agent, as importing one may never end."""
    for target in patient.targets:
        yield ServerCheck(
            f"agent {target}", partial(_make_agent, f"agent {target}", partial(load, target, patient.env))
        )
    for name in patient.settings.agents:
        yield ServerCheck(
            f"agent {name}", partial(_make_agent, f"agent {name}", partial(agent_of, name, patient.loaded, patient.env))
        )
    if not patient.targets and not patient.settings.agents and not patient.settings.remotes:
        yield ServerCheck("agents", _no_agents)


async def _no_agents(_: ExaminedServer) -> list[CheckFinding]:
    remedy = "name one in [agents], or as module:name after `accord serve`"
    return [warning("none is named: an echo is served", remedy)]


async def _make_agent(check: str, make: Callable[[], Agent], patient: ExaminedServer) -> list[CheckFinding]:
    try:
        agent = await run_in_daemon_thread(make)
    except (NotAnAgent, BadSettings) as error:
        said = str(error)
        at = said.find(INSTALL_COMMAND)
        return [failed(error, said[at:] if at >= 0 else "mend what it says, or leave the agent out")]
    return [_card_finding(check, agent, patient)]


def _card_finding(check: str, agent: Agent, patient: ExaminedServer) -> CheckFinding:
    """Check that an agent has a path of its own, and a card that clients can use."""
    profile, server = agent.profile, patient.settings.server
    path = cards.AGENTS_PATH + slug(profile.name)
    if (other := patient.named.setdefault(path, check)) != check:
        return failed(f"{profile.name!r} would be at {path}, as {other} is", "give one of them another name")
    place = cards.Endpoints(patient.url + path)
    facts = cards.CardFacts(dialects=frozenset(server.dialects), schemes={})
    card = cards.describe_agent(profile, place, Offers(), facts)
    try:
        decode_card(encode_card(card, facts.dialects))
    except AccordError as error:
        wrong = "; ".join(f"{field}: {why}" for field, why in error.violations)
        return failed(f"its card is not valid: {wrong or error}", "mend what the agent says about itself")
    kept, found = keep_usable_interfaces(card, place.url, CardHostTrust())
    if not kept.supported_interfaces:
        return failed(f"its card: {'; '.join(map(str, found))}", "mend server.url")
    if found:
        return warning(f"its card: {'; '.join(map(str, found))}", "mend what the agent says about itself")
    skills = ", ".join(skill.name for skill in profile.skills)
    return ok(f"{profile.name} {profile.version}: {skills}")
