"""What is tried between accord and a peer, and how it can end.

It knows neither side, and nothing beyond the standard library: it is imported in the environments of the peers too.
"""

import asyncio
import re
from collections.abc import Awaitable
from enum import StrEnum
from typing import NamedTuple

BOUND_SECONDS = 30
"""For machines that are busy with other things; what works takes less than a second."""


class Operation(StrEnum):
    """What is tried: a column of the page."""

    CARD = "card"
    EXTENDED_CARD = "extended card"
    SEND = "send"
    STREAM = "stream"
    RESUME = "resume"
    GET = "get"
    LIST = "list"
    CANCEL = "cancel"
    INPUT = "input required"
    PUSH = "push"
    PUSH_SETTINGS = "push settings"
    PUSH_LISTING = "list push settings"
    ERRORS = "errors"
    AUTH = "auth"


class Verdict(StrEnum):
    """How it ended."""

    WORKED = "worked"
    NOT_OFFERED = "not offered"
    FAILED = "failed"


class Outcome(NamedTuple):
    """A verdict, with its reason where it did not work."""

    verdict: Verdict
    reason: str = ""


WORKED = Outcome(Verdict.WORKED)
NOTHING_FOR_IT = Outcome(Verdict.NOT_OFFERED, "its API has nothing for it")


class NotOffered(Exception):
    """The peer does not do this, and says so or has no way to be asked."""


class Wrong(Exception):
    """Something came back that is not what was due."""


def same(found: object, due: object) -> None:
    """Complain about what is not what was due."""
    if found != due:
        raise Wrong(f"{found!r} where {due!r} was due")


async def attempted(work: Awaitable[None], refusals: tuple[type[Exception], ...] = ()) -> Outcome:
    """Try something; an error of `refusals` is how the peer says that it does not do this."""
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            await work
    except NotOffered as told:
        return Outcome(Verdict.NOT_OFFERED, steady(str(told)))
    except refusals as error:
        return Outcome(Verdict.NOT_OFFERED, steady(f"{type(error).__name__}: {error}"))
    except Wrong as error:
        return Outcome(Verdict.FAILED, steady(str(error)))
    except TimeoutError:
        return Outcome(Verdict.FAILED, f"no answer within {BOUND_SECONDS} s")
    except Exception as error:  # whatever a peer raises is the finding
        return Outcome(Verdict.FAILED, steady(f"{type(error).__name__}: {error}"))
    return WORKED


_CHANGING = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|(?<=localhost:)\d+|(?<=127\.0\.0\.1:)\d+|0x[0-9a-f]+")
LONGEST = 200


def steady(text: str) -> str:
    """Return a text on one line, without what is different in every run."""
    line = " ".join(_CHANGING.sub("...", text).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
