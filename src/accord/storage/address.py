"""Where a store is: the addresses that an operator writes, the default one, and how to show them without secrets.

Nothing is opened here and nothing is read from the environment; `storage.open` turns an address into a store.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from accord.storage.carriers import CARRIERS
from accord.storage.store import StoreRefused

FORMS = (
    "sqlite:///relative.db, sqlite:////absolute/path.db, sqlite://:memory: and postgresql://user:password@host/database"
)
SHOWN = frozenset({"host", "port", "user", "dbname", "database", "sslmode"})
"""Options of PostgreSQL's own that are shown; any other might be a secret, `password` is one."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(:\d*)?")
_MEMORY = ":memory:"
_FILE = re.compile(r"[\w./~-]+\.(db|sqlite3?)")
"""What looks like the path of a file."""


class BadAddress(StoreRefused):
    """The store's address cannot be understood."""


@dataclass(frozen=True, kw_only=True)
class SqliteAddress:
    """A SQLite file, or memory; the directory of the default file is ours to make."""

    path: Path | None
    own_directory: bool = False

    @property
    def files(self) -> frozenset[Path]:
        """The files of the database, which change with every task."""
        if self.path is None:
            return frozenset()
        path = self.path.absolute()
        names = (path.name, *(f"{path.name}-{one}" for one in ("wal", "shm", "journal")))
        return frozenset(path.parent.resolve() / name for name in names)

    def __str__(self) -> str:
        return f"sqlite://{_MEMORY}" if self.path is None else f"sqlite:///{quote(str(self.path))}"


@dataclass(frozen=True, kw_only=True)
class PostgresAddress:
    """A PostgreSQL database, and what carries hints between its nodes."""

    dsn: str = field(repr=False)
    listen: bool = True
    signals: tuple[str, ...] = field(default=(), repr=False)
    shown: str

    @property
    def files(self) -> frozenset[Path]:
        """No files: they belong to the server of the database."""
        return frozenset()

    def __str__(self) -> str:
        return self.shown


Address = SqliteAddress | PostgresAddress


def parse(url: str) -> Address:
    """Return the address that a URL means; an error never repeats what might be a password."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        meant = "write sqlite:/// before the path of a file" if _FILE.fullmatch(url) else f"known are {FORMS}"
        raise BadAddress(f"The store's address has no scheme; {meant}")
    if "#" in url:
        raise BadAddress(f"The {scheme} address contains '#'; write it as %23")
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise BadAddress(f"The {scheme} address is no valid URL; known are {FORMS}") from None
    match scheme:
        case "sqlite":
            return _sqlite(parts, options)
        case "postgresql" | "postgres":
            return _postgres(parts, options)
    raise BadAddress(f"A store cannot be at {scheme}://; known are {FORMS}")


def default_path(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return where the store is when nobody says: a file in the user's data directory."""
    home = Path(env.get("HOME") or Path.home())
    if platform == "win32":
        base = Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        chosen = Path(env.get("XDG_DATA_HOME", ""))
        base = chosen if chosen.is_absolute() else home / ".local" / "share"  # the XDG standard ignores relative ones
    return base / "accord" / "accord.db"


def default(env: Mapping[str, str]) -> SqliteAddress:
    """Return the address to use when nobody gives one."""
    return SqliteAddress(path=default_path(env), own_directory=True)


def _sqlite(parts: SplitResult, options: list[tuple[str, str]]) -> SqliteAddress:
    if options:
        raise BadAddress(f"SQLite takes no options, and the address has {', '.join(name for name, _ in options)}")
    name = parts.netloc if parts.netloc == _MEMORY and not parts.path else unquote(parts.path.removeprefix("/"))
    if not name or parts.netloc not in ("", _MEMORY):
        raise BadAddress(
            "A SQLite file has three slashes before its path: sqlite:///relative.db, sqlite:////absolute.db"
        )
    return SqliteAddress(path=None if name == _MEMORY else Path(name))


def _postgres(parts: SplitResult, options: list[tuple[str, str]]) -> PostgresAddress:
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
    shown = {name: value for name, value in given.items() if name in SHOWN}
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
    """Refuse what a password with raw delimiters is split into, before any of it is taken for something to show."""
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
