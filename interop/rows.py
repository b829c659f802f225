"""How a row says where it falls short, and whether what was found is what it says.

A row is a client or a server over one binding; what is not among its shortfalls has to work.
"""

from collections.abc import Mapping
from typing import NamedTuple

from interop.outcome import NOTHING_FOR_IT, Operation, Outcome, Verdict


class Short(NamedTuple):
    """How an operation ends that does not work, and a part of the reason."""

    verdict: Verdict
    reason: str

    def fits(self, outcome: Outcome) -> bool:
        """Whether it ended like this."""
        return outcome.verdict is self.verdict and self.reason in outcome.reason


Shorts = Mapping[Operation, Short]


def absent(reason: str) -> Short:
    """Return that the peer does not offer it."""
    return Short(Verdict.NOT_OFFERED, reason)


def broken(reason: str) -> Short:
    """Return that it is there and does not work."""
    return Short(Verdict.FAILED, reason)


def all_but(*operations: Operation) -> dict[Operation, Short]:
    """Return that a client's API has nothing for any others."""
    rest = [operation for operation in Operation if operation not in operations]
    return dict.fromkeys(rest, Short(*NOTHING_FOR_IT))


WORKED = Short(Verdict.WORKED, "")


def unexpected(outcomes: Mapping[Operation, Outcome], shorts: Shorts) -> dict[str, Outcome]:
    """Return what did not end as a row says."""
    return {
        str(operation): outcome
        for operation, outcome in outcomes.items()
        if not shorts.get(operation, WORKED).fits(outcome)
    }
