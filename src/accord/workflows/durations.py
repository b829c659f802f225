"""Times as files write them (`90s`, `1h30m`, `250ms`) and as everything else counts them: seconds.

Which members are times is the document's; this only spells.
"""

import re
from decimal import Decimal

UNITS = {"d": Decimal(86_400), "h": Decimal(3_600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
DURATION_PATTERN = r"^\s*(\d+(\.\d+)?(ms|[dhms])\s*)+$"
"""What may be written, as a regular expression for everybody."""

MAX_SECONDS = 10 * 366 * 86_400
"""Ten years: a longer time is a mistake, and would not fit everywhere."""


def parse_duration(text: str) -> float:
    """Return a time in seconds; raises ValueError for what is none."""
    if re.fullmatch(DURATION_PATTERN[1:-1], text, re.ASCII) is None:
        raise ValueError(text)
    return float(sum((Decimal(number) * UNITS[unit] for number, unit in _PART.findall(text)), Decimal(0)))


def format_duration(time: float) -> str:
    """Return a time as files have it; `parse_duration` of it is the same time."""
    left = Decimal(repr(time))
    if left % UNITS["ms"]:
        return f"{left:f}s"
    words = []
    for unit, size in UNITS.items():
        count, left = divmod(left, size)
        words += [f"{count:f}{unit}"] if count else []
    return "".join(words) or "0s"
