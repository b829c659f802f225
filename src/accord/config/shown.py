"""Settings as people may see them: every value that is in effect, and no secret.

Fields that are secrets say so themselves (`Settings.SECRET`). Tables of agents are anybody's, so that there a name that
sounds like a secret is one; an address loses what may be a password in it.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct

HIDDEN = "***"

_SECRET = re.compile(r"key|token|secret|password|credential|authorization|headers", re.IGNORECASE)


def shown(value: Any) -> Any:
    """Return a setting, or a table of them, as JSON has it."""
    match value:
        case Struct():
            secret: frozenset[str] = getattr(value, "SECRET", frozenset())
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return {name: _hidden(one) if name in secret else shown(one) for name, one in fields.items()}
        case Mapping():
            return {name: _hidden(one) if _SECRET.search(name) else shown(one) for name, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [shown(one) for one in value]
        case str():
            return _address(value)
        case _:
            return msgspec.to_builtins(value)


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
