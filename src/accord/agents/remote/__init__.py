"""Remote agents: modes of reporting, timeouts and limits.

Any A2A agent, of any dialect, becomes durable by being hosted (`agent`). These are plain values with the reason for
each default. No client is imported here, so that settings can name them.
"""

from enum import Enum

from msgspec import Struct

from accord.model import AgentCard
from accord.protocol import urls
from accord.protocol.extensions import NUMBERED_EVENTS
from accord.retries import RetryPolicy

EXACT = (1.0, 1.0)
"""No jitter: these delays are promised."""

OUTPUT_MODES = ("text/plain", "application/json")
"""Media types accepted from any agent, beside those in its card."""


class ReportMode(Enum):
    """How reports arrive: by webhook, over an open stream, by polling, or the best that the agent offers.

    `FOLLOW` is the best of the last two: a stream if the agent offers one.
    """

    AUTO = "auto"
    PUSH = "push"
    SUBSCRIBE = "subscribe"
    POLL = "poll"
    FOLLOW = "follow"


class RemoteTerms(Struct, frozen=True, kw_only=True):
    """Terms for a remote agent; `webhook` is the URL for its reports, if it can reach this server."""

    mode: ReportMode = ReportMode.AUTO
    webhook: str | None = None

    sla_seconds: float = 1800.0
    """Maximum time without a new report before a task is given up as unknown, in seconds.

    It is half an hour, as chat users are promised.
    """

    sends: int = 10
    """Maximum number of attempts to send an undelivered message.

    They take about four minutes, with delays that double from one second.
    """

    first_poll: float = 1.0
    most_poll: float = 60.0
    """First and longest delay between two polls of a task, in seconds; the delay doubles."""

    answer_seconds: float = 300.0
    """Maximum time for an answer to a message, in seconds.

    Most agents acknowledge at once, but some finish the task first.
    """

    streams: int = 32
    """Maximum number of open streams to one agent; further tasks are polled."""

    late_looks: int = 6
    """Maximum number of polls of a task that was given up.

    They take about a day and a half, with delays that double from the SLA.
    """

    def __post_init__(self) -> None:
        """Reject a webhook that would carry tokens unencrypted beyond this machine."""
        if self.webhook is not None and not is_safe_url(self.webhook):
            raise ValueError("A webhook must be an https URL (http only on loopback addresses)")

    def poll_seconds(self, polls: int) -> float:
        """Return the delay before a task is polled again."""
        return RetryPolicy(first_seconds=self.first_poll, max_seconds=self.most_poll, jitter=EXACT).delay(polls + 1)

    def send_seconds(self, tries: int) -> float:
        """Return the delay before a message is sent again."""
        return RetryPolicy(first_seconds=1.0, max_seconds=self.most_poll, jitter=EXACT).delay(tries + 1)


class CardOffer(Struct, frozen=True):
    """The parts of an agent's card that reporting depends on."""

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
        """Return the mode of reporting. A mode that the terms require is used even if the card does not offer it."""
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
