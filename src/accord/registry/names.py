"""Names of published agents: `org/agent`, without regard to case."""

import re
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from accord.model import AgentCard, CardProfile

MAX_NAME = 128

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*")


class UnknownName(Exception):
    """No usable agent with that name was found. The message is readable."""


class NotAsked(UnknownName):
    """The registry was unavailable. A retry may succeed."""


Resolve = Callable[[str], Awaitable[AgentCard]]
"""Returns the card of the agent with a name, or raises UnknownName."""


def is_name(text: str) -> bool:
    """Whether a text is a valid agent name. A file path may look like one too."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text.lower()) is not None


def handle(text: str) -> str:
    """Return a name in the form used for comparison."""
    return text.strip().lower()


def under(card: AgentCard, name: str) -> AgentCard:
    """Return a card renamed to the name under which it was found.

    Credentials are looked up by name, so a card that claims another agent's name must not get that agent's
    credentials.
    """
    return replace(card, profile=replace(card.profile or CardProfile(), human_readable_id=handle(name)))
