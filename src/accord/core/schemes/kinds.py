"""Which ways to authenticate there are: ours, and those of other packages, by their names.

A kind says how a scheme can be set up and makes it; it is imported when settings name it, because those that verify
signatures take a tenth of a second to load. What a scheme is asked to do is `core.access.Scheme`.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from accord.core.access import Scheme
from accord.core.schemes.ports import Ports
from accord.core.schemes.settings import Settings
from accord.entries import Group


class SchemeKind(Struct, frozen=True, kw_only=True):
    """A way to authenticate: `build` makes it of its settings; what cannot work is a ValueError that says why.

    `settings` is a subclass of `Settings`, whose names are all that may be written, and whose `SECRET` are not shown.
    """

    build: Callable[[Any, Ports], Scheme]
    settings: type[Settings] = Settings


SCHEMES = Group(
    "accord.auth",
    "way to authenticate",
    SchemeKind,
    {
        "api-keys": "accord.core.schemes.apikeys:SCHEME",
        "basic": "accord.core.schemes.basic:SCHEME",
        "header": "accord.core.schemes.header:SCHEME",
        "hmac": "accord.core.schemes.hmac:SCHEME",
        "jwt": "accord.core.schemes.jwt:SCHEME",
        "mtls": "accord.core.schemes.mtls:SCHEME",
    },
    taken=("plugin",),
)
"""All ways, by their names; `type` in settings is one of ours, or `plugin` with the `name` of another."""
