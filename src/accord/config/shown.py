"""Settings as people may see them: every value that is in effect, and no secret.

Fields that are secrets say so themselves (`Settings.SECRET`). Tables of agents are anybody's, so that there a name that
sounds like a secret is one; an address loses what may be a password in it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from accord.config.load import ENV, Loaded, references
from accord.storage.address import BadAddress, parse_address

HIDDEN = "***"
DEFAULT = "default"
"""Where a value came from that nobody has set."""

_SECRET = re.compile(r"key|token|secret|password|credential|authorization|headers|^env$", re.IGNORECASE)


def shown(value: Any) -> Any:
    """Return a setting, or a table of them, as JSON has it."""
    match value:
        case Struct():
            secret: frozenset[str] = getattr(value, "SECRET", frozenset())
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            tag = value.__struct_config__
            kind = {tag.tag_field: tag.tag} if tag.tag_field else {}
            return kind | {name: _hidden(one) if name in secret else shown(one) for name, one in fields.items()}
        case Mapping():
            return {name: _hidden(one) if _is_secret(name, one) else shown(one) for name, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [shown(one) for one in value]
        case str():
            return _address(value)
        case _:
            return msgspec.to_builtins(value)


class Setting(NamedTuple):
    """One setting: its value, as it may be seen, and where that came from."""

    name: str
    value: Any
    source: str


def listed(loaded: Loaded) -> Iterator[Setting]:
    """Yield every setting; what refers to the environment is shown as it is written, as that is no secret."""
    for name, value, is_secret in _leaves(loaded.settings):
        if name in loaded.written:
            seen = _written(loaded.written[name], is_secret=is_secret)
        elif name == "store":
            seen = _store(value)
        else:
            seen = _hidden(value) if is_secret else shown(value)
        yield Setting(name, seen, _source(name, loaded.sources))


def secret_variables(loaded: Loaded) -> Iterator[str]:
    """Yield the variables that only the server needs: of settings that are secrets, and those that settings refer to.

    Options of agents are left out: their frameworks may read the same variables.
    """
    for name, value, is_secret in _leaves(loaded.settings):
        if name.partition(".")[0] == "agents":
            continue
        yield from references(loaded.written.get(name))
        if (is_secret or (isinstance(value, str) and _address(value) != value)) and name in loaded.sources:
            yield loaded.sources[name]


def _leaves(group: Struct, *before: str) -> Iterator[tuple[str, Any, bool]]:
    """Yield the settings of a group by their dotted names, and whether each is a secret."""
    secret: frozenset[str] = getattr(group, "SECRET", frozenset())
    for field in group.__struct_fields__:
        value, path = getattr(group, field), (*before, field)
        if isinstance(value, Struct):
            yield from _leaves(value, *path)
        elif (
            isinstance(value, dict) and value and (field == "agents" or isinstance(next(iter(value.values())), Struct))
        ):
            for name, one in value.items():
                inner = (
                    _leaves(one, *path, name) if isinstance(one, Struct) else [(".".join((*path, name)), one, False)]
                )
                yield from inner
        else:
            yield ".".join(path), value, field in secret and path != ("agents",)


def _source(name: str, sources: Mapping[str, str]) -> str:
    """Return where a value came from; the members of a table may each have come from elsewhere."""
    inside = dict.fromkeys(said for known, said in sources.items() if known.startswith(f"{name}."))
    return sources.get(name) or ", ".join(inside) or DEFAULT


def _written(value: Any, *, is_secret: bool) -> Any:
    """Return what somebody wrote, without its secrets; where it refers to the environment there are none."""
    if isinstance(value, dict):
        return {name: _written(one, is_secret=_is_secret(name, one)) for name, one in value.items()}
    if isinstance(value, list):
        return [_written(one, is_secret=is_secret) for one in value]
    if isinstance(value, str) and value.startswith(ENV):
        return value
    return _hidden(value) if is_secret else shown(value)


def _store(url: str | None) -> str | None:
    try:
        return None if url is None else str(parse_address(url))
    except BadAddress:
        return HIDDEN


def _is_secret(name: str, value: Any) -> bool:
    """Whether a value sounds like a secret; a number of tokens is none."""
    return _SECRET.search(name) is not None and not isinstance(value, int | float)


def _hidden(value: Any) -> str | None:
    return HIDDEN if value else None


def _address(text: str) -> str:
    """Return a text without the password that it has, if it is an address with one."""
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
