"""Loads settings: flags, else the environment, else the settings file, else defaults.

The file is `accord.toml`, or the table `[tool.accord]` of a project's `pyproject.toml`. Every value keeps its source.
An unknown name, or an unknown variable that begins with `ACCORD_`, is an error with the nearest known name.
"""

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from accord.server.settings import CredentialSettings, RegistrySettings, Settings
from accord.server.settings_validation import (
    UnknownSetting,
    check_names,
    explain_error,
    is_struct,
    setting_names,
    type_at,
)

PREFIX = "ACCORD_"
CONFIG_VARIABLE = "ACCORD_CONFIG"
"""Variable that names the settings file."""

ALIASES = {"ACCORD_REGISTRY_URL": "registry.url"}
"""Short variables of settings. The variable with the setting's full name has precedence."""

CREDENTIALS = tuple(f"{PREFIX}{kind}_" for kind in ("KEY", "TOKEN", "OAUTH", "BASIC", "HMAC", "HOSTS"))
"""Prefixes of variables with credentials for remote agents (`client.credentials.credential`). Any id follows."""

OTHER_VARIABLES = {
    CONFIG_VARIABLE: "path of the settings file",
    "ACCORD_KEYS": "path of the key file of commands and servers",
    "ACCORD_REGISTRY_KEY": "API key for a remote registry",
    "ACCORD_AGENT_CARD": "`--agent-card` of commands that call an agent",
    "ACCORD_BEARER": "`--bearer` of these commands",
    "ACCORD_API_KEY": "`--api-key` of these commands",
    "ACCORD_PUSH_TOKEN": "`--token` of `accord task push set`",
    "ACCORD_PUSH_AUTH": "`--auth` of `accord task push set`",
    "ACCORD_SERVED": "state of `accord serve` for its own processes; do not set it",
    "ACCORD_REQUIRE_UI": "`1` in package builds: fail if the pages of the console are missing",
}
"""Variables that are not settings, and their purpose."""

NEAR = 0.85
"""Minimum similarity of a misspelled variable to a known one."""

_VARIABLE = re.compile(r"ACCORD_[A-Z0-9_]+")
_KUBERNETES_VARIABLE = re.compile(
    r"ACCORD_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.ASCII
)
"""Variables that Kubernetes sets for services named `accord` or `accord-...`."""

_KUBERNETES_VALUE = re.compile(r"(tcp|udp|sctp)://")
"""Value that Kubernetes sets for `ACCORD_SERVER_PORT` if a service is named accord-server."""


class UnknownVariable(NamedTuple):
    """An unknown variable, and the known ones with similar names."""

    name: str
    meant: tuple[str, ...]

    def __str__(self) -> str:
        """Return the error and a remedy."""
        if self.meant:
            return f"{self.name}: unknown setting; did you mean {' or '.join(self.meant)}?"
        remedy = "unset it, or rename a variable of your own"
        return f"{self.name}: unknown setting: {remedy}"


def variable_of(name: str) -> str:
    """Return the variable of a setting."""
    return PREFIX + name.replace(".", "__").upper()


def path_of(variable: str) -> list[str] | None:
    """Return the path of a variable's setting, or None if it has none."""
    if not _VARIABLE.fullmatch(variable) or _is_other(variable):
        return None
    path = variable.removeprefix(PREFIX).lower().split("__")
    return path if type_at(Settings, path) is not None else None


def unknown_variables(env: Mapping[str, str], named: Collection[str]) -> Iterator[UnknownVariable]:
    """Yield the variables with our prefix that nothing reads. Settings refer to those in `named`."""
    for variable, text in sorted(env.items()):
        if (
            not variable.startswith(PREFIX)
            or variable in named
            or _is_other(variable)
            or _is_of_kubernetes(variable, text)
        ):
            continue
        if path_of(variable) is None:
            yield UnknownVariable(variable, tuple(_similar_variables(variable.removeprefix(PREFIX).lower())))


def _is_other(variable: str) -> bool:
    return variable in ALIASES or variable in OTHER_VARIABLES or variable.startswith(CREDENTIALS)


def _is_of_kubernetes(variable: str, text: str) -> bool:
    if "__" in variable:
        return False
    return _KUBERNETES_VARIABLE.fullmatch(variable) is not None or (
        variable.endswith("_PORT") and _KUBERNETES_VALUE.match(text) is not None
    )


def _similar_variables(spelled: str) -> list[str]:
    """Return similar variables: of settings with this last part, else of any name, else of a similar last part."""
    paths = list(setting_names(Settings))
    lasts = {path[-1] for path in paths}
    whole = ["__".join(path) for path in paths] + [
        name.removeprefix(PREFIX).lower() for name in (*ALIASES, *OTHER_VARIABLES)
    ]
    if spelled not in lasts and (near := difflib.get_close_matches(spelled, whole, 1, NEAR)):
        return [PREFIX + near[0].upper()]
    last = difflib.get_close_matches(spelled, lasts, 1, NEAR)
    return [variable_of(".".join(path)) for path in paths if path[-1] in last]


OWN_FILE, PROJECT_FILE = "accord.toml", "pyproject.toml"
TABLE = ("tool", "accord")
"""Path of the settings in a project's file."""


class BadSettings(ValueError):
    """Invalid settings. The message contains the problem, its place and the remedy."""


class SettingsFile(NamedTuple):
    """A settings file: its table, and its text for line numbers."""

    path: Path
    table: Mapping[str, Any]
    text: str

    @property
    def source(self) -> str:
        """Name of the file as the source of a value."""
        return f"{self.path} [{'.'.join(TABLE)}]" if self.path.name == PROJECT_FILE else str(self.path)

    def line(self, name: str) -> int | None:
        """Return the line of a setting, by its dotted name."""
        before = f"{'.'.join(TABLE)}." if self.path.name == PROJECT_FILE else ""
        return setting_lines(self.text).get(before + name)


def find_file(file: Path | None = None) -> SettingsFile | None:
    """Return the named file, else that of the working directory. There, two files with settings are an error."""
    if file is not None:
        found = read_project_file(file) if file.name == PROJECT_FILE else _read_own_file(file)
        if found is None:
            raise BadSettings(f"{file} has no settings: they are in its table [{'.'.join(TABLE)}]")
        return found
    own, project = Path(OWN_FILE), Path(PROJECT_FILE)
    beside = read_project_file(project) if project.is_file() else None
    if not own.is_file():
        return beside
    if beside is not None:
        raise BadSettings(
            f"Both {OWN_FILE} and [{'.'.join(TABLE)}] of {PROJECT_FILE} have settings: keep one of them, or name one"
            " with --config or ACCORD_CONFIG"
        )
    return _read_own_file(own)


def _read_own_file(path: Path) -> SettingsFile:
    text = _read_text(path)
    return SettingsFile(path, _parse_toml(path, text), text)


def read_project_file(path: Path) -> SettingsFile | None:
    """Return the settings in a project's file. A file that does not mention accord need not be valid TOML."""
    text = _read_text(path)
    if TABLE[-1] not in text:
        return None
    table: Any = _parse_toml(path, text)
    for name in TABLE:
        table = table.get(name) if isinstance(table, dict) else None
    return SettingsFile(path, table, text) if isinstance(table, dict) else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadSettings(f"{path} is not TOML: {error}") from None


def _parse_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{path} is not TOML: {error}") from None


# --- lines ------------------------------------------------------------------------------------------------------------


def setting_lines(text: str) -> dict[str, int]:
    """Return the line of each value of a file, and of each table, by its dotted name.

    Python's TOML parser has no line numbers, but it can test whether a statement is complete: the line is its first.
    """
    found: dict[str, int] = {}
    header: tuple[str, ...] = ()
    for number, statement, said in _statements(text):
        if statement.lstrip().startswith("["):
            *_, header = _value_paths(said)
            found.setdefault(".".join(header), number)
        else:
            for path in _value_paths(said):
                found.setdefault(".".join((*header, *path)), number)
    return found


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the first line of each statement, its text and its value."""
    begun, pending = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if not pending:
            begun = number
        pending += line + "\n"
        try:
            said = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue  # the statement continues on the next line
        if said:
            yield begun, pending, said
        pending = ""


def _value_paths(said: Any, *before: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all values of a statement, and of its tables. Lists are values."""
    if before:
        yield before
    inner = said[0] if isinstance(said, list) and said and isinstance(said[0], dict) and not said[0] else said
    for name, value in inner.items() if isinstance(inner, dict) else ():
        yield from _value_paths(value, *before, name)


REFERENCE_PREFIX = "env:"
"""Prefix of a text setting that refers to an environment variable, so that files contain no secrets."""

FLAGS = {"auth.schemes": "--auth", "remotes": "--remote", "receiver.url": "--webhook-url"}
"""Flags that are not named like their setting."""

FOREIGN_VARIABLES = {
    "AGENTVAULT_REGISTRY_URL": "registry.url",
    "A2A_AGENT_URL": "remotes.orchestrator.url",
    "A2A_WEBHOOK_URL": "receiver.url",
    "A2A_WEBHOOK_TOKEN_TTL": "receiver.token_seconds",
    "NEXT_PUBLIC_A2A_ENABLED": "console.a2a",
}
"""Variables of other systems that set a setting. Ours have precedence."""

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

S = TypeVar("S", bound=msgspec.Struct)

SourcedTable = tuple[str, Mapping[str, Any]]
"""A source of settings, and a table of them."""


class LoadedSettings(NamedTuple):
    """Settings, the source of each set value by its dotted name, and `written` values that refer to the environment."""

    settings: Settings
    sources: dict[str, str]
    written: Mapping[str, Any] = NO_VARIABLES

    @property
    def referred(self) -> frozenset[str]:
        """The environment variables that the settings refer to."""
        return frozenset(variable for value in self.written.values() for variable in references(value))

    def read(self, name: str, kind: type[S]) -> S:
        """Return the table at a dotted name as a struct, such as the options of an agent type."""
        table: Any = self.settings
        for part in name.split("."):
            table = table[part] if isinstance(table, dict) else getattr(table, part)
        try:
            check_names(kind, table, name)
            return msgspec.convert(table, kind, strict=False)
        except UnknownSetting as error:
            raise BadSettings(f"{_source_prefix(name, self.sources)}{error}") from None
        except msgspec.ValidationError as error:
            path, reason = explain_error(error, kind, table)
            raise self.bad(name + path, reason) from None

    def bad(self, name: str, reason: object) -> BadSettings:
        """Return an error about a setting, with its source."""
        return BadSettings(f"{_source_prefix(name, self.sources)}{name}: {reason}")


def load(
    file: Path | None = None, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> LoadedSettings:
    """Load settings. Without a `file`, the one in the working directory is used if there is one.

    Flags that are None are not set. The names in `flags` are dotted.
    """
    env = env or NO_VARIABLES
    given = [*_from_file(file), *from_env(env), *_from_flags(flags or {})]
    for mistake in unknown_variables(env, referenced_variables(given)):
        raise BadSettings(str(mistake))
    return merge_sources(given, env)


def settings_of(table: Mapping[str, Any], source: str, env: Mapping[str, str] = NO_VARIABLES) -> Settings:
    """Return the settings of a program. The environment is used only for references."""
    return merge_sources([(source, table)], env).settings


def store_of(env: Mapping[str, str]) -> str | None:
    """Return the store of the settings file. Other settings in it are not validated."""
    for source, table in _from_file(Path(env[CONFIG_VARIABLE]) if env.get(CONFIG_VARIABLE) else None):
        found = _resolve_references({"store": table.get("store")}, env, {"store": source})["store"]
        if found is not None and not isinstance(found, str):
            raise BadSettings(f"{source}: store: Expected `str`")
        return found
    return None


def registry_of(env: Mapping[str, str]) -> RegistrySettings:
    """Return the settings of the registry. Other settings are not validated."""
    return _section_settings("registry", env).registry


def credentials_of(env: Mapping[str, str]) -> CredentialSettings:
    """Return the settings of credentials. Other settings are not validated."""
    return _section_settings("credentials", env).credentials


def _section_settings(section: str, env: Mapping[str, str]) -> Settings:
    given = [*_from_file(Path(env[CONFIG_VARIABLE]) if env.get(CONFIG_VARIABLE) else None), *from_env(env)]
    begins = f"{variable_of(section)}_"
    for mistake in unknown_variables(env, referenced_variables(given)):
        if any(variable.startswith(begins) for variable in (mistake.name, *mistake.meant)):
            raise BadSettings(str(mistake))
    only = [(source, {section: table[section]}) for source, table in given if section in table]
    return merge_sources(only, env).settings


def merge_sources(given: Iterable[SourcedTable], env: Mapping[str, str]) -> LoadedSettings:
    """Return the settings of several sources. Later sources have precedence."""
    merged: dict[str, Any] = {}
    stated: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, table in given:
        try:
            check_names(Settings, table)
            leaves = list(_leaves(table))
        except UnknownSetting as error:
            raise BadSettings(f"{source}: {error}") from None
        for name, value in leaves:
            _set_value(merged, name, value)
            stated[name], sources[name] = value, source
    values = _resolve_references(merged, env, sources)
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        path, reason = explain_error(error, Settings, values)
        name = path.removeprefix(".")
        raise BadSettings(f"{_source_prefix(name, sources)}{name or 'settings'}: {reason}") from None
    return LoadedSettings(settings, sources, {name: stated[name] for name in sources if has_references(stated[name])})


def _from_file(file: Path | None) -> Iterator[SourcedTable]:
    found = find_file(file)
    if found is not None:
        yield found.source, found.table


def _aliased(aliases: Mapping[str, str], env: Mapping[str, str]) -> Iterator[SourcedTable]:
    for variable, name in aliases.items():
        if env.get(variable):
            path = name.split(".")
            yield variable, _nested(path, _parse_variable(type_at(Settings, path), variable, env[variable]))


def from_env(env: Mapping[str, str]) -> Iterator[SourcedTable]:
    """Yield the settings in variables, each as a table of its own."""
    yield from _aliased(FOREIGN_VARIABLES, env)
    yield from _aliased(ALIASES, env)
    for variable, text in sorted(env.items()):
        path = path_of(variable)
        if path is not None:
            yield variable, _nested(path, _parse_variable(type_at(Settings, path), variable, text))


def _from_flags(flags: Mapping[str, Any]) -> Iterator[SourcedTable]:
    for name, value in flags.items():
        if value is not None:
            yield flag_of(name), _nested(name.split("."), value)


def flag_of(name: str) -> str:
    """Return the flag of a setting, if it has one."""
    return FLAGS.get(name) or f"--{name.rpartition('.')[2].replace('_', '-')}"


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return dict(value)


def _parse_variable(kind: Any, variable: str, text: str) -> Any:
    """Parse a variable: JSON for lists and tables (lists also with commas), else the text itself."""
    is_list = get_origin(kind) in (tuple, frozenset)
    if is_list and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    may_be_table = _is_table(kind) or (text.lstrip().startswith("{") and any(map(_is_table, get_args(kind))))
    if not is_list and not may_be_table:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadSettings(f"{variable} is not JSON: {error}") from None


def _leaves(table: Mapping[str, Any], *before: str) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a table by their dotted names. Tables are merged, and other values are replaced."""
    for key, value in table.items():
        path = (*before, key)
        if "." in key:
            raise UnknownSetting(f"{'.'.join(before)}: {key!r} has a dot, and names have none")
        if _is_table(type_at(Settings, path)):
            yield from _leaves(value, *path)
        else:
            yield ".".join(path), value


def _set_value(merged: dict[str, Any], name: str, value: Any) -> None:
    *sections, last = name.split(".")
    for section in sections:
        merged = merged.setdefault(section, {})
    merged[last] = value


def _is_table(kind: Any) -> bool:
    return is_struct(kind) or get_origin(kind) is dict


def _resolve_references(value: Any, env: Mapping[str, str], sources: Mapping[str, str], name: str = "") -> Any:
    if isinstance(value, dict):
        return {
            key: _resolve_references(part, env, sources, f"{name}.{key}".lstrip(".")) for key, part in value.items()
        }
    if isinstance(value, list):
        return [_resolve_references(part, env, sources, name) for part in value]
    if isinstance(value, str) and value.startswith(REFERENCE_PREFIX):
        variable = value.removeprefix(REFERENCE_PREFIX)
        if variable not in env:
            raise BadSettings(f"{_source_prefix(name, sources)}{name} refers to {variable}, which is not set")
        return env[variable]
    return value


def has_references(value: Any) -> bool:
    """Whether a value, or a value in it, refers to the environment."""
    return next(references(value), None) is not None


def references(value: Any) -> Iterator[str]:
    """Yield the variables that a value, or a value in it, refers to."""
    if isinstance(value, str) and value.startswith(REFERENCE_PREFIX):
        yield value.removeprefix(REFERENCE_PREFIX)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from references(part)


def referenced_variables(given: Iterable[SourcedTable]) -> set[str]:
    """Return the variables that settings refer to."""
    return {variable for _, table in given for variable in references(table)}


def _source_prefix(name: str, sources: Mapping[str, str]) -> str:
    """Return the source of a setting, of the group that contains it, or of a value in it."""
    plain = re.sub(r"\[[^\]]*\]", "", name)
    around = [known for known in sources if f"{plain}.".startswith(f"{known}.")]
    inside = [known for known in sources if known.startswith(f"{plain}.")]
    found = max(around, key=len, default=None) or next(iter(inside), None)
    return f"{sources[found]}: " if found else ""
