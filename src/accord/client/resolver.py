"""The default resolver of agent names.

The client has no settings and no registry. This is a port: the `accord` package sets the resolver when it is
imported, and `connection` uses it where the caller passes none.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accord.model import AgentCard


ResolveAgent = Callable[[str], Awaitable["str | AgentCard"]]
"""Turns an agent's name into its address or card, or raises `UnknownName` (`registry.names`)."""


class DefaultResolver:
    """The resolver to use, or None without a registry."""

    resolve: ResolveAgent | None = None


DEFAULT_RESOLVER = DefaultResolver()
