"""Addresses of stores and their backends: parse, display without secrets, and open.

An address is `scheme://host/path?option=value`. Errors never repeat a possible password. A driver is imported when its
store is opened. Unsupported setups, such as SQLite on a network file system, are refused before the first command.
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from accord.entries import Group, Unusable
from accord.storage.notifications import Hear, Signals
from accord.storage.store import Store, StoreRefused, StoreUnavailable


class NoOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the options of an address. It has no options itself."""


class Location(Struct, frozen=True, kw_only=True):
    """A parsed address.

    `host` is the text between the slashes and the path. `env` is the server's environment.
    """

    scheme: str
    host: str = ""
    path: str = ""
    options: Any = NoOptions()
    env: Mapping[str, str] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"Location(scheme={self.scheme!r}, path={self.path!r})"  # everything else may be a secret


def read_location(url: str, options: type[Struct], env: Mapping[str, str], what: str) -> Location:
    """Parse an address; raises StoreRefused. `what` names the address in errors."""
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        read = msgspec.convert(dict(given), options, strict=False)
    except ValueError as error:  # includes msgspec's errors, which contain names of options but no values
        is_plain = isinstance(error, msgspec.ValidationError) and "@" not in url.partition("?")[2]
        why = f": {error}" if is_plain else ""  # a raw ? in a password moves its end into the query
        raise StoreRefused(f"The address of {what} cannot be understood{why}") from None
    return Location(scheme=parts.scheme, host=parts.netloc, path=unquote(parts.path), options=read, env=env)


class CarrierType(Struct, frozen=True, kw_only=True):
    """A type of notification carrier.

    `make` takes one or more equivalent addresses and the callback for incoming topics.
    """

    make: Callable[[Sequence[Location], Hear], Signals]
    options: type[Struct] = NoOptions


CARRIERS = Group(
    "accord.signals",
    "carrier of hints",
    CarrierType,
    {"nats": "accord.storage.nats:SIGNALS", "tls": "accord.storage.nats:SIGNALS"},
)
"""All carrier types by address scheme."""


def make_carrier(urls: Sequence[str], heard: Hear) -> Signals:
    """Return the carrier for these addresses; raises StoreRefused."""
    schemes = {url.partition("://")[0] for url in urls}
    try:
        kinds = {CARRIERS.load(scheme) for scheme in sorted(schemes)}
    except (Unusable, ImportError) as error:
        raise StoreRefused(f"Hints cannot be carried: {error}") from error
    if len(kinds) > 1:
        raise StoreRefused(f"Hints are carried by one kind of carrier, not by {' and '.join(sorted(schemes))}")
    (kind,) = kinds
    return kind.make([read_location(url, kind.options, {}, "a carrier of hints") for url in urls], heard)


STORE_ADDRESS_FORMS = (
    "sqlite:///relative.db, sqlite:////absolute/path.db, sqlite://:memory: and postgresql://user:password@host/database"
)
SHOWN_OPTIONS = frozenset({"host", "port", "user", "dbname", "database", "sslmode"})
"""PostgreSQL options that may be displayed. Any other option may be a secret, as `password` is."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(:\d*)?")
_MEMORY = ":memory:"
_FILE_PATH = re.compile(r"[\w./~-]+\.(db|sqlite3?)")
"""Matches text that looks like a file path."""


class BadAddress(StoreRefused):
    """The store's address is not valid."""


@dataclass(frozen=True, kw_only=True)
class SqliteAddress:
    """A SQLite file, or memory.

    `own_directory` is true for the default file, whose directory Accord creates.
    """

    path: Path | None
    own_directory: bool = False

    @property
    def files(self) -> frozenset[Path]:
        """The database files, which change with every task."""
        if self.path is None:
            return frozenset()
        path = self.path.absolute()
        names = (path.name, *(f"{path.name}-{one}" for one in ("wal", "shm", "journal")))
        return frozenset(path.parent.resolve() / name for name in names)

    def __str__(self) -> str:
        return f"sqlite://{_MEMORY}" if self.path is None else f"sqlite:///{quote(str(self.path))}"


@dataclass(frozen=True, kw_only=True)
class PostgresAddress:
    """A PostgreSQL database and the carrier of notifications between its nodes."""

    dsn: str = field(repr=False)
    listen: bool = True
    signals: tuple[str, ...] = field(default=(), repr=False)
    shown: str

    @property
    def files(self) -> frozenset[Path]:
        """No files: they belong to the database server."""
        return frozenset()

    def __str__(self) -> str:
        return self.shown


Address = SqliteAddress | PostgresAddress


def parse_address(url: str) -> Address:
    """Parse a store URL. Errors never repeat a possible password."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        meant = (
            "write sqlite:/// before the path of a file"
            if _FILE_PATH.fullmatch(url)
            else f"known are {STORE_ADDRESS_FORMS}"
        )
        raise BadAddress(f"The store's address has no scheme; {meant}")
    if "#" in url:
        raise BadAddress(f"The {scheme} address contains '#'; write it as %23")
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise BadAddress(f"The {scheme} address is no valid URL; known are {STORE_ADDRESS_FORMS}") from None
    match scheme:
        case "sqlite":
            return _sqlite_address(parts, options)
        case "postgresql" | "postgres":
            return _postgres_address(parts, options)
    raise BadAddress(f"A store cannot be at {scheme}://; known are {STORE_ADDRESS_FORMS}")


def default_path(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the default store path: a file in the user's data directory."""
    home = Path(env.get("HOME") or Path.home())
    if platform == "win32":
        base = Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        chosen = Path(env.get("XDG_DATA_HOME", ""))
        base = chosen if chosen.is_absolute() else home / ".local" / "share"  # the XDG standard ignores relative ones
    return base / "accord" / "accord.db"


def default_address(env: Mapping[str, str]) -> SqliteAddress:
    """Return the default store address."""
    return SqliteAddress(path=default_path(env), own_directory=True)


def _sqlite_address(parts: SplitResult, options: list[tuple[str, str]]) -> SqliteAddress:
    if options:
        raise BadAddress(f"SQLite takes no options, and the address has {', '.join(name for name, _ in options)}")
    name = parts.netloc if parts.netloc == _MEMORY and not parts.path else unquote(parts.path.removeprefix("/"))
    if not name or parts.netloc not in ("", _MEMORY):
        raise BadAddress(
            "A SQLite file has three slashes before its path: sqlite:///relative.db, sqlite:////absolute.db"
        )
    return SqliteAddress(path=None if name == _MEMORY else Path(name))


def _postgres_address(parts: SplitResult, options: list[tuple[str, str]]) -> PostgresAddress:
    given = dict(options)
    signals = tuple(server for server in given.pop("signals", "").split(",") if server)
    listen = given.pop("listen", "off" if signals else "on")
    _refuse_stray_secret(parts, given)
    if listen not in ("on", "off"):
        raise BadAddress("The option listen is on or off")
    if signals and listen == "on":
        raise BadAddress("Hints are carried by signals=... or by listen=on, not by both")
    if not all("://" in server and server.partition("://")[0] in CARRIERS for server in signals):
        raise BadAddress("The option signals names servers as nats://host:4222, separated by commas")
    start = f"{parts.scheme}://"
    shown = {name: value for name, value in given.items() if name in SHOWN_OPTIONS}
    if signals:
        shown["signals"] = ",".join(_without_password(server) for server in signals)
    elif listen == "off":
        shown["listen"] = listen
    return PostgresAddress(
        dsn=f"{start}{parts.netloc}{parts.path}{_query(given)}",
        listen=listen == "on",
        signals=signals,
        shown=f"{_without_password(start + parts.netloc)}{parts.path}{_query(shown)}",
    )


def _refuse_stray_secret(parts: SplitResult, options: Mapping[str, str]) -> None:
    """Refuse an address split by raw delimiters in a password.

    This runs before any part of the address is displayed.
    """
    hosts = parts.netloc.rpartition("@")[2].split(",")
    elsewhere = [parts.path, *options, *options.values()]
    if any("@" in text for text in elsewhere) or not all(_HOST.fullmatch(host) for host in hosts):
        raise BadAddress(f"The {parts.scheme} address is no valid URL; write @ : / ? in a password as %40 %3A %2F %3F")


def _query(options: Mapping[str, str]) -> str:
    return f"?{urlencode(options, safe='/:,@', quote_via=quote)}" if options else ""


def _without_password(url: str) -> str:
    start, _, rest = url.partition("://")
    user, at, hosts = rest.rpartition("@")
    return f"{start}://{user.partition(':')[0]}{at}{hosts}"


NETWORK_FILE_SYSTEMS = re.compile(
    r"nfs\d*|cifs|smb\w*|afs|ceph|lustre|gpfs|glusterfs|beegfs|fuse\.(sshfs|glusterfs|ceph\S*|s3fs|rclone)"
)
"""File systems whose locks or shared memory SQLite cannot trust. 9p is absent: virtual machines use it for local disks.
"""

MOUNTS = Path("/proc/mounts")
_ESCAPE = re.compile(r"\\([0-7]{3})")


@asynccontextmanager
async def open_store(
    where: str | Address, publish: Callable[[list[str]], None] = lambda _: None, *, read_only: bool = False
) -> AsyncIterator[Store]:
    """Open the store at an address or URL. `publish` receives the notifications of all processes on that store.

    With `read_only`, a SQLite file must exist and is not modified.
    """
    address = parse_address(where) if isinstance(where, str) else where
    async with AsyncExitStack() as stack:
        if isinstance(address, SqliteAddress):
            store: Store = await _open_sqlite(address, publish, read_only=read_only)
        else:
            store = await _open_postgres(address, publish, stack)
        stack.push_async_callback(store.close)
        yield store


async def _open_sqlite(address: SqliteAddress, publish: Callable[[list[str]], None], *, read_only: bool) -> Store:
    from accord.storage.sqlite.driver import SqliteStore

    if address.path is not None:
        refuse_network(address.path)
        if not read_only:
            _create_file(address.path, with_directory=address.own_directory)
    return await asyncio.to_thread(SqliteStore, address.path, publish, read_only=read_only)


def _create_file(path: Path, *, with_directory: bool) -> None:
    """Create a file readable only by its owner. SQLite gives its log the same mode.

    An existing file keeps its mode. If the file cannot be created, SQLite reports the error.
    """
    if with_directory:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


async def _open_postgres(
    address: PostgresAddress, publish: Callable[[list[str]], None], stack: AsyncExitStack
) -> Store:
    from accord.storage.postgres.driver import PostgresStore

    if address.signals:
        signals = make_carrier(address.signals, publish)
        await signals.open()
        stack.push_async_callback(signals.close)
        publish = signals.publish
    store = PostgresStore(address.dsn, publish, listen=address.listen)
    try:
        await store.open()
    except StoreUnavailable as error:
        remedy = "see that the server runs, and that the address and the password are right"
        raise StoreUnavailable(f"{address} cannot be used: {error}; {remedy}") from error
    return store


def refuse_network(path: Path) -> None:
    """Refuse a file on a network file system, where the machine lists its mounts."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # only Linux lists mounts this way
    kind = file_system(path.resolve(), mounts)
    if NETWORK_FILE_SYSTEMS.fullmatch(kind):
        raise StoreRefused(
            f"{path} is on a network file system ({kind}), whose locks and shared memory SQLite cannot rely on:"
            " choose a local disk, or PostgreSQL"
        )


def file_system(path: Path, mounts: str) -> str:
    """Return the file system type of an absolute path, from a mount table's text."""
    found, depth = "", 0
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        mounted = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), point))
        if len(mounted.parts) >= depth and path.is_relative_to(mounted):  # a later mount hides an earlier one
            found, depth = kind, len(mounted.parts)
    return found
