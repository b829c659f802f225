"""How the agents of a server are served: what it speaks, whom it lets in, and the same addresses asked from inside.

It holds what is known and decides nothing. `app` fills it in; `agents` shows it, and `inspector` lets people try it.
"""

from collections.abc import Callable

from msgspec import Struct

from accord.a2a import Caller
from accord.bindings.http import App
from accord.outbound import Outbound
from accord.protocol.operations import DialectName
from accord.registry.trust import TrustedKeys


class Served(Struct, frozen=True, kw_only=True):
    """What a server does for all of its agents.

    `site_as` gives an agent's own addresses, by the name in its path, to a caller who has been let in already: what is
    asked there is asked by that caller, whatever it brings. `schemes` are the ways in that are enforced, by the names
    that a card has for them; one that `is_open` asks nobody who they are. `trust` judges signatures of cards, and what
    `outbound` returns for a URL asks that server, if it may be asked.
    """

    dialects: frozenset[DialectName]
    site_as: Callable[[str, Caller], App]
    schemes: frozenset[str]
    is_open: bool
    trust: TrustedKeys
    outbound: Callable[[str], Outbound]
