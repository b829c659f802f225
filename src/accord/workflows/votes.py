"""Votes in what agents say: which line of an answer is its vote, how votes are counted, and when they decide.

It is the only place that reads decisions out of agents' words, and it does so without a shell and without guessing: an
answer that has no such line is an abstention. The functions of expressions are made of it, the patterns use those.
"""

import re
from collections import Counter
from collections.abc import Iterable

MARKERS = ("VOTE", "DECISION", "REVIEW_DECISION", "VERDICT")
"""How the line begins that says how an agent votes; its last one counts."""

APPROVE, REJECT = "APPROVE", "REJECT"

QUORUM = 2 / 3
"""Which part of all voters must agree in a quorum, unless a threshold is given."""

_BEGIN = r"^(?:[^\S\n]|[>*_`#-])*"
"""What may stand before a marker in its line. With line breaks in it, 10000 blank lines took 4 s."""

_VOTE = re.compile(rf"{_BEGIN}(?:{'|'.join(MARKERS)})[*_`]*\s*:[\s*_`\"']*([\w.-]+)", re.MULTILINE | re.IGNORECASE)
_SCORE = re.compile(rf"{_BEGIN}(?:BID|SCORE)[*_`]*\s*:[\s*_`]*(-?\d+(?:\.\d+)?)", re.MULTILINE | re.IGNORECASE)
_LOOKS_GOOD = re.compile(r"\bLGTM\b")

_SAME = {"APPROVED": APPROVE, "ACCEPT": APPROVE, "YES": APPROVE, "REJECTED": REJECT, "NO": REJECT}
"""Words that mean the same vote as another."""


def vote_in(text: str) -> str:
    """Return the vote of an answer, in capitals; nothing if it has none. A bare LGTM approves."""
    found: list[str] = _VOTE.findall(text)
    if found:
        word = found[-1].rstrip(".").upper()
        return _SAME.get(word, word)
    return APPROVE if _LOOKS_GOOD.search(text) else ""


def score_in(text: str) -> float | None:
    """Return what an answer bids, or how it scores something: its last line `BID: 3` or `SCORE: 3`."""
    found = _SCORE.findall(text)
    return float(found[-1]) if found else None


def tally(texts: Iterable[str]) -> dict[str, int]:
    """Count votes, the most frequent first, and those of equal number by name."""
    counts = Counter(vote for text in texts if (vote := vote_in(text)))
    return dict(sorted(counts.items(), key=lambda row: (-row[1], row[0])))


def consensus(strategy: str, threshold: float | None, texts: Iterable[str], voters: int) -> str:
    """Return what voters agree on, or nothing.

    majority: more than half of all voters, or the share that `threshold` says; unanimous: all of them; quorum: the
    share that `threshold` says (two thirds) has voted, and most of those who have agree.
    """
    counts = tally(texts)
    word, most = next(iter(counts.items()), ("", 0))
    cast = sum(counts.values())
    if strategy == "unanimous":
        return word if voters and most == voters else ""
    if strategy == "quorum":
        return (
            word if cast >= _share(threshold if threshold is not None else QUORUM, voters) and 2 * most > cast else ""
        )
    if strategy != "majority":
        raise ValueError(f"there is no strategy {strategy!r}; there are majority, quorum, unanimous")
    enough = 2 * most > voters if threshold is None else most >= _share(threshold, voters)
    is_ahead = sum(count == most for count in counts.values()) == 1
    return word if enough and is_ahead else ""


def best(texts: Iterable[str]) -> int:
    """Return the place of the answer with the highest bid or score, the first of equals; -1 if none has one."""
    scored = [(score, -place) for place, text in enumerate(texts) if (score := score_in(text)) is not None]
    return -max(scored)[1] if scored else -1


def _share(threshold: float, voters: int) -> float:
    """Return how many voters a share of them is; nobody is never enough."""
    return max(1.0, threshold * voters - 1e-9)
