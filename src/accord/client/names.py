"""Who looks an agent up by its name, where the caller of the client names nobody.

The client has no settings and knows no registry. So this is a port: the package fills it in when it is imported, with
what the settings say, and `connecting` asks whoever is here.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accord.model import AgentCard

Resolve = Callable[[str], Awaitable["str | AgentCard"]]
"""Turns an agent's name into its address, or into its card; or raises `UnknownName` (`core.registry.names`)."""


class Default:
    """Who is asked; nobody if it is None."""

    resolve: Resolve | None = None


DEFAULT = Default()
