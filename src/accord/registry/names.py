"""Names of published agents: `org/agent`, without regard to case."""

import re
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from accord.model import AgentCard, CardProfile

MAX_NAME = 128

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*")


class UnknownName(Exception):
    """No agent of that name was found, or none that can be used; the message says it to people."""


class NotAsked(UnknownName):
    """Who knows names could not be asked; that may pass."""


Resolve = Callable[[str], Awaitable[AgentCard]]
"""Returns the card of the agent with a name, or raises UnknownName."""


def is_name(text: str) -> bool:
    """Whether a text is the name of an agent; a path of a file may look like one too."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text.lower()) is not None


def handle(text: str) -> str:
    """Return a name in the form in which names are compared."""
    return text.strip().lower()


def under(card: AgentCard, name: str) -> AgentCard:
    """Return a card under the name that it was found by: credentials are looked up by names, and a card that calls
    itself by another's name must not get those of the other.
    """
    return replace(card, profile=replace(card.profile or CardProfile(), human_readable_id=handle(name)))
