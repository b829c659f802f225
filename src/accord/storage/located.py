"""Where something outside of the store is: `scheme://host/path?option=value`, with the options that its kind has.

Reading an address opens nothing. `blobs` and `carriers` read theirs with it; a refusal repeats nothing of an address
but the names of its options, because any of the rest might be a secret.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from msgspec import Struct

from accord.storage.store import StoreRefused


class NoOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the options of an address, which without others takes none."""


class Location(Struct, frozen=True, kw_only=True):
    """An address that was read: `host` is all between the slashes and the path, `env` the server's environment."""

    scheme: str
    host: str = ""
    path: str = ""
    options: Any = NoOptions()
    env: Mapping[str, str] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"Location(scheme={self.scheme!r}, path={self.path!r})"  # everything else may be a secret


def located(url: str, options: type[Struct], env: Mapping[str, str], what: str) -> Location:
    """Read an address of `what`; raises StoreRefused."""
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        read = msgspec.convert(dict(given), options, strict=False)
    except ValueError as error:  # msgspec's are some as well, and name options but no values
        is_plain = isinstance(error, msgspec.ValidationError) and "@" not in url.partition("?")[2]
        why = f": {error}" if is_plain else ""  # behind a raw ? in a password comes the rest of it
        raise StoreRefused(f"The address of {what} cannot be understood{why}") from None
    return Location(scheme=parts.scheme, host=parts.netloc, path=unquote(parts.path), options=read, env=env)
