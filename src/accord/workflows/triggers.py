"""Triggers of runs: cron schedules and webhook endpoints of a document.

Every node checks the schedules by itself and sends the same message at the same time. The idempotency of
`service.submission` starts one run of it. A time that was missed while no node ran is made up for once. Calls of
webhooks are authenticated by the kind of signature that their endpoint names:

    timestamp   X-A2A-Signature: t=...,n=...,v1=...   as requests of callers are signed (`protocol.http_headers`)
    timestamp   webhook-id, webhook-timestamp, webhook-signature: v1,...   (standardwebhooks.com)
    github      X-Hub-Signature-256: sha256=...   of the body alone

An endpoint takes one kind: a signed request could otherwise be sent again as the body of another kind.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from accord.api import Store, StoreUnavailable, new_id, storage
from accord.errors import AccordError, AuthenticationFailed, InvalidParams
from accord.model import Message, Part, Role
from accord.model.base import timestamp_ms
from accord.protocol import http_headers
from accord.workflows.attempts import INNER
from accord.workflows.document import Document, Hook, Schedule
from accord.workflows.plan import inputs_of
from accord.workflows.values import BadExpression, Unresolved, Values

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
    """A schedule is not valid; the message has the reason."""


class Cron(NamedTuple):
    """The minutes, hours, days, months and weekdays (0 is Sunday) of a schedule.

    If both days and weekdays are limited (`is_either`), one of them is enough, as in cron.
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
    """Parse a schedule; raises BadCron."""
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
    numbers: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and (not step.isdecimal() or int(step) == 0):
            raise BadCron(f'"{part}" is not a valid {field.name}: behind / is a number')
        low, dash, high = span.partition("-")
        if span == "*":
            first, last = field.low, field.high
        else:
            first = _number(low, field)
            last = _number(high, field) if dash else field.high if slash else first
        if first > last:
            raise BadCron(f'"{part}" is not a valid {field.name}: it ends before it begins')
        numbers |= set(range(first, last + 1, int(step) if slash else 1))
    return frozenset(numbers)


def _number(word: str, field: _Field) -> int:
    if word.lower() in field.words:
        return field.words[word.lower()]
    if not (word.isascii() and word.isdecimal() and field.low <= int(word) <= field.high):
        raise BadCron(f'"{word}" is not a valid {field.name}: {field.low} to {field.high}')
    return int(word)


MISSED_MS = 3600 * 1000
"""Maximum age of a missed time whose run is still started."""

MAX_SLEEP = 60.0
"""Maximum sleep in seconds. The clock may have been set, or the machine may have slept."""

RETRY_SECONDS = 5.0

MAX_DAYS = 366 * 9
"""Maximum number of days to search: a 29th of February may be eight years away."""

Begin = Callable[[Message], Awaitable[Any]]

log = logging.getLogger("accord.workflows")


# --- times ------------------------------------------------------------------------------------------------------------


def next_time(cron: Cron, zone: ZoneInfo, at: int) -> int | None:
    """Return the first time of a schedule after `at`, or None. Times are in milliseconds."""
    first = _day(at, zone) - timedelta(days=1)
    for ahead in range(MAX_DAYS):
        later = [time for time in _times(cron, zone, first + timedelta(days=ahead)) if time > at]
        if later:
            return later[0]
    return None


def latest_time(cron: Cron, zone: ZoneInfo, since: int, now: int) -> int | None:
    """Return the last time of a schedule after `since` and up to `now`, or None."""
    day, before = _day(now, zone) + timedelta(days=1), _day(since, zone)
    while day >= before - timedelta(days=1):
        passed = [time for time in _times(cron, zone, day) if since < time <= now]
        if passed:
            return passed[-1]
        day -= timedelta(days=1)
    return None


def _day(at: int, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(at / 1000, zone).date()


@lru_cache(maxsize=256)
def _times(cron: Cron, zone: ZoneInfo, day: date) -> tuple[int, ...]:
    """Return the times of a schedule on a day of its zone, in order.

    A time that the clocks skip comes as much later. Of a time that they repeat the first counts, but an hourly schedule
    has both.
    """
    by_day, by_weekday = day.day in cron.days, day.isoweekday() % 7 in cron.weekdays
    if day.month not in cron.months or not ((by_day or by_weekday) if cron.is_either else (by_day and by_weekday)):
        return ()
    folds = (0, 1) if len(cron.hours) == 24 else (0,)
    times = {
        datetime(day.year, day.month, day.day, hour, minute, fold=fold, tzinfo=zone).timestamp()
        for hour in cron.hours
        for minute in cron.minutes
        for fold in folds
    }
    return tuple(sorted(round(time * 1000) for time in times))


# --- schedules --------------------------------------------------------------------------------------------------------


class ScheduleEntry(NamedTuple):
    """A schedule with a unique name in its document."""

    name: str
    cron: Cron
    zone: ZoneInfo
    said: Schedule

    def message(self, agent: str, at: int) -> Message:
        """Return the message that starts a run at a time, the same from every node."""
        when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="minutes")
        request = {"input": self.said.input, "vars": self.said.vars}
        return Message(
            message_id=f"schedule/{agent}/{self.name}/{when}",
            role=Role.USER,
            parts=(Part(data={name: value for name, value in request.items() if value}),),
            metadata={INNER: True, SCHEDULED: when},
        )


SCHEDULED = "schedule"
"""Metadata key of the scheduled time of a run."""


def entries_of(listed: Sequence[Schedule]) -> list[ScheduleEntry]:
    """Return the schedules of a document; raises BadCron, and KeyError or ValueError for an unknown time zone."""
    entries: dict[str, ScheduleEntry] = {}
    for one in listed:
        plain = f"{one.cron} {one.timezone}"
        again = sum(name == plain or name.startswith(f"{plain} #") for name in entries)
        name = f"{plain} #{again + 1}" if again else plain
        entries[name] = ScheduleEntry(name, read_cron(one.cron), ZoneInfo(one.timezone), one)
    return list(entries.values())


class Timetable:
    """The schedules of one agent on one node."""

    def __init__(
        self,
        agent: str,
        said: Sequence[Schedule],
        store: Store,
        begin: Begin,
        *,
        now_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Start runs of `agent` when its schedules are due."""
        self._agent = agent
        self._entries = entries_of(said)
        self._store = store
        self._begin = begin
        self._now_ms, self._sleep = now_ms, sleep
        self._seen: dict[str, int] = {}

    async def run(self) -> None:
        """Check the schedules until canceled."""
        while True:
            try:
                seconds = await self.look()
            except StoreUnavailable as error:
                log.warning("schedule.waits", extra={"agent": self._agent, "reason": str(error)})
                seconds = RETRY_SECONDS
            except Exception:  # the next time may succeed, and the log has the error
                log.exception("schedule.loop_failed", extra={"agent": self._agent})
                seconds = MAX_SLEEP
            await self._sleep(seconds)

    async def look(self) -> float:
        """Start runs that are due; return the seconds until the next check."""
        now = self._now_ms()
        if not self._seen:
            names = [entry.name for entry in self._entries]
            self._seen = await storage.schedule_positions(self._store, self._agent, names, now)
        is_done = all([await self._start_if_due(entry, now) for entry in self._entries])
        times = [next_time(entry.cron, entry.zone, now) for entry in self._entries]
        waits = [(time - self._now_ms()) / 1000 for time in times if time is not None]
        return max(0.0, min(MAX_SLEEP if is_done else RETRY_SECONDS, *waits))

    async def _start_if_due(self, entry: ScheduleEntry, now: int) -> bool:
        """Start a run if a schedule is due; return False if that has to be retried."""
        due = latest_time(entry.cron, entry.zone, max(self._seen[entry.name], now - MISSED_MS - 1), now)
        if due is None:
            return True
        about = {"agent": self._agent, "schedule": entry.name, "due": timestamp_ms(due)}
        try:
            await self._begin(entry.message(self._agent, due))
        except AccordError as error:
            log.warning("schedule.not_begun", extra=about | {"reason": str(error)})
            return False
        log.info("schedule.began", extra=about)
        await storage.advance_schedule(self._store, self._agent, entry.name, due)
        self._seen[entry.name] = due
        return True


DELIVERIES = ("x-github-delivery", "idempotency-key", "webhook-id")
"""Headers that name a delivery of an authenticated caller. A duplicate name starts no second run."""

MAX_DELIVERY = 256
"""Maximum length of such a name, because it becomes part of a key."""

STANDARD_PREFIX = "whsec_"
"""Prefix of secrets of Standard Webhooks; the rest is base64."""

_TIME = re.compile(r"[0-9]{1,12}")


class WebhookCall(NamedTuple):
    """A request to a webhook endpoint; header names are in lower case."""

    target: str
    headers: Mapping[str, str]
    body: bytes


def hook_at(document: Document, path: str) -> Hook | None:
    """Return the webhook at a path, without regard to slashes at its ends."""
    wanted_path = path.strip("/")
    hooks = document.on.webhook if document.on is not None else ()
    return next((hook for hook in hooks if hook.path.strip("/") == wanted_path), None)


def verify_webhook(hook: Hook, secret: str, call: WebhookCall, now: int, tolerance: int) -> str:
    """Return the signed id of a delivery, or raise AuthenticationFailed."""
    kinds = SIGNATURES[hook.signature]
    for header, verified in kinds.items():
        if header in call.headers:
            return verified(secret, call, now, tolerance)
    raise AuthenticationFailed(f"The signature is missing: this webhook needs {' or '.join(kinds)}")


def _a2a(secret: str, call: WebhookCall, now: int, tolerance: int) -> str:
    signature = http_headers.parse_signature(call.headers[http_headers.SIGNATURE_HEADER.lower()])
    if signature is None:
        raise _wrong()
    _check_time(signature.timestamp, now, tolerance)
    request = http_headers.SignedRequest(method="POST", target=call.target, nonce=signature.nonce)
    digest = http_headers.find_digest(signature, call.body, (secret.encode(),), request=request)
    if digest is None:
        raise _wrong()
    return signature.nonce or digest


def _standard(secret: str, call: WebhookCall, now: int, tolerance: int) -> str:
    id, stated = call.headers.get("webhook-id", ""), call.headers.get("webhook-timestamp", "")
    if not id or "." in id or not _TIME.fullmatch(stated):  # in the signed text, a dot ends the id
        raise AuthenticationFailed("webhook-id and webhook-timestamp are missing or not valid")
    _check_time(int(stated), now, tolerance)
    due = hmac.new(standard_key(secret), f"{id}.{stated}.".encode("latin-1") + call.body, hashlib.sha256).digest()
    value = f"v1,{base64.b64encode(due).decode()}".encode()
    if not any([hmac.compare_digest(value, one.encode()) for one in call.headers["webhook-signature"].split(" ")]):
        raise _wrong()
    return id


def standard_key(secret: str) -> bytes:
    """Return the key of a secret. Standard Webhooks write it as `whsec_` and base64; raises ValueError."""
    encoded = secret.removeprefix(STANDARD_PREFIX)
    return secret.encode() if encoded == secret else base64.b64decode(encoded, validate=True)


def _github(secret: str, call: WebhookCall, _now: int, _tolerance: int) -> str:
    """Return the digest of the body. The header that names a delivery is not signed, so a replay can change it."""
    stated = call.headers["x-hub-signature-256"].removeprefix("sha256=").strip().lower()
    due = hmac.new(secret.encode(), call.body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(stated.encode(), due.encode()):
        raise _wrong()
    return due


Verify = Callable[[str, WebhookCall, int, int], str]

SIGNATURES: Mapping[str, Mapping[str, Verify]] = {
    "timestamp": {http_headers.SIGNATURE_HEADER.lower(): _a2a, "webhook-signature": _standard},
    "github": {"x-hub-signature-256": _github},
}
"""`signature` of a webhook -> header -> its verification."""


def _check_time(timestamp: int, now: int, tolerance: int) -> None:
    if abs(now - timestamp) > tolerance:
        raise AuthenticationFailed(f"The timestamp of the signature is more than {tolerance} seconds off")


def _wrong() -> AuthenticationFailed:
    return AuthenticationFailed("The signature is not valid")


def delivery_named(headers: Mapping[str, str]) -> str | None:
    """Return the name of a delivery, or None."""
    return next((headers[name] for name in DELIVERIES if headers.get(name)), None)


def webhook_message(
    document: Document, hook: Hook, call: WebhookCall, delivery: str | None, fixed: Mapping[str, Any]
) -> Message:
    """Return the message for a call; `fixed` are the values of all runs of the document.

    Raises InvalidParams, also for missing or invalid inputs, because the sender gets no report of a rejected run.
    """
    try:
        text = call.body.decode()
    except UnicodeDecodeError:
        raise InvalidParams("The body is not valid UTF-8") from None
    content = _json_or_text(text)
    request: dict[str, Any] = {"input": _run_input(hook, content, text, call.headers)}
    if isinstance(content, dict):
        request["inputs"] = {name: content[name] for name in document.inputs if name in content}
    _, problems = inputs_of(document, {**fixed, **request.get("inputs", {})}, request["input"])
    if problems:
        raise InvalidParams("; ".join(f"{problem.message} ({problem.fix})" for problem in problems))
    if delivery is not None and len(delivery) > MAX_DELIVERY:
        raise InvalidParams(f"The name of a delivery has up to {MAX_DELIVERY} characters")
    return Message(
        message_id=f"hook/{hook.path.strip('/')}/{delivery or new_id()}",
        role=Role.USER,
        parts=(Part(data={name: value for name, value in request.items() if value}),),
        metadata={INNER: True},
    )


def _run_input(hook: Hook, content: Any, text: str, headers: Mapping[str, str]) -> str:
    if hook.input is None:
        return text
    try:
        return Values(vars={"body": content, "headers": headers}).text(hook.input)
    except (Unresolved, BadExpression) as error:
        raise InvalidParams(f"The input of a run cannot be made of this: {error}") from None


def _json_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
