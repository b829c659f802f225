"""Reports on settings: every mistake in them, and every value without its secrets.

Loading stops at the first mistake. Here each section is read by itself, and again without the invalid setting. A
struct's `SECRET` names its secret fields. In tables of agents, names that sound like secrets are secrets, and a URL
loses its password.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from accord.server.settings_loader import (
    REFERENCE_PREFIX,
    BadSettings,
    LoadedSettings,
    SettingsFile,
    SourcedTable,
    from_env,
    merge_sources,
    referenced_variables,
    references,
    unknown_variables,
)
from accord.storage.address import BadAddress, parse_address

_MISSING = "missing required field"
"""Message for a missing required field, which may be one that was removed as invalid."""


def find_mistakes(file: SettingsFile | None, env: Mapping[str, str]) -> Iterator[str]:
    """Yield all mistakes, in the order of the file's sections.

    Variables that cannot be read or are unknown come last.
    """
    given: list[SourcedTable] = []
    if file is not None:
        given += [(file.source, {name: value}) for name, value in file.table.items()]
    unreadable = []
    for variable in sorted(env):
        try:
            given += from_env({variable: env[variable]})
        except BadSettings as error:
            unreadable.append(str(error))
    for section in dict.fromkeys(name for _, table in given for name in table):
        yield from _section_mistakes(section, [one for one in given if section in one[1]], env)
    yield from unreadable
    yield from map(str, unknown_variables(env, referenced_variables(given)))


def _section_mistakes(section: str, given: list[SourcedTable], env: Mapping[str, str]) -> Iterator[str]:
    left: list[SourcedTable] | None = given
    while left:
        try:
            merge_sources(left, env)
        except BadSettings as error:
            if left is not given and _MISSING in str(error):
                return
            yield str(error)
            left = _without(section, left, str(error))
        else:
            return


def _without(section: str, given: list[SourcedTable], said: str) -> list[SourcedTable] | None:
    """Return the sources without the setting that an error names, or None if it cannot be removed."""
    at = next((at for at, (source, _) in enumerate(given) if said.startswith(f"{source}: ")), None)
    if at is None:
        return None
    source, table = given[at]
    rest = _without_named(section, table[section], said.removeprefix(source))
    return [*given[:at], *([] if rest is None else [(source, {section: rest})]), *given[at + 1 :]]


def _without_named(section: str, value: Any, said: str) -> dict[str, Any] | None:
    named = re.search(rf"(?<![\w.]){re.escape(section)}\.([\w-]+)", said)
    if named is None or not isinstance(value, dict) or named[1] not in value:
        return None
    return {key: kept for key, kept in value.items() if key != named[1]}


HIDDEN = "***"
DEFAULT_SOURCE = "default"
"""Source of values that are not set."""

_SECRET = re.compile(r"key|token|secret|password|credential|authorization|headers|^env$", re.IGNORECASE)


def redact(value: Any) -> Any:
    """Return a setting, or a table of them, as JSON values without secrets."""
    match value:
        case Struct():
            secret: frozenset[str] = getattr(value, "SECRET", frozenset())
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            tag = value.__struct_config__
            kind = {tag.tag_field: tag.tag} if tag.tag_field else {}
            return kind | {name: _hide(one) if name in secret else redact(one) for name, one in fields.items()}
        case Mapping():
            return {name: _hide(one) if _is_secret(name, one) else redact(one) for name, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [redact(one) for one in value]
        case str():
            return _without_password(value)
        case _:
            return msgspec.to_builtins(value)


class ShownSetting(NamedTuple):
    """One setting: its name, its value without secrets, and its source."""

    name: str
    value: Any
    source: str


def list_settings(loaded: LoadedSettings) -> Iterator[ShownSetting]:
    """Yield every setting. References to the environment are shown as written, since they are not secret."""
    for name, value, is_secret in _all_settings(loaded.settings):
        if name in loaded.written:
            seen = _redact_written(loaded.written[name], is_secret=is_secret)
        elif name == "store":
            seen = _redact_store(value)
        else:
            seen = _hide(value) if is_secret else redact(value)
        yield ShownSetting(name, seen, _source_of(name, loaded.sources))


def secret_variables(loaded: LoadedSettings) -> Iterator[str]:
    """Yield the variables that only the server needs: of secret settings, and those that settings refer to.

    Options of agents are left out: their frameworks may read the same variables.
    """
    for name, value, is_secret in _all_settings(loaded.settings):
        if name.partition(".")[0] == "agents":
            continue
        yield from references(loaded.written.get(name))
        if (is_secret or (isinstance(value, str) and _without_password(value) != value)) and name in loaded.sources:
            yield loaded.sources[name]


def _all_settings(group: Struct, *before: str) -> Iterator[tuple[str, Any, bool]]:
    """Yield the settings of a group by their dotted names, and whether each is a secret."""
    secret: frozenset[str] = getattr(group, "SECRET", frozenset())
    for field in group.__struct_fields__:
        value, path = getattr(group, field), (*before, field)
        if isinstance(value, Struct):
            yield from _all_settings(value, *path)
        elif (
            isinstance(value, dict) and value and (field == "agents" or isinstance(next(iter(value.values())), Struct))
        ):
            for name, one in value.items():
                inner = (
                    _all_settings(one, *path, name)
                    if isinstance(one, Struct)
                    else [(".".join((*path, name)), one, False)]
                )
                yield from inner
        else:
            yield ".".join(path), value, field in secret and path != ("agents",)


def _source_of(name: str, sources: Mapping[str, str]) -> str:
    inside = dict.fromkeys(said for known, said in sources.items() if known.startswith(f"{name}."))
    return sources.get(name) or ", ".join(inside) or DEFAULT_SOURCE


def _redact_written(value: Any, *, is_secret: bool) -> Any:
    """Return a value as written, without its secrets. References to the environment contain none."""
    if isinstance(value, dict):
        return {name: _redact_written(one, is_secret=_is_secret(name, one)) for name, one in value.items()}
    if isinstance(value, list):
        return [_redact_written(one, is_secret=is_secret) for one in value]
    if isinstance(value, str) and value.startswith(REFERENCE_PREFIX):
        return value
    return _hide(value) if is_secret else redact(value)


def _redact_store(url: str | None) -> str | None:
    try:
        return None if url is None else str(parse_address(url))
    except BadAddress:
        return HIDDEN


def _is_secret(name: str, value: Any) -> bool:
    """Whether a value has a secret-sounding name. Numbers, such as of tokens, are not secrets."""
    return _SECRET.search(name) is not None and not isinstance(value, int | float)


def _hide(value: Any) -> str | None:
    return HIDDEN if value else None


def _without_password(text: str) -> str:
    if "@" not in text or "://" not in text:
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return HIDDEN
    user, separator, host = parts.netloc.rpartition("@")
    name, has_password, _ = user.partition(":")
    kept = f"{name}:{HIDDEN}" if has_password else name
    return urlunsplit(parts._replace(netloc=f"{kept}{separator}{host}"))
