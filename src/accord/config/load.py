"""Putting settings together: what a command line says, else the environment, else a file, else the default.

Which file there is says `config.files`, which settings `config.settings`, and which variables `config.variables`. Every
value remembers where it came from, and what no setting is called is an error with the nearest name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from accord.config.files import BadSettings, find
from accord.config.names import Unknown, check, is_struct, kind_of
from accord.config.settings import Credentials, Registry, Settings
from accord.config.variables import ALIASES, CONFIG, path_of, unread, variable_of
from accord.config.wrong import explained

ENV = "env:"
"""How a text setting refers to a variable of the environment, so that files hold no secrets."""

FLAGS = {"auth.schemes": "--auth", "remotes": "--remote", "receiver.url": "--webhook-url"}
"""The flags that are not called like their setting."""

FOREIGN = {
    "AGENTVAULT_REGISTRY_URL": "registry.url",
    "A2A_AGENT_URL": "remotes.orchestrator.url",
    "A2A_WEBHOOK_URL": "receiver.url",
    "A2A_WEBHOOK_TOKEN_TTL": "receiver.token_seconds",
    "NEXT_PUBLIC_A2A_ENABLED": "console.a2a",
}
"""Variables of other systems that mean a setting; one of ours counts more."""

NOTHING: Mapping[str, str] = MappingProxyType({})

S = TypeVar("S", bound=msgspec.Struct)

Sourced = tuple[str, Mapping[str, Any]]
"""Where settings come from, and a table of them."""


class Loaded(NamedTuple):
    """Settings, the source of each set value by its dotted name, and `written` values that refer to the environment."""

    settings: Settings
    sources: dict[str, str]
    written: Mapping[str, Any] = NOTHING

    @property
    def referred(self) -> frozenset[str]:
        """The variables of the environment that the settings refer to."""
        return frozenset(variable for value in self.written.values() for variable in references(value))

    def read(self, name: str, kind: type[S]) -> S:
        """Read the table at a dotted name as the settings of somebody else, such as one kind of agent."""
        table: Any = self.settings
        for part in name.split("."):
            table = table[part] if isinstance(table, dict) else getattr(table, part)
        try:
            check(kind, table, name)
            return msgspec.convert(table, kind, strict=False)
        except Unknown as error:
            raise BadSettings(f"{_source(name, self.sources)}{error}") from None
        except msgspec.ValidationError as error:
            path, reason = explained(error, kind, table)
            raise self.bad(name + path, reason) from None

    def bad(self, name: str, reason: object) -> BadSettings:
        """Return the refusal of a setting, which says where it came from."""
        return BadSettings(f"{_source(name, self.sources)}{name}: {reason}")


def load(
    file: Path | None = None, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Loaded:
    """Read settings; without a `file`, the one in the working directory is used if there is one.

    Flags that are None were not given. The names in `flags` are dotted.
    """
    env = env or NOTHING
    given = [*_from_file(file), *from_env(env), *_from_flags(flags or {})]
    for mistake in unread(env, referred(given)):
        raise BadSettings(str(mistake))
    return put_together(given, env)


def settings_of(table: Mapping[str, Any], source: str, env: Mapping[str, str] = NOTHING) -> Settings:
    """Return the settings that a program states; of the environment, only the variables that it refers to."""
    return put_together([(source, table)], env).settings


def store_of(env: Mapping[str, str]) -> str | None:
    """Return the store that the file of settings names; what else it says does not matter to who only needs this."""
    for source, table in _from_file(Path(env[CONFIG]) if env.get(CONFIG) else None):
        found = _resolved({"store": table.get("store")}, env, {"store": source})["store"]
        if found is not None and not isinstance(found, str):
            raise BadSettings(f"{source}: store: Expected `str`")
        return found
    return None


def registry_of(env: Mapping[str, str]) -> Registry:
    """Return the settings of the registry, for commands that need only these; what else is set does not matter."""
    return _only("registry", env).registry


def credentials_of(env: Mapping[str, str]) -> Credentials:
    """Return how credentials are sealed, for commands that need only this."""
    return _only("credentials", env).credentials


def _only(section: str, env: Mapping[str, str]) -> Settings:
    given = [*_from_file(Path(env[CONFIG]) if env.get(CONFIG) else None), *from_env(env)]
    begins = f"{variable_of(section)}_"
    for mistake in unread(env, referred(given)):
        if any(variable.startswith(begins) for variable in (mistake.name, *mistake.meant)):
            raise BadSettings(str(mistake))
    only = [(source, {section: table[section]}) for source, table in given if section in table]
    return put_together(only, env).settings


def put_together(given: Iterable[Sourced], env: Mapping[str, str]) -> Loaded:
    """Return the settings of several sources, of which each counts more than those before it."""
    merged: dict[str, Any] = {}
    stated: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, table in given:
        try:
            check(Settings, table)
            leaves = list(_leaves(table))
        except Unknown as error:
            raise BadSettings(f"{source}: {error}") from None
        for name, value in leaves:
            _put(merged, name, value)
            stated[name], sources[name] = value, source
    values = _resolved(merged, env, sources)
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        path, reason = explained(error, Settings, values)
        name = path.removeprefix(".")
        raise BadSettings(f"{_source(name, sources)}{name or 'settings'}: {reason}") from None
    return Loaded(settings, sources, {name: stated[name] for name in sources if refers(stated[name])})


def _from_file(file: Path | None) -> Iterator[Sourced]:
    found = find(file)
    if found is not None:
        yield found.source, found.table


def _aliased(aliases: Mapping[str, str], env: Mapping[str, str]) -> Iterator[Sourced]:
    for variable, name in aliases.items():
        if env.get(variable):
            path = name.split(".")
            yield variable, _nested(path, _parsed(kind_of(Settings, path), variable, env[variable]))


def from_env(env: Mapping[str, str]) -> Iterator[Sourced]:
    """Yield the settings that variables are, each as a table of its own."""
    yield from _aliased(FOREIGN, env)
    yield from _aliased(ALIASES, env)
    for variable, text in sorted(env.items()):
        path = path_of(variable)
        if path is not None:
            yield variable, _nested(path, _parsed(kind_of(Settings, path), variable, text))


def _from_flags(flags: Mapping[str, Any]) -> Iterator[Sourced]:
    for name, value in flags.items():
        if value is not None:
            yield flag_of(name), _nested(name.split("."), value)


def flag_of(name: str) -> str:
    """Return what the flag of a setting is called, if it has one."""
    return FLAGS.get(name) or f"--{name.rpartition('.')[2].replace('_', '-')}"


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return dict(value)


def _parsed(kind: Any, variable: str, text: str) -> Any:
    """Read a variable: JSON where the setting is a list or a table (a list also with commas), else the text itself."""
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
    """Yield the settings of a table by their dotted names: tables are added to, everything else is replaced."""
    for key, value in table.items():
        path = (*before, key)
        if "." in key:
            raise Unknown(f"{'.'.join(before)}: {key!r} has a dot, and names have none")
        if _is_table(kind_of(Settings, path)):
            yield from _leaves(value, *path)
        else:
            yield ".".join(path), value


def _put(merged: dict[str, Any], name: str, value: Any) -> None:
    *sections, last = name.split(".")
    for section in sections:
        merged = merged.setdefault(section, {})
    merged[last] = value


def _is_table(kind: Any) -> bool:
    return is_struct(kind) or get_origin(kind) is dict


def _resolved(value: Any, env: Mapping[str, str], sources: Mapping[str, str], name: str = "") -> Any:
    """Put the values of the environment in place of what refers to them."""
    if isinstance(value, dict):
        return {key: _resolved(part, env, sources, f"{name}.{key}".lstrip(".")) for key, part in value.items()}
    if isinstance(value, list):
        return [_resolved(part, env, sources, name) for part in value]
    if isinstance(value, str) and value.startswith(ENV):
        variable = value.removeprefix(ENV)
        if variable not in env:
            raise BadSettings(f"{_source(name, sources)}{name} refers to {variable}, which is not set")
        return env[variable]
    return value


def refers(value: Any) -> bool:
    """Whether a value, or something in it, is taken from the environment."""
    return next(references(value), None) is not None


def references(value: Any) -> Iterator[str]:
    """Yield the variables that a value, or something in it, is taken from."""
    if isinstance(value, str) and value.startswith(ENV):
        yield value.removeprefix(ENV)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from references(part)


def referred(given: Iterable[Sourced]) -> set[str]:
    """Return the variables that settings refer to."""
    return {variable for _, table in given for variable in references(table)}


def _source(name: str, sources: Mapping[str, str]) -> str:
    """Return where a setting, or the group or the value that it belongs to, came from; or what is in it."""
    plain = re.sub(r"\[[^\]]*\]", "", name)
    around = [known for known in sources if f"{plain}.".startswith(f"{known}.")]
    inside = [known for known in sources if known.startswith(f"{plain}.")]
    found = max(around, key=len, default=None) or next(iter(inside), None)
    return f"{sources[found]}: " if found else ""
