"""Remote agents: modes of reporting, timeouts and limits.

Any A2A agent, of any dialect, becomes durable by being hosted (`agent`). These are plain values with the reason for
each default; no client is imported here, so that settings can name them.
"""

from enum import Enum

from msgspec import Struct

from accord.model import AgentCard
from accord.protocol import urls
from accord.protocol.extensions import NUMBERED_EVENTS

OUTPUT_MODES = ("text/plain", "application/json")
"""What is taken from any agent; what its card says that it makes is taken as well."""


class ReportMode(Enum):
    """How reports get here: by webhook, over an open stream, by asking, or the best of these that the agent offers.

    `FOLLOW` is the best of the last two: over a stream if the agent offers one.
    """

    AUTO = "auto"
    PUSH = "push"
    SUBSCRIBE = "subscribe"
    POLL = "poll"
    FOLLOW = "follow"


class RemoteTerms(Struct, frozen=True, kw_only=True):
    """How an agent elsewhere is dealt with. `webhook` is where it can reach us, if it can."""

    mode: ReportMode = ReportMode.AUTO
    webhook: str | None = None

    sla_seconds: float = 1800.0
    """How long an agent may say nothing new before its task is given up as unknown: half an hour, as chat users are
    told."""

    sends: int = 10
    """How often a message is tried that certainly did not arrive: with doubling from a second, about four minutes."""

    first_poll: float = 1.0
    most_poll: float = 60.0
    """Seconds between two questions what became of a task, doubling from the first to the last."""

    answer_seconds: float = 300.0
    """How long an agent may take to answer a message: most acknowledge it at once, but some do the work first."""

    streams: int = 32
    """Streams that are held open to one agent at a time; tasks beyond that are asked for instead."""

    late_looks: int = 6
    """How often a task that was given up is asked for once more, after an SLA each time doubled: about a day and a
    half."""

    def __post_init__(self) -> None:
        """Refuse a webhook that would carry tokens in the clear past this machine."""
        if self.webhook is not None and not is_safe_url(self.webhook):
            raise ValueError("A webhook must be an https address; http is only for this machine itself")

    def poll_seconds(self, polls: int) -> float:
        """Return how long to wait before a task is asked for once more."""
        return min(self.most_poll, self.first_poll * 2.0 ** min(polls, 30))

    def send_seconds(self, tries: int) -> float:
        """Return how long to wait before a message is tried once more."""
        return min(self.most_poll, 2.0 ** min(tries, 30))


class CardOffer(Struct, frozen=True):
    """What an agent's card says that matters here."""

    pushes: bool
    streams: bool
    numbers_events: bool
    output_modes: tuple[str, ...]

    @classmethod
    def of(cls, card: AgentCard) -> "CardOffer":
        """Read a card."""
        promised = {extension.uri for extension in card.capabilities.extensions}
        return cls(
            pushes=card.capabilities.push_notifications is True,
            streams=card.capabilities.streaming is True,
            numbers_events=NUMBERED_EVENTS in promised,
            output_modes=tuple(dict.fromkeys((*OUTPUT_MODES, *card.default_output_modes))),
        )

    def mode(self, terms: RemoteTerms, *, may_push: bool) -> ReportMode:
        """Return how reports get here; what the terms demand is tried even if the card does not say it."""
        wants_push = terms.mode is ReportMode.PUSH or (terms.mode is ReportMode.AUTO and self.pushes)
        if wants_push and may_push and terms.webhook is not None:
            return ReportMode.PUSH
        if terms.mode is ReportMode.SUBSCRIBE or (terms.mode is not ReportMode.POLL and self.streams):
            return ReportMode.SUBSCRIBE
        return ReportMode.POLL


def is_safe_url(url: str) -> bool:
    """Whether tokens may be sent to a URL: over TLS, or within this machine."""
    parts = urls.split_url(url)
    return parts.scheme == "https" or (parts.scheme == "http" and urls.is_loopback(parts.hostname or ""))
