"""Variables that begin with `ACCORD_`: those of settings, those that other parts of accord read, and all others.

A test holds the table of the second to the code that reads them; all others are mistakes, but for what Kubernetes says
of services that are called like us. Values are `config.load`'s, which is above.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from accord.config.names import kind_of, names
from accord.config.settings import Settings

PREFIX = "ACCORD_"
CONFIG = "ACCORD_CONFIG"
"""The variable that names the file of settings."""

ALIASES = {"ACCORD_REGISTRY_URL": "registry.url"}
"""Shorter variables of ours that mean a setting; the one of its own name counts more."""

CREDENTIALS = tuple(f"{PREFIX}{kind}_" for kind in ("KEY", "TOKEN", "OAUTH", "BASIC", "HMAC", "HOSTS"))
"""How variables begin that are credentials for agents elsewhere (`client.keys.variables`): any id follows."""

OTHERS = {
    CONFIG: "the file of settings",
    "ACCORD_KEYS": "the key file of commands and servers",
    "ACCORD_REGISTRY_KEY": "the key that a registry elsewhere wants",
    "ACCORD_AGENT_CARD": "`--agent-card` of commands that ask an agent",
    "ACCORD_BEARER": "`--bearer` of these commands",
    "ACCORD_API_KEY": "`--api-key` of these commands",
    "ACCORD_PUSH_TOKEN": "`--token` of `accord task push set`",
    "ACCORD_PUSH_AUTH": "`--auth` of `accord task push set`",
    "ACCORD_SERVED": "what `accord serve` tells its own processes; only it sets this",
    "ACCORD_REQUIRE_UI": "`1` where the package is built: fail rather than leave out the pages of the console",
}
"""Variables that are no settings, and what they mean."""

NEAR = 0.85
"""How alike a variable must be to one of ours to be called a misspelling of it."""

_NAME = re.compile(r"ACCORD_[A-Z0-9_]+")
_LINKS = re.compile(
    r"ACCORD_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.ASCII
)
"""What Kubernetes says of a service that is called accord, or accord and more."""

_LINK = re.compile(r"(tcp|udp|sctp)://")
"""What it puts into `ACCORD_SERVER_PORT` where a service is called accord-server."""


class Unread(NamedTuple):
    """A variable that nothing reads, and those that were perhaps meant."""

    name: str
    meant: tuple[str, ...]

    def __str__(self) -> str:
        """Say what is wrong, and what to do."""
        if self.meant:
            return f"{self.name}: there is no such setting; did you mean {' or '.join(self.meant)}?"
        remedy = "unset it, or call a variable of your own something else"
        return f"{self.name}: there is no such setting, and nothing else of accord reads it: {remedy}"


def variable_of(name: str) -> str:
    """Return what the variable of a setting is called."""
    return PREFIX + name.replace(".", "__").upper()


def path_of(variable: str) -> list[str] | None:
    """Return the path of the setting that a variable is, if it is one of a setting."""
    if not _NAME.fullmatch(variable) or _is_other(variable):
        return None
    path = variable.removeprefix(PREFIX).lower().split("__")
    return path if kind_of(Settings, path) is not None else None


def unread(env: Mapping[str, str], named: Collection[str]) -> Iterator[Unread]:
    """Yield the variables that begin like ours and that nothing reads; settings refer to those that are `named`."""
    for variable, text in sorted(env.items()):
        if not variable.startswith(PREFIX) or variable in named or _is_other(variable) or _is_link(variable, text):
            continue
        if path_of(variable) is None:
            yield Unread(variable, tuple(_meant(variable.removeprefix(PREFIX).lower())))


def _is_other(variable: str) -> bool:
    return variable in ALIASES or variable in OTHERS or variable.startswith(CREDENTIALS)


def _is_link(variable: str, text: str) -> bool:
    if "__" in variable:
        return False
    return _LINKS.fullmatch(variable) is not None or (variable.endswith("_PORT") and _LINK.match(text) is not None)


def _meant(spelled: str) -> list[str]:
    """Return what is spelled nearly so: settings whose last part it is, else any variable, else any last part."""
    paths = list(names(Settings))
    lasts = {path[-1] for path in paths}
    whole = ["__".join(path) for path in paths] + [name.removeprefix(PREFIX).lower() for name in (*ALIASES, *OTHERS)]
    if spelled not in lasts and (near := difflib.get_close_matches(spelled, whole, 1, NEAR)):
        return [PREFIX + near[0].upper()]
    last = difflib.get_close_matches(spelled, lasts, 1, NEAR)
    return [variable_of(".".join(path)) for path in paths if path[-1] in last]
