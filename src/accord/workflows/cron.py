"""Five fields of cron: minute, hour, day of the month, month, weekday.

They are read into the numbers that they stand for. When a schedule is next due, and in which zone, is for whoever
begins runs.
"""

from collections.abc import Mapping
from typing import NamedTuple

NICKNAMES: Mapping[str, str] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


class BadCron(ValueError):
    """What is no schedule, and why."""


class Cron(NamedTuple):
    """The minutes, hours, days, months and weekdays (0 is Sunday) of a schedule.

    If both days and weekdays are limited (`is_either`), one of them is enough, as cron has it.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_either: bool


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    words: Mapping[str, int] = {}


FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field("month", 1, 12, {word: at for at, word in enumerate(_MONTHS, 1)}),
    _Field("weekday", 0, 7, {word: at for at, word in enumerate(_DAYS)}),
)


def read_cron(text: str) -> Cron:
    """Return what a schedule says; raises BadCron."""
    parts = NICKNAMES.get(text.strip().lower(), text).split()
    if len(parts) != len(FIELDS):
        raise BadCron(f'"{text}" has {len(parts)} fields, not {len(FIELDS)}')
    minutes, hours, days, months, weekdays = (_numbers(part, field) for part, field in zip(parts, FIELDS, strict=True))
    is_either = not parts[2].startswith("*") and not parts[4].startswith("*")
    cron = Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), is_either)
    if not is_either and not any(day <= _LONGEST[month] for day in cron.days for month in cron.months):
        raise BadCron(f'"{text}" never comes')
    return cron


_LONGEST = {month: 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in range(1, 13)}


def _numbers(text: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and (not step.isdecimal() or int(step) == 0):
            raise BadCron(f'"{part}" is no {field.name}: behind / is a number')
        low, dash, high = span.partition("-")
        if span == "*":
            first, last = field.low, field.high
        else:
            first = _number(low, field)
            last = _number(high, field) if dash else field.high if slash else first
        if first > last:
            raise BadCron(f'"{part}" is no {field.name}: it ends before it begins')
        found |= set(range(first, last + 1, int(step) if slash else 1))
    return frozenset(found)


def _number(word: str, field: _Field) -> int:
    if word.lower() in field.words:
        return field.words[word.lower()]
    if not (word.isascii() and word.isdecimal() and field.low <= int(word) <= field.high):
        raise BadCron(f'"{word}" is no {field.name}: {field.low} to {field.high}')
    return int(word)
